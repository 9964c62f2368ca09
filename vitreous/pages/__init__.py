"""Figures and pages: what `explain` and the tasks computed, drawn."""
