"""The show side of a task: how its results are printed, drawn, reported and explained.

`show.py` of a task's package has an instance, SHOW. The base class explains what is true of a whole
image by attention rollout and class maps; a task overrides what differs.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.errors import ConfigError
from vitreous.explain import query
from vitreous.explain.explanation import Explanation, Pixel
from vitreous.explain.query import Query
from vitreous.labels import LabelMap
from vitreous.pages import maps, viewer
from vitreous.pages.colours import Colour, class_colours
from vitreous.pages.content import CaptionedImage, Number, Section, picture
from vitreous.pages.maps import BoxMark, Panel
from vitreous.pages.pictures import as_picture, thumbnail
from vitreous.pages.words import Message
from vitreous.predict import Predictor
from vitreous.tasks.task import Log

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

T = TypeVar("T")
FRAME = (230, 25, 75)
"""The colour of the frame around what the model sees."""


SCALE = "share of a patch"
"""Below the maps of an explanation, which sum to one."""


def inputs(found: Explanation) -> list[Panel]:
    """What the model sees; before it the image as given with that part in a frame, where the model
    does not see all of it."""
    seen = Panel(found.image, "input", ring=found.at)
    if found.photo is None:
        return [seen]
    top, left, tall, wide = found.region
    height, width = found.photo.shape[1:]
    if top <= 0.5 and left <= 0.5 and top + tall >= height - 0.5 and left + wide >= width - 0.5:
        return [seen]
    small = thumbnail(found.photo)
    y, x = small.shape[1] / height, small.shape[2] / width
    frame = BoxMark((left * x, top * y, (left + wide) * x, (top + tall) * y), "", FRAME)
    return [Panel(small, "image; frame: input", marks=[frame]), seen]


class Worst(Generic[T]):
    """At most `count` of many things, the worst first: the smaller the key, the worse."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.keys: list[Any] = []
        self.found: list[T] = []

    def wants(self, key: Any) -> bool:
        """Whether a thing of this key would be kept."""
        return len(self.keys) < self.count or key < self.keys[-1]

    def add(self, key: Any, thing: T) -> None:
        place = bisect_right(self.keys, key)
        self.keys.insert(place, key)
        self.found.insert(place, thing)
        del self.keys[self.count :], self.found[self.count :]


