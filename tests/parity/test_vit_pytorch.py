"""ViT and SimpleViT of vit-pytorch: its outputs with its weights, and the other way."""

import pytest
from compare import assert_same_bits, both_ways, perturb, picture
from vit_pytorch import SimpleViT, ViT

import vitreous

THEIRS = {"image_size": 32, "patch_size": 8, "num_classes": 7, "dim": 48, "depth": 3, "heads": 4}
OURS = {"image_size": 32, "patch": 8, "classes": 7, "dim": 48, "depth": 3, "heads": 4}
HABITS = {"embedding.norm": True, "attention.qkv_bias": False, "norm_eps": 1e-5}


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("head_dim", [12, 40], ids=["narrow", "wide"])
def test_vit(pool, head_dim):
    theirs = ViT(**THEIRS, mlp_dim=96, pool=pool, dim_head=head_dim)
    reads = {"pool": "class"} if pool == "cls" else {"pool": "mean", "tokens": "none"}
    ours = vitreous.create("vit", **OURS, **HABITS, **reads, mlp_dim=96, head_dim=head_dim)
    both_ways(theirs, ours, picture(2, 3, 32, 32), "vit_pytorch")


def test_rectangular_with_rectangular_patches():
    theirs = ViT(**{**THEIRS, "image_size": (24, 40), "patch_size": (4, 8)}, mlp_dim=96, channels=2)
    ours = vitreous.create(
        "vit",
        **{**OURS, **HABITS, "image_size": (24, 40), "patch": (4, 8)},
        mlp_dim=96,
        channels=2,
        head_dim=64,
    )
    both_ways(theirs, ours, picture(2, 2, 24, 40), "vit_pytorch")


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_simple_vit(size):
    theirs = SimpleViT(**{**THEIRS, "image_size": size}, mlp_dim=96)
    ours = vitreous.create(
        "vit",
        **{**OURS, "image_size": size},
        **HABITS,
        mlp_dim=96,
        head_dim=64,
        position="sines-2d",
        tokens="none",
        pool="mean",
        projection_bias=False,
    )
    both_ways(theirs, ours, picture(2, 3, *size), "vit_pytorch")


def test_the_layout_of_older_versions():
    """Class token and positions with axes of length 1 before them."""
    ours = perturb(vitreous.create("vit", **OURS, **HABITS))
    state = vitreous.export_weights(ours, "vit_pytorch")
    older = state | {key: state[key][None] for key in ("cls_token", "pos_embedding")}
    vitreous.import_weights(ours, older, "vit_pytorch")
    assert_same_bits(vitreous.export_weights(ours, "vit_pytorch"), older)


def test_vit_b16_at_full_width():
    fields = {"image_size": 224, "patch_size": 16, "num_classes": 1000, "dim": 768, "depth": 2}
    theirs = ViT(**fields, heads=12, mlp_dim=3072)
    ours = vitreous.create("vit-b/16", depth=2, **HABITS)
    both_ways(theirs, ours, picture(1, 3, 224, 224), "vit_pytorch")
