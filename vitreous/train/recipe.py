"""Everything that decides about a training run, as one frozen dataclass.

It is what a recipe file holds, what `vitreous train` takes as options, and what the run folder
keeps, so that a run can be repeated. None means: chosen from the data and the machine, and said.
"""

from __future__ import annotations

import json
import math
import sysconfig
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tyro

from vitreous.config import choice, fraction, from_dict, read_toml, to_dict
from vitreous.errors import ConfigError, did_you_mean
from vitreous.tasks import TASKS

DISTILLATIONS = ("hard", "soft")
INSTALLED = Path("share", "vitreous", "recipes")


@dataclass(frozen=True)
class Recipe:
    """How to train. Fields are options of `vitreous train` and keys of recipe files."""

    # What
    data: tyro.conf.Positional[str] = "digits"
    """A folder, a CSV table, a folder of IDX files, images with masks, a COCO file, or a built-in
    name: digits, shapes."""
    task: str | None = None
    """classify, segment or detect; what the data is for unless given."""
    val_fraction: float = 0.1
    """Part of each class that is held out for validation, where the data has no val."""
    max_pixels: int = 50_000_000
    """Larger images are not decoded but are an error."""
    names: str | None = None
    """Names of the classes: a JSON file from ids to names, or a file with a line for each."""
    model: str | None = None
    """A model's name."""
    fields: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A change to the model's config, like drop_path=0.1; may be repeated."""
    weights: str | None = None
    """Weights to start from: a file, a run folder, a hub reference, or a name from the catalog."""
    weights_format: str | None = None
    """The format of the weights, where it is not recognised."""
    image_size: tuple[int, ...] = ()
    """Height and width, or one number."""
    channels: int | None = None
    """Channels of the images."""

    # How long
    epochs: int | None = None
    batch: int | None = None
    """Samples per step, over all processes."""
    accumulate: int = 1
    """Parts into which each process divides its samples of a step, to need less memory."""
    overfit: int = 0
    """Train on so many images only and measure on the same ones, unchanged: a model that cannot
    learn a few by heart will not learn more. 0: on all."""
    patience: int = 0
    """Stop after so many evaluations without improvement; 0: never."""

    # Optimiser
    lr: float | None = None
    """Highest learning rate."""
    weight_decay: float = 0.05
    warmup: float = 0.1
    """Part of the steps in which the rate grows from 0."""
    final_lr: float = 0.01
    """Rate at the end, as a part of the highest; between, a cosine."""
    layer_decay: float = 1.0
    """Factor on the rate for each block further from the head."""
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0
    """Largest norm of the gradient; 0: any."""
    freeze: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Parameters that do not learn, like 'blocks.*', or all but some, like '!head.*'; may be
    repeated."""
    ema: float = 0.99
    """Decay of an average of the weights that is evaluated and kept instead; 0: none."""

    # Loss
    smoothing: float | None = None
    """Label smoothing; 0.1 for classification and 0 for segmentation unless given."""
    class_weights: str = "none"
    """none, or auto: rare classes count more."""
    sampler: str = "uniform"
    """uniform, or balanced: each class is drawn equally often."""
    teacher: str | None = None
    """A run folder to learn from (DeiT)."""
    distill: str | None = None
    """With a teacher: hard (its answer; so unless given) or soft (its probabilities)."""
    dice: float = 0.0
    """Segmentation: weight of the Dice loss beside the cross-entropy."""

    # Augmentation
    crop: str | None = None
    """resized, window, shift or none."""
    scale: float = 0.35
    zoom: tuple[float, float] = (0.5, 2.0)
    """With --crop window: the smallest and largest factor by which images are resized before."""
    flip: bool | None = None
    randaugment: int = 0
    jitter: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    # Preprocessing
    resize: str | None = None
    """shorter (the shorter side as long as the image size; to classify, the middle is cut out),
    square, or, to segment, none; as the weights want it, or shorter, unless given."""
    longest: int | None = None
    """Detection, with --resize shorter: how long the longer side may become, in pixels; as the
    weights want it, or 5/3 of the image size, unless given."""
    interpolation: str | None = None
    """bilinear, bicubic or nearest; as the weights want it, or bilinear, unless given."""
    mean: tuple[float, ...] = ()
    """Per channel; the weights', or measured on the data, unless given."""
    std: tuple[float, ...] = ()

    # Machine
    seed: int = 0
    device: str | None = None
    """cpu or cuda."""
    workers: int | None = None
    """Processes that read images."""
    precision: str = "float32"
    """float32, or bfloat16 for everything but loss and norms (autocast)."""
    compile: bool = False
    """Compile the model with torch.compile."""
    shard: bool = False
    """With several processes, divide the model among them (FSDP2) instead of copying it."""
    keep: int = 2
    """How many of the last checkpoints are kept, besides the best."""
    save_every: int = 0
    """Steps between checkpoints; 0: after each epoch."""
    on_bad: str = "error"
    """error, or skip: leave out images that cannot be read, and list them."""
    skip_nonfinite: int = 0
    """How many steps with a loss that is not finite may be left out before the run stops."""
    download: bool = False
    """Allow to download a public data set."""
    log_every: int = 50
    """Steps between two lines of metrics.jsonl with the loss; 0: evaluations only."""
    tensorboard: bool = False
    """Write TensorBoard's files too, into RUN/tensorboard (needs vitreous[tensorboard])."""

    def __post_init__(self) -> None:
        spelled = {
            "class_weights": ("none", "auto"),
            "sampler": ("uniform", "balanced"),
            "precision": ("float32", "bfloat16"),
            "on_bad": ("error", "skip"),
        }
        for name, known in spelled.items():
            object.__setattr__(self, name, choice(name, getattr(self, name), known))
        if self.distill is not None:
            object.__setattr__(self, "distill", choice("distill", self.distill, DISTILLATIONS))
            if self.teacher is None:
                raise ConfigError(f"distill = {self.distill!r} needs a teacher: give --teacher RUN")
        if self.task is not None:
            object.__setattr__(self, "task", choice("task", self.task, TASKS))
        if self.smoothing is not None:
            fraction(self, "smoothing")
        fraction(self, "ema")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas = {self.betas}: expected two numbers from 0 to below 1")
        for name in ("epochs", "batch", "accumulate", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}: expected at least 1")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ConfigError(f"lr = {self.lr}: expected a number above 0")
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"workers = {self.workers}: expected 0 or more")
        for name in ("warmup", "final_lr", "layer_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected 0 to 1")
        for name in (
            "weight_decay",
            "clip",
            "patience",
            "save_every",
            "skip_nonfinite",
            "log_every",
            "dice",
            "overfit",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected 0 or more")


def find_recipe(name: str) -> Path:
    """A file, or one of ours by its name: in the clone, or where the installation has put them."""
    places = [Path(__file__).parents[2] / "recipes", Path(sysconfig.get_path("data")) / INSTALLED]
    ours = [place / f"{name}.toml" for place in places]
    found = next((path for path in [Path(name), *ours] if path.is_file()), None)
    if found is None:
        known = sorted({path.stem for place in places for path in place.glob("*.toml")})
        hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
        raise ConfigError(f"recipe {name!r} is no file and none of ours{hint}")
    return found


def read_recipe(path: Path) -> dict[str, Any]:
    """The fields that a recipe file gives."""
    values = read_toml(path, "a recipe")
    from_dict(Recipe, values, where=str(path))
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def write_recipe(recipe: Recipe) -> str:
    """A recipe as TOML, defaults included; what is None is left out, because it means to choose."""
    lines = []
    for field in fields(recipe):
        value = to_dict(recipe)[field.name]
        if value is not None:
            lines.append(f"{field.name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


ONLY_FOR = {
    **dict.fromkeys(("randaugment", "erase", "mixup", "cutmix", "sampler"), ("classify",)),
    **dict.fromkeys(("teacher", "distill"), ("classify",)),
    "smoothing": ("classify", "segment"),
    "class_weights": ("classify", "segment"),
    "dice": ("segment",),
    "longest": ("detect",),
    "zoom": ("segment", "detect"),
}
"""Options that mean nothing to other tasks."""


def check_task(recipe: Recipe, task: str) -> None:
    """An option that the task cannot heed is an error: nothing is ignored in silence."""
    for field in fields(Recipe):
        value = getattr(recipe, field.name)
        if task not in ONLY_FOR.get(field.name, TASKS) and value != field.default:
            whose = " and ".join(ONLY_FOR[field.name])
            raise ConfigError(f"{field.name} = {value!r} is for the task {whose}, not {task}")
    if task == "detect" and recipe.crop == "shift":
        raise ConfigError("crop = 'shift' is not for detect: use window, resized or none")
    if task == "classify" and (recipe.crop == "window" or recipe.resize == "none"):
        what = "crop = 'window'" if recipe.crop == "window" else "resize = 'none'"
        raise ConfigError(f"{what} is for tasks over whole images, not classify")


MAY_CHANGE = {
    *("epochs", "patience", "workers", "device", "keep", "save_every", "log_every"),
    *("tensorboard", "skip_nonfinite", "accumulate", "compile", "shard", "download", "max_pixels"),
}
"""What may be another when a run goes on; everything else would make it another run."""


def _settings(changes: tuple[str, ...]) -> dict[str, str]:
    """The last value that each field is given."""
    return {name: value for name, _, value in (change.partition("=") for change in changes)}


def continued(stored: Recipe, given: Recipe) -> Recipe:
    """The recipe of a run that goes on; what cannot change while it runs is an error.

    What `given` leaves open (None, or nothing in a tuple) stays as it was; so does what an option
    that may be repeated has only said once more.
    """
    was = {field.name: getattr(stored, field.name) for field in fields(Recipe)}
    left = {name: value for name, value in was.items() if getattr(given, name) in (None, ())}
    if _settings(given.fields) == _settings(stored.fields):
        left["fields"] = stored.fields
    if set(given.freeze) == set(stored.freeze):
        left["freeze"] = stored.freeze
    given = replace(given, **left)
    for field in fields(Recipe):
        before, now = was[field.name], getattr(given, field.name)
        if before != now and field.name not in MAY_CHANGE:
            raise ConfigError(
                f"{field.name} = {now!r}, but the run that shall go on has {before!r}: leave the "
                "option out, or start another run with another --out"
            )
    if (given.epochs or 0) < (stored.epochs or 0):
        raise ConfigError(
            f"epochs = {given.epochs}, but the run that shall go on has {stored.epochs}: a run can "
            "only be made longer"
        )
    return given
