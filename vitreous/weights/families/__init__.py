"""What the state dicts of each family show: the config from names and shapes, resampling, rows and
names of other versions and libraries. Nobody else knows how parameters are named to learn about a
model's structure."""

from __future__ import annotations

from vitreous.models import FAMILIES, family_of
from vitreous.models.model import Model
from vitreous.models.vit import ViTConfig
from vitreous.weights.families.composite import (
    DETRStateDict,
    MaskedAutoencoderStateDict,
    PretrainedStateDict,
    RFDETRStateDict,
    SegmenterStateDict,
    TwoTowersStateDict,
)
from vitreous.weights.families.resnet import HybridStateDict, ResNetStateDict
from vitreous.weights.families.state_dict import StateDict
from vitreous.weights.families.swin import SwinStateDict
from vitreous.weights.families.text import TextStateDict
from vitreous.weights.families.vit import EVAStateDict, ViTStateDict


def state_dict_of(model: Model) -> StateDict:
    """What is known about the state dict of a model."""
    return STATE_DICTS[family_of(model)]


def _usual(family: str) -> StateDict:
    """Of a family that has nothing of its own: a ViT's, or those of what is pre-trained."""
    made = FAMILIES[family]
    if made.part is not None:
        return PretrainedStateDict(state_dict_of)
    return ViTStateDict() if issubclass(made.config, ViTConfig) else StateDict()


CLIP_GELU = "OpenAI's; the models of open_clip have 'gelu'"
OWN: dict[str, StateDict] = {
    "hybrid": HybridStateDict(),
    "two-towers": TwoTowersStateDict(state_dict_of),
    "clip": ViTStateDict(image_text=True, activation=CLIP_GELU),
    "clip-text": TextStateDict(activation=CLIP_GELU),
    "siglip": ViTStateDict(activation="the authors'; timm computes most sizes with 'gelu'"),
    "siglip-text": TextStateDict(activation="the authors'; open_clip has 'gelu' but for SigLIP 2"),
    "mae-pretrain": MaskedAutoencoderStateDict(state_dict_of),
    "pe": ViTStateDict(image_text=True),
    "pe-text": TextStateDict(),
    "dinov3": ViTStateDict(pool="the authors'; timm's models read the 'mean' of the patches"),
    "eva": EVAStateDict(),
    "swin": SwinStateDict(),
    "resnet": ResNetStateDict(),
    "segmenter": SegmenterStateDict(state_dict_of),
    "detr": DETRStateDict(state_dict_of),
    "lw-detr": RFDETRStateDict(state_dict_of),
    "rf-detr": RFDETRStateDict(state_dict_of),
}
STATE_DICTS = {family: OWN.get(family) or _usual(family) for family in FAMILIES}
"""By the family's name."""
