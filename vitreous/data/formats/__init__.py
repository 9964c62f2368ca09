"""Layouts on disk, and built-in data, as `Source`: one module for each format of `table.py`."""

from vitreous.data.formats.open import open_source, same_source
from vitreous.data.formats.table import BUILT_IN, FORMATS, ON_DISK, TRUTHS

__all__ = ["BUILT_IN", "FORMATS", "ON_DISK", "TRUTHS", "open_source", "same_source"]
