"""Every model: `create` builds one by name, `names` lists them.

`vitreous.models` is this package and can also be called: `vitreous.models("vit*")` is
`vitreous.models.names("vit*")`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, NamedTuple

from vitreous.config import changed, choice, fitting, kind_of, merged, to_dict
from vitreous.errors import ConfigError, did_you_mean
from vitreous.models import (
    beit,
    clip,
    cpvt,
    deit,
    detr,
    dinov2,
    dinov3,
    distil,
    eva,
    hybrid,
    lejepa,
    lw_detr,
    mae,
    pe,
    resnet,
    rf_detr,
    segmenter,
    siglip,
    swin,
    two_towers,
    vit,
    vitc,
)
from vitreous.models.composite import CompositeConfig
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.models.old_fields import upgraded_fields
from vitreous.models.text import TextConfig


class Family(NamedTuple):
    """One paper: how its model is built, and its named sizes."""

    model: type[Any]
    config: type
    variants: Mapping[str, Any]

    @property
    def part(self) -> str | None:
        """The field that names a model inside this one, which is made first and given to it."""
        return getattr(self.config, "part", None)

    @property
    def of_texts(self) -> bool:
        """Whether its models take texts alone."""
        return issubclass(self.config, TextConfig)

    @property
    def inside(self) -> tuple[str, ...]:
        """This field, and those of further models."""
        return () if self.part is None else (self.part, *getattr(self.config, "others", ()))


TWO_TOWERS = "two-towers"
PARTS = ("both", *two_towers.TOWERS)
"""Of a model with words."""
FAMILIES = {
    "vit": Family(vit.ViT, vit.ViTConfig, vit.VARIANTS),
    "deit": Family(deit.DeiT, deit.DeiTConfig, deit.VARIANTS),
    "cpvt": Family(cpvt.CPVT, cpvt.CPVTConfig, cpvt.VARIANTS),
    "vitc": Family(vitc.ViTC, vitc.ViTCConfig, vitc.VARIANTS),
    "hybrid": Family(hybrid.Hybrid, hybrid.HybridConfig, hybrid.VARIANTS),
    TWO_TOWERS: Family(
        two_towers.TwoTowers,
        two_towers.TwoTowersConfig,
        clip.VARIANTS | siglip.VARIANTS | pe.VARIANTS,
    ),
    "clip": Family(clip.CLIP, clip.CLIPConfig, clip.IMAGES),
    "clip-text": Family(clip.CLIPText, clip.CLIPTextConfig, clip.TEXTS),
    "siglip": Family(siglip.SigLIP, siglip.SigLIPConfig, siglip.IMAGES),
    "siglip-text": Family(siglip.SigLIPText, siglip.SigLIPTextConfig, siglip.TEXTS),
    "pe": Family(pe.PE, pe.PEConfig, pe.IMAGES),
    "pe-text": Family(pe.PEText, pe.PETextConfig, pe.TEXTS),
    "mae": Family(mae.MAE, mae.MAEConfig, mae.VARIANTS),
    "mae-pretrain": Family(mae.MaskedAutoencoder, mae.MaskedAutoencoderConfig, mae.PRETRAINED),
    "lejepa": Family(lejepa.LeJEPA, lejepa.LeJEPAConfig, {}),
    "distil": Family(distil.Student, distil.StudentConfig, {}),
    "dinov2": Family(dinov2.DINOv2, dinov2.DINOv2Config, dinov2.VARIANTS),
    "dinov3": Family(dinov3.DINOv3, dinov3.DINOv3Config, dinov3.VARIANTS),
    "eva": Family(eva.EVA, eva.EVAConfig, eva.VARIANTS),
    "beit": Family(beit.BEiT, beit.BEiTConfig, beit.VARIANTS),
    "swin": Family(swin.Swin, swin.SwinConfig, swin.VARIANTS),
    "resnet": Family(resnet.ResNet, resnet.ResNetConfig, resnet.VARIANTS),
    "segmenter": Family(segmenter.Segmenter, segmenter.SegmenterConfig, segmenter.VARIANTS),
    "detr": Family(detr.DETR, detr.DETRConfig, detr.VARIANTS),
    "lw-detr": Family(lw_detr.LWDETR, lw_detr.LWDETRConfig, lw_detr.VARIANTS),
    "rf-detr": Family(rf_detr.RFDETR, rf_detr.RFDETRConfig, rf_detr.VARIANTS),
}


def names(pattern: str = "*") -> list[str]:
    """The names of all models that match, as in file names: `names("vit-b*")`."""
    known = [name for family in FAMILIES.values() for name in family.variants]
    return [name for name in known if fnmatch.fnmatchcase(name, pattern)]


def create(name: str, part: str | None = None, **changes: Any) -> Model:
    """The model `name` with random weights: (b, channels, height, width) -> logits.

    `name` is ours (`names()`), another library's, or a family ("vit") whose every field is given or
    left at its default. `changes` are fields of the family's config: `classes=10`,
    `image_size=(160, 224)`, `channels=1` … A model with words has two towers; `part` is "image" or
    "text" for one of them alone.
    """
    name, changes = named_part(name, part, changes)
    family, config = configure(name, **changes)
    model = build(family, config)
    model.name = name if name in FAMILIES else known_name(name)
    return model


def build(family: str, config: Any) -> Model:
    """The model of a family and its config, with the models inside it where there are any."""
    made = FAMILIES[family]
    parts = [_inner(config, part) for part in made.inside]
    try:
        model: Model = made.model(config, *parts)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise ConfigError(f"there is not enough memory for this {family}: {config}") from None
    return model


def _inner(config: CompositeConfig, part: str) -> Model:
    """A model inside another one."""
    name, own = image_model(getattr(config, part))
    family, usual = configure(name, **own)
    made = FAMILIES[family]
    if made.part is not None or (made.of_texts and part != "text"):
        raise ConfigError(f"{part} = {name!r} is no model that classifies: use one like 'vit-s/16'")
    try:
        changes = merged(own, config.inner_fields(part, usual))
        return create(name, **fitting(usual, upgraded_fields(type(usual), changes)))
    except ConfigError as error:
        raise ConfigError(f"{part} {name!r} (its fields: {part}.…): {error}") from None


def configure(name: str, part: str | None = None, **changes: Any) -> tuple[str, Any]:
    """The family and the config that `create` would build from."""
    name, changes = named_part(name, part, changes)
    where = f"model {name!r}"
    if name in FAMILIES:
        family, base = name, FAMILIES[name].config()
    else:
        known = known_name(name)
        translated = translate(name)
        if translated is not None and known.lower() != name.lower():
            changes = {**translated[1], **changes}
        family = next(each for each, made in FAMILIES.items() if known in made.variants)
        base = FAMILIES[family].variants[known]
    changes = canonical(family, changes, base)
    if str(changes.get("head", "")).lower() == "none" and "classes" in changes:
        raise ConfigError("head = 'none' has no classes: leave out classes, or choose a head")
    return family, changed(base, changes, where=where)


def named_part(name: str, part: str | None, changes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a part of a model with words, and its fields with these changes; the model
    itself, if no part is meant."""
    if not isinstance(name, str):
        raise ConfigError(f"a model's name is text, like 'vit-b/16'; {name!r} was given")
    if part is None:
        return name, changes
    part = choice("part", part, PARTS)
    if not has_words(name):
        raise ConfigError(f"part = {part!r}: {name} is one model, with no parts: leave part out")
    if part == "both":
        return name, changes
    inner, own = two_towers.tower_of(configure(name)[1], part)
    if changes.get("head") == "none":
        own.pop("classes", None)
    return inner, merged(own, changes)


