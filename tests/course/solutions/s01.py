"""Exercise 1, solved; and what readers usually get wrong."""

import torch
import torch.nn.functional as F


def patchify(image, patch):
    c, h, w = image.shape
    cut = image.reshape(c, h // patch, patch, w // patch, patch)
    return cut.permute(1, 3, 0, 2, 4).reshape(-1, c * patch * patch)


def embed(patches, E, b):
    return patches @ E + b


def as_matrix(kernel):
    return kernel.reshape(kernel.shape[0], -1).T


def tokens_of(image, kernel, b):
    return F.conv2d(image[None], kernel, b, stride=kernel.shape[-1])[0].flatten(1).T


def channels_last(image, patch):
    c, h, w = image.shape
    cut = image.reshape(c, h // patch, patch, w // patch, patch)
    return cut.permute(1, 3, 2, 4, 0).reshape(-1, c * patch * patch)


WRONG = {
    "patchify": {
        "reshaped without moving": lambda image, p: image.reshape(-1, image.shape[0] * p * p),
        "channels come last": channels_last,
        "column by column": lambda image, p: (
            F.unfold(image[None], p, stride=p)[0].T.reshape(2, 3, -1).transpose(0, 1).flatten(0, 1)
        ),
    },
    "embed": {"bias b is missing": lambda patches, E, b: patches @ E},
    "as_matrix": {
        "E transposed": lambda kernel: kernel.flatten(1),
        "only regrouped": lambda kernel: kernel.reshape(-1, kernel.shape[0]),
    },
    "tokens_of": {
        "(N, D)": lambda image, kernel, b: tokens_of(image, kernel, b).T,
        "mixes the tokens": lambda image, kernel, b: tokens_of(image, kernel, b).T.reshape(
            -1, kernel.shape[0]
        ),
        "bias b is missing": lambda image, kernel, b: tokens_of(image, kernel, torch.zeros_like(b)),
    },
}
