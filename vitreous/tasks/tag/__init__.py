"""Tagging: any number of labels per image."""
