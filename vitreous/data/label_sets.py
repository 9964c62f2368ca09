"""The classes of public data sets in their order: names as torchvision has them, and for
ImageNet-1k the WordNet ids (imagenet-1k.txt), which are the names of its folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from vitreous.data.formats.names import Names, numbered_labels
from vitreous.labels import LabelMap

NUMBERS = "numbers"
"""In place of names: each class is called by its number."""

SAME = 0.95
"""The part of the names of a set that must be there: people have corrected a few of ImageNet's."""


def _imagenet_1k() -> list[str]:
    from torchvision.models import ViT_B_16_Weights

    return list(ViT_B_16_Weights.DEFAULT.meta["categories"])


def _coco_91() -> list[str]:
    """By COCO's ids, of which some, 0 among them, are no category."""
    from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

    return ["N/A", *FasterRCNN_ResNet50_FPN_Weights.DEFAULT.meta["categories"][1:]]


SETS: dict[str, Callable[[], list[str]]] = {"imagenet-1k": _imagenet_1k, "coco-91": _coco_91}


def labels_for(classes: int, given: Names) -> LabelMap:
    """The labels of a model with so many classes: a name of `SETS`, "numbers", a file with names or
    the names themselves."""
    if given == NUMBERS:
        return class_names([str(number) for number in range(classes)])
    if isinstance(given, str) and given in SETS:
        labels = class_names(SETS[given]())
        return LabelMap(labels.names, _ids(given) or labels.external)
    return numbered_labels(given)


def labels_of(names: Sequence[str]) -> LabelMap:
    """The labels of a model whose source states these names. If they are those of a set, in its
    order ("tench, Tinca tinca" is "tench"), each class has the set's id as well."""
    labels = class_names(names)
    for known in SETS:
        ids = _ids(known)
        if len(ids) == len(names):
            first = [name.partition(",")[0].casefold() for name in names]
            pairs = zip(first, SETS[known](), strict=True)
            same = sum(bool(one) and name.casefold().startswith(one) for one, name in pairs)
            if same >= SAME * len(names):
                return LabelMap(labels.names, ids)
    return labels


def _ids(known: str) -> tuple[str, ...]:
    """Of the classes of a set, where they have some besides their numbers."""
    file = Path(__file__).with_name(f"{known}.txt")
    return tuple(file.read_text(encoding="ascii").split()) if file.is_file() else ()


def class_names(names: Sequence[str]) -> LabelMap:
    """Classes 0, 1, 2 …; where two have one name, both get their number as well."""
    counts = Counter(names)
    told_apart = [f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(names)]
    if len({*told_apart}) < len(names):  # a third one is called like the result
        told_apart = [f"{name} ({i})" for i, name in enumerate(names)]
    return LabelMap(tuple(told_apart), tuple(range(len(names))))
