"""Everything that decides about a training run, as one frozen dataclass.

It is what a recipe file holds, and what the run folder keeps, so that a run can be repeated. None
means: chosen by the data and the machine, and logged. What people set often is an option of
`vitreous train`, too; the rest is a `Key`, which `--set-recipe KEY=VALUE` sets.

The fields stand in the groups in which `vitreous train --help` shows them. Each has one sentence
below it, which is its help text (`--help-recipe` shows all).
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
import sys
import sysconfig
import textwrap
import typing
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Fixed as Key  # no option of the command line: --set-recipe KEY=VALUE sets it

from vitreous.config import (
    choice,
    config_fields,
    fraction,
    from_dict,
    parse_toml,
    read_toml,
    to_dict,
)
from vitreous.errors import ConfigError, did_you_mean
from vitreous.progress import Log, silent
from vitreous.tasks import PRETRAINING, RECIPES, TASKS

INSTALLED = Path("share", "vitreous", "recipes")


def option(metavar: str | None = None, open_default: str | None = None, name: str = "") -> Any:
    """How the help shows an option: its value, and what is used if that is left open."""

    def hint(default: str) -> str:
        return f"(default: {open_default if default in ('None', '') else default})"

    return tyro.conf.arg(
        metavar=metavar, help_behavior_hint=hint if open_default else None, name=name or None
    )


Flag = Annotated[bool, tyro.conf.arg(metavar="", help_behavior_hint="")]
"""An option that takes no value."""
RecipeFlag = Annotated[bool, tyro.conf.arg(metavar="[False]", help_behavior_hint="")]
"""One that recipes may set: it needs no value, and `--download False` takes the recipe's back."""
Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class CommonOptions:
    """What most runs state."""

    data: tyro.conf.Positional[str] = "digits"
    """Images to train on: a path ('vitreous data check --help' lists the formats), or digits."""
    model: Annotated[str | None, option("MODEL", "chosen for the data")] = None
    """Model to train, by its name ('vitreous models' lists them)."""
    weights: Annotated[str | None, option("WEIGHTS", "random weights")] = None
    """Weights to start from: a run folder, a file, hf:OWNER/NAME, or a name from the catalog."""
    epochs: Annotated[int | None, option("N", "chosen by the number of images")] = None
    """Passes over the training images."""
    time: Annotated[str | None, option("30m", "as long as it takes")] = None
    """Be done in about this time (90s, 30m, 2h): chooses the epochs, by the speed on the way."""
    batch: Annotated[int | None, option("N", "chosen by the number of images")] = None
    """Images per optimiser step, summed over all processes."""
    lr: Annotated[float | None, option("LR", "chosen for the model")] = None
    """Peak learning rate."""
    image_size: Annotated[tuple[int, ...], option("H [W]", "chosen for model and data")] = ()
    """Height and width of the model's input in pixels; one number means a square."""
    task: Annotated[str | None, option("{" + ",".join(TASKS) + "}", "the data's own")] = None
    """What the model learns to do, for data that allows several tasks."""
    seed: Annotated[int, option("N")] = 0
    """Seed for initial weights, order of the images, augmentation, fraction and held-out split."""


@dataclass(frozen=True)
class DataOptions:
    """What is read, and how it is split and sampled."""

    names: Annotated[str | None, option("FILE", "the data's own")] = None
    """File with the classes' names: JSON or YAML from ids to names, or text with one per line."""
    path_column: Annotated[str | None, option("NAME", "path")] = None
    """Column of a table with the images' paths."""
    label_column: Annotated[str | None, option("NAME", "label")] = None
    """Column of a table with the images' classes or labels."""
    split_column: Annotated[str | None, option("NAME", "split")] = None
    """Column of a table with the images' splits."""
    val_fraction: Annotated[float, option("F")] = 0.1
    """Fraction of each class that is held out for validation if the data has no val split."""
    test_fraction: Annotated[float, option("F")] = 0.0
    """Fraction of each class that is held out before that, to be measured on at the end, if the
    data has no test split."""
    split_seed: Key[int | None] = None
    """Seed of the held-out split, and of generated images; seed unless given. Runs with this one
    and seeds of their own are measured on the same images."""
    fraction: Annotated[float, option("F")] = 1.0
    """Train on this fraction of the training images, of each class; a larger fraction has the
    images of a smaller one and more."""
    sampler: Key[Literal["uniform", "balanced"]] = "uniform"
    """Draw every image equally often, or every class (balanced)."""
    overfit: Annotated[int, option("N")] = 0
    """Train and evaluate on only this many images, of all classes, to see whether the model can fit
    them."""
    on_bad: Literal["error", "skip"] = "error"
    """Stop if an image cannot be read, or skip such images and list them."""
    max_pixels: Annotated[int, option("N")] = 50_000_000
    """Refuse images with more pixels than this, or that would be enlarged to more."""
    download: RecipeFlag = False
    """Allow downloading a public dataset."""


