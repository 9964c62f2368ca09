"""Feature vectors: what a model without a head gives."""
