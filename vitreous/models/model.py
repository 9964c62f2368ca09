"""What every model has, whatever paper it is from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from vitreous.layers.features import Features
from vitreous.layers.tap import Tapped


class Model(Tapped):
    """A plain module, (b, channels, height, width) -> output, that knows how it was made."""

    config: Any
    """The frozen config of its family."""
    name: str = ""
    """The name it was created by."""
    input_weight: str
    """The parameter that sees the image's channels."""

    def features(self, images: Tensor, blocks: Iterable[int] | None = None) -> Features:
        """What stands behind the chosen blocks or stages, and the output, in one pass."""
        raise NotImplementedError
