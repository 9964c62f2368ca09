"""Convert weights between any two known formats, verified by reading the written file back."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import safetensors
import torch

from vitreous.atomic_write import making_folder, renaming_files, write_text
from vitreous.config import flat, kind_of
from vitreous.errors import CheckpointError, ConfigError, VitreousError, advice
from vitreous.layers.tap import tap
from vitreous.models import build, family_of
from vitreous.models.model import Model
from vitreous.models.old_fields import upgraded_fields
from vitreous.models.two_towers import TwoTowers
from vitreous.weights.adopt import find
from vitreous.weights.importing import FitOptions, import_weights, load
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.io.files import FOLDER_FILES, SHARD_INDEX, config_of, write_tensors
from vitreous.weights.origin import own_metadata, own_tensors
from vitreous.weights.rules.exporting import export_weights
from vitreous.weights.rules.formats import OWN, find_format
from vitreous.weights.rules.report import ImportReport
from vitreous.weights.stated import HIDDEN_FIELDS, Stated
from vitreous.weights.timm_files import make_timm_config
from vitreous.weights.towers import reads_texts, rules_of
from vitreous.weights.transformers_files import make_config, reads_whole
from vitreous.weights.transformers_preprocessor import PREPROCESSOR_FILE, make_preprocessor

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
METADATA = {"format": "pt", "written_by": "vitreous convert"}
"""Of our safetensors files in other libraries' formats."""
FILE_TYPES = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".pth": "pth",
    ".pt": "pth",
    ".bin": "pth",
    ".pdparams": "pdparams",
}
FOLDER_FORMATS = ("huggingface", "huggingface-v4", "timm")
"""Whose libraries load a folder, with the JSON files that describe the weights."""
TOLERANCE = 1e-6
PREPROCESSING = ("image_size", "resize", "longest", "crop", "interpolation", "mean", "std")
"""Fields of a run's preprocessing that another library needs."""


@dataclass(frozen=True)
class Conversion:
    """What was converted, and how closely the written weights agree with the source."""

    model: str
    config: Any
    imported: ImportReport
    written: Path
    format: str
    tensors: int
    difference: float
    """Relative difference of the outputs; 0 if they are bit-identical."""
    notes: tuple[str, ...] = ()


def convert(
    source: str | Path | Checkpoint,
    target: str | Path,
    *,
    from_format: str | Path | None = None,
    to_format: str | Path = OWN,
    model: str | None = None,
    changes: dict[str, Any] | None = None,
    inside: str | None = None,
    force: bool = False,
    **fit: Unpack[FitOptions],
) -> Conversion:
    """Read `source`, write `target`, read that back and compare the outputs of both.

    `target` is a file whose suffix decides its type (.safetensors, .npz, .pth, .pdparams), or for
    huggingface and timm also a folder that their libraries load, with class names and preprocessing
    as far as the source states them. The source states its model, unless `model` and `changes` are
    given; `force` replaces files that `convert` did not write. The other arguments are those of
    `import_weights`.
    """
    target = Path(target)
    kind = _file_type(target, to_format)
    asked: dict[str, Any] = {"format": from_format, "model": model, "changes": changes}
    found, told = find(source, inside=inside, **asked), []
    if isinstance(found.blank, TwoTowers) and not reads_texts(to_format):
        found = find(found.file, part="image", **asked)
        told = [f"{to_format} has no text towers: the image tower alone is written"]
    rules_of(found.blank, to_format)  # fails early if it is misspelt
    first, report = load(found, **fit)
    tensors = export_weights(first, to_format)
    check_target(target, found.file.path, force)
    described = {} if target.suffix else _described(first, str(to_format), found.stated)
    file, difference = _write(target, kind, tensors, first, to_format, described)
    notes = told + _other_defaults(first, to_format, described)
    if described:
        notes += _left_out(found.stated, described)
    return Conversion(
        first.name, first.config, report, file, str(to_format), len(tensors), difference, (*notes,)
    )


