"""Instance segmentation: a box, a class and a mask for each object."""
