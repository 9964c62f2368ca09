"""What a model's config says of it: parameters, operations, tokens, shapes. Texts ask for them by
`facts.py`.

Models are made without memory for their values. FLOPs are counted by `engines/summary.py` alone.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from vitreous.config import Record, Size, pair
from vitreous.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vitreous.engines.summary import SummaryRow
    from vitreous.models.model import Model


def parameters(model: str, part: str | None = None, **fields: Any) -> str:
    """`86,567,656`; of a part those below it: `"head"`, `"blocks.0.mlp"`, `"position"`."""
    from vitreous.engines.counts import recorded

    if part is None and not fields and model in (known := recorded()):
        return f"{known[model][0]:,}"  # without torch
    return f"{_parameters(_blank(model, **fields), part):,}"


def more_parameters(model: str, than: str) -> str:
    """`770,536`: how many parameters one model has more than another."""
    more = _parameters(_blank(model), None) - _parameters(_blank(than), None)
    return f"{more:,}".replace("-", "−")


def shape(model: str, parameter: str, **fields: Any) -> str:
    """`768 × 768`: of one parameter, by its name."""
    known = dict(_blank(model, **fields).named_parameters())
    if parameter not in known:
        raise ConfigError(f"{model} has no parameter {parameter!r}{did_you_mean(parameter, known)}")
    return times(known[parameter].shape)


def stage(model: str, name: str, size: Size | None = None, **fields: Any) -> str:
    """`197 × 768`: what comes out of a stage, of those that `vitreous summary --all` lists, where
    every token is computed in every block."""
    rows = {row.name: row for row in _rows(model, False, **_sized(size, fields))}
    if name not in rows:
        raise ConfigError(
            f"{model} has no stage {name!r}{did_you_mean(name, rows)}"
            f" ('vitreous summary {model} --all' lists them)"
        )
    return times(rows[name].shape)


def flops(model: str, size: Size | None = None, read_only: bool = False, **fields: Any) -> str:
    """`35.1 GFLOPs`: a multiplication with its addition counts as two.

    Every token is computed in every block, as papers count. With `read_only`, the last block
    computes what the head reads: that is what Vitreous does, and what `vitreous summary` prints.
    """
    return scaled(_flops(model, read_only, **_sized(size, fields)), "FLOPs")


def macs(model: str, size: Size | None = None, **fields: Any) -> str:
    """`17.6 GMACs`: the same, where a multiplication with its addition counts as one. Many papers
    and tables print this number as FLOPs."""
    return scaled(_flops(model, False, **_sized(size, fields)) / 2, "MACs")


def attention_share(model: str, size: Size | None = None, **fields: Any) -> str:
    """`4.1 %`: the part of a ViT's FLOPs that grows with the square of its tokens, the products of
    queries with keys and of weights with values; as papers count.

    FLOPs are a polynomial of second degree in the number of tokens, so three counts tell it.
    """
    fields = _sized(size, fields)
    blank = _vit(model, **fields)
    ph, pw = blank.config.pixels
    gh, gw = blank.config.grid
    counts = [
        _flops(model, False, **{**fields, "image_size": (ph * gh, pw * gw * factor)})
        for factor in (1, 2, 3)
    ]
    step = gh * gw
    square = (counts[2] - 2 * counts[1] + counts[0]) / (2 * step**2)
    return f"{100 * square * (blank.prefix_length + step) ** 2 / counts[0]:.1f} %"


def attention_weights(model: str, size: Size | None = None, **fields: Any) -> str:
    """`5,588,496`: the weights of all heads of all blocks of a ViT, for one image."""
    blank = _vit(model, **_sized(size, fields))
    config = blank.config
    n = blank.prefix_length + math.prod(config.grid)
    return f"{config.depth * config.heads * n**2:,}"


def tokens(model: str, size: Size | None = None, stage: int = 1, **fields: Any) -> str:
    """`197`: with those that stand before the patches. A pyramid has other numbers in each stage,
    counted from 1."""
    core = _blank(model, **fields).core
    return f"{core.prefix_length + math.prod(_grid(core, size, stage)):,}"


def patches(model: str, size: Size | None = None, stage: int = 1, **fields: Any) -> str:
    """`196`"""
    return f"{math.prod(_grid(_blank(model, **fields).core, size, stage)):,}"


def grid(model: str, size: Size | None = None, stage: int = 1, **fields: Any) -> str:
    """`14 × 14`"""
    return times(_grid(_blank(model, **fields).core, size, stage))


def patch_values(model: str, **fields: Any) -> str:
    """`768`: numbers in a patch, P² · C."""
    config = _blank(model, **fields).core.config
    if not hasattr(config, "patch"):
        raise ConfigError(f"{model} cuts no patches")
    return f"{math.prod(pair('patch', config.patch)) * config.channels:,}"


def dense_weights(model: str, **fields: Any) -> str:
    """`22,658,678,784`: what a matrix from every pixel to every token would have, which assumes
    nothing of images: E has one for all patches, and each sees its own pixels alone."""
    config = _vit(model, **fields).config
    (height, width), (gh, gw) = pair("image_size", config.image_size), config.grid
    return f"{config.channels * height * width * gh * gw * config.dim:,}"


def field(model: str, name: str, **fields: Any) -> str:
    """`12`: a field of its config, or what follows from it, like `head_width`; those of a part have
    a dot, `norm.place`, as have those of a model inside, `core.dim`."""
    found: Any = _blank(model, **fields)
    owner, dot, rest = name.partition(".")
    found, name = (found.core.config, rest) if owner == "core" and dot else (found.config, name)
    for part in name.split("."):
        known = [each for each in dir(found) if not each.startswith("_")]
        known = [each for each in known if not callable(getattr(type(found), each, None))]
        if part not in known:
            raise ConfigError(f"{model} has no field {name!r}{did_you_mean(part, known)}")
        found = getattr(found, part)
    return _spelled(found, f"field {name!r} of {model}")


def megabytes(model: str, bits: int = 32, **fields: Any) -> str:
    """`346 MB`: its weights, at so many bits each."""
    if not 1 <= bits <= 64:
        raise ConfigError(f"bits = {bits}: expected 1 to 64")
    count = _parameters(_blank(model, **fields), None)
    return scaled(count * bits / 8, "B")


# ---- how they are written


def times(numbers: Any) -> str:
    return " × ".join(f"{each}" for each in numbers)


def scaled(value: float, unit: str) -> str:
    """`35.1 GFLOPs`: three digits, and a thousand's prefix."""
    prefixes = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    factor, prefix = next((each for each in prefixes if value >= each[0]), prefixes[-1])
    number = f"{value / factor:#.3g}".rstrip(".")
    return f"{number} {prefix}{unit}"


