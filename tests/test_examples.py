"""Every script in examples/ runs, at a small size, through its own options."""

import runpy
import sys
from pathlib import Path

import pytest
from train.tiny import garment_folder

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {
    "class_maps.py": ["--images=60", "--tested=4", "--epochs=1"],
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


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = [str(garment_folder())] if script == "class_maps.py" else []
    monkeypatch.setattr(sys, "argv", [script, *folder, *SMALL[script]])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert PRINTED[script] in capsys.readouterr().out
