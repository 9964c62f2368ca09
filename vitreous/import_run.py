"""Weights of other libraries become a run folder, which every command takes like a trained one.

What the source does not state (class names, preprocessing) is asked for, all at once. The folder is
written aside, its model is built again from it and compared on real photographs, and then it is
moved into place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from vitreous import __version__
from vitreous.checksums import file_sha256
from vitreous.config import pair, to_dict
from vitreous.data.label_sets import NUMBERS, SETS, labels_for, labels_of
from vitreous.data.photographs import photographs
from vitreous.data.preprocess import Preprocess
from vitreous.engines.graph import read_file
from vitreous.engines.table import FORMATS
from vitreous.errors import CheckpointError, ConfigError, advice, did_you_mean
from vitreous.labels import LabelMap, NoLabels
from vitreous.models import FAMILIES, TWO_TOWERS, configure, family_of, stored_fields
from vitreous.models.model import Model
from vitreous.run_folder import OpenedRun, Run, RunConfig, names_classes, versions
from vitreous.tasks import task_class, task_of_model
from vitreous.tasks.task import Task
from vitreous.weights.adopt import files_of, find
from vitreous.weights.catalog import catalog, meant, named
from vitreous.weights.convert import written_aside
from vitreous.weights.fields import FREE, difference
from vitreous.weights.hub import cache_folder, resolve
from vitreous.weights.importing import FitOptions, import_weights, load
from vitreous.weights.reading import Assumed, Reading
from vitreous.weights.rules.report import ImportReport
from vitreous.weights.tokenizers import NONE_THERE, tokenizer_beside
from vitreous.wording import counted

EXAMPLES = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "crop": 0.9}
"""Of values that are asked for."""


class MissingError(ConfigError):
    """What a source does not state, with the options that state it."""

    def __init__(self, source: str, options: Mapping[str, Any], lines: list[str]) -> None:
        self.source, self.options = source, options
        what = f"{source} does not state everything that a run folder needs"
        super().__init__("\n".join([what, *lines]))


@dataclass(frozen=True)
class Imported:
    """A run folder that was made of foreign weights."""

    path: Path
    config: RunConfig
    report: ImportReport
    assumed: Assumed
    """Fields of the model that the tensors do not show: the value taken, and why."""
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return str(self.path)


def import_into(
    folder: Path,
    found: Reading,
    *,
    labels: Any = None,
    task: str | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    force: bool = False,
    **fit: Unpack[FitOptions],
) -> Imported:
    """Write the run folder of a checkpoint.

    labels: a name of `data.label_sets`, "numbers", a file with names, or names. preprocessing:
    image_size and channels are the model's, the other fields of a `Preprocess` override what the
    source states. `force` replaces weights that 'vitreous import' did not write. The others are
    those of `import_weights`.
    """
    check_folder(folder, found.file.path, force)
    blank = found.blank
    headless = not names_classes(blank)
    kind = _task(blank, headless, task, found)
    # First of all: what does not fit is not worth further questions.
    model, report = load(found, **fit)
    if headless and labels is not None:
        raise ConfigError(f"labels = {labels!r}: {found.source} has no head, and so no classes")
    missing: dict[str, Any] = {}
    names = NoLabels() if headless else _labels(blank.config.classes, labels, found, missing)
    if "image_size" in found.assumed and found.format.endswith(".toml"):
        missing["image_size"] = 32  # nobody's default: people's own models are of any size
    values = _preprocessing(kind, preprocessing or {}, found, missing)
    if missing:
        raise _ask(found, blank, missing)
    config = RunConfig(
        model=model.name,
        family=family_of(model),
        config=stored_fields(model.config),
        task=kind.name,
        labels=names,
        preprocess=_fitted(kind, model, values),
        data="",
        weights=found.source,
        versions=versions(),
        origin=_origin(found, report),
    )
    tokenizer = tokenizer_beside(model, found.file.path)
    with written_aside(folder, folder=True) as aside:
        run = Run(aside)
        run.write_weights(model, model.state_dict())
        run.write_config(config)
        if tokenizer is not None:
            run.write_tokenizer(tokenizer)
            config = replace(config, text=tokenizer.preprocess)
        constant = verify_written(run, model, config, folder)
    notes = tuple(_notes(config, found, constant))
    return Imported(folder, config, report, found.assumed, notes)


# ---- what the run folder needs


def _task(model: Model, headless: bool, asked: str | None, found: Reading) -> type[Task]:
    family, kind = family_of(model), "labels" if found.stated.several else None
    usual = task_of_model(family, model.config, headless=headless, truth_kind=kind)
    if asked is None:
        return task_class(usual)
    wanted = task_class(asked)
    if headless or not wanted.takes(family):
        why = "it has no head" if headless else f"a {family} is for the task {usual}"
        raise ConfigError(f"task = {asked!r}: {found.source} cannot {asked}: {why}")
    if not wanted.has_required(model.config):
        why = f"it is a {family} without {' and '.join(wanted.required)}"
        raise ConfigError(f"task = {asked!r}: {found.source} cannot {asked}: {why}")
    return wanted


def _labels(classes: int, given: Any, found: Reading, missing: dict[str, Any]) -> LabelMap:
    """Those given, else the source's own; placeholders where they are missing."""
    stated = found.stated
    if given is not None:
        if isinstance(given, str) and given not in (*SETS, NUMBERS) and not Path(given).exists():
            raise ConfigError(
                f"labels = {given!r}: there is no such file; pass the path of a file with one name "
                f"per line, or one of {', '.join((*SETS, NUMBERS))}"
                f"{did_you_mean(given, (*SETS, NUMBERS))}"
            )
        labels = labels_for(classes, given)
    elif stated.names:
        labels = labels_of(stated.names)
    elif stated.labels in SETS:
        labels = labels_for(classes, stated.labels)
    else:
        missing["labels"] = "imagenet-1k" if classes == 1000 else "names.txt"
        return NoLabels()
    if len(labels) != classes:
        raise ConfigError(
            f"{counted(len(labels), 'name')} of classes for {found.source}, whose head has "
            f"{counted(classes, 'class')}"
            + advice(
                ": pass ",
                " with as many names, in the order of the classes",
                labels="names.txt",
            )
        )
    return labels


