"""The one path from image to answer: preprocess, model, decode.

`evaluate`, `predict`, `explain`, `export` and `serve` use a `Predictor`; training evaluates with
the same `measure`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.config import choice, pair
from vitreous.data.decode.images import AnyImage, ImageBytes, from_any, several
from vitreous.data.decode.pixels import MAX_PIXELS, without_alpha
from vitreous.data.loader import EvalSet, eval_batches, stacked
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.threads import in_threads
from vitreous.data.video import Frame, Video, as_video
from vitreous.engines.device import find_device
from vitreous.engines.graph import GraphEngine
from vitreous.engines.probes import Probes
from vitreous.engines.torch import TorchEngine
from vitreous.engines.world import ALONE, World
from vitreous.errors import ConfigError, DataError, InputError, VitreousError, Word, advice, naming
from vitreous.inference import USUAL, InferenceOptions, at_least
from vitreous.measure import Answered, Infer, answered, check_finite, chosen_split
from vitreous.models.model import POOLS as MODEL_POOLS
from vitreous.models.model import Model
from vitreous.tasks import show_of
from vitreous.tasks.task import Engine, Log, See, Task
from vitreous.tasks.tiles import TiledInference
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.explain.explanation import Explanation

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")
"""What the task decodes: the result of one image."""
PIXELS, PIXELS_SIDE = "pixels", 32
POOLS = (*MODEL_POOLS, PIXELS)
"""What a vector may be made of: see `Predictor.embed`."""
FRAMES_AT_ONCE = 4
"""Of a video: three times as many are in memory, and they may be large."""
Bad = Callable[[VitreousError], None]
"""Is called for an image that cannot be used, with an error that names it."""
Read = Callable[[Any], tuple[Tensor, str]]
"""Gives an image as it is stored, (c, h, w), and its name."""
Fit = Callable[[Tensor, int], Tensor]
"""Gives what `Read` gives as it is computed with; an image with more pixels is an error."""


class Prepared(NamedTuple):
    """One image as the model takes it, its name, and its height and width as given."""

    values: Tensor
    name: str
    size: tuple[int, int]


class View(NamedTuple):
    """What a model sees of an image at once."""

    values: Tensor
    """(channels, *image_size), normalised"""
    region: tuple[float, float, float, float]
    """top, left, height and width of it, in pixels of the image as given; it reaches over the edge
    of an image that is smaller than what the model sees."""
    inside: tuple[int, int]
    """Height and width of the image in `values`; below and right of it is padding."""

    def place(self, y: int, x: int) -> tuple[int, int]:
        """Where a pixel of the image as given lies in `values`."""
        top, left, height, width = self.region
        row = int((y + 0.5 - top) * self.values.shape[1] / height)
        column = int((x + 0.5 - left) * self.values.shape[2] / width)
        return min(row, self.inside[0] - 1), min(column, self.inside[1] - 1)


class Predictor(Generic[R]):
    """A trained model that takes images as people have them: paths, arrays (h, w) or (h, w, c), PIL
    images, tensors (c, h, w).

    `predictor(image)` gives one result, `predictor([image, …])` a list of them. `embed` gives
    feature vectors, `explain` what a prediction rests on, `evaluate` metrics on labelled data. It
    may be used from several threads at once.

    What a result is depends on the task: `Classification`, `Segmentation` and `Detection` (in
    `vitreous.results`), or `Tags`. A type checker can be told which:
    `predictor: Predictor[Classification] = vitreous.load("runs/digits")`.
    """

    def __init__(
        self,
        model: Model | GraphEngine | TorchEngine,
        preprocess: Preprocess,
        task: Task,
        options: InferenceOptions = USUAL,
    ) -> None:
        self.device = find_device(options.device or "cpu")
        self.engine: Engine
        if isinstance(model, nn.Module):
            self.engine = TorchEngine(model.to(self.device).eval())
        else:
            self.engine = model
        self.exact: Callable[[], Predictor] = lambda: self
        """Gives the same predictor in torch and float32, which explanations look into."""
        self.preprocess = preprocess
        self.task = task
        if options.nms is not None:
            refused = f"a model for the task {task.name} predicts no boxes: leave nms out"
            self.task = task.objects(f"nms = {options.nms!r}: {refused}").with_nms(options.nms)
        self.max_pixels = options.max_pixels or MAX_PIXELS
        """An image with more pixels is an error and is not decoded; nor is one enlarged beyond."""
        self.tiled = None
        """How images are predicted in tiles, if they are."""
        tile, overlap = options.tile, options.overlap
        if tile is not None:
            self.tiled = TiledInference(self.task, preprocess, tile, overlap, self.max_pixels)
        elif overlap is not None:
            given = advice(": pass ", ", too", tile=Word("PIXELS"))
            raise ConfigError(f"overlap = {overlap!r} is that of tiles{given}")

    @property
    def model(self) -> Model:
        """The torch model in float32, to look into; an exported file has none."""
        if self.probes is not None:
            raise ConfigError(
                f"probe = {self.probes.texts}: a probe changes what is computed, not what is "
                "shown of the inside: leave probe out to look into the model"
            )
        if isinstance(self.engine, TorchEngine) and self.engine.precision == "float32":
            return self.engine.model
        exact = self.exact()
        if exact is not self:
            return exact.model
        raise ConfigError(
            f"{self.title} is a graph for {self.engine.name}, whose inside cannot be seen: take "
            "the run folder that it was exported from"
        )

    @property
    def probes(self) -> Probes | None:
        """What is changed inside the model while it runs, if anything is."""
        return self.engine.probes if isinstance(self.engine, TorchEngine) else None

    @property
    def title(self) -> str:
        """What to call the model."""
        if isinstance(self.engine, TorchEngine):
            return self.engine.model.name or type(self.engine.model).__name__
        assert isinstance(self.engine, GraphEngine)
        return str(self.engine.where)

    def __repr__(self) -> str:
        height, width = pair("image_size", self.preprocess.image_size)
        model = f"{self.title} for {height}x{width} images"
        count = len(self.labels)
        classes = f"{counted(count, 'class')}, " if count else ""
        return f"Predictor({self.task.name}, {model}, {classes}on {self.device})"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.task.labels.names

    @overload
    def __call__(
        self, images: list[Any] | tuple[Any, ...], batch: int | None = None
    ) -> list[R]: ...
    @overload
    def __call__(self, images: AnyImage, batch: int | None = None) -> R: ...
    def __call__(self, images: Any, batch: int | None = None) -> Any:
        """The result for an image, or a list of results for a list or tuple of them, or for a batch
        of them, a tensor (b, c, h, w).

        `batch` is how many images (or tiles) are computed at once, as in `stream`, which takes any
        iterable.
        """
        many = several(images)
        if many is None:
            return next(self.stream([images], batch))
        return list(self.stream(many, batch))

    def stream(
        self,
        images: Iterable[Any],
        batch: int | None = None,
        readers: int = 2,
        bad: Bad | None = None,
        read: Read | None = None,
        world: World = ALONE,
    ) -> Iterator[R]:
        """Results in the order of the images; the next batch is decoded while one computes.

        A batch is of 32 images unless given, or of fewer where images are not cut to one size; it
        is one of tiles where images are cut into tiles. `read` is `self.read` unless given. An
        image that cannot be used is an error, unless `bad` takes it; it has no result then. The
        processes of a `world` share the work, and the first one has the results.
        """
        fit, infer, batch = self._way(self.batch_size(batch))
        at_least("readers", readers, 1)

        def work(some: Iterable[Any]) -> Iterator[tuple[list[R], list[VitreousError]]]:
            wrong: list[VitreousError] = []
            take = None if bad is None else wrong.append
            for prepared in self._batches(some, batch, readers, take, read, fit):
                yield self.answer(prepared, infer) if prepared else [], [*wrong]
                wrong.clear()

        return self._told(world.share(images, batch, work), bad)

    def _told(
        self, parts: Iterable[tuple[list[R], list[VitreousError]]], bad: Bad | None
    ) -> Iterator[R]:
        """The results of batches, behind what `bad` is to know about them."""
        for results, wrong in parts:
            for error in wrong:
                assert bad is not None
                bad(error)
            yield from results

    def video(
        self, source: str | Path | Video, every: int = 1, batch: int | None = None
    ) -> Iterator[tuple[Frame, R]]:
        """The frames of a video file, a camera ("0") or a stream ("rtsp://…") with their results,
        as they are made; `every` leaves out all but each so many-th frame. A `Video` that is given
        in place of a name has steps of its own.

        A video that cannot be read to its end is an error when what could be read is done. A batch
        is of 4 frames unless given, and of one where the source is live.
        """
        with as_video(source, every, self.max_pixels) as video:
            if batch is None:
                batch = 1 if video.live else FRAMES_AT_ONCE
            waiting: deque[Frame] = deque()

            def frames() -> Iterator[Frame]:
                for frame in video:
                    waiting.append(frame)
                    yield frame

            for result in self.stream(
                frames(), batch, read=lambda frame: (frame.image, frame.name)
            ):
                yield waiting.popleft(), result
            if video.problem is not None:
                raise video.problem

    def embed(
        self, images: Any, batch: int | None = None, *, pool: str = "head"
    ) -> NDArray[np.float32]:
        """(n, d): a vector for each image, by default what the model's head sees of it.

        That is the pooled output of the last block: the class token behind the final norm, or the
        mean of the patches, as the model pools. `pool` chooses class, mean or class+mean instead
        (see `Model.vectors`), or pixels: the image itself at 32x32, to compare with. Of a model
        that segments or detects it is that of the encoder or backbone inside. Images are prepared
        as for prediction; where prediction goes over windows, the whole image is resized to one.
        Vectors are not normalised. One image gives (1, d).
        """
        many = several(images)
        many = [images] if many is None else many
        vectors = [found for _, found in self.embed_each(many, batch=batch, pool=pool)]
        return np.concatenate(vectors or [np.zeros((0, self.vector_length(pool)), np.float32)])

    def vector_length(self, pool: str = "head") -> int:
        """d of what `embed` gives."""
        pool = choice("pool", pool, POOLS)
        if pool == PIXELS:
            return self.preprocess.channels * PIXELS_SIDE**2
        return self.engine.vector_length(pool)

    def embed_each(
        self,
        things: Iterable[Any],
        read: Read | None = None,
        *,
        batch: int | None = None,
        pool: str = "head",
        readers: int = 2,
        bad: Bad | None = None,
    ) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Names and vectors (b, d) of many images, a batch at a time; see `embed` and `stream`. Of
        a batch without usable images there are none, (0, d).

        `read` gives an image as it is stored, (c, h, w), and its name; `self.read` unless given.
        """
        pool = choice("pool", pool, POOLS)
        for prepared in self._batches(things, batch, readers, bad, read):
            found = np.zeros((0, self.vector_length(pool)), np.float32)
            if prepared:
                found = self.vectors(prepared, pool).numpy()
            yield [each.name for each in prepared], found

    @torch.inference_mode()
    def vectors(self, prepared: Sequence[Prepared], pool: str = "head") -> Tensor:
        """(n, d), for a batch of prepared images; see `embed`."""
        size = pair("image_size", self.preprocess.image_size)
        values = [each.values for each in prepared]
        if self.task.windows:
            values = [F.interpolate(each[None], size, mode="bilinear")[0] for each in values]
        together = stacked(values)
        parts = [together] if isinstance(together, Tensor) else [each[None] for each in values]
        if pool == PIXELS:
            vectors = torch.cat(
                [F.adaptive_avg_pool2d(part, PIXELS_SIDE).flatten(1) for part in parts]
            )
        else:
            found = [self.engine.vectors(part.to(self.device), pool) for part in parts]
            vectors = torch.cat(found).float().cpu()
        check_finite(vectors, [each.name for each in prepared])
        return vectors

    def batch_size(self, batch: int | None) -> int:
        """How many images are computed at once, where none is given: 32, or fewer where images are
        not cut to one size."""
        if batch is None:
            return min(self.preprocess.at_once, 32)
        at_least("batch", batch, 1)
        return batch

    def _batches(
        self,
        images: Iterable[Any],
        batch: int | None = None,
        readers: int = 2,
        bad: Bad | None = None,
        read: Read | None = None,
        fit: Fit | None = None,
    ) -> Iterator[list[Prepared]]:
        """Prepared images, of so many at a time those that can be used; see `stream` and
        `embed_each`."""
        batch, waiting = self.batch_size(batch), iter(images)
        at_least("readers", readers, 1)
        prepare = partial(self._prepare, read or self.read, fit or self.preprocess)
        with ThreadPoolExecutor(readers) as pool:
            ahead = [pool.submit(prepare, thing) for thing in islice(waiting, 2 * batch)]
            while ahead:
                ready, ahead = ahead[:batch], ahead[batch:]
                prepared = list(_usable(ready, bad))
                ahead += [pool.submit(prepare, thing) for thing in islice(waiting, batch)]
                yield prepared

    def _way(self, batch: int) -> tuple[Fit, Infer, int]:
        """What prepares images for prediction, what predicts, and how many images go at a time.
        Of images in tiles that is one, and `batch` is how many tiles do."""
        at_least("batch", batch, 1)
        if self.tiled is None:
            return self.preprocess, self.task.infer, batch
        return self.tiled.keep, partial(self.tiled.infer, batch=batch), 1

    def answer(self, prepared: Sequence[Prepared], infer: Infer | None = None) -> list[R]:
        """The results for a batch of prepared images; `infer` is the task's unless given."""
        values, names, sizes = zip(*prepared, strict=True)
        output = (infer or self.task.infer)(self.engine, stacked(values), sizes)
        check_finite(output, names)
        return self.task.decode(output, list(names))

    def evaluate(
        self,
        source: Source,
        split: str,
        batch: int | None = None,
        workers: int = 0,
        see: See | None = None,
        log: Log = lambda text: None,
        world: World = ALONE,
    ) -> dict[str, Any]:
        """How good the model is on a split of a source, with 95 % confidence intervals of the main
        numbers by name (`intervals`); classes are matched by name.

        A class that the model does not know is an error if something in the split has it, and else
        left out and logged. `see` is shown each batch with the model's output and the targets, as
        `measure` does it. The processes of a `world` share the work; the first one has the metrics,
        the others have none.
        """
        metrics, lean = self.task.metrics(), see is None
        for each in self.answers(source, split, batch, workers, log, world, lean=lean):
            metrics.update(each.output, each.targets)
            if see is not None:
                see(*each)
        if not world.is_first:
            return {}
        return metrics.compute(metrics.counts()) | {"intervals": metrics.intervals()}

    @torch.inference_mode()
    def answers(
        self,
        source: Source,
        split: str,
        batch: int | None = None,
        workers: int = 0,
        log: Log = lambda text: None,
        world: World = ALONE,
        *,
        lean: bool = False,
    ) -> Iterator[Answered]:
        """The batches of `evaluate`, one by one, with the model's output and the targets as its
        classes. `lean`: nobody needs the images, and processes need not send them."""
        fit, infer, batch = self._way(self.preprocess.at_once if batch is None else batch)
        at_least("workers", workers, 0)
        chosen_split(source, split)
        unused = self._unused_classes(source, split, log)
        here = self.task.labels.indices_of(source.labels, what=source.name, unused=unused)

        def work(samples: Iterable[Sample]) -> Iterator[Answered]:
            some = EvalSet(source, list(samples), fit, self.task.truth)
            batches = eval_batches(some, batch, workers)
            for each in answered(self.engine, self.task, batches, here, infer):
                left_out = world.size > 1 and lean
                yield each._replace(batch=each.batch._replace(images=None)) if left_out else each

        yield from world.share(source.splits[split], batch, work)

    def _unused_classes(self, source: Source, split: str, log: Log) -> set[int]:
        """The classes of a source that the model does not know and that no image needs."""
        names, truth = source.labels.names, self.task.truth
        known = self.task.labels
        unknown = {number for number, name in enumerate(names) if known.named(name) is None}
        if not unknown:
            return unknown

        def look(sample: Sample) -> set[int]:
            return unknown.intersection(truth.classes(source.truth(sample)))

        used = in_threads(look, source.splits[split], "looking for classes")
        unused = unknown.difference(*used)
        if unused:
            listed = ", ".join(names[number] for number in sorted(unused))
            log(f"classes that the model does not know, and no image has: {listed}")
        return unused

    def explain(
        self,
        image: Any,
        classes: Sequence[str] | int = 3,
        *,
        pixel: tuple[int, int] | None = None,
        layers: bool = False,
    ) -> Explanation:
        """Why the model predicts what it predicts for an image, as named tensors.

        `classes` are names, or how many of the most likely, to make maps for; for a detector, names
        whose objects are explained. `pixel` (y, x) is the one to explain if each has its own class:
        by default the centre of the image, for a detector that of the most confident object.
        `layers` keeps the attention of all layers.
        """
        subject = show_of(self.task.name).subject(self.exact())
        show = show_of(subject.task.name)
        return show.explain(subject, image, classes, pixel=pixel, layers=layers)

    def read(self, thing: Any) -> tuple[Tensor, str]:
        """An image in any form as it is stored, (c, h, w), and its name."""
        image, name = from_any(thing, max_pixels=self.max_pixels)
        is_file = isinstance(thing, str | Path | ImageBytes)
        return image if is_file else self._as_files_are(image, name), name

    def prepared(self, thing: Any) -> Prepared:
        """An image in any form as `answer` and `vectors` take it."""
        return self._prepare(self.read, self.preprocess, thing)

    def prepare(self, image: Tensor, name: str = "image") -> Tensor:
        """What `read` gives as the model takes it: (channels, *image_size), normalised."""
        with naming(name):
            return self.preprocess(image, self.max_pixels)

    def view(self, image: Tensor, name: str = "image", at: tuple[int, int] | None = None) -> View:
        """What the model sees at once of what `read` gives.

        Of an image that is larger than a window, the window around the pixel `at` (by default the
        centre); a smaller one is padded with zeros, as in prediction. A task without windows sees
        the whole image.
        """
        height, width = image.shape[1:]
        window = pair("image_size", self.preprocess.image_size)
        if not self.task.windows:
            values = self.prepare(image, name)
            region = self.preprocess.region(height, width)
            return View(values, region, (values.shape[1], values.shape[2]))
        with naming(name):
            fitted = self.preprocess.fit(image, self.max_pixels)
        y, x = (height // 2, width // 2) if at is None else at
        tall, wide = fitted.shape[1] / height, fitted.shape[2] / width
        top = _start((y + 0.5) * tall, window[0], fitted.shape[1])
        left = _start((x + 0.5) * wide, window[1], fitted.shape[2])
        cut = fitted[:, top : top + window[0], left : left + window[1]]
        inside = (cut.shape[1], cut.shape[2])
        missing = (0, window[1] - inside[1], 0, window[0] - inside[0])
        region = (top / tall, left / wide, window[0] / tall, window[1] / wide)
        return View(F.pad(self.preprocess.normalise(cut), missing), region, inside)

    def _prepare(self, read: Read, fit: Fit, thing: Any) -> Prepared:
        image, name = read(thing)
        with naming(name):
            values = fit(image, self.max_pixels)
        return Prepared(values, name, (image.shape[1], image.shape[2]))

    def _as_files_are(self, image: Tensor, name: str) -> Tensor:
        """An image from Python in the range of a file's; without the transparency of one."""
        if image.is_floating_point():
            largest = image.max().item()
            if largest > 2 and max(self.preprocess.mean) <= 1:
                raise InputError(
                    f"{name}: floating-point values up to {largest:g}, where the model takes 0 to "
                    "1: give uint8, or divide by 255"
                )
        elif image.shape[0] == 4 and self.preprocess.channels in (1, 3):
            return without_alpha(image)
        return image


def _start(centre: float, window: int, length: int) -> int:
    """Where a window around `centre` begins, moved inside the image if it would reach over."""
    return min(max(round(centre - window / 2), 0), max(length - window, 0))


def _usable(ready: Iterable[Future[Prepared]], bad: Bad | None) -> Iterator[Prepared]:
    """What could be prepared; `bad` is called for the rest, or the first is raised."""
    for future in ready:
        try:
            yield future.result()
        except (DataError, InputError) as error:
            if bad is None:
                raise
            bad(error)
