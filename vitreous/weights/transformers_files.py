"""The JSON files that transformers saves beside its weights: model config and preprocessor."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.config import flat, from_dict, pair, read_toml
from vitreous.errors import CheckpointError
from vitreous.models import FAMILIES, family_of
from vitreous.models.model import Model
from vitreous.weights.stated import Origin, Stated
from vitreous.weights.transformers_backbones import BACKBONES

PREPROCESSOR_FILE = "preprocessor_config.json"
PREPROCESSOR_FILES = (PREPROCESSOR_FILE, "processor_config.json")
"""The second is that of a model for images and text, in newer versions."""
INTERPOLATION = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""By Pillow's numbers, which preprocessor_config.json has."""


@dataclass(frozen=True)
class ConfigMap:
    """How a config.json corresponds to our config: a table of `transformers.toml`."""

    family: str
    architectures: Mapping[str, Mapping[str, Any]]
    fields: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    inside: str = ""
    gated: str = ""
    any_size: bool = False
    kept: Mapping[str, str] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)

    def class_fields(self, architecture: str, path: Path) -> Mapping[str, Any]:
        """Our fields that a class of transformers has.

        A class for another task has the same backbone; the import reports its other layers.
        """
        if architecture in self.architectures:
            return self.architectures[architecture]
        if self.family in BACKBONES and architecture:
            raise CheckpointError(
                f"{path}: {architecture} is not supported, only {', '.join(self.architectures)}"
            )
        classifies = architecture.endswith("ForImageClassification") and not self.inside
        return {} if classifies or not architecture else {"head": "none"}

    def architecture_of(self, config: Any) -> str | None:
        """The class in transformers that a model with this config is; None: it has none."""
        for name, fields in self.architectures.items():
            have = flat(config)
            if all(have.get(ours) == value for ours, value in fields.items()):
                return name
        return None


@functools.cache
def config_maps() -> dict[str, ConfigMap]:
    """By model_type."""
    rows = read_toml(Path(__file__).with_name("transformers.toml"), "the fields of transformers")
    return {name: from_dict(ConfigMap, row, where=name) for name, row in rows.items()}


SQUASHED = (
    "transformers resizes both sides and then crops, which distorts; here the shorter side is "
    "resized, as it was for the published accuracy of such models"
)
RESAMPLED = (
    "its positions are for another image size than its preprocessing: they are resampled at run "
    "time, with antialiasing, which transformers leaves out (dynamic_size)"
)
HIDDEN = {"num_attention_heads": "heads", "layer_norm_eps": "norm_eps"}
"""What nearly all of their configs call fields that no tensor shows."""
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "quick_gelu": "quick-gelu",
    "relu": "relu",
}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a readable JSON file: {error}") from error
    return data if isinstance(data, dict) else {}


def read_transformers(path: Path, config: dict[str, Any]) -> Stated:
    """What a config.json states, and the preprocessor's file beside it."""
    origin, mapped = read_config(config, path), config_maps().get(str(config["model_type"]))
    files = [path.with_name(name) for name in PREPROCESSOR_FILES]
    file = next((each for each in files if each.is_file()), None)
    known, notes = read_preprocessor(file) if file else ({}, ())
    model, values = origin or (None, _hidden(config))
    other_size = known.get("image_size") not in (None, values.get("image_size"))
    if mapped is not None and mapped.any_size and other_size:
        values, notes = {**values, "dynamic_size": True}, (*notes, RESAMPLED)
    return Stated(
        model,
        values,
        _labels(config),
        several=config.get("problem_type") == "multi_label_classification",
        preprocessing=known,
        kind="" if origin else f"transformers' {config['model_type']}",
        format="huggingface",
        notes=notes,
        whole=None if origin is None or mapped is None else _whole(mapped, config, origin[1]),
    )


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes' names in a config.json; none where they are only numbered, or not all named."""
    named = config.get("id2label")
    if not isinstance(named, dict) or {*named} != {str(number) for number in range(len(named))}:
        return ()
    names = tuple(named[str(number)] for number in range(len(named)))
    if not all(isinstance(name, str) and name.strip() for name in names):
        return ()
    return () if names == tuple(f"LABEL_{number}" for number in range(len(names))) else names


