"""The one path from image to answer: preprocess, model, decode.

`evaluate`, `predict`, `explain`, `export` and `serve` use a `Predictor`; training evaluates with
the same `measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.data.images import from_any
from vitreous.data.loader import Batch, EvalSet, eval_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Source
from vitreous.errors import DataError
from vitreous.models.model import Model
from vitreous.run_folder import Run, RunConfig
from vitreous.tasks import TASKS, Task
from vitreous.tasks.task import Metrics
from vitreous.weights.importing import import_weights


class Predictor:
    """A trained model that takes images as people have them.

    One image gives one result, several give a list: paths, arrays (h, w), (h, w, c), PIL images,
    tensors (c, h, w).
    """

    def __init__(
        self, model: Model, preprocess: Preprocess, task: Task, device: str | torch.device = "cpu"
    ) -> None:
        self.device = torch.device(device)
        self.model = model.to(self.device).eval()
        self.preprocess, self.task = preprocess, task

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.task.labels.names

    def __call__(self, images: Any, batch: int = 32) -> Any:
        if isinstance(images, list | tuple):
            return list(self.stream(images, batch))
        return next(self.stream([images], 1))

    def stream(self, images: Iterable[Any], batch: int = 32, threads: int = 2) -> Iterator[Any]:
        """Results in the order of the images; the next batch is decoded while one computes."""
        waiting = iter(images)
        with ThreadPoolExecutor(threads) as pool:
            ahead = [pool.submit(self._prepare, thing) for thing in islice(waiting, 2 * batch)]
            while ahead:
                ready, ahead = ahead[:batch], ahead[batch:]
                prepared = [future.result() for future in ready]
                ahead += [pool.submit(self._prepare, thing) for thing in islice(waiting, batch)]
                values, names = zip(*prepared, strict=True)
                yield from self.task.decode(self.logits(torch.stack(values)), list(names))

    @torch.inference_mode()
    def logits(self, images: Tensor) -> Tensor:
        """The model's output for normalised images (b, c, h, w), on the CPU."""
        return self.model(images.to(self.device)).cpu()

    def evaluate(
        self,
        source: Source,
        split: str,
        batch: int = 64,
        workers: int = 0,
        see: Callable[[Batch, Tensor, Tensor], None] | None = None,
    ) -> dict[str, Any]:
        """How good the model is on a split of a source; classes are matched by name.

        `see` is shown each batch with the model's output and the targets, as `measure` does it.
        """
        if split not in source.splits:
            there = ", ".join(source.splits)
            raise DataError(f"{source.name} has no split {split!r}; it has {there}")
        here = self.task.labels.to_here(source.labels, what=source.name)
        samples = source.splits[split]
        batches = eval_batches(EvalSet(source, samples, self.preprocess), batch, workers)
        metrics = measure(self.model, self.task, batches, self.device, here, see)
        return metrics.compute(metrics.counts())

    def _prepare(self, thing: Any) -> tuple[Tensor, str]:
        image, name = from_any(thing)
        return self.preprocess(image), name


@torch.inference_mode()
def measure(
    model: nn.Module,
    task: Task,
    batches: Iterable[Any],
    device: torch.device,
    here: Sequence[int] | None = None,
    see: Callable[[Batch, Tensor, Tensor], None] | None = None,
) -> Metrics:
    """The metrics of a model over batches; `here` gives our class for each class of the data.

    `see` is shown each batch with the model's output and our targets.
    """
    training = model.training
    model.eval()
    metrics = task.metrics()
    try:
        for batch in batches:
            targets = batch.targets if here is None else torch.tensor(here)[batch.targets]
            output = model(batch.images.to(device)).cpu()
            metrics.update(output, targets)
            if see is not None:
                see(batch, output, targets)
    finally:
        model.train(training)
    return metrics


def load(run: str | Path, device: str | None = None) -> Predictor:
    """The predictor of a run folder."""
    folder = Run(run)
    config: RunConfig = folder.read_config()
    model = config.create()
    import_weights(model, folder.weights, "vitreous")
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Predictor(model, config.preprocess, TASKS[config.task](config.labels), chosen)
