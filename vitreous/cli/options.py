"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from vitreous.config import config_fields, size_of


@dataclass(frozen=True)
class ModelOptions:
    """Changes to a model's config."""

    image_size: Annotated[tuple[int, ...], tyro.conf.arg(metavar="H [W]")] = ()
    """Height and width in pixels, or one number for both."""
    channels: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Channels of the image."""
    classes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of classes."""
    set: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="FIELD=VALUE")
    ] = ()
    """Another field of the model's config, like position=sines-2d; may be repeated."""

    def changes(self) -> dict[str, Any]:
        """What was given, as keywords of `create`."""
        given = config_fields(self.set)
        if self.image_size:
            given["image_size"] = size_of("image_size", self.image_size)
        for name in ("channels", "classes"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        return given
