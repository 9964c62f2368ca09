"""Engines run a model on a batch of prepared images and give what the torch model gives."""
