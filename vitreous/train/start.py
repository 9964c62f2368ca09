"""From a recipe to a finished run: data, model, preprocessing, task, then the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import config_fields, size_of, to_dict
from vitreous.data.augment import Augment, random_by
from vitreous.data.check import bad_samples
from vitreous.data.loader import EvalSet, TrainSet
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.sources import BUILT_IN, open_source
from vitreous.data.sources.files import FileSource
from vitreous.data.statistics import measure_statistics
from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap
from vitreous.models import create
from vitreous.models.model import Model
from vitreous.predict import Predictor, load
from vitreous.run_folder import Run, RunConfig, versions
from vitreous.tasks import Classify
from vitreous.train import checkpoint
from vitreous.train.board import board
from vitreous.train.choose import fill_in, fine_tuning_rate
from vitreous.train.distributed import World, joined, restarts
from vitreous.train.loop import Event, Trainer
from vitreous.train.recipe import Recipe, continued, read_recipe, write_recipe
from vitreous.weights.catalog import catalog
from vitreous.weights.files import read_tensors
from vitreous.weights.hub import resolve
from vitreous.weights.importing import import_weights
from vitreous.weights.matching import family_of
from vitreous.weights.origin import origin_of

Say = Callable[[str], None]
Watch = Callable[[Event], None]


@dataclass(frozen=True)
class Start:
    """Weights to start from, and what is known about them."""

    model: str
    fields: dict[str, Any]
    labels: LabelMap | None
    preprocess: Preprocess | None
    path: Path


def train(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    say: Say = lambda text: None,
    watch: Watch = lambda event: None,
) -> Run:
    """Train as `recipe` says, into the folder `out`; with `resume`, go on where it stopped.

    Everything is made and checked before anything is written: what fails leaves `out` as it was.
    """
    with joined(recipe.device) as world:
        quiet: Say = say if world.is_first else (lambda text: None)
        run = Run(out)
        # torchrun starts all processes again when one has died: that is a resume.
        again = world.any(resume or restarts() > 0)
        stored = stored_recipe(run) if again else None
        if world.any(world.is_first and run.exists) and not again:
            raise ConfigError(
                f"{out} has a run already: choose another --out, or go on with it by --resume"
            )
        if stored is not None:
            recipe = continued(stored, absolute(recipe)) if resume else stored
        seen = watch if world.is_first else (lambda event: None)
        trainer, config = prepare(recipe, run, world, quiet, seen)
        if again:
            longer = stored is not None and (trainer.recipe.epochs or 0) > (stored.epochs or 0)
            found = trainer.resume(longer)
            at = f"resumed at step {trainer.progress.step} of {trainer.steps}"
            quiet(at if found else "there is no complete checkpoint to go on from; starting")
            if trainer.progress.finished:
                quiet("this run is finished; to make it longer, give a larger --epochs")
                return run
        if world.is_first:
            _make_folder(out)
            run.write_text("recipe.toml", write_recipe(trainer.recipe))
            run.write_config(config)  # last: from here on there is a run
        with contextlib.ExitStack() as stack:
            if recipe.tensorboard and world.is_first:
                show = board(run.path / "tensorboard", trainer.progress.step)
                trainer.watch = _both(watch, stack.enter_context(show))
            trainer.fit()
        return run


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--out {path}: the folder cannot be made: {error.strerror or error}"
        ) from error


def stored_recipe(run: Run) -> Recipe | None:
    """The recipe that a run was begun with, and None where there is no run yet."""
    path = run.path / "recipe.toml"
    return Recipe(**read_recipe(path)) if path.is_file() else None


def absolute(recipe: Recipe) -> Recipe:
    """The recipe with paths that mean the same from any folder."""

    def resolved(name: str | None) -> str | None:
        if name is None:
            return None
        kind, _, rest = name.partition(":")
        if kind in ("folder", "csv", "idx") and rest:
            return f"{kind}:{resolved(rest)}"
        path = Path(name).expanduser()
        return str(path.resolve()) if path.exists() and name not in BUILT_IN else name

    return replace(
        recipe,
        data=resolved(recipe.data) or recipe.data,
        weights=resolved(recipe.weights),
        teacher=resolved(recipe.teacher),
        names=resolved(recipe.names),
    )


def _both(one: Watch, other: Watch) -> Watch:
    def watch(event: Event) -> None:
        one(event)
        other(event)

    return watch


def prepare(
    recipe: Recipe, run: Run, world: World, say: Say, watch: Watch
) -> tuple[Trainer, RunConfig]:
    """Everything that stands before the first step; nothing is written.

    A run that has begun keeps its classes, its model and its preprocessing, whatever the data and
    the weights it started from look like by now.
    """
    recipe = absolute(recipe)
    source = open_usable(recipe, say)
    samples = source.splits
    begun = run.read_config() if checkpoint.newest(run.checkpoints) is not None else None
    if begun is not None:
        _check_same_classes(begun.labels, source)
        model, preprocess = begun.create(), begun.preprocess
    else:
        recipe = fill_in(recipe, source, world, say)
        start = None if recipe.weights is None else find_start(recipe)
        with random_by(recipe.seed, "first weights"):
            model = build(recipe, source, start, say)
        preprocess = choose_preprocess(recipe, model, source, samples["train"], start, say)
        if recipe.lr is None:
            recipe = replace(recipe, lr=fine_tuning_rate(model))
            say(f"lr: {recipe.lr:g}, to fine-tune a model of this width")
        recipe = replace(
            recipe,
            mean=preprocess.mean,
            std=preprocess.std,
            resize=preprocess.resize,
            interpolation=preprocess.interpolation,
        )
    task = Classify(
        source.labels,
        smoothing=recipe.smoothing,
        class_weights=class_weights(recipe, source, samples["train"]),
        distill=recipe.distill or "hard",
    )
    config = RunConfig(
        model=model.name,
        family=family_of(model),
        config=to_dict(model.config),
        task=task.name,
        labels=source.labels,
        preprocess=preprocess,
        data=recipe.data,
        weights=recipe.weights or "",
        versions=versions(),
    )
    augment = Augment(
        crop=recipe.crop or "none",
        scale=recipe.scale,
        flip=bool(recipe.flip),
        randaugment=recipe.randaugment,
        jitter=recipe.jitter,
        erase=recipe.erase,
        mixup=recipe.mixup,
        cutmix=recipe.cutmix,
    )
    augment.check_channels(preprocess.channels)
    trainer = Trainer(
        recipe,
        run,
        model,
        task,
        TrainSet(source, samples["train"], preprocess, augment, recipe.seed),
        EvalSet(source, samples["val"], preprocess),
        world,
        weights=sample_weights(recipe, source, samples["train"]),
        teacher=find_teacher(recipe, source, preprocess, world),
        watch=watch,
        say=say,
    )
    return trainer, config


def _check_same_classes(before: LabelMap, source: Source) -> None:
    if source.labels != before:
        raise DataError(
            f"{source.name} has the classes {', '.join(source.labels.names)} now; the run that "
            f"shall go on was begun with {', '.join(before.names)}: start another run, with "
            "--weights to begin from this one"
        )


def open_named(recipe: Recipe) -> Source:
    """The recipe's data as it is: the same split, by its seed, whoever asks."""
    names = None if recipe.names is None else Path(recipe.names)
    return open_source(
        recipe.data,
        download=recipe.download,
        seed=recipe.seed,
        val_fraction=recipe.val_fraction,
        names=names,
    )


