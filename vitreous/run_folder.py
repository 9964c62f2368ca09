"""The run folder: everything that later commands need, and nothing else.

model.safetensors   the weights (the averaged ones where EMA is on), of the best evaluation
config.json         model, task, labels, preprocessing, versions, where the weights came from
recipe.toml         everything needed to repeat the run
metrics.jsonl       one object per logged step and per evaluation
times.jsonl         one per evaluation: how long training has taken until then
checkpoints/        what resume needs
report.html         one page to look at
tokenizer.json      of models with a text tower: its vocabulary
verdict.json        what it says: numbers, intervals, baselines, verdicts
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous import __version__
from vitreous.atomic_write import append_line, write_bytes, write_text
from vitreous.checksums import file_sha256
from vitreous.config import from_dict, kind_of, to_dict
from vitreous.data.preprocess import Preprocess
from vitreous.engines.fewer_tokens import merge_tokens
from vitreous.errors import CheckpointError, ConfigError, DataError, WriteError
from vitreous.labels import LabelMap
from vitreous.layers.lora import merge_lora
from vitreous.models import FAMILIES, configure, create, name_today, stored_fields
from vitreous.models.model import Model
from vitreous.tasks import PRETRAINING, task_class
from vitreous.text.tokenizer import TextPreprocess, Tokenizer
from vitreous.text.tokenizer_file import read_bytes
from vitreous.weights.blank import without_values
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.io.files import read_tensors, write_tensors
from vitreous.weights.origin import own_metadata, own_tensors
from vitreous.wording import counted

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
METRICS, TIMES = "metrics.jsonl", "times.jsonl"
STATE, MANIFEST = "state.safetensors", "manifest.json"
"""Of a checkpoint."""
LAST = "@last"


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
    origin: dict[str, Any] = field(default_factory=dict)
    """Of an imported run: its files with their SHA-256, their format, their licence if it is known,
    and the fields of the model that the files do not show."""
    merge: int = 0
    """Of an exported file: how many patches every block merges (`layers/token_merging.py`)."""
    text: TextPreprocess | None = None
    """Of models with a text tower: what tokenizer.json does not say."""
    checksums: dict[str, list[str]] = field(default_factory=dict)
    """Of a run folder: the SHA-256 of the files with the weights and the tokenizer. They are two
    while one is being replaced, so that a run that is killed then can be used."""

    def create(self) -> Model:
        """The model, with random weights."""
        model = create(self.family, **self.config)
        model.name = self.model
        merge_tokens(model, self.merge)
        return model

    def to_dict(self) -> dict[str, Any]:
        """As config.json has it."""
        plain = {"labels": self.labels.to_dict(), "preprocess": to_dict(self.preprocess)}
        plain |= {} if self.text is None else {"text": to_dict(self.text)}
        optional = ("decoding", "origin", "merge", "text", "checksums")
        left_out = [name for name in optional if not getattr(self, name)]
        return {k: v for k, v in (vars(self) | plain).items() if k not in left_out}

    @classmethod
    def read(cls, text: str, where: str) -> RunConfig:
        """From the text of a config.json, which may come from anywhere: everything is checked."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ConfigError("expected names and values")
            values["labels"] = LabelMap.from_dict(values["labels"])
            values["preprocess"] = from_dict(Preprocess, values["preprocess"], where=where)
            if "text" in values:
                values["text"] = from_dict(TextPreprocess, values["text"], where=f"{where}, text")
            read = from_dict(cls, values, where=where)
        except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
            raise ConfigError(f"{where} cannot be used: {error}") from error
        if read.family not in FAMILIES:
            raise ConfigError(f"{where}: unknown model family {read.family!r}")
        try:
            task = task_class(read.task)
            fields = stored_fields(configure(read.family, **read.config)[1])
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{where}: {error}") from None
        if not all(isinstance(each, list) for each in read.checksums.values()):
            raise ConfigError(f"{where}: checksums: expected a list for each file")
        if not task.takes(read.family):
            raise ConfigError(f"{where}: a {read.family} is no model to {read.task}")
        # an older version may have called them otherwise
        return replace(read, model=name_today(read.model, read.family), config=fields)

    def check_labels(self, where: str) -> Model:
        """One for each class of the model; which is returned without memory for its weights."""
        with without_values():
            blank = self.create()
        classes = blank.config.classes if names_classes(blank) else 0
        if classes != len(task_class(self.task).outputs(self.labels)):
            raise ConfigError(
                f"{where}: {counted(len(self.labels), 'label')} for a model with "
                f"{counted(classes, 'class')}"
            )
        return blank


