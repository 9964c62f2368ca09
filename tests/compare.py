"""What "equal to the original" means here: see `relative_error` and `both_ways`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vitreous

TOLERANCE = 1e-5


def perturb(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random values everywhere, in eval mode, so that no zero bias or token hides an error."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("num_batches_tracked"):
                continue
            noise = torch.randn(value.shape, generator=generator)
            if name.endswith("running_var"):
                value.copy_(1 + 0.3 * noise.abs())
            elif value.ndim == 1 and name.endswith("weight"):  # a norm's scale
                value.copy_(1 + 0.2 * noise)
            elif value.ndim > 1 and value.numel():  # about unit gain for a matrix
                value.copy_(noise * (value.numel() / value.shape[0]) ** -0.5)
            else:
                value.copy_(0.2 * noise)
    return model.eval()


def picture(*shape: int, seed: int = 1) -> Tensor:
    """Smooth random pictures in about the range of normalised images."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(*shape[:2], 7, 7, generator=generator)
    smooth = nn.functional.interpolate(coarse, shape[2:], mode="bicubic")
    return smooth + 0.3 * torch.randn(shape, generator=generator)


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over norm of the reference."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return ((ours - theirs).norm() / theirs.norm()).item()


@torch.no_grad()
def both_ways(theirs: nn.Module, ours: nn.Module, images: Tensor, format: str, output=lambda y: y):
    """Their weights in our model give their outputs; other weights of ours in theirs give ours."""
    perturb(theirs)
    report = vitreous.import_weights(ours.eval(), theirs.state_dict(), format=format)
    assert report.loaded == list(ours.state_dict())
    wanted = output(theirs(images))
    assert wanted.std() > 1e-3, "the reference is constant: nothing is compared"
    assert relative_error(ours(images), wanted) < TOLERANCE
    perturb(ours, seed=5)
    theirs.load_state_dict(vitreous.export_weights(ours, format=format), strict=True)
    assert relative_error(ours(images), output(theirs(images))) < TOLERANCE
    return report
