"""A model as a graph in a file, run by ONNX Runtime, OpenVINO or torch itself.

A file of ours carries a note: the run's config.json, what its input is, and how precisely it
computes. Files come from anywhere: the note is read as data, and what it says is compared with the
shapes of the graph.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.config import pair
from vitreous.data.preprocess import Preprocess
from vitreous.engines.openvino import OpenVINO
from vitreous.engines.precision import PRECISIONS, check_bfloat16, has_bfloat16
from vitreous.engines.signal_stack import keep_signal_stack
from vitreous.engines.threads import TorchThreads
from vitreous.errors import ConfigError
from vitreous.models.model import Model

KEY, NOTE_FILE = "vitreous", "vitreous.json"
"""Of the note among a file's metadata."""
LONGEST_NOTE = 16 << 20
INPUT = "images"
"""What a graph calls what it takes."""
FORMATS = {".onnx": "ONNX", ".xml": "OpenVINO", ".pt2": "torch.export"}
"""What a file is, by its suffix."""
ENGINES = {".onnx": ("onnxruntime", "openvino"), ".xml": ("openvino",), ".pt2": ("torch",)}
"""What runs it; the first one unless another is asked for."""

INPUTS = ("float32", "uint8")

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
            known: dict[str, type] = dict.fromkeys(("run", "recipe", "input", "precision"), str)
            known |= {"outputs": list, "any_size": bool}
            if values.pop("format") != 1:
                raise ValueError("written by a later version of Vitreous")
            if values.keys() != known.keys() or any(
                not isinstance(values[name], kind) for name, kind in known.items()
            ):
                raise ValueError(f"expected {', '.join(known)}")
            if values["input"] not in INPUTS or values["precision"] not in PRECISIONS:
                raise ValueError(f"input {values['input']!r}, precision {values['precision']!r}")
            values["outputs"] = tuple(map(str, values["outputs"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{where}: its note cannot be used: {error}") from None
        return cls(**values)


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
        found = self.graph.compute(self._values(images))
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


def read_note(path: Path) -> Note:
    """What a file says about itself; nothing is computed, and nothing that it holds is run."""
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if path.suffix == ".xml" and not path.with_suffix(".bin").is_file():
        weights = path.with_suffix(".bin").name
        raise ConfigError(f"{path}: its weights, {weights}, are not beside it: copy both files")
    with opening(path):
        text = NOTES[path.suffix](path)
    return Note.read(text, path)


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """What a library says about a file that it cannot open becomes an error that names the file."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # of protobuf, OpenVINO, zipfile: whatever the file is
        # OpenVINO first says in which lines of its code it was, one after the other.
        said = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ConfigError(
            f"{path} cannot be opened: {said[-1].strip(' .!')}: it is damaged, or of another kind: "
            "copy or export it again"
        ) from None


def _onnx_note(path: Path) -> str | None:
    """Tensors that the file keeps in others must lie in its own folder."""
    try:
        import onnx
    except ImportError:
        raise not_installed("ONNX", "onnx") from None
    model = onnx.load(path, load_external_data=False)
    for tensor in _onnx_tensors(model):
        for entry in tensor.external_data:
            inside = (path.parent / entry.value).resolve()
            if entry.key == "location" and not inside.is_relative_to(path.parent.resolve()):
                raise ConfigError(f"{path} refers to {entry.value!r}, outside of its folder")
    return next((each.value for each in model.metadata_props if each.key == KEY), None)


def _onnx_tensors(message: Any) -> Iterator[Any]:
    """All tensors of an ONNX file, wherever they are: weights, constants, those of functions and of
    graphs inside of operations."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in value if isinstance(value, Sequence) else (value,):
            if each.DESCRIPTOR.name == "TensorProto":
                yield each
            else:
                yield from _onnx_tensors(each)


def _openvino_note(path: Path) -> str | None:
    model = openvino_core().read_model(path)
    return model.get_rt_info([KEY]).astype(str) if model.has_rt_info([KEY]) else None


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


def _torch_note(path: Path) -> str | None:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(f"/extra/{NOTE_FILE}") and info.file_size <= LONGEST_NOTE:
                return archive.read(info).decode()
    return None


NOTES: dict[str, Callable[[Path], str | None]] = {
    ".onnx": _onnx_note,
    ".xml": _openvino_note,
    ".pt2": _torch_note,
}


def open_graph(path: Path, engine: str | None = None, threads: int | None = None) -> Graph:
    """A file of ours, opened by `engine`, or by the usual one for it."""
    able = ENGINES.get(path.suffix)
    if able is None:
        raise ConfigError(f"{path}: expected a file that ends in {', '.join(ENGINES)}")
    if engine is not None and engine not in able:
        raise ConfigError(f"engine = {engine!r} cannot run {path}: use {' or '.join(able)}")
    note = read_note(path)
    with opening(path):
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


@contextmanager
def without_pickle() -> Iterator[None]:
    """Inside, torch loads tensors alone: torch.export would fall back to executing a pickle."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _with_torch(path: Path, note: Note, threads: int | None) -> Graph:
    if note.precision == "bfloat16":
        check_bfloat16()
    with without_pickle():
        program = torch.export.load(path)
    module, call = program.module(), TorchThreads(threads)
    values = {
        node.name: tuple(int(axis) if isinstance(axis, int) else None for axis in value.shape)
        for node in program.graph.nodes
        if isinstance(value := node.meta.get("val"), Tensor)
    }
    taken = program.graph_signature.user_inputs[0]
    names = note.outputs

    @torch.inference_mode()
    def output(images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        found = module(torch.from_numpy(images))
        return {name: each.numpy() for name, each in zip(names, found, strict=True)}

    def compute(images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        return call(output, images)

    given = zip(names, program.graph_signature.user_outputs, strict=True)
    return Graph(
        compute,
        note,
        values[str(taken)],
        {name: values[str(output)] for name, output in given},
        "torch",
    )


OPENERS: dict[str, Callable[..., Graph]] = {
    "onnxruntime": _with_onnxruntime,
    "openvino": _with_openvino,
    "torch": _with_torch,
}
