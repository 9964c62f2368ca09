"""PaddleClas' own VisionTransformer and DeiT, both ways.

Paddle and torch do not share an environment: `make test-paddle` makes one for paddle, in which
`paddle_reference.py` builds the models. Without it the last test here still holds the format to
PaddleClas' key names and layouts.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from compare import TOLERANCE, perturb, picture, relative_error

import vitreous
from vitreous.weights.io.files import read_tensors, write_tensors

ROOT = Path(__file__).parents[2]
PADDLE = Path(os.environ.get("VITREOUS_PADDLE_PYTHON", ROOT / ".venv-paddle" / "bin" / "python"))
SCRIPT = Path(__file__).with_name("paddle_reference.py")


def ours_like(settings):
    """Our model for the settings that the script read off PaddleClas' model."""
    distilled = {"tokens": "class+distillation", "pool": "both"}
    return vitreous.create(
        "vit",
        image_size=settings["img_size"],
        patch=settings["patch_size"],
        dim=settings["embed_dim"],
        depth=settings["depth"],
        heads=settings["num_heads"],
        mlp_dim=int(settings["embed_dim"] * settings["mlp_ratio"]),
        classes=settings["class_num"],
        qkv_bias=settings["qkv_bias"],
        qk_scale=settings["qk_scale"],
        norm_eps=settings["epsilon"],
        **(distilled if settings["distilled"] else {}),
    ).eval()


@pytest.mark.skipif(not PADDLE.exists(), reason="paddle is not installed: make test-paddle")
def test_against_paddleclas_both_ways(tmp_path):
    subprocess.run([PADDLE, SCRIPT, tmp_path, "--full"], check=True)
    names = sorted(path.stem for path in tmp_path.glob("*.pdparams"))
    assert len(names) >= 4
    for name in names:
        settings = json.loads((tmp_path / f"{name}.json").read_text())["settings"]
        model = ours_like(settings)
        source = tmp_path / f"{name}.pdparams"
        report = vitreous.import_weights(model, source, format="paddle")
        assert report.loaded == list(model.state_dict())
        saved = np.load(tmp_path / f"{name}.npz")
        with torch.no_grad():
            got = model(torch.from_numpy(saved["images"]))
        assert relative_error(got, torch.from_numpy(saved["logits"])) < TOLERANCE
        back = vitreous.export_weights(model, "paddle")
        write_tensors(tmp_path / f"{name}-back.pdparams", back, "pdparams")
    subprocess.run([PADDLE, SCRIPT, "--load", tmp_path], check=True)


@torch.no_grad()
@pytest.mark.parametrize("distilled", [False, True])
def test_key_names_and_transposed_linears(tmp_path, distilled):
    """The names and shapes that PaddleClas 2.6 has, read off its own models."""
    tokens = {"tokens": "class+distillation", "pool": "both"} if distilled else {}
    fields = {"image_size": 32, "patch": 8, "dim": 48, "depth": 1, "heads": 4, "classes": 10}
    model = perturb(vitreous.create("vit", **fields, **tokens))
    expected = {
        "pos_embed": (1, 17 + distilled, 48),
        "cls_token": (1, 1, 48),
        "patch_embed.proj.weight": (48, 3, 8, 8),
        "patch_embed.proj.bias": (48,),
        "blocks.0.norm1.weight": (48,),
        "blocks.0.norm1.bias": (48,),
        "blocks.0.attn.qkv.weight": (48, 144),
        "blocks.0.attn.qkv.bias": (144,),
        "blocks.0.attn.proj.weight": (48, 48),
        "blocks.0.attn.proj.bias": (48,),
        "blocks.0.norm2.weight": (48,),
        "blocks.0.norm2.bias": (48,),
        "blocks.0.mlp.fc1.weight": (48, 192),
        "blocks.0.mlp.fc1.bias": (192,),
        "blocks.0.mlp.fc2.weight": (192, 48),
        "blocks.0.mlp.fc2.bias": (48,),
        "norm.weight": (48,),
        "norm.bias": (48,),
        "head.weight": (48, 10),
        "head.bias": (10,),
    }
    if distilled:
        expected |= {
            "dist_token": (1, 1, 48),
            "head_dist.weight": (48, 10),
            "head_dist.bias": (10,),
        }
    path = tmp_path / "model.pdparams"
    write_tensors(path, vitreous.export_weights(model, "paddle"), "pdparams")
    stored = read_tensors(path).tensors
    assert {key: tuple(value.shape) for key, value in stored.items()} == expected
    square = model.state_dict()["blocks.0.attention.projection.weight"]
    assert torch.equal(stored["blocks.0.attn.proj.weight"], square.T), "the square one too"
    again = vitreous.create("vit", **fields, **tokens).eval()
    assert vitreous.import_weights(again, path).format == "paddle"
    images = picture(2, 3, 32, 32)
    assert torch.equal(again(images), model(images))
