"""The model of a recipe: made, given weights to start from, and with the preprocessing it wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import config_fields, flat, merged, option_text, pair, size_of
from vitreous.data.label_sets import SETS, labels_for, labels_of
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.statistics import measure_statistics
from vitreous.errors import CheckpointError, ConfigError
from vitreous.import_run import known_preprocess
from vitreous.labels import LabelMap, NoLabels
from vitreous.models import (
    FAMILIES,
    TWO_TOWERS,
    configure,
    create,
    family_of,
    has_words,
    image_model,
)
from vitreous.models import names as model_names
from vitreous.models.model import Model
from vitreous.progress import Log
from vitreous.run_folder import Run
from vitreous.tasks import PRETRAINING, task_class
from vitreous.tasks.task import Task, is_classifier
from vitreous.train.recipe import Recipe
from vitreous.weights.adopt import find
from vitreous.weights.blank import without_values
from vitreous.weights.families import state_dict_of
from vitreous.weights.identify import detect_format, readings
from vitreous.weights.importing import import_weights
from vitreous.weights.origin import WeightFile, known_file, open_weights
from vitreous.weights.reading import assumptions
from vitreous.weights.rules.report import ImportReport
from vitreous.weights.towers import image_file, stated_of
from vitreous.wording import counted

DECIDED = {
    "classes": "the data decides it: leave it out",
    "channels": "use --set-recipe channels=N",
    "image_size": "use --image-size",
}
"""Fields of a model that are not set by --set."""
PRETRAINED = tuple(family for name in PRETRAINING for family in task_class(name).families)
"""The families of models around an encoder that is pre-trained in them."""


def wrapped(recipe: Recipe) -> Recipe:
    """With the model that is to be trained: of one with words the image tower. For pre-training, a
    model may be named that is to be the encoder: then that of the method is around it, and fields
    that only an encoder has are the encoder's."""
    recipe = of_images(recipe)
    if recipe.method is None or recipe.model is None:
        return recipe
    task = task_class(recipe.method)
    if task.takes(recipe.model) or not is_classifier(recipe.model):
        return recipe
    family, fields = task.around(recipe.model, {})
    named = tuple(f"{name}={value}" for name, value in fields.items() if value)
    part, own = FAMILIES[family].part, field_names(family)
    inner = field_names(configure(recipe.model)[0]) - own

    def placed(assignment: str) -> str:
        name = assignment.partition("=")[0].partition(".")[0]
        return f"{part}.{assignment}" if name in inner else assignment

    return replace(recipe, model=family, fields=(*named, *map(placed, recipe.fields)))


def field_names(family: str) -> set[str]:
    return {field.name for field in dataclass_fields(FAMILIES[family].config)}


def of_images(recipe: Recipe) -> Recipe:
    """With the image tower, where the model that is named has one for texts, too."""
    if recipe.model is not None and FAMILIES[configure(recipe.model)[0]].of_texts:
        raise ConfigError(
            f"model = {recipe.model!r} takes texts alone: choose one that sees images"
        )
    if recipe.model is None or not has_words(recipe.model):
        return recipe
    model, fields = image_model(recipe.model)
    size, usual = fields.pop("image_size"), configure(model)[1].image_size
    given = tuple(f"{n}={option_text(v)}" for n, v in fields.items() if n != "channels")
    sized = {} if recipe.image_size or size == usual else {"image_size": size}
    return replace(recipe, model=model, fields=(*given, *recipe.fields), **sized)


@dataclass(frozen=True)
class Start:
    """Weights to start from, and what is known about them."""

    model: str
    fields: dict[str, Any]
    labels: LabelMap | None
    preprocess: Preprocess | None
    weights: Path | WeightFile | dict[str, Tensor]
    assumed: tuple[str, ...] = ()
    """Fields of the model that the tensors do not show, and why they have these values."""


