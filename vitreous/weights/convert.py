"""From any known format to any other, verified: what was written is read back and compared."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vitreous.config import Size, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import build, create
from vitreous.models.model import Model
from vitreous.weights.hub import resolve
from vitreous.weights.io.files import Checkpoint, read_tensors, write_tensors
from vitreous.weights.origin import (
    HIDDEN,
    infer_changes,
    origin_of,
    own_metadata,
    transformers_config,
)
from vitreous.weights.processor import FILE as PROCESSOR
from vitreous.weights.rules.exporting import export_weights
from vitreous.weights.rules.formats import OWN, find_format
from vitreous.weights.rules.importing import import_weights
from vitreous.weights.rules.matching import detect_format, family_of
from vitreous.weights.rules.report import ImportReport

KINDS = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".pth": "pth",
    ".pt": "pth",
    ".bin": "pth",
    ".pdparams": "pdparams",
}
TOLERANCE = 1e-6
PREPARING = ("image_size", "resize", "longest", "crop", "interpolation", "mean", "std")
"""What a run's config.json says of the images that others must know."""


@dataclass(frozen=True)
class Conversion:
    """What was done, and how well what was written agrees with what was read."""

    model: str
    config: Any
    imported: ImportReport
    written: Path
    format: str
    tensors: int
    difference: float
    """Norm of the difference of the outputs over their norm; 0 when they are the same bits."""
    notes: tuple[str, ...] = ()


def convert(
    source: str | Path,
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
) -> Conversion:
    """Read `source`, write `target`, read that back and compare the outputs of both.

    `target` is a file whose ending says its kind (.safetensors, .npz, .pth, .pdparams), or for
    huggingface also a folder that `from_pretrained` takes. The model is what the source says it is,
    unless `model` and `changes` say otherwise; the other arguments are those of `import_weights`.
    """
    target = Path(target)
    kind = _kind(target, to_format)
    path = resolve(str(source))
    checkpoint = read_tensors(path, inside=inside)
    given = changes or {}
    name, fields = _origin(str(source), checkpoint.path, checkpoint.metadata, model, given)
    keep = {*given, "norm_eps"} & {*HIDDEN} & fields.keys()
    with torch.device("meta"):
        blank = create(name, **fields)
    if from_format is None:
        rules = detect_format(blank, checkpoint.tensors, str(source))
    else:
        rules = find_format(from_format, family_of(blank))
    find_format(to_format, family_of(blank))  # a misspelt target is said before the work
    fields = infer_changes(name, fields, checkpoint.tensors, rules)

    _refuse_non_finite(checkpoint)
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
        # What the source or the caller says goes before what its library usually does.
        keep=keep,
    )
    report.source = str(source)
    tensors = export_weights(first, to_format)
    stated = _beside(checkpoint.path)
    file, difference = _write(target, kind, tensors, first, to_format, _names(stated))
    advice = _advice(first, to_format) if target.suffix else _of_preparing(stated, checkpoint.path)
    return Conversion(
        first.name,
        first.config,
        report,
        file,
        str(to_format),
        len(tensors),
        difference,
        advice,
    )


