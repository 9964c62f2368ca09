"""What the state dicts of each family show: the config from names and shapes, resampling, rows and
names of other versions and libraries. Nobody else knows how parameters are named to learn about a
model's structure."""

from __future__ import annotations

from vitreous.models import family_of
from vitreous.models.model import Model
from vitreous.weights.families.composite import (
    DETRStateDict,
    MaskedAutoencoderStateDict,
    PretrainedStateDict,
    RFDETRStateDict,
    SegmenterStateDict,
)
from vitreous.weights.families.resnet import HybridStateDict, ResNetStateDict
from vitreous.weights.families.state_dict import StateDict
from vitreous.weights.families.swin import SwinStateDict
from vitreous.weights.families.vit import EVAStateDict, ViTStateDict


def state_dict_of(model: Model) -> StateDict:
    """What is known about the state dict of a model."""
    return STATE_DICTS[family_of(model)]


STATE_DICTS: dict[str, StateDict] = {
    "vit": ViTStateDict(),
    "deit": ViTStateDict(),
    "cpvt": ViTStateDict(),
    "vitc": ViTStateDict(),
    "hybrid": HybridStateDict(),
    "clip": ViTStateDict(
        image_text=True, activation="OpenAI's; the models of open_clip have 'gelu'"
    ),
    "siglip": ViTStateDict(activation="the authors'; timm computes most sizes with 'gelu'"),
    "mae": ViTStateDict(),
    "mae-pretrain": MaskedAutoencoderStateDict(state_dict_of),
    "lejepa": PretrainedStateDict(state_dict_of),
    "distil": PretrainedStateDict(state_dict_of),
    "pe": ViTStateDict(image_text=True),
    "dinov2": ViTStateDict(),
    "dinov3": ViTStateDict(pool="the authors'; timm's models read the 'mean' of the patches"),
    "eva": EVAStateDict(),
    "beit": ViTStateDict(),
    "swin": SwinStateDict(),
    "resnet": ResNetStateDict(),
    "segmenter": SegmenterStateDict(state_dict_of),
    "detr": DETRStateDict(state_dict_of),
    "lw-detr": RFDETRStateDict(state_dict_of),
    "rf-detr": RFDETRStateDict(state_dict_of),
}
"""By the family's name."""