def _preprocessing(
    kind: type[Task], given: Mapping[str, Any], found: Reading, missing: dict[str, Any]
) -> dict[str, Any]:
    """Fields of a `Preprocess`: those given, else the source's own."""
    values = {**found.stated.preprocessing, **given}
    if "crop" in given and "resize" not in given:
        values["resize"] = "shorter"
    if "crop" in given and given.get("resize") == "square":
        raise ConfigError(f"crop = {given['crop']}: with resize = 'square' nothing is cropped")
    if not kind.truth.any_size:
        values.pop("longest", None)  # such models take one size
    for name in ("mean", "std"):
        stated = values.get(name, ())
        if any(value < 0 or value > 1 for value in stated):
            fitting = tuple(round(value / 255, 4) for value in stated)
            raise ConfigError(
                f"{name} = {stated}: expected numbers from 0 to 1, like the pixels' values: for "
                f"pixels from 0 to 255, divide by 255{advice(' and pass ', **{name: fitting})}"
            )
    whole = not kind.truth.stays or values.get("resize") == "square"
    needed = ("mean", "std", "interpolation") if whole else ("mean", "std", "crop", "interpolation")
    missing |= {name: EXAMPLES.get(name, "bicubic") for name in needed if name not in values}
    return {"crop": 1.0, **values} if whole else values


def _fitted(kind: type[Task], model: Model, values: Mapping[str, Any]) -> Preprocess:
    """For the model's input, as the task prepares images."""
    config = model.config
    any_size = getattr(config, "dynamic_size", None) and "image_size" in values
    size = values["image_size"] if any_size else config.image_size
    known = known_preprocess({**values, "image_size": size}, config.channels)
    assert known is not None
    fitted = kind.defaults.choose_preprocess(size, config.channels, known)
    return replace(fitted, mean=known.mean, std=known.std)


def known_preprocess(values: Mapping[str, Any], channels: int | None = None) -> Preprocess | None:
    """The preprocessing that a source states, if it states all of it."""
    needed = {"image_size", "crop", "interpolation", "mean", "std"}
    if not needed <= values.keys():
        return None
    whole = values.get("longest") is not None or values.get("resize") == "none"
    crop = {"crop": 1.0} if whole else {}  # detectors do not crop
    count = channels or max(len(values["mean"]), len(values["std"]))
    return Preprocess(**{**values, **crop}, channels=count, whole=whole)


