"""Runs of a small detector with random weights, and data in which some of what it says is true."""

import json

import numpy as np
import torch
from compare import perturb
from PIL import Image
from runs import write_run

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.labels import LabelMap
from vitreous.layers.tap import tap

NAMES = ("cat", "dog", "emu", "fox")
LABELS = LabelMap(NAMES, (3, 7, 12, 200))
SIZE = (32, 48)
BACKBONES = {
    "resnet": {"block": "basic", "stages": (1, 1), "width": 8, "norm": "frozen"},
    "vit": {"patch": 8, "dim": 16, "depth": 1, "heads": 2, "position": "sines-2d"},
}
SIZES = ((40, 60), (64, 50), (33, 70), (20, 20), (48, 48), (90, 31))


def make_model(backbone="resnet", classes=4, **fields):
    """Each query finds something else: the heads see what tells the queries apart, and much of it
    (random weights make them all alike)."""
    torch.manual_seed(0)
    made = {"dim": 16, "heads": 2, "encoder_depth": 1, "decoder_depth": 2, "mlp_dim": 16}
    made |= {"queries": 5, "classes": classes, "image_size": SIZE, "backbone": backbone}
    made |= {"backbone_fields": BACKBONES[backbone], **fields}
    model = perturb(vitreous.create("detr", **made))
    image = torch.from_numpy(checks(np.random.default_rng(1), *SIZE)).permute(2, 0, 1)
    seen = {}
    with torch.no_grad():
        for layer in model.decoder:
            layer.cross_attention.qkv.weight[:32].mul_(8)  # queries and keys
        with tap(dict(model.named_modules()), lambda name, tensor: seen.update({name: tensor})):
            model(image[None] / 127.5 - 1)
        mean, spread = seen["norm"].mean((0, 1)), seen["norm"].std((0, 1)).mean()
        for head, strength in ((model.class_head, 2), (model.box_head.layers[0], 2)):
            head.weight.mul_(strength / spread)
            head.bias.copy_(-head.weight @ mean)
    return model


def make_run(path, backbone="resnet", labels=LABELS, **fields):
    """A run folder as training would leave it."""
    model = make_model(backbone, len(labels), **fields)
    preprocess = Preprocess(image_size=SIZE, resize="shorter", whole=True)
    run = write_run(path, model, labels, preprocess, "detect", "shapes")
    terms = {f"loss_{aux}{name}": 1.0 for aux in ("", "aux_") for name in ("class", "box", "giou")}
    for epoch, ap in ((1.0, 0.3), (2.0, 0.2)):
        numbers = {"ap": ap, "ap50": 0.5, "ap75": None, **terms}
        run.log(step=1, kind="evaluation", epoch=epoch, train_loss=6.0, lr=1e-3, **numbers)
    return run


def checks(random, height, width):
    """(h, w, 3): squares of random colours, no two patches alike."""
    coarse = random.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    return coarse.repeat(8, 0).repeat(8, 1)[:height, :width].copy()


def kinds_of_images():
    """The same picture, 20x30: in gray, in colour, with alpha, of 16 bits, and of floats."""
    bright = torch.arange(600, dtype=torch.int32).reshape(1, 20, 30) % 256
    byte = bright.to(torch.uint8)
    alpha = torch.cat((byte, torch.zeros_like(byte)))
    wide, real = (bright * 100 + 7).to(torch.uint16), bright.float() / 255 - 3
    return byte, byte.expand(3, -1, -1), alpha, wide, real


def write_photos(folder, sizes=SIZES):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    paths = []
    for number, size in enumerate(sizes):
        paths.append(folder / f"photo {number}.png")
        Image.fromarray(checks(random, *size)).save(paths[-1])
    return paths


def truth_of(result, number):
    """A few of the boxes that are said, moved, some of another class and none of the last one, as
    COCO has them."""
    random = np.random.default_rng(number)
    height, width = result.size
    rows = []
    for row in range(0, len(result.boxes), 2):
        box = result.boxes[row] + random.normal(0, 0.01, 4) * (width, height, width, height)
        box = box.clip(0, (width, height, width, height))
        sides = (box[2:] - box[:2]).clip(2)
        label = result.classes[row] if random.random() < 0.8 else random.integers(len(NAMES))
        rows.append(
            (min(int(label), 2), [*box[:2].clip(0, (width - 3, height - 3)).tolist(), *sides])
        )
    return rows


def write_coco(folder, run, labels=LABELS):
    """Images with gapped ids, one of them without objects, and one object that is a crowd."""
    results = vitreous.load(run.path)(write_photos(folder / "val"))
    images, annotations = [], []
    for number, result in enumerate(results):
        id = 1000 - 37 * number
        height, width = result.size
        file = f"photo {number}.png"
        images.append({"id": id, "file_name": file, "height": height, "width": width})
        for label, box in truth_of(result, number) if number else ():
            box = [float(f"{value:.3f}") for value in box]
            crowd = int(len(annotations) == 1)
            annotations.append(
                {"id": len(annotations) + 1, "image_id": id, "category_id": labels.external[label]}
                # its own area, which is not its box's, says whether an object is small
                | {"bbox": box, "area": box[2] * box[3] * (1 + number % 3), "iscrowd": crowd}
            )
    categories = [
        {"id": id, "name": name} for id, name in zip(labels.external, labels.names, strict=True)
    ]
    path = folder / "annotations" / "instances_val.json"
    path.parent.mkdir()
    path.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    return path


class Objects(Source):
    """Random images of several sizes with objects of all but the last class; one has none."""

    def image(self, sample):
        random = np.random.default_rng(sample.target)
        return torch.from_numpy(checks(random, *SIZES[sample.target])).permute(2, 0, 1)

    def truth(self, sample, size=None):
        height, width = SIZES[sample.target]
        boxes = torch.tensor([[2.0, 3, width / 2, height / 2], [width / 3, 4, width, height - 1]])
        count = sample.target % 3
        crowd = torch.tensor([False, sample.target == 5])
        labels = torch.tensor([sample.target % 2, 2])
        return {"boxes": boxes[:count], "labels": labels[:count], "crowd": crowd[:count]}


def objects():
    samples = [Sample(f"test/{i}<b>.png", i) for i in range(len(SIZES))]
    return Objects("objects", "test", LABELS, {"test": samples}, "boxes")
