"""Pre-train an encoder on images alone, without labels: any folder of images, or any data that
'train' takes, whose labels then only show how good the features are. The run folder is used as
--weights of 'train'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tyro.conf import Fixed as Key

from vitreous import api
from vitreous.cli import train
from vitreous.cli.train import TrainArguments, defaults_of, value_of
from vitreous.tasks import PRETRAINING
from vitreous.train.recipe import DataOptions, ModelOptions, OptimisationOptions, option


@dataclass(frozen=True)
class ImageOptions(DataOptions):
    """What is read, and how it is split and sampled."""

    overfit: Key[int] = 0


@dataclass(frozen=True)
class EncoderOptions(ModelOptions):
    """Changes to the model, and which of its parameters are trained."""

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


UNUSED = ("task", "overfit", "lora", "class-weights")
"""Options of `train` that no method of pre-training has a use for."""
REFUSED = dict.fromkeys(UNUSED, "it has no meaning without labels: leave it out")


def defaults(words: Sequence[str]) -> PretrainArguments:
    """What applies unless an option says otherwise: the method's recipe, or the resumed run's."""
    return defaults_of(PretrainArguments, words, value_of(words, "--method") or PRETRAINING[0])


def run(arguments: PretrainArguments) -> None:
    train.run(arguments, api.pretrain)
