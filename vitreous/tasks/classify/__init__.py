"""Classification: one class per image."""
