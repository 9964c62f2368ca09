"""What random numbers show of patches and attention: drawn with a fixed seed, so that they are the
same on every machine. Texts ask for them by `facts.py`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

from vitreous.course.study_numbers import Language
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = 1000
"""Queries, and keys or lists of keys."""
LARGEST = 4096
"""Width of a query, and number of keys."""
SATURATED = 0.99


@cache
def attention_variance(d: int = 64, divided: bool = False) -> str:
    """`64.2`: of q·k, where all numbers of q and k are normal with variance 1; of q·k / √d, `1.0`.

    torch.manual_seed(0); q, k = torch.randn(1000, d), torch.randn(1000, d); (q @ k.T).var()
    """
    import torch

    _within("d", d)
    random = torch.Generator().manual_seed(0)
    q, k = (torch.randn(DRAWS, d, generator=random) for _ in range(2))
    scores = q @ k.T
    return f"{(scores / d**0.5 if divided else scores).var().item():.1f}"


def largest_weight(d: int = 64, keys: int = 197, divided: bool = True) -> str:
    """`5 %`: what softmax gives to the key with the largest score of a random query, in the mean of
    1,000 queries."""
    return f"{100 * _largest(d, keys, divided).mean().item():.0f} %"


def saturated(d: int = 64, keys: int = 197, divided: bool = True) -> str:
    """`14 %`: of random queries, those for which one key gets more than 99 % of the weight. There,
    a score can hardly change the weights any more."""
    return f"{100 * (_largest(d, keys, divided) > SATURATED).double().mean().item():.0f} %"


@cache
def reordered(part: str = "attention", lang: Language = "en") -> str:
    """`below 1e-12`: the largest difference between a function of shuffled tokens and the shuffled
    function of tokens, without positions: of attention, or of a whole block."""
    import torch

    from vitreous.layers.attention import Attention
    from vitreous.layers.block import Block
    from vitreous.layers.mlp import Mlp

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        attention = Attention(48, 3, 16)
        parts = {"attention": attention, "block": Block(48, attention, Mlp(48, 96))}
        x, order = torch.randn(1, 17, 48, dtype=torch.float64), torch.randperm(17)
    if part not in parts:
        raise ConfigError(f"part = {part!r}: expected one of {', '.join(parts)}")
    function = parts[part].double().eval()
    with torch.no_grad():
        found = (function(x[:, order]) - function(x)[:, order]).abs().max().item()
    return bound(found, lang)


@cache
def convolution_difference(patch: int = 16, dim: int = 768, lang: Language = "en") -> str:
    """`below 1e-12`: the largest difference between patches times E, and the convolution whose
    kernel and stride are the patch."""
    import torch
    import torch.nn.functional as F

    _within("patch", patch)
    _within("dim", dim)
    random = torch.Generator().manual_seed(0)
    image = torch.randn(1, 3, 4 * patch, 4 * patch, generator=random, dtype=torch.float64)
    kernels = torch.randn(dim, 3, patch, patch, generator=random, dtype=torch.float64)
    cut = F.unfold(image, patch, stride=patch).transpose(1, 2)  # (1, 16, 3 · patch²)
    by_linear = cut @ kernels.flatten(1).T / cut.shape[-1]
    by_convolution = F.conv2d(image, kernels, stride=patch).flatten(2).transpose(1, 2)
    found = (by_linear - by_convolution / cut.shape[-1]).abs().max().item()
    return bound(found, lang)


@cache
def answers_reordered(lang: Language = "en") -> str:
    """`below 1e-12`: how far the logits of a ViT without positions move, at most, if the patches
    of the image change places."""
    import torch

    from vitreous.course.vit import ViT

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = ViT(image_size=64, dim=48, depth=3, heads=3, hidden=96, classes=10).double()
        tokens = model.patch_embed(torch.rand(1, 3, 64, 64, dtype=torch.float64))
        both = tokens, tokens[:, torch.randperm(tokens.shape[1])]
        rows = [torch.cat((model.cls_token, each), dim=1) for each in both]
        one, other = (model.head(model.norm(model.blocks(each))[:, 0]) for each in rows)
    return bound((one - other).abs().max().item(), lang)


@cache
def alike(sums: bool = True, blocks: int = 12) -> str:
    """`0.35`: the mean cosine between two random tokens behind so many blocks that have not been
    trained; `1.00` without the sums around attention and MLP."""
    import torch
    import torch.nn.functional as F

    from vitreous.course.vit import Block

    _within("blocks", blocks)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        made = [Block(48, 3, 192) for _ in range(blocks)]
        x = torch.randn(1, 16, 48)
        for each in made:
            x = each(x) if sums else each.mlp(each.norm2(each.attn(each.norm1(x))))
    unit = F.normalize(x[0], dim=1)
    return f"{(unit @ unit.T)[~torch.eye(16, dtype=torch.bool)].mean().item():.2f}"


@cache
def skipped(rate: float = 0.1) -> str:
    """`10 %`: of 1,000 images of a batch, those for which DropPath leaves out one branch."""
    import torch

    from vitreous.layers.block import DropPath

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        left = DropPath(rate)(torch.ones(DRAWS, 1, 1))
    return f"{100 * (left == 0).double().mean().item():.0f} %"


@cache
def window_reach(blocks: Literal[1, 2, 3, 4], shifted: bool = True) -> str:
    """`64`: of 256 tokens in windows of 4 x 4, those that differ behind so many blocks of a Swin if
    one patch of the image does."""
    from vitreous.course.figures.c11 import reached, small_swin

    return f"{int(reached(small_swin(shifted), 6, 6)[blocks - 1].sum())}"


@cache
def _largest(d: int, keys: int, divided: bool) -> Tensor:
    """(1000,): the largest weight of each query."""
    import torch

    _within("d", d)
    _within("keys", keys)
    random = torch.Generator().manual_seed(0)
    largest = []
    for _ in range(DRAWS):
        q, k = torch.randn(d, generator=random), torch.randn(keys, d, generator=random)
        scores = k @ q
        largest.append((scores / d**0.5 if divided else scores).softmax(dim=0).max())
    return torch.stack(largest)


def _within(name: str, value: int) -> None:
    if not 1 <= value <= LARGEST:
        raise ConfigError(f"{name} = {value}: expected 1 to {LARGEST}")


def bound(value: float, lang: Language) -> str:
    """Rounding differs between machines; its size does not."""
    below = {"en": "below", "zh": "小于"}[lang]
    return next((f"{below} 1e-{n}" for n in (12, 6, 3) if value < 10**-n), f"{value:.3g}")