def _spelled(value: Any, where: str) -> str:
    if isinstance(value, Record):
        return str(getattr(value, "kind", ""))
    if isinstance(value, tuple):
        same = len(set(value)) == 1 and len(value) == 2  # a size
        return _spelled(value[0], where) if same else ", ".join(_spelled(v, where) for v in value)
    if value is None or not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{where} is {value!r}, which is no number or word")
    return f"{value:,}" if type(value) is int else str(value)


# ---- from a name


@cache
def _made(name: str, fields: tuple[tuple[str, Any], ...]) -> Model:
    from vitreous.models import create
    from vitreous.weights.blank import without_values

    with without_values():
        return create(name, **dict(fields))


def _blank(name: str, **fields: Any) -> Model:
    return _made(name, tuple(sorted(fields.items())))


def _vit(name: str, **fields: Any) -> Model:
    from vitreous.models.vit import ViT

    blank = _blank(name, **fields)
    if not isinstance(blank, ViT):
        raise ConfigError(f"{name} is no plain ViT, in which every token attends to every other")
    return blank


@cache
def _summarised(name: str, skip: bool, fields: tuple[tuple[str, Any], ...]) -> list[SummaryRow]:
    from vitreous.engines.summary import summarise

    return summarise(_made(name, fields), skip=skip)


def _rows(name: str, skip: bool, **fields: Any) -> list[SummaryRow]:
    return _summarised(name, skip, tuple(sorted(fields.items())))


def _flops(name: str, skip: bool, **fields: Any) -> int:
    return sum(row.flops for row in _rows(name, skip, **fields))


def _sized(size: Size | None, fields: dict[str, Any]) -> dict[str, Any]:
    return fields if size is None else {**fields, "image_size": pair("size", size)}


def _parameters(blank: Model, part: str | None) -> int:
    found = [
        each.numel()
        for name, each in blank.named_parameters()
        if part is None or name == part or name.startswith(f"{part}.")
    ]
    if not found:
        known = [name for name, _ in blank.named_modules() if name]
        raise ConfigError(
            f"{blank.name} has no parameters below {part!r}{did_you_mean(part or '', known)}"
        )
    return sum(found)


def _grid(core: Model, size: Size | None, stage: int) -> tuple[int, int]:
    levels = core.levels(core.own_size() if size is None else pair("size", size))
    if not 1 <= stage <= len(levels):
        raise ConfigError(f"stage {stage} of {core.name}: there are 1 to {len(levels)}")
    return levels[stage - 1].grid
