"""Import weights from other libraries: completely, or not at all with one message that says why."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from vitreous.config import Size, flat, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import create, family_of
from vitreous.models.model import Model
from vitreous.models.old_fields import today
from vitreous.models.text import TextTower
from vitreous.models.two_towers import TOWERS, TwoTowers
from vitreous.weights.identify import gathered_for
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.origin import WeightFile, open_weights
from vitreous.weights.reading import Reading
from vitreous.weights.rules.formats import OWN, check_names
from vitreous.weights.rules.keys import title
from vitreous.weights.rules.report import ImportReport
from vitreous.weights.stated import HIDDEN_FIELDS
from vitreous.weights.towers import comparison, divided, is_own, stated_of, take_up
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
    reading = _reading_for(model, file, format, reinit)
    return _load(model, reading, keep, reinit, drop, resample, source_grid, adapt_channels)


def _reading_for(
    model: Model, file: WeightFile, format: str | Path | None, reinit: Sequence[str]
) -> Reading:
    """A file as it is for this model: of a file with both towers, for one of them, the other is
    left out."""
    own = is_own(file) or format == OWN
    if not isinstance(model, TwoTowers):
        part = "text" if isinstance(model, TextTower) else "image"
        stated, files = stated_of(file.stated, part), divided(file) if own else None
        if files is not None:
            file = files.towers[TOWERS.index(part)]
        return Reading(
            file, stated, gathered_for(model, file, format, reinit), title(model), {}, model
        )
    files = None if own else divided(file, format)
    if files is None:
        gathered = gathered_for(model, file, format, reinit)
        return Reading(file, file.stated, gathered, title(model), {}, model)
    towers: list[Reading] = []
    for part, tower, each in zip(TOWERS, (model.core, model.text), files.towers, strict=True):
        gathered = gathered_for(tower, each, format, _of_part(part, reinit))
        stated = stated_of(file.stated, part)
        towers.append(Reading(each, stated, gathered, title(tower), {}, tower))
        format = gathered.rules.name  # the other is of the same library
    first, second = towers
    return replace(first, file=file, blank=model, towers=(first, second), beside=files.beside)


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


def _of_part(part: str, patterns: Iterable[str]) -> list[str]:
    """Of patterns of our parameters, those of a part, by its own names."""
    owner = f"{part}."
    return [each.removeprefix(owner) for each in patterns if each.startswith(owner)]


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
    options = keep, reinit, drop, resample, source_grid, adapt_channels
    if reading.towers is None:
        return _finished(_transfer(model, reading, *options))
    assert isinstance(model, TwoTowers)
    return _load_towers(model, reading, *options)


def _load_towers(
    model: TwoTowers,
    reading: Reading,
    keep: Iterable[str],
    reinit: Iterable[str],
    drop: Iterable[str],
    *fit: Any,
) -> ImportReport:
    """Each tower by itself, and what compares them: all of it, or nothing."""
    assert reading.towers is not None
    reinit, drop, works = _patterns("reinit", reinit), _patterns("drop", drop), []
    if wrong := [each for each in reinit if not each.startswith(("image.", "text."))]:
        raise ConfigError(f"reinit = {wrong[0]!r}: say of which tower, as 'image.{wrong[0]}'")
    for part, tower, each in zip(TOWERS, (model.core, model.text), reading.towers, strict=True):
        own = [name for name in drop if fnmatch.filter(each.file.tensors, name)]
        kept = {*_patterns("keep", keep), *each.keep}
        works.append(_transfer(tower, each, kept, _of_part(part, reinit), own, *fit))
    compared = comparison(model, reading.beside, reading.format, reading.source)
    report = ImportReport(reading.source, reading.format)
    for part, work in zip(TOWERS, works, strict=True):
        report.add(part, _finished(work))
    on_meta = next(model.similarity.parameters()).is_meta
    model.load_state_dict(compared, strict=False, assign=on_meta)
    report.loaded += compared
    take_up(model)
    return report


def _transfer(
    model: Model,
    reading: Reading,
    keep: Iterable[str],
    reinit: Iterable[str],
    drop: Iterable[str],
    resample: str | None,
    source_grid: Size | None,
    adapt_channels: bool,
) -> Transfer:
    """Everything is read and fits; nothing is loaded yet."""
    if resample not in (None, "bicubic", "bilinear"):
        raise ConfigError(f"resample = {resample!r}: use 'bicubic' or 'bilinear'")
    keep = [today(name, type(model.config)) for name in _patterns("keep", keep)]
    for field in keep:
        if field not in HIDDEN_FIELDS:
            raise ConfigError(f"keep = {field!r}: use one of {', '.join(HIDDEN_FIELDS)}")
    grid = None if source_grid is None else pair("source_grid", source_grid)
    check_names(reading.rules, family_of(model), model.state_dict())
    work = Transfer(model, reading, _patterns("reinit", reinit), keep)
    tensors, gathered = work.tensors(_patterns("drop", drop))
    used = work.convert(tensors, gathered)
    work.sort_other_keys(tensors, used)
    work.note_idle_rules(tensors)
    work.fit_grid(resample, grid)
    work.fit_input(adapt_channels)
    work.check_shapes()
    work.compare_fields()
    if work.misfit:
        raise CheckpointError(work.explain_misfit(tensors))
    return work


def _finished(work: Transfer) -> ImportReport:
    """Load what fits, with the numbers of the checkpoint's library."""
    model, rules, stated = work.model, work.rules, work.reading.stated
    work.load()
    epsilon = stated.fields.get("norm_eps", rules.numbers.get("norm_eps"))
    if epsilon is not None and "norm_eps" not in work.keep:
        work.set_epsilon(epsilon, stated.inner_epsilon)
    if rules.note and all(flat(model.config).get(k) == v for k, v in rules.note_when.items()):
        work.report.notes.append(rules.note)
    return work.report
