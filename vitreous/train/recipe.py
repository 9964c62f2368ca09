"""Everything that decides about a training run, as one frozen dataclass.

It is what a recipe file holds, what `vitreous train` takes as options, and what the run folder
keeps, so that a run can be repeated. None means: chosen from the data and the machine, and said.
"""

from __future__ import annotations

import json
import sysconfig
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from vitreous.config import choice, fraction, from_dict, read_toml, to_dict
from vitreous.errors import ConfigError, did_you_mean

INSTALLED = Path("share", "vitreous", "recipes")


@dataclass(frozen=True)
class Recipe:
    """How to train. Fields are options of `vitreous train` and keys of recipe files."""

    # What
    data: tyro.conf.Positional[str] = "digits"
    """A folder, a CSV table, a folder of IDX files, or a built-in name: digits, shapes."""
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
    """Parameters that do not learn, like 'blocks.*'; may be repeated."""
    ema: float = 0.99
    """Decay of an average of the weights that is evaluated and kept instead; 0: none."""

    # Loss
    smoothing: float = 0.1
    """Label smoothing."""
    class_weights: str = "none"
    """none, or auto: rare classes count more."""
    sampler: str = "uniform"
    """uniform, or balanced: each class is drawn equally often."""
    teacher: str | None = None
    """A run folder to learn from (DeiT)."""
    distill: str = "hard"
    """hard (the teacher's answer) or soft (its probabilities)."""

    # Augmentation
    crop: str | None = None
    """resized, shift or none."""
    scale: float = 0.35
    flip: bool | None = None
    randaugment: int = 0
    jitter: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    # Preprocessing
    resize: str = "shorter"
    """shorter (resize the shorter side, cut out the middle) or square."""
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = ()
    """Per channel; measured on the data, or the weights', unless given."""
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
            "distill": ("hard", "soft"),
            "precision": ("float32", "bfloat16"),
            "on_bad": ("error", "skip"),
        }
        for name, known in spelled.items():
            object.__setattr__(self, name, choice(name, getattr(self, name), known))
        fraction(self, "smoothing", "ema")
        for name in ("epochs", "batch", "accumulate", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}: expected at least 1")
        if self.lr is not None and not self.lr > 0:
            raise ConfigError(f"lr = {self.lr}: expected a number above 0")
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
        ):
            if getattr(self, name) < 0:
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
