"""Do class maps show the object? Garments of Fashion-MNIST at a random place of an empty canvas.

A small ViT learns to name the garment wherever it is; then, for test images, which share of the
class map falls on patches with pixels of the garment, beside the share of the area that these
patches have. FOLDER has the IDX files (Debian's package dataset-fashion-mnist writes them to
/usr/share/datasets/fashion-mnist):

    python examples/class_maps.py FOLDER [--images N] [--tested N] [--epochs N]
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np
import tyro

import vitreous
from vitreous.data.formats import open_source
from vitreous.train.recipe import Recipe
from vitreous.train.run import train

CANVAS, PATCH = 56, 7


def write_canvases(source, folder: Path, images_of: dict[str, int], seed: int = 0) -> None:
    """IDX files of the garments, each at a random place."""
    chance = np.random.default_rng(seed)
    for split, name in (("train", "train"), ("test", "t10k")):
        samples = source.splits[split][: images_of[split]]
        count = len(samples)
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


def main(
    folder: tyro.conf.Positional[Path], images: int = 12_000, tested: int = 300, epochs: int = 12
) -> None:
    """Args:
    folder: Folder of Fashion-MNIST's IDX files.
    images: Images to train on.
    tested: Test images whose maps are measured.
    epochs: Passes over the training images.
    """
    garments = open_source(str(folder))
    with tempfile.TemporaryDirectory() as name:
        canvases = Path(name) / "canvas"
        canvases.mkdir()
        write_canvases(garments, canvases, {"train": images, "test": max(tested, 2_000)})
        fields = ("dim=96", "depth=4", "heads=4", "mlp_dim=192", "position=conditional")
        recipe = Recipe(
            data=str(canvases),
            model="vit",
            fields=(f"patch={PATCH}", *fields),
            image_size=(CANVAS, CANVAS),
            epochs=epochs,
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
        source = open_source(str(canvases))
        print("test accuracy", predictor.evaluate(source, "test")["accuracy"])
        measure(predictor, source, tested)


def _line(event) -> str:
    return f"epoch {event.epoch:g}: accuracy {event.evaluated['accuracy']:.3f}"


def measure(predictor, source, tested: int) -> None:
    shares: dict[str, list[float]] = {"class map": [], "rollout": [], "area": []}
    for sample in source.splits["test"][:tested]:
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
    tyro.cli(main)
