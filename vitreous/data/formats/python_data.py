"""Images and their ground truth that a program has, as `Source`: pairs, or a torch Dataset.

An image is a path, an array, a PIL image or a tensor. What stands beside it tells its kind:

    "cat" or 3                              class
    {"cat", "dog"}, [] or (0, 2)            labels, any number of them
    (h, w) of whole numbers                 mask: array, tensor or PIL image; -1 is ignored
    {"boxes": (n, 4), "labels": [...]}      boxes: left, top, right, bottom in pixels
    {"masks": (n, h, w), "labels": [...]}   instances: each object's pixels; boxes are those around
    None, or no pair but the image alone    nothing, where no labels are needed
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vitreous.data.decode.images import displayed_size, from_any
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.formats.names import Names, with_names
from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.objects.table import (
    AnnotatedObject,
    Annotation,
    ObjectTable,
    check_corners,
    cut_to_image,
    errors_in_line,
)
from vitreous.data.source import IGNORED, SPLITS, Sample, Source
from vitreous.data.split import HoldOut, complete
from vitreous.errors import DataError, naming
from vitreous.labels import External, LabelMap, NoLabels
from vitreous.wording import counted

FROM_PYTHON = "python:data"
"""What a recipe calls such data."""


@dataclass
class PythonSource(Source):
    """A sample's id is `split/number`."""

    items: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    """By split: what `data[number]` gives the pairs of."""
    alone: bool = field(default=False, kw_only=True)
    """Images need not have anything beside them."""
    _last: tuple[str, tuple[Any, Any]] = field(default=("", (None, None)), kw_only=True, repr=False)
    """The id and the pair of the image that was read last: a Dataset may open files for each."""

    def pair(self, sample: Sample) -> tuple[Any, Any]:
        split, _, number = sample.id.partition("/")
        return _pair(self.items[split], int(number), self.alone, self.where(sample))

    def image(self, sample: Sample) -> Tensor:
        with naming(self.where(sample)):
            pair = self.pair(sample)
            self._last = (sample.id, pair)
            return from_any(pair[0], max_pixels=self.max_pixels)[0]

    def truth(self, sample: Sample, size: ImageSize | None = None) -> Any:
        if self.truth_kind not in ("mask", "boxes", "instances"):
            return super().truth(sample)
        id, last = self._last
        image, target = last if size is not None and id == sample.id else self.pair(sample)
        with naming(self.where(sample)):
            sides = self._size(image) if size is None else (size.height, size.width)
            if self.truth_kind == "boxes":
                return _boxes(target, sides, self.labels)
            if self.truth_kind == "instances":
                return _instances(target, sides, self.labels)
            return _mask(target, sides, self.labels)

    def _size(self, image: Any) -> tuple[int, int]:
        if isinstance(image, str | os.PathLike):
            return displayed_size(os.fspath(image), max_pixels=self.max_pixels)[:2]
        height, width = from_any(image, max_pixels=self.max_pixels)[0].shape[1:]
        return height, width


