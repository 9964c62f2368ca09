"""LeJEPA (Balestriero and LeCun 2025): views of an image are alike, and no two images need be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.models.lejepa import Projected
from vitreous.models.model import Model
from vitreous.tasks.lejepa.sigreg import random_directions, seed_of_step, sigreg
from vitreous.tasks.pretrain.method import PretrainDefaults, Pretraining
from vitreous.tasks.task import Engine, Sizes, TaskMetrics

CUT = 0.75
"""The side of the four corners of an image, which are its views in evaluation beside itself."""
COMPARED = 64
"""For how many images SIGReg's statistic is reported in evaluation, whatever their number is."""


class ProjectedImage(NamedTuple):
    """One image, on the CPU."""

    views: Tensor
    """(v, d): the projections of its views, itself first."""
    regularisation: float

    @property
    def vector(self) -> Tensor:
        return self.views[0]


def invariance(views: Tensor) -> Tensor:
    """(b, v, d) -> (b,): the mean squared distance of the views to their mean."""
    return (views - views.mean(dim=1, keepdim=True)).square().mean(dim=(1, 2))


def fixed_views(images: Tensor) -> Tensor:
    """(b, c, h, w) -> (b, 5, c, h, w): the image and its four corners, enlarged."""
    height, width = images.shape[2:]
    h, w = max(round(CUT * height), 1), max(round(CUT * width), 1)
    corners = [(top, left) for top in (0, height - h) for left in (0, width - w)]
    cuts = [images[:, :, top : top + h, left : left + w] for top, left in corners]
    larger = [F.interpolate(cut, (height, width), mode="bilinear") for cut in cuts]
    return torch.stack([images, *larger], dim=1)


class LeJEPAMetrics(TaskMetrics):
    """The loss over all images at once: SIGReg is about all of them together."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []
        self.regularisation = 0.0

    def update(self, output: Sequence[ProjectedImage], targets: Any) -> None:
        self.rows += [each.views.float() for each in output]
        self.regularisation = output[0].regularisation

    def counts(self) -> Tensor:
        """(n, v, d + 1): the projections, and the weight."""
        views = torch.stack(self.rows) if self.rows else torch.zeros(0, 1, 1)
        return F.pad(views, (0, 1), value=self.regularisation)

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part for part in parts if len(part)])

    def compute(self, counts: Tensor) -> dict[str, Any]:
        views, weight = counts[:, :, :-1].double(), counts[0, 0, -1].item()
        alike = invariance(views).mean().item()
        directions = random_directions(views.shape[2], 0)
        apart = sigreg(views.transpose(0, 1), directions, COMPARED).mean().item()
        loss = (1 - weight) * alike + weight * apart
        return {"samples": len(views), "loss": loss, "invariance": alike, "sigreg": apart}


class LeJEPAPretraining(Pretraining):
    """(1 - λ) · the squared distance of views to their mean + λ · SIGReg (section 5)."""

    name = "lejepa"
    purpose = "an encoder, for which views of an image are alike"
    families = ("lejepa",)
    predicted = ("views", "projections")
    defaults = PretrainDefaults("lejepa")
    refused = Pretraining.refused | {"accumulate"}  # SIGReg is about all of a batch

    @classmethod
    def views(cls, model: Model) -> int:
        return int(model.config.views)

    def loss(self, output: Projected, targets: Any, teacher: Any = None) -> dict[str, Tensor]:
        views, weight = output.views.float(), output.regularisation
        directions = random_directions(views.shape[2], seed_of_step())
        apart = sigreg(views.transpose(0, 1), directions).mean()
        return {"invariance": (1 - weight) * invariance(views).mean(), "sigreg": weight * apart}

    def infer(self, engine: Engine, images: Any, sizes: Sizes) -> list[ProjectedImage]:
        output: Projected = engine(fixed_views(images))
        return [ProjectedImage(views, output.regularisation) for views in output.views.cpu()]

    def metrics(self) -> TaskMetrics:
        return LeJEPAMetrics()


TASK = LeJEPAPretraining
