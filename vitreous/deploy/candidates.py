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
from vitreous.deploy.engine import FindTrial, load_with
from vitreous.deploy.peers import BUILDERS, OUTPUTS, peer
from vitreous.engines.graph import OPENERS, Note
from vitreous.engines.precision import PRECISIONS, has_bfloat16
from vitreous.engines.table import ENGINES, GRAPHS, engines_for
from vitreous.errors import ConfigError, did_you_mean
from vitreous.import_run import ExportedRun
from vitreous.inference import InferenceOptions
from vitreous.loading import graph_engine
from vitreous.models.model import Model
from vitreous.models.two_towers import of_images
from vitreous.progress import Log, silent
from vitreous.run_folder import OpenedRun

Compute = Callable[[Tensor], Any]
"""(b, c, h, w), normalised -> what the torch model gives."""
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


def candidates_of_file(run: ExportedRun, engines: Sequence[str] | None) -> list[Candidate]:
    """An exported file in the precision that it has, by the engines that can run it."""
    able = engines_for(run.path.suffix)
    for name in engines or ():
        if name not in able:
            raise ConfigError(f"engine = {name!r} cannot run {run.path}: use {' or '.join(able)}")
    return [Candidate(name, run.file.note.precision) for name in engines or able]


def build(
    way: Candidate,
    run: OpenedRun,
    model: Model,
    *,
    weights: bool = True,
    graph: Path | None = None,
    trial: FindTrial | None = None,
    log: Log = silent,
) -> Compute:
    """Ready to run on a CPU. model: that of `run`, whose weights another library's model gets;
    without `weights`, that has random ones. graph: what `export_peer` wrote. trial: images for
    int8."""
    if way.library:
        return _peer(way, of_images(model), weights, graph)
    options = InferenceOptions(engine=way.engine, precision=way.precision, device="cpu")
    if isinstance(run, ExportedRun):
        return graph_engine(run, options)
    return load_with(run, options, trial, log).engine


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
