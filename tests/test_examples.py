"""Every script in examples/ runs, at a small size, through its own options."""

import gzip
import runpy
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {
    "class_maps.py": ["garments", "--images=60", "--tested=4", "--epochs=1"],
    "detr_speed.py": ["--rounds=1", "--size=64"],
    "parity.py": ["resnet50"],
    "swin_speed.py": ["--rounds=1", "--batch=1"],
    "training_speed.py": ["--rounds=1", "--batch=2"],
}
PRINTED = {
    "class_maps.py": "class map: 0.",
    "detr_speed.py": "transformers",
    "parity.py": "resnet50",
    "swin_speed.py": "torchvision",
    "training_speed.py": "ratio",
}


def write_garments(folder):
    """Bright rectangles in the format of Fashion-MNIST: the class is the height."""
    folder.mkdir()
    for name, count in (("train", 80), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 : 8 + 2 * label, 6:20] = 200
        for kind, header, array in (
            ("images-idx3", struct.pack(">IIII", 0x803, count, 28, 28), images),
            ("labels-idx1", struct.pack(">II", 0x801, count), labels),
        ):
            path = folder / f"{name}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if script == "class_maps.py":
        write_garments(tmp_path / "garments")
    monkeypatch.setattr(sys, "argv", [script, *SMALL[script]])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert PRINTED[script] in capsys.readouterr().out
