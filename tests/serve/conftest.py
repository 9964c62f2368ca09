"""Models of every task, pictures, and a server that most tests share."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from running.runs import VIT, made
from serve.running import running

import vitreous

OLD = Path(__file__).parent.parent / "old_runs"
DETECTOR = {"dim": 32, "heads": 4, "mlp_dim": 32, "decoder_depth": 1, "queries": 6}
MASKS = {
    **DETECTOR,
    **{"cross_heads": 4, "groups": 2, "projector_depth": 1, "backbone": "vit"},
    **{"backbone_fields": VIT, "resize": "square", "masks": True, "whole": True},
}
MAE = {"encoder": "vit", "encoder_fields": VIT, "decoder_dim": 32, "decoder_heads": 2}


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Pictures of different sizes."""
    folder, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths = []
    for number, (height, width) in enumerate([(40, 60), (90, 60), (64, 64), (33, 100), (50, 50)]):
        pixels = random.integers(0, 255, (height, width, 3), dtype=np.uint8)
        paths.append(folder / f"photo {number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """By name: a run of every task, and an exported file."""
    folder = tmp_path_factory.mktemp("served")
    found = {
        "vit": made(folder / "vit", "classify", "vit", **VIT),
        "tags": made(folder / "tags", "tag", "vit", **VIT),
        "objects": made(folder / "objects", "instance", "rf-detr", **MASKS),
        "mae": made(folder / "mae", "mae", "mae-pretrain", classes=None, **MAE),
        **{name: OLD / name for name in ("detect", "segment")},
    }
    found["exported"] = vitreous.export(found["vit"], folder / "vit.onnx", log=lambda _: None).path
    return found


@pytest.fixture(scope="session")
def server(runs):
    with running(*(f"{name}={path}" for name, path in runs.items())) as server:
        yield server
