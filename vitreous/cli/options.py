"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from vitreous.config import config_fields, size_of
from vitreous.engines.table import CHOICES
from vitreous.train.recipe import Flag, Repeated, option

Merge = Annotated[int | None, option("R", "none")]
ImagePaths = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(metavar="IMAGES...", help_behavior_hint="(required)"),
]


@dataclass(frozen=True)
class ReadingOptions:
    """What is accepted."""

    max_pixels: Annotated[int | None, option("N", "50000000")] = None
    """Refuse images with more pixels than this, or that would be enlarged to more."""
    no_verify: Flag = False
    """Use weights and files also if they were changed after Vitreous wrote them."""

    def given(self) -> dict[str, Any]:
        """As keyword arguments of `load`: fields of `InferenceOptions`."""
        named = {name: value for name, value in vars(self).items() if name != "no_verify"}
        return {**named, "verify": not self.no_verify}


@dataclass(frozen=True)
class EngineOptions(ReadingOptions):
    """What computes the model, and how."""

    engine: Annotated[
        str | None, option("{" + ",".join(CHOICES) + "}", "torch; of a file its own")
    ] = None
    """What computes the model: onnxruntime and openvino run a file that is exported once, and auto
    takes the fastest here."""
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "bf16", "int8"] | None,
        option(None, "float32; of a file its own"),
    ] = None
    """How precisely: auto takes bfloat16 if this CPU is made for it and predictions agree with
    float32 in a trial, never int8."""
    threads: Annotated[int | None, option("N", "all cores")] = None
    """Threads that compute."""
    merge: Merge = None
    """Merge R patches in each block of a ViT with others like them: faster, and less exact."""


@dataclass(frozen=True)
class PredictionOptions(EngineOptions):
    """What computes the model, and how."""

    probe: Annotated[tuple[str, ...], option("PROBE...", "none")] = ()
    """Change something inside while the model answers: shuffle-patches, shuffle-positions,
    shuffle-tokens, swap-patches=PAIRS, mask-patches=PART, no-positions, no-class-token,
    no-attention=BLOCK, no-mlp=BLOCK, no-head=BLOCK.HEAD; blocks and heads are counted from 1."""
    probe_seed: Annotated[int, option("N")] = 0
    """What random probes are drawn from, for each image."""
    tile: Annotated[int | None, option("PIXELS", "none")] = None
    """Look for objects in overlapping tiles of this size, and in the whole image: small objects in
    large images are found that way."""
    overlap: Annotated[float | None, option("PART", "0.2")] = None
    """Part of a tile that it shares with the next one."""
    nms: Annotated[float | None, option("IOU", "none")] = None
    """Largest IoU of two boxes of a class: of those that overlap more, only the best is kept."""


Words = Annotated[tuple[str, ...] | None, option("WORDS...", "the run's own")]


@dataclass(frozen=True)
class WordOptions:
    """Classes by words, for models that were trained with texts."""

    classes: Words = None
    """Words for the classes ("a cat" "a dog"), or a .txt file with a class per line or a .json
    file."""
    templates: Annotated[tuple[str, ...] | None, option("TEXTS...", "'a photo of a {}.'")] = None
    """Sentences with {} where a word goes, a .txt file with one per line, or photo, a set of 24."""

    def given(self) -> dict[str, Any]:
        """As keyword arguments of `load`: fields of `InferenceOptions`."""
        return vars(self)


def options_besides(arguments: Any, *names: str) -> dict[str, Any]:
    """Arguments that a function of `vitreous.api` takes under the same names."""
    return {name: value for name, value in vars(arguments).items() if name not in names}


@dataclass(frozen=True)
class InputOptions:
    """Changes to a model's config."""

    image_size: Annotated[tuple[int, ...], option("H [W]", "the model's own")] = ()
    """Height and width of the input in pixels; one number means a square."""
    channels: Annotated[int | None, option("N", "the model's own")] = None
    """Channels of the input."""
    set: Annotated[Repeated, option("FIELD=VALUE")] = ()
    """Change any other field of the config, for example position=sines-2d."""

    def changes(self) -> dict[str, Any]:
        """The changes as keyword arguments of `create`."""
        given = config_fields(self.set)
        if self.image_size:
            given["image_size"] = size_of("image_size", self.image_size)
        if self.channels is not None:
            given["channels"] = self.channels
        return given


@dataclass(frozen=True)
class ConfigOptions(InputOptions):
    """Changes to a model's config."""

    classes: Annotated[int | None, option("N", "the model's own")] = None
    """Number of classes of the head."""

    def changes(self) -> dict[str, Any]:
        given = super().changes()
        return given if self.classes is None else {**given, "classes": self.classes}


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
