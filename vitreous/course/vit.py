"""ViT in one file: An Image is Worth 16x16 Words (Dosovitskiy et al. 2021), and nothing else.

    z₀   = [x_class; x¹E; x²E; …; xᴺE] + E_pos      (1)
    z'ₗ  = MSA(LN(zₗ₋₁)) + zₗ₋₁                     (2)
    zₗ   = MLP(LN(z'ₗ)) + z'ₗ                       (3)
    y    = LN(z_L⁰)                                 (4)

Shapes: b images, n tokens of width d, h heads of width e = d / h. Parameters have timm's names, so
that timm's checkpoints load; `vitreous.models.vit` is the same computation with every option.
"""

import torch
from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """An image becomes N patches, and each patch times E becomes a token (section 3.1)."""

    def __init__(self, patch: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, patch, stride=patch)  # E: filters as large as a patch

    def forward(self, images: Tensor) -> Tensor:  # (b, c, height, width)
        grid = self.proj(images)  # one column of d numbers per patch: (b, d, gh, gw)
        return grid.flatten(2).transpose(1, 2)  # row by row, a sequence: (b, N, d)


class Attention(nn.Module):
    """Multi-head self-attention (appendix A, equations 5 to 8)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)  # U_qkv of all heads, side by side
        self.proj = nn.Linear(dim, dim)  # U_msa, often called W_O

    def forward(self, x: Tensor) -> Tensor:  # (b, n, d)
        qkv = self.qkv(x).unflatten(2, (3, self.heads, -1))  # (b, n, 3, h, e)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # what each token asks, offers and says: (b, h, n, e)
        scores = q @ k.transpose(-2, -1)  # every query with every key: (b, h, n, n)
        scores = scores / q.shape[-1] ** 0.5  # variance 1 again: a sum of e products has variance e
        weights = scores.softmax(dim=-1)  # each row sums to 1
        mixed = weights @ v  # a weighted mean of the values: (b, h, n, e)
        joined = mixed.transpose(1, 2).flatten(2)  # the heads side by side: (b, n, d)
        return self.proj(joined)  # mixes what the heads have found


class Mlp(nn.Module):
    """Two layers with a GELU between them, for each token by itself."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)  # four times as wide in the paper
        self.act = nn.GELU()  # the exact one, x Φ(x)
        self.fc2 = nn.Linear(hidden, dim)  # and back

    def forward(self, x: Tensor) -> Tensor:  # (b, n, d)
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """One block of the encoder: attention moves between tokens, the MLP works within each."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)  # as in the paper's code; torch has 1e-5
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:  # (b, n, d)
        x = x + self.attn(self.norm1(x))  # equation 2: norm before, sum behind
        return x + self.mlp(self.norm2(x))  # equation 3


class ViT(nn.Module):
    """Images (b, c, height, width) -> logits (b, classes). The defaults are ViT-B/16."""

    def __init__(
        self,
        image_size: int = 224,
        patch: int = 16,
        channels: int = 3,
        dim: int = 768,
        depth: int = 12,
        heads: int = 12,
        hidden: int = 3072,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        patches = (image_size // patch) ** 2  # N = HW / P²
        self.patch_embed = PatchEmbedding(patch, channels, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))  # x_class
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + patches, dim))  # E_pos, learned
        self.blocks = nn.Sequential(*(Block(dim, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)  # one layer, as in fine-tuning; pre-training has two
        self.apply(initialise)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def embed(self, images: Tensor) -> Tensor:
        """Equation 1: z₀, (b, 1 + N, d)."""
        patches = self.patch_embed(images)
        first = self.cls_token.expand(len(images), -1, -1)  # the same vector for each image
        return torch.cat((first, patches), dim=1) + self.pos_embed

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images)
        x = self.blocks(x)  # equations 2 and 3, L times
        y = self.norm(x)[:, 0]  # equation 4: what the class token has gathered
        return self.head(y)


def initialise(module: nn.Module) -> None:
    """Small weights: at first, each block adds little to its input."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
