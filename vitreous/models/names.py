"""What other libraries call our models.

Each row is a pattern over a foreign name and what it means here: our name, with the groups of the
pattern filled in, and the numbers in which that library's model differs from ours.
"""

from __future__ import annotations

import re
from typing import Any

SIZES = {
    "tiny": "ti",
    "small": "s",
    "base": "b",
    "large": "l",
    "huge": "h",
    "giant": "g",
    "gigantic": "G",
    "ti": "ti",
    "s": "s",
    "b": "b",
    "l": "l",
    "h": "h",
}
_SIZE = "(?P<size>tiny|small|base|large|huge|giant|gigantic)"
_PATCH = r"patch(?P<patch>\d+)"
_IMAGE = r"(_(?P<image>\d+))?"
_TAG = r"(\.[\w.]+)?"

FOREIGN: list[tuple[str, str, dict[str, Any]]] = [
    # PaddleClas' small ViT is not the paper's; only its capitals tell it from timm's
    (
        "(?-i:ViT)_small_patch16_224",
        "vit-b/16",
        {
            "depth": 8,
            "heads": 8,
            "mlp_dim": 2304,
            "qkv_bias": False,
            "qk_scale": 768**-0.5,
            "norm_eps": 1e-5,
        },
    ),
    # timm, and PaddleClas, which writes them with capitals
    (rf"vit_{_SIZE}_{_PATCH}{_IMAGE}{_TAG}", "vit-{size}/{patch}", {}),
    (rf"deit_{_SIZE}_{_PATCH}{_IMAGE}{_TAG}", "deit-{size}/{patch}", {}),
    (rf"deit_{_SIZE}_distilled_{_PATCH}{_IMAGE}{_TAG}", "deit-{size}/{patch}-distilled", {}),
    (rf"vit_tiny_r_s16_p8{_IMAGE}{_TAG}", "r+vit-ti/16", {}),
    (rf"vit_small_r26_s32{_IMAGE}{_TAG}", "r26+vit-s/32", {}),
    (rf"vit_base_r50_s16{_IMAGE}{_TAG}", "r50+vit-b/16", {}),
    (rf"vit_base_r26_s32{_IMAGE}{_TAG}", "r26+vit-b/32", {}),
    (rf"vit_large_r50_s32{_IMAGE}{_TAG}", "r50+vit-l/32", {}),
    (rf"resnet(?P<layers>18|34|50|101){_TAG}", "resnet-{layers}", {}),
    (rf"swin(Transformer)?_{_SIZE}_patch4_window7_224(_in22k)?{_TAG}", "swin-{initial}", {}),
    (rf"swin(Transformer)?_{_SIZE}_patch4_window12_384(_in22k)?{_TAG}", "swin-{initial}-384", {}),
    # torchvision
    (r"vit_(?P<size>b|l|h)_(?P<patch>\d+)", "vit-{size}/{patch}", {}),
    (r"swin_(?P<initial>t|s|b)", "swin-{initial}", {}),
    # transformers
    (
        rf"google/vit-{_SIZE}-{_PATCH}-(?P<image>\d+)(-in21k)?",
        "vit-{size}/{patch}",
        {"norm_eps": 1e-12},
    ),
    (rf"facebook/deit-{_SIZE}-{_PATCH}-(?P<image>\d+)", "deit-{size}/{patch}", {"norm_eps": 1e-12}),
    (
        rf"facebook/deit-{_SIZE}-distilled-{_PATCH}-(?P<image>\d+)",
        "deit-{size}/{patch}-distilled",
        {"norm_eps": 1e-12},
    ),
    (rf"microsoft/swin-{_SIZE}-patch4-window7-224(-in22k)?", "swin-{initial}", {}),
    (rf"microsoft/swin-{_SIZE}-patch4-window12-384(-in22k)?", "swin-{initial}-384", {}),
    (r"facebook/detr-resnet-(?P<layers>50|101)", "detr-r{layers}", {}),
    (r"facebook/detr-resnet-(?P<layers>50|101)-dc5", "detr-r{layers}-dc5", {}),
    # facebookresearch/detr
    (r"detr_resnet(?P<layers>50|101)", "detr-r{layers}", {}),
    (r"detr_resnet(?P<layers>50|101)_dc5", "detr-r{layers}-dc5", {}),
    # google-research/vision_transformer
    (r"(vit-)?(?P<size>ti|s|b|l|h)_(?P<patch>\d+)", "vit-{size}/{patch}", {}),
    (r"r_?\+?(vit-)?ti_16", "r+vit-ti/16", {}),
    (r"r26_?\+?(vit-)?s_32", "r26+vit-s/32", {}),
    (r"r26_?\+?(vit-)?b_32", "r26+vit-b/32", {}),
    (r"r50_?\+?(vit-)?b_16", "r50+vit-b/16", {}),
    (r"r50_?\+?(vit-)?l_32", "r50+vit-l/32", {}),
]


def translate(name: str) -> tuple[str, dict[str, Any]] | None:
    """Our name and the changes for a foreign one; None when no row fits.

    >>> translate("deit_base_distilled_patch16_384")
    ('deit-b/16-distilled', {'image_size': 384})
    """
    for pattern, ours, numbers in FOREIGN:
        found = re.fullmatch(pattern, name, flags=re.IGNORECASE)
        if found is None:
            continue
        groups = {group: text.lower() for group, text in found.groupdict().items() if text}
        if "size" in groups:  # a tiny ViT is "ti", a tiny Swin is "t"
            groups |= {"initial": groups["size"][0], "size": SIZES[groups["size"]]}
        changes = dict(numbers)
        if "image" in groups:
            changes["image_size"] = int(groups["image"])
        return ours.format(**groups), changes
    return None
