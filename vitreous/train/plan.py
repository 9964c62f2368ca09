"""What a recipe leaves open, chosen from the data and the machine; each choice is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from vitreous.config import pair, size_of
from vitreous.data.source import Source
from vitreous.errors import ConfigError
from vitreous.models.model import Model
from vitreous.tasks import task_for
from vitreous.train.distributed import World
from vitreous.train.recipe import Recipe

Log = Callable[[str], None]


def look_at(source: Source, count: int = 64) -> tuple[int, int, int, bool]:
    """Height, width (medians) and channels of some images, evenly picked; are all of one size?"""
    samples = source.splits["train"]
    step = max(len(samples) // count, 1)
    shapes = [tuple(source.image(sample).shape) for sample in samples[::step][:count]]
    middle = len(shapes) // 2
    channels = max({shape[0] for shape in shapes}, key=[shape[0] for shape in shapes].count)
    height, width = (sorted(s[axis] for s in shapes)[middle] for axis in (1, 2))
    return height, width, channels, len({shape[1:] for shape in shapes}) == 1


def fill_in(recipe: Recipe, source: Source, count: int, world: World, log: Log) -> Recipe:
    """The recipe with everything decided, for an epoch of `count` images."""
    height, width, channels, alike = look_at(source)
    device = world.device
    on_cpu = device.type == "cpu"
    small = max(height, width) <= 80
    changes: dict[str, Any] = {}
    if recipe.channels is None:
        changes["channels"] = channels
        log(f"channels: {channels}, as most images have")
    channels = recipe.channels or channels
    dense = _task(source) != "classify"
    if recipe.model is None and recipe.weights is None:
        choose: dict[str, Callable[..., dict[str, Any]]]
        choose = {"classify": _model, "segment": _segmenter, "detect": partial(_detector, source)}
        changes |= choose[_task(source)](recipe, height, width, small, on_cpu, log)
    if recipe.batch is None:
        most = 16 if dense else 128 if small else 64
        batch = max(8, min(most, 1 << (count // 16).bit_length() >> 1))
        if recipe.overfit:
            # A detector learns images by heart in many steps, not in large ones: after 50 passes
            # over eight its AP is 0.040 in batches of two, 0.0015 in batches of eight.
            few = max(1, recipe.overfit // 4) if _task(source) == "detect" else recipe.overfit
            batch = min(batch, few)
        parts = world.size * recipe.accumulate
        changes["batch"] = -(-batch // parts) * parts
        log(f"batch: {changes['batch']}")
    if recipe.epochs is None:
        budget = (40_000 if recipe.weights else 80_000) if on_cpu else 3_000_000
        if dense and not small:  # by the pixels that are learned from
            budget //= 8
        few = 12 if _task(source) == "detect" else 20
        changes["epochs"] = few if recipe.overfit else max(5, min(100, round(budget / count)))
        log(f"epochs: {changes['epochs']}, for {count:,} training images on {device.type}")
    if recipe.lr is None and recipe.weights is None:
        # beyond that, a DETR never learns to look at one object with each query
        changes["lr"] = 5e-4 if _task(source) == "detect" else 2e-3 if small else 1e-3
        log(f"lr: {changes['lr']:g}, from scratch")
    if recipe.crop is None:
        size = changes.get("image_size", recipe.image_size)
        fits = (
            alike
            and bool(size)
            and pair("image_size", size_of("image_size", size)) == ((height, width))
        )
        as_they_are = bool(recipe.overfit) and (_task(source) != "segment" or fits)
        changes["crop"] = "none" if as_they_are else _crop(_task(source), small, fits)
        log(f"crop: {changes['crop']}")
    _check_crop(recipe, changes.get("crop", recipe.crop), log)
    if recipe.flip is None:
        # Digits, letters and scans are gray, and mirrored they are something else.
        changes["flip"] = channels != 1 and not recipe.overfit
        gray = ", for gray images" if channels == 1 else ""
        log(f"flip: {changes['flip']}{gray}")
    if recipe.smoothing is None and _task(source) != "detect":
        changes["smoothing"] = 0.0 if dense else 0.1
    if recipe.workers is None:
        cores = os.cpu_count() or 1
        changes["workers"] = 0 if small or cores < 2 else min(cores - 1 if on_cpu else cores, 8)
        log(f"workers: {changes['workers']}")
    return replace(recipe, **changes)


def _check_crop(recipe: Recipe, crop: str | None, log: Log) -> None:
    """An option that the crop does not heed is refused, or said if the crop was not asked for."""
    for name, only in (("scale", "resized"), ("zoom", "window")):
        value = getattr(recipe, name)
        if value != getattr(Recipe, name) and crop != only:
            what = f"{name} = {value} means nothing with crop = {crop!r}, only with {only!r}"
            if recipe.crop is not None:
                raise ConfigError(what)
            log(f"{what}: not used")


def _crop(task: str, small: bool, fits: bool) -> str:
    """Small images have nothing to lose; of large ones a part is enough to learn from.

    fits: every image has the model's own size.
    """
    if task == "detect":
        return "none" if small else "window"
    if small and (fits or task == "classify"):
        return "shift"
    return "window" if task == "segment" else "resized"


def fine_tuning_rate(model: Model) -> float:
    """1e-4 for a model as wide as ViT-B, and more for narrower ones, which bear it and need it."""
    return float(f"{min(1e-4 * 768 / model.width, 1e-3):.1g}")


def _model(
    recipe: Recipe, height: int, width: int, small: bool, on_cpu: bool, log: Log
) -> dict[str, Any]:
    """A model that learns from scratch on this much data: the place of a patch is taken from its
    neighbours (CPVT), and the patches are averaged, which small data sets reward."""
    if small:
        side = max(height, width)
        patch = 2 if side <= 16 else 4 if side <= 40 else 8
        dim, depth, heads = (64, 6, 4) if side <= 16 else (128, 6, 4)
        size = recipe.image_size or _whole_patches(height, width, patch)
        fields = (*_small_vit(patch, dim, depth, heads), *recipe.fields)
        log(f"model: a ViT of {depth} blocks, {dim} wide, patches of {patch}, images {size}")
        return {"model": "vit", "fields": fields, "image_size": size}
    side = 128 if on_cpu else 224
    log(f"model: cpvt-ti/16-gap at {side} pixels")
    return {"model": "cpvt-ti/16-gap", "image_size": recipe.image_size or (side, side)}


def _small_vit(patch: int, dim: int, depth: int, heads: int) -> tuple[str, ...]:
    return (
        f"patch={patch}",
        f"dim={dim}",
        f"depth={depth}",
        f"heads={heads}",
        f"mlp_dim={2 * dim}",
        "position=conditional",
        "tokens=none",
        "pool=mean",
        "drop_path=0.1",
    )


def _whole_patches(height: int, width: int, patch: int) -> tuple[int, ...]:
    return tuple(-(-side // patch) * patch for side in (height, width))


def _segmenter(
    recipe: Recipe, height: int, width: int, small: bool, on_cpu: bool, log: Log
) -> dict[str, Any]:
    """A model that learns masks from scratch: with convolutions before its blocks it does so
    several times as fast as with patches alone."""
    side = 192 if on_cpu else 512
    size = recipe.image_size or (_whole_patches(height, width, 8) if small else (side, side))
    if small or on_cpu:
        log(f"model: segmenter-mini/8, images {size}")
        return {"model": "segmenter-mini/8", "image_size": size}
    log(f"model: segmenter-s/16 over cpvt-s/16, images {size}")
    fields = ("encoder=cpvt-s/16", "encoder.drop_path=0.1", *recipe.fields)
    return {"model": "segmenter-s/16", "fields": fields, "image_size": size}


def most_objects(source: Source, count: int = 2000) -> int:
    """In one training image, of some that are evenly picked."""
    samples = source.splits["train"]
    step = -(-len(samples) // count)
    return max(int((~source.truth(sample)["crowd"]).sum()) for sample in samples[::step])


def warn_of_crowded_images(source: Source, model: Model, log: Log) -> None:
    most, queries = most_objects(source), model.config.queries
    if not most:
        log("there is no object in the images to train on: nothing can be learned from them")
    if most > queries:
        log(
            f"there are images with {most} objects, and the model has {queries} queries: it cannot "
            f"find them all; give --set queries={2 * most}"
        )


def _detector(
    source: Source, recipe: Recipe, height: int, width: int, small: bool, on_cpu: bool, log: Log
) -> dict[str, Any]:
    """A DETR that learns from few images; a large one from scratch would take days and find
    nothing, so that is left to those who have weights."""
    side = 256 if on_cpu else 512
    size = recipe.image_size or ((height, width) if small else (side, side))
    most = most_objects(source)
    # With fewer queries each of them is right more often, and learns sooner: a third of the steps
    # for 8 instead of 12 where there are up to 4 objects.
    queries = max(2 * most, 8)
    stages = ("backbone.stages=[1,1]",) if small else ()
    log(f"model: detr-small, images {size}, {queries} queries for up to {most} objects")
    fields = (f"queries={queries}", *stages, *recipe.fields)
    return {"model": "detr-small", "fields": fields, "image_size": size}


def _task(source: Source) -> str:
    return task_for(source.truth_kind).name
