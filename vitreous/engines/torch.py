"""The torch model itself as an engine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitreous.config import pair
from vitreous.models.model import Model


class TorchEngine:
    """Runs a model on its own device; see `vitreous.tasks.task.Engine`."""

    name = "torch"
    precision = "float32"

    def __init__(self, model: Model) -> None:
        self.model = model
        self.image_size = pair("image_size", model.config.image_size)

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Any:
        device = next(self.model.parameters()).device
        return self.model(images.to(device, non_blocking=True))

    @torch.inference_mode()
    def vectors(self, images: Tensor, pool: str) -> Tensor:
        """(b, d): see `Model.vectors`."""
        return self.model.core.vectors(images, pool)

    def vector_length(self, pool: str) -> int:
        return self.model.core.vector_length(pool)