class Run:
    """A run folder on disk, with its best weights; RUN@last means the last ones, and
    RUN/checkpoints/step-N those of one checkpoint."""

    def __init__(self, path: str | Path, *, verify: bool = True) -> None:
        self.path = Path(path)
        self.verify = verify
        """Whether the weights must be those that were written."""
        self.checkpoint: Path | None = None
        """Whose weights are meant, if not the best."""
        if self.path.parent.name == "checkpoints" and self.path.name.startswith("step-"):
            self.path, self.checkpoint = self.path.parent.parent, self.path
        elif self.path.name.endswith(LAST) and not self.path.exists():
            self.path = self.path.with_name(self.path.name.removesuffix(LAST))
            self.checkpoint = newest_checkpoint(self.checkpoints)
            if self.checkpoint is None and self.exists:
                raise CheckpointError(
                    f"{self.path} has no complete checkpoint: without {LAST}, its best weights "
                    "are used"
                )

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def exists(self) -> bool:
        return (self.path / "config.json").is_file()

    @property
    def is_foreign(self) -> bool:
        """Whether transformers or timm has saved this folder, which then has a config.json too."""
        try:
            values = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(values, dict) and bool({"model_type", "architecture"} & values.keys())

    def begin(self, config: RunConfig, recipe: str) -> None:
        """The first files: both, or nothing."""
        path, existed = self.path / "recipe.toml", self.exists
        self.write_text(path.name, recipe)
        try:
            self.write_config(config)  # last: from here on there is a run
        except WriteError:
            if not existed:
                path.unlink(missing_ok=True)
            raise

    def write_config(self, config: RunConfig) -> None:
        """It has the checksums of the weights and the tokenizer, as far as there are any."""
        checksums = config.checksums or (self.read_config().checksums if self.exists else {})
        for name in (WEIGHTS, TOKENIZER):
            if name not in checksums and (self.path / name).is_file():
                checksums = {**checksums, name: [file_sha256(self.path / name)]}
        config = replace(config, checksums=checksums)
        self.write_text("config.json", json.dumps(config.to_dict(), indent=2) + "\n")

    def write_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Of the run's text tower: the file, and the record in config.json."""
        path, config = self.path / TOKENIZER, self.read_config()
        write_bytes(path, tokenizer.content)
        checksums = {**config.checksums, TOKENIZER: [file_sha256(path)]}
        self.write_config(replace(config, text=tokenizer.preprocess, checksums=checksums))

    def read_tokenizer(self) -> Tokenizer:
        """The one that the text tower was trained with; it must be the file that was written."""
        config, path = self.read_config(), self.path / TOKENIZER
        if config.text is None:
            raise CheckpointError(
                f"{self.path} has no tokenizer, and so takes no words: it was made of weights "
                "without one. 'vitreous import' takes it from a folder that has the files of a "
                "tokenizer beside the weights"
            )
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: copy it from where the run was made")
        expected = config.checksums.get(TOKENIZER)
        if self.verify and expected and file_sha256(path) not in expected:
            raise CheckpointError(
                f"{path} is not the file that this run has written: copy it again from where the "
                "run was made"
            )
        return Tokenizer(read_bytes(path), config.text, path)

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
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be used: {error}") from error
        return RunConfig.read(text, str(path))

    def recipe_text(self) -> str | None:
        """What recipe.toml holds; an imported run has none."""
        path = self.path / "recipe.toml"
        try:
            return path.read_text(encoding="utf-8") if path.is_file() else None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not a readable TOML file: {error}") from error

    def create_model(self, config: RunConfig | None = None) -> Model:
        """The model that config.json describes, with random weights."""
        config = config or self.read_config()
        self.blank_model(config)
        return config.create()

    def blank_model(self, config: RunConfig | None = None) -> Model:
        """The same without memory for its weights; the file of weights bounds its size."""
        config, file = config or self.read_config(), self.path / "config.json"
        blank = config.check_labels(str(file))
        needed = sum(tensor.numel() for tensor in blank.state_dict().values())
        weights = self.weights if self.checkpoint is None else self.checkpoint / STATE
        if weights.is_file() and needed > weights.stat().st_size:
            raise ConfigError(
                f"{file} describes a model of {needed:,} values; {weights} has only "
                f"{weights.stat().st_size:,} bytes"
            )
        return blank

    def write_weights(self, model: Model, state: dict[str, Tensor]) -> None:
        """config.json has the checksums of the old and the new ones until these are in place."""
        checksums: list[str] = []

        def announce(file: Path) -> None:
            checksums.append(file_sha256(file))
            before = self._checksums()[-1:]
            if not before and self.has_weights:
                before = [file_sha256(self.path / WEIGHTS)]
            self._write_checksums(*before, *checksums)

        tensors, metadata = own_tensors(model, state), own_metadata(model)
        path = self.path / WEIGHTS
        write_tensors(path, tensors, "safetensors", metadata, before_rename=announce)
        self._write_checksums(*checksums)

    def _checksums(self) -> list[str]:
        """What config.json says that the file with the weights has."""
        return self.read_config().checksums.get(WEIGHTS, []) if self.exists else []

    def _write_checksums(self, *checksums: str) -> None:
        if self.exists:  # else they are written with the rest of it
            config = self.read_config()
            new = {**config.checksums, WEIGHTS: list(checksums)}
            self.write_config(replace(config, checksums=new))

    def check_weights(self, known: list[str] | None = None) -> None:
        """The file with the weights must be the one that config.json was written with; `known` are
        the checksums that it had when it was opened."""
        if not self.verify or self.checkpoint is not None:  # which has a manifest
            return
        for _ in range(3):  # a training may replace both at this moment
            found = file_sha256(self.weights)
            expected = self._checksums() if known is None else known
            if not expected or found in expected:
                return
            known = None
        last = f", or take {self.path}{LAST}" if any(self.checkpoints.glob("step-*")) else ""
        raise CheckpointError(
            f"{self.weights} is not the file that this run has written: its SHA-256 begins with "
            f"{found[:8]}, not with {str(expected[-1])[:8]}. It is damaged, or somebody has "
            f"exchanged it: copy it again from where the run was made{last}. If you have exchanged "
            f'it yourself, delete "checksums" from {self.path / "config.json"}; predict, evaluate, '
            "embed, explain, export, convert, benchmark and serve take it as it is with "
            "--no-verify (verify in Python)"
        )

    @property
    def weights(self) -> Path:
        """The file with the weights, which the first evaluation writes."""
        path = self.path / WEIGHTS
        if not path.is_file():
            if newest_checkpoint(self.checkpoints) is None:
                raise CheckpointError(
                    f"{self.path} has no model.safetensors, and no checkpoint either: copy them "
                    "from where the run was made"
                )
            verb = "pretrain" if self.read_config().task in PRETRAINING else "train"
            raise CheckpointError(
                f"{self.path} has no model.safetensors, which the first evaluation writes: "
                f"'vitreous {verb} --resume --out {self.path}' continues the run and writes it"
            )
        return path

    @property
    def has_weights(self) -> bool:
        return (self.path / WEIGHTS).is_file()

    def stored_weights(self) -> Path | dict[str, Tensor]:
        """What `import_weights` takes: the file, or the tensors of a checkpoint; verified."""
        self.check_weights()
        return self.weights if self.checkpoint is None else self.checkpoint_weights()

    def read_weights(self) -> dict[str, Tensor]:
        stored = self.stored_weights()
        return read_tensors(stored).tensors if isinstance(stored, Path) else stored

    def checkpoint_weights(self) -> dict[str, Tensor]:
        """Those of the checkpoint, with LoRA's matrices added; the averaged ones (EMA), which are
        what training evaluates, if it has them."""
        if self.checkpoint is None or not is_valid_checkpoint(self.checkpoint):
            raise CheckpointError(f"{self.checkpoint}: there is no such complete checkpoint")
        state = read_tensors(self.checkpoint / STATE).tensors
        averaged = any(name.startswith("average.") for name in state)
        prefix = "average." if averaged else "model."
        own = {
            name.removeprefix(prefix): tensor
            for name, tensor in state.items()
            if name.startswith(prefix)
        }
        return merge_lora(own)

    def as_checkpoint(self) -> Checkpoint:
        """The weights of a checkpoint with the metadata that a file of ours has."""
        config, tensors = self.read_config(), self.checkpoint_weights()
        assert self.checkpoint is not None
        with without_values():
            metadata = own_metadata(config.create())
        return Checkpoint(tensors, metadata, self.checkpoint / STATE)

    def remove_leftovers(self) -> None:
        """Files that were being written when the run was killed."""
        for path in self.path.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def write_text(self, name: str, text: str) -> None:
        write_text(self.path / name, text)

    def log(self, **values: Any) -> None:
        """One line in metrics.jsonl."""
        append_line(self.path / METRICS, json.dumps(values))

    def log_time(self, **values: Any) -> None:
        """One line in times.jsonl."""
        append_line(self.path / TIMES, json.dumps(values))

    def metrics(self) -> list[dict[str, Any]]:
        """What was logged; half a line, from when the run was killed, is left out."""
        return self._lines(METRICS)

    def times(self) -> list[dict[str, Any]]:
        """Of each evaluation the step, the images seen until then, and the seconds and CPU seconds
        that training has taken, without evaluations. Older runs have none."""
        return self._lines(TIMES)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        if not path.is_file():
            return []
        found = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(values, dict) and isinstance(values.get("step"), int):
                found.append(values)
        return found

    def forget_after(self, step: int) -> None:
        """Remove what was logged after a step: those steps will be repeated."""
        for name in (METRICS, TIMES):
            if (self.path / name).is_file():
                kept = [json.dumps(line) for line in self._lines(name) if line["step"] <= step]
                self.write_text(name, "".join(line + "\n" for line in kept))


