"""A training image that is far larger than what is cut out of it is decoded smaller."""

import pytest
import torch
from PIL import Image

from vitreous.data.augment import Augment, OwnAugment
from vitreous.data.formats import open_source
from vitreous.data.formats.files import FileSource
from vitreous.data.loader import Draw, EvalSet, TrainSet
from vitreous.data.photographs import photographs
from vitreous.data.preprocess import Preprocess
from vitreous.data.truth import Truth
from vitreous.tasks.segment.truth import MaskTruth

ROTATED = 6
"""EXIF: the image is displayed rotated by 90 degrees."""


@pytest.fixture
def source(tmp_path):
    for name, photo in zip(("a", "b"), photographs(), strict=True):
        image = Image.fromarray(photo.permute(1, 2, 0).numpy()).resize((1280, 854))
        exif = Image.Exif()
        exif[0x0112] = ROTATED if name == "b" else 1
        for split in ("train", "val"):
            (tmp_path / split / name).mkdir(parents=True)
            image.save(tmp_path / split / name / "1.jpg", exif=exif, quality=95)
    return open_source(str(tmp_path))


def train_set(source, size=96, **changes):
    values = {"moves": Truth(), "own": None, "crop": "resized", **changes}
    augment = Augment(crop=values["crop"], flip=False)
    preprocess = Preprocess(image_size=size)
    samples = source.splits["train"]
    return TrainSet(source, samples, preprocess, augment, values["moves"], 0, values["own"])


@pytest.mark.parametrize(("number", "stored"), [(0, (854, 1280)), (1, (1280, 854))])
def test_it_looks_like_the_whole_image_reduced(source, monkeypatch, number, stored):
    data = train_set(source)
    (image, full, _), cut = data._decode(data.samples[number])
    assert cut.stored == full[:2] == stored
    assert image.shape[1:] in {(-(-stored[0] // by), -(-stored[1] // by)) for by in (2, 4, 8)}
    values, _, _, size = data[Draw(0, number, number)]
    assert size == stored
    decode = FileSource.decode
    monkeypatch.setattr(FileSource, "decode", lambda self, sample, enough: decode(self, sample))
    whole, _, _, size = data[Draw(0, number, number)]
    assert size == stored
    assert (values - whole).abs().mean() < 0.05 < whole.std() / 5  # another part: as the latter


def test_where_every_pixel_counts_none_is_left_out(source):
    whole = source.image(source.splits["train"][0])
    same = OwnAugment(lambda image: image)
    for changes in ({"size": 512}, {"moves": MaskTruth()}, {"own": same}, {"crop": "none"}):
        data = train_set(source, **changes)
        assert torch.equal(data._decode(data.samples[0])[0].pixels, whole)
    val = EvalSet(source, source.splits["val"], Preprocess(image_size=96), Truth())
    assert torch.equal(val[0][0], val.preprocess(whole))
