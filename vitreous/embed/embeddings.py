"""Vectors with the images they belong to, and what can be asked of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vitreous.embed import vector_files
from vitreous.embed.images import Images, of_paths
from vitreous.embed.plane import on_plane
from vitreous.embed.vector_files import Stored
from vitreous.errors import ConfigError, DataError
from vitreous.labels import natural
from vitreous.neighbours import K, nearest, normalised, similar_pairs, vote

if TYPE_CHECKING:
    from vitreous.predict import Predictor

THRESHOLD = 0.9
"""Cosine similarity from which images are near-duplicates."""
KINDS = {"train": 0, "val": 1, "test": 2}


@dataclass(frozen=True)
class ImageMatch:
    """What a question finds; `to_dict` is for JSON, without the numbers of the images."""

    def to_dict(self) -> dict[str, Any]:
        return {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in asdict(self).items()
            if key not in ("index", "indices", "neighbours")
        }


@dataclass(frozen=True)
class Near(ImageMatch):
    """An image near another one."""

    path: str
    similarity: float
    """Cosine, from -1 to 1."""
    label: str
    split: str
    index: int
    """Its row of the vectors."""


@dataclass(frozen=True)
class Duplicate(ImageMatch):
    """Two images that are the same, or nearly."""

    paths: tuple[str, str]
    similarity: float
    identical: bool
    """Byte by byte, or pixel by pixel where images are no files."""
    splits: tuple[str, str]
    labels: tuple[str, str]
    indices: tuple[int, int]


@dataclass(frozen=True)
class Suspect(ImageMatch):
    """An image whose neighbours have another label."""

    path: str
    label: str
    suggested: str
    agreement: float
    """The share of the neighbours' votes for its own label, from 0 to 1."""
    support: float
    """The share for the suggested one."""
    split: str
    index: int
    neighbours: tuple[int, ...]