def read_config(data: dict[str, Any], path: Path) -> Origin | None:
    """Our family and config fields for a config.json; None for a model that we do not have."""
    mapped = config_maps().get(str(data.get("model_type")))
    if mapped is None:
        return None
    if mapped.inside:
        data = {**(data.get(mapped.inside) or {}), **data}
    data = {name: value for name, value in data.items() if value is not None}  # not stated
    stated = {ours: data[theirs] for theirs, ours in mapped.fields.items() if theirs in data}
    classes = data.get("architectures")
    architecture = str(classes[0]) if isinstance(classes, list) and classes else ""
    fields = {**mapped.defaults, **stated, **mapped.class_fields(architecture, path)}
    for name, value in mapped.required.items():
        if data.get(name, value) != value:
            raise CheckpointError(f"{path}: {name} = {data[name]!r} is not supported")
    for name, other in mapped.equal.items():
        if data.get(name, data.get(other)) != data.get(other):
            raise CheckpointError(
                f"{path}: {name} = {data[name]!r} and {other} = {data.get(other)!r}: only equal "
                "values are supported"
            )
    gated = bool(data.get(mapped.gated))
    if mapped.fields.get("mlp_ratio") == "mlp_dim":
        width = int(fields["dim"] * data.get("mlp_ratio", 4))
        fields["mlp_dim"] = _gated_width(width) if gated else width
    if gated:
        fields["activation"] = "silu-gated"
        # DINOv3 gates by its own activation; the others by SiLU, whatever they state.
        if "use_gated_mlp" in data and data.get("hidden_act", "gelu") != "silu":
            raise CheckpointError(f"{path}: only hidden_act = 'silu' is supported with a gated MLP")
    for name in (theirs for theirs, ours in mapped.fields.items() if ours == "activation"):
        if name in data and not gated:
            if str(data[name]) not in ACTIVATIONS:
                raise CheckpointError(f"{path}: {name} = {data[name]!r} is not supported")
            fields["activation"] = ACTIVATIONS[str(data[name])]
    if fields.get("layer_scale") == 0:
        fields["layer_scale"] = None
    if mapped.family in BACKBONES:
        fields |= BACKBONES[mapped.family].read(data, path)
    if fields.get("head") == "none":
        fields.pop("classes", None)
    return mapped.family, fields


def reads_whole(family: str) -> bool:
    """Whether models of this family are around those that `read_config` gives."""
    return any(mapped.whole.get("family") == family for mapped in config_maps().values())


def _whole(mapped: ConfigMap, data: Mapping[str, Any], inner: Mapping[str, Any]) -> Origin | None:
    """Our family and fields of the model around the one with the fields `inner`, if there is."""
    whole = mapped.whole
    if not whole:
        return None
    part, outside = FAMILIES[whole["family"]].part, ("image_size", "channels", "norm_eps", "head")
    fields = {name: value for name, value in inner.items() if name not in outside}
    own = {name: value for name, value in inner.items() if name in outside[:3]}
    stated = {ours: data.get(theirs) for theirs, ours in whole["fields"].items()}
    own |= {name: value for name, value in stated.items() if value is not None}
    return whole["family"], {str(part): whole["core"], f"{part}_fields": fields, **own}


