"""SIGReg: how far embeddings are from a standard normal distribution (LeJEPA, section 4).

A distribution in d dimensions is the normal one if it is so in every direction. Each step draws
some directions; along each, the characteristic function of the embeddings, the mean of exp(i·t·x),
is compared with that of N(0, 1), exp(-t²/2), in a Gaussian window over t (Epps and Pulley 1983):

    n ∫ |mean(exp(i·t·x)) - exp(-t²/2)|² exp(-t²/2) dt

It is a mean over the batch: with several processes over those of all, so that the loss does not
depend on how a batch is divided.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

DIRECTIONS = 256
"""That are drawn in each step."""
END, POINTS = 3.0, 17
"""Quadrature is by trapezoids from -END to END; both sides are alike, so that one is computed."""


def random_directions(dim: int, seed: int) -> Tensor:
    """(dim, DIRECTIONS), of length 1."""
    found = torch.randn(dim, DIRECTIONS, generator=torch.Generator().manual_seed(seed))
    return found / found.norm(dim=0)


def sigreg(x: Tensor, directions: Tensor, count: int | None = None) -> Tensor:
    """x (…, n, d) -> (…): the mean over directions (d, m). `count` replaces n in the formula."""
    points = torch.linspace(0, END, POINTS, device=x.device)
    normal = torch.exp(-points.square() / 2)  # the characteristic function, and the window
    weights = torch.full_like(points, 2 * END / (POINTS - 1))
    weights[0] = weights[-1] = END / (POINTS - 1)
    angles = (x.float() @ directions.to(x.device))[..., None] * points  # (…, n, m, points)
    real, imaginary = over_all(angles.cos().mean(-3)), over_all(angles.sin().mean(-3))
    error = (real - normal).square() + imaginary.square()  # (…, m, points)
    count = processes() * x.shape[-2] if count is None else count
    return count * (error @ (weights * normal)).mean(-1)


def processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def over_all(mean: Tensor) -> Tensor:
    """The mean of all processes in training.

    Its gradient is taken for that of this process's own: DDP averages gradients, and so makes it
    the gradient of the mean.
    """
    if processes() == 1 or not mean.requires_grad:
        return mean
    total = mean.detach().clone()
    dist.all_reduce(total)
    return mean + (total / processes() - mean).detach()


def seed_of_step() -> int:
    """The seed that the trainer has set for this step, in the first process: the same in all."""
    if processes() == 1:
        return torch.initial_seed()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    found = torch.tensor(torch.initial_seed(), dtype=torch.int64, device=device)
    dist.broadcast(found, 0)
    return int(found)
