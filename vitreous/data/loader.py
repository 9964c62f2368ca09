"""Batches for training and evaluation.

The order of samples is a function of (seed, epoch), what happens to each of (seed, epoch, sample).
So the stream is the same with any number of workers and of processes, and can begin at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from vitreous.data.augment import Augment, random_by, seed_of
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.errors import DataError


class Batch(NamedTuple):
    """Images (b, c, h, w), the targets as the task wants them, and who they are."""

    images: Tensor
    targets: Any
    """One tensor of b rows, a tuple of such, or a list with an entry for each image."""
    ids: list[str]

    def to(self, device: torch.device) -> Batch:
        """The same on a device; what is copied there is on its way when this returns."""
        images = self.images.to(device, non_blocking=True)
        return Batch(images, _moved(self.targets, device), self.ids)

    def part(self, number: int, parts: int) -> Batch:
        """Each `parts`-th image, from `number` on."""
        which = slice(number, None, parts)
        targets = self.targets
        if isinstance(targets, tuple):
            targets = type(targets)(*(each[which] for each in targets))
        else:
            targets = targets[which]
        return Batch(self.images[which], targets, self.ids[which])


def _moved(thing: Any, device: torch.device) -> Any:
    if isinstance(thing, Tensor):
        return thing.to(device, non_blocking=True)
    if isinstance(thing, dict):
        return {key: _moved(value, device) for key, value in thing.items()}
    if isinstance(thing, tuple):
        return type(thing)(*(_moved(each, device) for each in thing))
    return [_moved(each, device) for each in thing]


class Mixed(NamedTuple):
    """A target of two classes: the first with `share`, the second with the rest."""

    first: Any
    second: Any
    share: float


Item = tuple[Tensor, Any, str] | DataError
"""A sample, or why it cannot be read: torch would bury an exception of a worker in a traceback."""


@dataclass
class TrainSet(Dataset[Item]):
    """Augmented samples; an index is (epoch, number): workers need not be told the epoch."""

    source: Source
    samples: Sequence[Sample]
    preprocess: Preprocess
    augment: Augment
    seed: int

    def __getitem__(self, index: tuple[int, int]) -> Item:
        try:
            return self._get(*index)
        except DataError as error:
            return error

    def _get(self, epoch: int, number: int) -> tuple[Tensor, Mixed, str]:
        sample = self.samples[number]
        image = self._augmented(sample, epoch)
        other, share = sample, 1.0
        if self.augment.mixes:
            with random_by(self.seed, epoch, sample.id, "mix"):
                other = self.samples[int(torch.randint(len(self.samples), ()))]
                image, share = self.augment.mix(image, self._augmented(other, epoch))
        return image, Mixed(sample.target, other.target, share), sample.id

    def _augmented(self, sample: Sample, epoch: int) -> Tensor:
        with random_by(self.seed, epoch, sample.id):
            return self.source.prepared(sample, lambda im: self.augment(im, self.preprocess))


@dataclass
class EvalSet(Dataset[Item]):
    """Samples as they are."""

    source: Source
    samples: Sequence[Sample]
    preprocess: Preprocess

    def __getitem__(self, number: int) -> Item:
        sample = self.samples[number]
        try:
            image = self.source.prepared(sample, self.preprocess)
            return image, sample.target, sample.id
        except DataError as error:
            return error

    def __len__(self) -> int:
        return len(self.samples)


@dataclass
class Order(Sampler[list[tuple[int, int]]]):
    """The batches of one process, from step `start` to step `stop`.

    A global batch is divided among `world` processes; each step of each epoch has the same samples
    whatever `world` is. `weights` (one per sample) draws with replacement: balanced sampling.
    """

    count: int
    batch: int
    seed: int
    start: int
    stop: int
    rank: int = 0
    world: int = 1
    weights: Tensor | None = None

    @property
    def steps_per_epoch(self) -> int:
        return max(self.count // self.batch, 1)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        share = self.batch // self.world
        for step in range(self.start, self.stop):
            epoch, within = divmod(step, self.steps_per_epoch)
            if step == self.start or within == 0:
                order = self.epoch(epoch)
            first = within * self.batch + self.rank * share
            yield [(epoch, number) for number in order[first : first + share]]

    def __len__(self) -> int:
        return self.stop - self.start

    def epoch(self, epoch: int) -> list[int]:
        """All samples of an epoch in their order."""
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch, "order"))
        if self.weights is None:
            return torch.randperm(self.count, generator=generator).tolist()
        draws = torch.multinomial(self.weights, self.count, replacement=True, generator=generator)
        return draws.tolist()


def train_batches(dataset: TrainSet, order: Order, workers: int) -> Iterator[Batch]:
    return _readable(
        DataLoader(
            dataset,
            batch_sampler=order,
            num_workers=workers,
            collate_fn=collate_mixed,
            prefetch_factor=4 if workers else None,
        )
    )


def eval_batches(
    dataset: EvalSet, batch: int, workers: int, rank: int = 0, world: int = 1
) -> Iterator[Batch]:
    """Every sample once, every `world`-th of them on each process."""
    numbers = list(range(rank, len(dataset), world))
    part = torch.utils.data.Subset(dataset, numbers)
    return _readable(DataLoader(part, batch, num_workers=workers, collate_fn=collate))


def _readable(batches: Iterable[Batch | DataError]) -> Iterator[Batch]:
    """The batches; one with a sample that cannot be read is the error that names it."""
    for batch in batches:
        if isinstance(batch, DataError):
            raise batch
        yield batch


def collate_mixed(items: list[Item]) -> Batch | DataError:
    batch = collate(items, list)
    if isinstance(batch, DataError):
        return batch
    first, second, share = zip(*batch.targets, strict=True)
    mixed = Mixed(torch.tensor(first), torch.tensor(second), torch.tensor(share))  # type: ignore[arg-type]
    return Batch(batch.images, mixed, batch.ids)


def collate(items: list[Item], join: Callable[[Any], Any] = torch.tensor) -> Batch | DataError:
    good = []
    for item in items:
        if isinstance(item, DataError):
            return item
        good.append(item)
    images, targets, ids = zip(*good, strict=True)
    return Batch(torch.stack(images), join(targets), list(ids))
