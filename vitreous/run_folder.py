"""The run folder: everything that later commands need, and nothing else.

model.safetensors   the weights (the averaged ones where EMA is on), of the best evaluation
config.json         model, task, labels, preprocessing, versions, where the weights came from
recipe.toml         everything needed to repeat the run
metrics.jsonl       one object per logged step and per evaluation
checkpoints/        what resume needs
report.html         one page to look at
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vitreous import __version__
from vitreous.config import from_dict, to_dict
from vitreous.data.preprocess import Preprocess
from vitreous.errors import CheckpointError, ConfigError
from vitreous.labels import LabelMap
from vitreous.models import FAMILIES, create
from vitreous.models.model import Model
from vitreous.weights.io.files import read_tensors, write_tensors
from vitreous.weights.origin import own_metadata


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json."""

    model: str
    family: str
    config: dict[str, Any]
    task: str
    labels: LabelMap
    preprocess: Preprocess
    data: str
    weights: str
    versions: dict[str, str]
    decoding: dict[str, Any] = field(default_factory=dict)
    """What the task decodes the model's output with, chosen on val with the stored weights."""

    def create(self) -> Model:
        """The model, with random weights."""
        model = create(self.family, **self.config)
        model.name = self.model
        return model


class Run:
    """A run folder on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def exists(self) -> bool:
        return (self.path / "config.json").is_file()

    @property
    def is_foreign(self) -> bool:
        """Whether transformers has saved this folder, which then has a config.json too."""
        try:
            values = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(values, dict) and "model_type" in values

    def write_config(self, config: RunConfig) -> None:
        plain = {"labels": config.labels.to_dict(), "preprocess": to_dict(config.preprocess)}
        values = vars(config) | plain
        if not config.decoding:
            del values["decoding"]
        self.write_text("config.json", json.dumps(values, indent=2) + "\n")

    def write_decoding(self, decoding: dict[str, Any]) -> None:
        self.write_config(replace(self.read_config(), decoding=decoding))

    def read_config(self) -> RunConfig:
        path = self.path / "config.json"
        if not self.path.exists():
            raise ConfigError(f"{self.path}: there is no such run folder")
        if not path.is_file():
            raise ConfigError(
                f"{self.path} is no run folder: it has no config.json; 'vitreous train' makes one"
            )
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            values["labels"] = LabelMap.from_dict(values["labels"])
            values["preprocess"] = from_dict(Preprocess, values["preprocess"], where=str(path))
            read = from_dict(RunConfig, values, where=str(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} cannot be used: {error}") from error
        if read.family not in FAMILIES:
            raise ConfigError(f"{path}: unknown model family {read.family!r}")
        return read

    def write_weights(self, model: Model, state: dict[str, Tensor]) -> None:
        path = self.path / "model.safetensors"
        write_tensors(path, state, "safetensors", own_metadata(model))

    @property
    def weights(self) -> Path:
        """The file with the weights, which the first evaluation writes."""
        path = self.path / "model.safetensors"
        if not path.is_file():
            raise CheckpointError(
                f"{self.path} has no model.safetensors yet, which the first evaluation writes: "
                "continue with 'vitreous train --resume'"
            )
        return path

    def read_weights(self) -> dict[str, Tensor]:
        return read_tensors(self.weights).tensors

    def write_text(self, name: str, text: str) -> None:
        """A file that is there completely, or as it was."""
        temporary = self.path / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path / name)

    def log(self, **values: Any) -> None:
        """One line in metrics.jsonl."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def forget_after(self, step: int) -> None:
        """Remove what was logged after a step: those steps will be repeated."""
        path = self.path / "metrics.jsonl"
        if path.is_file():
            kept = []
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["step"] <= step:
                        kept.append(line)
                except (ValueError, KeyError):
                    continue  # half a line, from when the run was killed
            self.write_text("metrics.jsonl", "".join(line + "\n" for line in kept))


def versions() -> dict[str, str]:
    """What computed this."""
    import platform

    import torch

    return {
        "vitreous": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
