"""ViT and ResNet give torchvision's outputs with its weights, and the other way."""

import pytest
import torch
import torchvision
from compare import both_ways, perturb, picture

import vitreous


@pytest.mark.parametrize("hidden", [None, 20])
def test_vit(hidden):
    theirs = torchvision.models.VisionTransformer(
        32, 8, 3, 4, 48, 96, num_classes=7, representation_size=hidden
    )
    head = {} if hidden is None else {"head": "tanh", "head_hidden": hidden}
    ours = vitreous.create(
        "vit", image_size=32, patch=8, depth=3, heads=4, dim=48, mlp_dim=96, classes=7, **head
    )
    both_ways(theirs, ours, picture(2, 3, 32, 32), "torchvision")


def test_vit_b16_at_full_size():
    theirs = torchvision.models.vit_b_16()
    both_ways(theirs, vitreous.create("vit_b_16"), picture(2, 3, 224, 224), "torchvision")


@pytest.mark.parametrize("layers", [18, 34, 50, 101])
def test_resnet(layers):
    theirs = getattr(torchvision.models, f"resnet{layers}")(num_classes=11)
    ours = vitreous.create(f"resnet-{layers}", classes=11)
    both_ways(theirs, ours, picture(2, 3, 64, 90), "torchvision")


@torch.no_grad()
def test_names_in_released_files():
    """torchvision's released ViT files call the MLP's layers linear_1 and linear_2."""
    theirs = perturb(torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=7))
    state = {
        key.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): value
        for key, value in theirs.state_dict().items()
    }
    ours = vitreous.create(
        "vit", image_size=32, patch=8, depth=2, heads=4, dim=48, mlp_dim=96, classes=7
    )
    report = vitreous.import_weights(ours, state)
    assert report.format == "torchvision"
