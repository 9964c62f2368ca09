"""The smallest training that has every kind of randomness in it: half a second an epoch."""

import subprocess
import sys

TINY = [
    "--model=vit",
    *(f"--fields={field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")),
    *(f"--fields={field}" for field in ("drop_path=0.1", "dropout=0.1")),
    *("--image-size", "8", "--epochs=3", "--batch=128", "--save-every=3", "--mixup=0.2"),
    *("--ema=0.9", "--crop=shift"),
]


def command(out, *more):
    return [sys.executable, "-m", "vitreous", "train", "digits", *TINY, f"--out={out}", *more]


def train(out, *more, check=True, **options):
    done = subprocess.run(
        command(out, *more), check=False, capture_output=True, text=True, timeout=300, **options
    )
    assert not check or done.returncode == 0, done.stderr
    return done
