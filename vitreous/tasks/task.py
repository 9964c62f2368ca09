"""The interface of a task. Loop, predictor, data check and commands know nothing more of it.

What a task advises (model, batch, epochs) is beside it, in `Defaults`; what it shows to people
(printing, drawing, report, explanation) is in its `show.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from vitreous.config import flat
from vitreous.data.check.truth_check import TruthCheck
from vitreous.data.loader import Batch
from vitreous.data.source import Sample, Source
from vitreous.data.truth import Truth
from vitreous.errors import ConfigError, DataError
from vitreous.labels import IGNORED, LabelMap
from vitreous.models import FAMILIES, canonical, configure
from vitreous.models.model import Model
from vitreous.progress import Log as Log
from vitreous.tasks.bootstrap import Intervals, intervals
from vitreous.tasks.defaults import Defaults
from vitreous.tasks.metric import Metric
from vitreous.tasks.verdict import Baseline, Finding, Signs

if TYPE_CHECKING:
    from vitreous.tasks.objects.object_task import ObjectTask

Sizes = Sequence[tuple[int, int]]
"""Height and width of each image."""
See = Callable[[Batch, Any, Any], None]
"""Is shown a batch with the task's predictions and the targets in our classes."""


class Engine(Protocol):
    """Runs a model: (b, c, h, w), normalised -> what the torch model gives. Safe from threads."""

    name: str
    precision: str
    image_size: tuple[int, int]
    """Height and width that the model is made for."""

    def __call__(self, images: Tensor) -> Any: ...

    def vectors(self, images: Tensor, pool: str) -> Tensor: ...

    def vector_length(self, pool: str) -> int: ...


class TaskMetrics:
    """How good a model is, accumulated as counts: batches may come in any order and size."""

    def update(self, output: Any, targets: Any) -> None:
        raise NotImplementedError

    def counts(self) -> Tensor:
        """Everything accumulated, as one tensor on the CPU."""
        raise NotImplementedError

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        """The counts of several processes as those of one."""
        return torch.stack(list(parts)).sum(dim=0)

    def compute(self, counts: Tensor) -> dict[str, Any]:
        """Numbers by name."""
        raise NotImplementedError

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        """Blocks of the main numbers by name, (draws,) each, as other draws of the images that this
        object has seen give them. The n-th draw is of the same images for all objects that have
        seen as many: two models are compared by the differences."""
        return iter(())

    def each(self) -> Tensor:
        """(images,): how good the prediction for each image is by itself, in the order in which
        this object has seen them, as the task's `image_metric` is read; NaN where it cannot be
        known. Empty: of single images nothing is kept."""
        return torch.zeros(0)

    def answers(self) -> Sequence[Hashable]:
        """Of each image the one answer that is right or wrong; none where answers are not so."""
        return ()

    def intervals(self) -> Intervals:
        """95 % confidence intervals of the main numbers, of what this object has seen itself."""
        return intervals(self.resampled())


