"""Convert weights between any two known formats, verified by reading the written file back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vitreous.config import Size, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import build, create
from vitreous.models.model import Model
from vitreous.weights.destination import (
    CONFIG_FILE,
    METADATA,
    WEIGHTS_FILE,
    check_target,
    config_of,
    mark,
    written_aside,
)
from vitreous.weights.hub import resolve
from vitreous.weights.io.files import Checkpoint, read_tensors, write_tensors
from vitreous.weights.origin import HIDDEN_FIELDS, infer_changes, origin_of, own_metadata
from vitreous.weights.rules.exporting import export_weights
from vitreous.weights.rules.formats import OWN, find_format
from vitreous.weights.rules.importing import import_weights
from vitreous.weights.rules.keys import detect_format, family_of
from vitreous.weights.rules.report import ImportReport
from vitreous.weights.transformers_files import PREPROCESSOR_FILE, make_config

FILE_TYPES = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".pth": "pth",
    ".pt": "pth",
    ".bin": "pth",
    ".pdparams": "pdparams",
}
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
    reinit: Iterable[str] = (),
    drop: Iterable[str] = (),
    resample: str | None = None,
    source_grid: Size | None = None,
    adapt_channels: bool = False,
    inside: str | None = None,
    force: bool = False,
) -> Conversion:
    """Read `source`, write `target`, read that back and compare the outputs of both.

    `target` is a file whose suffix decides its type (.safetensors, .npz, .pth, .pdparams), or for
    huggingface also a folder for `from_pretrained`. The source states its model, unless `model` and
    `changes` are given; `force` replaces files that `convert` did not write. The other
    arguments are those of `import_weights`.
    """
    target = Path(target)
    kind = _file_type(target, to_format)
    if isinstance(source, Checkpoint):
        checkpoint, source = source, source.path
    else:
        checkpoint = read_tensors(resolve(str(source)), inside=inside)
    given = changes or {}
    name, fields = _origin(str(source), checkpoint.path, checkpoint.metadata, model, given)
    keep = {*given, "norm_eps"} & {*HIDDEN_FIELDS} & fields.keys()
    with torch.device("meta"):
        blank = create(name, **fields)
    if from_format is None:
        rules = detect_format(blank, checkpoint.tensors, str(source))
    else:
        rules = find_format(from_format, family_of(blank))
    find_format(to_format, family_of(blank))  # fail early if to_format is misspelt
    fields = infer_changes(name, fields, checkpoint.tensors, rules)

    first = create(name, **fields).eval()
    if checkpoint.metadata.get("format") == "vitreous" and model is None:
        first.name = checkpoint.metadata.get("model", first.name)
    report = import_weights(
        first,
        checkpoint,
        rules.name,
        reinit=reinit,
        drop=drop,
        resample=resample,
        source_grid=source_grid,
        adapt_channels=adapt_channels,
        # The caller and the source override the defaults of the source's library.
        keep=keep,
    )
    report.source = str(source)
    tensors = export_weights(first, to_format)
    check_target(target, checkpoint.path, force)
    stated = _config_json(checkpoint.path)
    file, difference = _write(target, kind, tensors, first, to_format, _class_names(stated))
    if target.suffix:
        notes = _other_defaults(first, to_format)
    else:
        notes = _preprocessing_note(stated, checkpoint.path)
    return Conversion(
        first.name, first.config, report, file, str(to_format), len(tensors), difference, notes
    )


def _config_json(path: Path) -> dict[str, Any]:
    """The config.json beside the weights, ours or transformers', or an empty dict."""
    try:
        values = json.loads(config_of(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _class_names(stated: dict[str, Any]) -> list[str]:
    """In the model's order; empty if they are unknown."""
    ours, theirs = stated.get("labels"), stated.get("id2label")
    if isinstance(ours, dict):
        return [str(name) for name in ours.get("names", ())]
    if isinstance(theirs, dict) and {*theirs} == {str(number) for number in range(len(theirs))}:
        return [str(theirs[str(number)]) for number in range(len(theirs))]
    return []


def _preprocessing_note(stated: dict[str, Any], path: Path) -> tuple[str, ...]:
    """We do not write the preprocessing; report what the source states about it."""
    known, file = stated.get("preprocess"), path.with_name(PREPROCESSOR_FILE)
    if not isinstance(known, dict):
        return (f"{PREPROCESSOR_FILE} is not written: copy {file}",) if file.is_file() else ()
    fields = [f"{name} {known[name]}" for name in PREPROCESSING if known.get(name) is not None]
    return (f"{PREPROCESSOR_FILE} is not written; the preprocessing is {', '.join(fields)}",)


def _file_type(target: Path, to_format: str | Path) -> str:
    if not target.suffix and to_format in ("huggingface", "huggingface-v4"):
        return "safetensors"
    if target.suffix not in FILE_TYPES:
        raise ConfigError(
            f"{target}: unknown suffix: use {', '.join(FILE_TYPES)} (or a folder, for huggingface)"
        )
    kind = FILE_TYPES[target.suffix]
    if str(to_format) == OWN and kind != "safetensors":
        raise ConfigError(f"{target}: our own format is written to .safetensors files only")
    return kind


def _origin(
    source: str, path: Path, metadata: dict[str, str], model: str | None, changes: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The model's name and config fields: the caller's, then those that the source states."""
    origin = origin_of(source, path, metadata)
    if model is not None:
        stated = {} if origin is None else origin[1]
        return model, {**{k: v for k, v in stated.items() if k in HIDDEN_FIELDS}, **changes}
    if origin is None:
        raise ConfigError(
            f"{source} does not state its model: name it, like --model vit-b/16 ('vitreous models' "
            "lists them)"
        )
    return origin[0], {**origin[1], **changes}


def _write(
    target: Path,
    kind: str,
    tensors: dict[str, torch.Tensor],
    model: Model,
    to_format: str | Path,
    names: list[str],
) -> tuple[Path, float]:
    """Write aside, read that back, and move it to its place only if it is correct."""
    metadata = METADATA if kind == "safetensors" else None
    if str(to_format) == OWN:
        metadata = own_metadata(model)
    wrap = find_format(to_format, family_of(model)).wrap if kind == "pth" else None
    file = target if target.suffix else target / WEIGHTS_FILE
    config = "" if target.suffix else json.dumps(make_config(model, names), indent=2) + "\n"
    with written_aside(target) as aside:
        if config:
            (aside / CONFIG_FILE).write_text(config, encoding="utf-8")
        write_tensors(aside / file.name, tensors, kind, metadata, wrap=wrap)
        mark(aside / file.name, kind)
        difference = _verify(model, aside / file.name, to_format, file)
    return file, difference


@torch.no_grad()
def _verify(model: Model, written: Path, to_format: str | Path, file: Path) -> float:
    """Read the file into a second model, and compare the outputs of both for a random image.

    The tokens after the last block are compared too: the head's weights may all be zero.
    """
    second = build(family_of(model), model.config).eval()
    second.name = model.name
    import_weights(second, written, to_format, keep=HIDDEN_FIELDS)
    generator = torch.Generator().manual_seed(0)
    size = pair("image_size", model.config.image_size)
    image = torch.randn(1, model.config.channels, *size, generator=generator)
    expected, got = (_outputs(each, image) for each in (model, second))
    difference = ((got - expected).norm() / expected.norm()).item()
    if not difference <= TOLERANCE:  # also fails for NaN
        raise CheckpointError(
            f"{file}: read back, it gives other outputs (relative difference {difference:.1e}); it "
            "was deleted. This is a bug in the rules: please report it"
        )
    return difference


def _outputs(model: Model, image: torch.Tensor) -> torch.Tensor:
    features = model.features(image)
    output = features.output
    outputs = output if isinstance(output, tuple) else (output,)
    return torch.cat([part.flatten() for part in (features.tokens[-1], *outputs)])


def _other_defaults(model: Model, to_format: str | Path) -> tuple[str, ...]:
    """Config values that a weight file does not store and the target's library sets otherwise."""
    numbers = find_format(to_format, family_of(model)).numbers
    return tuple(
        f"this model has {name} = {getattr(model.config, name)}; {to_format} defaults to {value}"
        for name, value in numbers.items()
        if getattr(model.config, name) != value
    )
