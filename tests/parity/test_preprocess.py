"""Images come to a model as torchvision and transformers would bring them."""

import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode, v2
from transformers import DetrImageProcessor

from vitreous.data.preprocess import Preprocess

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image_of(height, width):
    random = np.random.default_rng(height * 1000 + width)
    coarse = random.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
    pixels = coarse.repeat(4, 0).repeat(4, 1)[:height, :width].copy()
    return torch.from_numpy(pixels).permute(2, 0, 1)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "size", [(48, 64), (65, 47), (33, 100), (61, 32), (32, 32), (20, 27), (31, 124)]
)
@pytest.mark.parametrize("crop", [1.0, 0.875, 0.9])
def test_shorter_side_and_cut_out_are_torchvisions(size, crop, interpolation):
    ours = Preprocess(image_size=28, crop=crop, interpolation=interpolation, mean=MEAN, std=STD)
    theirs = v2.Compose(
        [
            v2.Resize(int(28 / crop), InterpolationMode(interpolation)),
            v2.CenterCrop(28),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    image = image_of(*size)
    wanted = theirs(v2.functional.to_pil_image(image))
    torch.testing.assert_close(ours(image), wanted.as_subclass(torch.Tensor), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [(48, 64), (65, 47), (30, 100), (100, 21), (40, 40)])
def test_whole_images_are_as_detr_sees_them(size):
    """Up to a pixel in the sides, about which transformers' own versions do not agree."""
    ours = Preprocess(image_size=60, whole=True, longest=100, mean=MEAN, std=STD)
    theirs = DetrImageProcessor(size={"shortest_edge": 60, "longest_edge": 100})
    image = image_of(*size)
    got = ours(image)
    wanted = theirs(images=image, return_tensors="pt", do_pad=False)["pixel_values"][0]
    assert all(abs(a - b) <= 1 for a, b in zip(got.shape, wanted.shape, strict=True))
    if got.shape == wanted.shape:
        torch.testing.assert_close(got, wanted, rtol=0, atol=0.02)  # a step of 8 bits
