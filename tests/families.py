"""A small model of every family, for what must hold for all of them."""

import torch
from compare import perturb

import vitreous

VIT = {"image_size": 32, "patch": 8, "dim": 256, "depth": 2, "heads": 4, "mlp_dim": 320}
SMALL = {"image_size": 32, "patch": 8, "dim": 32, "depth": 2, "heads": 2}
RESNET = {"image_size": 64, "stages": (1, 2), "width": 16}
DECODER = {"dim": 256, "heads": 4, "mlp_dim": 32, "queries": 5, "decoder_depth": 1}
MODELS = {
    "vit": ("vit", VIT),
    "vit, gated": ("vit", {**VIT, "activation": "silu-gated", "mlp_norm": True, "qk_norm": True}),
    "vit, post": ("vit", {**VIT, "norm": "post", "mlp_out_activation": True}),
    "vit, sines": (
        "vit",
        {
            **VIT,
            "position": "sines-2d",
            "tokens": "none",
            "pool": "mean",
            "registers": 1,
            "norm": "batch",
        },
    ),
    "deit": ("deit-ti/16-distilled", VIT),
    "cpvt": ("cpvt-ti/16", VIT),
    "beit": ("beit-b/16", VIT),
    "clip": ("clip-b/32-image", VIT),
    "siglip": ("siglip-b/16-image", VIT),
    "dinov2": ("dinov2-s/14", VIT),
    "dinov3": ("dinov3-s/16", VIT),
    "eva": ("eva02-ti/14", VIT),
    "pe": ("pe-b/16-image", VIT),
    "vitc": ("vit-c-mini/8", {"image_size": 32, "depth": 1}),
    "hybrid": ("hybrid", {**SMALL, "image_size": 64, "stages": (1, 1), "width": 32, "patch": 1}),
    "swin": (
        "swin",
        {
            **{"image_size": 44, "dim": 16, "depths": (2, 2), "heads": (2, 4), "window": 4},
            **{"drop_path": 0.2, "dropout": 0.1, "attention_dropout": 0.1},
        },
    ),
    "resnet": ("resnet", RESNET),
    "resnet, basic": ("resnet", {**RESNET, "block": "basic"}),
    "resnet, frozen": ("resnet", {**RESNET, "norm": "frozen"}),
    "detr": (
        "detr",
        {**DECODER, "image_size": 64, "encoder_depth": 1, "backbone": "resnet-18"},
    ),
    "rf-detr": (
        "rf-detr",
        {**DECODER, "image_size": 64, "groups": 2, "masks": True, "backbone_fields": {"depth": 4}},
    ),
    "segmenter": (
        "segmenter",
        {"image_size": 32, "heads": 2, "encoder": "vit", "encoder_fields": SMALL | {"dim": 64}},
    ),
    "mae": ("mae-pretrain-b/16", {"image_size": 64, "encoder_fields": {"depth": 1}}),
    "lejepa": ("lejepa", {"image_size": 32, "encoder": "vit", "encoder_fields": {**VIT}}),
    "student": ("distil", {"image_size": 32, "encoder": "vit", "encoder_fields": {**VIT}}),
}
for _, fields in MODELS.values():
    fields.get("encoder_fields", {}).pop("image_size", None)


def made(name):
    torch.manual_seed(0)
    family, fields = MODELS[name]
    model = perturb(vitreous.create(family, **fields))
    return model, torch.randn(2, 3, *model.own_size())


def tensors(output):
    found = (output,) if isinstance(output, torch.Tensor) else output
    return [each for each in found if isinstance(each, torch.Tensor) and each.is_floating_point()]
