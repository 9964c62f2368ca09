"""Pre-train an encoder on images alone, without labels: any folder of images, or any data that
'train' takes, whose labels then only show how good the features are. The run folder is used as
--weights of 'train'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vitreous import api
from vitreous.cli.train import TrainArguments, defaults_of, print_done, rehearse, value_of
from vitreous.tasks import PRETRAINING
from vitreous.train.recipe import option


@dataclass(frozen=True)
class PretrainArguments(TrainArguments):
    method: Annotated[str, option("{" + ",".join(PRETRAINING) + "}")] = PRETRAINING[0]
    """How to learn without labels: mae predicts the pixels of hidden patches, lejepa makes random
    views of an image alike, distil learns the features of a teacher."""


def defaults(words: Sequence[str]) -> PretrainArguments:
    """What applies unless an option says otherwise: the method's recipe, or the resumed run's."""
    return defaults_of(PretrainArguments, words, value_of(words, "--method") or PRETRAINING[0])


def run(arguments: PretrainArguments) -> None:
    recipe = arguments.to_recipe()
    if arguments.dry_run or arguments.lr_find:
        rehearse(recipe, arguments)
        return
    done = api.pretrain(recipe=recipe, out=arguments.out, resume=arguments.resume)
    if done.metrics:  # of several processes the first one prints
        print_done(done, json=arguments.json)