def make_config(model: Model, names: Sequence[str] = ()) -> dict[str, Any]:
    """The config.json with which transformers loads our export as `huggingface`.

    names: the class names, if they are known.
    """
    for whole in (mapped.whole for mapped in config_maps().values()):
        if whole.get("family") == family_of(model):
            own = {theirs: getattr(model.config, ours) for theirs, ours in whole["fields"].items()}
            return make_config(model.core) | own | {"architectures": [whole["architecture"]]}
    config = model.config
    model_type, architecture = _class_of(model)
    mapped = config_maps()[model_type]
    if len(names) != config.classes:
        names = [f"LABEL_{number}" for number in range(config.classes)]
    fields = {theirs: _their_value(config, ours) for theirs, ours in mapped.fields.items()}
    if mapped.fields.get("mlp_ratio") == "mlp_dim":
        fields["mlp_ratio"] = _mlp_ratio(config)
    fields |= {
        **{name: fields[other] for name, other in mapped.equal.items()},
        **mapped.required,
        **({mapped.gated: config.activation == "silu-gated"} if mapped.gated else {}),
        **{theirs: ours in model.extras.unused for theirs, ours in mapped.kept.items()},
        **(BACKBONES[mapped.family].make(config) if mapped.family in BACKBONES else {}),
    }
    return {
        "model_type": model_type,
        "architectures": [architecture],
        **({mapped.inside: fields} if mapped.inside else fields),
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _class_of(model: Model) -> tuple[str, str]:
    """The model_type and the class of a model in transformers."""
    for model_type, mapped in config_maps().items():
        if mapped.family == family_of(model):
            architecture = mapped.architecture_of(model.config)
            if architecture is not None:
                return model_type, architecture
    raise CheckpointError(f"transformers has no model like {model.name or type(model).__name__}")


def _their_value(config: Any, ours: str) -> Any:
    """The value of one of our fields as transformers writes it."""
    value = flat(config)[ours]
    match ours:
        case "mlp_dim":
            return getattr(config, "mlp_width", value)
        case "mask_mlp_dim":
            return value or 4 * config.dim
        case "attention.key_bias":
            return config.attention.qkv_bias and value
        case "activation" if value == "silu-gated":
            return "silu"
        case "activation":
            return next(theirs for theirs, name in ACTIVATIONS.items() if name == value)
        case "layer_scale" if value is None:
            return 0.0
        case "window" if value[0] != value[1]:
            raise CheckpointError(f"window = {value}: transformers supports only square windows")
        case "image_size" | "patch" | "window":
            return value[0] if value[0] == value[1] else list(value)
    return value


def _gated_width(width: int) -> int:
    """DINOv2's gated MLP: two thirds of the width, in steps of eight."""
    return (int(width * 2 / 3) + 7) // 8 * 8


def _mlp_ratio(config: Any) -> int:
    """The width inside the MLP as a multiple of the model's."""
    width, dim = config.mlp_width, config.dim
    for ratio in range(1, 65):
        inside = ratio * dim
        if width == (_gated_width(inside) if config.activation == "silu-gated" else inside):
            return ratio
    raise CheckpointError(
        f"mlp_dim = {width}: transformers has it as a whole multiple of dim = {dim}"
    )


def _hidden(data: Mapping[str, Any]) -> dict[str, Any]:
    """The config fields that no tensor shows, of a model_type that we do not have."""
    found = {ours: data[theirs] for theirs, ours in HIDDEN.items() if theirs in data}
    numbers = {name: value for name, value in found.items() if type(value) in (int, float)}
    known = ACTIVATIONS.get(str(data.get("hidden_act")))
    return numbers | ({"activation": known} if known else {})


def read_preprocessor(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a `CatalogPreprocessing` that a preprocessor_config.json states; and notes on
    what is taken otherwise."""
    values = read_json(path)
    if isinstance(inner := values.get("image_processor"), dict):  # beside that of the text
        values = inner
    values = {name: value for name, value in values.items() if value is not None}  # not stated
    try:
        resized = "size" in values and values.get("do_resize") is not False
        found = _sizes(values) if resized else {}
        notes = [SQUASHED] if resized and _squashes_and_crops(values) else []
        # Theirs is (pixel * factor - mean) / std; ours has pixels from 0 to 1.
        factor = values.get("rescale_factor", 1 / 255)
        scale = 255 * (1.0 if values.get("do_rescale") is False else float(factor))
        if values.get("do_normalize") is False:
            found |= {"mean": (0.0,), "std": (1 / scale,)}
        elif {"image_mean", "image_std"} <= values.keys():
            found["mean"] = tuple(float(value) / scale for value in values["image_mean"])
            found["std"] = tuple(float(value) / scale for value in values["image_std"])
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        entries = ("size", "crop_size", "image_mean", "image_std", "resample", "rescale_factor")
        said = ", ".join(f"{name} = {str(values[name])[:40]}" for name in entries if name in values)
        raise CheckpointError(
            f"{path} cannot be understood ({said}): correct it, or remove it and state the "
            "preprocessing by options"
        ) from error
    return found, tuple(notes)


def _squashes_and_crops(values: Mapping[str, Any]) -> bool:
    size, crop = values["size"], values.get("crop_size", values["size"])
    sides = "height" in size if isinstance(size, dict) else "DeiT" in str(values)
    return bool(values.get("do_center_crop")) and sides and _sides(crop)[0] < _sides(size)[0]


def _sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    size, longest = _sides(values["size"])
    crop, part = size, None
    if values.get("do_center_crop", "crop_size" in values):
        crop, _ = _sides(values.get("crop_size", values["size"]))
    if isinstance(stated := values.get("crop_pct"), float) and int(crop / stated + 1e-9) == size:
        part = stated  # the part whose whole pixels `size` is
    # Both sides become the same length and nothing is cropped: the aspect ratio is lost.
    keeps_ratio = isinstance(values["size"], dict) and "shortest_edge" in values["size"]
    square = crop == size and longest is None and not keeps_ratio
    known = INTERPOLATION.get(values.get("resample", 2))  # others are asked for
    return {
        "image_size": _both(values["size"]) if square else crop,
        "crop": part or min(crop / size, 1.0),
        **({"interpolation": known} if known else {}),
        "resize": "square" if square else "shorter",
        "longest": int(values["max_size"]) if "max_size" in values else longest,
    }


def _both(size: Any) -> int | tuple[int, int]:
    """Height and width, where they differ."""
    if not isinstance(size, dict) or size["height"] == size["width"]:
        return _sides(size)[0]
    return int(size["height"]), int(size["width"])


def make_preprocessor(model: Model, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """The preprocessor_config.json for the preprocessing of a model; None if transformers has no
    such preprocessing.

    known: the fields of a `CatalogPreprocessing`.
    """
    channels, (height, width) = model.config.channels, model.own_size()
    if getattr(model.config, "dynamic_size", None):  # then the preprocessing decides
        height, width = pair("image_size", known["image_size"])
    resize, longest = known.get("resize", "shorter"), known.get("longest")
    values = {
        "do_resize": True,
        "resample": next(n for n, name in INTERPOLATION.items() if name == known["interpolation"]),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(known["mean"]) * (channels if len(known["mean"]) == 1 else 1),
        "image_std": list(known["std"]) * (channels if len(known["std"]) == 1 else 1),
    }
    if longest is not None:
        values["size"] = {"shortest_edge": min(height, width), "longest_edge": longest}
        return {"image_processor_type": "DetrImageProcessor", **values, "do_pad": True}
    if resize == "square":
        values["size"] = {"height": height, "width": width}
        return {"image_processor_type": "ViTImageProcessor", **values}
    if resize != "shorter" or height != width:
        return None
    return {
        "image_processor_type": "BitImageProcessor",
        **values,
        "size": {"shortest_edge": int(height / known["crop"] + 1e-9)},
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
        "crop_pct": known["crop"],
    }


def _sides(size: Any) -> tuple[int, int | None]:
    """Length of the shorter side, and the maximum of the longer one; one number in old files."""
    if isinstance(size, int):
        return size, None
    if "shortest_edge" in size:
        longest = size.get("longest_edge")
        return int(size["shortest_edge"]), None if longest is None else int(longest)
    return min(int(size["height"]), int(size["width"])), None
