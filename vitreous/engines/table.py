"""The engines: what each computes in, and which files it runs."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple


class EngineKind(NamedTuple):
    precisions: tuple[str, ...]
    """What it computes in on a CPU."""
    opens: tuple[str, ...]
    """The suffixes of the exported files that it runs; the first is made to run a run folder."""
    extra: str = ""
    """What to install (`pip install 'vitreous[extra]'`); none: a run folder runs as it is."""


ENGINES = {
    "torch": EngineKind(("float32", "bfloat16"), (".pt2",)),
    "onnxruntime": EngineKind(("float32", "int8"), (".onnx",), "onnx"),
    "openvino": EngineKind(("float32", "bfloat16", "int8"), (".xml", ".onnx"), "openvino"),
}
GRAPHS = tuple(name for name, kind in ENGINES.items() if kind.extra)
"""Those that run exported files alone."""
FORMATS = {".onnx": "ONNX", ".xml": "OpenVINO", ".pt2": "torch.export"}
"""What an exported file is, by its suffix."""
CHOICES = (*ENGINES, "auto")
PRECISION_CHOICES = ("auto", "float32", "bfloat16", "int8")


def engines_for(suffix: str) -> tuple[str, ...]:
    """What runs a file; the first one unless another is asked for."""
    return tuple(name for name, kind in ENGINES.items() if suffix in kind.opens)


def is_installed(engine: str) -> bool:
    return engine not in GRAPHS or importlib.util.find_spec(engine) is not None