def open_usable(recipe: Recipe, say: Say) -> Source:
    """The recipe's data; what cannot be read is left out only if asked, and said."""
    source = open_named(recipe)
    if isinstance(source, FileSource):
        source.max_pixels = recipe.max_pixels
    for note in source.notes:
        say(note)
    for problem in source.problems:
        say(f"{problem.file}: {problem.what}")
    if recipe.on_bad == "skip":
        bad = bad_samples(source, max_pixels=recipe.max_pixels, channels=recipe.channels)
        for problem in bad.values():
            say(f"left out: {problem.file}: {problem.what}")
        source.splits = {
            split: [sample for sample in samples if sample.id not in bad]
            for split, samples in source.splits.items()
        }
    for split in ("train", "val"):
        if not source.splits.get(split):
            raise DataError(f"{source.name} has no images in the split {split!r}")
    _check_classes(source)
    return source


def _check_classes(source: Source) -> None:
    """There must be something to tell apart, and something to learn of each class."""
    if len(source.labels) < 2:
        raise DataError(
            f"{source.name} has only the class {source.labels.names[0]!r}: nothing to tell apart"
        )
    counts = class_counts(source, source.splits["train"]).tolist()
    missing = [name for name, n in zip(source.labels.names, counts, strict=True) if not n]
    if missing:
        raise DataError(
            f"{source.name} has no image in train that can be used of the class "
            f"{', '.join(missing)}: add some, or remove the class"
        )