class TaskReport:
    """A task's part of the training report. It sees every batch of the evaluation, and keeps what
    is worth showing."""

    curves: Mapping[str, str]
    """Metrics to draw over epochs, by key, and their names; the first decides."""
    more_curves: Mapping[str, Mapping[str, str]] = {}
    """Others, in charts of their own, by title."""
    most = 12
    """Images in `worst`."""
    evaluations: Sequence[Mapping[str, Any]] = ()
    """What training has measured; known when `headline` is asked for."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.worst = Worst[Any](self.most)
        labels = predictor.task.labels
        self.colours = class_colours(labels.names, labels.external)

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """A batch, the task's output for it, and the targets in the model's classes."""
        raise NotImplementedError

    def picture(self, batch: Batch, i: int, most: int) -> Image:
        """One image of a batch, as the model sees it, at most so many pixels long."""
        image = as_picture(self.predictor.preprocess.restore(batch.images[i]))
        image.thumbnail((most, most))
        return image

    def example(self, batch: Batch, i: int, caption: str, note: str) -> CaptionedImage:
        """One image of a batch with words."""
        image = picture(self.picture(batch, i, 224), "input")
        return CaptionedImage([image], batch.ids[i], caption, note)

    def headline(self, result: Mapping[str, Any]) -> dict[str, Number]:
        """The few numbers that stand first, by name; the first is the largest."""
        raise NotImplementedError

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        raise NotImplementedError

    def commands(self, path: Path) -> dict[str, str]:
        """What can be done with the run now, and the command for it."""
        run, recipe = (shlex.quote(str(each)) for each in (path, path / "recipe.toml"))
        return {
            "Predict": f"vitreous predict {run} IMAGES",
            "See what the model looks at": f"vitreous explain {run} IMAGES",
            "Evaluate on other data": f"vitreous evaluate {run} DATA --figures figures",
            "Train it longer": f"vitreous train --resume --out {run} --epochs MORE",
            "Repeat it": f"vitreous train --recipe {recipe}",
        }


class Show:
    """One task's show side. `headings`, `row`, `report` and `answer` are a task's own;
    everything else has a default."""

    # ---- predict

    headings: tuple[str, ...]
    """Of the table that `predict` prints, after the image's; `>` at the end aligns right."""
    has_threshold = False
    """Whether results have `above(threshold)`."""
    endings: tuple[str, ...] = ()
    """How the names of the files end that `write` makes; none: this task has no `predict --out`."""
    reserved: tuple[str, ...] = ()
    """Names that `write` is not given, since `collecting` writes them."""

    def row(self, result: Any, top: int) -> tuple[str, ...]:
        """The cells below `headings`."""
        raise NotImplementedError

    def record(self, result: Any, top: int) -> dict[str, Any]:
        """For `predict --json`."""
        return result.to_dict()

    def write(
        self, result: Any, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        """What `predict --out` writes into its folder for one image, (c, h, w) as it is stored."""
        raise NotImplementedError

    has_picture = False
    """Whether it has `picture`; without it, no videos are drawn."""

    def picture(self, result: Any, image: Tensor) -> Image:
        """An image (c, h, w) as it is stored with what was predicted drawn into it, for a frame of
        a video: its size depends on that of the image alone."""
        raise NotImplementedError

    has_ids = False
    """Whether that file calls images and classes by ids, which can be those of a COCO file."""

    def collecting(
        self,
        out: Path,
        paths: Sequence[str],
        labels: LabelMap,
        data: Path | None = None,
        log: Log = lambda text: None,
    ) -> AbstractContextManager[Callable[[Any, str], None]]:
        """Inside, a function that is given every result and its path, for a file about them all.
        `data` is a COCO file with the ids of the images."""
        return nullcontext(lambda result, path: None)

    label_formats: tuple[str, ...] = ()
    """The formats of `predict --save-labels`; a task that has some has `ObjectShow.labelling`."""

    # ---- serve

    takes_top = False
    """Whether fewer classes or objects can be asked for than there are."""
    mask_formats: tuple[str, ...] = ()
    """How masks can be asked for: png, rle."""

    def threshold(self, predictor: Predictor) -> float | None:
        """Where results are cut unless another threshold is asked for, if there is one for all."""
        return None

    def served(self, result: Any, top: int | None, masks: str | None) -> dict[str, Any]:
        """What the server sends: `record`, with masks in one of `mask_formats` if asked for."""
        return self.record(result, 5 if top is None else top)

    # ---- training

    batch_columns = 8
    """Images in a row of the figure of the first batch."""

    def images(self, batch: Batch) -> Sequence[Tensor]:
        """The images of a training batch, (c, h, w) each."""
        return batch.images

    def targets(self, batch: Batch) -> Sequence[Any]:
        """A training target for each image of a batch."""
        return batch.targets

    def target_panel(self, image: Tensor, target: Any, labels: LabelMap) -> Panel:
        """An augmented image (c, h, w) in 0..1 with its target."""
        return Panel(image, self.target_text(target, labels))

    def target_text(self, target: Any, labels: LabelMap) -> str:
        """What stands above the picture of a target."""
        return ""

    # ---- evaluation

    report: type[TaskReport]

    def figures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        """What `evaluate --figures` draws, by file name."""
        return {}

    # ---- comparison

    def words(self, result: Any) -> str:
        """A result in a few words."""
        return " ".join(self.row(result, 1))

    def truth_words(self, target: Any, labels: LabelMap) -> str:
        """The ground truth of an image, as an evaluation has it, in as few."""
        return self.target_text(target, labels)

    def conflict(self, result: Any, other: Any) -> float:
        """How far two results for one image differ, from 0 to 1: more where both are confident."""
        return 1 - float(result.agreement(other))

    def beside(
        self, image: Tensor, target: Any, results: Sequence[Any], labels: LabelMap
    ) -> list[Image]:
        """Pictures of the ground truth and of each result in an image (3, h, w) of 8 bits, which
        may be smaller than it is stored; of a task that says nothing about places none."""
        return []

    def legend(self, labels: LabelMap) -> Mapping[str, Colour] | None:
        """What their colours stand for, where that is not written beside them."""
        return None

    # ---- explanation

    excludes = False
    """Whether an image has one of the classes: its logits become shares by softmax."""
    page_answer = "classes"
    """How a living page draws the answer: as classes, a mask or objects (living/answers.js)."""
    question = "what decides"
    """What `map_figure` answers, in a few words."""
    takes_pixel = False
    """Whether one pixel can be asked about."""

    def subject(self, predictor: Predictor) -> Predictor:
        """Who is explained: itself, or of a model that does not look at all of an image, the one
        inside that does."""
        return predictor

    def check_query(
        self, predictor: Predictor, classes: Sequence[str] | int, pixel: Pixel | None = None
    ) -> None:
        """Whether this can be explained at all, before any work is done."""
        if pixel is not None and not self.takes_pixel:
            raise ConfigError(
                f"pixel = {pixel}: this model predicts for the whole image: leave the pixel out"
            )
        if pixel is not None:
            query.check_pixel(pixel)
        query.check(predictor, classes)

    def query(self, predictor: Predictor, image: Any, pixel: Pixel | None) -> Query:
        return Query(predictor, *predictor.read(image))

    def explain(
        self,
        predictor: Predictor,
        image: Any,
        classes: Sequence[str] | int = 3,
        *,
        pixel: Pixel | None = None,
        layers: bool = False,
    ) -> Any:
        """See `Predictor.explain`."""
        self.check_query(predictor, classes, pixel)
        return self.explained(predictor, image, classes, pixel, layers)

    def explained(
        self, predictor: Predictor, image: Any, classes: Any, pixel: Pixel | None, layers: bool
    ) -> Any:
        """What `explain` returns, for a query that makes sense."""
        return query.explain(self.query(predictor, image, pixel), classes, layers=layers)

    def map_figure(self, found: Any) -> Figure:
        """The most telling figure: rollout and class maps beside the image."""
        drawn = {"rollout": found.rollout}
        drawn |= {f"for {name}": values for name, values in found.class_maps.items()}
        panels = [
            Panel(found.image, name, each, SCALE, found.pixels) for name, each in drawn.items()
        ]
        return maps.grid(maps.wrapped([*inputs(found), *panels]))

    def explanation_figures(self, found: Any) -> dict[str, Figure]:
        """What `explain` draws for an image, by file name."""
        heads = maps.head_attention(found.image, found.attention, found.at)
        return {"maps": self.map_figure(found), "heads": heads}

    def answer(self, found: Any) -> Message:
        """The prediction in a few words, of [look] in the table of words."""
        raise NotImplementedError

    def viewer_data(self, found: Any, positions: Tensor | None) -> dict[str, Any]:
        """What look.html is to show."""
        return viewer.map_data(found, positions) | {"answer": self.answer(found)}
