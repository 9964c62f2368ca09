"""Decides what a recipe leaves open, from the data and the machine; each decision is logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import torch

from vitreous.config import config_fields, pair, size_of
from vitreous.data.source import Source
from vitreous.engines.precision import has_bfloat16
from vitreous.engines.world import World
from vitreous.errors import ConfigError
from vitreous.models import create
from vitreous.models.model import Model
from vitreous.progress import Log
from vitreous.tasks import TASKS, task_class
from vitreous.tasks.defaults import Glance, glance_at
from vitreous.tasks.task import Task
from vitreous.train.build_model import Start
from vitreous.train.recipe import Recipe
from vitreous.train.threads import available_cores
from vitreous.weights.blank import without_values

WIDE = 192
"""From which width on bfloat16 is faster: measured on a CPU (docs/training.md). Half of that is
slower by a third, and in between it is about as fast."""


def fill_in(
    recipe: Recipe,
    task: type[Task],
    source: Source,
    count: int,
    world: World,
    log: Log,
    start: Start | None = None,
) -> Recipe:
    """The recipe with everything decided, for an epoch of `count` images; `start`: the weights to
    start from."""
    glance = glance_at(source, world.device.type == "cpu")
    plan = Plan(recipe, task, source, count, world, glance, start)
    for decide in DECISIONS:
        if getattr(plan.recipe, decide.__name__, None) not in (None, ()):
            continue
        changes, reasons = decide(plan)
        plan.recipe = replace(plan.recipe, **changes)
        for reason in reasons:
            log(reason)
    return plan.recipe


@dataclass
class Plan:
    """A recipe that is being filled in, and what it depends on."""

    recipe: Recipe
    """With what was decided so far."""
    task: type[Task]
    source: Source
    count: int
    """Images of an epoch."""
    world: World
    glance: Glance
    start: Start | None

    def __post_init__(self) -> None:
        self.given = self.recipe
        """The recipe as it was asked for,"""
        self.fine_tunes = self.recipe.weights is not None
        """and whether that has weights to start from."""

    @property
    def seen(self) -> str:
        return f"images of {self.glance.height}x{self.glance.width}"


class Decision(NamedTuple):
    """Fields of the recipe, and lines of the log that say why they have these values."""

    changes: dict[str, Any] = {}  # noqa: RUF012
    reasons: tuple[str, ...] = ()


NOTHING = Decision()


def decided(name: str, value: Any, reason: str = "", called: str = "") -> Decision:
    """One field: `batch: 16`, `channels: 3, as most images have`"""
    why = f", {reason}" if reason else ""
    return Decision({name: value}, (f"{called or name}: {value}{why}",))


def channels(plan: Plan) -> Decision:
    return decided("channels", plan.glance.channels, "as most images have")


def model_around(plan: Plan) -> Decision:
    """What the task advises for a model around weights that are not made for it."""
    recipe, start = plan.recipe, plan.start
    if start is None or plan.task.takes(start.model):
        return NOTHING
    advised = plan.task.defaults.choose_around(plan.source, plan.glance, recipe.model)
    if recipe.overfit:  # what is learnt by heart is not changed
        advised.pop("crop", None)
    if recipe.shard:  # Muon needs whole matrices
        advised.pop("optimizer", None)
    changes = {k: v for k, v in advised.items() if getattr(recipe, k) in (None, ())}
    if "fields" in advised:
        changes["fields"] = (*advised["fields"], *recipe.fields)
    reasons = []
    if "optimizer" in changes:
        reasons.append(f"optimizer: {changes['optimizer']}, for what is new around the weights")
    if "image_size" in changes:
        reasons.append(f"image size: {size_text(changes['image_size'])}, for {plan.seen}")
    return Decision(changes, tuple(reasons))


def model(plan: Plan) -> Decision:
    """A model to learn from scratch, where neither it nor weights are named."""
    recipe = plan.recipe
    if plan.fine_tunes:
        return NOTHING
    chosen = plan.task.defaults.choose_model(plan.source, plan.glance)
    size = recipe.image_size or chosen.image_size
    changes = {"model": chosen.name, "image_size": size, "fields": (*chosen.fields, *recipe.fields)}
    if chosen.resize is not None and recipe.resize is None and recipe.longest is None:
        changes["resize"] = chosen.resize
    return Decision(changes, (f"model: {chosen.reason}, images {size_text(size)}",))


def image_size(plan: Plan) -> Decision:
    """Of small images, where the whole of each is judged: a size below the model's own."""
    recipe, glance = plan.recipe, plan.glance
    side = None
    if not plan.task.truth.stays:
        return NOTHING
    if not plan.fine_tunes:
        side = fitting_size(str(recipe.model), recipe.fields, glance)
        reason = f"for {plan.seen}"
    elif plan.start is not None:
        side = fine_tuning_size(plan.start, glance)
        reason = f"which on a CPU is enough for {plan.seen} (--image-size for another)"
    if side is None:
        return NOTHING
    return Decision({"image_size": side}, (f"image size: {side[0]}, {reason}",))