@dataclass(frozen=True)
class Embeddings(Stored):
    """What `vitreous.embed` returns. Vectors are as the model gives them, not normalised."""

    images: Images = field(repr=False)
    """Where the images themselves are read."""
    predictor: Predictor | None = field(default=None, repr=False)
    """The model that made the vectors; not there if they come from a file."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Embeddings:
        """Those in a file that `vitreous embed --out` wrote."""
        if not os.path.isfile(path):
            raise DataError(f"{os.fspath(path)}: there is no such file")
        stored = vector_files.read(Path(path))
        return cls(**vars(stored), images=of_paths(stored.paths))

    def save(self, path: str | os.PathLike[str]) -> None:
        """To a .npz or .parquet."""
        vector_files.check_out(Path(path))
        vector_files.write(Path(path), self)

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def normalised(self) -> NDArray[np.float32]:
        """Vectors of length 1: their products are cosine similarities."""
        return normalised(self.vectors)

    def only(self, split: str) -> Embeddings:
        """Those of one split."""
        rows = [row for row, name in enumerate(self.splits) if name == split]
        return replace(
            self,
            paths=[self.paths[row] for row in rows],
            vectors=self.vectors[rows],
            labels=[self.labels[row] for row in rows],
            splits=[split] * len(rows),
            stamps=self.stamps[rows],
            images=replace(self.images, entries=[self.images.entries[row] for row in rows]),
        )

    def near(self, image: Any, top: int = 10) -> list[Near]:
        """The images nearest to one, which is itself among them or not: a path, or whatever
        `Predictor` takes."""
        _at_least("top", top, 1)
        own = self.row(image)
        if own is not None:
            query = self.vectors[own : own + 1]
        elif self.predictor is None:
            raise ConfigError(
                f"{image}: is none of these images, and vectors from a file have no model to embed "
                "it: vitreous.embed(RUN, images, out=FILE).near(image) has one"
            )
        else:
            query = self.predictor.embed(image, pool=self.about.pool)
        found = nearest(query, self.vectors, top + (own is not None))
        rows = zip(found.indices[0].tolist(), found.similarities[0].tolist(), strict=True)
        others = [(index, similarity) for index, similarity in rows if index != own]
        return [
            Near(self.paths[i], similarity, self.labels[i], self.splits[i], i)
            for i, similarity in others[:top]
        ]

    def row(self, image: Any) -> int | None:
        """The row of an image that is among these."""
        if not isinstance(image, str | os.PathLike):
            return None
        text = os.fspath(image)
        if text in self.paths:
            return self.paths.index(text)
        real = os.path.realpath(text)
        files = (
            os.path.realpath(entry.file) if entry.file else "" for entry in self.images.entries
        )
        return next((i for i, file in enumerate(files) if file == real), None)

    def duplicates(self, threshold: float = THRESHOLD) -> list[Duplicate]:
        """Pairs of images with a cosine similarity of at least `threshold`: those in different
        splits first, train and test before others; then identical files, then by similarity."""
        if not 0 < threshold <= 1:
            raise ConfigError(f"threshold = {threshold:g}: expected a number above 0, up to 1")
        names = sorted(set(self.splits), key=lambda split: KINDS.get(split, len(KINDS)))
        groups = np.array([names.index(split) for split in self.splits], np.int64)
        # equal vectors may differ from 1 by rounding
        pairs, similarities = similar_pairs(self.vectors, min(threshold, 1 - 1e-5), groups)
        digests: dict[int, bytes | None] = {}
        found = [
            self._duplicate(int(i), int(j), similarity, digests)
            for (i, j), similarity in zip(pairs, similarities.tolist(), strict=True)
        ]
        return sorted(found, key=_order)

    def _duplicate(
        self, i: int, j: int, similarity: float, digests: dict[int, bytes | None]
    ) -> Duplicate:
        if KINDS.get(self.splits[i], 3) > KINDS.get(self.splits[j], 3):
            i, j = j, i
        return Duplicate(
            (self.paths[i], self.paths[j]),
            min(similarity, 1.0),
            similarity > 1 - 1e-4 and self._identical(i, j, digests),
            (self.splits[i], self.splits[j]),
            (self.labels[i], self.labels[j]),
            (i, j),
        )

    def _identical(self, i: int, j: int, digests: dict[int, bytes | None]) -> bool:
        if self.stamps[i, 0] != self.stamps[j, 0]:  # files of another size
            return False
        for row in (i, j):
            if row not in digests:
                try:
                    digests[row] = self.images.digest(self.images.entries[row])
                except (OSError, DataError):  # it was there when its vector was computed
                    digests[row] = None
        return digests[i] is not None and digests[i] == digests[j]

    def suspects(self, k: int = K) -> list[Suspect]:
        """Images whose label differs from that of most of their neighbours, the likely errors
        first: each is classified by its k nearest others, whose votes are weighted by exp(cos/T). A
        label is the more doubtful the more votes the other one has, and the fewer its own."""
        _at_least("k", k, 1)
        labels, names = self._classes()
        if len(self) < 2:
            return []
        found = nearest(self.vectors, self.vectors, k, same=True)
        shares = vote(found, labels, len(names)).shares
        own, best = shares[np.arange(len(self)), labels], shares.argmax(axis=1)
        doubtful = np.flatnonzero((best != labels) & (shares.max(axis=1) > own))
        most = shares.max(axis=1)
        order = sorted(doubtful.tolist(), key=lambda i: (own[i] - most[i], natural(self.paths[i])))
        return [
            Suspect(
                self.paths[i],
                names[labels[i]],
                names[best[i]],
                float(own[i]),
                float(most[i]),
                self.splits[i],
                i,
                tuple(found.indices[i].tolist()),
            )
            for i in order
        ]

    def knn(self, k: int = K, split: str | None = None) -> dict[str, Any]:
        """k-NN accuracy: each image of `split` (test, else val) is classified by the k nearest of
        train, with votes weighted by exp(cos/0.07) (as DINO is measured) and with plain ones;
        beside it the accuracy of always answering the most frequent class of train."""
        _at_least("k", k, 1)
        labels, names = self._classes()
        split = knn_split(self.splits, split)
        splits = np.array(self.splits)
        train, asked = splits == "train", splits == split
        found = nearest(self.vectors[asked], self.vectors[train], k)
        votes, truth = vote(found, labels[train], len(names)), labels[asked]
        # Of classes with as many plain votes, the one with the nearer neighbours.
        plain = (votes.counts + votes.shares / 2).argmax(axis=1)
        frequent = np.bincount(labels[train]).argmax()  # of equally frequent ones the first
        return {
            "split": split,
            "samples": int(asked.sum()),
            "train_samples": int(train.sum()),
            "k": found.indices.shape[1],
            "knn_accuracy": float((votes.shares.argmax(axis=1) == truth).mean()),
            "knn_accuracy_plain": float((plain == truth).mean()),
            "majority_accuracy": float((truth == frequent).mean()),
        }

    def _classes(self) -> tuple[NDArray[np.int64], list[str]]:
        """The class of each image as a number, and their names."""
        check_classes(self.about.truth_kind)
        names = sorted(set(self.labels), key=natural)
        numbers = {name: number for number, name in enumerate(names)}
        return np.array([numbers[label] for label in self.labels], np.int64), names

    def plane(self, layout: str = "auto") -> tuple[NDArray[np.float32], str]:
        """(n, 2): see `vitreous.embed.plane.on_plane`."""
        return on_plane(self.vectors, layout)


def check_classes(kind: str) -> None:
    """Whether images with this kind of ground truth have one class each."""
    if kind != "class":
        has = f"its ground truth is {kind}" if kind else "these have no labels"
        raise DataError(
            f"this needs images with one class each, as a folder of class folders or a table "
            f"has them; {has}"
        )


def knn_split(splits: Iterable[str], asked: str | None) -> str:
    """The split whose images are classified by those of train: test, else val, unless asked."""
    there = [name for name in dict.fromkeys(splits) if name]
    split = asked or next((name for name in ("test", "val") if name in there), None)
    if split is None or split == "train" or not {split, "train"} <= set(there):
        raise DataError(
            "k-NN accuracy needs a split 'train' and another one, test or val"
            f"{f', not {asked}' if asked else ''}; these images have "
            f"{', '.join(there) or 'no splits'}"
        )
    return split


def _order(pair: Duplicate) -> tuple[Any, ...]:
    one, other = pair.splits
    kind = {("train", "test"): 0, ("train", "val"): 1}.get((one, other), 2 if one != other else 3)
    return kind, not pair.identical, -pair.similarity, natural(pair.paths[0])


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} = {value!r}: expected a whole number of at least {least}")
