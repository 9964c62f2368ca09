"""Which model a checkpoint is for, as far as it says so itself.

Our own files carry the model's config, the catalog knows its entries, a transformers folder has a
config.json, and the shapes of the tensors tell the rest: classes, channels and a square image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import to_dict
from vitreous.errors import CheckpointError
from vitreous.layers.position import Learned1d
from vitreous.models import FAMILIES, create
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.weights.catalog import catalog
from vitreous.weights.io.files import FOLDER_FILES
from vitreous.weights.rules.fit import divide_rows
from vitreous.weights.rules.language import Format, to_ours
from vitreous.weights.rules.matching import axes_of, family_of, find_keys, without_prefix


@dataclass(frozen=True)
class Described:
    """How transformers' config.json describes the models of one of our families."""

    family: str
    title: str
    """What the names of its classes begin with."""
    fields: Mapping[str, str]
    """Its fields and ours of the same meaning."""
    ours: Mapping[str, Any] = field(default_factory=dict)
    """What ours are where the file is silent: transformers' default, not ours."""
    theirs: Mapping[str, Any] = field(default_factory=dict)
    """What its fields must be, as ours can be nothing else."""
    alike: Mapping[str, str] = field(default_factory=dict)
    """Fields of its that must be what others are, as ours are one."""


_IMAGES = {
    "image_size": "image_size",
    "patch_size": "patch",
    "num_channels": "channels",
    "qkv_bias": "qkv_bias",
}
_VIT = {
    **_IMAGES,
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_dim",
    "layer_norm_eps": "norm_eps",
    "hidden_act": "activation",
}
_SWIN = {
    **_IMAGES,
    "embed_dim": "dim",
    "depths": "depths",
    "num_heads": "heads",
    "window_size": "window",
    "mlp_ratio": "mlp_ratio",
}
_DETR = {
    "num_channels": "channels",
    "d_model": "dim",
    "encoder_layers": "encoder_depth",
    "decoder_layers": "decoder_depth",
    "encoder_attention_heads": "heads",
    "encoder_ffn_dim": "mlp_dim",
    "num_queries": "queries",
    "activation_function": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
_VIT_SILENT = {"norm_eps": 1e-12, "activation": "gelu"}
TRANSFORMERS = {
    "deit": Described(
        "vit", "DeiT", _VIT, {**_VIT_SILENT, "tokens": "class+distillation", "pool": "both"}
    ),
    "vit": Described("vit", "ViT", _VIT, _VIT_SILENT),
    # layer_norm_eps reaches only some of its norms; the others have 1e-5.
    "swin": Described(
        "swin",
        "Swin",
        _SWIN,
        theirs={"hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_absolute_embeddings": False},
    ),
    "detr": Described(
        "detr",
        "Detr",
        _DETR,
        {"attention_dropout": 0.0},
        theirs={"position_embedding_type": "sine"},
        alike={
            "decoder_attention_heads": "encoder_attention_heads",
            "decoder_ffn_dim": "encoder_ffn_dim",
        },
    ),
}
"""By the model_type of the file."""
TRANSFORMERS_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "quick_gelu": "quick-gelu",
    "relu": "relu",
}
HIDDEN = (
    "heads",
    "activation",
    "pool",
    "qk_scale",
    "norm",
    "position",
    "pad",
    "placed",
    "temperature",
    "norm_eps",
)
"""Fields that decide about the outputs and leave no trace in names and shapes."""
Origin = tuple[str, dict[str, Any]]
"""A model's name and the changes to its config."""


def own_metadata(model: Model) -> dict[str, str]:
    """What our own safetensors files say about themselves."""
    family = family_of(model)
    name = model.name or family
    config = to_dict(model.config)
    if config.get("head") == "none":
        del config["classes"]  # which mean nothing without a head
    return {
        "format": "vitreous",
        "model": name,
        "family": family,
        "config": json.dumps(config),
    }


def origin_of(source: str, path: Path, metadata: Mapping[str, str]) -> Origin | None:
    """What the checkpoint's surroundings say about its model; None when they are silent."""
    if metadata.get("format") == "vitreous":
        try:
            family, config = metadata["family"], json.loads(metadata["config"])
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"{path}: its metadata is damaged: {error!r}") from error
        if family not in FAMILIES or not isinstance(config, dict):
            raise CheckpointError(f"{path}: its metadata names an unknown family {family!r}")
        return family, config
    if source in catalog():
        entry = catalog()[source]
        return entry.model, entry.changes
    config_file = path.parent / "config.json"
    if path.name in FOLDER_FILES and config_file.is_file():
        return _from_transformers(config_file)
    return None


def stated_fields(source: str, path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """What the checkpoint's own config says that no tensor shows."""
    origin = origin_of(source, path, metadata)
    changes = origin[1] if origin else {}
    stated = {name: changes[name] for name in HIDDEN if name in changes}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()}


