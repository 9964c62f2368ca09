"""Decides what a recipe leaves open, from the data and the machine; each decision is logged."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

import torch

from vitreous.config import config_fields, pair, size_of
from vitreous.data.source import Source
from vitreous.engines.cpu import has_bfloat16
from vitreous.engines.world import World
from vitreous.errors import ConfigError
from vitreous.models import create
from vitreous.models.model import Model
from vitreous.progress import Log
from vitreous.tasks import TASKS, task_class
from vitreous.tasks.task import Glance, Task, glance_at
from vitreous.train.build_model import Start
from vitreous.train.recipe import Recipe
from vitreous.train.threads import available_cores

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
    device = world.device
    glance = glance_at(source, device.type == "cpu")
    changes: dict[str, Any] = {}
    if recipe.channels is None:
        changes["channels"] = glance.channels
        log(f"channels: {glance.channels}, as most images have")
    channels = recipe.channels or glance.channels
    if start is not None and not task.takes(start.model):
        chosen_around = task.choose_around(source, glance, recipe.model)
        if recipe.overfit:  # what is learnt by heart is not changed
            chosen_around.pop("crop", None)
        for name, value in chosen_around.items():
            if name == "fields":
                changes[name] = (*value, *recipe.fields)
            elif name == "optimizer" and recipe.shard:
                continue  # Muon needs whole matrices
            elif getattr(recipe, name) in (None, ()):
                changes[name] = value
        if "optimizer" in changes:
            log(f"optimizer: {changes['optimizer']}, for what is new around the weights")
        if "image_size" in changes:
            height, width = pair("image_size", size_of("image_size", changes["image_size"]))
            log(f"image size: {height}x{width}, for images of {glance.height}x{glance.width}")
    if recipe.model is None and recipe.weights is None:
        chosen = task.choose_model(source, glance)
        size = recipe.image_size or chosen.image_size
        changes |= {"model": chosen.name, "image_size": size}
        changes["fields"] = (*chosen.fields, *recipe.fields)
        if chosen.resize is not None and recipe.resize is None and recipe.longest is None:
            changes["resize"] = chosen.resize
        height, width = pair("image_size", size_of("image_size", size))
        log(f"model: {chosen.reason}, images {height}x{width}")
    elif recipe.weights is None and not recipe.image_size and not task.dense:
        fitting = fitting_size(str(recipe.model), recipe.fields, glance)
        if fitting is not None:
            changes["image_size"] = fitting
            log(f"image size: {fitting[0]}, for images of {glance.height}x{glance.width}")
    elif start is not None and not recipe.image_size and not task.dense:
        enlarged = fine_tuning_size(start, glance)
        if enlarged is not None:
            changes["image_size"] = enlarged
            log(
                f"image size: {enlarged[0]}, which on a CPU is enough for images of "
                f"{glance.height}x{glance.width} (--image-size for another)"
            )
    if recipe.batch is None:
        batch = task.choose_batch(count, fine_tunes=recipe.weights is not None)
        if recipe.overfit:
            batch = min(batch, task.overfit_batch(recipe.overfit))
        parts = world.size * recipe.accumulate
        changes["batch"] = -(-batch // parts) * parts
        log(f"batch: {changes['batch']}")
    if recipe.epochs is None and recipe.time is None:
        least, most, budget = task.effort(glance, fine_tunes=recipe.weights is not None)
        usual = max(least, min(most, round(budget / count)))
        changes["epochs"] = task.overfit_epochs if recipe.overfit else usual
        log(f"epochs: {changes['epochs']}, for {count:,} training images on {device.type}")
    if recipe.optimizer is None and "optimizer" not in changes:
        # Weights that AdamW has trained are best fine-tuned by it, too.
        scratch = recipe.weights is None and not recipe.shard
        model = changes.get("model", recipe.model) or ""
        by_muon = scratch and task.scratch_optimizer(glance, model) == "muon"
        changes["optimizer"] = "muon" if by_muon else "adamw"
        why = "which learns faster from scratch" if by_muon else "as usual"
        log(f"optimizer: {changes['optimizer']}, {why}")
    if recipe.lr is None and recipe.weights is None:
        muon = changes.get("optimizer", recipe.optimizer) == "muon"
        changes["lr"] = task.scratch_lr(glance.small) * (task.muon_lr if muon else 1)
        log(f"lr: {changes['lr']:g}, from scratch")
    if recipe.crop is None and "crop" not in changes:
        size = changes.get("image_size", recipe.image_size)
        fits = (
            glance.same_size
            and bool(size)
            and pair("image_size", size_of("image_size", size)) == (glance.height, glance.width)
        )
        any_size = fits or not task.windows
        whole = bool(recipe.overfit) and any_size
        # Small images are enlarged for pre-trained weights: then their parts can be seen, too.
        small = glance.small and (recipe.weights is None or task.dense)
        changes["crop"] = "none" if whole else task.crop_for(small, fits)
        log(f"crop: {changes['crop']}")
    _check_crop(recipe, changes.get("crop", recipe.crop), log)
    if recipe.flip is None:
        # Digits, letters and scans are gray, and flipped they are something else.
        changes["flip"] = channels != 1 and source.may_flip and not recipe.overfit
        gray = ", for gray images" if channels == 1 else ""
        log(f"flip: {changes['flip']}{gray}")
    if recipe.class_weights is None:
        changes["class_weights"] = task.choose_class_weights(fine_tunes=recipe.weights is not None)
        if changes["class_weights"] != "none":
            log(f"class weights: {changes['class_weights']}, so that rare classes are learned too")
    if recipe.smoothing is None and task.default_smoothing is not None:
        changes["smoothing"] = task.default_smoothing
    if recipe.workers is None:
        cores = available_cores()
        some = min(cores - 1 if glance.on_cpu else cores, 8)
        changes["workers"] = 0 if glance.small or cores < 2 else some
        log(f"workers: {changes['workers']}")
    return replace(recipe, **changes)


def fitting_size(model: str, fields: tuple[str, ...], glance: Glance) -> tuple[int, int] | None:
    """For small images, a size below the model's own: not smaller than the images, and with at
    least four patches, or two positions of a pyramid's last map, a side. None: its own."""
    given = config_fields(fields)
    if not glance.small or "image_size" in given:
        return None
    with torch.device("meta"):
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
    with torch.device("meta"):
        made = create(start.model, **start.fields)
    patch = max(made.levels(made.own_size())[-1].pixels)
    side = -(-4 * max(glance.height, glance.width) // patch) * patch
    return (side, side) if side < min(made.own_size()) else None


def _check_crop(recipe: Recipe, crop: str | None, log: Log) -> None:
    """An option that the crop does not use is refused, or logged if the crop was not asked for."""
    for name, only in (("scale", "resized"), ("zoom", "window")):
        value = getattr(recipe, name)
        if value != getattr(Recipe, name) and crop != only:
            what = f"{name} = {value} has no effect with crop = {crop!r}, only with {only!r}"
            if recipe.crop is not None:
                raise ConfigError(what)
            log(f"{what}: not used")


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
