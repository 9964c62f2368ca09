"""ViT_C: Early Convolutions Help Transformers See Better (Xiao et al. 2021).

Small convolutions in place of the patch embedding's one large step, each with batch norm and ReLU,
then one without size that makes tokens (section 4.1); one block fewer than the ViT pays for them.
It converges faster than the same ViT with patches, and with more learning rates and optimisers.

The mini ones are ours: few blocks behind residual convolutions, for few images and no weights to
start from.
"""

from __future__ import annotations

from functools import partial

from vitreous.layers.conv_stem import ConvLayer, ConvStemConfig, NoEmbeddingConfig
from vitreous.layers.grid_positions import ConditionalConfig
from vitreous.layers.head import TokenPoolConfig
from vitreous.models.vit import ViT, ViTConfig

ViTCConfig = ViTConfig
ViTC = ViT


LAYER = partial(ConvLayer, bias=False, norm="batch", activation="relu")


def stem(*widths: int) -> ConvStemConfig:
    """3x3 convolutions; where the width stays the same, so does the size."""
    pairs = zip((0, *widths), widths, strict=False)
    return ConvStemConfig(
        layers=tuple(LAYER(width, stride=2 if width > last else 1) for last, width in pairs)
    )


VARIANTS = {  # named by the paper's FLOPs, which are multiplications
    name: ViTConfig(patch=1, stem=layers, dim=dim, depth=depth, heads=heads, mlp_dim=mlp_dim)
    for name, layers, dim, depth, heads, mlp_dim in (
        ("vit-c-1gf", stem(24, 48, 96, 192), 192, 11, 3, 576),
        ("vit-c-4gf", stem(48, 96, 192, 384), 384, 11, 6, 1152),
        ("vit-c-18gf", stem(64, 128, 128, 256, 256, 512), 768, 11, 12, 3072),
        ("vit-c-36gf", stem(64, 128, 128, 256, 256, 512), 1024, 13, 16, 4096),
    )
}


def residual_stem(
    widths: tuple[int, ...], repeats: tuple[int, ...], first: int = 1
) -> ConvStemConfig:
    """Of each width one convolution that halves the size (the first one has the stride `first`),
    and then so many that are added to what comes in."""
    layers: list[ConvLayer] = []
    for width, count in zip(widths, repeats, strict=True):
        layers.append(LAYER(width, stride=2 if layers else first))
        layers += [LAYER(width, residual=True)] * count
    return ConvStemConfig(layers=tuple(layers))


VARIANTS |= {
    name: ViTConfig(
        image_size=size,
        embedding=NoEmbeddingConfig(),
        patch=1,
        stem=layers,
        dim=dim,
        depth=depth,
        heads=dim // 32,
        mlp_dim=2 * dim,
        position=ConditionalConfig(),
        tokens="none",
        pool=TokenPoolConfig("mean"),
        drop_path=0.1,
    )
    for name, size, layers, dim, depth in (
        ("vit-c-mini/2", 8, residual_stem((32, 64), (1, 1)), 64, 4),
        ("vit-c-mini/8", 32, residual_stem((16, 32, 64, 128), (1, 2, 2, 1)), 128, 2),
        ("vit-c-mini/16", 128, residual_stem((16, 32, 64, 128), (1, 2, 2, 2), 2), 128, 4),
    )
}
