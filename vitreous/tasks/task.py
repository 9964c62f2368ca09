"""The interface of a task. Loop, predictor, data check and commands know nothing more of it.

What a task shows to people (printing, drawing, report, explanation) is in its `show.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from vitreous.config import Size, pair
from vitreous.data.check.truth_check import TruthCheck
from vitreous.data.loader import Batch
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.truth import Truth
from vitreous.errors import ConfigError, DataError
from vitreous.labels import IGNORED, LabelMap
from vitreous.models import FAMILIES, configure
from vitreous.models.model import Model
from vitreous.progress import Log as Log
from vitreous.tasks.bootstrap import Intervals, intervals
from vitreous.tasks.tiles import Tile
from vitreous.tasks.verdict import Baseline, Finding, Signs

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


class Metrics:
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

    def intervals(self) -> Intervals:
        """95 % confidence intervals of the main numbers, of what this object has seen itself."""
        return intervals(self.resampled())


class Glance(NamedTuple):
    """What some training images, and the machine, look like."""

    height: int
    width: int
    """Medians."""
    channels: int
    """Of most images."""
    same_size: bool
    """Whether all images have one size."""
    on_cpu: bool
    classes: int = 0

    @property
    def small(self) -> bool:
        """Images with nothing to lose: they are used at their own size."""
        return max(self.height, self.width) <= 80

    def whole_patches(self, patch: int) -> tuple[int, int]:
        """The size, rounded up to multiples of `patch`."""
        return -(-self.height // patch) * patch, -(-self.width // patch) * patch


def glance_at(source: Source, on_cpu: bool, count: int = 64) -> Glance:
    """At some training images, evenly picked."""
    samples = source.splits["train"]
    step = max(len(samples) // count, 1)
    shapes = [tuple(source.image(sample).shape) for sample in samples[::step][:count]]
    channels = max({shape[0] for shape in shapes}, key=[shape[0] for shape in shapes].count)
    height, width = (sorted(s[axis] for s in shapes)[len(shapes) // 2] for axis in (1, 2))
    same_size = len({shape[1:] for shape in shapes}) == 1
    return Glance(height, width, channels, same_size, on_cpu, len(source.labels))


TINY = 16
"""Pixels of a side."""


class ModelChoice(NamedTuple):
    """The model to train from scratch where none is named."""

    name: str
    image_size: tuple[int, int]
    fields: tuple[str, ...] = ()
    """Changes to its config."""
    reason: str = ""
    resize: str | None = None
    """How images come to this size, if not as usual for the task."""


class Task:
    """One way to use a model. A subclass is one task, an instance is it for certain classes."""

    name: ClassVar[str]
    purpose: ClassVar[str]
    """What it is for, in a few words."""
    primary: ClassVar[str]
    """The metric that decides which checkpoint is best;"""
    primary_name: ClassVar[str] = ""
    """what people call it."""
    lower_is_better: ClassVar[bool] = False
    """Whether smaller values of it are; else larger ones."""
    watched: ClassVar[tuple[str, ...]] = ()
    """Other numbers of an evaluation that the progress shows."""
    learns_classes: ClassVar[bool] = True
    """Whether its models have an output for each class of the data."""
    truth: ClassVar[Truth] = Truth()
    families: ClassVar[tuple[str, ...]] = ()
    """The model families that are made for it; none: every family that classifies."""
    needs: ClassVar[str] = ""
    """A field that must be on in their config, where other tasks have the same families."""
    example: ClassVar[str] = "one like 'vit-s/16'"
    """A model to choose, for error messages."""
    options: ClassVar[frozenset[str]] = frozenset()
    """The options of training, of those that only some tasks understand, that this one does,"""
    refused: ClassVar[frozenset[str]] = frozenset()
    """and those that all others understand, and this one does not."""
    crops: ClassVar[tuple[str, ...]] = ("resized", "shift", "none")
    """The random crops that suit its ground truth."""
    resizes: ClassVar[tuple[str, ...]] = ("shorter", "square")
    dense: ClassVar[bool] = False
    """Whether it predicts positions in the image, so that nothing may be cropped away."""
    windows: ClassVar[bool] = False
    """Whether the model goes over large images in windows of its own size."""
    tiles: ClassVar[bool] = False
    """Whether predictions for tiles of an image can be merged into those for the image."""
    least_classes: ClassVar[int] = 2

    def __init__(self, labels: LabelMap) -> None:
        self.labels = labels

    @classmethod
    def better(cls, value: float, other: float) -> bool:
        """Whether one value of the primary metric is better than another."""
        return value < other if cls.lower_is_better else value > other

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

    def infer(self, engine: Engine, images: Any, sizes: Sequence[tuple[int, int]]) -> Any:
        """The predictions for prepared images, on the CPU, as `decode` and the metrics take them.

        images: (b, c, h, w), or a list of (c, h, w) where sizes differ; sizes: the height and width
        that each has where it is stored.
        """
        raise NotImplementedError

    def merge(self, outputs: Iterable[Any], tiles: Sequence[Tile]) -> Any:
        """The prediction for an image from those for its tiles, if the task has `tiles`; the first
        tile is all of the image. Outputs are in pixels of their tile, and come one by one."""
        raise NotImplementedError

    def with_nms(self, iou: float) -> Self:
        """The same with non-maximum suppression: of boxes of a class whose IoU is larger, only the
        most confident one is predicted."""
        raise ConfigError(
            f"nms = {iou!r}: a model for the task {self.name} predicts no boxes: leave nms out"
        )

    def decode(self, output: Any, images: list[str]) -> list[Any]:
        """Results, one per image."""
        raise NotImplementedError

    def tracker(self) -> Callable[[Any], Any]:
        """A function that is given the results of a video's frames in their order, and gives them
        back with a number for each object, the same in all frames."""
        raise ConfigError(
            f"track: a model for the task {self.name} finds no objects to follow: leave track out"
        )

    def metrics(self) -> Metrics:
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

    def renamed(self, targets: Any, here: Sequence[int]) -> Any:
        """The targets of other data, where class i is our class here[i]."""
        if isinstance(targets, Tensor):
            # IGNORED finds the last row, and stays what it is
            return torch.tensor([*here, IGNORED])[targets.long()]
        return [self.renamed(target, here) for target in targets]

    @contextmanager
    def writing_results(self, path: Path, source: Source, split: str, log: Log) -> Iterator[See]:
        """Inside, what the given function is shown is written as a COCO file of results."""
        raise no_results_file(self.name, path)
        yield

    @classmethod
    def measure_results(cls, path: Path, source: Source, split: str) -> dict[str, Any]:
        """The metrics of such a file, of any program."""
        raise no_results_file(cls.name, path)

    # Data

    @classmethod
    def checker(cls) -> TruthCheck:
        """What the data check looks for in the ground truth."""
        raise NotImplementedError

    @classmethod
    def check_trainable(cls, source: Source) -> None:
        """Data from which nothing can be learned is an error."""
        if len(source.labels) < cls.least_classes:
            raise DataError(
                f"{source.name} has only the class {source.labels.names[0]!r}: nothing to tell "
                "apart"
            )

    @classmethod
    def check_model(cls, source: Source, model: Model, log: Log) -> None:
        """Logs where a model does not suit the data."""

    # Defaults, where neither the recipe nor the weights decide

    @classmethod
    def choose_model(cls, source: Source, glance: Glance) -> ModelChoice:
        """A model that learns from scratch on this data and this machine; a classifier by
        default."""
        return classifier_for(glance)

    @classmethod
    def choose_around(cls, source: Source, glance: Glance, family: str | None) -> dict[str, Any]:
        """Fields of the recipe for a model of this family (None: the usual one) around weights."""
        return {}

    @classmethod
    def choose_preprocess(
        cls,
        image_size: Size,
        channels: int,
        known: Preprocess | None = None,
        *,
        resize: str | None = None,
        longest: int | None = None,
        interpolation: str | None = None,
    ) -> Preprocess:
        """For a model's input, as the weights were trained (`known`) and as is asked for; mean and
        std are not decided yet."""
        dense: dict[str, Any] = {"whole": True, "crop": 1.0} if cls.dense else {}
        found = replace(
            known or Preprocess(),
            image_size=image_size,
            channels=channels,
            mean=(0.5,),
            std=(0.5,),
            # a limit that came with the weights is for the size that came with them
            longest=known.longest if known and known.image_size == image_size else None,
            **dense,
        )
        if resize is not None:
            found = replace(found, resize=resize, longest=None)
        if cls.truth.any_size and found.resize == "shorter":
            usual = found.longest or round(max(pair("image_size", found.image_size)) * 5 / 3)
            found = replace(found, longest=longest or usual)
        elif longest is not None:
            raise ConfigError(f"longest = {longest} has no effect with resize = {found.resize!r}")
        if interpolation is not None:
            found = replace(found, interpolation=interpolation)
        return found

    @classmethod
    def choose_batch(cls, count: int, *, fine_tunes: bool) -> int:
        """For an epoch of `count` images: a power of two, such that it has at least 16 steps.

        For boxes and masks around weights, steps count for more than what each one sees: BCCD (205
        images) has AP 0.27 on val after twelve epochs in batches of eight, 0.37 in batches of four;
        street scenes a mean IoU of 0.51 after four epochs in batches of 16, 0.56 in batches of four
        (docs/segmentation.md)."""
        if cls.dense and fine_tunes:
            return max(4, min(16, 1 << (count // 64).bit_length() >> 1))
        most = 16 if cls.dense else 32 if fine_tunes else 64  # few epochs are many steps then
        return max(8, min(most, 1 << (count // 16).bit_length() >> 1))

    @classmethod
    def overfit_batch(cls, images: int) -> int:
        return images

    overfit_epochs: ClassVar[int] = 20

    @classmethod
    def effort(cls, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """How long to train: the fewest epochs, the most, and between them how many images in all;
        on a CPU what takes some minutes."""
        # one image of a dense task costs as much as so many of a classifier
        cost = 8 if cls.dense and not glance.small else 1
        if fine_tunes:
            return 2, 30, (12_000 if glance.on_cpu else 400_000) // cost
        images = 150_000 if glance.small and not cls.dense else 80_000 // cost
        return 5, 100, images if glance.on_cpu else 3_000_000 // cost

    @classmethod
    def scratch_lr(cls, small: bool) -> float:
        return 2e-3 if small else 1e-3

    @classmethod
    def scratch_optimizer(cls, glance: Glance, model: str) -> str:
        """Without weights to start from. As good by AdamW, whose steps are shorter, are tiny images
        (digits: 99.4 %, by Muon 98.6), and batches of few images: boxes and masks."""
        tiny = max(glance.height, glance.width) <= TINY
        return "adamw" if cls.dense or tiny else "muon"

    muon_lr: ClassVar[float] = 3
    """Times AdamW's learning rate: on CIFAR-10 better than 1 and 6 (docs/training.md)."""

    @classmethod
    def crop_for(cls, small: bool, fits: bool) -> str:
        """fits: every image has the model's own size."""
        return "shift" if small else "resized"

    default_smoothing: ClassVar[float | None] = None
    """Label smoothing."""

    @classmethod
    def choose_class_weights(cls, *, fine_tunes: bool) -> str:
        return "none"

    # Advice

    fine_tuning_gain: ClassVar[str] = (
        "on 4,500 images of CIFAR-10 two epochs from ImageNet's weights gave 93 %, training from "
        "random ones 74 % (docs/training.md)"
    )
    """What pre-trained weights have brought, as measured, in the words of a log."""

    # Models

    @classmethod
    def takes(cls, model: str) -> bool:
        """Whether the model of this name is made for this task."""
        family = configure(model)[0]
        return family in cls.families if cls.families else is_classifier(model)

    required: ClassVar[dict[str, Any]] = {}
    """Fields that a model for this task has, also where those of the weights have others."""

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
        given = {name: value for name, value in fields.items() if name not in own}
        usual, made = (configure(model, **changes)[1] for changes in ({}, given))
        # What is as usual stays open: inside, images of any size are padded to whole patches.
        inner = {
            name: v for name, v in given.items() if getattr(made, name) != getattr(usual, name)
        }
        found: dict[str, Any] = {str(part): model, f"{part}_fields": inner, **cls.required}
        return family, found | ({"image_size": s} if (s := fields.get("image_size")) else {})


def classifier_for(glance: Glance) -> ModelChoice:
    """A model that learns from scratch on little data: few blocks behind residual convolutions. On
    small images they learn more than patches do (docs/training.md); photographs follow from that,
    and were not measured."""
    if not glance.small:
        name, side = ("vit-c-mini/16", 128) if glance.on_cpu else ("cpvt-ti/16-gap", 224)
        return ModelChoice(name, (side, side), reason=f"{name}, to learn from random weights")
    name = "vit-c-mini/2" if max(glance.height, glance.width) <= TINY else "vit-c-mini/8"
    size = glance.height, glance.width
    return ModelChoice(name, size, reason=f"{name}, to learn small images from random weights")


def is_classifier(model: str) -> bool:
    """Whether the model of this name stands alone, and not around another one."""
    return FAMILIES[configure(model)[0]].part is None


def no_results_file(task: str, path: Path) -> ConfigError:
    return ConfigError(f"{path}: COCO files of results hold boxes, and this model is to {task}")


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where there is nothing."""
    return torch.where(whole > 0, part / whole.clamp(min=1e-12), torch.zeros_like(part))
