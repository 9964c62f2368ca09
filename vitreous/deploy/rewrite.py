"""Exact rewrites: what is constant when a model predicts is computed once, before any engine.

Each function takes a model that will not be trained any more, changes it in place and returns how
many layers it has changed. The outputs are the same up to rounding (a test allows 1e-6 relative).

- A factor per channel (LayerScale) behind a linear layer is a factor on its rows:
  γ ⊙ (W x + b) = (γ ⊙ W) x + γ ⊙ b.
- The scale of attention is one on the queries: softmax(s q kᵀ) = softmax((s q) kᵀ), and so on the
  rows that make them.
- The affine part of a norm before a linear layer is part of that layer:
  W (g ⊙ x̂ + β) + b = (W ⊙ g) x̂ + (W β + b).
- A batch norm behind a convolution is a factor and a shift of each of its channels.
- Mean and std of the preprocessing are part of the first layer, which then sees pixels from 0 to 1:
  W (x - μ) / σ + b = (W / σ) x + (b - W μ / σ). Not with padding: there, zeros are the mean colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vitreous.layers.attention import Attention, Heads
from vitreous.layers.block import Block, LayerScale
from vitreous.layers.uncommon import ActivatedMlp, MixedNormBlock, PostNormBlock, StreamNormBlock
from vitreous.models.model import Model
from vitreous.models.resnet import FrozenBatchNorm
from vitreous.models.swin import WindowAttention
from vitreous.weights.families import state_dict_of


@torch.no_grad()
def fold_layer_scales(model: nn.Module) -> int:
    """Into the attention's projection and the MLP's second layer."""
    count = 0
    for block in _blocks(model):
        for name, linear in (("scale1", block.attention.projection), ("scale2", block.mlp.fc2)):
            scale = getattr(block, name)
            plain = name == "scale1" or not isinstance(block.mlp, ActivatedMlp)
            if isinstance(scale, LayerScale) and isinstance(linear, nn.Linear) and plain:
                linear.weight.mul_(scale.gamma[:, None])
                if linear.bias is not None:
                    linear.bias.mul_(scale.gamma)
                setattr(block, name, nn.Identity())
                count += 1
    return count


@torch.no_grad()
def fold_attention_scales(model: nn.Module) -> int:
    """Into the rows that make queries, where no norm stands between."""
    count = 0
    for heads in (module for module in model.modules() if isinstance(module, Heads)):
        if heads.scale == 1.0 or not isinstance(heads.q_norm, nn.Identity):
            continue
        width = heads.heads * heads.head_dim
        heads.qkv.weight[:width].mul_(heads.scale)
        for bias in (heads.qkv.bias, heads.qv_bias):
            if bias is not None:
                bias[:width].mul_(heads.scale)
        heads.scale = 1.0
        count += 1
    return count


@torch.no_grad()
def fold_norms(model: nn.Module) -> int:
    """The affine part of a block's norms, where each goes into one linear layer alone."""
    count = 0
    for block in _blocks(model):
        if isinstance(block, PostNormBlock | StreamNormBlock):
            continue  # the residual stream reads them, too
        # Windows may pad the map between the norm and the linear layer: a token of zeros would then
        # get the norm's bias, too.
        attention = block.attention
        if isinstance(attention, Attention) and not isinstance(attention, WindowAttention):
            count += _fold_norm(block.norm1, attention.qkv)
        if not isinstance(block, MixedNormBlock):
            count += _fold_norm(block.norm2, block.mlp.fc1)
    return count


def _fold_norm(norm: nn.Module, linear: nn.Linear) -> int:
    if not isinstance(norm, nn.LayerNorm) or norm.weight is None or linear.bias is None:
        return 0
    if norm.bias is not None:
        linear.bias.add_(linear.weight @ norm.bias)
    linear.weight.mul_(norm.weight)
    norm.weight, norm.bias, norm.elementwise_affine = None, None, False  # type: ignore[assignment]
    return 1


@torch.no_grad()
def fold_batch_norms(model: nn.Module) -> int:
    """Into the convolution before each, where a module has them as `conv1` and `norm1`, or `conv`
    and `norm`."""
    count = 0
    for module in model.modules():
        for name, conv in list(module.named_children()):
            if not isinstance(conv, nn.Conv2d) or not name.startswith("conv"):
                continue
            behind = f"norm{name.removeprefix('conv')}"
            norm = getattr(module, behind, None)
            if not isinstance(norm, nn.BatchNorm2d | FrozenBatchNorm) or norm.running_var is None:
                continue
            factor, shift = _affine_of(norm)
            bias = torch.zeros_like(shift) if conv.bias is None else conv.bias
            conv.weight.mul_(factor[:, None, None, None])
            conv.bias = nn.Parameter(bias * factor + shift)
            setattr(module, behind, nn.Identity())
            count += 1
    return count


def _affine_of(norm: nn.BatchNorm2d | FrozenBatchNorm) -> tuple[Tensor, Tensor]:
    """y = factor · x + shift, per channel."""
    assert norm.running_var is not None
    assert norm.running_mean is not None
    factor = (norm.running_var + norm.eps).rsqrt()
    factor = factor if norm.weight is None else factor * norm.weight
    shift = -norm.running_mean * factor
    return factor, shift if norm.bias is None else shift + norm.bias


@torch.no_grad()
def fold_normalisation(model: Model, mean: Sequence[float], std: Sequence[float]) -> int:
    """Into the first layer, which takes values from 0 to 1 then; 0 where it pads, has a norm of its
    own before it, or is not in float32: the bias becomes large, and the sum loses precision."""
    core = model.core
    about = state_dict_of(core)
    owner, _, name = about.input_weight(core).rpartition(".")
    first = core.get_submodule(owner)
    weight = getattr(first, name)
    padding = getattr(first, "padding", 0)
    padded = padding != 0 and padding != (0, 0)
    pads = padded or getattr(core.config, "pad", False)
    if pads or about.input_norms(core) or weight.ndim != 4:
        return 0
    bias = getattr(first, "bias", None)
    if not isinstance(bias, Tensor) or weight.dtype != torch.float32:
        return 0
    shape = (1, -1, 1, 1)
    factor = torch.tensor(std).expand(weight.shape[1]).reshape(shape)
    shift = torch.tensor(mean).expand(weight.shape[1]).reshape(shape)
    weight.div_(factor)
    bias.sub_((weight * shift).sum(dim=(1, 2, 3)))
    return 1


REWRITES: dict[str, Callable[[nn.Module], int]] = {
    "layer scales": fold_layer_scales,
    "attention scales": fold_attention_scales,
    "norms": fold_norms,
    "batch norms": fold_batch_norms,
}
"""Those that need nothing but the model."""


def rewrite(model: Model) -> dict[str, int]:
    """All of them, in an order in which each finds what it needs; how many layers each changed."""
    return {name: fold(model) for name, fold in REWRITES.items()}


def _blocks(model: nn.Module) -> list[Block]:
    return [module for module in model.modules() if isinstance(module, Block)]
