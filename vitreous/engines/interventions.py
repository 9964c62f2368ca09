"""What if: a part of a model is switched off, or the patches change places, while it runs.

    what = Interventions.of(model)                  # neutral: outputs stay the same to the bit
    what["heads"][3, 1] = 0                         # the second head of the fourth block
    with intervening(model, what):
        model(what.rearranged(images))

It uses the taps that everything else looks through (`layers/tap.py`): no equation is written twice.
In the graph of a living page these tensors are inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.layers.grid_positions import OffsetBias
from vitreous.layers.position import Position
from vitreous.layers.tap import See, tap
from vitreous.models.model import AttentionLayer, Model
from vitreous.models.swin import Swin

MOST = 1600
"""Patches among which one is chosen."""


class Interventions(dict[str, Tensor]):
    """By name; only those that a model knows.

    patch_order (n,): which patch stands in each place. patch_keep (n,): 0 makes a patch gray, the
    mean colour of the training data. position (): what positions are multiplied by, whatever they
    are: vectors that are added, angles, biases. position_order (n,), a permutation: whose position
    each place has; positions inside windows have none. class_token (): what the token is multiplied
    by. heads (layers, heads), attention (layers,), mlp (layers,): what comes out of them is
    multiplied by it. Orders and patch_keep may be (b, n): each image has its own.
    """

    grid: tuple[int, int]
    pixels: tuple[int, int]

    @classmethod
    def of(cls, model: Model) -> Interventions:
        """Neutral ones."""
        found, core = cls(), model.core
        layers = encoder_layers(model)
        levels = core.levels(core.own_size())  # Swin's first patches are too small to be pointed at
        level = next((each for each in levels if math.prod(each.grid) <= MOST), levels[-1])
        found.grid, found.pixels = level.grid, level.pixels
        covered = tuple(g * p for g, p in zip(level.grid, level.pixels, strict=True))
        n = level.grid[0] * level.grid[1]
        if covered == core.own_size() and not getattr(core, "windows", None):
            found["patch_order"], found["patch_keep"] = torch.arange(n), torch.ones(n)
        if has_positions(core):
            found["position"], found["position_order"] = torch.ones(()), torch.arange(n)
        elif isinstance(core, Swin):
            found["position"] = torch.ones(())
        if core.class_tokens:
            found["class_token"] = torch.ones(())
        if layers:
            most = max(heads_of(core, each) for each in layers)
            found["heads"] = torch.ones(len(layers), most)
            found["attention"] = torch.ones(len(layers))
            found["mlp"] = torch.ones(len(layers))
        return found

    def with_values(self, values: Mapping[str, Tensor]) -> Interventions:
        """Others of the same kind: the inputs of a graph, say."""
        found = Interventions({**self, **values})
        found.grid, found.pixels = self.grid, self.pixels
        return found

    def rearranged(self, images: Tensor) -> Tensor:
        """Normalised images (b, c, h, w) with their patches in another order, and some of them
        gray."""
        if "patch_order" not in self:
            return images
        (gh, gw), (ph, pw) = self.grid, self.pixels
        b, c, h, w = images.shape
        patches = images.reshape(b, c, gh, ph, gw, pw).permute(2, 4, 0, 1, 3, 5).flatten(0, 1)
        order, keep = self["patch_order"], self["patch_keep"]
        patches = patches[order] if order.ndim == 1 else patches[order.T, torch.arange(b)]
        keep = keep if keep.ndim == 1 else keep.T
        patches = patches * keep.reshape(gh * gw, -1, 1, 1, 1)
        return patches.unflatten(0, (gh, gw)).permute(2, 3, 0, 4, 1, 5).reshape(b, c, h, w)


@contextmanager
def intervening(model: Model, given: Interventions, see: See | None = None) -> Iterator[None]:
    """Inside, what `model` computes is changed; `see` is shown it behind each change."""
    with tap(watched(model), changing(model, lambda: given, see), inside=True):
        yield


def changing(model: Model, given: Callable[[], Interventions], see: See | None = None) -> See:
    """A function for `tap` that changes what it is shown. `given()` are the interventions at that
    moment."""
    layers = encoder_layers(model)
    numbers = {layer.name: number for number, layer in enumerate(layers)}
    mlps = {f"{name.rpartition('.')[0]}.mlp": number for name, number in numbers.items()}

    def changed(name: str, tensor: Tensor) -> Tensor | None:
        what = given()
        owner, _, part = name.rpartition(".")
        if name == "prefix" and "class_token" in what:
            return torch.cat((tensor[:, :1] * what["class_token"], tensor[:, 1:]), dim=1)
        if part in MOVED and "position" in what:
            order = what.get("position_order")  # windows have places of their own
            moved = tensor if order is None else MOVED[part](tensor, order)
            return moved * what["position"]
        if part == "placed" and "position" in what:
            return in_order(tensor, what["position_order"].argsort(-1))
        if owner in numbers and part == "heads":
            gates = what["heads"][numbers[owner], : tensor.shape[1]]
            return tensor * gates.reshape(1, -1, 1, 1)
        if name in numbers:
            return tensor * what["attention"][numbers[name]]
        if name in mlps:
            return tensor * what["mlp"][mlps[name]]
        return None

    def shown(name: str, tensor: Tensor) -> Tensor | None:
        after = changed(name, tensor)
        if see is not None:
            see(name, tensor if after is None else after)
        return after

    return shown


def _rows(table: Tensor, order: Tensor) -> Tensor:
    """A table (p + n, d), of which the first rows may belong to no place: (…, p + n, d)."""
    p = len(table) - order.shape[-1]
    patches = table[p:][order]  # (n, d), or (b, n, d)
    before = table[:p].expand(*order.shape[:-1], -1, -1)
    return torch.cat((before, patches), dim=-2)


def _between(bias: Tensor, order: Tensor) -> Tensor:
    """Biases between tokens, (1, heads, p + n, p + n): (1 or b, heads, p + n, p + n)."""
    p = bias.shape[-1] - order.shape[-1]
    before = torch.arange(p, device=order.device).expand(*order.shape[:-1], -1)
    rows = torch.cat((before, order + p), dim=-1)  # (…, p + n)
    moved = bias[0, :, rows[..., :, None], rows[..., None, :]]  # (heads, …, p + n, p + n)
    return moved[None] if order.ndim == 1 else moved.transpose(0, 1)


def in_order(x: Tensor, order: Tensor) -> Tensor:
    """x (b, n, d), its rows in an order that is (n,) or (b, n)."""
    if order.ndim == 1:
        return x[:, order]
    return x[torch.arange(len(x), device=x.device)[:, None], order]


MOVED = {"table": _rows, "angles": _rows, "bias": _between, "generated": in_order}
"""What positions show, by its name, in another order. A generator (CPVT) computes from the patches
around: they are put where their positions are (`placed`), and what is generated is put back."""


def watched(model: Model) -> dict[str, nn.Module]:
    """The modules of the encoder that are looked at: its steps, its positions, and in each block
    the norms, the attention, its projection and the layers of the MLP."""
    core = model.core
    found = core.steps()
    positions = (Position, OffsetBias)
    found |= {name: part for name, part in core.named_modules() if isinstance(part, positions)}
    for layer in encoder_layers(model):
        block = layer.name.rpartition(".")[0]
        inside = dict(core.get_submodule(block).named_children())
        for name in ("norm1", "attention", "norm2", "mlp"):
            found[f"{block}.{name}"] = inside[name]
        found[f"{block}.mlp.fc1"] = inside["mlp"].get_submodule("fc1")
        found.setdefault(block, core.get_submodule(block))
    return found


def encoder_layers(model: Model) -> list[AttentionLayer]:
    """Of the model that looks at the image."""
    return [layer for layer in model.core.attentions() if layer.part == "encoder"]


def heads_of(core: Model, layer: AttentionLayer) -> int:
    heads: Any = core.get_submodule(layer.name).heads
    return int(heads)


def has_positions(core: Model) -> bool:
    """Whether its patches have positions, on the whole grid."""
    return getattr(getattr(core.config, "position", None), "kind", "none") != "none"
