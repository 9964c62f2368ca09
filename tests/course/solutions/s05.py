"""Exercise 5, solved; and what readers usually get wrong."""

import torch
import torch.nn.functional as F


def with_class_token(patches, x_class, positions):
    first = x_class.expand(len(patches), 1, -1)
    return torch.cat((first, patches), dim=1) + positions


def read(tokens, kind, prefix):
    found = {"class": tokens[:, 0], "mean": tokens[:, prefix:].mean(dim=1)}
    return torch.cat([found[each] for each in kind.split("+")], dim=1)


def pretraining_head(y, W1, b1, W2, b2):
    return torch.tanh(y @ W1 + b1) @ W2 + b2


def probabilities(logits):
    e = (logits - logits.max(dim=1, keepdim=True).values).exp()
    return e / e.sum(dim=1, keepdim=True)


def without_position(patches, x_class, positions):
    first = x_class.expand(len(patches), 1, -1)
    return torch.cat((first, patches + positions[1:]), dim=1)


def reading(*, mean=None, both=None):
    """Right but for one kind."""

    def wrong(tokens, kind, prefix):
        made = {"mean": mean, "class+mean": both}.get(kind)
        return made(tokens, prefix) if made else read(tokens, kind, prefix)

    return wrong


WRONG = {
    "with_class_token": {
        "behind the patches": lambda patches, first, table: (
            torch.cat((patches, first.expand(len(patches), 1, -1)), dim=1) + table
        ),
        "positions are missing": lambda patches, first, table: torch.cat(
            (first.expand(len(patches), 1, -1), patches), dim=1
        ),
        "class token got no position": without_position,
    },
    "read": {
        "the last row": lambda tokens, kind, prefix: tokens[:, -1],
        "registers are in the mean": reading(mean=lambda tokens, prefix: tokens.mean(dim=1)),
        "there are registers, too": reading(mean=lambda tokens, prefix: tokens[:, 1:].mean(dim=1)),
        "over the channels": reading(mean=lambda tokens, prefix: tokens[:, prefix:].mean(dim=2)),
        "side by side": reading(
            both=lambda tokens, prefix: tokens[:, 0] + tokens[:, prefix:].mean(dim=1)
        ),
    },
    "pretraining_head": {
        "nothing between": lambda y, W1, b1, W2, b2: (y @ W1 + b1) @ W2 + b2,
        "GELU": lambda y, W1, b1, W2, b2: F.gelu(y @ W1 + b1) @ W2 + b2,
        "logits have none": lambda y, W1, b1, W2, b2: pretraining_head(y, W1, b1, W2, b2).tanh(),
    },
    "probabilities": {
        "over the images": lambda logits: logits.softmax(dim=0),
        "over the whole batch": lambda logits: logits.exp() / logits.exp().sum(),
        "sigmoid": lambda logits: logits.sigmoid(),
        "overflows": lambda logits: logits.exp() / logits.exp().sum(dim=1, keepdim=True),
    },
}
