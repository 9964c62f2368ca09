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
from vitreous.data.loader import EvalSet, TrainSet
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.sources import open_source
from vitreous.data.statistics import measure_statistics
from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap
from vitreous.models import create
from vitreous.models.model import Model
from vitreous.predict import Predictor, load
from vitreous.run_folder import Run, RunConfig, versions
from vitreous.tasks import Classify
from vitreous.train.board import board
from vitreous.train.choose import fill_in
from vitreous.train.distributed import World, joined, restarts
from vitreous.train.loop import Event, Trainer
from vitreous.train.recipe import Recipe, write_recipe
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
    """Train as `recipe` says, into the folder `out`; with `resume`, go on where it stopped."""
    with joined(recipe.device) as world:
        quiet: Say = say if world.is_first else (lambda text: None)
        run = Run(out)
        # torchrun starts all processes again when one has died: that is a resume.
        resume = world.any(resume or restarts() > 0)
        if world.any(world.is_first and run.exists) and not resume:
            raise ConfigError(
                f"{out} has a run already: choose another --out, or go on with it by --resume"
            )
        seen = watch if world.is_first else (lambda event: None)
        trainer = prepare(recipe, run, world, quiet, seen)
        if resume:
            resumed = trainer.resume()
            quiet(
                f"resumed at step {trainer.progress.step} of {trainer.steps}"
                if resumed
                else "nothing to resume: there is no complete checkpoint; starting"
            )
            if trainer.progress.finished and trainer.progress.step >= trainer.steps:
                quiet("this run is finished; to extend it, give a larger --epochs")
                return run
        with contextlib.ExitStack() as stack:
            if recipe.tensorboard and world.is_first:
                show = board(run.path / "tensorboard", trainer.progress.step)
                trainer.watch = _both(watch, stack.enter_context(show))
            trainer.fit()
        return run


def _both(one: Watch, other: Watch) -> Watch:
    def watch(event: Event) -> None:
        one(event)
        other(event)

    return watch


def prepare(recipe: Recipe, run: Run, world: World, say: Say, watch: Watch) -> Trainer:
    """Everything that stands before the first step."""
    source = open_usable(recipe, say)
    samples = source.splits
    recipe = fill_in(recipe, source, world.device, say)
    start = None if recipe.weights is None else find_start(recipe)
    with random_by(recipe.seed, "first weights"):
        model = build(recipe, source, start, say)
    preprocess = choose_preprocess(recipe, model, source, samples["train"], start, say)
    task = Classify(
        source.labels,
        smoothing=recipe.smoothing,
        class_weights=class_weights(recipe, source, samples["train"]),
        distill=recipe.distill,
    )
    if world.is_first:
        run.path.mkdir(parents=True, exist_ok=True)
        run.write_config(
            RunConfig(
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
        )
        run.write_text("recipe.toml", write_recipe(recipe))
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
    return Trainer(
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
    )


def open_named(recipe: Recipe) -> Source:
    """The recipe's data as it is: the same split, by its seed, whoever asks."""
    names = None if recipe.names is None else Path(recipe.names)
    return open_source(recipe.data, download=recipe.download, seed=recipe.seed, names=names)


def open_usable(recipe: Recipe, say: Say) -> Source:
    """The recipe's data; what cannot be read is left out only if asked, and said."""
    source = open_named(recipe)
    for note in source.notes:
        say(note)
    if recipe.on_bad == "skip":
        from vitreous.data.check import bad_samples

        bad = bad_samples(source)
        for problem in bad.values():
            say(f"left out: {problem.file}: {problem.what}")
        source.splits = {
            split: [sample for sample in samples if sample.id not in bad]
            for split, samples in source.splits.items()
        }
    for split in ("train", "val"):
        if not source.splits.get(split):
            raise DataError(f"{source.name} has no images in the split {split!r}")
    return source


def find_start(recipe: Recipe) -> Start:
    """What `weights` names: a run folder, a catalog entry, or a file with or without a config."""
    assert recipe.weights is not None
    run = Run(recipe.weights)
    if run.exists:
        config = run.read_config()
        return Start(
            config.family,
            dict(config.config),
            config.labels,
            config.preprocess,
            run.weights,
        )
    path = resolve(recipe.weights)
    checkpoint = read_tensors(path)
    origin = origin_of(recipe.weights, checkpoint.path, checkpoint.metadata)
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
    """As the recipe says, as the weights were trained, or as the data measures."""
    config = model.config
    base = Preprocess(
        image_size=config.image_size,
        channels=config.channels,
        resize=recipe.resize,
        interpolation=recipe.interpolation,
    )
    if recipe.mean or recipe.std:
        return replace(base, mean=recipe.mean or (0.5,), std=recipe.std or (0.5,))
    if start is not None and start.preprocess is not None:
        known = start.preprocess
        if len(known.mean) in (1, config.channels):
            say(f"mean and std: {known.mean}, {known.std}, as the weights were trained with")
            return replace(known, image_size=config.image_size, channels=config.channels)
    mean, std = measure_statistics(source, samples, base)
    rounded = [tuple(round(v, 4) for v in values) for values in (mean, std)]
    say(f"mean and std: {rounded[0]}, {rounded[1]}, measured on the training images")
    return replace(base, mean=rounded[0], std=rounded[1])


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
    """What a teacher run answers to a normalised batch, in the order of our classes."""
    if recipe.teacher is None:
        return None
    teacher: Predictor = load(recipe.teacher, str(world.device))
    if teacher.preprocess != preprocess:
        raise ConfigError(
            f"teacher {recipe.teacher} sees images prepared otherwise than this model: give the "
            "same --image-size, --mean, --std, --resize and --interpolation as it has"
        )
    order = torch.tensor(teacher.task.labels.to_here(source.labels, what=source.name))

    @torch.no_grad()
    def answer(images: Tensor) -> Tensor:
        logits: Tensor = teacher.model(images)
        return logits[:, order.to(logits.device)]

    return answer
