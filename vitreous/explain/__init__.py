"""Pages and figures that show what a model learned and how."""