def infer_changes(
    name: str, changes: dict[str, Any], tensors: Mapping[str, Tensor], rules: Format
) -> dict[str, Any]:
    """`changes`, and what the tensors' shapes say where it is silent."""
    with torch.device("meta"):
        model = create(name, **changes)
    keys, axes = without_prefix(tensors, rules), axes_of(model)
    found = {
        ours: find_keys(rules, ours, keys, axes)
        for ours in ("head.out.weight", "class_head.weight", "position.table", model.input_weight)
    }
    shapes = {}
    for ours, match in found.items():
        if match is not None:
            try:
                shapes[ours] = to_ours(match[0], [keys[k] for k in match[1]], axes).shape
            except ValueError:
                continue  # the import will say what is wrong with it
    inferred = dict(changes)
    if "head.out.weight" in shapes and "classes" not in changes and changes.get("head") != "none":
        inferred["classes"] = shapes["head.out.weight"][0]
    if "class_head.weight" in shapes and "classes" not in changes:
        inferred["classes"] = shapes["class_head.weight"][0] - 1  # the last is "no object"
    if model.input_weight in shapes and "channels" not in changes:
        inferred["channels"] = shapes[model.input_weight][1]
    position = getattr(model, "position", None)
    if "position.table" in shapes and "image_size" not in changes:
        assert isinstance(position, Learned1d)
        config, count = model.config, shapes["position.table"][0]
        rows = divide_rows(
            count,
            tokens=position.rows,
            registers=config.registers,
            target=position.grid,
            source=None,
        )
        if rows is not None and rows.grid != position.grid:
            inferred["image_size"] = tuple(
                size // have * want
                for size, have, want in zip(
                    config.image_size, position.grid, rows.grid, strict=True
                )
            )
    return inferred


def transformers_config(model: Model, names: Sequence[str] = ()) -> dict[str, Any]:
    """The config.json with which transformers loads what we export as `huggingface`.

    names: of the classes, if they are known.
    """
    config = model.config
    distilled = getattr(config, "tokens", "") == "class+distillation"
    kind = "deit" if distilled else family_of(model)
    described = TRANSFORMERS[kind]
    head = "ForImageClassification"
    if kind == "detr":
        head = "ForObjectDetection"
    elif config.head == "none":
        head = "Model"
    elif getattr(config, "pool", "") == "both":
        head += "WithTeacher"
    if len(names) != config.classes:
        names = [f"LABEL_{number}" for number in range(config.classes)]
    fields = {theirs: _as_theirs(config, ours) for theirs, ours in described.fields.items()}
    return {
        "model_type": kind,
        "architectures": [described.title + head],
        **fields,
        **{name: fields[other] for name, other in described.alike.items()},
        **described.theirs,
        **(_backbone_as_theirs(config) if kind == "detr" else {}),
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _as_theirs(config: Any, ours: str) -> Any:
    """The value of one of our fields as transformers writes it."""
    value = getattr(config, ours)
    match ours:
        case "mlp_dim":
            return getattr(config, "mlp_width", value)
        case "activation":
            return next(t for t, mine in TRANSFORMERS_ACTIVATIONS.items() if mine == value)
        case "window" if value[0] != value[1]:
            raise CheckpointError(f"window = {value}: transformers' windows are square")
        case "image_size" | "patch" | "window":
            return value[0] if value[0] == value[1] else list(value)
    return value


def _from_transformers(path: Path) -> Origin | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable JSON file: {error}") from error
    if not isinstance(data, dict) or data.get("model_type") not in TRANSFORMERS:
        return None
    described = TRANSFORMERS[data["model_type"]]
    stated = {ours: data[theirs] for theirs, ours in described.fields.items() if theirs in data}
    changes = {**described.ours, **stated}
    for name, value in described.theirs.items():
        if data.get(name, value) != value:
            raise CheckpointError(f"{path}: {name} = {data[name]!r} is not supported")
    for name, other in described.alike.items():
        if data.get(name, data.get(other)) != data.get(other):
            raise CheckpointError(
                f"{path}: {name} = {data[name]!r} and {other} = {data.get(other)!r}: here they are "
                "one number"
            )
    for name in ("hidden_act", "activation_function"):
        if name in data and "activation" in changes:
            if data[name] not in TRANSFORMERS_ACTIVATIONS:
                raise CheckpointError(f"{path}: {name} = {data[name]!r} is not supported")
            changes["activation"] = TRANSFORMERS_ACTIVATIONS[data[name]]
    if described.family == "detr":
        changes |= _backbone_of(data, path)
    kind = str((data.get("architectures") or [""])[0])
    if kind == "DeiTForImageClassification":
        changes["pool"] = "class"
    if kind == f"{described.title}Model":
        changes["head"] = "none"
    return described.family, changes


def _backbone_of(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The backbone of a DETR; older files name it at the top, newer ones in a table of its own."""
    table = data.get("backbone_config") or {}
    name = str(table.get("backbone") or data.get("backbone") or table.get("model_type"))
    found = translate(name)
    if found is None or not found[0].startswith("resnet-"):
        raise CheckpointError(
            f"{path}: backbone = {name!r} is not supported: only timm's resnet18, 34, 50 and 101"
        )
    dilated = bool(data.get("dilation")) or table.get("output_stride") == 16
    fields = {"norm": "frozen", **({"dilated": True} if dilated else {})}
    return {"backbone": found[0], "backbone_fields": fields}


def _backbone_as_theirs(config: Any) -> dict[str, Any]:
    """What `_backbone_of` reads."""
    fields = {**config.backbone_fields}
    dilated = fields.pop("dilated", False)
    layers = config.backbone.removeprefix("resnet-")
    if not layers.isdigit() or fields != {"norm": "frozen"}:
        raise CheckpointError(
            f"backbone = {config.backbone!r} with {config.backbone_fields}: transformers' DETR has "
            "a resnet-18, 34, 50 or 101 with norm = 'frozen'"
        )
    return {
        "dilation": dilated,
        "backbone_config": {
            "model_type": "timm_backbone",
            "backbone": f"resnet{layers}",
            "num_channels": config.channels,
            "features_only": True,
            "use_pretrained_backbone": False,
            "out_indices": [1, 2, 3, 4],
            **({"output_stride": 16} if dilated else {}),
        },
    }