def find_start(recipe: Recipe) -> Start:
    """What `weights` names: a run folder, a catalog entry, or a file with or without a config."""
    assert recipe.weights is not None
    run = Run(recipe.weights)
    if run.exists and not run.is_foreign:
        config = run.read_config()
        # Another model than the run's is built as it is named; the weights then fit or do not.
        own = (None, config.model, config.family)
        other = recipe.model not in own and task_class(config.task).takes(recipe.model or "")
        fields = {} if other else dict(config.config)
        pretrained = task_class(config.task).pretrains and recipe.method != config.task
        if pretrained or config.family == TWO_TOWERS:
            return _encoder_of(config.create, run.read_weights(), config.preprocess, recipe)
        name = config.model if config.model in model_names() else config.family
        return Start(name, fields, config.labels, config.preprocess, run.stored_weights())
    assumed: tuple[str, ...] = ()
    stored = open_weights(recipe.weights)
    stated, stored = stated_of(stored.stated, "image"), image_file(stored)
    origin = stated.origin
    if stated.model is None and recipe.model is not None:  # as `find` does, if it is not named
        stated = known_file(stated, stored.path)
    if origin is not None and recipe.method is None and origin[0] in PRETRAINED:
        with without_values():
            whole = create(origin[0], **origin[1])
        known = known_preprocess(stated.preprocessing)
        return _encoder_of(lambda: whole, stored.tensors, known, recipe)
    if recipe.model is not None and is_classifier(recipe.model):
        origin = (recipe.model, {})
    elif recipe.model is not None and origin is None:
        origin = _stored_model(recipe.model, recipe, stored)
    elif origin is None:
        found = find(stored, format=recipe.weights_format, part="image")
        origin, stated = (found.model, found.fields), found.stated
        given = config_fields(recipe.fields)
        left = {name: why for name, why in found.assumed.items() if name not in given}
        assumed = tuple(assumptions(left))
    labels = labels_of(stated.names) if stated.names else None
    if labels is None and stated.labels in SETS:
        labels = labels_for(0, stated.labels)
    if not Path(recipe.weights).exists():  # what the catalog states is about another model
        stored = replace(stored, source="")
    preprocess = known_preprocess(stated.preprocessing)
    return Start(origin[0], origin[1], labels, preprocess, stored, assumed)


def _encoder_of(
    whole: Callable[[], Model],
    tensors: Mapping[str, Tensor],
    preprocess: Preprocess | None,
    recipe: Recipe,
) -> Start:
    """What was pre-trained, without what only pre-training needs."""
    with without_values():
        core, owner = whole().core, f"{FAMILIES[family_of(whole())].part}."
    family = family_of(core)
    name = core.name if core.name in model_names() else family
    fields = {name: value for name, value in flat(core.config).items() if name != "classes"}
    other = recipe.model not in (None, name, family) and is_classifier(recipe.model or "")
    inside = {k.removeprefix(owner): v for k, v in tensors.items() if k.startswith(owner)}
    return Start(name, {} if other else fields, None, preprocess, inside)


def _stored_model(model: str, recipe: Recipe, stored: WeightFile) -> tuple[str, dict[str, Any]]:
    """The model that a file without a config is for: `model` if the file has all of its parameters,
    or else a classifier: the one that its tensors show, or the one inside `model`."""
    with without_values():
        whole = create(model, **config_fields(recipe.fields))
    try:
        detect_format(whole, stored.tensors, str(recipe.weights))
    except CheckpointError:
        part = FAMILIES[family_of(whole)].part or ""
        named = f"{part}=" in " ".join(recipe.fields) or model not in FAMILIES
        seen = [] if named else readings(stored, format=recipe.weights_format)
        if seen and is_classifier(seen[0].model):
            return seen[0].model, seen[0].fields
        return str(getattr(whole.config, part)), {}
    return model, {}


def build(recipe: Recipe, task: type[Task], source: Source, start: Start | None, log: Log) -> Model:
    """The model, with weights where there are some to start from."""
    for option in ("weights_format", "keep_head"):
        if start is None and getattr(recipe, option):
            raise ConfigError(f"{option} = {getattr(recipe, option)!r} needs weights")
    for option in ("freeze", "unfreeze_after", "lora"):
        if start is None and getattr(recipe, option):
            log(f"{option}: what is not trained has random weights; --weights gives trained ones")
    name, changes = _named_fields(recipe, task, source, start)
    model = create(name, **changes)
    if start is not None:
        log(str(_load(model, recipe, source, start, log)))
        height, width = pair("image_size", model.config.image_size)
        part = FAMILIES[family_of(model)].part
        inside = f" with {part} {getattr(model.config, part)}" if part else ""
        log(f"model: {name}{inside}, images {height}x{width}")
        for each in start.assumed:
            log(f"assumed: {each}: the tensors do not show it; --set changes it")
    return model


