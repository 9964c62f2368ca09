"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vitreous.config import config_fields, size_of
from vitreous.train.recipe import Flag, Repeated, option

MaxPixels = Annotated[int, option("N")]
"""The limit of an image, in every command that reads images."""
Tile = Annotated[int | None, option("PIXELS", "none")]
Overlap = Annotated[float | None, option("PART", "0.2")]
Nms = Annotated[float | None, option("IOU", "none")]
"""How objects are looked for, in every command that does."""
Engine = Annotated[
    Literal["torch", "compile", "onnxruntime", "openvino", "auto"] | None,
    option(None, "torch; of a file its own"),
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "bf16", "int8"] | None,
    option(None, "float32; of a file its own"),
]
Threads = Annotated[int | None, option("N", "all cores")]
"""What computes the model, in every command that predicts."""

Merge = Annotated[int | None, option("R", "none")]
"""How many patches each block merges, in every command that runs a model."""


def options_besides(arguments: Any, *names: str) -> dict[str, Any]:
    """Arguments that a function of `vitreous.api` takes under the same names."""
    return {name: value for name, value in vars(arguments).items() if name not in names}


@dataclass(frozen=True)
class ConfigOptions:
    """Changes to a model's config."""

    image_size: Annotated[tuple[int, ...], option("H [W]", "the model's own")] = ()
    """Height and width of the input in pixels; one number means a square."""
    channels: Annotated[int | None, option("N", "the model's own")] = None
    """Channels of the input."""
    classes: Annotated[int | None, option("N", "the model's own")] = None
    """Number of classes of the head."""
    set: Annotated[Repeated, option("FIELD=VALUE")] = ()
    """Change any other field of the config, for example position=sines-2d."""

    def changes(self) -> dict[str, Any]:
        """The changes as keyword arguments of `create`."""
        given = config_fields(self.set)
        if self.image_size:
            given["image_size"] = size_of("image_size", self.image_size)
        for name in ("channels", "classes"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        return given


@dataclass(frozen=True)
class WeightOptions:
    """How the weights of SRC are read, and fitted to the model."""

    inside: Annotated[str | None, option("KEY", "recognised")] = None
    """Part of a training checkpoint to read, like model_ema."""
    drop: Annotated[Repeated, option("PATTERN")] = ()
    """Keys of SRC to leave out, like 'decoder.*'."""
    reinit: Annotated[Repeated, option("PATTERN")] = ()
    """Parameters of the model to initialise anew, like 'head.*'."""
    resample: Annotated[Literal["bicubic", "bilinear"] | None, option(None, "none: refused")] = None
    """Resample position embeddings if --image-size changes the grid of patches."""
    source_grid: Annotated[tuple[int, ...], option("H [W]", "a square")] = ()
    """Height and width of the grid of patches in SRC."""
    adapt_channels: Flag = False
    """Adapt the first layer if --channels changes the number of channels."""

    def given(self) -> dict[str, Any]:
        """As keyword arguments of `import_run` and `convert`."""
        grid = size_of("source_grid", self.source_grid) if self.source_grid else None
        return {**vars(self), "source_grid": grid}
