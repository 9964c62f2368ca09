"""The ways to compute a model that `vitreous benchmark` compares.

A way is written [LIBRARY+]ENGINE[+PRECISION]. Without a library it is ours: torch, openvino+int8.
timm is timm's model in eager torch, timm+compile the same behind torch.compile, timm+openvino that
engine on the graph that torch.onnx.export makes of timm's model, timm+bfloat16 the model in that
precision. All have the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.config import kind_of
from vitreous.deploy.engine import NAMES, FindTrial, load_with
from vitreous.deploy.peers import BUILDERS, OUTPUTS, peer
from vitreous.engines.graph import ENGINES as RUNS
from vitreous.engines.graph import OPENERS, GraphEngine, Note, open_graph, read_note
from vitreous.engines.precision import PRECISIONS, has_bfloat16
from vitreous.errors import ConfigError, did_you_mean
from vitreous.import_run import ExportedRun, open_run
from vitreous.models.model import Model

Compute = Callable[[Tensor], Any]
"""(b, c, h, w), normalised -> what the torch model gives."""
Log = Callable[[str], None]
ENGINES = tuple(name for name in NAMES if name != "auto")
"""Ours."""
GRAPHS = ("onnxruntime", "openvino")
"""Engines that run a library's own export."""
PEER_ENGINES = ("torch", "compile", *GRAPHS)
PEER_PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Candidate:
    """How a model is computed; see the module."""

    engine: str = "torch"
    precision: str = "float32"
    library: str = ""
    """Another one than ours."""

    def __str__(self) -> str:
        engine = "" if self.library and self.engine == "torch" else self.engine
        precision = "" if self.precision == "float32" else self.precision
        return "+".join(part for part in (self.library, engine, precision) if part)

    @classmethod
    def peer(cls, text: str) -> Candidate:
        """As one names it after --against; an engine alone runs timm's export."""
        words = text.split("+")
        found = {"library": words.pop(0) if words[0] in BUILDERS else "timm"}
        for word in words:
            kind = "engine" if word in PEER_ENGINES else "precision"
            if kind in found or word not in (*PEER_ENGINES, *PEER_PRECISIONS):
                known = (*BUILDERS, *GRAPHS)
                raise ConfigError(
                    f"against = {text!r}{did_you_mean(text, known)}: expected "
                    f"{', '.join(BUILDERS)}, alone or with an engine ({', '.join(PEER_ENGINES)}) "
                    f"or a precision ({', '.join(PEER_PRECISIONS)}) behind it, like timm+compile; "
                    "onnxruntime and openvino alone run timm's export"
                )
            found[kind] = word
        return cls(**found)


def our_candidates(engines: Sequence[str], precisions: Sequence[str]) -> list[Candidate]:
    for given, known, what in ((engines, ENGINES, "engine"), (precisions, PRECISIONS, "precision")):
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known) or f": expected some of {', '.join(known)}"
                raise ConfigError(f"{what} = {name!r}{hint}")
    return [Candidate(engine, precision) for engine in engines for precision in precisions]


def candidates_of_file(path: Path, engines: Sequence[str] | None) -> list[Candidate]:
    """An exported file in the precision that it has, by the engines that can run it."""
    able = RUNS[path.suffix]
    for name in engines or ():
        if name not in able:
            raise ConfigError(f"engine = {name!r} cannot run {path}: use {' or '.join(able)}")
    return [Candidate(name, read_note(path).precision) for name in engines or able]


def build(
    way: Candidate,
    run: str,
    model: Model,
    *,
    weights: bool = True,
    graph: Path | None = None,
    trial: FindTrial | None = None,
    log: Log = lambda text: None,
    verify: bool = True,
) -> Compute:
    """Ready to run on a CPU. model: that of `run`, whose weights another library's model gets;
    without `weights`, that has random ones. graph: what `export_peer` wrote. trial: images for
    int8. verify: see `load`."""
    if way.library:
        return _peer(way, model, weights, graph)
    folder = open_run(run)
    if isinstance(folder, ExportedRun):
        config = folder.read_config()
        opened = open_graph(folder.path, way.engine, verify=verify)
        known = (type(model), config.preprocess, folder.path, len(config.labels))
        return GraphEngine(opened, *known)
    options: dict[str, Any] = {"trial": trial, "log": log, "verify": verify, "device": "cpu"}
    return load_with(run, way.engine, way.precision, **options).engine


def _peer(way: Candidate, model: Model, weights: bool, graph: Path | None) -> Compute:
    if way.precision == "bfloat16" and not has_bfloat16():
        raise ConfigError("this CPU has no bfloat16: it would be many times slower than float32")
    if way.engine in GRAPHS:
        assert graph is not None
        if way.precision != "float32" and way.engine == "onnxruntime":
            raise ConfigError(f"onnxruntime computes no {way.precision} on CPUs")
        note = Note(run="", recipe="", outputs=(), precision=way.precision)
        as_usual = {"tuned": False} if way.engine == "openvino" else {}
        opened = OPENERS[way.engine](graph, note, None, **as_usual)

        def tensors(images: Tensor) -> list[Tensor]:
            found = opened.compute(images.contiguous().numpy())
            return [torch.from_numpy(np.asarray(each)) for each in found.values()]
    else:
        module: Any = peer(way.library, model, weights=weights)
        dtype = getattr(torch, way.precision)
        module.to(dtype)
        if way.engine == "compile":
            module = torch.compile(module)

        def tensors(images: Tensor) -> list[Tensor]:
            return [each.float() for each in module(images.to(dtype))]

    headless = kind_of(model.config, "head") in ("none", "projection")
    names = ("vectors",) if headless else tuple(OUTPUTS)

    def compute(images: Tensor) -> Any:
        return type(model).output_of(dict(zip(names, tensors(images), strict=False)))

    return compute
