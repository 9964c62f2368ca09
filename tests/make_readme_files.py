"""Makes the files that the README's commands speak of, with random weights. Argument: a folder."""

import sys
from pathlib import Path

import vitreous
from vitreous.weights.files import write_tensors

folder = Path(sys.argv[1])
model = vitreous.create("vit-ti/16", depth=12)
write_tensors(folder / "Ti_16.npz", vitreous.export_weights(model, "google"), "npz")
