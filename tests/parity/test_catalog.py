"""The catalog says of timm's repositories what timm says."""

import pytest
from timm.models import get_pretrained_cfg

from vitreous.config import pair
from vitreous.models import configure
from vitreous.weights.catalog import catalog

TIMM = [entry for entry in catalog().values() if entry.address.startswith("hf:timm/")]
CROP_MODES = {"shorter": "center", "square": "squash"}


def ours(entry):
    known = entry.preprocessing
    return {
        "mean": known.mean,
        "std": known.std,
        "size": known.image_size,
        "crop": known.crop,
        "interpolation": known.interpolation,
        "mode": CROP_MODES[known.resize],
        "classes": entry.classes,
        "licence": entry.licence.lower(),
    }


def theirs(entry):
    stated = get_pretrained_cfg(entry.address.removeprefix("hf:timm/"), allow_unregistered=False)
    values = {
        "mean": tuple(stated.mean),
        "std": tuple(stated.std),
        "size": (stated.test_input_size or stated.input_size)[-1],
        "crop": stated.test_crop_pct or stated.crop_pct,
        "interpolation": stated.interpolation,
        "mode": stated.crop_mode,
        "classes": stated.num_classes,
        "licence": stated.license,
    }
    if entry.model.startswith("pe-"):  # as its authors' code has it
        values |= {"interpolation": "bilinear", "mode": "squash"}
    if values["licence"] == "dinov3-license":  # a licence of its own, which we say in words
        values["licence"] = "dinov3 license (meta's own)"
    return values, stated.input_size[-1]


@pytest.mark.parametrize("entry", TIMM, ids=lambda entry: entry.name)
def test_entries_of_timm(entry):
    expected, size = theirs(entry)
    assert ours(entry) == expected
    model_size = configure(entry.model, **entry.changes)[1].image_size
    assert pair("image_size", model_size) == (size, size)


def test_there_are_entries_of_timm():
    assert len(TIMM) > 60
