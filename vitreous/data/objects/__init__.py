"""Images with annotated objects: one table, `ObjectTable`, which every format only fills, and one
source, `ObjectSource`, which reads boxes, masks or instances from it."""