def has_words(name: str) -> bool:
    """Whether the model of this name has a tower for texts beside that for images."""
    return name == TWO_TOWERS or (name not in FAMILIES and configure(name)[0] == TWO_TOWERS)


def image_model(name: str) -> tuple[str, dict[str, Any]]:
    """A name and fields for whoever needs a model of images alone: the image tower, where the model
    of this name has two."""
    return named_part(name, "image" if has_words(name) else None, {})


def name_today(name: str, family: str) -> str:
    """The name of a model of this family in an older file, in which an image tower was called like
    the model with both."""
    if family == TWO_TOWERS or name not in names() or not has_words(name):
        return name
    return image_model(name)[0]


def canonical(family: str, changes: Mapping[str, Any], base: Any = None) -> dict[str, Any]:
    """Fields of a family's config by today's names, those of parts and of models inside with
    them."""
    made = FAMILIES[family]
    fields = upgraded_fields(made.config, changes)
    if family == TWO_TOWERS:
        fields = two_towers.of_each(fields)
    for part in made.inside:
        inner = fields.get(f"{part}_fields")
        core = fields.get(part, getattr(base or made.config, part))
        if isinstance(inner, Mapping) and isinstance(core, str):
            fields[f"{part}_fields"] = canonical(configure(core)[0], inner)
    return fields


def stored_fields(config: Any) -> dict[str, Any]:
    """A config as files keep it."""
    fields = to_dict(config)
    if kind_of(config, "head") == "none":
        del fields["classes"]  # meaningless without a head
    return fields


def family_of(model: Model) -> str:
    """The family of a model, by its class: DeiT and CPVT are ViTs."""
    for cls in type(model).__mro__:  # FSDP derives a class of its own
        for family, made in FAMILIES.items():
            if cls is made.model:
                return family
    raise ConfigError(
        f"{type(model).__name__} is not a model of Vitreous: create it with vitreous.create(...)"
    )


def known_name(name: str) -> str:
    """Our own name for `name`, whichever library's name it is."""
    known = names()
    # Capitals do not matter, but where they decide (ViT-g and ViT-G), the nearest spelling does.
    same = [word for word in known if word.lower() == name.lower()]
    if same:
        return max(same, key=lambda word: sum(map(str.__eq__, word, name)))
    translated = translate(name)
    if translated is not None and translated[0] in known:
        return translated[0]
    hint = did_you_mean(name, [*known, *FAMILIES])
    raise ConfigError(f"unknown model {name!r}{hint} ('vitreous models' lists them all)")
