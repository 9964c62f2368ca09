"""The torch model compiled by torch.compile: exact, and often faster, after a minute of waiting."""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any

import torch
from torch import Tensor

from vitreous.engines.torch import TorchEngine
from vitreous.errors import ConfigError, VitreousError
from vitreous.models.model import Model

COMPILERS = ("g++", "clang++", "c++")
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""The largest difference from the model as it is, relative to the largest value of an output. Two
ways to round to bfloat16 differ as much as either does from float32."""


class CompileError(VitreousError):
    """A model that torch.compile does not compute as torch does."""


class CompiledEngine(TorchEngine):
    """Compiles when it first sees a batch; the first batch of each shape is also computed as usual,
    and must give the same."""

    name = "compile"

    def __init__(
        self, model: Model, precision: str = "float32", threads: int | None = None
    ) -> None:
        compiler = os.environ.get("CXX")
        if not any(map(shutil.which, (compiler,) if compiler else COMPILERS)):
            raise ConfigError(
                f"engine = 'compile' needs a C++ compiler, and there is none "
                f"({compiler or ', '.join(COMPILERS)}): install one (apt install g++), or use "
                "another engine"
            )
        super().__init__(model, precision, threads)
        self._compiled = torch.compile(model.outputs)
        self._verified: set[tuple[int, ...]] = set()
        self._lock = threading.Lock()

    @torch.inference_mode()
    def _output(self, images: Tensor) -> Any:
        return self.model.output_of(self._tensors(images))

    @torch.inference_mode()
    def _tensors(self, images: Tensor) -> dict[str, Tensor]:
        images = self._there(images)
        if images.shape in self._verified:
            return self._run(images)
        with self._lock:  # compiling is not safe from several threads
            found = self._run(images)
            self._verify(found, _in_float32(self.model.outputs(images, like=found)))
            self._verified.add(tuple(images.shape))
        return found

    @torch.inference_mode()
    def _vectors(self, images: Tensor, pool: str) -> Tensor:
        """What the graph gives beside its logits; others are computed as usual."""
        found = self._tensors(images) if pool == "head" else {}
        return found["vectors"] if "vectors" in found else super()._vectors(images, pool)

    def _run(self, images: Tensor) -> dict[str, Tensor]:
        try:
            found = self._compiled(images)
        except VitreousError:
            raise
        except Exception as error:  # of dynamo, inductor, the C++ compiler
            first = str(error).strip().splitlines()[:1]
            raise ConfigError(
                f"engine = 'compile': this model could not be compiled: {' '.join(first)}: use "
                "another engine"
            ) from error
        return _in_float32(found)

    def _verify(self, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
        for name, values in wanted.items():
            apart = float((values - found[name]).abs().max() / values.abs().max().clamp(min=1e-6))
            if not apart <= TOLERANCE[self.precision]:
                raise CompileError(
                    f"engine = 'compile': {name} differs from torch's by {apart:.1e} of the "
                    f"largest value, more than {TOLERANCE[self.precision]:g}: use another engine"
                )


def _in_float32(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.float() for name, values in tensors.items()}
