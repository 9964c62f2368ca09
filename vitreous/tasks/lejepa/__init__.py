"""LeJEPA: views of an image are alike, and all images together normally distributed."""
