"""What all formats do alike on the way from files on disk to a `Source`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.files import FileSource, Scan, below, is_below
from vitreous.data.formats.names import Names
from vitreous.data.formats.table import OUR_COLUMNS, Columns
from vitreous.data.source import Problem, Sample, Source
from vitreous.data.split import HoldOut, complete, shared_images
from vitreous.errors import DataError, did_you_mean
from vitreous.labels import LabelMap, natural
from vitreous.wording import counted

S = TypeVar("S", bound=Source)


@dataclass
class SourceBuilder:
    """A Source in the making: what the user asked for, then what a format's `read` has found.
    `read` fills `splits`, and what it notices into `notes` and `problems`; `build` does the
    rest."""

    path: str
    """As the user gave it, without the format's name before it."""
    kind: str
    """The format's name."""
    truth_kind: str
    asked: bool = False
    """Whether the user asked for this kind of ground truth, or it is the format's usual one."""
    download: bool = False
    hold_out: HoldOut = field(default_factory=HoldOut)
    names: Names | None = None
    columns: Columns = OUR_COLUMNS

    splits: dict[str, list[Sample]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    scan: Scan = field(default_factory=Scan)
    odd_names: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """By id, the line of the table that has the sample; errors name it."""

    def __post_init__(self) -> None:
        self.name = shown(self.path)
        self.root = os.path.normpath(os.path.expanduser(self.path))

    def check_folder(self) -> None:
        if not os.path.isdir(self.root):
            raise DataError(f"{self.name}: there is no such folder")

    def check_images(self) -> None:
        if not any(self.splits.values()):
            raise DataError(f"{self.name}: no images in its folders ({' '.join(EXTENSIONS)})")

    def id(self, file: str) -> str:
        """The path below the root as text; the real path is kept where that differs."""
        inside = file.startswith(self.root + os.sep)  # relpath is slow, and images are many
        real = file[len(self.root) + 1 :] if inside else os.path.relpath(file, self.root)
        if (id := shown(real).replace(os.sep, "/")) != real:
            self.odd_names[id] = real
        return id

    def file(self, id: str) -> str:
        return os.path.join(self.root, self.odd_names.get(id, id))

    def samples(self) -> list[Sample]:
        return [sample for samples in self.splits.values() for sample in samples]

    def number(self, targets: dict[str, list[int]], labels: LabelMap) -> None:
        """Fills the splits with images that have no names, `train/0`, `train/1` …, from the class
        ids of each split."""
        classes = {external: number for number, external in enumerate(labels.external)}
        self.splits = {
            split: [Sample(f"{split}/{i}", classes[id]) for i, id in enumerate(ids)]
            for split, ids in targets.items()
        }

    def build(self, source: type[S], labels: LabelMap, **fields: Any) -> S:
        """The Source, with a val and a test held out from train if the data has none and they are
        asked for."""
        if issubclass(source, FileSource):
            for samples in self.splits.values():
                samples.sort(key=lambda sample: natural(sample.id))
            self.problems += shared_images(self.splits, self.name)
            self._note_outside()
            fields |= {"root": self.root, "odd_names": self.odd_names}
        self._check_trained(labels)
        return source(
            name=self.name,
            kind=self.kind,
            truth_kind=self.truth_kind,
            labels=labels,
            splits=complete(self.splits, self.hold_out, self.notes, truth_kind=self.truth_kind),
            notes=self.notes + self.scan.notes(),
            problems=list(dict.fromkeys(self.scan.problems + self.problems)),
            **fields,
        )

    def _note_outside(self) -> None:
        """Links and paths may lead out of the data's folder. People link data, so they are
        followed; but it is told, for data of others should not decide unseen what is read."""
        root = os.path.realpath(self.root)
        folders = Counter(os.path.dirname(self.file(sample.id)) for sample in self.samples())
        outside = {
            folder: (real, count)
            for folder, count in folders.items()
            if not is_below(real := os.path.realpath(folder), root)
        }
        if outside:
            folder, (real, _) = min(outside.items())
            count = sum(count for _, count in outside.values())
            one = f"{below(folder, self.root)} leads to {shown(real)}"
            more = f", and {len(outside) - 1} more" if len(outside) > 1 else ""
            images = counted(count, "image")
            self.notes.append(f"outside the data's folder: {images}: {one}{more}")

    def _check_trained(self, labels: LabelMap) -> None:
        """Classes that only other splits have could not be learned."""
        trained = {class_ for s in self.splits.get("train", ()) for class_ in self._classes(s)}
        if not trained:
            return
        for split, samples in self.splits.items():
            for sample in samples:
                for class_ in self._classes(sample):
                    if class_ not in trained:
                        line = self.lines.get(sample.id)
                        where = f"{self.name}, line {line}" if line else self.name
                        name = str(labels.external[class_])
                        hint = did_you_mean(name, (str(labels.external[i]) for i in trained))
                        what = f"class {name!r} is in {split} but not in train"
                        raise DataError(f"{where}: {what}{hint}")

    def _classes(self, sample: Sample) -> Iterable[int]:
        if self.truth_kind == "class":
            return (sample.target,)
        return sample.target if self.truth_kind == "labels" else ()
