"""The walk of a tensor through a model: stage, shape, parameters, FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitreous.engines.fewer_tokens import skip_unread
from vitreous.layers.tap import tap
from vitreous.models import create
from vitreous.models.model import Model
from vitreous.weights.blank import without_values


@dataclass(frozen=True)
class SummaryRow:
    """What one stage of a model does to one image, or to one text."""

    name: str
    shape: tuple[int, ...]
    """As the paper writes it: height x width x channels, or tokens x width; without the batch."""
    parameters: int
    flops: int
    """Two for each multiplication with its addition, by torch's counter; attention included."""


def summarise(model: Model, *, skip: bool = True) -> list[SummaryRow]:
    """Every stage of `model` for one image, and of a text tower for one text. On the meta device it
    costs no memory and little time.

    The sums over all stages are the model's parameters and what torch counts in a forward. Without
    `skip`, the last block computes the tokens that nobody reads too: so papers count.
    """
    from torch.utils.flop_counter import FlopCounterMode  # it imports triton

    given = model.example()
    rows = [SummaryRow(name, spelled(value), 0, 0) for name, value in given.items()]
    counter = FlopCounterMode(display=False)
    counted = 0
    modules = {name for name, _ in model.named_modules()}

    def see(name: str, tensor: Tensor) -> None:
        nonlocal counted
        total = counter.get_total_flops()
        # Of a part that shows several results at once (an encoder's maps), the first counts all.
        part, _, number = name.rpartition(".")
        inside = part if name not in modules and part in modules and number == "0" else name
        parameters = sum(
            p.numel() for key, p in model.named_parameters() if key.startswith(f"{inside}.")
        )
        shape = spelled(tensor)
        if parameters or total > counted or shape != rows[-1].shape:
            rows.append(SummaryRow(name, shape, parameters, total - counted))
        counted = total

    training = model.training
    model.eval()
    try:
        # Torch's counter does not see the fused attention of every device; this form it does.
        plain = sdpa_kernel(SDPBackend.MATH)
        with torch.no_grad(), plain, counter, tap(model.steps(), see):
            skip_unread(model, skip)(*given.values())
    finally:
        skip_unread(model, False)
        model.train(training)
    return rows


def summarise_name(name: str, **changes: Any) -> list[SummaryRow]:
    """The walk through a model that is never given memory."""
    with without_values():
        return summarise(create(name, **changes))


def spelled(tensor: Tensor) -> tuple[int, ...]:
    """A shape as the papers write it, without the batch; of maps, channels last."""
    shape = tuple(tensor.shape[1:])
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape
