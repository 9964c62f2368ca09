"""Do class maps show the object? Garments of Fashion-MNIST at a random place of an empty canvas.

A small ViT learns to name the garment wherever it is; then, for test images, which share of the
class map falls on patches with pixels of the garment, beside the share of the area that these
patches have. Run it with the folder of the IDX files (Debian: dataset-fashion-mnist):

    python examples/class_maps.py /usr/share/datasets/fashion-mnist
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

import vitreous
from vitreous.data.formats import open_source
from vitreous.train.recipe import Recipe
from vitreous.train.run import train

CANVAS, PATCH, TRAINED, TESTED = 56, 7, 12_000, 300


def write_canvases(source, folder: Path, seed: int = 0) -> None:
    """IDX files of the garments, each at a random place."""
    chance = np.random.default_rng(seed)
    for split, name, count in (("train", "train", TRAINED), ("test", "t10k", 2_000)):
        samples = source.splits[split][:count]
        images = np.zeros((count, CANVAS, CANVAS), np.uint8)
        for image, sample in zip(images, samples, strict=True):
            top, left = chance.integers(0, CANVAS - 28 + 1, 2)
            image[top : top + 28, left : left + 28] = source.image(sample)[0].numpy()
        header = struct.pack(">IIII", 0x803, count, CANVAS, CANVAS)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        targets = np.array([sample.target for sample in samples], np.uint8)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, count) + targets.tobytes()
        )


def main() -> None:
    garments = open_source(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "canvas"
        folder.mkdir()
        write_canvases(garments, folder)
        fields = ("dim=96", "depth=4", "heads=4", "mlp_dim=192", "position=conditional")
        recipe = Recipe(
            data=str(folder),
            model="vit",
            fields=(f"patch={PATCH}", *fields),
            image_size=(CANVAS, CANVAS),
            epochs=12,
            batch=64,
            lr=2e-3,
            crop="shift",
            flip=True,
        )
        log = lambda text: print(text, flush=True)  # noqa: E731
        run = train(
            recipe, Path(name) / "run", log=log, watch=lambda e: e.evaluated and log(_line(e))
        )
        predictor = vitreous.load(run.path)
        source = open_source(str(folder))
        print("test accuracy", predictor.evaluate(source, "test")["accuracy"])
        measure(predictor, source)


def _line(event) -> str:
    return f"epoch {event.epoch:g}: accuracy {event.evaluated['accuracy']:.3f}"


def measure(predictor, source) -> None:
    shares: dict[str, list[float]] = {"class map": [], "rollout": [], "area": []}
    for sample in source.splits["test"][:TESTED]:
        image = source.image(sample)
        found = predictor.explain(image, 1)
        garment = image[0].unfold(0, PATCH, PATCH).unfold(1, PATCH, PATCH).amax(dim=(2, 3)) > 0
        (class_map,) = found.class_maps.values()
        shares["class map"].append(class_map[garment].sum().item())
        shares["rollout"].append(found.rollout[garment].sum().item())
        shares["area"].append(garment.float().mean().item())
    for name, values in shares.items():
        middle = np.median(values)
        print(f"{name}: {np.mean(values):.3f} on the garment on average, median {middle:.3f}")


if __name__ == "__main__":
    main()