@dataclass(frozen=True)
class ModelOptions:
    """Changes to the model, and which of its parameters are trained."""

    fields: Annotated[Repeated, option("FIELD=VALUE", name="set")] = ()
    """Change a field of the model's config, for example drop_path=0.1."""
    channels: Key[int | None] = None
    """Channels of the model's input; unless given, as in most images."""
    weights_format: Key[str | None] = None
    """Format of the weights ('vitreous convert --help' lists them); recognised unless given."""
    keep_head: Key[bool] = False
    """Keep the head of the weights, whose classes are those of the data in the same order."""
    freeze: Annotated[Repeated, option("PATTERN")] = ()
    """Do not train these parameters: 'blocks.*', or '!head.*' for all but the head."""
    unfreeze_after: Key[int] = 0
    """Train only the head in the first N epochs, and all of the model after them."""
    lora: Annotated[int, option("R")] = 0
    """Train the head and, in attention, matrices of rank R that are added to the weights (LoRA)."""


@dataclass(frozen=True)
class OptimisationOptions:
    """The optimiser, its schedule, and the loss."""

    optimizer: Annotated[
        Literal["adamw", "muon"] | None, option(None, "muon from scratch, else adamw")
    ] = None
    """AdamW for all parameters, or Muon for matrices and convolutions and AdamW for the rest."""
    accumulate: Key[int] = 1
    """Accumulate the gradient over this many parts of the batch, which needs less memory."""
    weight_decay: Key[float] = 0.05
    """Weight decay; biases, norms, tokens and position embeddings are exempt."""
    warmup: Key[float] = 0.1
    """Fraction of the steps in which the learning rate rises linearly from 0."""
    final_lr: Key[float] = 0.01
    """Learning rate at the end of the cosine schedule, as a fraction of the peak."""
    layer_decay: Annotated[float, option("F")] = 1.0
    """Factor by which the learning rate falls with each block further from the head."""
    betas: Key[tuple[float, float]] = (0.9, 0.999)
    """AdamW's decay rates of the gradient's two moments."""
    clip: Key[float] = 1.0
    """Clip the gradient to this norm; 0 turns clipping off."""
    ema: Annotated[float, option("F")] = 0.99
    """Decay of the moving average of the weights that is evaluated and kept; 0 turns it off."""
    patience: Annotated[int, option("N")] = 0
    """Stop after this many evaluations without a better smoothed metric; 0 never stops early."""
    skip_nonfinite: Key[int] = 0
    """Skip up to this many steps whose loss or gradient is not finite before the run stops."""
    smoothing: Key[float | None] = None
    """Label smoothing; unless given, by the task."""
    class_weights: Annotated[
        Literal["none", "auto"] | None, option(None, "auto to fine-tune masks, else none")
    ] = None
    """Weigh all classes alike in the loss (none), or rare ones more (auto)."""
    dice: Key[float] = 0.0
    """Weight of the Dice loss that is added to the cross-entropy of masks."""
    auxiliary: Key[bool] = True
    """Learn from the outputs of all layers of a detector's decoder (DETR, 3.2), not of the last."""
    teacher: Annotated[str | None, option("RUN", "none")] = None
    """Teacher to distil from (DeiT; pretrain --method distil): a run, or hf:OWNER/NAME."""
    distill: Key[Literal["hard", "soft"] | None] = None
    """Learn from the class the teacher predicts (hard, unless given), or from its probabilities
    (soft)."""


