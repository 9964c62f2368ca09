"""From a recipe to a finished run: data, model, preprocessing, task, then the loop."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from vitreous.config import to_dict
from vitreous.data.augment import Augment, random_by
from vitreous.data.loader import EvalSet, TrainSet
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Source
from vitreous.engines.world import World
from vitreous.errors import ConfigError, DataError
from vitreous.models import configure, family_of, has_words
from vitreous.progress import Log, silent
from vitreous.run_folder import Run, RunConfig, newest_checkpoint, versions
from vitreous.tasks import UNLABELLED, task_class, task_for
from vitreous.tasks.task import Task
from vitreous.train.advice import fine_tuning_advice
from vitreous.train.build_model import (
    Start,
    build,
    choose_preprocess,
    find_start,
    of_images,
    preprocess_of_plan,
    wrapped,
)
from vitreous.train.claim import claimed
from vitreous.train.distributed import joined, restarts
from vitreous.train.open_data import (
    NOTHING,
    FromPython,
    absolute,
    advising,
    open_usable,
    parts,
    resuming,
    stored_recipe,
)
from vitreous.train.plan import check_options, choose_precision, fill_in, fine_tuning_lr
from vitreous.train.probe import probe_for
from vitreous.train.progress import SILENT, Display, Watch, board
from vitreous.train.recipe import Recipe, continued, is_longer, seconds, write_recipe
from vitreous.train.stop import StoppedError, handling
from vitreous.train.teacher import answers_of, find_teacher, sample_weights, some_vectors
from vitreous.train.threads import computing_threads
from vitreous.train.time_budget import TimeBudget
from vitreous.train.trainer import Trainer
from vitreous.train.verdicts import images_measured


def train(
    recipe: Recipe,
    out: Path | None = None,
    *,
    resume: bool = False,
    log: Log = silent,
    watch: Watch = lambda event: None,
    report: Callable[[Run, Source], object] = lambda run, source: None,
    own: FromPython = NOTHING,
    show: Display = SILENT,
    began: float | None = None,
) -> Run:
    """Train by a recipe into the folder `out`, or a new one; with `resume`, continue where the run
    stopped.

    Everything is made and checked before anything is written: an error leaves `out` as it was.
    `report` is called in the first process when the run is finished, or has been stopped and has
    weights. `own` is what the recipe cannot hold. `began`: when the command was given, by
    `time.perf_counter`; a run that is made for a time counts from there.
    """
    began = time.perf_counter() if began is None else began
    reported: list[tuple[Run, Source]] = []
    interrupt = signal.getsignal(signal.SIGINT)

    def write_report() -> None:
        """Of a run that nobody claims any more: it may be resumed meanwhile. The other processes
        need not wait for it. Ctrl-C says at once what is lost, before anything that waits for
        others comes to its end."""
        for run, source in reported:
            if run.has_weights:
                usual = interrupt is signal.default_int_handler
                with handling(leave, signal.SIGINT) if usual else contextlib.nullcontext():
                    report(run, source)

    def leave(number: int, frame: object) -> None:
        show.tell(
            "stopping: the weights are safe, the report is not written: "
            f"{resuming(recipe, reported[0][0])} writes it"
        )
        signal.signal(number, interrupt)
        raise KeyboardInterrupt

    try:
        run = _fit(recipe, out, resume, log, watch, own, show, reported, began)
    except StoppedError:
        with contextlib.suppress(KeyboardInterrupt):
            write_report()
        raise
    write_report()
    return run


def _fit(
    recipe: Recipe,
    out: Path | None,
    resume: bool,
    log: Log,
    watch: Watch,
    own: FromPython,
    show: Display,
    reported: list[tuple[Run, Source]],
    began: float,
) -> Run:
    """All of `train` but the report; `reported` is given what that is about, in the first process
    alone."""
    with (
        joined(recipe.device) as world,
        claimed(out, recipe.data, world) as claim,
        contextlib.ExitStack() as stack,
    ):
        quiet: Log = log if world.is_first else silent
        run = claim.run
        # torchrun starts all processes again when one has died: that is a resume.
        again = world.any(resume or restarts() > 0)
        stored = stored_recipe(run) if again else None
        if world.any(world.is_first and run.exists) and not again:
            raise ConfigError(
                f"{run.path} already has a run: choose another --out, or continue it with --resume"
            )
        if stored is not None:
            stored = of_images(stored)  # as older versions called an image tower
            recipe = continued(stored, wrapped(absolute(recipe))) if resume else stored
        threads = stack.enter_context(computing_threads(recipe.threads))
        seen = watch if world.is_first else (lambda event: None)
        trainer, config = prepare(recipe, run, world, quiet, seen, own, show)
        if world.is_first:
            reported.append((run, trainer.train_set.source))
        if trainer.recipe.time is not None:
            trainer.budget = TimeBudget(seconds(trainer.recipe.time), began)
            trainer.budget.checked_images = len(trainer.validation.val_set)
            trainer.budget.report_images = images_measured(trainer.train_set.source)
        if again:
            if world.is_first:
                run.remove_leftovers()
            longer = stored is not None and is_longer(trainer.recipe, stored)
            found = trainer.resume(longer)
            at = f"resumed at step {trainer.progress.step} of {trainer.steps}"
            quiet(at if found else "there is no complete checkpoint to resume: starting anew")
            if trainer.progress.threads not in (0, threads):
                quiet(
                    f"threads: {threads}, and {trainer.progress.threads} before: sums are rounded "
                    f"otherwise (--threads {trainer.progress.threads} repeats them to the bit)"
                )
            if trainer.progress.finished:
                trainer.keep_weights()
                option = "--epochs" if trainer.recipe.time is None else "--time"
                quiet(f"this run is finished: a larger {option} makes it longer")
        if not trainer.progress.finished:
            if world.is_first:
                run.begin(config, write_recipe(trainer.recipe))
            claim.begun = True
            trainer.progress.threads = threads
            if recipe.tensorboard and world.is_first:
                drawn = board(run.path / "tensorboard", trainer.progress.step)
                trainer.watchers.append(stack.enter_context(drawn))
            try:
                with advising(recipe):
                    trainer.fit()
            except KeyboardInterrupt:
                command = resuming(recipe, run)
                quiet(f"left at once: {command} continues after step {trainer.saved}")
                raise
    return run


def prepare(
    recipe: Recipe,
    run: Run,
    world: World,
    log: Log = silent,
    watch: Watch = lambda event: None,
    own: FromPython = NOTHING,
    show: Display = SILENT,
) -> tuple[Trainer, RunConfig]:
    """Everything before the first step; nothing is written.

    A run that is resumed keeps its classes, model and preprocessing, even if the data or the
    weights it started from have changed.
    """
    asked, recipe = recipe.model, wrapped(absolute(recipe))
    if asked is not None and has_words(asked):
        log(f"model: {asked} has two towers; that for images, {recipe.model}, is trained")
    own.check(recipe)
    newest = newest_checkpoint(run.checkpoints)
    begun = None if newest is None else run.read_config()
    start = None
    if begun is None:  # a model or weights that do not exist are found out before data is read
        if recipe.model is not None:
            configure(recipe.model)
        start = None if recipe.weights is None else find_start(recipe)
    source = open_usable(
        recipe,
        log,
        world,
        own.source,
        planned_preprocess(recipe, world, start) if begun is None else lambda _: begun.preprocess,
    )
    kind = task_of(recipe, source)
    check_options(recipe, kind)
    teacher = find_teacher(recipe, world)
    learned, measured = parts(recipe, source)
    if begun is not None and newest is not None:
        if source.labels != begun.labels:
            raise DataError(
                f"{source.name} now has the classes {', '.join(source.labels.names)}, but the run "
                f"to resume has {', '.join(begun.labels.names)}: start another run with this one "
                "as --weights"
            )
        model, preprocess = Run(newest).create_model(), begun.preprocess
        if recipe.precision == "auto":  # a run from before there was a choice
            recipe = replace(recipe, precision="float32")
    else:
        with advising(recipe):
            advice = fine_tuning_advice(recipe, kind, source, world.device.type == "cpu")
            if advice is not None:  # what would learn more from few images than random weights do
                log(f"{advice.why}\n  {advice.command}   ({advice.weights})")
            recipe = fill_in(recipe, kind, source, len(learned), world, log, start)
            needed = kind.fields_for(None if teacher is None else teacher.model)
            recipe = replace(recipe, fields=(*needed, *recipe.fields))
        with random_by(recipe.seed, "first weights"):
            model = build(recipe, kind, source, start, log)
        with advising(recipe):
            kind.check_model(source, model, log)
            preprocess = choose_preprocess(recipe, kind, model, source, learned, start, log)
        if recipe.precision == "auto":
            recipe = replace(recipe, precision=choose_precision(model, world, log))
        if recipe.lr is None:
            recipe = replace(recipe, lr=fine_tuning_lr(model, recipe.optimizer))
            log(f"lr: {recipe.lr:g}, to fine-tune a model of this width")
        if teacher is not None and kind.pretrains:
            kind.prepare(model, some_vectors(teacher, source, learned, preprocess))
        decided = ("mean", "std", "resize", "longest", "interpolation")
        recipe = replace(recipe, **{name: getattr(preprocess, name) for name in decided})
    with advising(recipe):
        task = kind.for_training(recipe, source, learned)
    config = RunConfig(
        model=model.name,
        family=family_of(model),
        config=to_dict(model.config),
        task=task.name,
        labels=task.labels,
        preprocess=preprocess,
        data=recipe.data,
        weights=recipe.weights or "",
        versions=versions(),
        decoding=begun.decoding if begun is not None else {},
    )
    options = {each.name: getattr(recipe, each.name) for each in fields(Augment)}
    augment = Augment(**options | {"crop": recipe.crop or "none", "flip": bool(recipe.flip)})
    augment.check_channels(preprocess.channels)
    trainer = Trainer(
        recipe,
        run,
        model,
        task,
        TrainSet(
            *(source, learned, preprocess, augment, task.truth, recipe.seed, own.augment),
            views=task.views(model),
        ),
        EvalSet(source, measured, preprocess, task.truth),
        world,
        weights=sample_weights(recipe, source, learned),
        teacher=answers_of(teacher, task, source, preprocess, world),
        **({"probe": probe_for(recipe, source, preprocess, world, log)} if recipe.method else {}),
        watch=watch,
        log=log,
        show=show if world.is_first else SILENT,
    )
    return trainer, config


def planned_preprocess(
    recipe: Recipe, world: World, start: Start | None
) -> Callable[[Source], Preprocess]:
    """How the model that will be trained on a source sees its images."""

    def choose(source: Source) -> Preprocess:
        kind = task_of(recipe, source)
        count = len(source.splits["train"])
        planned = fill_in(recipe, kind, source, count, world, silent, start)
        return preprocess_of_plan(planned, kind, source, start)

    return choose


def task_of(recipe: Recipe, source: Source) -> type[Task]:
    """What is learned: a method of pre-training, or what the data is for."""
    if recipe.method is not None:
        return task_class(recipe.method)
    if source.truth_kind == UNLABELLED:
        raise DataError(
            f"{source.name} has images and no labels to train with: 'vitreous pretrain "
            f"{recipe.data}' learns from images alone"
        )
    return task_for(source.truth_kind)
