"""What a checkpoint states about itself: its model, config, class names and preprocessing.

Our own files carry the model's config, the catalog knows its entries, and transformers and timm
save JSON files beside their weights. The shapes of the tensors give the rest: classes, channels,
image size.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.checksums import file_sha256
from vitreous.config import HIDDEN, PARTLY_HIDDEN, marked
from vitreous.errors import CheckpointError
from vitreous.models import FAMILIES, canonical, configure, family_of, names, stored_fields
from vitreous.models.composite import CompositeConfig
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.weights.catalog import (
    CatalogEntry,
    CatalogPreprocessing,
    entry_of_hash,
    find_entry,
)
from vitreous.weights.hub import resolve
from vitreous.weights.io.files import (
    FOLDER_FILES,
    SHARD_INDEX,
    Checkpoint,
    config_of,
    read_tensors,
)
from vitreous.weights.timm_files import (
    is_timm,
    read_timm_labels,
    read_timm_licence,
    read_timm_model,
    read_timm_preprocessing,
)
from vitreous.weights.transformers_files import (
    PREPROCESSOR_FILES,
    read_config,
    read_hidden,
    read_json,
    read_labels,
    read_preprocessor,
    read_whole,
    takes_any_size,
)

HIDDEN_FIELDS = tuple(
    dict.fromkeys(
        name
        for family in FAMILIES.values()
        for name in marked(family.config, HIDDEN, PARTLY_HIDDEN)
        if "layers" not in name
    )
)
"""Config fields that change the outputs, but neither names nor shapes of parameters."""
RESAMPLED = (
    "its positions are for another image size than its preprocessing: they are resampled at run "
    "time, with antialiasing, which transformers leaves out (dynamic_size)"
)
Origin = tuple[str, dict[str, Any]]
"""A model's name and the changes to its config."""


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


@dataclass(frozen=True)
class Stated:
    """What is known about a checkpoint besides its tensors; empty where nothing says it."""

    model: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Of the classes, in the model's order."""
    labels: str = ""
    """The name of a set of classes (imagenet-1k), where it stands for their names."""
    several: bool = False
    """Whether an image may have several of the classes."""
    preprocessing: dict[str, Any] = field(default_factory=dict)
    """Fields of a `CatalogPreprocessing`."""
    licence: str = ""
    kind: str = ""
    """What the source calls its model, where it is none of ours."""
    format: str = ""
    """Of the library whose folder it is."""
    notes: tuple[str, ...] = ()
    """What was taken otherwise than it is stated."""
    named: Origin | None = None
    """The model of another library that the file is called by, where nothing else states it: its
    library's values of what no tensor shows."""
    whole: Origin | None = None
    """The model around `model` that the source has too, for whoever asks for it."""

    @property
    def origin(self) -> Origin | None:
        return None if self.model is None else (self.model, dict(self.fields))

    @property
    def hidden(self) -> dict[str, Any]:
        """The stated fields that no tensor shows."""
        stated = {name: self.fields[name] for name in HIDDEN_FIELDS if name in self.fields}
        return {name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()}

    @property
    def inner_epsilon(self) -> float | None:
        """Of the norms of a model inside, where the source states that."""
        if self.model is None or FAMILIES[configure(self.model)[0]].part is None:
            return None
        return core_epsilon(configure(self.model, **self.fields)[1])


def core_epsilon(config: CompositeConfig) -> float:
    """Of the norms of the model inside one with this config."""
    usual = configure(getattr(config, config.part))[1]
    return float(config.core_fields().get("norm_eps", usual.norm_eps))


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
        given = "the given state dict"
        return WeightFile(_as_tensors(source), {}, Path(), source=given)
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
        return _of_transformers(config_file, config)
    if is_timm(config):
        origin, (names, labels) = read_timm_model(config), read_timm_labels(config)
        known, licence = read_timm_preprocessing(config), read_timm_licence(config)
        model, values = origin or (None, {})
        kind = "" if origin else f"timm's {config['architecture']}"
        return Stated(model, values, names, labels, False, known, licence, kind, "timm")
    return _of_run(config)


def _of_transformers(config_file: Path, config: dict[str, Any]) -> Stated:
    origin = read_config(config, config_file)
    files = [config_file.with_name(name) for name in PREPROCESSOR_FILES]
    file = next((each for each in files if each.is_file()), None)
    known, notes = read_preprocessor(file) if file else ({}, ())
    model, values = origin or (None, read_hidden(config))
    if takes_any_size(config) and known.get("image_size") not in (None, values.get("image_size")):
        values = {**values, "dynamic_size": True}
        notes = (*notes, RESAMPLED)
    return Stated(
        model,
        values,
        read_labels(config),
        several=config.get("problem_type") == "multi_label_classification",
        preprocessing=known,
        kind="" if origin else f"transformers' {config['model_type']}",
        format="huggingface",
        notes=notes,
        whole=None if origin is None else read_whole(config, origin[1]),
    )


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
