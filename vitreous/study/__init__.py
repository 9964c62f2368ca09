"""Experiments: runs compared with each other."""
