"""From bytes to arrays: images, masks, TIFF."""
