"""A model around another one: a segmenter, a detector, what pre-trains an encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from vitreous.config import Size, merged
from vitreous.errors import ConfigError
from vitreous.models.model import AttentionLayer, Level, Model, ModelConfig


@dataclass(frozen=True)
class CompositeConfig(ModelConfig):
    """The config of a `Composite`."""

    part: ClassVar[str]
    """The field that names the core; the field `…_fields` has the changes to its config."""
    others: ClassVar[tuple[str, ...]] = ()
    """Such fields of further models inside."""
    core_defaults: ClassVar[dict[str, Any]] = {"pad": True}
    """Of the core's fields, where it has them: images may have any size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("image_size", "channels", "classes", "head"):
            if name in self.core_changes:
                raise ConfigError(
                    f"{self.part}.{name} is a field of the model around it: give {name} itself"
                )

    @property
    def core_changes(self) -> dict[str, Any]:
        changes: dict[str, Any] = getattr(self, f"{self.part}_fields")
        return changes

    def core_fields(self) -> dict[str, Any]:
        """The changes with which the core is created."""
        own = {name: getattr(self, name) for name in ("image_size", "channels")}
        return {**own, "head": "none", **self.core_changes}

    def inner_fields(self, part: str, usual: Any) -> dict[str, Any]:
        """The changes with which the model inside that `part` names is created; usual: its config
        without any."""
        defaults = {field: v for field, v in self.core_defaults.items() if hasattr(usual, field)}
        return merged({**usual.without_pooling(), **defaults}, self.core_fields())


@dataclass(frozen=True)
class EncoderConfig(CompositeConfig):
    """The config of a model around an encoder."""

    part = "encoder"

    image_size: Size = 224
    channels: int = 3
    encoder: str = "vit-s/16"
    """The name of any model that classifies."""
    encoder_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to the encoder's config; on the command line `--set encoder.depth=6`."""


class Composite(Model):
    """A model that decodes the feature maps of another one, its core, held as `config.part`.

    The core is any model with feature maps; tokens that are no patches are left out. `decoded` are
    its blocks or stages whose maps are decoded.
    """

    def __init__(
        self, config: CompositeConfig, core: Model, decoded: Iterable[int] = (-1,)
    ) -> None:
        super().__init__()
        self.config, self.depth, self.decoded = config, core.depth, list(decoded)
        self.add_module(config.part, core)

    @property
    def core(self) -> Model:
        core: Model = getattr(self, self.config.part)
        return core

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        return {"logits": self(images)}

    def levels(self, size: tuple[int, int]) -> list[Level]:
        return self.core.levels(size)

    @property
    def width(self) -> int:
        return self.core.width

    def decoded_levels(self, size: tuple[int, int]) -> list[Level]:
        levels = self.levels(size)
        return [levels[block] for block in self.decoded]

    def block_indices(self, blocks: Iterable[int] | None) -> list[int]:
        return super().block_indices(self.decoded if blocks is None else blocks)

    def tokens(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> list[Tensor]:
        """The core's, behind the blocks that are decoded unless others are given; with the core's
        final norm, if it has one."""
        norm = norm and self.core.ends_with_norm
        return self.core.tokens(images, self.block_indices(blocks), norm=norm)

    def maps(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> list[Tensor]:
        """(b, d, gh, gw) each: the patches of `tokens`, which are what is decoded."""
        norm = norm and self.core.ends_with_norm
        return self.core.maps(images, self.block_indices(blocks), norm=norm)

    def layers(self) -> list[list[nn.Module]]:
        """The core's; everything behind it learns like the head."""
        *before, behind = self.core.layers()
        return [*before, [*behind, *(part for part in self.children() if part is not self.core)]]

    def undecayed(self) -> list[nn.Parameter]:
        return self.core.undecayed()

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        part = self.config.part
        found = self.core.attentions(size or self.own_size())
        return [each._replace(name=f"{part}.{each.name}", part=part) for each in found]
