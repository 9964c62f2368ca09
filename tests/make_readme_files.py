"""Makes the files that the README's commands speak of, with random weights. Argument: a folder."""

import sys
from pathlib import Path

from PIL import Image

import vitreous
from vitreous.data.formats import open_source
from vitreous.weights.io.files import write_tensors

folder = Path(sys.argv[1])
source = open_source("digits")
seven = next(sample for sample in source.splits["test"] if sample.target == 7)
Image.fromarray(source.image(seven)[0].numpy()).save(folder / "seven.png")
model = vitreous.create("vit-ti/16", depth=12)
write_tensors(folder / "Ti_16.npz", vitreous.export_weights(model, "google"), "npz")
