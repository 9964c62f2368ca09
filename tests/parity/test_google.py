"""Google's .npz files, through timm's own loader for them."""

import numpy as np
import pytest
import timm
import torch
from compare import TOLERANCE, perturb, picture, relative_error

import vitreous


def write_npz(path, model):
    state = vitreous.export_weights(model, "google")
    np.savez(path, **{key: value.numpy() for key, value in state.items()})


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "theirs", "size"),
    [
        ("vit-ti/16", "vit_tiny_patch16_224", (96, 96)),
        ("r26+vit-s/32", "vit_small_r26_s32_224", (96, 96)),
        ("r50+vit-b/16", "vit_base_r50_s16_224", (64, 64)),
        ("r+vit-ti/16", "vit_tiny_r_s16_p8_224", (96, 96)),
    ],
)
def test_npz_both_ways(tmp_path, name, theirs, size):
    """What we write, timm's loader reads; what we read back is what we wrote."""
    fields = {"image_size": size, "depth": 2, "classes": 11}
    ours = perturb(vitreous.create(name, **fields))
    write_npz(tmp_path / "weights.npz", ours)
    reference = timm.create_model(theirs, img_size=size, depth=2, num_classes=11).eval()
    reference.load_pretrained(str(tmp_path / "weights.npz"))
    images = picture(2, 3, *size)
    assert relative_error(ours(images), reference(images)) < TOLERANCE

    again = vitreous.create(name, **fields).eval()
    report = vitreous.import_weights(again, tmp_path / "weights.npz", format="google")
    assert torch.equal(again(images), ours(images))
    assert any("tanh" in note for note in report.notes), "what Google computes differently is said"


@torch.no_grad()
def test_layouts_of_the_released_files(tmp_path):
    """AugReg files put `opt/target/` before each key; hybrids keep norms as (1, 1, 1, c)."""
    ours = perturb(vitreous.create("r26+vit-s/32", image_size=64, depth=1, classes=5))
    state = vitreous.export_weights(ours, "google")
    odd = {
        f"opt/target/{key}": value.reshape(1, 1, 1, -1) if "/gn" in f"/{key}" else value
        for key, value in state.items()
    }
    np.savez(tmp_path / "odd.npz", **{key: value.numpy() for key, value in odd.items()})
    again = vitreous.create("r26+vit-s/32", image_size=64, depth=1, classes=5).eval()
    vitreous.import_weights(again, tmp_path / "odd.npz")
    images = picture(1, 3, 64, 64)
    assert torch.equal(again(images), ours(images))


@torch.no_grad()
def test_pretraining_head(tmp_path):
    fields = {"image_size": 32, "patch": 16, "dim": 32, "depth": 1, "heads": 2, "head": "tanh"}
    ours = perturb(vitreous.create("vit", classes=21, **fields))
    state = vitreous.export_weights(ours, "google")
    assert state["pre_logits/kernel"].shape == (32, 32)
    again = vitreous.create("vit", classes=21, **fields).eval()
    vitreous.import_weights(again, state, "google")
    images = picture(1, 3, 32, 32)
    assert torch.equal(again(images), ours(images))
    tuned = vitreous.create("vit", classes=4, **{**fields, "head": "linear"})
    report = vitreous.import_weights(tuned, state, "google", reinit=["head.*"])
    assert report.reinitialised == ["head.out.weight", "head.out.bias"]
    assert "pre_logits/kernel" in report.dropped


def test_vit_b16_at_full_size(tmp_path):
    ours = perturb(vitreous.create("ViT-B_16"))
    write_npz(tmp_path / "B_16.npz", ours)
    reference = timm.create_model("vit_base_patch16_224").eval()
    reference.load_pretrained(str(tmp_path / "B_16.npz"))
    images = picture(1, 3, 224, 224)
    with torch.no_grad():
        assert relative_error(ours(images), reference(images)) < TOLERANCE
