"""The first weights of a transformer."""

from __future__ import annotations

from torch import nn

from vitreous.layers.head import LinearHead, TanhHead
from vitreous.layers.patch import PrefixTokens


def initialise(model: nn.Module, scheme: str) -> None:
    """Set the first weights of every linear layer and token.

    trunc-normal: weights from a normal distribution of std 0.02 cut at ±2, biases 0 (DeiT, timm).
    jax: the paper's code: Xavier-uniform weights (q, k and v each by itself), small normal biases
    in the MLP, class token and the last layer 0.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            if scheme == "jax":
                parts = module.weight.chunk(3) if name.endswith("qkv") else (module.weight,)
                for part in parts:
                    nn.init.xavier_uniform_(part)
            else:
                nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
                if scheme == "jax" and ".mlp." in name:
                    nn.init.normal_(module.bias, std=1e-6)
        if isinstance(module, PrefixTokens):
            for token in module.parameters():
                if scheme != "jax":
                    nn.init.trunc_normal_(token, std=0.02)
        if scheme == "jax" and isinstance(module, LinearHead | TanhHead):
            nn.init.zeros_(module.out.weight)