def _named_fields(
    recipe: Recipe, task: type[Task], source: Source, start: Start | None
) -> tuple[str, dict[str, Any]]:
    """The model's name, and the fields of its config that are changed."""
    changes: dict[str, Any] = {}
    name = recipe.model
    if start is not None:
        if task.takes(start.model):
            name, changes = name or start.model, {**start.fields, **task.required}
        elif name in (None, *task.families):  # a classifier, for another task
            name, changes = task.around(start.model, start.fields, name)
    assert name is not None
    if not task.takes(name):
        raise ConfigError(
            f"the model {name!r} cannot {task.name}, which {source.name} is for: choose "
            f"{task.defaults.example}"
        )
    given = config_fields(recipe.fields)
    for field, instead in DECIDED.items():
        if field in given:
            raise ConfigError(f"{field} = {given[field]}: {instead}")
    # Any size fits; this one was trained, or its positions are resampled to it in use.
    fits_any = task.truth.any_size and "image_size" not in changes
    if start and start.preprocess and (fits_any or changes.get("dynamic_size")):
        changes["image_size"] = start.preprocess.image_size
    changes = merged(changes, given)
    if outputs := task.outputs(source.labels):
        changes["classes"] = len(outputs)
    changes["channels"] = recipe.channels
    if recipe.image_size:
        changes["image_size"] = size_of("image_size", recipe.image_size)
    if changes.get("head") in ("none", "projection"):  # published without a head for classes
        changes["head"] = "linear"
    head = changes.get("head")
    worded = isinstance(head, Mapping) and head.get("kind") == "similarity"
    if start and worded and not (recipe.keep_head or _same_classes(source, start)):
        changes["head"] = "linear"  # the rows of that one are vectors of other words
    return name, changes


def _load(model: Model, recipe: Recipe, source: Source, start: Start, log: Log) -> ImportReport:
    """Weights of a classifier go into the part of the model that is one. The head stays where the
    classes are the same."""
    names, theirs = source.labels.names, start.labels or NoLabels()
    known = theirs.names
    inside = model.core is not model and is_classifier(start.model)
    if recipe.keep_head and inside:
        raise ConfigError(
            f"keep_head: weights of {start.model!r}, a classifier, become a part of this model, "
            "whose head is another: leave it out"
        )
    count = len(known)
    if recipe.keep_head and not known:
        count = configure(start.model, **start.fields)[1].classes
    if recipe.keep_head and count != len(names):
        raise ConfigError(
            f"keep_head: the head of the weights has {counted(count, 'class')}, {source.name} has "
            f"{len(names)}: leave it out for a new head"
        )
    order = _order(source, start)
    same = _same_classes(source, start)
    same &= start.fields.get("head") not in ("none", "projection")
    # Only in the head of a classifier it is known which rows are those of classes.
    ordered = same and (order == sorted(order) or model.core is model)
    keep = recipe.keep_head or (ordered and not inside)
    into = model.core if inside else model
    about = state_dict_of(into)
    reinit = [] if keep else [*(about.behind_maps if inside else about.classwise(model))]
    if not inside:
        with without_values():
            parts = dict(create(start.model, **start.fields).named_children())
        # what the model of the weights does not have, such as a detector's mask head
        reinit += [f"{name}.*" for name, _ in model.named_children() if name not in parts]
    report = import_weights(
        into,
        start.weights,
        recipe.weights_format,
        reinit=reinit,
        resample="bicubic",
        adapt_channels=True,
        keep=["pad"] if inside else [],  # inside, images of any size are padded
    )
    if keep and not recipe.keep_head:
        _reorder(model, order)
    if names:
        log(f"head: {_about_head(keep, recipe, names, known)}")
    if into is not model:  # what the import has set inside is part of the whole's config
        name = f"{FAMILIES[family_of(model)].part}_fields"
        fields = {**getattr(model.config, name), "norm_eps": into.config.norm_eps}
        model.config = replace(model.config, **{name: fields})
    return report


