"""Masks of objects, drawn into images of any size; and as pictures of their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from vitreous.pages.pictures import DATA, save, save_data, save_picture
from vitreous.results import InstanceSegmentation
from vitreous.tasks.objects.draw import boxed, frame_marks, marks_of, smallest_first

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES = ("-objects.jpg", "-objects.png")
NUMBERS = "-instances.png"
ENDINGS = (*PICTURES, NUMBERS, DATA)
"""How the names of the files that `write` makes end."""


def frame(image: Tensor, result: InstanceSegmentation) -> Image:
    """For a frame of a video, in which nothing must flicker; see `frame_marks`."""
    masks = [found.mask for found in smallest_first(result)]
    return boxed(image, frame_marks(result), masks=masks)


def numbers_picture(result: InstanceSegmentation) -> Image:
    """Each pixel has the number of its object, from 1 in the order of `objects`, or 0; in 8 bits,
    or in 16 where there are more than 255."""
    from PIL import Image

    numbers = result.ids_mask
    return Image.fromarray(numbers if len(result.objects) > 255 else numbers.astype("uint8"))


def write(result: InstanceSegmentation, image: Tensor, folder: Path, name: str) -> None:
    """The image with its objects, their numbers, and what was found; `image` as it is stored."""
    folder.mkdir(parents=True, exist_ok=True)
    masks = [found.mask for found in result.objects]
    file = save(boxed(image, marks_of(result), masks=masks), folder, name, PICTURES)
    save_picture(numbers_picture(result), folder / f"{name}{NUMBERS}")
    record = result.to_dict() | {
        "threshold": result.threshold,
        "picture": file,
        "instances": f"{name}{NUMBERS}",
    }
    save_data(record, folder, name)
