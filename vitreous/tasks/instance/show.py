"""How objects with masks are printed, drawn, reported and explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from vitreous.labels import LabelMap
from vitreous.pages.maps import Panel
from vitreous.pages.pictures import as_picture, as_tensor, png_base64
from vitreous.predict import Predictor
from vitreous.results import InstanceSegmentation
from vitreous.tasks.instance import draw
from vitreous.tasks.instance.report import InstanceReport
from vitreous.tasks.objects.draw import enlargement, moved, paint
from vitreous.tasks.objects.show import ObjectShow

if TYPE_CHECKING:
    from PIL.Image import Image

LINE = 3
"""Pixels of outlines in the first batch, whose images are shown small."""


class InstanceShow(ObjectShow):
    endings = draw.ENDINGS
    has_picture = True

    def write(
        self,
        result: InstanceSegmentation,
        image: Tensor,
        folder: Path,
        name: str,
        predictor: Predictor,
    ) -> None:
        draw.write(result, image, folder, name)

    def picture(self, result: InstanceSegmentation, image: Tensor) -> Image:
        return draw.frame(image, result)

    mask_formats = ("rle", "png")

    def served(
        self, result: InstanceSegmentation, top: int | None, masks: str | None
    ) -> dict[str, Any]:
        """Masks are run lengths with each object, as in `record`; or one picture of them all."""
        chosen = result.best(top)
        found = self.record(chosen, 5)
        if masks == "png":
            for each in found["objects"]:
                del each["segmentation"]
            found["mask"] = {"png": png_base64(draw.numbers_picture(chosen))}
        return found

    def target_panel(self, image: Tensor, target: Any, labels: LabelMap) -> Panel:
        """Boxes with their names, and masks; a small image is enlarged, for their outlines."""
        panel = super().target_panel(image, target, labels)
        small = np.array(as_picture(image).convert("RGB"))
        times = enlargement(*small.shape[:2])
        pixels = small.repeat(times, axis=0).repeat(times, axis=1)
        for mark, mask in zip(panel.marks, target["masks"].numpy(), strict=True):
            paint(pixels, mask, mark.colour, times, LINE)
        marks = moved(panel.marks, small.shape[:2], pixels.shape[:2])
        return panel._replace(image=as_tensor(pixels), marks=marks)

    def report(self, predictor: Predictor) -> InstanceReport:
        return InstanceReport(predictor)


SHOW = InstanceShow()