def _order(source: Source, start: Start) -> list[int]:
    """For each class of the data that the weights know, its number there."""
    theirs = start.labels or NoLabels()
    numbers = (theirs.named(name) for name in source.labels.names)
    return [number for number in numbers if number is not None]


def _same_classes(source: Source, start: Start) -> bool:
    """Whether data and weights have the same classes, in whatever order."""
    count = len(start.labels or NoLabels())
    return count == len(source.labels) > 0 and sorted(_order(source, start)) == [*range(count)]


CLASS_LAYERS = ("head.out.", "head.distillation.", "head.words.")
"""With a row for each class, in the heads of classifiers."""


@torch.no_grad()
def _reorder(model: Model, order: Sequence[int]) -> None:
    """The rows of the head, in the order in which the data has the classes."""
    for name, parameter in model.named_parameters():
        if name.startswith(CLASS_LAYERS) and list(order) != sorted(order):
            parameter.copy_(parameter[list(order)].clone())


def _about_head(keep: bool, recipe: Recipe, names: Sequence[str], known: Sequence[str]) -> str:
    count = counted(len(names), "class")
    if recipe.keep_head:
        return f"kept, as asked: its {count} are taken for those of the data, in this order"
    if keep:
        return f"kept: the weights know the same {count}"
    if known:
        return f"new, for {count}: the weights know {len(known)} others"
    return f"new, for {count}: the weights name none (--set-recipe keep_head=true keeps theirs)"


def preprocess_of_plan(
    recipe: Recipe, task: type[Task], source: Source, start: Start | None
) -> Preprocess:
    """What a model by this recipe will see of images, but for mean and std; it is not built."""
    name, changes = _named_fields(recipe, task, source, start)
    return _fitted(recipe, task, configure(name, **changes)[1], start)


def _fitted(recipe: Recipe, task: type[Task], config: Any, start: Start | None) -> Preprocess:
    return task.defaults.choose_preprocess(
        config.image_size,
        config.channels,
        None if start is None else start.preprocess,
        resize=recipe.resize,
        longest=recipe.longest,
        interpolation=recipe.interpolation,
    )


def choose_preprocess(
    recipe: Recipe,
    task: type[Task],
    model: Model,
    source: Source,
    samples: Sequence[Sample],
    start: Start | None,
    log: Log,
) -> Preprocess:
    """From the recipe, else as the weights were trained, else measured on the data."""
    config = model.config
    known = None if start is None else start.preprocess
    base = _fitted(recipe, task, config, start)
    origin = "as given"
    mean, std = recipe.mean, recipe.std
    if known is not None and len(known.mean) in (1, config.channels):
        origin = "" if not mean and not std else origin
        mean, std = mean or known.mean, std or known.std
    if not mean or not std:
        measured = measure_statistics(source, samples, base)
        mean, std = mean or measured[0], std or measured[1]
        origin = "measured on the training images"
        if start is not None and known is None:
            origin += ", because the weights do not state theirs (keys mean and std of the recipe)"
    found = replace(base, mean=mean, std=std)
    if known is None:
        log(f"mean and std: {mean}, {std}, {origin}")
    else:
        besides = f"; mean and std {origin}" if origin else ""
        log(f"preprocessing: {found.described()}{_of_weights(found, known)}{besides}")
    return found


def _of_weights(found: Preprocess, known: Preprocess) -> str:
    """What of the preprocessing is as the weights were trained with."""
    if found == replace(known, channels=found.channels):
        return ", as the weights were trained with"
    fit = ("resize", "crop") if found.whole == known.whole else ()
    names = [
        name
        for name in (*fit, "interpolation", "mean", "std")
        if getattr(found, name) == getattr(known, name)
    ]
    return f"; of these, as the weights were trained with: {', '.join(names)}" if names else ""
