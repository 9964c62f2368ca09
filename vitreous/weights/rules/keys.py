"""Match the keys of a checkpoint with the parameters of a model."""

from __future__ import annotations

import fnmatch
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import torch
from torch import Tensor

from vitreous.config import flat, pair
from vitreous.errors import CheckpointError
from vitreous.models import family_of
from vitreous.models.model import Model
from vitreous.weights.families import state_dict_of
from vitreous.weights.rules.formats import OWN, find_format, formats
from vitreous.weights.rules.language import Format, Rule
from vitreous.weights.rules.patterns import to_ours

Value = TypeVar("Value")


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def first_keys(tensors: Iterable[str]) -> str:
    """For messages; a key of somebody else's file may have any length."""
    keys = (key if len(key) <= 200 else f"{key[:200]}…" for key in list(tensors)[:5])
    return ", ".join(keys)


def title(model: Model) -> str:
    """The model's name for messages."""
    return model.name or type(model).__name__


def axes_of(model: Model) -> dict[str, int]:
    """The axis lengths that patterns may name."""
    config = model.config
    axes = {"qkv": 3}
    sizes = {name: getattr(config, name, None) for name in ("heads", "dim", "classes")}
    axes |= {name: size for name, size in sizes.items() if isinstance(size, int)}
    if model.core is not model and isinstance(
        inner := getattr(model.core.config, "dim", None), int
    ):
        axes["core_dim"] = inner
    if hasattr(config, "patch"):
        axes["ph"], axes["pw"] = pair("patch", config.patch)
    if isinstance(grid := getattr(config, "grid", None), tuple):
        axes["gh"], axes["gw"] = grid
    return axes


def conditions(model: Model) -> list[str]:
    """What `when` and `unless` may ask for: our parameters, and settings as `activation=gelu`."""
    settings = flat(model.config).items()
    return [*model.state_dict(), *(f"{name}={value}" for name, value in settings)]


def find_keys(
    rules: Format, name: str, tensors: Mapping[str, Tensor], axes: Mapping[str, int]
) -> tuple[Rule, list[str]] | None:
    """The rule for our parameter `name` and its keys, if the checkpoint has all of them."""
    for rule, values in rules.rules_for(name):
        for keys in rules.spellings(rule, values, axes):
            if all(key in tensors for key in keys):
                return rule, keys
    return None


def our_shapes(
    rules: Format, names: Iterable[str], tensors: Mapping[str, Tensor], axes: Mapping[str, int]
) -> dict[str, tuple[int, ...] | None]:
    """For those parameters that the checkpoint has, the shape in our layout; None if the rule does
    not fit the tensors."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for name in names:
        match = find_keys(rules, name, tensors, axes)
        if match is not None and match[1]:
            blank = [torch.empty(tensors[key].shape, device="meta") for key in match[1]]
            shapes[name] = None
            with suppress(ValueError):  # the import will report it
                shapes[name] = to_ours(match[0], blank, axes).shape
    return shapes


def strip_prefix(tensors: Mapping[str, Value], rules: Format) -> dict[str, Value]:
    """The tensors without a prefix that all keys share: one of the format, or the name that a
    training framework or somebody's own class gave to the model ("model.", "net.encoder."). What
    stands beside a model that most keys belong to (a loss) keeps its name."""
    keys = list(tensors)
    for prefix in rules.prefixes:
        if keys and all(key.startswith(prefix) for key in keys):
            return {key.removeprefix(prefix): value for key, value in tensors.items()}
    for prefix in _owners(keys, rules):
        plain = {key.removeprefix(prefix): value for key, value in tensors.items()}
        if len(plain) == len(tensors):
            return plain
    return dict(tensors)


def _owners(keys: list[str], rules: Format) -> Iterator[str]:
    """The names that most keys begin with, if the format has none of these keys but knows them
    without it."""
    if not keys or any(rules.ours_of(key) for key in keys):
        return
    owner, count = Counter(key.partition(".")[0] for key in keys).most_common(1)[0]
    inside = [key for key in keys if key.startswith(f"{owner}.")]
    if 2 * count <= len(keys) or not inside:
        return
    levels = zip(*(key.split(".")[:-1] for key in inside), strict=False)
    parts = [names[0] for names in itertools.takewhile(lambda names: len({*names}) == 1, levels)]
    for count in range(1, len(parts) + 1):
        prefix = ".".join(parts[:count]) + "."
        if any(rules.ours_of(key.removeprefix(prefix)) for key in inside):
            yield prefix


def _scaled(
    found: Mapping[str, tuple[int, ...] | None], wanted: Mapping[str, tuple[int, ...]]
) -> int:
    """How many shapes are those of the model at another size: each length of its axes has become
    one other length, as 768 becomes 192 and 3072 becomes 768."""
    pairs = {
        name: [*zip(wanted[name], shape, strict=True)]
        for name, shape in found.items()
        if shape is not None and len(shape) == len(wanted[name])
    }
    counts = Counter(itertools.chain.from_iterable(pairs.values()))
    usual = {ours: theirs for (ours, theirs), _ in reversed(counts.most_common())}
    return sum(all(usual[ours] == theirs for ours, theirs in each) for each in pairs.values())


def detect_format(
    model: Model, tensors: Mapping[str, Tensor], source: str, reinit: Sequence[str] = ()
) -> Format:
    """The known format in which the checkpoint has all parameters except the head's, and those that
    begin anew.

    If several formats have the keys (PaddleClas uses timm's), most matching shapes win, then most
    shapes that a model of another size has, then the fewest keys that it has no place for (DINOv2's
    mask token, which timm leaves out), and a format that knows the keys with what they all begin
    with.
    """
    family, axes = family_of(model), axes_of(model)
    known = [one for sets in formats().values() for one in sets if family in one.families]
    originals_first = sorted(known, key=lambda rules: bool(rules.same_as))
    candidates = [find_format(OWN, family), *originals_first]
    ours, anew = model.state_dict(), [*state_dict_of(model).classwise(model), *reinit]
    wanted = {k: v.shape for k, v in ours.items() if not matches(k, anew)}
    fitting: dict[tuple[int, int, int, bool], Format] = {}
    for rules in candidates:
        plain = strip_prefix(tensors, rules)
        found = our_shapes(rules, wanted, plain, axes)
        if found.keys() == wanted.keys():
            fits = sum(found[name] == wanted[name] for name in wanted)
            homeless = sum(not rules.ours_of(key) for key in plain)
            same_keys = plain.keys() == tensors.keys()
            fitting.setdefault((fits, _scaled(found, wanted), -homeless, same_keys), rules)
    if fitting:
        return fitting[max(fitting)]
    raise CheckpointError(
        f"{source} does not fit {title(model)} in any known format "
        f"({', '.join(rules.name for rules in candidates)}); its first keys are "
        f"{first_keys(tensors)}. Is it for another model? Name the format to see which "
        "tensors are missing. For an unknown format, write rules (docs/formats.md)"
    )
