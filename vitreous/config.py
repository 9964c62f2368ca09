"""Configuration as frozen dataclasses: read from and written to plain data, with type checks.

An unknown field is an error. A field may be a record of its own, a part: `position`, `pool`. Where
there are several kinds of it, the record says which (`{"kind": "rotary", "base": 100}`); one with
its defaults may be given by its kind alone (`position = "rotary"`). Fields of a part are named with
a dot: `position.base`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import math
import re
import reprlib
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

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
    "attention.dropout": "attn_drop_rate",
    "norm_eps": "layer_norm_eps epsilon eps",
    "activation": "act_layer hidden_act",
    "position": "pos_embed",
    "head.hidden": "representation_size",
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


class Check(NamedTuple):
    """What the value of a field must be besides its type: `Annotated[float, Check(…)]`."""

    allows: Callable[[Any], bool]
    expected: str


class Uncommon(NamedTuple):
    """Values that no published library has: those of models that people have written themselves."""

    values: tuple[Any, ...]


class FieldMark(NamedTuple):
    """What is known about a field besides its values."""

    name: str


HIDDEN = FieldMark("it changes the outputs, but neither names nor shapes of parameters")
PARTLY_HIDDEN = FieldMark("the same for some of its values; others show")
TRAINING = FieldMark("its value does not matter to a trained model")
SETTING = FieldMark("how a model is made or run, not what it computes")

Hidden = Annotated[T, HIDDEN]
LARGEST_SIZE = 2**24
"""Of any number in a model's config: the sizes that are made of them must be numbers for torch."""
Fraction = Annotated[
    float, TRAINING, Check(lambda value: 0 <= value < 1, "a number from 0 to below 1")
]
Count = Annotated[int, Check(lambda value: 0 <= value < 1000, "0 or more, below 1000")]
Depth = Annotated[int, Check(lambda value: 1 <= value < 1000, "at least 1, below 1000")]
OptionalDepth = Annotated[
    int | None, Check(lambda value: 1 <= value < 1000, "at least 1, below 1000")
]
Depths = Annotated[
    tuple[int, ...], Check(lambda values: sum(values) < 1000, "fewer than 1000 blocks in all")
]
Epsilon = Annotated[float, HIDDEN, Check(lambda value: 0 < value < 1, "a small number above 0")]
OneOrMore = Annotated[float, HIDDEN, Check(lambda value: 1 <= value < math.inf, "1 or more")]
Positive = Annotated[float, Check(lambda value: 0 < value < math.inf, "a number above 0")]
Finite = Annotated[T, HIDDEN, Check(math.isfinite, "a finite number")]
Classes = Annotated[
    int,
    Check(
        lambda value: 1 <= value <= LARGEST_SIZE,
        "at least 1; head='none' makes a model without classes",
    ),
]


@dataclasses.dataclass(frozen=True)
class Record:
    """A config whose fields are checked by their types, and spelled in one way: sizes as (height,
    width), choices (`Literal`) as they stand here. A part of another config derives from it too;
    of several kinds, each has a field `kind`."""

    def __post_init__(self) -> None:
        hints = type_hints(type(self))
        for each in dataclasses.fields(self):
            name, value = each.name, getattr(self, each.name)
            spelled = self._spelled(name, value, hints[name])
            if spelled is not value:
                object.__setattr__(self, name, spelled)

    @classmethod
    def check_value(cls, name: str, value: Any) -> None:
        """An error for a value that the field `name` cannot have, whatever the other fields are."""
        owner, dot, inner = name.partition(".")
        for record in {*records(type_hints(cls)[owner]).values()} if dot else ():
            if inner in type_hints(record):
                record.check_value(inner, value)
        if not dot:
            cls._spelled(name, checked(cls, {name: value})[name], type_hints(cls)[name])

    @classmethod
    def _spelled(cls, name: str, value: Any, hint: Any) -> Any:
        if (kinds := records(hint)) and not isinstance(value, Record):
            return _part(
                kinds, name, _grouped({name: value}, {name: hint})[name], getattr(cls, name), ""
            )
        if hint == Size or (hint == Size | None and value is not None):
            return pair(name, value)
        if typing.get_origin(hint) is Literal:
            return choice(name, value, typing.get_args(hint))
        checks = [mark for mark in marks(cls).get(name, ()) if isinstance(mark, Check)]
        for check in checks if value is not None else ():
            if not check.allows(value):
                raise ConfigError(f"{name} = {value!r}: expected {check.expected}")
        if not checks and (hint is int or (hint == int | None and value is not None)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} = {value!r}: expected an integer of at least 1")
            if value > LARGEST_SIZE:
                raise ConfigError(f"{name} = {value:,}: expected at most {LARGEST_SIZE:,}")
        return value


