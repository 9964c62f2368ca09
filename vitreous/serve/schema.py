"""The types of requests and answers, from which the OpenAPI description is made."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vitreous.records import Record

Pool = Literal["head", "class", "mean", "class+mean", "pixels"]


class Options(BaseModel):
    """What a request may say. What is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class PredictOptions(Options):
    top: int | None = Field(
        None, ge=1, le=100_000, description="How many classes or objects to give."
    )
    threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Smallest score at which an object or a label counts as found.",
    )
    masks: Literal["png", "rle"] | None = Field(None, description="Give masks, and in which form.")


class ExplainOptions(Options):
    classes: list[str] = Field([], description="Classes to make maps for; may be repeated.")
    top: int | None = Field(
        None, ge=0, le=20, description="Or: how many of the most likely classes (3)."
    )
    y: int | None = Field(None, ge=0, le=10**6, description="Row of the pixel to explain, with x.")
    x: int | None = Field(None, ge=0, le=10**6, description="Its column.")
    maps: Literal["array", "png", "viewer"] = Field(
        "array",
        description="Maps as lists of numbers; as gray PNGs, in which 255 is their largest value; "
        "or all attention, as the page of `vitreous explain` takes it.",
    )


class EmbedOptions(Options):
    pool: Pool = Field("head", description="Of what each vector is made.")


class ImageInJSON(Options):
    data: str = Field(description="An image file in base64.", json_schema_extra={"format": "byte"})
    name: str = Field("", description="What answers and errors call it.")


class ImagesInJSON(Options):
    images: list[ImageInJSON] = Field(min_length=1)


class ModelInfo(BaseModel):
    """A model that is served."""

    name: str
    task: str
    purpose: str
    """What the task is for."""
    model: str
    """The model's name in the papers."""
    engine: str
    precision: str
    labels: list[str]
    ids: list[int | str]
    """Of the labels, in the training data."""
    colours: list[list[int]]
    """Red, green and blue of each label, as Vitreous draws it everywhere."""
    image_size: list[int]
    """Height and width that the model takes."""
    preprocessing: dict[str, Any]
    licence: str | None
    takes_top: bool
    takes_threshold: bool
    threshold: float | None
    """Where results are cut unless another threshold is asked for, if there is one for all."""
    masks: list[str]
    """In which forms masks can be asked for."""
    can_explain: bool
    takes_pixel: bool
    """Whether one pixel can be explained."""
    pools: list[str]
    """Of what vectors can be made."""
    examples: int
    """Images of its own data to try it on."""


class Models(BaseModel):
    models: list[ModelInfo]


class ExampleName(BaseModel):
    number: int
    name: str


class Examples(BaseModel):
    examples: list[ExampleName]
    """None, unless the server was started with --examples."""


class Prediction(BaseModel):
    model: str
    task: str
    results: list[Record]
    """One for each image, in their order: what `vitreous predict --json` prints."""


class Embedding(BaseModel):
    model: str
    pool: str
    images: list[str]
    vectors: list[list[float]]
    """One for each image, not normalised."""


class Explanations(BaseModel):
    model: str
    task: str
    results: list[dict[str, Any]]
    """One for each image: what `vitreous explain --json` prints, or what the viewer takes."""


class BadImage(BaseModel):
    image: str
    detail: str


class ProblemDetails(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str = ""
    images: list[BadImage] = []
    """Those that cannot be used, if it is about images."""
    model_config = ConfigDict(extra="allow")


class Alive(BaseModel):
    status: str
