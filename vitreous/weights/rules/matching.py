"""Which keys of a checkpoint belong to which parameters of a model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitreous.config import pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import FAMILIES
from vitreous.models.model import Model
from vitreous.weights.rules.formats import OWN, find_format, formats
from vitreous.weights.rules.language import Format, Rule, to_ours


def family_of(model: Model) -> str:
    """The family whose rules apply: by class, so that DeiT and CPVT, being ViTs, count as one."""
    for kind in type(model).__mro__:  # FSDP puts a class of its own in front
        for family, made in FAMILIES.items():
            if kind is made.model:
                return family
    raise ConfigError(
        f"{type(model).__name__} is not a model of Vitreous: make it with vitreous.create(...)"
    )


def title(model: Model) -> str:
    """What to call the model in a message."""
    return model.name or type(model).__name__


def axes_of(model: Model) -> dict[str, int]:
    """The axis lengths that the patterns of rules may name."""
    config = model.config
    axes = {"qkv": 3}
    sizes = {name: getattr(config, name, None) for name in ("heads", "dim")}
    axes |= {name: size for name, size in sizes.items() if isinstance(size, int)}
    if hasattr(config, "patch"):
        axes["ph"], axes["pw"] = pair("patch", config.patch)
    return axes


def find_keys(
    rules: Format, name: str, tensors: Mapping[str, Tensor], axes: Mapping[str, int]
) -> tuple[Rule, list[str]] | None:
    """The rule for our parameter `name` and the keys it takes, if the checkpoint has them all."""
    found = rules.rule_for(name)
    if found is None:
        return None
    for keys in rules.spellings(*found, axes):
        if all(key in tensors for key in keys):
            return found[0], keys
    return None


def without_prefix(tensors: Mapping[str, Tensor], rules: Format) -> dict[str, Tensor]:
    """The tensors by keys without a prefix that the format allows before all of them."""
    for prefix in rules.prefixes:
        if tensors and all(key.startswith(prefix) for key in tensors):
            return {key.removeprefix(prefix): value for key, value in tensors.items()}
    return dict(tensors)


def detect_format(model: Model, tensors: Mapping[str, Tensor], source: str) -> Format:
    """The known format in which the checkpoint has every parameter but the head's.

    Where several have the keys (PaddleClas uses timm's), the one with the most shapes right wins.
    """
    family, axes = family_of(model), axes_of(model)
    known = [one for sets in formats().values() for one in sets if family in one.families]
    originals_first = sorted(known, key=lambda rules: bool(rules.same_as))
    candidates = [find_format(OWN, family), *originals_first]
    wanted = {k: v.shape for k, v in model.state_dict().items() if not k.startswith("head.")}
    shapes = {key: torch.empty(t.shape, device="meta") for key, t in tensors.items()}
    best: tuple[int, Format] | None = None
    for rules in candidates:
        keys = without_prefix(shapes, rules)
        found = {name: find_keys(rules, name, keys, axes) for name in wanted}
        if None in found.values():
            continue
        right = 0
        for name, match in found.items():
            assert match is not None
            try:
                right += to_ours(match[0], [keys[k] for k in match[1]], axes).shape == wanted[name]
            except ValueError:
                continue
        if best is None or right > best[0]:
            best = right, rules
    if best is not None:
        return best[1]
    raise CheckpointError(
        f"{source} fits {title(model)} in none of the known formats "
        f"({', '.join(rules.name for rules in candidates)}); its keys begin with "
        f"{', '.join(list(tensors)[:5])}. Is it another model's? To see what is missing, name the "
        "format; for a format that is not known, write rules (docs/formats.md)"
    )