def find_start(recipe: Recipe) -> Start:
    """What `weights` names: a run folder, a catalog entry, or a file with or without a config."""
    assert recipe.weights is not None
    run = Run(recipe.weights)
    if run.exists:
        config = run.read_config()
        # Another model than the run's is built as it is named; the weights then fit or do not.
        other = recipe.model is not None and recipe.model not in (config.model, config.family)
        fields = {} if other else dict(config.config)
        return Start(config.family, fields, config.labels, config.preprocess, run.weights)
    path = resolve(recipe.weights)
    stored = read_tensors(path)
    origin = origin_of(recipe.weights, stored.path, stored.metadata)
    if recipe.model is not None:
        origin = (recipe.model, {})
    if origin is None:
        raise ConfigError(f"{recipe.weights} does not say which model it is for: give --model")
    preprocess = None
    if recipe.weights in catalog():
        known = catalog()[recipe.weights].preprocessing
        preprocess = Preprocess(
            image_size=known.image_size,
            crop=known.crop,
            interpolation=known.interpolation,
            mean=known.mean,
            std=known.std,
            resize=known.resize,
            antialias=known.antialias,
        )
    return Start(origin[0], origin[1], None, preprocess, path)


def build(recipe: Recipe, source: Source, start: Start | None, say: Say) -> Model:
    """The model, with weights where there are some to start from."""
    changes: dict[str, Any] = {} if start is None else dict(start.fields)
    changes |= config_fields(recipe.fields)
    changes["classes"] = len(source.labels)
    changes["channels"] = recipe.channels
    if recipe.image_size:
        changes["image_size"] = size_of("image_size", recipe.image_size)
    if changes.get("head") == "none":
        changes["head"] = "linear"
    name = recipe.model or (start.model if start else None)
    assert name is not None
    model = create(name, **changes)
    if start is not None:
        same = start.labels is not None and start.labels.names == source.labels.names
        report = import_weights(
            model,
            start.path,
            recipe.weights_format,
            reinit=[] if same else ["head.*"],
            resample="bicubic",
            adapt_channels=True,
        )
        say(str(report))
    return model


def choose_preprocess(
    recipe: Recipe,
    model: Model,
    source: Source,
    samples: Sequence[Sample],
    start: Start | None,
    say: Say,
) -> Preprocess:
    """As the recipe says, as the weights were trained, or as the data measures; in this order."""
    config = model.config
    known = None if start is None else start.preprocess
    base = replace(
        known or Preprocess(),
        image_size=config.image_size,
        channels=config.channels,
        mean=(0.5,),
        std=(0.5,),
    )
    if recipe.resize is not None:
        base = replace(base, resize=recipe.resize)
    if recipe.interpolation is not None:
        base = replace(base, interpolation=recipe.interpolation)
    origin = "as given"
    mean, std = recipe.mean, recipe.std
    if known is not None and len(known.mean) in (1, config.channels):
        mean, std = mean or known.mean, std or known.std
        origin = "as the weights were trained with"
    if not mean or not std:
        measured = measure_statistics(source, samples, base)
        rounded = [tuple(round(v, 4) for v in values) for values in measured]
        mean, std = mean or rounded[0], std or rounded[1]
        origin = "measured on the training images"
    say(f"mean and std: {mean}, {std}, {origin}")
    return replace(base, mean=mean, std=std)


def class_counts(source: Source, samples: Sequence[Sample]) -> Tensor:
    targets = torch.tensor([sample.target for sample in samples])
    return torch.bincount(targets, minlength=len(source.labels)).double()


def class_weights(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Tensor | None:
    """Rare classes count more, by the inverse of their number; a sample counts 1 on average."""
    if recipe.class_weights == "none":
        return None
    counts = class_counts(source, samples).clamp(min=1)
    return (counts.sum() / (len(counts) * counts)).float()


def sample_weights(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Tensor | None:
    """Chances of samples by which each class is drawn equally often."""
    if recipe.sampler == "uniform":
        return None
    counts = class_counts(source, samples).clamp(min=1)
    return torch.stack([1 / counts[sample.target] for sample in samples])


def find_teacher(
    recipe: Recipe, source: Source, preprocess: Preprocess, world: World
) -> Callable[[Tensor], Tensor] | None:
    """What a teacher run answers to a normalised batch, in the order of our classes.

    It sees the same pixels as the student, at its own size and with its own mean and std.
    """
    if recipe.teacher is None:
        return None
    teacher: Predictor = load(recipe.teacher, str(world.device))
    order = torch.tensor(teacher.task.labels.to_here(source.labels, what=source.name))
    translate = preprocess.translator(teacher.preprocess, world.device)

    @torch.no_grad()
    def answer(images: Tensor) -> Tensor:
        logits: Tensor = teacher.model(translate(images))
        return logits[:, order.to(logits.device)]

    return answer
