"""Weights from and to other libraries."""

from vitreous.weights.exporting import export_weights
from vitreous.weights.importing import import_weights

__all__ = ["export_weights", "import_weights"]
