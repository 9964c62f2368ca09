"""Training: the recipe, the loop, the optimiser, checkpoints and the run folder."""