@functools.cache
def records(hint: Any) -> dict[str, type[Record]]:
    """The records that a field may hold, by kind, "" where there is one; none for other fields."""
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    found: dict[str, type[Record]] = {}
    for option in typing.get_args(hint) if union else (hint,):
        if not (isinstance(option, type) and issubclass(option, Record)):
            return {}
        words = typing.get_args(type_hints(option).get("kind")) or ("",)
        found |= dict.fromkeys(words, option)
    return found


def _marks(cls: type) -> dict[str, tuple[Any, ...]]:
    """What is annotated at each field, and at those of its parts."""
    found: dict[str, tuple[Any, ...]] = {}
    hints = typing.get_type_hints(cls, include_extras=True)
    for name in (each.name for each in dataclasses.fields(cls)):
        found[name] = getattr(hints[name], "__metadata__", ())
        for record in dict.fromkeys(records(type_hints(cls)[name]).values()):
            for inner, about in marks(record).items():
                if inner == "kind":
                    found[name] += about
                else:
                    found.setdefault(f"{name}.{inner}", about)
    return found


marks: Callable[[type], dict[str, tuple[Any, ...]]] = functools.cache(_marks)


def own_marks(config: Any) -> dict[str, tuple[Any, ...]]:
    """The same for the fields that this config has, by the kinds of its parts."""
    found: dict[str, tuple[Any, ...]] = dict(marks(type(config)))
    for name, part in vars(config).items():
        if isinstance(part, Record):
            own = {f"{name}.{inner}": about for inner, about in marks(type(part)).items()}
            found |= own | {name: own.get(f"{name}.kind", ())}
    return found


def marked(cls: type, *wanted: FieldMark) -> tuple[str, ...]:
    """The fields of a config, and of its parts, with one of these marks."""
    return tuple(name for name, about in marks(cls).items() if {*wanted} & {*about})


def flat(config: Any) -> dict[str, Any]:
    """Every field by its name; those of parts with a dot, and their kind by the part's name."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if not isinstance(value, Record):
            found[each.name] = value
            continue
        for inner, own in flat(value).items():
            found[each.name if inner == "kind" else f"{each.name}.{inner}"] = own
    return found


def flat_like(config: Any, base: Any) -> dict[str, Any]:
    """The fields of `base` by name, where its parts have the kinds of `config`: those of another
    kind have their defaults. The kinds themselves stay those of `base`."""
    found = flat(base)
    for name, part in vars(config).items():
        if kind_of(config, name) != kind_of(base, name):
            own = flat(type(part)(kind=part.kind))
            found |= {f"{name}.{inner}": value for inner, value in own.items() if inner != "kind"}
    return found


def flat_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as they are given, with those of parts by their own names: `position = {"kind":
    "rotary", "base": 100}` as `position` and `position.base`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Record):
            value = flat(value)
        if isinstance(value, Mapping) and not (name.endswith("_fields") or "." in name):
            found |= {name if k == "kind" else f"{name}.{k}": v for k, v in value.items()}
        else:
            found[name] = value
    return found


def kind_of(config: Any, part: str) -> str:
    """The kind of a part; "" where the config has no such field."""
    return getattr(getattr(config, part, None), "kind", "")


def fitting(config: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, by name, without fields that the chosen kinds of their parts do not have."""
    values, hints = flat_fields(values), type_hints(type(config))
    kept = {}
    for name, value in values.items():
        part, dot, inner = name.partition(".")
        if dot and (kinds := records(hints.get(part))):
            kind = values.get(part, kind_of(config, part))
            record = kinds.get(choice(part, kind, kinds) if kind else "", Record)
            if inner not in type_hints(record):
                continue
        kept[name] = value
    return kept


def from_dict(cls: type[T], values: Mapping[str, Any], *, where: str = "") -> T:
    """A config of type `cls`; fields that are not given keep their defaults."""
    return cls(**checked(cls, values, where=where))


def changed(config: T, values: Mapping[str, Any], *, where: str = "") -> T:
    """A copy of `config` with new values; fields that are tables are merged entry by entry, and a
    part whose kind stays the same keeps its other fields."""
    new = checked(type(config), values, where=where, base=config)
    before = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init}  # type: ignore[arg-type]
    return dataclasses.replace(config, **merged(before, new))  # type: ignore[type-var]


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings in one: the second wins, and tables are merged entry by entry.

    `encoder_fields` configures the model that `encoder` names. If `encoder` changes, the first
    table is discarded; and so are the fields of a part (`position.base`) whose kind changes.
    """
    both = {**first, **then}
    for name, table in first.items():
        part, dot, _ = name.partition(".")
        if dot and name not in then and then.get(part, first.get(part)) != first.get(part):
            del both[name]
        if isinstance(table, dict) and isinstance(then.get(name, {}), Mapping):
            part = name.removesuffix("_fields")
            same = part == name or both.get(part) == first.get(part)
            both[name] = {**(table if same else {}), **then.get(name, {})}
    return both


def to_dict(config: Any) -> dict[str, Any]:
    """Plain data for JSON and TOML; tuples become lists, and a part without fields its kind."""
    data: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    for name, value in data.items():
        if isinstance(getattr(config, name), Record) and value.keys() == {"kind"}:
            data[name] = value["kind"]
    return data


def option_text(value: Any, *, inside: bool = False) -> str:
    """A value as `--set` takes it, by TOML; texts have quotes inside of a list alone."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(option_text(each, inside=True) for each in value)}]"
    quoted = isinstance(value, bool | dict) or (inside and isinstance(value, str))
    return json.dumps(value) if quoted else str(value)