class Task:
    """One way to use a model. A subclass is one task, an instance is it for certain classes."""

    name: ClassVar[str]
    purpose: ClassVar[str]
    """What it is for, in a few words."""
    metric: ClassVar[Metric]
    """The one that decides which weights are kept,"""
    other_metrics: ClassVar[tuple[Metric, ...]] = ()
    """others that have intervals,"""
    image_metric: ClassVar[Metric | None] = None
    """How good the prediction for a single image is; None: by `metric`, too,"""
    watched: ClassVar[tuple[str, ...]] = ()
    """and numbers of an evaluation that the progress shows, too."""
    pretrains: ClassVar[bool] = False
    """Whether what it learns is an encoder for other tasks."""
    truth: ClassVar[Truth] = Truth()
    families: ClassVar[tuple[str, ...]] = ()
    """The model families that are made for it; none: every family that classifies."""
    required: ClassVar[dict[str, Any]] = {}
    """Fields that their config must have, where other tasks have the same families."""
    options: ClassVar[frozenset[str]] = frozenset()
    """The options of training, of those that only some tasks understand, that this one does,"""
    refused: ClassVar[frozenset[str]] = frozenset()
    """and those that all others understand, and this one does not."""
    crops: ClassVar[tuple[str, ...]] = ("resized", "shift", "none")
    """The random crops that suit its ground truth."""
    resizes: ClassVar[tuple[str, ...]] = ("shorter", "square")
    windows: ClassVar[bool] = False
    """Whether the model goes over large images in windows of its own size."""
    defaults: ClassVar[Defaults] = Defaults()
    """What it advises."""

    def __init__(self, labels: LabelMap) -> None:
        self.labels = labels

    @classmethod
    def outputs(cls, labels: LabelMap) -> tuple[str, ...]:
        """The names of what a model's head gives: the classes, or what else is learned."""
        return labels.names

    # Learning

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        """With the loss that the recipe asks for."""
        return cls(source.labels)

    def loss(self, output: Any, targets: Any, teacher: Tensor | None = None) -> dict[str, Tensor]:
        """The terms by name, each a mean over the batch; their sum is what training minimises."""
        raise NotImplementedError

    @classmethod
    def views(cls, model: Model) -> int:
        """How many augmented views of each image a batch has: with several, images are
        (b, v, c, h, w)."""
        return 1

    teacher: str = ""
    """The name of a model whose vectors its metrics need,"""
    ask: Callable[[Tensor], Tensor]
    """and those for normalised images, given by whoever can load that model."""

    @classmethod
    def fields_for(cls, teacher: Model | None) -> tuple[str, ...]:
        """Changes to the config of the model that is to learn from a teacher."""
        return ()

    @classmethod
    def prepare(cls, model: Model, vectors: Tensor) -> None:
        """Before the first step, given the vectors that the teacher has for some images."""

    def not_finite(self, output: Any, targets: Any) -> tuple[int, str] | None:
        """For a loss that is not finite: the image's index in the batch, and what of it is not."""
        return None

    def count_of(self, targets: Any) -> int | None:
        """How many items the loss is a mean over, where batches differ in that.

        Then `loss` takes `count`: their mean number in each process and part of the batch.
        """
        return None

    # Answering

    def infer(self, engine: Engine, images: Any, sizes: Sizes) -> Any:
        """The predictions for prepared images, on the CPU, as `decode` and the metrics take them;
        unless a task does it otherwise, just what the model gives.

        images: (b, c, h, w), or a list of (c, h, w) where sizes differ; sizes: the height and width
        that each has where it is stored.
        """
        return engine(images).cpu()

    def decode(self, output: Any, images: list[str]) -> list[Any]:
        """Results, one per image."""
        raise NotImplementedError

    def objects(self, refused: str) -> ObjectTask:
        """What only a task that finds objects can do; of any other, an error with these words."""
        raise ConfigError(refused)

    def decoding(self, result: dict[str, Any]) -> dict[str, Any]:
        """What `decode` takes from the metrics on val, such as thresholds, as plain data. The run
        folder keeps that of the best weights, and `restored` is given it."""
        return {}

    @classmethod
    def restored(cls, labels: LabelMap, decoding: dict[str, Any]) -> Self:
        """For prediction, as a run folder describes it."""
        if decoding:
            raise ConfigError(f"decoding: the task {cls.name} has no {', '.join(decoding)}")
        return cls(labels)

    # Judging

    def metrics(self) -> TaskMetrics:
        raise NotImplementedError

    def judge(self, last: Mapping[str, Any]) -> list[Finding] | None:
        """What the last evaluation of a training says, for a task whose metrics say nothing by
        themselves; None: results are compared with baselines."""
        return None

    def baselines(self) -> list[Baseline]:
        """What knows nothing, for comparison; the strongest first."""
        return []

    def signs(self) -> Signs:
        """Of faults in predictions."""
        return Signs()

    def renamed(self, targets: Any, here: Sequence[int]) -> Any:
        """The targets of other data, where class i is our class here[i]."""
        if not here:
            return targets
        if isinstance(targets, Tensor):
            # IGNORED finds the last row, and stays what it is
            return torch.tensor([*here, IGNORED])[targets.long()]
        return [self.renamed(target, here) for target in targets]

    # Data

    @classmethod
    def checker(cls) -> TruthCheck:
        """What the data check looks for in the ground truth."""
        raise NotImplementedError

    @classmethod
    def check_trainable(cls, source: Source) -> None:
        """Data from which nothing can be learned is an error."""

    @classmethod
    def check_model(cls, source: Source, model: Model, log: Log) -> None:
        """Logs where a model does not suit the data."""

    # Models

    @classmethod
    def takes(cls, model: str) -> bool:
        """Whether the model of this name is made for this task."""
        family = configure(model)[0]
        return family in cls.families if cls.families else is_classifier(model)

    @classmethod
    def has_required(cls, config: Any) -> bool:
        return all(getattr(config, name, None) == value for name, value in cls.required.items())

    @classmethod
    def around(
        cls, model: str, fields: dict[str, Any], family: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """A model for this task, of a family that it has or its usual one, with a classifier and
        its fields inside it: family and fields."""
        if not cls.families or not is_classifier(model):
            raise ConfigError(f"weights of {model!r} cannot become a model to {cls.name}")
        family = family or cls.families[0]
        part = FAMILIES[family].part
        own = {"image_size", "channels", "classes", "head"}
        given = canonical(configure(model)[0], fields)
        given = {name: value for name, value in given.items() if name not in own}
        usual, made = (flat(configure(model, **changes)[1]) for changes in ({}, given))
        # What is as usual stays open: inside, images of any size are padded to whole patches.
        inner = {name: v for name, v in given.items() if made[name] != usual.get(name)}
        found: dict[str, Any] = {str(part): model, f"{part}_fields": inner, **cls.required}
        return family, found | ({"image_size": s} if (s := fields.get("image_size")) else {})


def check_two_classes(source: Source) -> None:
    """For a task that tells classes apart."""
    if len(source.labels) < 2:
        raise DataError(
            f"{source.name} has only the class {source.labels.names[0]!r}: nothing to tell apart"
        )


def is_classifier(model: str) -> bool:
    """Whether the model of this name takes images and stands alone, not around another one."""
    made = FAMILIES[configure(model)[0]]
    return made.part is None and not made.of_texts


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where there is nothing."""
    return torch.where(whole > 0, part / whole.clamp(min=1e-12), torch.zeros_like(part))
