"""One scene, written in every format of annotated objects, for the checks that all must pass."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 20, 40
NAMES = ("cat", "dog")


class Thing(NamedTuple):
    """An object; its outline is its box."""

    box: tuple  # left, top, right, bottom
    name: str = "cat"
    crowd: bool = False

    @property
    def points(self):
        left, top, right, bottom = self.box
        return [left, top, right, top, right, bottom, left, bottom]


SCENE = {
    "a": [Thing((2, 3, 12, 10)), Thing((20, 0, 40, 20), "dog")],
    "b": [],
    "c": [Thing((0, 0, 7, 20), "dog"), Thing((10, 4, 30, 16)), Thing((31, 1, 39, 9))],
}
BROKEN = Thing(None)
"""An object of which nobody can tell where it is."""


@dataclass
class Writer:
    """Writes a scene, the things of each image by its name, below a folder."""

    root: Path
    images: str
    exif: int = 1
    sizes: bool = True
    """Whether annotations state the sizes of images, where the format can."""
    polygons: bool = False
    end = "png"
    """Of images."""

    def write(self, scene=SCENE, size=(HEIGHT, WIDTH)):
        for name, things in scene.items():
            pixels = np.random.default_rng(list(name.encode())).integers(0, 256, (*size, 3))
            exif = Image.Exif()
            exif[0x0112] = self.exif
            path = self.root / self.images / f"{name}.{self.end}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path, exif=exif)
            self.annotate(name, things)
        self.finish(scene)
        return self.root

    def image(self, name):
        """The id of its sample."""
        return f"{self.images}/{name}.png"

    def text(self, path, content):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def annotate(self, name, things):
        """Writes the file of one image, where each has its own."""

    def finish(self, scene):
        """Writes what all images share."""

    def wrong(self, name):
        """The file that has to be changed, if the objects of an image are wrong."""
        raise NotImplementedError

    def record(self, name, number, thing, scene):
        """What problems call an object, which is the number-th of its image, from 1."""
        raise NotImplementedError


class Coco(Writer):
    def __init__(self, root, **options):
        super().__init__(root, "train", **options)

    def finish(self, scene):
        images, rows, path = [], [], "annotations/instances_train.json"
        for number, (name, things) in enumerate(scene.items(), 1):
            size = {"height": HEIGHT, "width": WIDTH} if self.sizes else {}
            images.append({"id": number, "file_name": f"{name}.png", **size})
            for thing in things:
                row = {"id": len(rows) + 1, "image_id": number, "iscrowd": int(thing.crowd)}
                row["category_id"] = 3 + 4 * NAMES.index(thing.name)
                if thing is not BROKEN:
                    left, top, right, bottom = thing.box
                    row["bbox"] = [left, top, right - left, bottom - top]
                    row |= {"segmentation": [thing.points]} if self.polygons else {}
                rows.append(row)
        kinds = [{"id": 3 + 4 * i, "name": name} for i, name in enumerate(NAMES)]
        values = {"images": images, "annotations": rows, "categories": kinds}
        self.text(path, json.dumps(values))

    def wrong(self, name):
        return self.image(name)

    def record(self, name, number, thing, scene):
        before = sum(len(things) for other, things in scene.items() if other < name)
        return f"{self.root}/annotations/instances_train.json, annotation {before + number}"


class Yolo(Writer):
    def __init__(self, root, **options):
        super().__init__(root, "images", **options)

    def annotate(self, name, things):
        self.text(f"labels/{name}.txt", "".join(f"{self.line(thing)}\n" for thing in things))

    def line(self, thing):
        label = NAMES.index(thing.name)
        if thing is BROKEN:
            return f"{label} 0.5 0.5"
        if self.polygons:
            sides = (WIDTH, HEIGHT) * 4
            points = [point / side for point, side in zip(thing.points, sides, strict=True)]
            return " ".join(map(str, [label, *points]))
        left, top, right, bottom = thing.box
        centre = f"{(left + right) / 2 / WIDTH} {(top + bottom) / 2 / HEIGHT}"
        return f"{label} {centre} {(right - left) / WIDTH} {(bottom - top) / HEIGHT}"

    def finish(self, scene):
        self.text("classes.txt", "\n".join(NAMES))

    def wrong(self, name):
        return f"labels/{name}.txt"

    def record(self, name, number, thing, scene):
        return f"labels/{name}.txt, line {number}"


class Voc(Writer):
    def __init__(self, root, **options):
        super().__init__(root, "JPEGImages", **options)

    def annotate(self, name, things):
        size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
        objects = "".join(map(self.object, things))
        text = f"<annotation>{size if self.sizes else ''}{objects}</annotation>"
        self.text(f"Annotations/{name}.xml", text)

    @staticmethod
    def object(thing):
        """VOC counts pixels from 1, and the last one belongs to the box."""
        box = ""
        if thing is not BROKEN:
            left, top, right, bottom = thing.box
            first = left + (right > left), top + (bottom > top)
            names = zip(("xmin", "ymin", "xmax", "ymax"), (*first, right, bottom), strict=True)
            box = "".join(f"<{name}>{side}</{name}>" for name, side in names)
        difficult = f"<difficult>{int(thing.crowd)}</difficult>"
        return f"<object><name>{thing.name}</name>{difficult}<bndbox>{box}</bndbox></object>"

    def wrong(self, name):
        return f"Annotations/{name}.xml"

    def record(self, name, number, thing, scene):
        return f"Annotations/{name}.xml, object {number} ({thing.name})"


class Numbers(Writer):
    """Pictures with the number of an object in each pixel, class * 1000 + n."""

    pictures, per_class, first = "instances", 1000, 1

    def __init__(self, root, **options):
        super().__init__(root, "images", **options)

    def annotate(self, name, things):
        values = np.zeros((HEIGHT, WIDTH), np.uint16)
        for number, thing in enumerate(things, self.first):
            left, top, right, bottom = thing.box
            label = 1 + NAMES.index(thing.name)
            values[top:bottom, left:right] = self.per_class * label + number * self.first
        path = self.root / self.pictures / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(values).save(path)

    def finish(self, scene):
        names = ("background", *NAMES)
        self.text("classes.json", json.dumps(dict(list(enumerate(names))[self.first :])))


class Masks(Numbers):
    """Pictures with the class in each pixel."""

    pictures, per_class, first = "masks", 1, 0


BOXES = {"coco": Coco, "yolo": Yolo, "voc": Voc}
OUTLINES = {"coco": Coco, "yolo": Yolo}
INSTANCES = OUTLINES | {"instances": Numbers}
WRITERS = BOXES | INSTANCES | {"masks": Masks}
