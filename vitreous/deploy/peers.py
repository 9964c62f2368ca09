"""Other libraries' models with the weights of ours: what `vitreous benchmark` compares with.

They are built as their own libraries build them and loaded completely, or not compared at all.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import ConfigError
from vitreous.models import family_of
from vitreous.models.model import Model
from vitreous.weights.rules.exporting import export_weights
from vitreous.weights.timm_files import make_timm_config
from vitreous.weights.transformers_files import make_config

OUTPUTS = {"logits": "logits", "boxes": "pred_boxes", "masks": "pred_masks"}
"""Of our outputs, those of transformers."""
VECTORS = ("image_embeds", "pooler_output")
"""The vectors of its models without classes, behind a projection and without one."""


class Peer(nn.Module):
    """A model of another library: (b, c, h, w) -> its outputs in our order and without names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = self.module(images)
        if isinstance(found, Tensor):
            return (found,)
        named = [getattr(found, name, None) for name in OUTPUTS.values()]
        if not any(isinstance(each, Tensor) for each in named):
            named = [getattr(found, name, None) for name in VECTORS]
            named = [each for each in named if each is not None][:1]
        return tuple(each for each in named if each is not None)


def peer(library: str, model: Model, *, weights: bool = True) -> Peer:
    """The model that `library` has for ours, with the same weights or, to be measured without
    another one in memory, with random ones; ours may be on the meta device then."""
    if importlib.util.find_spec(library) is None:
        raise ConfigError(f"{library} is not installed: pip install {library}")
    found = BUILDERS[library](model)
    if weights:
        _load(found, export_weights(model, FORMATS[library]), library)
    return Peer(found.eval())


def _load(module: nn.Module, state: dict[str, Tensor], library: str) -> None:
    """Buffers that a library computes itself may be missing, weights may not."""
    missing, unknown = module.load_state_dict(state, strict=False)
    weights = [name for name in missing if name in dict(module.named_parameters())]
    if weights or unknown:
        names = ", ".join([*weights, *unknown])
        raise ConfigError(f"{library}'s model has other weights: {names}")


def _timm(model: Model) -> nn.Module:
    import timm

    config = make_timm_config(model, (), {})
    options = {"num_classes": config["num_classes"], "in_chans": model.config.channels}
    found: nn.Module = timm.create_model(
        config["architecture"], **options, **config.get("model_args", {})
    )
    return found


def _transformers(model: Model) -> nn.Module:
    import transformers

    values = make_config(model)
    kind = getattr(transformers, values["architectures"][0])
    found: nn.Module = kind(transformers.AutoConfig.for_model(**values))
    return found


def _torchvision(model: Model) -> nn.Module:
    from torchvision import models

    config, family = model.config, family_of(model)
    found: nn.Module
    if family in ("vit", "deit"):
        size, patch = model.own_size()[0], config.patch[0]
        sizes = (config.depth, config.heads, config.dim, config.mlp_width, config.dropout)
        found = models.VisionTransformer(size, patch, *sizes, num_classes=config.classes)
    elif family == "swin":
        patch, window = list(config.patch), list(config.window)
        stages = (list(config.depths), list(config.heads), window)
        found = models.SwinTransformer(patch, config.dim, *stages, num_classes=config.classes)
    elif family == "resnet":
        kinds = {"bottleneck": models.resnet.Bottleneck, "basic": models.resnet.BasicBlock}
        found = models.ResNet(kinds[config.block], list(config.stages), config.classes)
    else:
        raise ConfigError(f"torchvision has no model like {model.name or family}")
    return found


BUILDERS: dict[str, Callable[[Model], nn.Module]] = {
    "timm": _timm,
    "transformers": _transformers,
    "torchvision": _torchvision,
}
FORMATS = {"timm": "timm", "transformers": "huggingface", "torchvision": "torchvision"}
"""In which each takes our weights."""


def export_peer(module: Peer, images: Tensor, path: Path) -> Path:
    """The graph that a user of that library exports, for batches of any length, as ONNX."""
    batch: dict[int, Any] = {0: torch.export.Dim("batch", min=1)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(
                module,
                (images,),
                dynamo=True,
                dynamic_shapes={"images": batch},
                input_names=["images"],
                verbose=False,
            )
        except Exception as error:  # whatever another library's model does to the exporter
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"its model cannot be exported: {first}") from None
    assert program is not None
    program.save(path)
    return path
