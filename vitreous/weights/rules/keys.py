"""Which keys of a checkpoint belong to which parameters of ours, by the rules of a format."""

from __future__ import annotations

import fnmatch
import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from vitreous.config import flat, pair
from vitreous.models.model import Model
from vitreous.weights.rules.language import Format, Place, Rule, Shape
from vitreous.weights.rules.patterns import axes_in, our_shape, repeated
from vitreous.weights.rules.templates import placeholders


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


def conditions(model: Model, alone: bool = True) -> list[str]:
    """What `when` and `unless` may ask for: our parameters, settings as `activation=gelu`, and
    whether a model stands alone, and is not one of two towers."""
    settings = flat(model.config).items()
    stands = ["alone"] if alone else []
    return [*model.state_dict(), *(f"{name}={value}" for name, value in settings), *stands]


def _prefix(keys: list[str], rules: Format) -> str:
    """What all keys share: a prefix of the format, or the name that a training framework or
    somebody's own class gave to the model ("model.", "net.encoder."). What stands beside a model
    that most keys belong to (a loss) keeps its name."""
    for prefix in rules.prefixes:
        if keys and all(key.startswith(prefix) for key in keys):
            return prefix
    for prefix in _owners(keys, rules):
        if len({key.removeprefix(prefix) for key in keys}) == len(keys):
            return prefix
    return ""


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


@dataclass(frozen=True)
class Gathered:
    """A checkpoint in our names, by the rules of a format."""

    rules: Format = field(compare=False)
    prefix: str = field(compare=False)
    """What all of its keys begin with,"""
    plain: dict[str, Shape] = field(compare=False)
    """and their shapes without that."""
    shapes: dict[str, Shape]
    """In our layout, where the rule fits."""
    axes: dict[str, int]
    """Lengths that the checkpoint's layout shows: heads, and the sides of a patch."""
    keys: dict[str, list[str]]
    """Their keys for each of our names."""
    unused: tuple[str, ...]
    """Keys without a rule, or with one that does not fit their shape."""
    dropped: int
    """How many keys the rules ignore."""
    flat: bool
    """Whether patches are kept as flat vectors, which do not show their sides and channels."""
    problems: dict[str, str]
    """Our names whose rule does not fit the keys that it found, and why."""
    owners: dict[str, Rule] = field(compare=False)
    """For each of our names, the rule that has found its keys."""

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The checkpoint's tensors by the keys that the rules have."""
        return {key.removeprefix(self.prefix): value for key, value in tensors.items()}


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    return {name: tuple(value.shape) for name, value in tensors.items()}


def gather(
    rules: Format, tensors: Mapping[str, Tensor], names: Container[str] | None = None
) -> Gathered:
    """The shapes of a checkpoint by our names.

    names: the parameters of the model that it is for, where that is known. Then a key that two
    rules have belongs to what the model has, else to the rule that names it most exactly.
    """
    prefix = _prefix(list(tensors), rules)
    plain = {key.removeprefix(prefix): shape for key, shape in shapes_of(tensors).items()}
    counted = {
        key: shape
        for key, shape in plain.items()
        if names is not None or (0 not in shape and rules.ours_of(key, derived=True) is None)
    }
    places: dict[tuple[str, Rule, int], dict[tuple[int, int], str]] = {}
    for key in counted:
        known = [each for each in rules.places_of(key) if names is None or each.ours in names]
        for place in _likeliest(known) if names is None else known:
            parts = places.setdefault((place.ours, place.rule, place.spelling), {})
            parts.setdefault((place.part, place.head), key)
    keys: dict[str, list[str]] = {}
    owners: dict[str, Rule] = {}
    problems: dict[str, str] = {}
    order = {rule: number for number, rule in enumerate(rules.rules)}
    for (ours, rule, _), parts in sorted(places.items(), key=lambda i: (order[i[0][1]], i[0][2])):
        heads = range(max(head for _, head in parts) + 1)
        wanted = [*itertools.product(range(len(rule.theirs)), heads)]
        if ours not in keys and len(parts) == len(wanted):
            keys[ours], owners[ours] = [parts[each] for each in wanted], rule
        elif ours not in keys:
            first = next(iter(parts.values()))
            problems[ours] = f"of its {len(wanted)} keys {len(parts)} are there ({first} …)"
    problems = {ours: why for ours, why in problems.items() if ours not in keys}
    axes = {"qkv": 3}
    if any(repeated(pattern) for rule in rules.rules for pattern in rule.patterns):
        axes |= {n: v for n, v in rules.numbers.items() if n == "heads" and isinstance(v, int)}
    for ours, rule in owners.items():
        if len(keys[ours]) > len(rule.theirs):
            axes["heads"] = len(keys[ours]) // len(rule.theirs)
    their_shapes = {ours: [counted[key] for key in keys[ours]] for ours in owners}
    for ours, rule in owners.items():
        lengths = axes_in(rule, their_shapes[ours], axes)
        axes |= {name: lengths[name] for name in ("heads", "ph", "pw") if name in lengths}
    found: dict[str, Shape] = {}
    used: set[str] = set()
    flat = False
    for ours, rule in owners.items():
        try:
            shape = our_shape(rule, their_shapes[ours], axes, guess=True)
        except ValueError as error:
            problems[ours] = f"{', '.join(keys[ours][:3])}: {error}"
            continue
        used.update(keys[ours])
        flat |= "ph" not in axes and any("ph" in pattern for pattern in rule.patterns)
        if rule.rows != "first":  # whose length shows nothing
            found[ours] = shape
    left = [key for key in counted if key not in used]
    unused = tuple(key for key in left if not matches(key, rules.drop))
    dropped = len(left) - len(unused)
    by_rules = rules, prefix, plain
    return Gathered(*by_rules, found, axes, keys, unused, dropped, flat, problems, owners)


def _likeliest(places: list[Place]) -> list[Place]:
    """Where several rules have a key, those that name it most exactly: `dense_{2i+1}` is not meant
    where another rule has `dense_7`, and `{all}` where any other has it."""
    found = [(placeholders(place.rule.theirs[place.part]), place) for place in places]
    least = min((("all" in names, len(names)) for names, _ in found), default=(False, 0))
    return [place for names, place in found if ("all" in names, len(names)) == least]
