"""ViT_C: Early Convolutions Help Transformers See Better (Xiao et al. 2021).

Small convolutions in place of the patch embedding's one large step, each with batch norm and ReLU,
then one without size that makes tokens (section 4.1); one block fewer than the ViT pays for them.
It converges faster than the same ViT with patches, and with more learning rates and optimisers.
"""

from __future__ import annotations

from vitreous.models.conv_stem import ConvLayer
from vitreous.models.vit import ViT, ViTConfig

ViTCConfig = ViTConfig
ViTC = ViT


def stem(*widths: int) -> tuple[ConvLayer, ...]:
    """3x3 convolutions; where the width stays the same, so does the size."""
    before = (0, *widths)
    return tuple(
        ConvLayer(
            width, stride=2 if width > last else 1, bias=False, norm="batch", activation="relu"
        )
        for last, width in zip(before, widths, strict=False)
    )


VARIANTS = {  # named by the paper's FLOPs, which are multiplications
    name: ViTConfig(patch=1, stem_layers=layers, dim=dim, depth=depth, heads=heads, mlp_dim=mlp_dim)
    for name, layers, dim, depth, heads, mlp_dim in (
        ("vit-c-1gf", stem(24, 48, 96, 192), 192, 11, 3, 576),
        ("vit-c-4gf", stem(48, 96, 192, 384), 384, 11, 6, 1152),
        ("vit-c-18gf", stem(64, 128, 128, 256, 256, 512), 768, 11, 12, 3072),
        ("vit-c-36gf", stem(64, 128, 128, 256, 256, 512), 1024, 13, 16, 4096),
    )
}
