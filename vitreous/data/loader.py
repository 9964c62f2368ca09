"""Batches for training and evaluation.

The order of samples is a function of (seed, epoch), what happens to each of (seed, epoch, sample).
So the stream is the same with any number of workers and of processes, and can begin at any step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from vitreous.data.augment import Augment, random_by, seed_of
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source


class Batch(NamedTuple):
    """Images (b, c, h, w), the targets as the task wants them, and who they are."""

    images: Tensor
    targets: Any
    ids: list[str]


class Mixed(NamedTuple):
    """A target of two classes: the first with `share`, the second with the rest."""

    first: Any
    second: Any
    share: float


@dataclass
class TrainSet(Dataset[tuple[Tensor, Mixed, str]]):
    """Augmented samples; an index is (epoch, number): workers need not be told the epoch."""

    source: Source
    samples: Sequence[Sample]
    preprocess: Preprocess
    augment: Augment
    seed: int

    def __getitem__(self, index: tuple[int, int]) -> tuple[Tensor, Mixed, str]:
        epoch, number = index
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
            return self.augment(self.source.image(sample), self.preprocess)


@dataclass
class EvalSet(Dataset[tuple[Tensor, Any, str]]):
    """Samples as they are."""

    source: Source
    samples: Sequence[Sample]
    preprocess: Preprocess

    def __getitem__(self, number: int) -> tuple[Tensor, Any, str]:
        sample = self.samples[number]
        return self.preprocess(self.source.image(sample)), sample.target, sample.id

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


def train_batches(dataset: TrainSet, order: Order, workers: int) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_sampler=order,
        num_workers=workers,
        collate_fn=collate_mixed,
        persistent_workers=False,
        prefetch_factor=4 if workers else None,
    )


def eval_batches(
    dataset: EvalSet, batch: int, workers: int, rank: int = 0, world: int = 1
) -> DataLoader[Any]:
    """Every sample once, every `world`-th of them on each process."""
    numbers = list(range(rank, len(dataset), world))
    return DataLoader(
        torch.utils.data.Subset(dataset, numbers),
        batch_size=batch,
        num_workers=workers,
        collate_fn=collate,
    )


def collate_mixed(items: list[tuple[Tensor, Mixed, str]]) -> Batch:
    images, targets, ids = zip(*items, strict=True)
    first, second, share = zip(*targets, strict=True)
    mixed = Mixed(torch.tensor(first), torch.tensor(second), torch.tensor(share))  # type: ignore[arg-type]
    return Batch(torch.stack(images), mixed, list(ids))


def collate(items: list[tuple[Tensor, Any, str]]) -> Batch:
    images, targets, ids = zip(*items, strict=True)
    return Batch(torch.stack(images), torch.tensor(targets), list(ids))
