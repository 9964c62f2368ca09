"""Batches for training and evaluation.

The order of samples is a function of (seed, epoch), what happens to each of (seed, epoch, position
in the epoch, sample): a sample that is drawn twice in an epoch looks different each time.
So the stream is the same with any number of workers and of processes, and can begin at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from vitreous.config import pair
from vitreous.data.augment import Augment, Cut, OwnAugment, random_by, seed_of, transforms
from vitreous.data.decode.images import DecodedImage
from vitreous.data.preprocess import Preprocess, is_interleaved
from vitreous.data.source import Sample, Source
from vitreous.data.truth import Truth
from vitreous.errors import DataError


class Batch(NamedTuple):
    """Images, the targets as the task wants them, and who they are."""

    images: Any
    """(b, c, h, w), or, where sizes differ, a list of (c, h, w); (b, v, c, h, w) with v views."""
    targets: Any
    """One tensor of b rows, a tuple of such, or a list with an entry for each image."""
    ids: list[str]
    sizes: list[tuple[int, int]]
    """Height and width that each image has where it is stored."""

    def to(self, device: torch.device) -> Batch:
        """The same on a device; what is copied there is on its way when this returns."""
        images, targets = moved(self.images, device), moved(self.targets, device)
        return self._replace(images=images, targets=targets)

    def part(self, number: int, parts: int) -> Batch:
        """Each `parts`-th image, from `number` on."""
        which = slice(number, None, parts)
        targets = self.targets
        if isinstance(targets, tuple):
            targets = type(targets)(*(each[which] for each in targets))
        else:
            targets = targets[which]
        return Batch(self.images[which], targets, self.ids[which], self.sizes[which])


def moved(thing: Any, device: torch.device) -> Any:
    """A tensor, or whatever holds tensors, on a device."""
    if isinstance(thing, Tensor):
        return thing.to(device, non_blocking=True)
    if isinstance(thing, dict):
        return {key: moved(value, device) for key, value in thing.items()}
    if isinstance(thing, tuple):
        return type(thing)(*(moved(each, device) for each in thing))
    return [moved(each, device) for each in thing]


Item = tuple[Tensor, Any, str, tuple[int, int]] | DataError
"""A sample as a batch has it, or why it cannot be read: torch would bury an exception of a worker
in a traceback."""


class Draw(NamedTuple):
    """One place in the stream of training samples."""

    epoch: int
    position: int
    """In the epoch."""
    number: int
    """Of the sample that is drawn here."""


@dataclass
class TrainSet(Dataset[Item]):
    """Augmented samples; an index is a `Draw`: workers need not be told the epoch."""

    source: Source
    samples: Sequence[Sample]
    preprocess: Preprocess
    augment: Augment
    moves: Truth
    seed: int
    own: OwnAugment | None = None
    """What a program does to an image before `augment`."""
    views: int = 1
    """How often each image is augmented; several views of an item are (v, c, h, w)."""
    pixels: bool = False
    """Whether images may come as bytes, to be normalised by who gets them: a quarter of the memory
    to hand over from one process to another."""

    def __getitem__(self, draw: Draw) -> Item:
        try:
            return self._get(draw)
        except DataError as error:
            return error

    def _get(self, draw: Draw) -> Item:
        sample = self.samples[draw.number]
        image, target, size = self._augmented(sample, draw)
        if self.views > 1:
            more = (self._augmented(sample, draw, number)[0] for number in range(1, self.views))
            image = torch.stack([image, *more])
        other, share = target, 1.0
        if self.augment.mixes:
            with random_by(self.seed, draw.epoch, draw.position, sample.id, "mix"):
                partner = self.samples[int(torch.randint(len(self.samples), ()))]
                second, other, _ = self._augmented(partner, draw)
                image, share = self.augment.mix(image, second)
        return image, self.moves.mix(target, other, share), sample.id, size

    def _augmented(
        self, sample: Sample, draw: Draw, view: int = 0
    ) -> tuple[Tensor, Any, tuple[int, int]]:
        seed: tuple[int | str, ...] = (self.seed, draw.epoch, draw.position, sample.id)
        seed += (view,) if view else ()  # the first one is as if there were no others
        limit, pixels = self.source.max_pixels, self.pixels and not self.augment.mixes
        with random_by(*seed):
            (image, full, _), cut = self._decode(sample)
            truth = self.moves.read(self.source, sample, full)
            with self.source.naming(sample):
                if self.own is not None:
                    image, truth = self.own(image, truth)
                given = (image, truth, self.preprocess, self.moves, limit, cut)
                values, truth = self.augment(*given, pixels=pixels)
        target = self.moves.target(truth, (values.shape[1], values.shape[2]))
        return values, target, (image.shape[1], image.shape[2]) if cut is None else cut.stored

    def _decode(self, sample: Sample) -> tuple[DecodedImage, Cut | None]:
        """The image. Of a JPEG, what will be cut out of it is drawn first: one that is more than
        twice as large as that needs is decoded smaller."""
        if self.own is not None or self.augment.crop != "resized" or not self.moves.stays:
            return self.source.decode(sample), None
        cut = None

        def enough(height: int, width: int) -> tuple[int, int]:
            nonlocal cut
            cut = self.augment.draw((height, width))
            return cut.enough(pair("image_size", self.preprocess.image_size))

        return self.source.decode(sample, enough), cut


@dataclass
class EvalSet(Dataset[Item]):
    """Samples as they are."""

    source: Source
    samples: Sequence[Sample]
    preprocess: Any
    """A `Preprocess`, or what is called like one."""
    moves: Truth

    def __getitem__(self, number: int) -> Item:
        sample = self.samples[number]
        try:
            image, full, _ = self.source.decode(sample)
            with self.source.naming(sample):
                values = self.preprocess(image, self.source.max_pixels)
            size = (full.height, full.width)
            target = self.moves.reference(self.moves.read(self.source, sample, full), size)
            return values, target, sample.id, size
        except DataError as error:
            return error

    def __len__(self) -> int:
        return len(self.samples)


@dataclass
class Order(Sampler[list[Draw]]):
    """The batches of one process, from step `start` to step `stop`. A global batch is divided among
    `world` processes; each step of each epoch has the same samples whatever `world` is. `weights`
    (one per sample) draws with replacement: balanced sampling."""

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

    def __iter__(self) -> Iterator[list[Draw]]:
        share = self.batch // self.world
        for step in range(self.start, self.stop):
            epoch, within = divmod(step, self.steps_per_epoch)
            if step == self.start or within == 0:
                order = self.epoch(epoch)
            first = within * self.batch + self.rank * share
            places = range(first, min(first + share, len(order)))
            yield [Draw(epoch, place, order[place]) for place in places]

    def __len__(self) -> int:
        return self.stop - self.start

    def epoch(self, epoch: int) -> list[int]:
        """All samples of an epoch in their order."""
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch, "order"))
        if self.weights is None:
            return torch.randperm(self.count, generator=generator).tolist()
        draws = torch.multinomial(self.weights, self.count, replacement=True, generator=generator)
        return draws.tolist()


def train_batches(
    dataset: TrainSet, order: Order, workers: int, *, pin: bool = False
) -> Iterator[Batch]:
    dataset = replace(dataset, pixels=workers > 0 and not pin)
    if workers and dataset.augment.needs_torchvision:
        transforms()  # once, before there are several processes that would each import them
    batches = _readable(
        DataLoader(
            dataset,
            batch_sampler=order,
            num_workers=workers,
            collate_fn=collate,
            prefetch_factor=4 if workers else None,
            pin_memory=pin,
        )
    )
    for batch in batches:
        yield batch._replace(images=_normalised(batch.images, dataset.preprocess))


def _normalised(images: Any, preprocess: Preprocess) -> Any:
    """Images, some of which have come as bytes."""
    if isinstance(images, Tensor):
        return preprocess.normalise(images) if images.dtype == torch.uint8 else images
    return stacked([_normalised(each, preprocess) for each in images])


def eval_batches(
    dataset: EvalSet, batch: int, workers: int, rank: int = 0, world: int = 1, *, pin: bool = False
) -> Iterator[Batch]:
    """Every sample once, every `world`-th of them on each process."""
    numbers = list(range(rank, len(dataset), world))
    part = torch.utils.data.Subset(dataset, numbers)
    loader = DataLoader(part, batch, num_workers=workers, collate_fn=collate, pin_memory=pin)
    return _readable(loader)


def _readable(batches: Iterable[Batch | DataError]) -> Iterator[Batch]:
    """The batches; one with a sample that cannot be read is the error that names it."""
    for batch in batches:
        if isinstance(batch, DataError):
            raise batch
        yield batch


def collate(items: list[Item]) -> Batch | DataError:
    good = []
    for item in items:
        if isinstance(item, DataError):
            return item
        good.append(item)
    images, targets, ids, sizes = zip(*good, strict=True)
    return Batch(stacked(images), stacked(targets), list(ids), list(sizes))


def stacked(things: Sequence[Any]) -> Any:
    """Numbers and tensors of one shape as one tensor, named tuples field by field, others listed"""
    first = things[0]
    if isinstance(first, tuple):
        return type(first)(*map(stacked, zip(*things, strict=True)))
    if isinstance(first, int | float):
        return torch.tensor(things)
    kind = (first.shape, first.dtype) if isinstance(first, Tensor) else None
    if kind is not None and all((thing.shape, thing.dtype) == kind for thing in things):
        # which stacks them where the other process reads them; that one has time to reorder pixels
        if is_interleaved(first):
            return default_collate([each.permute(1, 2, 0) for each in things]).permute(0, 3, 1, 2)
        return default_collate(list(things))
    return list(things)