def from_python(
    data: Any,
    *,
    truth: str | None = None,
    seed: int = 0,
    val_fraction: float = HoldOut().val,
    test_fraction: float = HoldOut().test,
    names: Names | None = None,
) -> Source:
    """`data` is a sequence of pairs (image, target), a torch Dataset of such, or a dict with one
    for each of train, val and test. Without a val, a part of train is held out; without a test,
    only what is asked for.

    With truth = "none", images may stand alone.

    Every target is looked at once, to learn which classes there are. `names` are those of classes
    that are numbers; a Dataset's own `classes` are used unless given, also of one of which it is a
    `Subset`.
    """
    if isinstance(data, Source):
        return data
    parts = dict(data) if isinstance(data, Mapping) else {"train": data}
    if odd := [str(split) for split in parts if split not in SPLITS]:
        raise DataError(f"data: split {odd[0]!r} is not known: use {', '.join(SPLITS)}")
    for split, items in parts.items():
        if not (hasattr(items, "__getitem__") and hasattr(items, "__len__")):
            raise DataError(
                f"data: {split} is a {type(items).__name__}: expected a sequence of (image, "
                "target), or a Dataset with a length"
            )
    own = next(filter(None, map(_own_names, parts.values())), ())
    targets = {
        split: [
            _pair(items, i, truth == "none", f"data, image {split}/{i}")[1]
            for i in range(len(items))
        ]
        for split, items in parts.items()
    }
    first = next((target for each in targets.values() for target in each), IGNORED)
    if not any(targets.values()):
        raise DataError("data: has no images")
    kind = "none" if truth == "none" and first is None else _kind(first, truth)
    if truth not in (None, "none", kind):
        raise DataError(f"data: its targets are {kind}, where {truth} is asked for")
    ids = {split: [_ids(kind, target) for target in each] for split, each in targets.items()}
    labels = _labels({id for each in ids.values() for found in each for id in found}, kind)
    if names is None and _are_named(labels, own, kind):
        names = {int(id): own[int(id)] for id in labels.external}
    labels = with_names(labels, names, partial=kind in ("mask", "boxes", "instances"))
    classes = labels.by_external()
    splits = {
        split: [
            Sample(f"{split}/{i}", _target(kind, found, classes)) for i, found in enumerate(each)
        ]
        for split, each in ids.items()
    }
    notes: list[str] = []
    return PythonSource(
        name="data",
        kind="python",
        labels=labels,
        splits=complete(splits, HoldOut(val_fraction, test_fraction, seed), notes, truth_kind=kind),
        truth_kind=kind,
        notes=notes,
        items=parts,
        alone=truth == "none",
    )


def _own_names(items: Any) -> tuple[str, ...]:
    """The classes that a Dataset names, as torchvision's do; also that of which it is a part."""
    if names := getattr(items, "classes", None):
        return tuple(map(str, names))
    inside = [getattr(items, "dataset", None), *getattr(items, "datasets", ())]
    return next(filter(None, (_own_names(each) for each in inside if each is not None)), ())


def _are_named(labels: LabelMap, names: tuple[str, ...], kind: str) -> bool:
    """Whether classes are places in a list of names. A part of the data may lack some; but the
    numbers of boxes and masks may have a background before them."""
    if not names or len(set(names)) < len(names):
        return False
    if kind == "class":
        return all(isinstance(id, int) and 0 <= id < len(names) for id in labels.external)
    return labels.external == tuple(range(len(names)))


def _pair(items: Any, number: int, alone: bool, where: str) -> tuple[Any, Any]:
    pair = items[number]
    if alone and not isinstance(pair, list | tuple):
        return pair, None
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise DataError(f"{where}: expected (image, target), got {type(pair).__name__}")
    return pair[0], pair[1]


def _kind(target: Any, asked: str | None = None) -> str:
    """Of ground truth; of what has boxes and masks the one that is asked for, or boxes."""
    if isinstance(target, str | Integral) or (_is_array(target) and np.ndim(_array(target)) == 0):
        return "class"
    if isinstance(target, Mapping) and "labels" in target:
        has = {"boxes": "boxes" in target, "instances": "masks" in target}
        if any(has.values()):
            return asked if asked and has.get(asked) else "boxes" if has["boxes"] else "instances"
    if _is_array(target) and np.ndim(_array(target)) == 2:
        return "mask"
    if isinstance(target, set | frozenset | list | tuple):
        return "labels"
    raise DataError(
        f"data: a target is {type(target).__name__}: expected a class (text or a number), a set of "
        "them, a mask (h, w), or a dict with boxes or masks, and labels"
    )


def _is_array(target: Any) -> bool:
    return isinstance(target, np.ndarray | np.generic | Tensor | Image.Image)


def _array(target: Any) -> NDArray[Any]:
    return target.detach().cpu().numpy() if isinstance(target, Tensor) else np.asarray(target)