def _ask(found: Reading, blank: Model, missing: dict[str, Any]) -> MissingError:
    """For everything that is missing; with the values of such a model in the catalog, if it is
    there."""
    classes, lines = getattr(blank.config, "classes", 0), []
    alike = next(
        (
            entry
            for entry in catalog().values()
            if (entry.model, entry.format, entry.classes) == (blank.name, found.format, classes)
            and entry.preprocessing.image_size == blank.own_size()[0]
        ),
        None,
    )
    known = {} if alike is None else vars(alike.preprocessing)
    for name in missing.keys() & {"mean", "std"}:
        missing[name] = missing[name][:1] * blank.config.channels
    options = {name: known.get(name, value) for name, value in missing.items()}
    for name, value in options.items():
        if name == "labels":
            ways = [*(each for each in SETS if value == each), "names.txt", NUMBERS]
            how = " or ".join(advice("", labels=way) for way in ways)
            lines.append(f"  labels: the names of its {classes} classes: pass {how}")
        else:
            why = {"crop": "the part of the image's side: "}
            if name == "image_size":
                why[name] = f"{found.assumed['image_size'][1]}: "
            lines.append(advice(f"  {name}: {why.get(name, '')}pass ", **{name: value}))
    if alike is not None and options.keys() - {"labels"}:
        lines.append(f"  (the values shown are those of {alike.name} in the catalog)")
    return MissingError(found.source, options, lines)


def _origin(found: Reading, report: ImportReport) -> dict[str, Any]:
    local = Path(found.source).exists()
    values = {
        "source": str(Path(found.source).resolve()) if local else found.source,
        "files": {path.name: file_sha256(path) for path in files_of(found.file)},
        "format": report.format,
        "licence": found.stated.licence,
        "assumed": {name: value for name, (value, _) in found.assumed.items()},
    }
    kept = {name: value for name, value in values.items() if value}
    return json.loads(json.dumps(kept, default=to_dict))  # as it is read back: lists, no tuples


# ---- writing


def check_folder(folder: Path, source: Path, force: bool) -> None:
    """Refuse to replace the source or a trained run; and anything else unless `force`, or unless
    it was imported before."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another --out")
    if folder.is_dir() and folder.samefile(source.parent):
        raise ConfigError(
            f"{folder}: this would replace what is imported, {source}: choose another --out"
        )
    if (folder / "recipe.toml").exists() or (folder / "checkpoints").exists():
        raise ConfigError(f"{folder} has a trained run: choose another --out")
    there = [name for name in ("config.json", "model.safetensors") if (folder / name).exists()]
    if there and not force and not _was_imported(folder):
        raise ConfigError(
            f"{folder / there[0]} exists, and 'vitreous import' did not write it: choose another "
            f"--out{advice(', or pass ', ' to replace it', force=True)}"
        )


def _was_imported(folder: Path) -> bool:
    try:
        return bool(Run(folder).read_config().origin)
    except ConfigError:
        return False


@torch.inference_mode()
def verify_written(run: Run, model: Model, config: RunConfig, folder: Path) -> bool:
    """The folder's model must give the same outputs for real photographs, and finite ones.

    Returns whether they are the same for every photograph, too."""
    again = run.create_model().eval()
    import_weights(again, run.weights, "vitreous")
    stored = run.read_config()
    if replace(stored, versions={}, checksums={}) != replace(config, versions={}):
        raise CheckpointError(f"{folder}: read back, config.json says something else; not written")
    all_outputs = []
    for image in photographs(config.preprocess.channels):
        batch = config.preprocess(image)[None]
        expected, got = (_tensors(each(batch)) for each in (model, again))
        if not all(bool(part.isfinite().all()) for part in expected):
            raise CheckpointError(
                f"{config.weights}: the model's outputs for a photograph are not finite: its "
                "weights are damaged, or it is another model; nothing was written"
            )
        if not all(map(torch.equal, expected, got)):
            raise CheckpointError(
                f"{folder}: read back, it gives other outputs; it was not written. This is a bug "
                "in Vitreous: please report it"
            )
        all_outputs.append(expected)
    return all(
        len(one) == len(other) and all(map(torch.equal, one, other))
        for one, other in itertools.pairwise(all_outputs)
    )


def _tensors(output: Any) -> list[Tensor]:
    parts = output if isinstance(output, tuple) else (output,)
    return [part for part in parts if isinstance(part, Tensor)]


def _notes(config: RunConfig, found: Reading, constant: bool) -> Iterable[str]:
    stated = found.stated
    yield from stated.notes
    changed = _changed(config, found)
    if changed:
        yield f"its tensors are those of a {config.model} with {changed}"
    if stated.kind:
        yield f"it is {stated.kind}, which is not known here: the model is what the tensors show"
    size, own = stated.preprocessing.get("image_size"), pair("", config.preprocess.image_size)
    told = "image_size" in found.given
    if size is not None and not told and pair("image_size", size) != own:
        theirs, ours = ("x".join(map(str, each)) for each in (pair("", size), own))
        yield f"it states images of {theirs}: they are prepared for the model's {ours}"
    if config.family == TWO_TOWERS and config.text is None:
        yield NONE_THERE
    if constant:
        yield (
            "its outputs are the same for every image, as with a head that is published all zeros: "
            "fine-tune it before you predict"
        )


def _changed(config: RunConfig, found: Reading) -> str:
    """Fields of the model that its name does not stand for, and that nobody gave."""
    usual, have = (configure(found.model, **each)[1] for each in ({}, config.config))
    own = {*found.given, *found.stated.fields, *FREE, "head", "norm_eps", "dynamic_size"}
    named = found.model not in FAMILIES and not found.name
    pairs = difference(have, usual).items() if named else ()
    return ", ".join(f"{k}={v}" for k, v in pairs if k not in own)


# ---- in one step


class ExportedRun(OpenedRun):
    """A file that 'vitreous export' wrote: it has a run's config, and a graph for its weights."""

    def read_config(self) -> RunConfig:
        self.file = read_file(self.path)
        where = f"the note in {self.path}"
        config = RunConfig.read(self.file.note.run, where)
        config.check_labels(where)
        return config

    def recipe_text(self) -> str | None:
        return self.file.note.recipe or None


