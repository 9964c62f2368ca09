"""Detection: a box and a class for each object."""
