"""A model as a graph in a file, run by ONNX Runtime, OpenVINO or torch itself.

A file of ours carries a note: the run's config.json, what its input is, and how precisely it
computes. Files come from anywhere: the note is read as data, and what it says is compared with the
shapes of the graph.
"""

from __future__ import annotations

import functools
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.config import pair
from vitreous.data.preprocess import Preprocess
from vitreous.engines.file_checks import check_onnx, external_files, read_openvino
from vitreous.engines.openvino import OpenVINO, keep_signal_stack
from vitreous.engines.precision import PRECISIONS, check_bfloat16, has_bfloat16
from vitreous.engines.seal import check_seal
from vitreous.engines.table import engines_for
from vitreous.engines.threads import TorchThreads
from vitreous.engines.torch_graph import entries_of, read_torch_graph
from vitreous.errors import ConfigError
from vitreous.models.model import Model

KEY, NOTE_FILE = "vitreous", "vitreous.json"
"""Of the note among a file's metadata."""
LONGEST_NOTE = 16 << 20
INPUT = "images"
"""What a graph calls what it takes."""
INPUTS = ("float32", "uint8")
TEXTS = ("run", "recipe", "input", "precision", "sha256")
"""Of a note."""

Compute = Callable[[NDArray[Any]], Mapping[str, NDArray[Any]]]
"""(b, c, h, w) -> the graph's outputs by name."""