@dataclass(frozen=True)
class AugmentationOptions:
    """Random changes to the training images."""

    crop: Annotated[
        Literal["resized", "window", "shift", "none"] | None, option(None, "chosen for the data")
    ] = None
    """Crop at random: a part resized to the input, a window of a zoomed image, or a small shift."""
    scale: Key[float] = 0.35
    """With --crop resized: the smallest fraction of the image's area that is cut out."""
    zoom: Key[tuple[float, float]] = (0.5, 2.0)
    """With --crop window: the range of the factor by which the image is resized first."""
    multi_scale: Key[tuple[float, float]] = (1.0, 1.0)
    """Resize each batch, boxes included, by a random factor from this range."""
    flip: Annotated[bool | None, option(None, "True for colour images")] = None
    """Flip half of the images horizontally, at random."""
    randaugment: Key[int] = 0
    """Magnitude of RandAugment's two random operations; 0 turns it off."""
    jitter: Key[float] = 0.0
    """Strength of random changes to brightness, contrast and saturation; 0 turns them off."""
    erase: Key[float] = 0.0
    """Probability of overwriting a random rectangle with noise (random erasing)."""
    mixup: Key[float] = 0.0
    """Alpha of Mixup, which blends two images and their labels; 0 turns it off."""
    cutmix: Key[float] = 0.0
    """Alpha of CutMix, which pastes a rectangle of another image; 0 turns it off."""


@dataclass(frozen=True)
class PreprocessingOptions:
    """What happens to every image, in training and later."""

    resize: Annotated[
        Literal["shorter", "square", "none"] | None, option(None, "as the weights expect")
    ] = None
    """Resize the shorter side to the input size, both sides, or (for masks) none."""
    longest: Key[int | None] = None
    """With --resize shorter and boxes: the longer side is at most this many pixels; unless given,
    5/3 of the image size."""
    interpolation: Key[Literal["bilinear", "bicubic", "nearest"] | None] = None
    """Interpolation for resizing images; unless given, as the weights expect."""
    mean: Key[tuple[float, ...]] = ()
    """Mean of each channel, in the range 0 to 1, for normalisation; unless given, that of the
    weights, or measured."""
    std: Key[tuple[float, ...]] = ()
    """Standard deviation of each channel, in the same range, for normalisation."""


@dataclass(frozen=True)
class RunOptions:
    """The machine, and what the run folder keeps."""

    device: Annotated[str | None, option("DEVICE", "a GPU if there is one")] = None
    """Device to train on: cpu, cuda, cuda:N or mps."""
    threads: Annotated[int | None, option("N", "all cores")] = None
    """Threads that compute, in each process; 1 is best beside other programs on the same cores."""
    workers: Annotated[int | None, option("N", "chosen by the size of images")] = None
    """Processes that read and augment images."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute in float32, or in bfloat16 except for loss and norms; auto: where that is faster."""
    compile: Key[bool] = False
    """Compile the model with torch.compile."""
    recompute: RecipeFlag = False
    """Need a third less memory: norms and activations are computed again in the backward."""
    checkpoint: Key[bool] = False
    """Need the least memory: whole blocks are computed again, which takes a third longer."""
    shard: Key[bool] = False
    """With several processes: shard the model (FSDP2) instead of replicating it (DDP)."""
    keep: Key[int] = 2
    """Number of latest checkpoints to keep besides the best."""
    save_every: Key[int] = 0
    """Steps between checkpoints; 0 saves one after each epoch."""
    log_every: Key[int] = 50
    """Steps between two losses in metrics.jsonl; 0 logs evaluations only."""
    tensorboard: Key[bool] = False
    """Also write TensorBoard files to RUN/tensorboard (needs vitreous[tensorboard])."""


