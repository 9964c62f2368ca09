"""Configuration as frozen dataclasses: read from and written to plain data, with type checks.

An unknown field is an error."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import reprlib
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vitreous.errors import ConfigError, did_you_mean

T = TypeVar("T")
Size = int | tuple[int, int]

LARGEST = 2**31 - 1
_NAMES_ELSEWHERE = {
    "dim": "embed_dim hidden_size hidden_dim width",
    "classes": "num_classes n_classes num_labels class_num",
    "channels": "in_chans num_channels",
    "width": "out_channels",
    "kernel": "kernel_size",
    "image_size": "img_size imgsz input_size resolution",
    "patch": "patch_size",
    "heads": "num_heads n_heads nhead n_head num_head num_attention_heads",
    "head_dim": "dim_head",
    "depth": "num_layers num_hidden_layers layers",
    "mlp_dim": "mlp_ratio intermediate_size",
    "pool": "global_pool",
    "tokens": "class_token",
    "registers": "reg_tokens",
    "layer_scale": "init_values",
    "drop_path": "drop_path_rate",
    "dropout": "drop_rate",
    "attention_dropout": "attn_drop_rate",
    "norm_eps": "layer_norm_eps epsilon eps",
    "activation": "act_layer hidden_act",
    "position": "pos_embed",
    "head_hidden": "representation_size",
    # of a recipe
    "lr": "learning_rate base_lr lr0",
    "batch": "batch_size bs train_batch_size per_device_train_batch_size",
    "epochs": "num_epochs max_epochs num_train_epochs",
    "workers": "num_workers dataloader_num_workers",
    "smoothing": "label_smoothing",
    "warmup": "warmup_ratio",
    "clip": "grad_clip",
    "weights": "pretrained checkpoint ckpt",
    "flip": "hflip",
    "erase": "random_erasing",
    "patience": "early_stopping",
    "accumulate": "gradient_accumulation_steps",
    "out": "output output_dir save_dir",
    "device": "device_ids gpu gpus",
    "precision": "amp fp16 bf16",
    "seed": "random_seed",
    "model": "arch architecture",
    "weight_decay": "wd",
    "on_bad": "skip_bad",
    "threshold": "conf confidence",
}
FOREIGN_FIELDS = {
    theirs: ours for ours, names in _NAMES_ELSEWHERE.items() for theirs in names.split()
}
"""The names of our fields in other libraries."""


type_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)
"""The types of a class's fields. Evaluating them takes half a millisecond a class."""


def from_dict(cls: type[T], values: Mapping[str, Any], *, where: str = "") -> T:
    """A config of type `cls`; fields that are not given keep their defaults."""
    return cls(**checked(cls, values, where=where))


