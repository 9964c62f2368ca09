"""Runs of models that segment, with random weights: small, and not square."""

import torch
from compare import perturb
from runs import write_run

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import IGNORED, Sample, Source
from vitreous.labels import LabelMap

NAMES = ("sky", "road", "car", "tree")
LABELS = LabelMap(NAMES, (3, 7, 12, 200), (255,))
WINDOW = (16, 24)
VIT = {"patch": 4, "dim": 16, "depth": 2, "heads": 2, "position": "sines-2d"}
SWIN = {"patch": 4, "dim": 8, "depths": (2, 2), "heads": (1, 2), "window": 2}
MODELS = {
    "mask, class token": {"encoder": "vit", "encoder_fields": VIT, "decoder": "mask", "depth": 1},
    "linear, no token": {
        "encoder": "vit",
        "encoder_fields": {**VIT, "tokens": "none", "pool": "mean"},
        "decoder": "linear",
    },
    "swin, pyramid": {"encoder": "swin", "encoder_fields": SWIN, "decoder": "pyramid", "dim": 16},
    "resnet": {"encoder": "resnet-18", "decoder": "mask", "depth": 1},
}


def make_model(kind, window=WINDOW, classes=4):
    torch.manual_seed(0)
    fields = {"image_size": window, "classes": classes, **MODELS[kind]}
    return perturb(vitreous.create("segmenter", **fields)).eval()


def make_run(path, kind="mask, class token", labels=LABELS, resize="none", window=WINDOW):
    """A run folder as training would leave it."""
    model = make_model(kind, window, len(labels))
    preprocess = Preprocess(image_size=window, resize=resize, whole=True)
    run = write_run(path, model, labels, preprocess, "segment", "shapes")
    for epoch, miou in ((1.0, 0.3), (2.0, 0.2)):
        run.log(step=1, kind="evaluation", epoch=epoch, train_loss=1.0, miou=miou, lr=1e-3)
    return run


class Scenes(Source):
    """Random images of several sizes; the upper half of each mask is random, one strip of it is
    ignored, and nothing shows the last class."""

    def image(self, sample):
        torch.manual_seed(sample.target)
        height, width = 20 + 4 * (sample.target % 3), 30 + 10 * (sample.target % 2)
        return torch.randint(0, 256, (3, height, width), dtype=torch.uint8)

    def truth(self, sample, size=None):
        mask = torch.zeros(self.image(sample).shape[1:], dtype=torch.int16)
        mask[:8] = torch.randint(0, 3, (8, mask.shape[1]), dtype=torch.int16)
        mask[-4:] = IGNORED
        return mask


def scenes(count=6):
    samples = [Sample(f"test/{i}<b>.png", i) for i in range(count)]
    return Scenes("scenes", "test", LABELS, {"test": samples}, "mask")
