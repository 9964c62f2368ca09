"""Each rewrite leaves the outputs as they are, and changes what it says."""

import copy

import pytest
import torch
from compare import perturb

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.deploy.export import Traced
from vitreous.deploy.rewrite import REWRITES, fold_normalisation, rewrite

SMALL = {
    "image_size": 32,
    "classes": 5,
    "depth": 2,
    "dim": 48,
    "heads": 3,
    "mlp_dim": 96,
    "patch": 8,
}
MODELS = {
    "vit": ("vit", SMALL),
    "layer scale": ("vit", {**SMALL, "layer_scale": 0.3}),
    "no key bias, rotary": ("dinov3-s/16", {**SMALL, "layer_scale": 0.3}),
    "norm of queries": ("vit", {**SMALL, "attention.qk_norm": True}),
    "post": ("vit", {**SMALL, "norm": "post"}),
    "swin": ("swin", {"image_size": 32, "dim": 24, "depths": (1, 2), "heads": (1, 2), "window": 4}),
    "swin, padded windows": (
        "swin",
        {"image_size": (44, 52), "dim": 24, "depths": (2, 2), "heads": (1, 2), "window": 4},
    ),
    "resnet": ("resnet-18", {"image_size": 32, "classes": 5}),
    "hybrid": ("vit-c-mini/8", {"image_size": 32, "classes": 5}),
    "detr": (
        "detr",
        {
            **{"image_size": 64, "backbone": "resnet-18", "dim": 32, "heads": 4, "mlp_dim": 32},
            **{"encoder_depth": 1, "decoder_depth": 1, "queries": 5, "classes": 5},
        },
    ),
}
CHANGED = {
    "vit": {"layer scales": 0, "attention scales": 2, "norms": 4, "batch norms": 0},
    "layer scale": {"layer scales": 4, "attention scales": 2, "norms": 4, "batch norms": 0},
    "norm of queries": {"layer scales": 0, "attention scales": 0, "norms": 4, "batch norms": 0},
    "post": {"layer scales": 0, "attention scales": 2, "norms": 0, "batch norms": 0},
}


def made(name):
    torch.manual_seed(0)
    family, fields = MODELS[name]
    model = perturb(vitreous.create(family, **fields))
    return model, torch.randn(3, 3, *model.own_size())


def error(model, other, images):
    with torch.no_grad():
        wanted, found = model.outputs(images), other.outputs(images)
    return max(
        float((wanted[key] - found[key]).abs().max() / wanted[key].abs().max()) for key in wanted
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("what", [*REWRITES, "all"])
def test_outputs_stay(name, what):
    model, images = made(name)
    other = copy.deepcopy(model)
    rewrite(other) if what == "all" else REWRITES[what](other)
    assert error(model, other, images) < 3e-6


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_changed(name):
    model, _ = made(name)
    assert rewrite(model) == CHANGED[name]
    assert not any(rewrite(model).values())  # once is enough


def test_batch_norms_of_a_resnet_are_gone():
    model, _ = made("resnet")
    frozen = sum("BatchNorm" in type(module).__name__ for module in model.modules())
    changed = rewrite(model)["batch norms"]
    left = sum("BatchNorm" in type(module).__name__ for module in model.modules())
    assert left == frozen - changed


def test_normalisation_is_part_of_the_first_layer():
    model, images = made("vit")
    other, mean, std = copy.deepcopy(model), (0.4, 0.5, 0.6), (0.2,)
    pixels = images.sigmoid()  # from 0 to 1
    normalised = (pixels - torch.tensor(mean).view(3, 1, 1)) / 0.2
    assert fold_normalisation(other, mean, std) == 1
    with torch.no_grad():
        torch.testing.assert_close(other(pixels), model(normalised), rtol=1e-4, atol=1e-5)


def test_a_graph_of_pixels_normalises_in_its_first_layer():
    model, images = made("vit")
    preprocess = Preprocess(32, mean=(0.4, 0.5, 0.6), std=(0.2,))
    levels = (images.sigmoid() * 255).round().to(torch.uint8)
    traced = Traced(copy.deepcopy(model), preprocess)
    assert traced.folded
    with torch.no_grad():
        wanted = model(preprocess.normalise(levels))
        torch.testing.assert_close(traced(levels)[0], wanted, rtol=1e-4, atol=1e-5)


def test_where_zeros_are_padded_it_stays_outside():
    assert fold_normalisation(made("resnet")[0], (0.5,), (0.5,)) == 0
