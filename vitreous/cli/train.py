"""Train or fine-tune a model. Without options it trains on the built-in digits, with a model and
settings that fit them, into a new folder in runs/."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vitreous.errors import ConfigError, DataError
from vitreous.train.recipe import (
    AugmentationOptions,
    CommonOptions,
    DataOptions,
    Flag,
    ModelOptions,
    OptimisationOptions,
    PreprocessingOptions,
    Recipe,
    RunOptions,
    find_recipe,
    option,
    read_recipe,
)

if TYPE_CHECKING:
    from vitreous.train.trainer import Event

BY_HEART = 0.9
"""What a model that has learned its images reaches: in accuracy, mean IoU or AP."""


@dataclass(frozen=True)
class Arguments(CommonOptions):
    recipe: Annotated[str | None, option("FILE", "none")] = None
    """Recipe with values for these options: a file, or a name in recipes/; options override it."""
    out: Annotated[Path | None, option("RUN", "runs/NAME")] = None
    """Run folder to write."""
    resume: Flag = False
    """Continue the run in --out where it stopped; a larger --epochs extends it."""
    dry_run: Flag = False
    """Only report choices, shapes, memory and time, check every image, and draw the first batch."""
    lr_find: Flag = False
    """Only search for a learning rate: a short run with a growing learning rate."""
    data_options: Annotated[DataOptions, option(name="data")] = field(default_factory=DataOptions)
    model_options: Annotated[ModelOptions, option(name="model")] = field(
        default_factory=ModelOptions
    )
    optimisation: OptimisationOptions = field(default_factory=OptimisationOptions)
    augmentation: AugmentationOptions = field(default_factory=AugmentationOptions)
    preprocessing: PreprocessingOptions = field(default_factory=PreprocessingOptions)
    run: RunOptions = field(default_factory=RunOptions)

    def to_recipe(self) -> Recipe:
        groups = [self, *filter(is_dataclass, vars(self).values())]
        names = {each.name for each in fields(Recipe)}
        return Recipe(**{k: v for group in groups for k, v in vars(group).items() if k in names})


def defaults(words: Sequence[str]) -> Arguments:
    """What applies unless an option says otherwise: the recipe's values, or the resumed run's."""
    recipe, out = _value(words, "--recipe"), _value(words, "--out")
    values: dict[str, Any] = {}
    if recipe is not None:
        values = read_recipe(find_recipe(recipe))
    if "--resume" in words:
        if recipe is not None:
            raise ConfigError("--resume continues with the run's own recipe: leave out --recipe")
        if out is None:
            raise ConfigError("which run should be resumed? pass --out RUN")
        path = Path(out) / "recipe.toml"
        if not path.exists():
            raise ConfigError(f"{out} has no run to resume")
        values = read_recipe(path)

    def given(group: Any) -> dict[str, Any]:
        return {each.name: values[each.name] for each in fields(group) if each.name in values}

    makers: dict[str, Any] = {each.name: each.default_factory for each in fields(Arguments)}
    groups = {n: make(**given(make)) for n, make in makers.items() if make is not MISSING}
    return Arguments(**given(CommonOptions), **groups)


def run(arguments: Arguments) -> None:
    from vitreous.pages.report import write_report
    from vitreous.tasks import task_class
    from vitreous.train.open_data import open_usable
    from vitreous.train.run import train

    recipe = arguments.to_recipe()
    out = arguments.out or _free_name(recipe.data)
    if arguments.dry_run or arguments.lr_find:
        _rehearse(recipe, out, arguments.lr_find)
        return
    log = ProgressBar()
    try:
        done = train(recipe, out, resume=arguments.resume, log=log.line, watch=log.event)
    finally:
        log.close()
    if int(os.environ.get("RANK", "0")) > 0:
        return  # the first process speaks for all
    source = open_usable(recipe, lambda note: None)
    page, split, result = write_report(done, source)
    primary = task_class(done.read_config().task).primary
    print(f"{primary:<8} {result[primary]:.4f} on {split} ({result['samples']:,} images)")
    print(f"run      {done.path}")
    print(f"report   {page.resolve().as_uri()}")
    if recipe.overfit:
        print(_verdict(primary, result))


def _verdict(primary: str, result: dict[str, Any]) -> str:
    """What a run on a few images has shown."""
    count, value = result["samples"], result[primary]
    if value >= BY_HEART:
        return f"overfit  the model has learned its {count} images by heart: it can learn this data"
    return (
        f"overfit  the model has not learned its {count} images by heart ({primary} {value:.2f}, "
        f"expected {BY_HEART}): before a long run, look at report.html, give it more --epochs, try "
        "--lr-find, or check the labels with 'vitreous data check'"
    )


def _shape(images: Any) -> str:
    """Of images in one tensor, or of the largest sides of several."""
    if isinstance(images, list):
        height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
        return f"{len(images)}x{images[0].shape[0]} of up to {height}x{width}"
    return "x".join(map(str, images.shape))


def _rehearse(recipe: Recipe, out: Path, lr_find: bool) -> None:
    from vitreous.train.rehearsal import dry_run, find_rate

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if lr_find:
        rate, curve = find_rate(recipe, log)
        for each, loss in curve[:: max(len(curve) // 20, 1)]:
            print(f"  lr {each:9.2e}  loss {loss:.4f}")
        print(f"lr: {rate:.1e} is a good start (a tenth of where the loss was lowest)")
        return
    from vitreous.pages.batch import batch_picture

    found = dry_run(recipe, log)
    picture = out.with_name(f"{out.name}-first-batch.png")
    picture.parent.mkdir(parents=True, exist_ok=True)
    batch_picture(found.batch, found.task, found.labels, found.preprocess).save(picture)
    print(f"model       {found.parameters:,} parameters, {found.learning:,} of them learn")
    print(f"batch       {_shape(found.batch.images)}, shown in {picture}")
    print(f"steps       {found.steps:,}, about {found.seconds / 60:.1f} minutes without evaluation")
    print(f"memory      about {found.bytes_needed / 2**20:,.0f} MiB for model and one step")
    readable = f"{len(found.bad)} of them cannot be read" if found.bad else "all can be read"
    print(f"data        {found.images:,} images, {readable}")
    for problem in found.bad.values():
        print(f"  {problem.file}: {problem.what}")
    if found.bad and recipe.on_bad == "error":
        raise DataError(
            f"{len(found.bad)} images cannot be read: see above; --on-bad skip leaves them out"
        )


class ProgressBar:
    """A bar on a terminal, a line per evaluation elsewhere; always on stderr."""

    def __init__(self) -> None:
        self.bar = None
        self.began, self.first = time.perf_counter(), 0
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("training", total=None)
            self.bar.start()

    def line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def event(self, event: Event) -> None:
        self.first = self.first or event.step
        if event.evaluated is not None:
            spent = time.perf_counter() - self.began
            self.line(
                f"epoch {event.epoch:g}: loss {event.loss:.4f}, "
                f"{event.primary} {event.evaluated[event.primary]:.4f}, "
                f"{event.rate:.0f} images/s, "
                f"{spent:.0f} s, {self._left(event, spent)} to go"
            )
        if self.bar is not None:
            text = f"loss {event.loss:.3f}  {event.rate:.0f} images/s"
            self.bar.update(self.task, completed=event.step, total=event.steps, description=text)

    def _left(self, event: Event, spent: float) -> str:
        """By the steps of this session: a run that was resumed has taken others before."""
        done = event.step - self.first + 1
        seconds = spent / done * (event.steps - event.step)
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def _value(words: Sequence[str], name: str) -> str | None:
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _free_name(data: str) -> Path:
    """runs/NAME, or runs/NAME-2 … where that is taken."""
    name = re.sub(r"[^\w.-]+", "-", Path(data).name).strip("-.") or "run"
    number = 1
    while True:
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
        number += 1
