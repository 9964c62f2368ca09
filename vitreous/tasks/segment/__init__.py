"""Segmentation: one class per pixel."""
