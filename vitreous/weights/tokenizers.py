"""The tokenizer of a checkpoint with a text tower: the files beside the weights, tried out."""

from __future__ import annotations

from pathlib import Path

import torch

from vitreous.errors import CheckpointError, InputError
from vitreous.models.model import Model
from vitreous.models.two_towers import TwoTowers
from vitreous.text.published import has_tokenizer, published_tokenizer
from vitreous.text.tokenizer import Tokenizer

NONE_THERE = (
    "there is no tokenizer beside the weights, so that it takes no words and only gives vectors of "
    "images: copy tokenizer.json, vocab.json with merges.txt or spiece.model there, with "
    "tokenizer_config.json, from where the weights are published, and import it again"
)


@torch.inference_mode()
def tokenizer_beside(model: Model, weights: Path) -> Tokenizer | None:
    """Of a model with a text tower, if its file of weights has one beside it; it must be that
    tower's."""
    if not isinstance(model, TwoTowers) or not has_tokenizer(weights.parent):
        return None
    tower = model.text.config
    tokenizer = published_tokenizer(weights.parent, length=tower.length)
    tokenizer.check_fits(vocabulary=tower.vocabulary, length=tower.length)
    try:
        model.text_vectors(tokenizer.encode(["a photo"]))
    except InputError as error:
        raise CheckpointError(f"{tokenizer.where} is not for the weights: {error}") from None
    return tokenizer
