"""Exercise 13, solved; and what readers usually get wrong."""

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

C = 1.96


def scale_and_zero(x, steps=255, least=0.0):
    low, high = min(float(x.min()), least), max(float(x.max()), 0.0)
    scale = (high - low) / steps
    return scale, round(-low / scale)


def quantise(x, scale, zero):
    return ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8)


def quantise_rows(weight, dim=1, most=127):
    scales = weight.abs().amax(dim) / most
    return (weight / scales.unsqueeze(dim)).round().clamp(-128, 127).to(torch.int8), scales


def linear(x, scale, zero, weight, scales, bias, kind=torch.int32):
    sums = x.to(kind) @ weight.to(kind).T
    return (sums - zero * weight.int().sum(1)) * scale * scales + bias


def prepare(image, how):
    gray = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
    size = how.image_size[0]
    shorter = round(size / how.crop)
    wide = round(gray.width * shorter / gray.height)
    gray = gray.resize((wide, shorter), Image.Resampling.BILINEAR)
    top, left = (shorter - size) // 2, (wide - size) // 2
    gray = gray.crop((left, top, left + size, top + size))
    values = torch.from_numpy(np.array(gray))[None] / 255
    return (values - how.mean[0]) / how.std[0]


def by_torch(image, how, *, order=(0, 1, 2), crop=None, both=False, antialias=True):
    """Another right way: nothing is rounded in between. And ways to get it wrong."""
    weights = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    gray = (image[list(order)].float() / 255 * weights).sum(0)[None, None]
    size = how.image_size[0]
    shorter = round(size / (crop or how.crop))
    h, w = gray.shape[2:]
    wide = shorter if both else int(w * shorter / h)
    gray = F.interpolate(gray, (shorter, wide), mode="bilinear", antialias=antialias)[0]
    top, left = round((shorter - size) / 2), round((wide - size) / 2)
    return (gray[:, top : top + size, left : left + size] - how.mean[0]) / how.std[0]


def agreement(ours, theirs, c=C):
    same = (ours.argmax(1) == theirs.argmax(1)).double()
    p, n = same.mean().item(), len(same)
    middle = p + c * c / (2 * n)
    apart = c * (p * (1 - p) / n + c * c / (4 * n * n)) ** 0.5
    return p, (middle - apart) / (1 + c * c / n), (middle + apart) / (1 + c * c / n)


def normal(ours, theirs):
    p = (ours.argmax(1) == theirs.argmax(1)).double().mean().item()
    apart = C * (p * (1 - p) / len(ours)) ** 0.5
    return p, p - apart, p + apart


def certain(ours, theirs):
    found = agreement(ours, theirs)
    return (1.0, 1.0, 1.0) if found[0] == 1 else found


def equal_logits(ours, theirs):
    same = (ours == theirs).all(1).long()
    return agreement(F.one_hot(same, 2), F.one_hot(torch.ones_like(same), 2))


RIGHT = {"prepare": [by_torch]}
WRONG = {
    "scale_and_zero": {
        "255 steps": lambda x: scale_and_zero(x, steps=256),
        "symmetric": lambda x: (2 * float(x.abs().max()) / 255, 128),
        "wrong sign": lambda x: (scale_and_zero(x)[0], -scale_and_zero(x)[1]),
        "reach down to 0": lambda x: scale_and_zero(x, least=torch.inf),
    },
    "quantise": {
        "outside of 0 to 255": lambda x, scale, zero: (x / scale).round() + zero,
        "other end": lambda x, scale, zero: ((x / scale).round() + zero).long().to(torch.uint8),
        "cut off": lambda x, scale, zero: (x / scale + zero).clamp(0, 255).to(torch.uint8),
        "zero point is missing": lambda x, scale, zero: quantise(x, scale, 0),
    },
    "quantise_rows": {
        "One scale for all": lambda weight: (
            (weight * 127 / weight.abs().max()).round().to(torch.int8),
            (weight.abs().max() / 127).expand(len(weight)),
        ),
        "each input": lambda weight: quantise_rows(weight, dim=0),
        "128": lambda weight: quantise_rows(weight, most=128),
    },
    "linear": {
        "zero point is missing": lambda x, scale, zero, *rest: linear(x, scale, 0, *rest),
        "overflowed": lambda *given: linear(*given, kind=torch.int16),
        "became negative": lambda x, *rest: linear(x.to(torch.int8), *rest),
        "inputs is missing": lambda x, scale, *rest: linear(x, 1.0, *rest),
    },
    "prepare": {
        "Red and blue": lambda image, how: by_torch(image, how, order=(2, 1, 0)),
        "squashed": lambda image, how: by_torch(image, how, both=True),
        "margin": lambda image, how: by_torch(image, how, crop=1.0),
        "Not antialiased": lambda image, how: by_torch(image, how, antialias=False),
        "another run": lambda image, how: (
            (prepare(image, how) * how.std[0] + how.mean[0] - 0.3045) / 0.3748
        ),
    },
    "agreement": {
        "normal distribution": normal,
        "one standard error": lambda ours, theirs: agreement(ours, theirs, c=1.0),
        "without width": certain,
        "Logits were compared": equal_logits,
    },
}
