"""How objects with masks are printed, drawn, reported and explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.instance_masks import InstanceMasks
from vitreous.labels import LabelMap
from vitreous.pages.maps import Panel
from vitreous.pages.pictures import DATA, as_picture, as_tensor, png_base64, save_picture
from vitreous.predict import Predictor
from vitreous.results import InstanceSegmentation
from vitreous.tasks.instance.task import mask_overlaps
from vitreous.tasks.instance.truth import InstancesTruth
from vitreous.tasks.objects import draw
from vitreous.tasks.objects.metrics import BoxPrediction, Judged, judge_overlaps
from vitreous.tasks.objects.report import NOTE, ObjectReport
from vitreous.tasks.objects.show import ObjectShow

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES = ("-objects.jpg", "-objects.png")
NUMBERS = "-instances.png"
LINE = 3
"""Pixels of outlines in the first batch, whose images are shown small."""


class InstanceReport(ObjectReport):
    """Objects are found by their masks."""

    curves = {"ap": "mask AP", "ap50": "mask AP50", "box_ap": "box AP"}  # noqa: RUF012
    note = f"By masks, but for box AP. {NOTE}"

    def judged(self, shown: BoxPrediction, target: Any, true: Tensor, crowd: Tensor) -> Judged:
        return judge_overlaps(mask_overlaps(shown, target, shown.runs()), crowd)

    def masks(
        self, shown: BoxPrediction, target: Any, size: tuple[int, int]
    ) -> tuple[draw.Masks, draw.Masks]:
        found = InstanceMasks(tuple(runs["counts"] for runs in shown.runs()), shown.size)
        real, drawn = (
            InstancesTruth().resize({"masks": masks, "boxes": boxes}, shown.size, size)["masks"]
            for masks, boxes in ((target["masks"], target["boxes"]), (found, shown.boxes))
        )
        return list(real.dense().numpy()), list(drawn.dense().numpy())


class InstanceShow(ObjectShow):
    endings = (*PICTURES, NUMBERS, DATA)
    mask_formats = ("rle", "png")
    report = InstanceReport

    def write(
        self, result: Any, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        """The image with its objects, their numbers, and what was found."""
        masks, numbers = [found.mask for found in result.objects], f"{name}{NUMBERS}"
        save_picture(numbers_picture(result), folder / numbers)
        draw.write(result, image, folder, name, masks, PICTURES, instances=numbers)

    def picture(self, result: Any, image: Tensor) -> Image:
        masks = [found.mask for found in draw.smallest_first(result)]
        return draw.boxed(image, draw.frame_marks(result), masks=masks)

    def true_masks(self, target: Any, size: tuple[int, int]) -> draw.Masks:
        return [resized(mask, size) for mask in target["masks"].dense().numpy()]

    def masks_in(self, result: Any, size: tuple[int, int]) -> draw.Masks:
        return [resized(found.mask, size) for found in draw.smallest_first(result)]

    def served(self, result: Any, top: int | None, masks: str | None) -> dict[str, Any]:
        """Masks are run lengths with each object, as in `record`; or one picture of them all."""
        chosen = result.best(top)
        found = self.record(chosen, 5)
        if masks == "png":
            for each in found["objects"]:
                del each["segmentation"]
            found["mask"] = {"png": png_base64(numbers_picture(chosen))}
        return found

    def target_panel(self, image: Tensor, target: Any, labels: LabelMap) -> Panel:
        """Boxes with their names, and masks; a small image is enlarged, for their outlines."""
        panel = super().target_panel(image, target, labels)
        small = np.array(as_picture(image).convert("RGB"))
        times = draw.enlargement(*small.shape[:2])
        pixels = small.repeat(times, axis=0).repeat(times, axis=1)
        for mark, mask in zip(panel.marks, target["masks"].numpy(), strict=True):
            draw.paint(pixels, mask, mark.colour, times, LINE)
        marks = draw.moved(panel.marks, small.shape[:2], pixels.shape[:2])
        return panel._replace(image=as_tensor(pixels), marks=marks)


def resized(mask: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Each pixel takes the nearest one's value, by their centres."""
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(int)
        for old, new in zip(mask.shape, size, strict=True)
    )
    return mask[rows][:, columns]


def numbers_picture(result: InstanceSegmentation) -> Image:
    """Each pixel has the number of its object, from 1 in the order of `objects`, or 0; in 8 bits,
    or in 16 where there are more than 255."""
    from PIL import Image

    numbers = result.ids_mask
    return Image.fromarray(numbers if len(result.objects) > 255 else numbers.astype("uint8"))


SHOW = InstanceShow()
