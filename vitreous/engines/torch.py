"""The torch model itself as an engine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from vitreous.config import pair
from vitreous.engines.accelerate import accelerate
from vitreous.engines.precision import check_bfloat16
from vitreous.engines.probes import Probes
from vitreous.engines.threads import TorchThreads
from vitreous.models.model import Model

PRECISIONS = ("float32", "bfloat16")


class TorchEngine:
    """Runs a model on its own device; see `vitreous.tasks.task.Engine`.

    In bfloat16 all weights are: to cast them for each batch, as autocast does, takes longer, and
    the results are the same.
    """

    name = "torch"

    def __init__(
        self,
        model: Model,
        precision: str = "float32",
        threads: int | None = None,
        probes: Probes | None = None,
    ) -> None:
        self.precision, self.probes = precision, probes
        if precision == "bfloat16":
            if next(model.parameters()).device.type == "cpu":
                check_bfloat16()
            model.to(torch.bfloat16)
        self.model = accelerate(model)
        self.image_size = pair("image_size", model.config.image_size)
        self.compute = TorchThreads(threads)
        """What its number of threads calls functions with."""

    def __call__(self, images: Tensor) -> Any:
        return self.compute(self._output, images)

    def tensors(self, images: Tensor) -> dict[str, Tensor]:
        """All that the model gives, by name, in float32."""
        return self.compute(self._tensors, images)

    def vectors(self, images: Tensor, pool: str) -> Tensor:
        """(b, d): see `Model.vectors`."""
        return self.compute(self._vectors, images, pool)

    def vector_length(self, pool: str) -> int:
        return self.model.core.vector_length(pool)

    @torch.inference_mode()
    def _output(self, images: Tensor) -> Any:
        if self.precision == "float32":
            with self._changed(images) as seen:
                return self.model(self._there(seen))
        return self.model.output_of(self._tensors(images))

    @torch.inference_mode()
    def _tensors(self, images: Tensor) -> dict[str, Tensor]:
        with self._changed(images) as seen:
            found = self.model.outputs(self._there(seen))
        return {name: values.float() for name, values in found.items()}

    @torch.inference_mode()
    def _vectors(self, images: Tensor, pool: str) -> Tensor:
        with self._changed(images) as seen:
            return self.model.core.vectors(self._there(seen), pool).float()

    def _changed(self, images: Tensor) -> AbstractContextManager[Tensor]:
        """Inside, what is probed is changed; gives the images as the model is to see them."""
        return nullcontext(images) if self.probes is None else self.probes.changing(images)

    def _there(self, images: Tensor) -> Tensor:
        """On the model's device, and of its kind."""
        weights = next(self.model.parameters())
        return images.to(weights.device, weights.dtype, non_blocking=True)
