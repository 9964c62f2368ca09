"""How detections are drawn; the rest is that of all objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from vitreous.predict import Predictor
from vitreous.results import Detection
from vitreous.tasks.objects import draw
from vitreous.tasks.objects.show import ObjectShow

if TYPE_CHECKING:
    from PIL.Image import Image


class DetectShow(ObjectShow):
    endings = draw.ENDINGS
    has_picture = True

    def write(
        self, result: Detection, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        draw.write(result, image, folder, name)

    def picture(self, result: Detection, image: Tensor) -> Image:
        return draw.boxed(image, draw.frame_marks(result))


SHOW = DetectShow()
