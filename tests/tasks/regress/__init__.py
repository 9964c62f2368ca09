"""A task that Vitreous does not have: one number per image, no classes, smaller errors are better.

It is what docs/adding-a-task.md shows, and test_regress.py proves that nothing else is needed.
"""
