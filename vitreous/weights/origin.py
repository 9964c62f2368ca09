"""Which model a checkpoint is for, as far as it says so itself.

Our own files carry the model's config, the catalog knows its entries, a transformers folder has a
config.json, and the shapes of the tensors tell the rest: classes, channels and a square image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import to_dict
from vitreous.errors import CheckpointError
from vitreous.layers.position import Learned1d
from vitreous.models import FAMILIES, create
from vitreous.models.model import Model
from vitreous.weights.catalog import catalog
from vitreous.weights.files import FOLDER_FILES
from vitreous.weights.fit import divide_rows
from vitreous.weights.matching import axes_of, family_of, find_keys, without_prefix
from vitreous.weights.rules import Format, to_ours

TRANSFORMERS = {
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_dim",
    "image_size": "image_size",
    "patch_size": "patch",
    "num_channels": "channels",
    "layer_norm_eps": "norm_eps",
    "qkv_bias": "qkv_bias",
}
"""Fields of transformers' ViTConfig and DeiTConfig that have the same meaning as ours."""
TRANSFORMERS_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "quick_gelu": "quick-gelu",
    "relu": "relu",
}
HIDDEN = ("heads", "activation", "pool", "qk_scale", "norm", "position", "pad", "norm_eps")
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
    return {name: changes[name] for name in HIDDEN if name in changes}


def infer_changes(
    name: str, changes: dict[str, Any], tensors: Mapping[str, Tensor], rules: Format
) -> dict[str, Any]:
    """`changes`, and what the tensors' shapes say where it is silent."""
    with torch.device("meta"):
        model = create(name, **changes)
    keys, axes = without_prefix(tensors, rules), axes_of(model)
    found = {
        ours: find_keys(rules, ours, keys, axes)
        for ours in ("head.out.weight", "position.table", model.input_weight)
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


def transformers_config(model: Model) -> dict[str, Any]:
    """The config.json with which transformers loads what we export as `huggingface`."""
    config = model.config
    distilled = config.tokens == "class+distillation"
    activations = {ours: theirs for theirs, ours in reversed(TRANSFORMERS_ACTIVATIONS.items())}
    square = {
        name: value[0] if value[0] == value[1] else list(value)
        for name, value in (("image_size", config.image_size), ("patch_size", config.patch))
    }
    fields = {theirs: getattr(config, ours) for theirs, ours in TRANSFORMERS.items()}
    family = "DeiT" if distilled else "ViT"
    head = (
        "ForImageClassificationWithTeacher" if config.pool == "both" else "ForImageClassification"
    )
    return {
        "model_type": family.lower(),
        "architectures": [family + ("Model" if config.head == "none" else head)],
        **fields,
        **square,
        "intermediate_size": config.mlp_width,
        "hidden_act": activations[config.activation],
        "id2label": {str(i): f"LABEL_{i}" for i in range(config.classes)},
        "label2id": {f"LABEL_{i}": i for i in range(config.classes)},
    }


def _from_transformers(path: Path) -> Origin | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable JSON file: {error}") from error
    if not isinstance(data, dict) or data.get("model_type") not in ("vit", "deit"):
        return None
    changes = {ours: data[theirs] for theirs, ours in TRANSFORMERS.items() if theirs in data}
    # What the file leaves out is transformers' default, not ours.
    changes.setdefault("norm_eps", 1e-12)
    activation = data.get("hidden_act", "gelu")
    if activation not in TRANSFORMERS_ACTIVATIONS:
        raise CheckpointError(f"{path}: hidden_act = {activation!r} is not supported")
    changes["activation"] = TRANSFORMERS_ACTIVATIONS[activation]
    kind = str((data.get("architectures") or [""])[0])
    if data["model_type"] == "deit":
        pool = "class" if kind == "DeiTForImageClassification" else "both"
        changes |= {"tokens": "class+distillation", "pool": pool}
    if kind in ("ViTModel", "DeiTModel"):
        changes["head"] = "none"
    return "vit", changes