def _ids(kind: str, target: Any) -> list[External]:
    """The classes of a target, as the program calls them."""
    if kind == "none":
        return []
    if _kind(target, kind) != kind and not (kind == "labels" and isinstance(target, list | tuple)):
        raise DataError(f"data: some targets are {kind}, and some are {_kind(target, kind)}")
    if kind == "mask":
        values = np.unique(_array(target))
        if values.dtype.kind not in "iub":
            raise DataError(f"data: a mask has values of type {values.dtype}, expected integers")
        return [int(value) for value in values if value != IGNORED]
    found: Iterable[Any] = [target]
    if kind != "class":
        found = target["labels"] if kind in ("boxes", "instances") else target
    return [id if isinstance(id, str) else int(id) for id in found]


def _labels(ids: set[External], kind: str) -> LabelMap:
    if kind == "none":
        return NoLabels()
    texts = {id for id in ids if isinstance(id, str)}
    if texts and texts != ids:
        number = next(id for id in ids if not isinstance(id, str))
        raise DataError(
            f"data: some classes are text ({min(texts)!r}) and some numbers ({number}): use one"
        )
    return LabelMap.of_names(texts) if texts else LabelMap.of_ids(map(int, ids))


def _target(kind: str, found: list[External], classes: Mapping[External, int]) -> Any:
    if kind == "class":
        return classes[found[0]]
    return tuple(sorted({classes[id] for id in found})) if kind == "labels" else None


def _mask(target: Any, size: tuple[int, int], labels: LabelMap) -> Tensor:
    values = _array(target)
    if values.shape != size:
        raise DataError(f"the mask is {values.shape}, but the image is {size} (height, width)")
    mask = np.full(size, IGNORED, np.int16)
    for id, number in labels.by_external().items():
        mask[values == id] = number
    return torch.from_numpy(mask)


def _ids_and_crowd(target: Any, count: int, of: str) -> tuple[list[External], list[bool]]:
    """Of the objects of a target, of which there are so many."""
    ids = [id if isinstance(id, str) else int(id) for id in target["labels"]]
    crowd = [bool(each) for each in target.get("crowd", [False] * len(ids))]
    if not count == len(ids) == len(crowd):
        raise DataError(
            f"{counted(count, of)}, {counted(len(ids), 'label')} and {len(crowd)} crowd"
        )
    return ids, crowd


def _boxes(target: Any, size: tuple[int, int], labels: LabelMap) -> dict[str, Tensor]:
    boxes = np.asarray(_array(target["boxes"]), np.float64).reshape(-1, 4).tolist()
    ids, crowd = _ids_and_crowd(target, len(boxes), "box")
    classes = labels.by_external()
    things = [
        AnnotatedObject(i, id, (box[0], box[1], box[2], box[3]), each, name=f"box {i}")
        for i, (id, box, each) in enumerate(zip(ids, boxes, crowd, strict=True))
        if classes[id] != IGNORED
    ]
    verdicts = list(check_corners(things))
    if errors := [verdict.error for verdict in verdicts if verdict.error]:
        raise DataError(errors_in_line(errors))
    table = ObjectTable("box {number}")
    annotation = table.add_image(Annotation())
    table.add(annotation, (t for t, verdict in zip(things, verdicts, strict=True) if verdict.kept))
    table.close().label(classes)
    return cut_to_image(table, annotation, size).truth


def _instances(target: Any, size: tuple[int, int], labels: LabelMap) -> dict[str, Any]:
    """Objects without a pixel are left out."""
    masks = _array(target["masks"])
    if masks.ndim != 3 or (len(masks) and masks.shape[1:] != size):
        what = "expected (objects, height, width)"
        raise DataError(f"the masks are {masks.shape}, but the image is {size}: {what}")
    ids, crowd = _ids_and_crowd(target, len(masks), "mask")
    if masks.dtype.kind == "f" and not np.isin(masks, (0, 1)).all():
        raise DataError("the masks have fractions: expected True or 1 inside of an object, else 0")
    classes = labels.by_external()
    truth = InstanceMasks.of(masks.reshape(-1, *size)).truth([classes[id] for id in ids], crowd)
    used = (truth["area"] > 0) & (truth["labels"] != IGNORED)
    return {name: values[used] for name, values in truth.items()}
