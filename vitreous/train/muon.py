"""Muon: momentum, orthogonalised (Jordan et al. 2024), for the matrices of a model.

Gradients of a matrix mostly point into a few directions. Muon replaces the singular values of the
momentum by about 1, so that a step goes equally far in all of them. Convolutions are matrices of
one row for each output channel. What is no matrix (biases, norms, tokens, positions), what sees the
image's channels and what gives the classes is left to AdamW, as the authors advise.

`torch.optim.Muon` takes no convolutions and computes in bfloat16, which is slow on CPUs that are
not made for it: hence this file. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.models.model import Model
from vitreous.weights.families import state_dict_of

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Of the authors: the polynomial that moves singular values fastest to the range 0.7 to 1.2."""
STEPS = 5
TOGETHER = 1 << 19
"""Elements of matrices of one shape that are orthogonalised at once: for a detector's many small
ones, half of the time would go to calling torch."""
RMS = 0.2
"""Root mean square of AdamW's typical update. Scaled to it, Muon has AdamW's learning rate and
weight decay (Liu et al. 2025, section 2.2)."""


def orthogonalised(matrices: Tensor) -> Tensor:
    """(k, r, c) -> (k, r, c): U Vᵀ of the singular value decomposition of each, about, by matrix
    products."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    x = x.mT if tall else x
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def hidden_matrices(model: Model) -> set[nn.Parameter]:
    """The parameters for Muon: matrices and convolutions between the image and the classes."""
    core, undecayed = model.core, set(model.undecayed())
    first = state_dict_of(core).input_weight(core)
    classwise = state_dict_of(model).classwise(model)
    apart = {core.get_parameter(first), *undecayed}
    return {
        parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim in (2, 4)
        and min(parameter.shape[:2]) > 1  # else depthwise: each channel by itself
        and parameter not in apart
        and not any(fnmatch(name, pattern) for pattern in classwise)
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
        alike: dict[tuple[int, int], list[tuple[nn.Parameter, float, float]]] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.matrices and parameter.grad is not None:
                    shape = parameter.shape[0], parameter.shape[1:].numel()
                    each = (parameter, group["lr"], group["weight_decay"])
                    alike.setdefault(shape, []).append(each)
                    kept.append((parameter, parameter.grad))
        for (rows, columns), same in alike.items():
            count = max(TOGETHER // (rows * columns), 1)
            for first in range(0, len(same), count):
                self._update(same[first : first + count])
        for parameter, _ in kept:
            parameter.grad = None  # AdamW passes over it
        super().step()
        for parameter, grad in kept:
            parameter.grad = grad

    def _update(self, same: Sequence[tuple[nn.Parameter, float, float]]) -> None:
        """Matrices of one shape, with their learning rates and weight decays."""
        updates = orthogonalised(torch.stack([self._direction(each) for each, _, _ in same]))
        size = RMS * max(updates.shape[1:]) ** 0.5
        for (parameter, lr, weight_decay), update in zip(same, updates, strict=True):
            parameter.mul_(1 - lr * weight_decay)
            parameter.sub_(update.view_as(parameter), alpha=lr * size)

    def _direction(self, parameter: nn.Parameter) -> Tensor:
        """(r, c): the momentum as Nesterov has it."""
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(grad, 1 - MOMENTUM)
        return grad.lerp(momentum, MOMENTUM).flatten(1)