WEIGHT_FILES = (".safetensors", ".npz", ".pth", ".pt", ".bin", ".pdparams")


def open_run(reference: str | os.PathLike[str] | OpenedRun, *, verify: bool = True) -> OpenedRun:
    """The run folder that is meant: itself; or one in the cache, imported from a hub reference, a
    catalog name, a folder of transformers or timm, or a file of weights that states all that is
    needed or is one of the catalog's. An exported file is like one. `verify`: what is read must be
    what was written. A run that is open already is given back."""
    if isinstance(reference, OpenedRun):
        return reference
    if not isinstance(reference, str | os.PathLike):
        raise ConfigError(f"run = {reference!r}: expected the path of a run folder")
    reference = os.fspath(reference)
    if Path(reference).suffix in FORMATS:
        return ExportedRun(Run(reference, verify=verify))
    run = Run(reference, verify=verify)
    if run.exists and not run.is_foreign:
        return OpenedRun(run, reference)
    name = Path(reference).as_posix()
    known = not run.path.exists() and (name.startswith("hf:") or bool(named(name)))
    known |= run.path.is_file() and run.path.suffix in WEIGHT_FILES
    if run.path.is_file() and not known:
        raise ConfigError(
            f"{name} is a file and no run folder; if it has weights, make one of it: "
            f"vitreous import {shlex.quote(name)} --out RUN"
        )
    if not known and not run.path.exists() and (hint := meant(name)):
        raise ConfigError(f"{name}: there is no such run folder, model or catalog entry{hint}")
    if not known and not run.is_foreign:
        return OpenedRun(run)  # which says what is wrong
    path = resolve(name)
    folder = cache_folder() / "runs" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)}-{_stamp(path)}"
    if not Run(folder).exists:
        try:
            import_into(folder, find(name))
        except MissingError as error:
            options = [f"--{option} {_shell(value)}" for option, value in error.options.items()]
            raise ConfigError(
                f"{error.source} does not state its {', '.join(error.options)}: import it first, "
                f"with your values: vitreous import {shlex.quote(name)} --out RUN "
                f"{' '.join(options)}"
            ) from None
    return OpenedRun(Run(folder, verify=verify), reference)


def _shell(value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(shlex.quote(str(each)) for each in values)


def _stamp(path: Path) -> str:
    """Changes when the files do, and when another version of Vitreous may read them otherwise."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return hashlib.sha256(repr((facts, __version__)).encode()).hexdigest()[:12]
