"""The config.json that transformers saves beside its weights, and what is beside it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.config import flat, from_dict, read_toml
from vitreous.errors import CheckpointError
from vitreous.models import FAMILIES, TWO_TOWERS, configure, family_of
from vitreous.models.model import Model
from vitreous.models.two_towers import TwoTowers
from vitreous.weights.stated import Origin, Stated
from vitreous.weights.transformers_backbones import BACKBONES
from vitreous.weights.transformers_preprocessor import (
    PREPROCESSOR_FILES,
    read_preprocessor,
)


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
    texts: str = ""
    both: str = ""

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


RESAMPLED = (
    "its positions are for another image size than its preprocessing: they are resampled at run "
    "time, with antialiasing, which transformers leaves out (dynamic_size)"
)
LEGACY_END = 2
"""The end token of old configs of CLIP, which is not theirs: then the largest id is the end."""
HIDDEN = {"num_attention_heads": "heads", "layer_norm_eps": "norm_eps"}
"""What nearly all of their configs call fields that no tensor shows."""
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "quick_gelu": "quick-gelu",
    "relu": "relu",
}


def read_transformers(path: Path, config: dict[str, Any]) -> Stated:
    """What a config.json states, and the preprocessor's file beside it."""
    origin, mapped = read_config(config, path), config_maps().get(str(config["model_type"]))
    if origin is not None and mapped is not None and _has_both(mapped, config):
        origin = _both_towers(mapped, config, path, origin)
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
    if fields.get("pool.token") == LEGACY_END:
        del fields["pool.token"]
        fields["pool"] = "largest"
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


def _has_both(mapped: ConfigMap, data: Mapping[str, Any]) -> bool:
    classes = data.get("architectures") or [mapped.both]
    return bool(mapped.texts) and classes == [mapped.both]


def _both_towers(mapped: ConfigMap, data: Mapping[str, Any], path: Path, image: Origin) -> Origin:
    """Our model and its fields for a config.json with both towers, whose image tower is known."""
    inside = data.get("text_config") or {}
    projected = {"projection_dim": data["projection_dim"]} if "projection_dim" in data else {}
    found = read_config({**inside, **projected, "model_type": mapped.texts}, path)
    assert found is not None
    (model, fields), (text, texts) = image, found
    sizes = [name for name in ("image_size", "channels") if name in fields]
    own: dict[str, Any] = {name: fields.pop(name) for name in sizes}
    usual = configure(text, **texts)[1]
    head, classes = fields.pop("head"), texts.pop("classes", None)
    fields.pop("classes", None)
    return TWO_TOWERS, {
        **own,
        "dim": usual.dim if classes is None else classes,
        "projection": head == "projection",
        "logit_bias": None if head == "projection" else -10.0,
        **{"image": model, "image_fields": fields, "text": text, "text_fields": texts},
    }


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
    if isinstance(model, TwoTowers):
        return _make_both(model)
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


def _make_both(model: TwoTowers) -> dict[str, Any]:
    """The same for both towers."""
    image, text = (make_config(tower) for tower in (model.core, model.text))
    for each in (image, text):
        del each["id2label"], each["label2id"], each["architectures"]
    known = config_maps().items()
    found = [(name, m) for name, m in known if m.texts and m.family == family_of(model.core)]
    if not found or found[0][1].texts != text["model_type"]:
        raise CheckpointError(f"transformers has no model like {model.name or 'these two towers'}")
    model_type, mapped = found[0]
    towers = {"vision_config": image, "text_config": text, "projection_dim": model.config.dim}
    return {"model_type": model_type, "architectures": [mapped.both], **towers}


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
    value: Any = flat(config).get(ours)
    match ours:
        case "pool.token":
            return config.end if config.pool.kind == "end" else LEGACY_END
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
