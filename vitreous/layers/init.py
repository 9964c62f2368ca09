"""Initial weights of a transformer."""

from __future__ import annotations

from torch import nn

from vitreous.layers.attention import Heads
from vitreous.layers.mlp import Mlp
from vitreous.layers.patch import PrefixTokens


def initialise(model: nn.Module, scheme: str) -> None:
    """Set the initial weights of every linear layer and token.

    trunc-normal: weights from a normal distribution of std 0.02 cut at ±2, biases 0 (DeiT, timm).
    jax: the paper's code: Xavier-uniform weights (q, k and v each by itself), small normal biases
    in the MLP, class token 0. Registers always start at random, or they would stay alike.
    """
    qkv = {module.qkv for module in model.modules() if isinstance(module, Heads)}
    mlp = {
        each for module in model.modules() if isinstance(module, Mlp) for each in module.children()
    }
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if module.bias is not None:
                nn.init.zeros_(module.bias)
            if scheme == "trunc-normal":
                nn.init.trunc_normal_(module.weight, std=0.02)
                continue
            for part in module.weight.chunk(3) if module in qkv else (module.weight,):
                nn.init.xavier_uniform_(part)
            if module in mlp:
                nn.init.normal_(module.bias, std=1e-6)
        elif isinstance(module, PrefixTokens):
            for token, value in module.named_parameters():
                if scheme == "trunc-normal" or token == "registers":
                    nn.init.trunc_normal_(value, std=0.02)
