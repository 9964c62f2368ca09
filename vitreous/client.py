"""A small client of `vitreous serve`."""