@dataclass(frozen=True)
class Recipe(  # fields stand in reverse order of the bases: data and model come first
    RunOptions,
    PreprocessingOptions,
    AugmentationOptions,
    OptimisationOptions,
    ModelOptions,
    DataOptions,
    CommonOptions,
):
    """How to train. Fields are keys of recipe files."""

    augment: str | None = None
    """Name of the augmentation that Python gave. It is no option: the function must be given."""
    method: str | None = None
    """The method of `vitreous pretrain`, which alone has it as an option."""

    @property
    def command(self) -> str:
        """The one that trains by this recipe."""
        return "train" if self.method is None else "pretrain"

    @property
    def data_seed(self) -> int:
        """What decides which images are held out, and what generated images show."""
        return self.seed if self.split_seed is None else self.split_seed

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, choice(name, value, known))
        if self.time is not None:
            seconds(self.time)
            if self.epochs is not None:
                raise ConfigError(
                    f"time = {self.time!r} and epochs = {self.epochs} both say how long to train: "
                    "give one of them, in a resumed run the one that it began with"
                )
        if self.distill is not None and self.teacher is None:
            raise ConfigError(f"distill = {self.distill!r} needs a teacher: give --teacher RUN")
        if self.unfreeze_after and self.epochs and self.unfreeze_after >= self.epochs:
            raise ConfigError(
                f"unfreeze_after = {self.unfreeze_after} with epochs = {self.epochs} never trains "
                "all of the model: give more epochs, or freeze = '!head.*'"
            )
        for name in ("unfreeze_after", "lora"):
            if getattr(self, name) and self.shard:
                raise ConfigError(f"{name} = {getattr(self, name)} cannot be used with shard")
        for name in ("recompute", "checkpoint"):
            if getattr(self, name) and self.compile:
                raise ConfigError(f"compile decides itself what to compute again: leave out {name}")
        if self.recompute and self.checkpoint:
            raise ConfigError("checkpoint computes all of a block again: leave out recompute")
        if self.optimizer == "muon" and self.shard:
            raise ConfigError("optimizer = 'muon' needs whole matrices: use adamw with shard")
        if self.unfreeze_after and self.lora:
            raise ConfigError("lora never unfreezes the weights: leave out unfreeze_after")
        if self.freeze and self.lora:
            raise ConfigError(
                f"lora = {self.lora} trains matrices beside weights that it freezes itself: leave "
                f"out freeze = {' '.join(self.freeze)!r}, or the recipe that sets it"
            )
        fraction(self, "ema", *(["smoothing"] if self.smoothing is not None else []))
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas = {self.betas}: expected two numbers from 0 to below 1")
        if not 0 < self.multi_scale[0] <= self.multi_scale[1] <= 4:
            raise ConfigError(
                f"multi_scale = {self.multi_scale}: expected two factors, the smaller one first"
            )
        if not 0 < self.fraction <= 1:
            raise ConfigError(
                f"fraction = {self.fraction:g}: expected a part of the training images, above 0 up "
                "to 1"
            )
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ConfigError(f"lr = {self.lr}: expected a number above 0")
        for names, (least, most, expected) in RANGES.items():
            for name in names.split():
                value = getattr(self, name)
                if value is not None and not least <= value <= most:
                    raise ConfigError(f"{name} = {value}: expected {expected}")


def seconds(text: str) -> float:
    """90s, 30m or 2h as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)", text.strip().lower())
    if found is None or not float(found[1]):
        raise ConfigError(f"time = {text!r}: expected a number and s, m or h, such as 30m")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def doubled(time: str) -> str:
    """Twice 45s is 90s."""
    return f"{2 * float(time.strip()[:-1]):g}{time.strip()[-1]}"


RANGES = {
    "epochs batch accumulate keep max_pixels threads": (1, sys.maxsize, "at least 1"),
    "warmup final_lr layer_decay": (0, 1, "0 to 1"),
    "workers patience save_every skip_nonfinite log_every": (0, sys.maxsize, "0 or more"),
    "overfit weight_decay clip dice": (0, sys.maxsize, "0 or more"),
    "unfreeze_after lora": (0, sys.maxsize, "0 or more"),
}
"""The smallest and the largest value of fields that are numbers."""


def _choices(hint: Any) -> tuple[str, ...]:
    """The values of a Literal, also of one that may be None."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    return next(filter(None, map(_choices, typing.get_args(hint))), ())


HINTS = typing.get_type_hints(Recipe, include_extras=True)
KEYS = {name for name, hint in HINTS.items() if Key in getattr(hint, "__metadata__", ())}
"""The fields that are no options of `vitreous train`."""
CHOICES: dict[str, Collection[str]] = {
    name: known for name, hint in typing.get_type_hints(Recipe).items() if (known := _choices(hint))
} | {"task": TASKS, "method": PRETRAINING}
"""The values of the fields that have only a few."""


