"""What a checkpoint states about itself: its model, config, class names and preprocessing.

Our own files carry the model's config, the catalog knows its entries, and transformers and timm
save JSON files beside their weights. The shapes of the tensors give the rest: classes, channels,
image size.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.checksums import file_sha256
from vitreous.errors import CheckpointError
from vitreous.models import FAMILIES, canonical, family_of, names, stored_fields
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.weights.catalog import (
    CatalogEntry,
    CatalogPreprocessing,
    entry_of_hash,
    find_entry,
)
from vitreous.weights.hub import resolve
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.io.files import FOLDER_FILES, SHARD_INDEX, config_of, read_tensors
from vitreous.weights.stated import Origin, Stated
from vitreous.weights.timm_files import is_timm, read_timm
from vitreous.weights.transformers_files import read_transformers
from vitreous.weights.transformers_preprocessor import read_json


def own_tensors(model: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of our own safetensors files: the model's, and what came with them."""
    return {**state, **model.extras.tensors()}


def own_metadata(model: Model) -> dict[str, str]:
    """The metadata of our own safetensors files."""
    family = family_of(model)
    return {
        "format": "vitreous",
        "model": model.name or family,
        "family": family,
        "config": json.dumps(stored_fields(model.config)),
        **model.extras.metadata(),
    }


class WeightFile(Checkpoint):
    """A checkpoint, and what it states about itself."""

    @functools.cached_property
    def stated(self) -> Stated:
        return stated_by(self)


def open_weights(
    source: str | Path | Mapping[str, Any] | Checkpoint, inside: str | None = None
) -> WeightFile:
    """Find a checkpoint and read it: a file, a folder, hf:owner/name[@revision], a name from the
    catalog, tensors by name, or what was read already."""
    if isinstance(source, WeightFile):
        return source
    if isinstance(source, Mapping):
        return WeightFile(_as_tensors(source), source="the given state dict")
    if isinstance(source, str | Path):
        path, called = resolve(str(source)), str(source)
        source = replace(read_tensors(path, inside=inside), source=called)
    if not isinstance(source, Checkpoint):
        raise CheckpointError(
            f"expected a path or a state dict, got {type(source).__name__}: pass model.state_dict()"
        )
    return WeightFile(**vars(source))


def _as_tensors(given: Mapping[str, Any]) -> dict[str, Tensor]:
    tensors = {}
    for key, value in given.items():
        try:
            if not isinstance(key, str):
                raise TypeError("its key is no string")
            tensors[key] = value if isinstance(value, Tensor) else torch.tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the given state dict: {key!r} is not a tensor by name: {error}"
            ) from error
    return tensors


def stated_by(checkpoint: Checkpoint) -> Stated:
    """What a checkpoint and the catalog say.

    Our own files carry the model's config; the catalog knows its entries; a folder has a
    config.json, of a run of ours, of transformers or of timm.
    """
    source, path, metadata = checkpoint.called, checkpoint.path, checkpoint.metadata
    found = Stated()
    config_file, entry = config_of(path), None if Path(source).exists() else find_entry(source)
    of_folder = path.name in FOLDER_FILES or config_file.parent != path.parent
    if entry is not None:
        found = _of_entry(entry)
    elif of_folder and config_file.is_file():
        found = _of_folder(config_file)
    if metadata.get("format") == "vitreous":
        try:
            family, config = metadata["family"], json.loads(metadata["config"])
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"{path}: its metadata is damaged: {error!r}") from error
        if family not in FAMILIES or not isinstance(config, dict):
            raise CheckpointError(f"{path}: its metadata names an unknown family {family!r}")
        found = replace(found, model=family, fields=canonical(family, config))
    return found if found.model is not None else replace(found, named=named_by(source, path))


def named_by(source: str, path: Path) -> Origin | None:
    """The model that a file is named after: `vit_base_patch16_clip_224.openai.safetensors`, or the
    hub's `hf:timm/vit_base_patch16_clip_224.openai`."""
    stem = path.name.removesuffix(path.suffix)
    for name in (stem, Path(source).name, *source.removeprefix("hf:").split("@")[:1]):
        known = translate(name) or translate(name.rpartition("/")[2])
        if known is not None and known[0] in names():
            return known
    return None


def _of_entry(entry: CatalogEntry) -> Stated:
    return Stated(
        entry.model,
        entry.changes,
        labels=entry.labels,
        preprocessing=vars(entry.preprocessing),
        licence=entry.licence,
    )


def known_file(stated: Stated, path: Path) -> Stated:
    """What the catalog knows about a file that is one of its own, by the published hash."""
    entry = entry_of_hash(file_sha256(path)) if path.name != SHARD_INDEX else None
    return stated if entry is None else replace(_of_entry(entry), names=stated.names)


def _of_folder(config_file: Path) -> Stated:
    """By a config.json; that of a model that we do not have states no model."""
    config = read_json(config_file)
    if "model_type" in config:
        return read_transformers(config_file, config)
    return read_timm(config) if is_timm(config) else _of_run(config)


def _of_run(config: Mapping[str, Any]) -> Stated:
    """The config.json of a run folder of ours; its weights carry the model."""

    def table(name: str) -> dict[str, Any]:
        return value if isinstance(value := config.get(name), dict) else {}

    names, known = table("labels").get("names"), {f.name for f in fields(CatalogPreprocessing)}
    return Stated(
        names=tuple(map(str, names)) if isinstance(names, list) else (),
        preprocessing={
            name: tuple(value) if isinstance(value, list) else value
            for name, value in table("preprocess").items()
            if name in known
        },
        licence=str(table("origin").get("licence", "")),
    )
