"""A detector made by hand, whose answer is known: it finds bright rectangles, by their colour."""

from types import SimpleNamespace

import numpy as np
import torch
from scipy import ndimage
from torch import nn

from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap
from vitreous.models.detr import DETROutput
from vitreous.predict import Predictor
from vitreous.tasks.detect.task import Detect

LABELS = LabelMap(("red", "green", "blue"), (1, 2, 3))
QUERIES = 24


class BrightRectangles(nn.Module):
    """Connected bright pixels of a colour are an object, if it is at least `least` pixels wide and
    high at the size at which the model sees it."""

    name = "bright"

    def __init__(self, size, least=1):
        super().__init__()
        self.config = SimpleNamespace(image_size=size, queries=QUERIES)
        self.least, self.calls = least, []
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, images):
        self.calls.append(tuple(images.shape))
        found = [self.look(image) for image in images]
        return DETROutput(*(torch.stack(part)[None] for part in zip(*found, strict=True)))

    def look(self, image):
        height, width = image.shape[1:]
        logits = torch.tensor([0.0, 0, 0, 9]).repeat(QUERIES, 1)
        boxes = torch.full((QUERIES, 4), 0.5)
        query = 0
        for colour, values in enumerate(image):
            for rows, columns in ndimage.find_objects(ndimage.label(values.numpy() > 0)[0]):
                tall, wide = rows.stop - rows.start, columns.stop - columns.start
                if min(tall, wide) >= self.least:
                    logits[query, colour] = 11 + min(tall * wide / (height * width), 1)
                    place = (columns.start + wide / 2, rows.start + tall / 2, wide, tall)
                    boxes[query] = torch.tensor(place) / torch.tensor([width, height] * 2)
                    query += 1
        return logits, boxes


def predictor(size=64, least=1, resize="none", **options):
    """What it finds is exact where images keep their size, with resize="none"."""
    preprocess = Preprocess(image_size=size, resize=resize, whole=True)
    return Predictor(BrightRectangles((size, size), least), preprocess, Detect(LABELS), **options)


def scene(height, width, *rectangles):
    """(h, w, 3) with rectangles: colour (0 to 2), left, top, right, bottom."""
    image = np.zeros((height, width, 3), np.uint8)
    for colour, left, top, right, bottom in rectangles:
        image[top:bottom, left:right, colour] = 255
    return image


def boxes(result):
    """The objects as the rectangles of a scene, in their order."""
    names = LABELS.names
    return sorted((names.index(o.label), *map(round, o.box)) for o in result.objects)
