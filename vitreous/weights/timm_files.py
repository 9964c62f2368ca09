"""The config.json of a timm hub folder: architecture, arguments, labels and preprocessing."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.config import TRAINING, flat, flat_like, from_dict, marked, pair, read_toml
from vitreous.errors import CheckpointError, ConfigError, advice
from vitreous.models import canonical, configure, family_of, names
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.weights.rules.keys import title
from vitreous.weights.rules.library_limits import broken_limits
from vitreous.weights.stated import Origin, Stated

RATIOS = ("mlp_dim", "pool.mlp_dim")
"""Our widths that timm has as multiples of the model's."""
CROP_MODES = {"center": "shorter", "squash": "square"}
"""timm's, and what our `resize` calls them."""
ELSEWHERE = {"classes", "head", "head.hidden", "image_size"}
"""Fields that are no arguments: they stand elsewhere in the file."""


@dataclass(frozen=True)
class ArgumentMap:
    """How timm's arguments correspond to our config: a table of `timm.toml`."""

    architectures: tuple[str, ...]
    first_conv: str
    classifier: str
    arguments: Mapping[str, str]
    like: str = ""
    limits: tuple[str, ...] = ()
    heads: tuple[str, ...] = ("linear", "projection", "none")
    gated: int = 1
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@functools.cache
def argument_maps() -> dict[str, ArgumentMap]:
    """By our family."""
    rows = read_toml(Path(__file__).with_name("timm.toml"), "the arguments of timm")
    whole = {name: {**rows.get(row.get("like"), {}), **row} for name, row in rows.items()}
    return {name: from_dict(ArgumentMap, row, where=name) for name, row in whole.items()}


