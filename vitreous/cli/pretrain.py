"""Pre-train an encoder on images alone, without labels: any folder of images, or any data that
'train' takes, whose labels then only show how good the features are. The run folder is used as
--weights of 'train'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tyro.conf import Fixed as Key

from vitreous import api
from vitreous.cli.train import TrainArguments, defaults_of, print_done, rehearse, value_of
from vitreous.tasks import PRETRAINING
from vitreous.terminal import print
from vitreous.train.recipe import (
    DataOptions,
    ModelOptions,
    OptimisationOptions,
    option,
    recipe_help,
)


@dataclass(frozen=True)
class ImageOptions(DataOptions):
    """What is read, and how it is split and sampled."""

    overfit: Key[int] = 0


@dataclass(frozen=True)
class EncoderOptions(ModelOptions):
    """Changes to the model, and which of its parameters are trained."""

    unfreeze_after: Key[int] = 0
    lora: Key[int] = 0


@dataclass(frozen=True)
class PretrainingOptions(OptimisationOptions):
    """The optimiser, its schedule, and the teacher of --method distil."""

    class_weights: Key[Literal["none", "auto"] | None] = None


@dataclass(frozen=True)
class PretrainArguments(TrainArguments):
    method: Annotated[str, option("{" + ",".join(PRETRAINING) + "}")] = PRETRAINING[0]
    """How to learn without labels: mae predicts the pixels of hidden patches, lejepa makes random
    views of an image alike, distil learns the features of a teacher."""
    task: Key[str | None] = None
    data_options: Annotated[ImageOptions, option(name="data")] = field(default_factory=ImageOptions)
    model_options: Annotated[EncoderOptions, option(name="model")] = field(
        default_factory=EncoderOptions
    )
    optimisation: PretrainingOptions = field(default_factory=PretrainingOptions)


UNUSED = ("task", "overfit", "unfreeze-after", "lora", "class-weights")
"""Options of `train` that no method of pre-training has a use for."""
REFUSED = dict.fromkeys(UNUSED, "it has no meaning without labels: leave it out")


def defaults(words: Sequence[str]) -> PretrainArguments:
    """What applies unless an option says otherwise: the method's recipe, or the resumed run's."""
    return defaults_of(PretrainArguments, words, value_of(words, "--method") or PRETRAINING[0])


def run(arguments: PretrainArguments) -> None:
    if arguments.help_recipe:
        print(recipe_help())
        return
    recipe = arguments.to_recipe()
    if arguments.dry_run or arguments.lr_find:
        rehearse(recipe, arguments)
        return
    done = api.pretrain(recipe=recipe, out=arguments.out, resume=arguments.resume)
    if done.metrics:  # of several processes the first one prints
        print_done(done, json=arguments.json)
