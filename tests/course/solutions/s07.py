"""Exercise 7, solved; and what readers usually get wrong."""

import torch


def receptive_field(kernels, strides):
    side, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        side += (kernel - 1) * step
        step *= stride
    return side


def nearest(known, classes, images):
    distances = torch.cdist(images.flatten(1), known.flatten(1))
    return classes[distances.argmin(dim=1)]


def tokens_of_map(features, E, b):
    return features.flatten(2).transpose(1, 2) @ E + b


def mixup(images, targets, order, share):
    def mixed(x):
        return share * x + (1 - share) * x[order]

    return mixed(images), mixed(targets)


def too_early(kernels, strides):
    side, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        step *= stride
        side += (kernel - 1) * step
    return side


def last_stride(kernels, strides):
    before = [1, *strides[:-1]]
    return 1 + sum((k - 1) * s for k, s in zip(kernels, before, strict=True))


WRONG = {
    "receptive_field": {
        "kernels were added": lambda kernels, strides: sum(kernels),
        "strides were left out": lambda kernels, strides: 1 + sum(k - 1 for k in kernels),
        "for the layers behind it": too_early,
        "all strides before multiply": last_stride,
        "The 1 at the beginning": lambda kernels, strides: receptive_field(kernels, strides) - 1,
    },
    "nearest": {
        "furthest": lambda known, classes, images: classes[
            torch.cdist(images.flatten(1), known.flatten(1)).argmax(dim=1)
        ],
        "numbers of the nearest": lambda known, classes, images: torch.cdist(
            images.flatten(1), known.flatten(1)
        ).argmin(dim=1),
        "dot product": lambda known, classes, images: classes[
            (images.flatten(1) @ known.flatten(1).T).argmax(dim=1)
        ],
    },
    "tokens_of_map": {
        "mixes the places": lambda features, E, b: features.reshape(2, -1, len(E)) @ E + b,
        "bias b is missing": lambda features, E, b: features.flatten(2).transpose(1, 2) @ E,
        "column by column": lambda features, E, b: tokens_of_map(features.transpose(2, 3), E, b),
    },
    "mixup": {
        "targets were not mixed": lambda images, targets, order, share: (
            mixup(images, targets, order, share)[0],
            targets,
        ),
        "shares are swapped": lambda images, targets, order, share: mixup(
            images, targets, order, 1 - share
        ),
        "sum 1": lambda images, targets, order, share: (
            images + images[order],
            targets + targets[order],
        ),
    },
}