def is_timm(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a timm hub folder."""
    return isinstance(config.get("architecture"), str) and "model_type" not in config


# ---- reading


def read_timm(config: Mapping[str, Any]) -> Stated:
    """What a config.json states."""
    origin, (names, labels) = read_timm_model(config), _labels(config)
    licence = _pretrained(config).get("license")
    model, fields = origin or (None, {})
    return Stated(
        model,
        fields,
        names=names,
        labels=labels,
        preprocessing=_preprocessing(config),
        licence=licence if isinstance(licence, str) else "",
        kind="" if origin else f"timm's {config['architecture']}",
        format="timm",
    )


def read_timm_model(config: Mapping[str, Any]) -> Origin | None:
    """Our name and config fields for a config.json; None for a model that we do not have."""
    known = translate(config["architecture"])
    if known is None or known[0] not in names():
        return None
    name = known[0]
    family, usual = configure(name, **known[1])
    changes = canonical(family, known[1])
    row = argument_maps().get("vit" if family in ("deit", "cpvt") else family)
    arguments = config.get("model_args") or {}
    for theirs, value in arguments.items():
        if row is None or theirs not in row.arguments:
            raise CheckpointError(
                f"{config['architecture']}: model_args has {theirs} = {value!r}, which is not "
                f"known here{advice(': pass ', ', for example,', model='vit-b/16')} and the fields "
                "that no tensor shows, like heads=12"
            )
        if row.arguments[theirs] not in RATIOS:
            changes[row.arguments[theirs]] = _our_value(row, theirs, value)
    if row is not None:
        changes |= _widths(row, _fields(usual, flat(usual), row), arguments)
    if "pre_norm" in arguments:
        changes["embedding.bias"] = not arguments["pre_norm"]
    inner = _pretrained(config)
    if inner.get("fixed_input_size") and "img_size" not in arguments:  # then timm takes this one
        changes |= {k: v for k, v in _preprocessing(config).items() if k == "image_size"}
    if arguments.get("global_pool") == "avg":  # timm then puts the norm behind the pooling
        changes.setdefault("final_norm", "pooled")
    classes = config.get("num_classes", inner.get("num_classes"))
    if classes == 0:
        changes["head"] = "none"
    elif isinstance(classes, int):
        changes["classes"] = classes
    return name, changes


def _widths(
    row: ArgumentMap, usual: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, int]:
    """Widths inside MLPs, which are multiples of the model's in timm, where arguments change
    them."""
    dim, found = arguments.get("embed_dim", usual.get("dim")), {}
    for theirs, ours in row.arguments.items():
        if ours in RATIOS and {theirs, "embed_dim"} & arguments.keys():
            parts = row.gated if _is_gated(usual) and ours == "mlp_dim" else 1
            ratio = arguments.get(theirs, usual[ours] * parts / usual["dim"])
            found[ours] = int(ratio * dim + 1e-9) // parts
    if found.get("pool.mlp_dim") == found.get("mlp_dim"):
        found.pop("pool.mlp_dim", None)  # as it is unless given
    return found


def _is_gated(fields: Mapping[str, Any]) -> bool:
    return fields.get("activation") == "silu-gated"


def _our_value(row: ArgumentMap, theirs: str, value: Any) -> Any:
    if theirs in row.values:
        known = row.values[theirs]
        if str(value) not in known:
            raise CheckpointError(f"model_args has {theirs} = {value!r}: use {', '.join(known)}")
        return known[str(value)]
    return tuple(value) if isinstance(value, list) else value


def _labels(config: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """The classes' names; or the name of a set of classes; or neither."""
    inner = _pretrained(config)
    given = config.get("label_names") or inner.get("label_names") or inner.get("labels")
    described = config.get("label_descriptions") or inner.get("label_descriptions") or {}
    if isinstance(given, dict):
        given = [given.get(str(number)) for number in range(len(given))]
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return tuple(str(described.get(name, name)) for name in given), ""
    # The names of published weights end with what they were fine-tuned on: augreg_in21k_ft_in1k.
    said = any(isinstance(value, str) and value.endswith("in1k") for value in inner.values())
    classes = config.get("num_classes", inner.get("num_classes"))
    return (), "imagenet-1k" if said and classes == 1000 else ""


def _preprocessing(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `CatalogPreprocessing` that are stated."""
    inner, found = _pretrained(config), {}
    if isinstance(size := inner.get("input_size"), list) and len(size) == 3:
        found["image_size"] = size[1] if size[1] == size[2] else tuple(size[1:])
    for name in ("mean", "std"):
        if isinstance(values := inner.get(name), list):
            found[name] = tuple(map(float, values))
    mode, crop = inner.get("crop_mode", "center"), inner.get("crop_pct")
    if mode in CROP_MODES and isinstance(crop, int | float) and (mode == "center" or crop == 1):
        found |= {"resize": CROP_MODES[mode], "crop": float(crop)}
    if inner.get("interpolation") in ("bilinear", "bicubic", "nearest"):
        found["interpolation"] = inner["interpolation"]
    return found


def _pretrained(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("pretrained_cfg")
    return inner if isinstance(inner, dict) else {}


# ---- writing


def make_timm_config(
    model: Model, names: Sequence[str], preprocessing: Mapping[str, Any], licence: str = ""
) -> dict[str, Any]:
    """The config.json with which timm loads our export as `timm`, by
    `timm.create_model("local-dir:FOLDER", pretrained=True)`.

    names: the class names, if they are known; preprocessing: the fields of a
    `CatalogPreprocessing`, or empty.
    """
    family, config = family_of(model), model.config
    family = "vit" if family == "deit" else family
    row = argument_maps().get(family)
    if row is None:
        raise ConfigError(
            f"timm's config.json cannot be written for {title(model)}, only for models of the "
            f"families {', '.join(argument_maps())}: write a file, like DST.safetensors"
        )
    architecture, arguments = _architecture(row, model)
    headless = config.head.kind == "none"
    dynamic = getattr(config, "dynamic_size", None) and "image_size" in preprocessing
    size = preprocessing["image_size"] if dynamic else config.image_size
    inner: dict[str, Any] = {
        "input_size": [config.channels, *pair("image_size", size)],
        "fixed_input_size": family == "vit",
        "num_classes": 0 if headless else config.classes,
        # Of a convolution that it knows, timm takes the weights to be for three channels.
        **({"first_conv": row.first_conv} if config.channels == 3 else {}),
        "classifier": row.classifier,
    }
    if preprocessing:
        modes = {ours: theirs for theirs, ours in CROP_MODES.items()}
        inner |= {
            "interpolation": preprocessing["interpolation"],
            "crop_pct": preprocessing["crop"],
            "crop_mode": modes[preprocessing["resize"]],
            "mean": _per_channel(preprocessing["mean"], config.channels),
            "std": _per_channel(preprocessing["std"], config.channels),
        }
    return {
        "architecture": architecture,
        "num_classes": inner["num_classes"],
        "num_features": model.width,
        **({"label_names": list(names)} if len(names) == inner["num_classes"] else {}),
        **({"model_args": arguments} if arguments else {}),
        "pretrained_cfg": inner | ({"license": licence} if licence else {}),
    }


def _per_channel(values: Sequence[float], channels: int) -> list[float]:
    return list(values) * channels if len(values) == 1 else list(values)


def _architecture(row: ArgumentMap, model: Model) -> tuple[str, dict[str, Any]]:
    """The architecture of timm that needs the fewest arguments to be this model, and these."""
    possible, refused = {}, ""
    for architecture in row.architectures:
        try:
            possible[architecture] = _arguments(row, architecture, model)
        except ConfigError as error:
            refused = refused or str(error)
    if not possible:
        raise ConfigError(
            f"timm's config.json cannot describe {title(model)}: {refused}; write a file, like "
            f"DST.safetensors{_other_epsilon(row, model)}"
        )
    return min(possible.items(), key=lambda item: len(item[1]))


def _other_epsilon(row: ArgumentMap, model: Model) -> str:
    """What to do about an eps that timm cannot be told in a config.json."""
    own = model.config.norm_eps
    known = {float(configure(name)[1].norm_eps) for name in row.architectures}
    known |= {float(value) for value in row.values.get("norm_layer", {}).values()}
    if own in known:
        return ""
    return (
        f", and build the model with norm_layer=partial(torch.nn.LayerNorm, eps={own}); or take an "
        f"eps of timm's: {' or '.join(f'--set norm_eps={eps}' for eps in sorted(known))}"
    )


def _arguments(row: ArgumentMap, architecture: str, model: Model) -> dict[str, Any]:
    """What makes the architecture this model; a field that timm cannot be told is an error."""
    config = _fields(model.config, flat(model.config), row)
    base = configure(architecture)[1]
    usual = _fields(base, flat_like(model.config, base), row)
    told = {ours: theirs for theirs, ours in row.arguments.items()}
    different = [name for name, value in config.items() if usual.get(name, value) != value]
    implied = {*ELSEWHERE, *marked(type(model.config), TRAINING)} - {"layer_scale"}
    implied |= {"embedding.bias"} if "embed_norm" in told else set()
    unknown = [name for name in different if name not in told and name not in implied]
    if unknown:
        raise ConfigError(f"timm has no argument for {unknown[0]} = {config[unknown[0]]!r}")
    if config["head"] not in row.heads:
        raise ConfigError(f"timm loads no such folder with head = {config['head']!r}")
    if broken := broken_limits(row.limits, model.config):
        raise ConfigError(f"timm loads no folder with {broken[0]}")
    if config.get("registers") and config.get("position.prefix"):
        raise ConfigError("in timm a model with registers has no position for its class token")
    if "pool" in different and "final_norm" not in different:
        different.append("final_norm")  # its place depends on timm's pooling unless it is said
    if "dim" in different:  # of which theirs are multiples
        different += [name for name in RATIOS if name in told and name not in different]
    return {told[name]: _their_value(row, told[name], config) for name in different if name in told}


def _fields(config: Any, fields: dict[str, Any], row: ArgumentMap) -> dict[str, Any]:
    """With sizes as one number where both sides are the same, and what depends on others filled
    in."""
    if "dynamic_size" in fields:
        fields["dynamic_size"] = bool(fields["dynamic_size"])
    if "mlp_dim" in fields:
        fields["mlp_dim"] = config.mlp_width
    if "pool.mlp_dim" in row.arguments.values():
        fields["pool.mlp_dim"] = fields.get("pool.mlp_dim") or config.mlp_width
    for name in ("image_size", "patch", "window"):
        if name in fields and len(set(fields[name])) == 1:
            fields[name] = fields[name][0]
    return fields


def _their_value(row: ArgumentMap, theirs: str, config: Mapping[str, Any]) -> Any:
    ours = row.arguments[theirs]
    value = config[ours]
    if theirs in row.values:
        for name, meant in row.values[theirs].items():
            if meant == value:
                return {"True": True, "False": False}.get(name, name)
        raise ConfigError(f"timm has no {theirs} for {ours} = {value!r}")
    if ours not in RATIOS:
        return value
    width = value * (row.gated if _is_gated(config) and ours == "mlp_dim" else 1)
    ratio = width / config["dim"]
    exact = int(ratio * config["dim"]) == width  # timm rounds down
    return ratio if exact else math.nextafter(ratio, math.inf)
