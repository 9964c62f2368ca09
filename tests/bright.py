"""A detector made by hand, whose answer is known: it finds bright rectangles, by their colour."""

import itertools
from types import SimpleNamespace

import numpy as np
import torch
from scipy import ndimage
from torch import nn

from vitreous.data.preprocess import Preprocess
from vitreous.inference import InferenceOptions
from vitreous.labels import LabelMap
from vitreous.models.detr import DETROutput
from vitreous.models.rf_detr import RFDETROutput
from vitreous.predict import Predictor
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.instance.task import SegmentInstances

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


class BrightShapes(BrightRectangles):
    """The same with masks: of each object the pixels that are bright."""

    def forward(self, images):
        self.calls.append(tuple(images.shape))
        logits, boxes = (
            torch.stack(part)[None] for part in zip(*map(self.look, images), strict=True)
        )
        masks = torch.full((*logits.shape[:3], *images.shape[2:]), -1.0)
        for image, of_image in zip(images, masks[0], strict=True):
            query = 0
            for values in image:
                numbers = ndimage.label(values.numpy() > 0)[0]
                for number, (rows, columns) in enumerate(ndimage.find_objects(numbers), 1):
                    sides = rows.stop - rows.start, columns.stop - columns.start
                    if min(sides) >= self.least:
                        of_image[query][torch.from_numpy(numbers == number)] = 1.0
                        query += 1
        chances = logits[..., :3] - 10
        return RFDETROutput(chances, boxes, chances[-1], boxes[-1], masks=masks)


def predictor(size=64, least=1, resize="none", masks=False, **options):
    """What it finds is exact where images keep their size, with resize="none"."""
    preprocess = Preprocess(image_size=size, resize=resize, whole=True)
    kind, task = (BrightShapes, SegmentInstances) if masks else (BrightRectangles, Detect)
    return Predictor(
        kind((size, size), least), preprocess, task(LABELS), InferenceOptions(**options)
    )


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


class SmallWhole:
    """Preprocesses tiles as they are, and larger images like another one."""

    def __init__(self, tiles, whole):
        self.tiles, self.whole = tiles, whole

    def __call__(self, image, max_pixels):
        return (self.whole if max(image.shape) > 64 else self.tiles)(image, max_pixels)

    def __getattr__(self, name):
        return getattr(self.tiles, name)


# What a tile sees, in tiles of 64 that begin at 0, 48 and 96 of 160 pixels.
SCENES = {
    "inside of one tile": [(0, 10, 10, 20, 20)],
    "in the overlap of two": [(0, 50, 10, 60, 20)],
    "in the overlap of four": [(0, 50, 50, 60, 60)],
    "cut by a border, whole in another tile": [(0, 60, 10, 72, 20)],
    "a narrow part beyond the border": [(0, 30, 10, 50, 30)],
    "longer than the overlap": [(0, 40, 10, 70, 20)],
    "over a corner, in no tile as a whole": [(0, 40, 40, 75, 75)],
    "longer than a tile": [(0, 5, 20, 150, 40)],
    "larger than a tile in both directions": [(1, 20, 30, 150, 140)],
    "all of the image": [(2, 0, 0, 160, 160)],
    "two neighbours that look like one in the overlap": [(0, 30, 10, 52, 20), (0, 56, 10, 90, 20)],
    "two colours at one place": [(0, 40, 40, 70, 70), (1, 40, 40, 70, 70)],
    "a small one before a large one of another colour": [(1, 5, 5, 155, 155), (0, 58, 58, 66, 66)],
    "many": [(c, x, y, x + 9, y + 9) for c, x, y in itertools.product(range(3), (3, 60), (44, 90))],
}
