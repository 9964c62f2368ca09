"""Images, and pictures of the same size with the number of an object in each pixel.

    train/images/1.jpg  train/instances/1.png

The folders are laid out as those of masks are (`pairing.py`). The pictures have 8 or 16 bits; 0 is
no object. With a names file of several classes, given or found in the folder, a number is
class * 1000 + n, as in Cityscapes: 26003 is an object of class 26; a pixel with a class alone, 26,
belongs to objects of it that were not told apart, a crowd. Otherwise all objects are of one class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.decode.images import shown
from vitreous.data.decode.masks import Mask
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.mask_folders import LabelPictureSource, find_names, note_unpaired
from vitreous.data.formats.names import numbered_labels
from vitreous.data.formats.pairing import INSTANCES, Pairing, find_pairs
from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.source import IGNORED
from vitreous.errors import DataError
from vitreous.labels import LabelMap

PER_CLASS = 1000
"""Numbers of objects of each class."""
OBJECT = "object"
"""The class, where there is only one and it has no name."""
_LAYOUTS = "train/images + train/instances, images/train + instances/train, or images + instances"


class InstancePictureSource(LabelPictureSource):
    def from_values(self, mask: Mask, path: str) -> dict[str, Any]:
        if mask.values.ndim == 3:
            raise DataError(
                f"{shown(path)}: has colours, where the number of an object is expected in each "
                "pixel: save it in 8 or 16 bits of gray"
            )
        return objects_of(mask.values, self.labels, shown(path))


def objects_of(values: NDArray[Any], labels: LabelMap, name: str) -> dict[str, Any]:
    """What a picture (h, w) of numbers says; `name` is what errors begin with."""
    numbers = [number for number in np.unique(values).tolist() if number]
    one_class, classes = len(labels) == 1 and not labels.ignored, labels.by_external()
    kept, found, crowd = [], [], []
    for number in numbers:
        class_ = number // PER_CLASS or number
        if one_class:
            label = 0
        elif class_ in classes:
            label = classes[class_]
        elif number < PER_CLASS:
            continue  # what has no objects, as the sky
        else:
            raise DataError(
                f"{name}: {number} is object {number % PER_CLASS} of class {class_}, which the "
                f"names file has not (class * {PER_CLASS} + number): add it, with null to ignore it"
            )
        if label != IGNORED:
            kept.append(number)
            found.append(label)
            crowd.append(number < PER_CLASS and not one_class)
    return InstanceMasks.of_numbers(values, kept).truth(found, crowd)


def recognise(folder: str) -> bool:
    return bool(find_pairs(folder, INSTANCES, []))


def read(builder: SourceBuilder) -> InstancePictureSource:
    pairing = Pairing(builder, INSTANCES)
    pairing.read_folders("", _LAYOUTS)
    unpaired = note_unpaired(builder, pairing, "instance numbers")
    return builder.build(InstancePictureSource, _labels(builder), unpaired=unpaired)


def _labels(builder: SourceBuilder) -> LabelMap:
    names = find_names(builder)
    if names is None:
        builder.notes.append(
            "every number but 0 is an object, all of one class; if numbers are class * "
            f'{PER_CLASS} + n, name the classes: --names FILE with {{"26": "car", …}}'
        )
        return LabelMap((OBJECT,), (1,))
    labels = numbered_labels(names)
    if len(labels) == 1 and not labels.ignored:
        builder.notes.append(f"every number but 0 is an object of the class {labels.names[0]!r}")
    else:
        builder.notes.append(f"numbers are class * {PER_CLASS} + n; a class alone is a crowd of it")
    return labels
