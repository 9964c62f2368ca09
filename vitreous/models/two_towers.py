"""Two towers, one for images and one for texts, that give vectors in the same space.

CLIP (Radford et al. 2021) trains them so that an image and its text are more alike than others of
the batch; SigLIP (Zhai et al. 2023) asks of each pair by itself whether they belong together; LiT
(Zhai et al. 2022) has an image tower that is trained already. What differs between their models is
in `clip.py`, `siglip.py` and `pe.py`. The towers' vectors are compared by their angle:

    I = image(x) / |image(x)|        T = text(ids) / |text(ids)|
    logits = t · I Tᵀ + b            (CLIP, figure 3; b: SigLIP, algorithm 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import TRAINING, Positive, Size
from vitreous.errors import ConfigError
from vitreous.layers.similarity import Similarity
from vitreous.models.composite import Composite, CompositeConfig
from vitreous.models.model import AttentionLayer, Model
from vitreous.models.text import TextTower

TOWERS = ("image", "text")
BOTH = ("activation", "norm_eps")
"""Fields that, given by their name alone, are those of both towers."""


@dataclass(frozen=True)
class TwoTowersConfig(CompositeConfig):
    """What two towers are made of. The defaults are CLIP's ViT-B/32."""

    part = "image"
    others = ("text",)
    core_defaults = {}  # noqa: RUF012

    image_size: Size = 224
    channels: int = 3
    dim: int = 512
    """Dimensions of the space that images and texts share."""
    image: str = "clip-b/32-image"
    """The name of any model that classifies."""
    image_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to its config; on the command line `--set image.depth=6`."""
    text: str = "clip-b-text"
    """The name of a text tower."""
    text_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to its config."""
    projection: bool = True
    """Whether the image tower ends in a projection; else what it pools is the image's vector."""
    temperature: Annotated[Positive, TRAINING] = 0.07
    """Its initial value; 1 / t."""
    logit_bias: Annotated[float | None, TRAINING] = None
    """The initial value of b; none unless given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if "classes" in self.text_fields:
            raise ConfigError("text.classes is a field of the model around it: give dim")

    def core_fields(self) -> dict[str, Any]:
        head = {"head": "projection", "classes": self.dim} if self.projection else {}
        return {**super().core_fields(), **head}

    def inner_fields(self, part: str, usual: Any) -> dict[str, Any]:
        """An image tower keeps what pools its tokens."""
        text = {"classes": self.dim, **self.text_fields}
        return self.core_fields() if part == self.part else text


def of_each(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with those that both towers have, and that are given by their name alone, as fields of
    each."""
    shared = {
        f"{tower}.{name}": fields[name] for name in BOTH if name in fields for tower in TOWERS
    }
    return {**shared, **{name: value for name, value in fields.items() if name not in BOTH}}


def tower_of(config: TwoTowersConfig, part: str) -> tuple[str, dict[str, Any]]:
    """The name of a tower and its fields, by itself: an image tower has a head for classes."""
    if part == "text":
        return config.text, config.inner_fields(part, None)
    own = {"image_size": config.image_size, "channels": config.channels}
    return config.image, {**own, **config.image_fields}


def of_images(model: Model) -> Model:
    """The model that computes images alone: of two towers, that one."""
    return model.core if isinstance(model, TwoTowers) else model


class Matched(NamedTuple):
    """What the towers give for m images and n texts."""

    images: Tensor
    """(m, d) and"""
    texts: Tensor
    """(n, d), of length one"""
    logits: Tensor
    """(m, n): how alike they are."""


class TwoTowers(Composite):
    """(b, c, h, w) -> the image tower's vectors (b, d), as that tower gives them; with token ids
    (n, length) besides, `Matched`.

    Its core is the image tower: its maps and attentions are that one's.
    """

    def __init__(self, config: TwoTowersConfig, image: Model, text: Model) -> None:
        super().__init__(config, image)
        if not isinstance(text, TextTower):
            raise ConfigError(
                f"text = {config.text!r} is no text tower: use one like 'clip-b-text'"
            )
        lengths = image.vector_length(), text.vector_length()
        if len({*lengths, config.dim}) > 1:
            raise ConfigError(
                f"vectors of images have {lengths[0]} dimensions, those of texts {lengths[1]}, and "
                f"dim = {config.dim}: they must be equal"
            )
        self.text = text
        self.similarity = Similarity(config.temperature, config.logit_bias)

    def forward(self, images: Tensor, ids: Tensor | None = None) -> Tensor | Matched:
        if ids is None:
            return self.core.vectors(images)
        found = self.image_vectors(images), F.normalize(self.text(ids), dim=-1)
        return Matched(*found, self.similarity(*found))

    def image_vectors(self, images: Tensor) -> Tensor:
        """(b, c, h, w) -> (b, d), of length one."""
        return F.normalize(self.core.vectors(images), dim=-1)

    def text_vectors(self, ids: Tensor) -> Tensor:
        """Token ids (n, length) -> (n, d), of length one."""
        return self.text.text_vectors(ids)

    @property
    def logit_scale(self) -> Tensor:
        """t, by which cosines are multiplied; `similarity` does so."""
        return self.similarity.scale

    @property
    def logit_bias(self) -> Tensor | None:
        """b, which is added then."""
        return self.similarity.bias

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        return {"vectors": self.core.vectors(images)}

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        found = self.core.attentions(size or self.own_size())
        return [each._replace(name=f"{self.config.part}.{each.name}") for each in found]

    def undecayed(self) -> list[nn.Parameter]:
        return [*super().undecayed(), *self.text.undecayed()]

    def steps(self) -> dict[str, nn.Module]:
        """Both towers', and the comparison."""
        towers = {"image": self.core.steps(), "text": self.text.steps()}
        found = {
            f"{name}.{step}": part for name, steps in towers.items() for step, part in steps.items()
        }
        return {"image": found.pop("image."), **found, "similarity": self.similarity}

    def example(self) -> dict[str, Tensor]:
        return {**super().example(), **self.text.example()}