def batch(plan: Plan) -> Decision:
    recipe, defaults = plan.recipe, plan.task.defaults
    usual = defaults.choose_batch(plan.count, fine_tunes=plan.fine_tunes)
    if recipe.overfit:
        usual = min(usual, defaults.overfit_batch(recipe.overfit))
    parts = plan.world.size * recipe.accumulate
    return decided("batch", -(-usual // parts) * parts)


def epochs(plan: Plan) -> Decision:
    recipe, defaults = plan.recipe, plan.task.defaults
    if recipe.time is not None:
        return NOTHING
    least, most, images = defaults.effort(plan.glance, fine_tunes=plan.fine_tunes)
    usual = max(least, min(most, round(images / plan.count)))
    number = defaults.overfit_epochs if recipe.overfit else usual
    where = plan.world.device.type
    return decided("epochs", number, f"for {plan.count:,} training images on {where}")


def optimizer(plan: Plan) -> Decision:
    """Weights that AdamW has trained are best fine-tuned by it, too."""
    recipe, defaults = plan.recipe, plan.task.defaults
    scratch = not plan.fine_tunes and not recipe.shard
    if scratch and defaults.scratch_optimizer(plan.glance, recipe.model or "") == "muon":
        return decided("optimizer", "muon", "which learns faster from scratch")
    return decided("optimizer", "adamw", "as usual")


def scratch_lr(plan: Plan) -> Decision:
    """For fine-tuning it is decided when the model is there: `fine_tuning_lr`."""
    if plan.recipe.lr is not None or plan.fine_tunes:
        return NOTHING
    defaults = plan.task.defaults
    times = defaults.muon_lr if plan.recipe.optimizer == "muon" else 1
    lr = defaults.scratch_lr(plan.glance.small) * times
    return Decision({"lr": lr}, (f"lr: {lr:g}, from scratch",))


def crop_and_its_options(plan: Plan) -> Decision:
    """With a check: an option that the crop does not use is refused, or logged if the crop was not
    asked for."""
    recipe, glance, task = plan.recipe, plan.glance, plan.task
    found = NOTHING
    if recipe.crop is None:
        size = recipe.image_size and pair("image_size", size_of("image_size", recipe.image_size))
        fits = glance.same_size and size == (glance.height, glance.width)
        # Small images are enlarged for pre-trained weights: then their parts can be seen, too.
        small = glance.small and (not plan.fine_tunes or not task.truth.stays)
        whole = recipe.overfit and (fits or not task.windows)
        found = decided("crop", "none" if whole else task.defaults.crop_for(small, fits))
    used, reasons = found.changes.get("crop", recipe.crop), list(found.reasons)
    for name, only in (("scale", "resized"), ("zoom", "window")):
        value = getattr(recipe, name)
        if value != getattr(Recipe, name) and used != only:
            what = f"{name} = {value} has no effect with crop = {used!r}, only with {only!r}"
            if plan.given.crop is not None:
                raise ConfigError(what)
            reasons.append(f"{what}: not used")
    return Decision(found.changes, tuple(reasons))


def flip(plan: Plan) -> Decision:
    """Digits, letters and scans are gray, and flipped they are something else."""
    recipe = plan.recipe
    gray = recipe.channels == 1
    value = not gray and plan.source.may_flip and not recipe.overfit
    return decided("flip", value, "for gray images" if gray else "")


def class_weights(plan: Plan) -> Decision:
    value = plan.task.defaults.choose_class_weights(fine_tunes=plan.fine_tunes)
    if value == "none":
        return Decision({"class_weights": value})
    reason = "so that rare classes are learned too"
    return decided("class_weights", value, reason, "class weights")


def smoothing(plan: Plan) -> Decision:
    return Decision({"smoothing": plan.task.defaults.smoothing})


def workers(plan: Plan) -> Decision:
    cores = available_cores()
    some = min(cores - 1 if plan.glance.on_cpu else cores, 8)
    return decided("workers", 0 if plan.glance.small or cores < 2 else some)


DECISIONS: tuple[Callable[[Plan], Decision], ...] = (
    *(channels, model_around, model, image_size, batch, epochs, optimizer, scratch_lr),
    *(crop_and_its_options, flip, class_weights, smoothing, workers),
)
"""In the order in which they are logged; a later one sees what was decided before. One with the
name of a field of the recipe is made where that is left open."""


def size_text(size: Any) -> str:
    height, width = pair("image_size", size_of("image_size", size))
    return f"{height}x{width}"


def fitting_size(model: str, fields: tuple[str, ...], glance: Glance) -> tuple[int, int] | None:
    """For small images, a size below the model's own: not smaller than the images, and with at
    least four patches, or two positions of a pyramid's last map, a side. None: its own."""
    given = config_fields(fields)
    if not glance.small or "image_size" in given:
        return None
    with without_values():
        made = create(model, **given)
    maps = [max(level.pixels) for level in made.levels(made.own_size())]
    least = maps[-1] * (4 if maps[0] == maps[-1] else 2)
    side = -(-max(glance.height, glance.width, least) // maps[-1]) * maps[-1]
    return (side, side) if side < min(made.own_size()) else None


def fine_tuning_size(start: Start, glance: Glance) -> tuple[int, int] | None:
    """For small images on a CPU, a size below that of the weights: four times their own, so that
    they have several patches, in a fraction of the time. None: that of the weights."""
    if not glance.small or not glance.on_cpu:
        return None
    with without_values():
        made = create(start.model, **start.fields)
    patch = max(made.levels(made.own_size())[-1].pixels)
    side = -(-4 * max(glance.height, glance.width) // patch) * patch
    return (side, side) if side < min(made.own_size()) else None


def check_options(recipe: Recipe, task: type[Task]) -> None:
    """An option that the task does not use is an error: nothing is ignored in silence."""
    users: dict[str, list[str]] = {}
    for each in (*map(task_class, TASKS), *([task] if task.name not in TASKS else [])):
        for option in each.options:
            users.setdefault(option, []).append(each.name)
    for field in fields(Recipe):
        value = getattr(recipe, field.name)
        others = users.get(field.name, [task.name])
        if task.name not in others and value not in (field.default, "none"):
            whose = " and ".join(others)
            raise ConfigError(f"{field.name} = {value!r} is for the task {whose}, not {task.name}")
    for name in sorted(task.refused):
        value = getattr(recipe, name)
        if value != getattr(Recipe, name):
            raise ConfigError(f"{name} = {value!r} has no meaning for {task.name}: leave it out")
    for name, known in (("crop", task.crops), ("resize", task.resizes)):
        value = getattr(recipe, name)
        if value is not None and value not in known:
            raise ConfigError(f"{name} = {value!r} is not for {task.name}: use {', '.join(known)}")


def fine_tuning_lr(model: Model, optimizer: str | None) -> float:
    """1e-4 for a model as wide as ViT-B, and more for narrower ones, which bear it and need it;
    twice that with Muon. At most 1e-3."""
    lr = float(f"{min(1e-4 * 768 / model.width, 1e-3):.1g}")
    return min(2 * lr, 1e-3) if optimizer == "muon" else lr


def choose_precision(model: Model, world: World, log: Log) -> Literal["float32", "bfloat16"]:
    """bfloat16 where every process computes on a CPU or GPU that is made for it, and the model is
    wide enough to gain."""
    if world.any(not _has_bfloat16(world.device)):
        return "float32"
    if model.core.width < WIDE:
        log(f"precision: float32; models narrower than {WIDE} gain nothing from bfloat16")
        return "float32"
    log(f"precision: bfloat16, which this {world.device.type.upper()} is made for")
    return "bfloat16"


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and has_bfloat16()