def _beside(path: Path) -> dict[str, Any]:
    """What `config.json` beside the weights says, ours or transformers'."""
    try:
        values = json.loads(path.with_name("config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _names(stated: dict[str, Any]) -> list[str]:
    """Of the classes, in the model's order; none where nobody says them."""
    ours, theirs = stated.get("labels"), stated.get("id2label")
    if isinstance(ours, dict):
        return [str(name) for name in ours.get("names", ())]
    if isinstance(theirs, dict) and {*theirs} == {str(number) for number in range(len(theirs))}:
        return [str(theirs[str(number)]) for number in range(len(theirs))]
    return []


def _of_preparing(stated: dict[str, Any], path: Path) -> tuple[str, ...]:
    """How images are prepared is not written; it is told, where the source says it."""
    known, file = stated.get("preprocess"), path.with_name(PROCESSOR)
    if not isinstance(known, dict):
        return (f"{PROCESSOR} is not written: copy {file}",) if file.is_file() else ()
    said = ", ".join(f"{name} {known[name]}" for name in PREPARING if known.get(name) is not None)
    return (f"{PROCESSOR} is not written; images were prepared with {said}",)


def _kind(target: Path, to_format: str | Path) -> str:
    if not target.suffix and to_format in ("huggingface", "huggingface-v4"):
        return "safetensors"
    if target.suffix not in KINDS:
        raise ConfigError(
            f"{target}: the ending says what kind of file to write: use {', '.join(KINDS)}"
            " (or, for huggingface, the name of a folder)"
        )
    kind = KINDS[target.suffix]
    if str(to_format) == OWN and kind != "safetensors":
        raise ConfigError(f"{target}: our own format is kept in .safetensors files")
    return kind


def _origin(
    source: str, path: Path, metadata: dict[str, str], model: str | None, changes: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The model's name and fields: the caller's word, then what the source says of itself."""
    origin = origin_of(source, path, metadata)
    if model is not None:
        stated = {} if origin is None else origin[1]
        return model, {**{k: v for k, v in stated.items() if k in HIDDEN}, **changes}
    if origin is None:
        raise ConfigError(
            f"{source} does not say which model it is for: name it, like --model vit-b/16 "
            "('vitreous models' lists them)"
        )
    return origin[0], {**origin[1], **changes}


def _refuse_non_finite(checkpoint: Checkpoint) -> None:
    for key, tensor in checkpoint.tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{checkpoint.path}: {key} has values that are not finite: the training that made "
                "it went wrong, or the file is damaged"
            )


def _write(
    target: Path,
    kind: str,
    tensors: dict[str, torch.Tensor],
    model: Model,
    to_format: str | Path,
    names: list[str],
) -> tuple[Path, float]:
    """Write under another name, read that back, and give it its name only if all is well."""
    metadata = {"format": "pt"} if kind == "safetensors" else None
    if str(to_format) == OWN:
        metadata = own_metadata(model)
    wrap = find_format(to_format, family_of(model)).wrap if kind == "pth" else None
    file = target if target.suffix else target / "model.safetensors"
    try:
        if not target.suffix:
            config = json.dumps(transformers_config(model, names), indent=2)
            target.mkdir(parents=True, exist_ok=True)
            (target / "config.json").write_text(config + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be written: {error}") from error
    if not file.parent.is_dir():
        raise CheckpointError(f"{target}: the folder {file.parent} does not exist")
    unverified = file.with_name(f".{file.name}.unverified")
    try:
        write_tensors(unverified, tensors, kind, metadata, wrap=wrap)
        difference = _verify(model, unverified, to_format, file)
        os.replace(unverified, file)
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            unverified.unlink(missing_ok=True)
    return file, difference


@torch.no_grad()
def _verify(model: Model, written: Path, to_format: str | Path, file: Path) -> float:
    """Read the file into a second model, and compare what the two make of a picture.

    The tokens behind the last block are compared too: a class layer may be all zero.
    """
    second = build(family_of(model), model.config).eval()
    second.name = model.name
    import_weights(second, written, to_format, keep=HIDDEN)
    generator = torch.Generator().manual_seed(0)
    size = pair("image_size", model.config.image_size)
    image = torch.randn(1, model.config.channels, *size, generator=generator)
    wanted, got = (_everything(one, image) for one in (model, second))
    difference = ((got - wanted).norm() / wanted.norm()).item()
    if not difference <= TOLERANCE:  # not a number is a failure too
        raise CheckpointError(
            f"{file}: read back, it gives other outputs (relative difference {difference:.1e}); "
            "it was not kept. This is a fault of the rules: please report it"
        )
    return difference


def _everything(model: Model, image: torch.Tensor) -> torch.Tensor:
    features = model.features(image)
    output = features.output
    outputs = output if isinstance(output, tuple) else (output,)
    return torch.cat([part.flatten() for part in (features.tokens[-1], *outputs)])


def _advice(model: Model, to_format: str | Path) -> tuple[str, ...]:
    """Numbers that no weight file carries, where the target's library has others by default."""
    numbers = find_format(to_format, family_of(model)).numbers
    return tuple(
        f"this model computes with {name} = {getattr(model.config, name)}, models of "
        f"{to_format} with {value} unless they are told"
        for name, value in numbers.items()
        if getattr(model.config, name) != value
    )
