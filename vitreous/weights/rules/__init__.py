"""Checkpoint formats as rules, and the one interpreter that reads them in both directions."""
