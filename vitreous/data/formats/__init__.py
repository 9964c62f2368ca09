"""Layouts on disk, and built-in data, as `Source`: one module for each format of `table.py`."""

from vitreous.data.formats.open import is_table, is_there, open_source, same_source
from vitreous.data.formats.table import BUILT_IN, FORMATS, ON_DISK, TRUTHS, Columns

__all__ = [
    "BUILT_IN",
    "FORMATS",
    "ON_DISK",
    "TRUTHS",
    "Columns",
    "is_table",
    "is_there",
    "open_source",
    "same_source",
]
