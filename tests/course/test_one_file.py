"""The ViT of one file is the library's, and timm's, with the same weights."""

from __future__ import annotations

from pathlib import Path

import timm
import torch
from compare import relative_error

import vitreous
from vitreous.course import vit as one_file

SIZES = {"image_size": 32, "patch": 8, "dim": 48, "depth": 3, "heads": 4, "classes": 7}


def perturbed(model):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def test_it_gives_what_the_library_gives():
    ours = perturbed(vitreous.create("vit", **SIZES, mlp_dim=100))
    theirs = one_file.ViT(**SIZES, hidden=100).eval()
    theirs.load_state_dict(vitreous.export_weights(ours, format="timm"))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert relative_error(theirs(images), ours(images)) < 1e-6
        assert relative_error(theirs.embed(images), ours.embed(images)[0]) < 1e-6


def test_it_gives_what_timm_gives_and_takes_timms_checkpoints():
    ours = perturbed(one_file.ViT(dim=192, heads=3, hidden=768))
    theirs = timm.create_model("vit_tiny_patch16_224").eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        assert relative_error(ours(images), theirs(images)) < 1e-5


def test_every_parameter_learns():
    model = one_file.ViT(**SIZES, hidden=100)
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_it_is_short_and_explained():
    assert len(Path(one_file.__file__).read_text(encoding="utf-8").splitlines()) <= 120
