"""The first weights of a transformer."""

from __future__ import annotations

from torch import nn

from vitreous.layers.patch import PrefixTokens


def initialise(model: nn.Module, scheme: str) -> None:
    """Set the first weights of every linear layer and token.

    trunc-normal: weights from a normal distribution of std 0.02 cut at ±2, biases 0 (DeiT, timm).
    jax: the paper's code: Xavier-uniform weights (q, k and v each by itself), small normal biases
    in the MLP, class token and the last layer 0. Registers start apart, or they would stay alike.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            _linear(module, name, scheme)
        if isinstance(module, PrefixTokens):
            for token, value in module.named_parameters():
                if scheme == "trunc-normal" or token == "registers":
                    nn.init.trunc_normal_(value, std=0.02)
    if scheme == "jax":
        for name, module in model.named_modules():
            if name in ("head.out", "head.distillation") and isinstance(module, nn.Linear):
                nn.init.zeros_(module.weight)


def _linear(module: nn.Linear, name: str, scheme: str) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)
    if scheme == "trunc-normal":
        nn.init.trunc_normal_(module.weight, std=0.02)
        return
    for part in module.weight.chunk(3) if name.endswith("qkv") else (module.weight,):
        nn.init.xavier_uniform_(part)
    if ".mlp." in name:
        nn.init.normal_(module.bias, std=1e-6)