class OpenedRun(Run):
    """A run as it is when it is opened: what it says about itself is read once, and passed on."""

    def __init__(self, run: Run, reference: str | Path | None = None) -> None:
        self.path, self.verify, self.checkpoint = run.path, run.verify, run.checkpoint
        self.reference = reference or run.path
        """What the user has named: this folder, or what was imported into it."""
        self.config = self.read_config()

    @property
    def fit(self) -> dict[str, Any]:
        """How `import_weights` fits the weights to the model: they are its own."""
        return {}

    def create_model(self, config: RunConfig | None = None) -> Model:
        return super().create_model(config or self.config)

    def blank_model(self, config: RunConfig | None = None) -> Model:
        return super().blank_model(config or self.config)

    def check_weights(self, known: list[str] | None = None) -> None:
        super().check_weights(known or self.config.checksums.get(WEIGHTS, []))

    @cached_property
    def _recipe_text(self) -> str | None:
        return super().recipe_text()

    def recipe_text(self) -> str | None:
        return self._recipe_text


def names_classes(model: Model) -> bool:
    """Whether the model's outputs are classes; without a head, or with one into a space that is
    shared with text, they are features."""
    has_classes = hasattr(model.config, "classes")
    return has_classes and kind_of(model.config, "head") not in ("none", "projection")


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint, or None."""
    paths = sorted(folder.glob("step-*"), reverse=True)
    return next((path for path in paths if is_valid_checkpoint(path)), None)


def is_valid_checkpoint(path: Path) -> bool:
    """Whether every file has the size and hash that the manifest says."""
    try:
        files = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return bool(files) and all(
            describe_file(path / name) == described for name, described in files.items()
        )
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def describe_file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def versions() -> dict[str, str]:
    """What computed this."""
    return {
        "vitreous": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
