"""MAE (He et al. 2022): the pixels of hidden patches are predicted from the visible ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.models.mae import Masked, unpatchify
from vitreous.results import Reconstruction
from vitreous.tasks.pretrain.method import PretrainDefaults, Pretraining
from vitreous.tasks.task import Engine, Sizes


class MaskedImage(NamedTuple):
    """The prediction for one image, on the CPU."""

    loss: Tensor
    """()"""
    pixels: Tensor
    """(c, h, w): the predicted pixels of every patch, normalised as the image is. Where the model
    predicts them relative to the mean and std of a patch, these are the true patch's."""
    mask: Tensor
    """(gh, gw): 1 where a patch was hidden."""


def masked_loss(output: Masked) -> Tensor:
    """(b,): the mean squared error of each image's hidden patches."""
    errors = (output.prediction.float() - output.target.float()).square().mean(dim=-1)  # (b, n)
    mask = output.mask.flatten(1)
    return (errors * mask).sum(dim=1) / mask.sum(dim=1)


class MAEPretraining(Pretraining):
    """The mean squared error over hidden patches, each normalised by itself (section 3)."""

    name = "mae"
    purpose = "an encoder, by reconstructing what is hidden"
    families = ("mae-pretrain",)
    predicted = ("prediction", "predicted pixels")
    defaults = PretrainDefaults("mae-pretrain", "a ViT, like 'vit-s/16'")

    def loss(self, output: Masked, targets: Any, teacher: Any = None) -> dict[str, Tensor]:
        return {"loss": masked_loss(output).mean()}

    def infer(self, engine: Engine, images: Any, sizes: Sizes) -> list[MaskedImage]:
        output: Masked = engine(images)
        height, width = images.shape[2:]
        grid = (output.mask.shape[1], output.mask.shape[2])
        predicted = output.prediction.float() * output.std + output.mean
        pixels = unpatchify(predicted, grid, (height, width)).cpu()
        losses, masks = masked_loss(output).cpu(), output.mask.cpu()
        return [MaskedImage(*each) for each in zip(losses, pixels, masks, strict=True)]

    def decode(self, output: Sequence[MaskedImage], images: list[str]) -> list[Reconstruction]:
        return [
            Reconstruction(each.loss.item(), each.pixels.numpy(), each.mask.bool().numpy(), image)
            for each, image in zip(output, images, strict=True)
        ]


TASK = MAEPretraining
