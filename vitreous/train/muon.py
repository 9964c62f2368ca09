"""Muon: momentum, orthogonalised (Jordan et al. 2024), for the matrices of a model.

Gradients of a matrix mostly point into a few directions. Muon replaces the singular values of the
momentum by about 1, so that a step goes equally far in all of them. Convolutions are matrices of
one row for each output channel. What is no matrix (biases, norms, tokens, positions), what sees the
image's channels and what gives the classes is left to AdamW, as the authors advise.

`torch.optim.Muon` takes no convolutions and computes in bfloat16, which is slow on CPUs that are
not made for it: hence this file. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.models.model import Model

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Of the authors: the polynomial that moves singular values fastest to the range 0.7 to 1.2."""
STEPS = 5
RMS = 0.2
"""Root mean square of AdamW's typical update. Scaled to it, Muon has AdamW's learning rate and
weight decay (Liu et al. 2025, section 2.2)."""


def orthogonalised(matrix: Tensor) -> Tensor:
    """(r, c) -> (r, c): U Vᵀ of its singular value decomposition, about, by matrix products."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).to(matrix.dtype)


def hidden_matrices(model: Model) -> set[nn.Parameter]:
    """The parameters for Muon: matrices and convolutions between the image and the classes."""
    core, undecayed = model.core, set(model.undecayed())
    apart = {core.get_parameter(core.input_weight), *undecayed}
    return {
        parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim in (2, 4)
        and min(parameter.shape[:2]) > 1  # else depthwise: each channel by itself
        and parameter not in apart
        and not any(fnmatch(name, pattern) for pattern in model.classwise)
    }


class MuonAdamW(torch.optim.AdamW):
    """Muon for some parameters, AdamW for the others, with one learning rate and weight decay."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], matrices: set[nn.Parameter], **adamw: Any
    ) -> None:
        super().__init__(groups, **adamw)
        self.matrices = matrices

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        kept: list[tuple[nn.Parameter, Tensor]] = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.matrices and parameter.grad is not None:
                    self._update(parameter, group["lr"], group["weight_decay"])
                    kept.append((parameter, parameter.grad))
                    parameter.grad = None  # AdamW passes over it
        super().step()
        for parameter, grad in kept:
            parameter.grad = grad

    def _update(self, parameter: nn.Parameter, lr: float, weight_decay: float) -> None:
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(grad, 1 - MOMENTUM)
        update = orthogonalised(grad.lerp(momentum, MOMENTUM).flatten(1))  # Nesterov's
        size = RMS * max(update.shape) ** 0.5
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(update.view_as(parameter), alpha=lr * size)
