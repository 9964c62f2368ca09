"""The smallest trainings that have every kind of randomness in them: half a second an epoch."""

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

COMMON = ["--epochs=5", "--ema=0.9"]
CLASSIFY = [
    "--model=vit",
    *(f"--fields={field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")),
    *(f"--fields={field}" for field in ("drop_path=0.1", "dropout=0.1")),
    *("--image-size", "8", "--batch=128", "--save-every=3", "--mixup=0.2", "--crop=shift"),
]
SEGMENT = [
    *("--model=segmenter", "--fields=encoder=vit", "--fields=dropout=0.1", "--fields=heads=2"),
    *(f"--fields=encoder.{field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")),
    *("--image-size", "16", "--batch=8", "--save-every=3", "--crop=window", "--jitter=0.2"),
]


@functools.cache
def mask_folder():
    """Eighty little images of different sizes: a bright box on dark ground, some of it ignored."""
    keep = tempfile.TemporaryDirectory()
    mask_folder.keep = keep  # as long as the process lives
    root, random = Path(keep.name), np.random.default_rng(0)
    for split, count in (("train", 64), ("val", 8), ("test", 8)):
        for kind in ("images", "masks"):
            (root / split / kind).mkdir(parents=True)
        for number in range(count):
            size = random.integers(12, 28, 2)
            image = random.integers(0, 90, (*size, 3))
            mask = np.zeros(size)
            top, left = random.integers(0, size - 6)
            image[top : top + 6, left : left + 5] += 120
            mask[top : top + 6, left : left + 5] = 3
            mask[0] = 255
            name = f"{number}.png"
            Image.fromarray(image.astype(np.uint8)).save(root / split / "images" / name)
            Image.fromarray(mask.astype(np.uint8)).save(root / split / "masks" / name)
    names = {"0": "ground", "3": "box", "255": None}
    (root / "classes.json").write_text(json.dumps(names))
    return root


def arguments(task="classify"):
    """Of `vitreous train`."""
    if task == "classify":
        return ["digits", *CLASSIFY, *COMMON]
    return [str(mask_folder()), *SEGMENT, *COMMON]


def command(out, *more, task="classify"):
    return [
        *(sys.executable, "-m", "vitreous", "train", *arguments(task), f"--out={out}"),
        *more,
    ]


def train(out, *more, task="classify", check=True, **options):
    done = subprocess.run(
        command(out, *more, task=task),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
    assert not check or done.returncode == 0, done.stderr
    return done
