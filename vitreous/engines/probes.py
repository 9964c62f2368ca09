"""What does a trained model need? A part of it is changed while it answers: `--probe`.

    probes = Probes.of(model, ["shuffle-patches", "no-head=3.1"])
    with probes.changing(images) as images:
        model(images)

Each is a value for `Interventions`, the same that a living page has. What is random is drawn for
each image from the seed and its own pixels: the same image is shuffled in the same way whatever
batch, process or command it is in, and masks of more patches hold those of fewer.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.engines.interventions import Interventions, encoder_layers, heads_of, intervening
from vitreous.errors import ConfigError, did_you_mean
from vitreous.models.model import Model
from vitreous.wording import counted

Draw = Callable[[str], Tensor]
"""For each image of a batch the patches in a random order, (b, n), by what it is for."""
Change = Callable[[Interventions, Any, Draw], None]
PATCHES, PLACES = "patch_order", "position_order"


def _moved(given: Interventions, name: str, order: Tensor) -> None:
    """The patches, or positions, that stand somewhere now, in this order (b, n)."""
    given[name] = given[name].expand_as(order).gather(1, order)


def _shuffle_patches(given: Interventions, _: Any, draw: Draw) -> None:
    _moved(given, PATCHES, draw("patches"))


def _shuffle_positions(given: Interventions, _: Any, draw: Draw) -> None:
    _moved(given, PLACES, draw("positions"))


def _shuffle_tokens(given: Interventions, _: Any, draw: Draw) -> None:
    order = draw("tokens")
    _moved(given, PATCHES, order)
    _moved(given, PLACES, order)


def _swap_patches(given: Interventions, pairs: int, draw: Draw) -> None:
    order = draw("swapped")
    one, other = order[:, :pairs], order[:, pairs : 2 * pairs]
    places = torch.arange(order.shape[1]).repeat(len(order), 1)
    _moved(given, PATCHES, places.scatter(1, one, other).scatter(1, other, one))


def _mask_patches(given: Interventions, share: float, draw: Draw) -> None:
    order = draw("masked")
    masked = order[:, : round(share * order.shape[1])]
    given["patch_keep"] = torch.ones(order.shape).scatter(1, masked, 0.0)


def _switch_off(name: str) -> Change:
    def change(given: Interventions, place: Any, draw: Draw) -> None:
        given[name] = given[name].clone()
        given[name][place] = 0

    return change


class Kind(NamedTuple):
    """One kind of probe."""

    needs: tuple[str, ...]
    """The interventions that it is made of."""
    change: Change
    value: str = ""
    """What stands behind `=`, if anything does."""
    random: bool = False


KINDS = {
    "shuffle-patches": Kind((PATCHES,), _shuffle_patches, random=True),
    "shuffle-positions": Kind((PLACES,), _shuffle_positions, random=True),
    "shuffle-tokens": Kind((PATCHES, PLACES), _shuffle_tokens, random=True),
    "swap-patches": Kind((PATCHES,), _swap_patches, "PAIRS", random=True),
    "mask-patches": Kind(("patch_keep",), _mask_patches, "PART", random=True),
    "no-positions": Kind(("position",), _switch_off("position")),
    "no-class-token": Kind(("class_token",), _switch_off("class_token")),
    "no-attention": Kind(("attention",), _switch_off("attention"), "BLOCK"),
    "no-mlp": Kind(("mlp",), _switch_off("mlp"), "BLOCK"),
    "no-head": Kind(("heads",), _switch_off("heads"), "BLOCK.HEAD"),
}
NONE = "none"
"""In place of a probe: the model as it is."""
FORMS = tuple(f"{name}={kind.value}" if kind.value else name for name, kind in KINDS.items())


class Parsed(NamedTuple):
    text: str
    kind: Kind
    value: Any


@dataclass(frozen=True)
class Probes:
    """What is changed inside one model."""

    model: Model
    parsed: tuple[Parsed, ...]
    seed: int

    @classmethod
    def of(cls, model: Model, texts: Sequence[str], seed: int = 0) -> Probes | None:
        """From probes as they are written; None where nothing is changed. One that the model has
        no part for is an error."""
        texts = [text for text in texts if text != NONE]
        if not texts:
            return None
        if model.merge:
            raise ConfigError(
                f"probe = {texts[0]!r}: merged tokens have no places and no heads of their own: "
                "leave merge out"
            )
        known = Interventions.of(model)
        return cls(model, tuple(_parsed(text, model, known) for text in texts), seed)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.parsed]

    @property
    def random(self) -> bool:
        return any(each.kind.random for each in self.parsed)

    def interventions(self, images: Tensor) -> Interventions:
        """Those for a batch (b, c, h, w), on its device."""
        given = Interventions.of(self.model)
        if self.random and tuple(images.shape[2:]) != self.model.core.own_size():
            own, other = (
                "{}x{}".format(*s) for s in (self.model.core.own_size(), images.shape[2:])
            )
            raise ConfigError(
                f"probe = {self.texts}: an image is {other} here, and the patches of {own} are "
                "known: patches change places in images of one size (train with --resize square)"
            )

        def draw(what: str) -> Tensor:
            return random_orders(images, math.prod(given.grid), f"{self.seed} {what}")

        for each in self.parsed:
            each.kind.change(given, each.value, draw)
        return given.with_values({name: value.to(images.device) for name, value in given.items()})

    @contextmanager
    def changing(self, images: Tensor) -> Iterator[Tensor]:
        """Inside, the model is changed; gives the images (b, c, h, w) as it is to see them."""
        given = self.interventions(images)
        seen = given.rearranged(images)
        if all(set(each.kind.needs) <= {PATCHES, "patch_keep"} for each in self.parsed):
            yield seen  # the model itself stays as it is, and as fast
            return
        weights = next(self.model.parameters())
        there = {
            name: value.to(weights.device, weights.dtype if value.is_floating_point() else None)
            for name, value in given.items()
        }
        with intervening(self.model, given.with_values(there)):
            yield seen


def random_orders(images: Tensor, count: int, what: str) -> Tensor:
    """(b, count): for each image the numbers below `count` in an order that depends on its pixels
    and on `what` alone."""
    orders = []
    for image in images.float().cpu():
        digest = hashlib.sha256(what.encode() + image.contiguous().numpy().tobytes()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        orders.append(torch.randperm(count, generator=generator))
    return torch.stack(orders)


def _parsed(text: str, model: Model, known: Interventions) -> Parsed:
    name, equals, written = text.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        hint = did_you_mean(name, [*KINDS, NONE]) or f": the probes are {', '.join(FORMS)}"
        raise ConfigError(f"probe = {text!r} is not known{hint}")
    if bool(equals) != bool(kind.value):
        form = f"{name}={kind.value}" if kind.value else name
        raise ConfigError(f"probe = {text!r}: write {form}")
    missing = [each for each in kind.needs if each not in known]
    if missing:
        raise ConfigError(f"probe = {text!r}: {_why(missing[0], model, known)}")
    return Parsed(text, kind, _value(text, kind.value, written, model, known))


def _why(missing: str, model: Model, known: Interventions) -> str:
    """Why a model does not have what a probe changes."""
    core = model.core
    name = model.name or type(model).__name__
    if missing in ("patch_order", "patch_keep"):
        if getattr(core, "windows", None):
            return f"{name} has windows, and its patches stand in them: it has no row of patches"
        size, patch = ("{}x{}".format(*each) for each in (core.own_size(), known.pixels))
        return f"{name} sees images of {size}, which patches of {patch} do not cover evenly"
    if missing in ("position", "position_order"):
        if "position" in known:
            return f"{name} has positions inside windows, which have no order"
        return f"{name} has no positions"
    if missing == "class_token":
        return f"{name} has no class token"
    return f"{name} has no blocks with attention"


def _value(text: str, form: str, written: str, model: Model, known: Interventions) -> Any:
    """What stands behind `=`, checked; blocks and heads are counted from 1."""
    if not form:
        return ()
    n, layers = math.prod(known.grid), encoder_layers(model)
    if form == "PART":
        share = _number(written)
        if share is None or not 0 < share <= 1:
            raise ConfigError(f"probe = {text!r}: expected a part of the patches, above 0, up to 1")
        return share
    if form == "PAIRS":
        if not re.fullmatch(r"\d+", written) or not 1 <= int(written) <= n // 2:
            raise ConfigError(
                f"probe = {text!r}: expected a number of pairs, from 1 to {n // 2} of {n} patches"
            )
        return int(written)
    if not re.fullmatch(r"\d+\.\d+" if form == "BLOCK.HEAD" else r"\d+", written):
        kinds = "a block and a head, like 3.1" if form == "BLOCK.HEAD" else "a block, like 3"
        raise ConfigError(f"probe = {text!r}: expected {kinds}; both are counted from 1")
    block, *head = (int(each) for each in written.split("."))
    if not 1 <= block <= len(layers):
        raise ConfigError(
            f"probe = {text!r}: there is no block {block}; the model has "
            f"{counted(len(layers), 'block')}, counted from 1"
        )
    if not head:
        return block - 1
    heads = heads_of(model.core, layers[block - 1])
    if not 1 <= head[0] <= heads:
        raise ConfigError(
            f"probe = {text!r}: there is no head {head[0]}; block {block} has "
            f"{counted(heads, 'head')}, counted from 1"
        )
    return block - 1, head[0] - 1


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
