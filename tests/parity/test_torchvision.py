"""ViT, ResNet and Swin give torchvision's outputs with its weights, and the other way."""

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
    head = {} if hidden is None else {"head": "tanh", "head.hidden": hidden}
    ours = vitreous.create(
        "vit", image_size=32, patch=8, depth=3, heads=4, dim=48, mlp_dim=96, classes=7, **head
    )
    both_ways(theirs, ours, picture(2, 3, 32, 32), "torchvision")


def test_vit_with_convolutions_before_it():
    """As in Xiao et al. 2021: `vit-c-1gf` and its siblings are torchvision's by another name."""
    layers = [
        torchvision.models.vision_transformer.ConvStemConfig(width, 3, stride)
        for width, stride in ((16, 2), (24, 1), (32, 4))
    ]
    theirs = torchvision.models.VisionTransformer(
        32, 8, 2, 4, 48, 96, num_classes=7, conv_stem_configs=layers
    )
    row = {"bias": False, "norm": "batch", "activation": "relu"}
    ours = vitreous.create(
        "vit",
        **{"image_size": 32, "patch": 1, "depth": 2, "heads": 4, "dim": 48, "mlp_dim": 96},
        classes=7,
        stem_layers=[{"width": one.out_channels, "stride": one.stride, **row} for one in layers],
    )
    both_ways(theirs, ours, picture(2, 3, 32, 32), "torchvision")


def test_vit_b16_at_full_width():
    theirs = torchvision.models.VisionTransformer(224, 16, 2, 12, 768, 3072)
    ours = vitreous.create("vit_b_16", depth=2)
    both_ways(theirs, ours, picture(2, 3, 224, 224), "torchvision")


@pytest.mark.parametrize("layers", [18, 34, 50, 101])
def test_resnet(layers):
    theirs = getattr(torchvision.models, f"resnet{layers}")(num_classes=11)
    ours = vitreous.create(f"resnet-{layers}", classes=11)
    both_ways(theirs, ours, picture(2, 3, 64, 90), "torchvision")


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((32, 32), (4, 4)),
        ((64, 96), (4, 4)),
        ((32, 64), (4, 4)),  # one window high in the second stage: only columns are shifted
        ((52, 76), (4, 4)),  # 13x19 and 7x10 patches: padded to whole windows
        ((28, 20), (4, 4)),  # 4x3 patches in the second stage: less than a window
        ((36, 40), (2, 3)),
        ((4, 4), (4, 4)),
    ],
)
@pytest.mark.parametrize("depths", [(2, 2), (1, 3)])
def test_swin(size, window, depths):
    fields = {"dim": 16, "depths": depths, "heads": (2, 4), "classes": 7}
    theirs = torchvision.models.SwinTransformer(
        [4, 4], 16, list(depths), [2, 4], list(window), num_classes=7
    )
    ours = vitreous.create("swin", image_size=size, window=window, **fields)
    report = both_ways(theirs, ours, picture(2, 3, *size), "torchvision")
    assert len(report.dropped) == sum(depths), "an index for each block, which is derived"


def test_swin_t_at_full_size():
    theirs = torchvision.models.swin_t()
    both_ways(theirs, vitreous.create("swin_t"), picture(2, 3, 224, 224), "torchvision")


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