def recipe_help() -> str:
    """All keys of a recipe, in their groups, with their defaults and what they mean."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    lines = [
        "A recipe is a TOML file (--recipe FILE); --set-recipe KEY=VALUE changes one of its keys."
    ]
    for group in reversed(Recipe.__bases__):
        lines += ["", f"# {group.__doc__}"]
        body = classes[group.__name__].body
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                name, default = field.target.id, getattr(Recipe, field.target.id)
                known = f" ({', '.join(CHOICES[name])})" if name in CHOICES else ""
                text = ast.literal_eval(ast.unparse(below))
                lines.append(f"{name} = {'…' if default is None else json.dumps(default)}{known}")
                lines += textwrap.wrap(text, 96, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def assigned(changes: Iterable[str]) -> dict[str, Any]:
    """Of `--set-recipe KEY=VALUE`: the fields, typed as in a file."""
    values = config_fields(tuple(changes))
    return recipe_fields(values, "--set-recipe") if values else {}


def find_recipe(name: str) -> Path:
    """The path of a recipe: a file, or the name of one in recipes/, in the clone or installed."""
    places = [Path(__file__).parents[2] / "recipes", Path(sysconfig.get_path("data")) / INSTALLED]
    ours = [place / f"{name}.toml" for place in places]
    found = next((path for path in [Path(name), *ours] if path.is_file()), None)
    if found is None:
        known = sorted({path.stem for place in places for path in place.glob("*.toml")})
        hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
        raise ConfigError(f"recipe {name!r} is neither a file nor a name in recipes/{hint}")
    return found


NO_RECIPE = "none"


def default_recipe(
    weights: object, lora: object, method: str | None = None, log: Log = silent
) -> str | None:
    """The name of the recipe that applies where none is given: one for weights to start from, or
    for a method of pre-training."""
    if method is not None:
        return RECIPES[choice("method", method, PRETRAINING)]
    if weights is None:
        return None
    chosen = "lora" if lora else "fine-tune"
    log(f"recipe: {chosen}, because weights are given (--recipe {NO_RECIPE} uses none)")
    return chosen


def read_recipe(path: Path) -> dict[str, Any]:
    """The fields that a recipe file sets."""
    return recipe_fields(read_toml(path, "a recipe"), str(path))


def parse_recipe(text: str, where: str) -> Recipe:
    """From the text of a recipe file."""
    return Recipe(**recipe_fields(parse_toml(text, where), where))


REMOVED = {"mosaic": 0.0}
"""Options of older recipes that are gone, and the value that they have where they were not used."""


def recipe_fields(values: dict[str, Any], where: str) -> dict[str, Any]:
    for name, unused in REMOVED.items():
        if (value := values.pop(name, unused)) != unused:
            raise ConfigError(
                f"{where}: {name} = {value}: this option was removed; leave it out, or use the "
                "version of Vitreous that the recipe was written with"
            )
    from_dict(Recipe, values, where=where)
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def write_recipe(recipe: Recipe) -> str:
    """A recipe as TOML, defaults included; None is left out, because it means: to be chosen."""
    values = to_dict(recipe).items()
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values if value is not None)


MAY_CHANGE = {
    *("epochs", "time", "patience", "workers", "device", "keep", "save_every", "log_every"),
    *("tensorboard", "skip_nonfinite", "accumulate", "compile", "shard", "download", "max_pixels"),
    *("recompute", "checkpoint", "threads"),
}
"""What may change when a run is resumed; any other change would make it another run."""


def _settings(changes: tuple[str, ...]) -> dict[str, str]:
    """The last value given to each field."""
    return {name: value for name, _, value in (change.partition("=") for change in changes)}


def is_longer(given: Recipe, stored: Recipe) -> bool:
    """Whether a resumed run is to take longer than it was planned."""
    if given.time is not None and stored.time is not None:
        return seconds(given.time) > seconds(stored.time)
    return (given.epochs or 0) > (stored.epochs or 0)


def continued(stored: Recipe, given: Recipe) -> Recipe:
    """The recipe of a resumed run; a change that would make it another run is an error.

    What `given` leaves open (None, an empty tuple, `precision = "auto"`) stays as stored. So do
    options that may be repeated, if they only repeat what is stored.
    """
    was = {field.name: getattr(stored, field.name) for field in fields(Recipe)}
    left = {name: value for name, value in was.items() if getattr(given, name) in (None, ())}
    if given.precision == "auto":
        left["precision"] = stored.precision
    if _settings(given.fields) == _settings(stored.fields):
        left["fields"] = stored.fields
    if set(given.freeze) == set(stored.freeze):
        left["freeze"] = stored.freeze
    given = replace(given, **left)
    for field in fields(Recipe):
        before, now = was[field.name], getattr(given, field.name)
        if before != now and field.name not in MAY_CHANGE:
            name = "fields (--set)" if field.name == "fields" else field.name
            raise ConfigError(
                f"{name} = {now!r}, but the run to resume has {before!r}: leave the option "
                "out, or start another run with another --out"
            )
    return given