def changed(config: T, values: Mapping[str, Any], *, where: str = "") -> T:
    """A copy of `config` with new values; fields that are tables are merged entry by entry."""
    new = checked(type(config), values, where=where)
    before = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init}  # type: ignore[arg-type]
    return dataclasses.replace(config, **merged(before, new))  # type: ignore[type-var]


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings in one: the second wins, and tables are merged entry by entry.

    `encoder_fields` configures the model that `encoder` names. If `encoder` changes, the first
    table is discarded.
    """
    both = {**first, **then}
    for name, table in first.items():
        if isinstance(table, dict):
            part = name.removesuffix("_fields")
            same = part == name or both.get(part) == first.get(part)
            both[name] = {**(table if same else {}), **then.get(name, {})}
    return both


def to_dict(config: Any) -> dict[str, Any]:
    """Plain data for JSON and TOML; tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def option_text(value: Any) -> str:
    """A value as `--set` takes it: by TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_element_text(each) for each in value)}]"
    return json.dumps(value) if isinstance(value, bool | dict) else str(value)


def _element_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else option_text(value)


def checked(cls: type, values: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """`values` with lists as tuples; an unknown field or a wrong type is an error."""
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{where or cls.__name__}: expected names and values, got {_short(values)}"
        )
    hints = type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    location = f" in {where}" if where else ""
    result = {}
    for name, value in values.items():
        if name not in names:
            ours = FOREIGN_FIELDS.get(name)
            same = f": did you mean {ours!r}?" if ours in names else ""
            hint = same or did_you_mean(name, names) or f": the fields are {', '.join(names)}"
            raise ConfigError(f"unknown field {name!r}{location}{hint}")
        if isinstance(value, list):
            value = tuple(value)
        if (kind := _row_type(hints[name])) is not None:
            value = _rows(kind, value, f"{name}{location}")
        if isinstance(value, int) and not isinstance(value, bool) and _fits(float, hints[name]):
            value = value if _fits_value(value, hints[name]) else float(value)
        if not _fits_value(value, hints[name]):
            raise ConfigError(
                f"{name} = {_short(value)}{location}: expected {_spell(hints[name])}, "
                f"got {type(value).__name__}"
            )
        result[name] = value
    return result


def _row_type(hint: Any) -> type | None:
    """X for tuple[X, …] of a dataclass X: a list of tables."""
    args = typing.get_args(hint)
    rows = typing.get_origin(hint) is tuple and args and dataclasses.is_dataclass(args[0])
    return args[0] if rows else None


def _rows(kind: type, rows: Any, where: str) -> tuple[Any, ...]:
    """Each table of a list as a config of type `kind`."""
    if not isinstance(rows, tuple):
        raise ConfigError(f"{where}: expected a list of tables, got {_short(rows)}")
    made = []
    for number, row in enumerate(rows):
        try:
            made.append(row if isinstance(row, kind) else from_dict(kind, row))
        except ConfigError as error:
            raise ConfigError(f"{where}, row {number}: {error}") from None
    return tuple(made)


def choice(field: str, value: str, known: Iterable[str]) -> str:
    """The entry of `known` that `value` means, ignoring case and punctuation ("Learned 1-D")."""
    known = list(known)
    plain = {_plain(word): word for word in known}
    if isinstance(value, str) and _plain(value) in plain:
        return plain[_plain(value)]
    hint = did_you_mean(str(value), known) or f": use one of {', '.join(known)}"
    raise ConfigError(f"{field} = {value!r} is not known{hint}")


def pair(field: str, value: Size) -> tuple[int, int]:
    """(height, width) from one number or two."""
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or not all(
        isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 2**16 for v in both
    ):
        raise ConfigError(
            f"{field} = {value!r}: expected a positive integer up to {2**16}, or (height, width)"
        )
    return both


def size_of(name: str, numbers: Sequence[int]) -> int | tuple[int, int]:
    """One number for both sides, or (height, width)."""
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    raise ConfigError(f"{name} takes one number, or height and width; got {len(numbers)}")


def config_fields(assignments: Sequence[str]) -> dict[str, Any]:
    """`["heads=4", "pool=mean"]` as a dict. Values are parsed as TOML, or else kept as text.

    `encoder.depth=6` sets the entry `depth` of the field `encoder_fields`.
    """
    fields: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise ConfigError(f"{assignment!r}: expected name=value")
        text = {"True": "true", "False": "false"}.get(text, text)
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        part, dot, inner = name.replace("-", "_").rpartition(".")
        if dot:
            fields.setdefault(f"{part}_fields", {})[inner] = value
        else:
            fields[inner] = value
    return fields


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file; `what` describes it in error messages."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; expected {what}") from None
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: not a readable TOML file: {error}") from error


def parse_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not a readable TOML file: {error}") from error


def positive(config: Any, *fields: str) -> None:
    """Every named field is at least 1."""
    for field in fields:
        value = getattr(config, field)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            raise ConfigError(f"{field} = {value!r}: expected an integer of at least 1")


def fraction(config: Any, *fields: str) -> None:
    """Every named field is in [0, 1)."""
    for field in fields:
        value = getattr(config, field)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise ConfigError(f"{field} = {value!r}: expected a number from 0 to below 1")


_clip = reprlib.Repr()
_clip.maxstring = _clip.maxother = 200
_clip.maxtuple = _clip.maxlist = _clip.maxdict = 20
_short = _clip.repr
"""The `repr` of a value from a file, which may be long or deeply nested."""


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _fits(kind: type, hint: Any) -> bool:
    return hint is kind or kind in typing.get_args(hint)


def _fits_value(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits_value(value, arg) for arg in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all(_fits_value(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(_fits_value, value, args))
    if origin is typing.Literal:
        return isinstance(value, str)  # `choice` knows how it may be spelled
    if origin is not None:
        return isinstance(value, origin)
    if hint is type(None):
        return value is None
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, hint)


def _spell(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_spell(arg) for arg in typing.get_args(hint))
    if hint is type(None):
        return "None"
    return getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
