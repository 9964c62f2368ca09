"""Import weights from other libraries: completely, or not at all with one message that says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from vitreous.config import Size, flat, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import create, family_of
from vitreous.models.model import Model
from vitreous.models.old_fields import today
from vitreous.weights.identify import gathered_for
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.origin import open_weights
from vitreous.weights.reading import Reading
from vitreous.weights.rules.formats import check_names
from vitreous.weights.rules.keys import title
from vitreous.weights.rules.report import ImportReport
from vitreous.weights.stated import HIDDEN_FIELDS
from vitreous.weights.transfer import Transfer


class FitOptions(TypedDict, total=False):
    """The options of `import_weights` that fit weights to a model."""

    reinit: Iterable[str]
    drop: Iterable[str]
    resample: str | None
    source_grid: Size | None
    adapt_channels: bool


def import_weights(
    model: Model,
    source: str | Path | Mapping[str, Any] | Checkpoint,
    format: str | Path | None = None,
    *,
    reinit: Iterable[str] = (),
    drop: Iterable[str] = (),
    resample: str | None = None,
    source_grid: Size | None = None,
    adapt_channels: bool = False,
    keep: Iterable[str] = (),
    inside: str | None = None,
) -> ImportReport:
    """Load every tensor of `source` into `model`, or raise and leave the model unchanged.

    source: a file, a folder, a hub reference (`hf:owner/name[@revision]`), or tensors by name.
    format: google, timm, huggingface, torchvision, vit_pytorch, deit, official, paddle, vitreous,
        or the path of a .toml file with rules; None detects the format.
    reinit: patterns of our parameters to initialise anew, whatever the source has for them; for a
        model without a head, "head.*" ignores the source's.
    drop: patterns of the source's keys to ignore.
    resample: "bicubic" or "bilinear": resize position embeddings to the model's grid, and relative
        position biases to its window.
    source_grid: the grid of the source's positions, or its window, if it is not square.
    adapt_channels: adapt the first layer to the model's number of channels.
    keep: config fields that stay although the checkpoint or its library has other values:
        "norm_eps", "heads", "activation", "pool" …
    inside: the entry to take from a training checkpoint ("model_ema").
    """
    file, reinit = open_weights(source, inside), _patterns("reinit", reinit)
    gathered = gathered_for(model, file, format, reinit)
    reading = Reading(file, file.stated, gathered, title(model), {}, model)
    grid, adapt = source_grid, adapt_channels
    return _load(model, reading, keep, reinit, drop, resample, grid, adapt)


def load(reading: Reading, **fit: Unpack[FitOptions]) -> tuple[Model, ImportReport]:
    """The model of a reading with its weights, in eval mode; the options are those of
    `import_weights`."""
    model = create(reading.model, **reading.fields).eval()
    model.name = reading.name or model.name
    report = _load(model, reading, reading.keep, **fit)
    report.notes += [f"{reading.source} may also be {other}" for other in reading.also]
    return model, report


def _patterns(option: str, given: Any) -> list[str]:
    """A list; a single string would be read letter by letter."""
    if isinstance(given, str):
        raise ConfigError(f"{option} = {given!r}: expected a list of names, like [{given!r}]")
    return list(given)


def _load(
    model: Model,
    reading: Reading,
    keep: Iterable[str],
    reinit: Iterable[str] = (),
    drop: Iterable[str] = (),
    resample: str | None = None,
    source_grid: Size | None = None,
    adapt_channels: bool = False,
) -> ImportReport:
    if resample not in (None, "bicubic", "bilinear"):
        raise ConfigError(f"resample = {resample!r}: use 'bicubic' or 'bilinear'")
    keep = [today(name, type(model.config)) for name in _patterns("keep", keep)]
    for field in keep:
        if field not in HIDDEN_FIELDS:
            raise ConfigError(f"keep = {field!r}: use one of {', '.join(HIDDEN_FIELDS)}")
    grid = None if source_grid is None else pair("source_grid", source_grid)
    rules, stated = reading.rules, reading.stated
    check_names(rules, family_of(model), model.state_dict())
    work = Transfer(model, reading, _patterns("reinit", reinit))
    tensors, gathered = work.tensors(_patterns("drop", drop))
    used = work.convert(tensors, gathered)
    work.sort_other_keys(tensors, used)
    work.note_idle_rules(tensors)
    work.fit_grid(resample, grid)
    work.fit_input(adapt_channels)
    work.check_shapes()
    work.compare_fields(keep)
    if work.misfit:
        raise CheckpointError(work.explain_misfit(tensors))

    work.load()
    epsilon = stated.fields.get("norm_eps", rules.numbers.get("norm_eps"))
    if epsilon is not None and "norm_eps" not in keep:
        work.set_epsilon(epsilon, stated.inner_epsilon)
    if rules.note and all(flat(model.config).get(k) == v for k, v in rules.note_when.items()):
        work.report.notes.append(rules.note)
    return work.report
