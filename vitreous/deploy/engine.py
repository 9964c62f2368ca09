"""Which engine runs a model here: the one that is asked for, or the fastest (`auto`).

An engine that is not torch runs an exported file, which is made once, verified, and kept in the
cache; so is the choice of the fastest, for this run, this machine and these versions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import choice
from vitreous.deploy.export import ExportError, batch_of, export, some_images
from vitreous.errors import ConfigError
from vitreous.import_run import ExportedRun, open_run
from vitreous.predict import Predictor, load
from vitreous.run_folder import Run
from vitreous.weights.download import cache_folder

Log = Callable[[str], None]
SUFFIXES = {"onnxruntime": ".onnx", "openvino": ".xml"}
NAMES = ("torch", *SUFFIXES, "auto")
ROUNDS, BATCH = 5, 4
"""How often, and on how many images, the engines are timed."""


def load_with(
    run: str | Path,
    engine: str = "torch",
    *,
    log: Log = lambda text: None,
    merge: int | None = None,
    **options: Any,
) -> Predictor:
    """The predictor of a run folder, whose model is computed by `engine`; `merge` and `options` are
    those of `load`."""
    engine = choice("engine", engine, NAMES)
    folder = open_run(run)
    if isinstance(folder, ExportedRun):
        if engine not in ("torch", "auto"):
            raise ConfigError(f"engine = {engine!r}: {run} is a file, and its suffix says which")
        return load(run, merge=merge, **options)
    if engine == "auto":
        engine = fastest(folder, run, log, merge or 0)
    if engine == "torch":
        return load(run, merge=merge, **options)
    return load(cached_file(folder, run, engine, log, merge or 0), **options)


def cached_file(folder: Run, run: str | Path, engine: str, log: Log, merge: int = 0) -> Path:
    """The exported file that `engine` runs, from the cache or made now."""
    path = _place(folder, merge) / f"model{SUFFIXES[engine]}"
    if not path.is_file():
        log(f"exporting {run} for {engine}, once")
        config = replace(folder.read_config(), merge=merge)
        images = some_images(None, config.preprocess.channels)
        predictor = load(run, "cpu", merge=merge)
        export(predictor, config, path, images, recipe=folder.recipe_text())
    return path


def fastest(folder: Run, run: str | Path, log: Log, merge: int = 0) -> str:
    """The engine that takes the least time for a few images; measured once."""
    note = _place(folder, merge) / f"fastest-{_machine()}.json"
    try:
        seconds = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        seconds = _timed(folder, run, log, merge)
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary = note.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(seconds), encoding="utf-8")
        os.replace(temporary, note)
    best = min(seconds, key=lambda name: seconds[name])
    times = ", ".join(f"{name} {1000 * each:.0f}" for name, each in seconds.items())
    log(f"engine: {best}, the fastest here (ms per image: {times})")
    return str(best)


def _timed(folder: Run, run: str | Path, log: Log, merge: int) -> dict[str, float]:
    """Seconds per image of each engine that is installed and computes what torch does; the rounds
    take turns, so that other work on the machine is shared."""
    predictors = {"torch": load(run, "cpu", merge=merge)}
    for engine in SUFFIXES:
        if importlib.util.find_spec(engine) is None:
            continue
        try:
            predictors[engine] = load(cached_file(folder, run, engine, log, merge))
        except (ConfigError, ExportError) as error:
            log(f"{engine} is left out: {error}")
    config = folder.read_config()
    prepared = [config.preprocess(image) for image in some_images(None, config.preprocess.channels)]
    images = batch_of(prepared, BATCH, predictors["torch"].engine.image_size)
    taken: dict[str, list[float]] = {name: [] for name in predictors}
    for _ in range(ROUNDS):
        for name, predictor in predictors.items():
            taken[name].append(_seconds(predictor, images))
    return {name: min(each[1:]) / BATCH for name, each in taken.items()}  # the first warms up


@torch.inference_mode()
def _seconds(predictor: Predictor, images: Tensor) -> float:
    began = time.perf_counter()
    predictor.engine(images)
    return time.perf_counter() - began


def _place(folder: Run, merge: int = 0) -> Path:
    """In the cache, for these weights and this config, and the versions that export them."""
    weights = folder.weights if folder.checkpoint is None else folder.checkpoint / "manifest.json"
    facts = [weights.resolve(), weights.stat().st_size, weights.stat().st_mtime_ns]
    facts += [replace(folder.read_config(), merge=merge).to_dict(), _versions()]
    stamp = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return cache_folder() / "engines" / stamp


def _machine() -> str:
    facts = (platform.processor(), platform.machine(), os.cpu_count(), torch.get_num_threads())
    return hashlib.sha256(repr((*facts, _cpu_name())).encode()).hexdigest()[:8]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("model name", "flags"))), "")


def _versions() -> list[str]:
    found = []
    for name in ("vitreous", "torch", "onnx", "onnxruntime", "openvino"):
        try:
            found.append(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            found.append("")
    return found
