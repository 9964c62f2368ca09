"""What "equal to the original" means here: see `relative_error` and `both_ways`."""

from __future__ import annotations

import torch
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

import vitreous

TOLERANCE = 1e-5


def perturb(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random values everywhere, in eval mode, so that no zero bias or token hides an error."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not value.is_floating_point():  # counters and indices
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


def whole(model: vitreous.models.model.Model, images: Tensor) -> Tensor:
    """The model's output with all tokens computed in every block, also those that nobody reads."""
    return model.head(model.pool(model.encode(*model.embed(images))))


def assert_same_classes(got, wanted) -> None:
    """Of pixels, computed in two ways: where two scores are nearly equal, rounding decides."""
    got, wanted = torch.as_tensor(got).long(), torch.as_tensor(wanted).long()
    assert got.shape == wanted.shape
    assert (got == wanted).float().mean() > 0.98


def picture(*shape: int, seed: int = 1) -> Tensor:
    """Random pictures in about the range of normalised images; the last is a photograph."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(*shape[:2], 7, 7, generator=generator)
    smooth = nn.functional.interpolate(coarse, shape[2:], mode="bicubic")
    images = smooth + 0.3 * torch.randn(shape, generator=generator)
    if shape[0] > 1 and shape[1] == 3:
        images[-1] = photograph(shape[2:])
    return images


def photograph(size: tuple[int, ...]) -> Tensor:
    """A real photograph that comes with scikit-learn, normalised."""
    photo = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1)[None]
    return nn.functional.interpolate(photo / 127.5 - 1, size, mode="bilinear", antialias=True)[0]


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over norm of the reference."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return ((ours - theirs).norm() / theirs.norm()).item()


def assert_same_bits(exported: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    """What was imported is exported as it came: the same keys, shapes and bits."""
    assert exported.keys() == source.keys()
    for key, value in source.items():
        assert exported[key].shape == value.shape, key
        assert torch.equal(exported[key], value), key


@torch.no_grad()
def both_ways(theirs: nn.Module, ours: nn.Module, images: Tensor, format: str, output=lambda y: y):
    """Their weights in our model give their outputs; other weights of ours in theirs give ours."""
    perturb(theirs)
    report = vitreous.import_weights(ours.eval(), theirs.state_dict(), format=format)
    assert report.loaded == list(ours.state_dict())
    assert_same_bits(vitreous.export_weights(ours, format=format), theirs.state_dict())
    wanted = output(theirs(images))
    assert wanted.std() > 1e-3, "the reference is constant: nothing is compared"
    assert relative_error(ours(images), wanted) < TOLERANCE
    perturb(ours, seed=5)
    theirs.load_state_dict(vitreous.export_weights(ours, format=format), strict=True)
    assert relative_error(ours(images), output(theirs(images))) < TOLERANCE
    return report
