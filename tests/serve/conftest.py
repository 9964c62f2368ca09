"""Models of every task, pictures, and a server that most tests share."""

import numpy as np
import pytest
from PIL import Image
from runs import OLD_RUNS, VIT, made, vit_file, vit_run
from serve.running import running

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


class Runs(dict):
    """By name: a run of every task, and an exported file; made when they are asked for."""

    names = ("vit", "tags", "objects", "mae", "detect", "segment", "exported")

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __missing__(self, name):
        self[name] = self.made(name)
        return self[name]

    def made(self, name):
        match name:
            case "vit":
                return vit_run()
            case "tags":
                return made(self.folder / name, "tag", "vit", **VIT)
            case "objects":
                return made(self.folder / name, "instance", "rf-detr", **MASKS)
            case "mae":
                return made(self.folder / name, "mae", "mae-pretrain", classes=None, **MAE)
            case "exported":
                return vit_file(".onnx")
        return OLD_RUNS / name


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def server(runs):
    with running(*(f"{name}={runs[name]}" for name in runs.names)) as server:
        yield server
