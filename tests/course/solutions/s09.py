"""Exercise 9, solved; and what readers usually get wrong."""

import torch


def distance(A, grid, patch, p=2.0):
    rows = A[:, 1:, 1:]
    rows = rows / rows.sum(dim=-1, keepdim=True)
    places = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1])).float() * patch
    return (rows * torch.cdist(places, places, p=p)).sum(dim=-1).mean(dim=-1)


def rollout(A, identity=0.5):
    n = A.shape[-1]
    R = torch.eye(n)
    for mean in A.mean(dim=1):
        R = ((1 - identity) * mean + identity * torch.eye(n)) @ R
    return R


def as_map(R, grid):
    row = R[0, 1:]
    return (row / row.sum()).reshape(grid)


def evidence(A, G):
    R = torch.eye(A.shape[-1])
    for weights, gradient in zip(A, G, strict=True):
        R = R + (weights * gradient).clamp(min=0).mean(dim=0) @ R
    return R


def deletion(scores):
    return torch.trapezoid(scores, dx=1 / (len(scores) - 1))


def not_normalised(A, grid, patch):
    places = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1])).float() * patch
    return (A[:, 1:, 1:] * torch.cdist(places, places)).sum(dim=-1).mean(dim=-1)


def unclamped(A, G):
    R = torch.eye(A.shape[-1])
    for weights, gradient in zip(A, G, strict=True):
        R = R + (weights * gradient).mean(dim=0) @ R
    return R


def clamped_late(A, G):
    R = torch.eye(A.shape[-1])
    for weights, gradient in zip(A, G, strict=True):
        R = R + (weights * gradient).mean(dim=0).clamp(min=0) @ R
    return R


WRONG = {
    "distance": {
        "divide by its sum": not_normalised,
        "in patches": lambda A, grid, patch: distance(A, grid, 1),
        "straight line": lambda A, grid, patch: distance(A, grid, patch, p=1.0),
    },
    "rollout": {
        "identity is missing": lambda A: rollout(A, identity=0),
        "order is reversed": lambda A: rollout(A.flip(0)),
        "Transposed": lambda A: rollout(A).T,
    },
    "as_map": {
        "does not sum to one": lambda R, grid: R[0, 1:].reshape(grid),
        "column": lambda R, grid: as_map(R.T, grid),
    },
    "evidence": {
        "clamp at zero": unclamped,
        "before the mean of the heads": clamped_late,
        "absolute value": lambda A, G: evidence(A, G.abs()),
    },
    "deletion": {
        "from 0 to 1": lambda scores: torch.trapezoid(scores),
        "mean of the scores": lambda scores: scores.mean(),
    },
}