@dataclass(frozen=True)
class Note:
    """What a file says about itself."""

    run: str
    """The text of a config.json,"""
    recipe: str
    """and of a recipe.toml, which says how the data was split; empty if there was none."""
    outputs: tuple[str, ...]
    """The names of what it gives, in their order."""
    input: str = "float32"
    """float32: normalised values; uint8: as they are in images, and the graph normalises them."""
    precision: str = "float32"
    any_size: bool = False
    """Whether height and width are free."""
    sha256: str = ""
    """Of the file (`engines/seal.py`); files of earlier versions have none."""

    def text(self) -> str:
        return json.dumps({"format": 1, **vars(self)})

    @classmethod
    def read(cls, text: str | None, where: Path) -> Note:
        if text is None:
            raise ConfigError(
                f"{where} says nothing about its labels and preprocessing: it was not written by "
                "'vitreous export'. Import the weights that it was made from ('vitreous import')"
            )
        if len(text) > LONGEST_NOTE:
            raise ConfigError(f"{where}: its note has {len(text):,} characters: it is not ours")
        try:
            values = json.loads(text)
            known: dict[str, type] = dict.fromkeys(TEXTS, str)
            known |= {"outputs": list, "any_size": bool}
            if values.pop("format") != 1:
                raise ValueError("written by a later version of Vitreous")
            values.setdefault("sha256", "")
            if values.keys() != known.keys() or any(
                not isinstance(values[name], kind) for name, kind in known.items()
            ):
                raise ValueError(f"expected {', '.join(known)}")
            if values["sha256"] and not re.fullmatch("[0-9a-f]{64}", values["sha256"]):
                raise ValueError(f"sha256 {values['sha256'][:100]!r}")
            if values["input"] not in INPUTS or values["precision"] not in PRECISIONS:
                raise ValueError(f"input {values['input']!r}, precision {values['precision']!r}")
            values["outputs"] = tuple(map(str, values["outputs"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{where}: its note cannot be used: {error}") from None
        return cls(**values)


class GraphFile(NamedTuple):
    """A file of ours, read and checked; nothing is computed, and nothing that it holds is run."""

    path: Path
    note: Note
    others: list[Path]
    """The other files with its weights."""


@dataclass(frozen=True)
class Graph:
    """An opened file."""

    compute: Compute
    note: Note
    input_shape: tuple[int | None, ...]
    output_shapes: dict[str, tuple[int | None, ...]]
    engine: str
    """What runs it."""


class GraphEngine:
    """Runs a graph; see `vitreous.tasks.task.Engine`."""

    def __init__(
        self, graph: Graph, family: type[Model], preprocess: Preprocess, where: Path, classes: int
    ) -> None:
        self.graph, self.family, self.preprocess, self.where = graph, family, preprocess, where
        self.precision, self.name = graph.note.precision, graph.engine
        self.image_size = pair("image_size", preprocess.image_size)
        size = (None, None) if graph.note.any_size else self.image_size
        expected = (preprocess.channels, *size)
        if graph.input_shape[1:] != expected:
            raise ConfigError(
                f"{where}: its note is for images {expected}, its graph takes "
                f"{graph.input_shape[1:]}"
            )
        rows = graph.output_shapes.get("logits", (None, classes))
        if classes and classes + family.other_classes not in rows:
            raise ConfigError(f"{where}: {classes} labels for outputs {rows}")

    def __call__(self, images: Tensor) -> Any:
        return self.family.output_of(self.tensors(images))

    def tensors(self, images: Tensor) -> dict[str, Tensor]:
        """What the graph gives, by name."""
        values = self._values(images)
        try:
            found = self.graph.compute(values)
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            raise ConfigError(
                f"{self.where} cannot be computed: {_last_line(error)}: it is damaged, or was not "
                "written by 'vitreous export'"
            ) from error
        return {name: torch.from_numpy(np.asarray(array)) for name, array in found.items()}

    def vectors(self, images: Tensor, pool: str) -> Tensor:
        self.vector_length(pool)
        return self.tensors(images)["vectors"]

    def vector_length(self, pool: str) -> int:
        length = self.graph.output_shapes.get("vectors", (None, None))[1]
        if pool != "head" or length is None:
            given = ", ".join(self.graph.output_shapes)
            raise ConfigError(
                f"{self.where} gives {given}, and no vectors of pool = {pool!r}: embed with the "
                "run folder that it was exported from"
            )
        return length

    def _values(self, images: Tensor) -> NDArray[Any]:
        return graph_input(images, self.preprocess, self.graph.note.input)


def graph_input(images: Tensor, preprocess: Preprocess, input: str) -> NDArray[Any]:
    """Normalised images as a graph takes them: the levels of eight bits are found again exactly."""
    if input == "float32":
        return images.cpu().contiguous().numpy()
    mean, std = (
        torch.tensor(values).view(-1, 1, 1) for values in (preprocess.mean, preprocess.std)
    )
    levels = (images.cpu() * std + mean) * 255
    return levels.round().clamp(0, 255).to(torch.uint8).contiguous().numpy()


def not_installed(what: str, extra: str) -> ConfigError:
    return ConfigError(f"{what} is not installed: pip install 'vitreous[{extra}]'")


def read_file(path: Path) -> GraphFile:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if path.suffix == ".xml" and not path.with_suffix(".bin").is_file():
        weights = path.with_suffix(".bin").name
        raise ConfigError(f"{path}: its weights, {weights}, are not beside it: copy both files")
    with opening(path):
        text, others = READERS[path.suffix](path)
    return GraphFile(path, Note.read(text, path), others)


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """What a library says about a file that it cannot open becomes an error that names the file."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # of protobuf, OpenVINO, zipfile: whatever the file is
        raise ConfigError(
            f"{path} cannot be opened: {_last_line(error)}: it is damaged, or of another kind: "
            "copy or export it again"
        ) from None


def _last_line(error: Exception) -> str:
    """OpenVINO first says in which lines of its code it was, one after the other."""
    said = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return said[-1].strip(" .!")


def _read_onnx(path: Path) -> tuple[str | None, list[Path]]:
    try:
        import onnx
    except ImportError:
        raise not_installed("ONNX", "onnx") from None
    model = onnx.load(path, load_external_data=False)
    check_onnx(model, path)
    text = next((each.value for each in model.metadata_props if each.key == KEY), None)
    return text, [path.parent / name for name in external_files(model)]


def _read_openvino(path: Path) -> tuple[str | None, list[Path]]:
    note = read_openvino(path).find(f"rt_info/{KEY}")
    return None if note is None else note.get("value"), [path.with_suffix(".bin")]


@functools.cache
def openvino_core() -> Any:
    """One for the whole process."""
    try:
        import openvino
    except ImportError:
        raise not_installed("OpenVINO", "openvino") from None
    with keep_signal_stack():
        core = openvino.Core()
        core.get_property("CPU", "FULL_DEVICE_NAME")  # loads what computes on CPUs
    return core


def _read_torch(path: Path) -> tuple[str | None, list[Path]]:
    with zipfile.ZipFile(path) as archive:
        info = entries_of(archive, path).get(f"extra/{NOTE_FILE}")
        if info is None or info.file_size > LONGEST_NOTE:
            return None, []
        return archive.read(info).decode(), []


READERS: dict[str, Callable[[Path], tuple[str | None, list[Path]]]] = {
    ".onnx": _read_onnx,
    ".xml": _read_openvino,
    ".pt2": _read_torch,
}
"""The text of the note, and other files with weights; what a file must not hold is an error."""


def open_graph(
    file: GraphFile, engine: str | None = None, threads: int | None = None, *, verify: bool = True
) -> Graph:
    """A file, opened by `engine`, or by the usual one for it. `verify`: it must be as it was
    written."""
    path, note, others = file
    able = engines_for(path.suffix)
    if engine is not None and engine not in able:
        raise ConfigError(f"engine = {engine!r} cannot run {path}: use {' or '.join(able)}")
    with opening(path):
        if verify and note.sha256:
            check_seal(path, others, note.sha256)
        return OPENERS[engine or able[0]](path, note, threads)


def _with_onnxruntime(path: Path, note: Note, threads: int | None) -> Graph:
    try:
        import onnxruntime
    except ImportError:
        raise not_installed("ONNX Runtime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    taken, given = session.get_inputs()[0], session.get_outputs()
    names = [output.name for output in given]

    def compute(images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        return dict(zip(names, session.run(None, {taken.name: images}), strict=True))

    shapes = {output.name: _shape(output.shape) for output in given}
    return Graph(compute, note, _shape(taken.shape), shapes, "onnxruntime")


def _with_openvino(path: Path, note: Note, threads: int | None, *, tuned: bool = True) -> Graph:
    core = openvino_core()
    # what int8 leaves is computed in bfloat16 where that is fast; elsewhere it is only storage
    halves = note.precision in ("bfloat16", "int8") and has_bfloat16()
    hint = {"INFERENCE_PRECISION_HINT": "bf16" if halves else "f32"}
    model = core.read_model(path)
    compute = OpenVINO(core, model, hint, threads or torch.get_num_threads(), tuned=tuned)
    shapes = {
        output.any_name: tuple(_length(axis) for axis in output.partial_shape)
        for output in model.outputs
    }
    taken = tuple(_length(axis) for axis in model.input(0).partial_shape)
    return Graph(compute, note, taken, shapes, "openvino")


def _shape(axes: Any) -> tuple[int | None, ...]:
    return tuple(axis if isinstance(axis, int) else None for axis in axes)


def _length(axis: Any) -> int | None:
    return axis.get_length() if axis.is_static else None


def _with_torch(path: Path, note: Note, threads: int | None) -> Graph:
    if note.precision == "bfloat16":
        check_bfloat16()
    graph, call, names = read_torch_graph(path), TorchThreads(threads), note.outputs

    @torch.inference_mode()
    def output(images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        found = graph(torch.from_numpy(images))
        return {name: each.numpy() for name, each in zip(names, found, strict=True)}

    def compute(images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        return call(output, images)

    shapes = dict(zip(names, graph.output_shapes, strict=True))
    return Graph(compute, note, graph.input_shape, shapes, "torch")


OPENERS: dict[str, Callable[..., Graph]] = {
    "onnxruntime": _with_onnxruntime,
    "openvino": _with_openvino,
    "torch": _with_torch,
}
