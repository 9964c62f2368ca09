"""What a checkpoint states about itself: its model, its config and its preprocessing.

Our own files carry the model's config, the catalog knows its entries, and transformers saves JSON
files beside its weights. The shapes of the tensors give the rest: classes, channels, image size.
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
from vitreous.models import FAMILIES, create
from vitreous.models.infer import FREE, Wanted, infer
from vitreous.models.model import Model
from vitreous.weights.catalog import CatalogPreprocessing, catalog
from vitreous.weights.io.files import FOLDER_FILES
from vitreous.weights.rules.keys import axes_of, family_of, our_shapes, strip_prefix
from vitreous.weights.rules.language import Format
from vitreous.weights.transformers_files import PREPROCESSOR_FILE, read_config, read_preprocessor

HIDDEN_FIELDS = (
    *("heads", "activation", "pool", "qk_scale", "norm", "position", "pad"),
    *("rotary_base", "rotary_coordinates", "rotary_offset"),
    *("rotary_grid", "rotary_order", "rotary_layout"),
    *("placed", "temperature", "norm_eps", "stem_norm_eps", "standardise"),
)
"""Config fields that change the outputs, but neither names nor shapes of parameters."""
Origin = tuple[str, dict[str, Any]]
"""A model's name and the changes to its config."""


def own_metadata(model: Model) -> dict[str, str]:
    """The metadata of our own safetensors files."""
    family = family_of(model)
    config = to_dict(model.config)
    if config.get("head") == "none":
        del config["classes"]  # meaningless without a head
    return {
        "format": "vitreous",
        "model": model.name or family,
        "family": family,
        "config": json.dumps(config),
    }


def origin_of(source: str, path: Path, metadata: Mapping[str, str]) -> Origin | None:
    """The model that the checkpoint states it is for, or None."""
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
        return read_config(config_file)
    return None


def stated_fields(source: str, path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The hidden fields that the checkpoint states."""
    origin = origin_of(source, path, metadata)
    changes = origin[1] if origin else {}
    stated = {name: changes[name] for name in HIDDEN_FIELDS if name in changes}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()}


def stated_preprocessing(source: str, path: Path) -> CatalogPreprocessing | None:
    """The preprocessing for a checkpoint at `path` that the user called `source`, or None."""
    if source in catalog():
        return catalog()[source].preprocessing
    file = (path if path.is_dir() else path.parent) / PREPROCESSOR_FILE
    return read_preprocessor(file) if file.is_file() else None


def infer_changes(
    name: str, changes: dict[str, Any], tensors: Mapping[str, Tensor], rules: Format
) -> dict[str, Any]:
    """`changes`, completed with classes, channels and image size from the tensors' shapes."""
    with torch.device("meta"):
        model = create(name, **changes)
    found = our_shapes(rules, model.state_dict(), strip_prefix(tensors, rules), axes_of(model))
    shapes = {name: tuple(shape) for name, shape in found.items() if shape}
    ways = infer(shapes, axes_of(model), Wanted(name, changes, search=False))
    shown = [{k: v for k, v in way.changes.items() if k in FREE} for way in ways]
    return {**(shown[0] if shown and shown.count(shown[0]) == len(shown) else {}), **changes}