def _described(model: Model, to_format: str, stated: Stated) -> dict[str, dict[str, Any]]:
    """The JSON files of a folder by name: model, class names and preprocessing, as far as the
    source states them."""
    known = stated.preprocessing
    known = known if {"crop", "interpolation", "mean", "std"} <= known.keys() else {}
    if to_format == "timm":
        return {CONFIG_FILE: make_timm_config(model, stated.names, known, stated.licence)}
    preprocessor = make_preprocessor(model, known) if known else None
    files = {CONFIG_FILE: make_config(model, stated.names)}
    return files | ({PREPROCESSOR_FILE: preprocessor} if preprocessor else {})


def _left_out(stated: Stated, described: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What the source has and the folder cannot say."""
    known, config = stated.preprocessing, described[CONFIG_FILE]
    told = PREPROCESSOR_FILE in described or "mean" in config.get("pretrained_cfg", {})
    if not told:
        fields = [f"{name} {known[name]}" for name in PREPROCESSING if known.get(name) is not None]
        what = f"it is {', '.join(fields)}" if fields else "the source does not state it"
        yield f"the preprocessing is not written: {what}"
    elif known.get("antialias") is False:
        yield "antialias = False is not written: resized images differ slightly"
    if not stated.names and stated.labels:
        yield f"the names of {stated.labels} are not written: import the weights first"


def _file_type(target: Path, to_format: str | Path) -> str:
    if not target.suffix and to_format in FOLDER_FORMATS:
        return "safetensors"
    if target.suffix not in FILE_TYPES:
        raise ConfigError(
            f"{target}: unknown suffix: use {', '.join(FILE_TYPES)} (or a folder, for huggingface "
            "and timm)"
        )
    kind = FILE_TYPES[target.suffix]
    if str(to_format) == OWN and kind != "safetensors":
        raise ConfigError(f"{target}: our own format is written to .safetensors files only")
    return kind


def _write(
    target: Path,
    kind: str,
    tensors: dict[str, torch.Tensor],
    model: Model,
    to_format: str | Path,
    described: dict[str, dict[str, Any]],
) -> tuple[Path, float]:
    """Write aside, read that back, and move it to its place only if it is correct."""
    metadata = METADATA if kind == "safetensors" else None
    if str(to_format) == OWN:
        metadata, tensors = own_metadata(model), own_tensors(model, tensors)
    wrap = rules_of(model, to_format)[0].wrap if kind == "pth" else None
    file = target if target.suffix else target / WEIGHTS_FILE
    with written_aside(target) as aside:
        for name, values in described.items():
            write_text(aside / name, json.dumps(values, indent=2) + "\n")
        write_tensors(aside / file.name, tensors, kind, metadata, wrap=wrap)
        if described:
            difference = _verify(model, _opened(model, aside, file), file)
        else:
            difference = _verify(model, _read_back(model, aside / file.name, to_format), file)
    return file, difference


def _opened(model: Model, folder: Path, file: Path) -> Model:
    """The model that a folder is by its config.json, as its library would build it."""
    whole = family_of(model) if reads_whole(family_of(model)) else None
    config = model.config
    # A model without a head gives its tokens: what pools them is not the folder's to say.
    bare = (
        {"pool": config.pool}
        if kind_of(config, "head") == "none" and kind_of(config, "pool")
        else {}
    )
    try:
        return load(find(folder, model=whole, changes=bare))[0]
    except VitreousError as error:
        raise CheckpointError(
            f"{file}: its {CONFIG_FILE} describes another model, so that its library would refuse "
            f"the weights; nothing was written. This is a bug: please report it with this: {error}"
        ) from error


def _read_back(model: Model, written: Path, to_format: str | Path) -> Model:
    """A second model with the written weights; a file states no config."""
    second = build(family_of(model), model.config).eval()
    second.name = model.name
    import_weights(second, written, to_format, keep=HIDDEN_FIELDS)
    return second


@torch.no_grad()
def _verify(model: Model, second: Model, file: Path) -> float:
    """Compare the outputs of what was read back with the model's, for a random image, and a text.

    The tokens after the last block are compared too: the head's weights may all be zero.
    """
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(model.example()["image"].shape, generator=generator)]
    if isinstance(model, TwoTowers):
        words, length = model.text.config.vocabulary, model.text.config.length
        given.append(torch.randint(words, (1, length), generator=generator))
    expected, got = (_outputs(each, *given) for each in (model, second))
    difference = ((got - expected).norm() / expected.norm()).item()
    if not difference <= TOLERANCE:  # also fails for NaN
        raise CheckpointError(
            f"{file}: read back, it gives other outputs (relative difference {difference:.1e}); it "
            "was deleted. This is a bug in the rules: please report it"
        )
    return difference


def _outputs(model: Model, *given: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    last_block = model.core.layers()[-2][0]
    with tap({"last": last_block}, lambda _, tokens: found.append(tokens)):
        output = model(*given)
    outputs = output if isinstance(output, tuple) else (output,)
    found += [part for part in outputs if isinstance(part, torch.Tensor)]
    return torch.cat([part.flatten() for part in found])


def _other_defaults(
    model: Model, to_format: str | Path, described: dict[str, dict[str, Any]]
) -> list[str]:
    """What a weight file does not store, and the target's library sets otherwise."""
    if described:
        return []  # a folder that cannot state a number is refused
    if isinstance(model, TwoTowers):
        towers = (_other_defaults(each, to_format, described) for each in (model.core, model.text))
        return list(dict.fromkeys(itertools.chain.from_iterable(towers)))
    rules, have = find_format(to_format, family_of(model)), flat(model.config)
    return [
        f"this model has {name} = {have.get(name)}; {to_format} defaults to {value}"
        for name, value in upgraded_fields(type(model.config), rules.numbers).items()
        if have.get(name) != value
    ] + rules.advice_for(model.config)


# ---- where it is written


def check_target(target: Path, source: Path, force: bool = False) -> None:
    """Refuse to replace the source, or what we did not write unless `force`."""
    folder = target if _is_folder(target) else target.parent
    files = [folder / CONFIG_FILE, folder / WEIGHTS_FILE] if _is_folder(target) else [target]
    described = config_of(source)
    if any(_is_part_of(file, source) or _same(file, described) for file in files):
        raise ConfigError(
            f"{target}: this would replace what is converted, {source}: choose another DST"
        )
    if force:
        return
    if target.name in FOLDER_FILES and (folder / CONFIG_FILE).exists():
        raise ConfigError(
            f"{target}: these would become the weights of {folder}, which has a {CONFIG_FILE} for "
            f"others: choose another DST{advice(', or pass ', force=True)}"
        )
    # The config of a folder is ours if its weights are, and if they are not those of a run.
    there = _metadata(files[-1])
    ours = there == METADATA or (there.get("format") == OWN and not _is_folder(target))
    existing = [file for file in files if os.path.lexists(file)]
    if existing and not ours:
        known = existing[0].suffix not in (".npz", ".pth", ".pdparams")
        whose = ", and 'vitreous convert' did not write it" if known else ""
        raise ConfigError(
            f"{existing[0]} exists{whose}: choose another DST"
            f"{advice(', or pass ', ' to replace it', force=True)}"
        )


@contextmanager
def written_aside(target: Path, *, folder: bool | None = None) -> Iterator[Path]:
    """A temporary folder, whose files are moved to their places if nothing is raised.

    They are those of the folder `target`, or the file `target` itself; without a suffix it is a
    folder, unless the caller knows.
    """
    place = target if (_is_folder(target) if folder is None else folder) else target.parent
    if place != target and not place.is_dir():
        raise CheckpointError(f"{target}: the folder {place} does not exist")
    # Weights before the config that describes them: without it they are not used.
    with (
        making_folder(place),
        renaming_files(place, target, lambda file: file.name == CONFIG_FILE) as aside,
    ):
        yield aside


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError):
        return {}


def _is_folder(target: Path) -> bool:
    return not target.suffix


def _is_part_of(file: Path, source: Path) -> bool:
    """Whether the file is the source, or one of those that a source's index lists."""
    sharded = source.name == SHARD_INDEX and file.resolve().parent == source.resolve().parent
    return _same(file, source) or (sharded and file.exists())


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
