"""MAE: Masked Autoencoders Are Scalable Vision Learners (He et al. 2022).

The encoder is ViT's; its fixed sines over x and y are stored in the files as a position table. The
published encoders have no head, and the norm of a ViT behind the last block. For fine-tuning, the
paper's code averages the patches and puts the norm behind that (`final_norm = "pooled"`); a mean of
normalised patches keeps the file's norm as it is. The decoder serves pre-training alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitreous.models.vit import SIZES, Pool, ViT, ViTConfig


@dataclass(frozen=True)
class MAEConfig(ViTConfig):
    """A ViT whose head sees the mean of the patches. The defaults are B/16."""

    pool: Pool = "mean"


class MAE(ViT):
    """(b, c, h, w) -> logits (b, classes)."""


VARIANTS = {
    f"mae-{size}/{patch}": MAEConfig(patch=patch, **SIZES[size])
    for size, patch in (("b", 16), ("l", 16), ("h", 14))
}