def checked(
    cls: type, values: Mapping[str, Any], *, where: str = "", base: Any = None
) -> dict[str, Any]:
    """`values` with lists as tuples and parts as records, which begin with those of `base`; an
    unknown field or a wrong type is an error."""
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{where or cls.__name__}: expected names and values, got {_short(values)}"
        )
    hints = type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    location = f" in {where}" if where else ""
    result = {}
    for name, value in _grouped(values, hints).items():
        if name not in names:
            known, ours = [*marks(cls)], FOREIGN_FIELDS.get(name)
            dotted_first = sorted(known, key=lambda field: "." not in field)
            inner = {field.partition(".")[2] or field: field for field in dotted_first}
            near = difflib.get_close_matches(name, inner, n=1, cutoff=0.75)
            same = ours if ours in known else inner[near[0]] if near else None
            hint = f": did you mean {same!r}?" if same else did_you_mean(name, known)
            hint = hint or f": the fields are {', '.join(names)}"
            raise ConfigError(f"unknown field {name!r}{location}{hint}")
        if kinds := records(hints[name]):
            current = getattr(base if base is not None else cls, name)
            result[name] = _part(kinds, name, value, current, location)
            continue
        if isinstance(value, list):
            value = tuple(value)
        if (kind := _row_type(hints[name])) is not None:
            value = _rows(kind, value, f"{name}{location}")
        if isinstance(value, int) and not isinstance(value, bool):
            takes_float = float in (hints[name], *typing.get_args(hints[name]))
            value = float(value) if takes_float and not _fits_value(value, hints[name]) else value
        if not _fits_value(value, hints[name]):
            raise ConfigError(
                f"{name} = {_short(value)}{location}: expected {_spell(hints[name])}, "
                f"got {type(value).__name__}"
            )
        result[name] = value
    return result


def _grouped(values: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of each part, and of the model inside this one (`encoder.depth`), together."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        owner, dot, inner = str(name).partition(".")
        if f"{owner}_fields" in hints and dot:
            found[f"{owner}_fields"] = {**found.get(f"{owner}_fields", {}), inner: value}
        elif name.endswith("_fields") and isinstance(value, Mapping):
            found[name] = {**found.get(name, {}), **value}
        elif not records(hints.get(owner)) or (isinstance(value, Record) and not dot):
            found[name] = value
        else:
            table = {inner: value} if dot else value
            table = {"kind": value} if isinstance(table, str) else table
            before = found.get(owner, {})
            before = flat(before) if isinstance(before, Record) else before
            both = isinstance(table, Mapping) and isinstance(before, Mapping)
            found[owner] = {**before, **table} if both else table
    return found


def _part(
    kinds: dict[str, type[Record]], name: str, value: Any, current: Any, location: str
) -> Record:
    """The record of a field: `current` with the given values, or one of another kind."""
    if isinstance(value, Record) and type(value) in kinds.values():
        return value
    if not isinstance(value, Mapping) or ("kind" in value and "" in kinds):
        expected = f"one of {', '.join(kinds)}, or a table" if "" not in kinds else "a table"
        value = value["kind"] if isinstance(value, Mapping) else value
        raise ConfigError(f"{name} = {_short(value)}{location}: expected {expected}")
    given = {key: own for key, own in value.items() if key != "kind"}
    if "kind" in value:
        kind = choice(name, value["kind"], kinds)
        current = current if current.kind == kind else from_dict(kinds[kind], {"kind": kind})
    known = [each.name for each in dataclasses.fields(current) if each.name != "kind"]
    for key in given:
        if key in known:
            continue
        others = [kind for kind, each in kinds.items() if key in type_hints(each)]
        if others and "" not in kinds:
            raise ConfigError(
                f"{name}.{key}{location} is for {name} = {' or '.join(map(repr, others))}, and "
                f"{name} is {current.kind!r}: give {name} too"
            )
        every = {each for record in kinds.values() for each in type_hints(record)} - {"kind"}
        hint = did_you_mean(key, sorted(every))
        of_part = f": its fields are {', '.join(known)}" if known else ": it has no fields"
        raise ConfigError(f"unknown field '{name}.{key}'{location}{hint or of_part}")
    try:
        return changed(current, given)
    except ConfigError as error:
        raise ConfigError(f"{name}.{error}") from None


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
    """`["heads=4", "position.base=100"]` as a dict. Values are parsed as TOML, or else kept as
    text."""
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
        fields[name.replace("-", "_")] = value
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
