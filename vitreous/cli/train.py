"""Train or fine-tune a model. Without options it trains on the built-in digits, with a model and
settings chosen for them, and writes a new folder in runs/."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from vitreous import api
from vitreous.api.arguments import to_stderr
from vitreous.cli.parse import values_of
from vitreous.cli.printing import number_text, print_json, print_verdicts
from vitreous.errors import DataError
from vitreous.terminal import print
from vitreous.train.recipe import (
    AugmentationOptions,
    CommonOptions,
    DataOptions,
    Flag,
    ModelOptions,
    OptimisationOptions,
    PreprocessingOptions,
    Recipe,
    Repeated,
    RunOptions,
    assigned,
    default_recipe,
    option,
    recipe_help,
)
from vitreous.wording import counted


@dataclass(frozen=True)
class TrainArguments(CommonOptions):
    recipe: Annotated[str | None, option("FILE", "fine-tune if weights are given")] = None
    """Recipe with values for these options: a file, or a name in recipes/; options override it."""
    set_recipe: Annotated[Repeated, option("KEY=VALUE")] = ()
    """Change any other key of the recipe, for example mixup=0.2 (--help-recipe lists all)."""
    out: Annotated[Path | None, option("RUN", "runs/NAME")] = None
    """Run folder to write."""
    resume: Flag = False
    """Continue the run in --out where it stopped; a larger --epochs or --time extends it."""
    dry_run: Flag = False
    """Only report choices, shapes, memory and time, check every image, and draw the first batch."""
    lr_find: Flag = False
    """Only search for a learning rate, by short runs with several of them."""
    json: Flag = False
    """Print the result as one JSON object with metric names as keys."""
    help_recipe: Flag = False
    """Only list all keys of a recipe, with their defaults."""
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


Arguments = TypeVar("Arguments", bound=TrainArguments)


def defaults(words: Sequence[str]) -> TrainArguments:
    """What applies unless an option says otherwise: the recipe's values, or the resumed run's."""
    return defaults_of(TrainArguments, words)


def defaults_of(
    kind: type[Arguments], words: Sequence[str], method: str | None = None
) -> Arguments:
    recipe, out = value_of(words, "--recipe"), value_of(words, "--out")
    resume, changes = "--resume" in words, assigned(values_of(words, "--set-recipe"))
    if recipe is None and not resume:
        weights = value_of(words, "--weights") or changes.get("weights")
        lora = (value_of(words, "--lora") or str(changes.get("lora", 0))) != "0"
        recipe = default_recipe(weights, lora, method, to_stderr)
    values = api.stored_values(recipe, out, resume) | changes
    api.check_method(values.get("method"), pretrains=method is not None)

    def given(group: Any) -> dict[str, Any]:
        return {each.name: values[each.name] for each in fields(group) if each.name in values}

    makers: dict[str, Any] = {each.name: each.default_factory for each in fields(kind)}
    groups = {n: make(**given(make)) for n, make in makers.items() if make is not MISSING}
    own = {"method": values.get("method", method)} if method is not None else {}
    return kind(**given(CommonOptions), **own, **groups)


def run(arguments: TrainArguments, verb: Callable[..., api.TrainedRun] = api.train) -> None:
    if arguments.help_recipe:
        print(recipe_help())
        return
    recipe = arguments.to_recipe()
    if arguments.dry_run or arguments.lr_find:
        rehearse(recipe, arguments)
        return
    done = verb(recipe=recipe, out=arguments.out, resume=arguments.resume)
    if not done.metrics:
        return  # of several processes the first one prints
    if arguments.json:
        print_json({"run": str(done.path), "split": done.split, **done.metrics})
        return
    images = done.metrics["samples"]
    number = number_text(done.metric, done.metrics)
    print(f"{done.metric:<8} {number} on {done.split} ({counted(images, 'image')})")
    print_verdicts(done.metrics)
    if (threshold := done.metrics.get("threshold")) is not None:
        print(f"score    {threshold:g} or more is shown by predict: the best F1 on val")
    print(f"run      {done.path}")
    print(f"report   {done.report.resolve().as_uri()}")


def _shape(images: Any) -> str:
    """Of a batch in one tensor, or of images of different sizes."""
    if isinstance(images, list):
        height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
        return f"{len(images)}x{images[0].shape[0]} of up to {height}x{width}"
    return "x".join(map(str, images.shape))


def rehearse(recipe: Recipe, arguments: TrainArguments) -> None:
    if arguments.lr_find:
        lr, curve = api.find_lr(recipe=recipe)
        for each, loss in curve:
            print(f"  lr {each:.1e}  loss {loss:.4f}")
        print(f"lr: {lr:.1e} is a good start (the lowest that learns nearly as fast as any)")
        return
    found, picture = api.dry_run(recipe=recipe, out=arguments.out)
    print(f"model       {found.parameters:,} parameters, {found.learning:,} of them trained")
    print(f"batch       {_shape(found.batch.images)}, shown in {picture}")
    print(f"steps       {found.steps:,}, about {found.seconds / 60:.1f} minutes without evaluation")
    print(f"memory      about {found.bytes_needed / 2**20:,.0f} MiB for model and one step")
    readable = f"{len(found.bad)} of them cannot be read" if found.bad else "all can be read"
    print(f"data        {counted(found.images, 'image')}, {readable}")
    for problem in found.bad.values():
        print(f"  {problem.file}: {problem.what}")
    if found.bad and recipe.on_bad == "error":
        raise DataError(
            f"{counted(len(found.bad), 'image')} cannot be read: see above; --on-bad skip leaves "
            "out what cannot"
        )


def value_of(words: Sequence[str], name: str) -> str | None:
    return next(iter(values_of(words, name)), None)
