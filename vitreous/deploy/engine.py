"""Which engine runs a model here, and how precisely: what is asked for, or the fastest (`auto`).

An engine that is not torch runs an exported file, which is made once, verified, and kept in the
cache; so is the choice of the fastest, for this run, this machine and these versions. `auto`
measures only what gives the same answers: float32, and bfloat16 where all predictions for a few
images are those of float32. It never takes int8, which needs data and costs points, and never
compile, whose start takes a minute.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.atomic_write import making_folder, naming_file, write_text
from vitreous.config import choice
from vitreous.data.formats import is_there
from vitreous.deploy.export import ExportError, batch_of, export, some_images
from vitreous.deploy.loss import Trial, agreement_of
from vitreous.engines.precision import check_bfloat16, has_bfloat16, precision_named
from vitreous.errors import ConfigError, DataError
from vitreous.import_run import ExportedRun, open_run
from vitreous.predict import Predictor, load
from vitreous.run_folder import Run, RunConfig
from vitreous.weights.download import cache_folder

Log = Callable[[str], None]
PAUSE = 0.1
"""Seconds between two engines that are timed: threads of one (ONNX Runtime's) wait for more work by
spinning, and would take a quarter from the next, which nobody has beside it otherwise."""
FindTrial = Callable[[], Trial]
"""Opens the run's own data, for int8; an error says why it cannot."""
SUFFIXES = {"onnxruntime": ".onnx", "openvino": ".xml"}
ENGINES = {
    "torch": ("float32", "bfloat16"),
    "compile": ("float32", "bfloat16"),
    "onnxruntime": ("float32", "int8"),
    "openvino": ("float32", "bfloat16", "int8"),
}
"""What each computes in on a CPU."""
NAMES = (*ENGINES, "auto")
PRECISIONS = ("auto", "float32", "bfloat16", "int8")
MEASURED = ("torch", *SUFFIXES)
"""Those that auto chooses from."""
ROUNDS, BATCH = 5, 4
"""How often, and on how many images, the engines are timed."""
AGREEMENT = 0.999
"""With float32, of a precision that auto may take."""


class Way(NamedTuple):
    """One way to compute a model."""

    engine: str
    precision: str

    def __str__(self) -> str:
        return self.engine if self.precision == "float32" else f"{self.engine} {self.precision}"


def load_with(
    run: str | Path,
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    *,
    trial: FindTrial | None = None,
    log: Log = lambda text: None,
    merge: int | None = None,
    verify: bool = True,
    **options: Any,
) -> Predictor:
    """The predictor of a run folder, whose model is computed by `engine` (torch) in `precision`
    (float32), with `threads` threads (all); `trial` gives images for int8, and `merge`,
    `verify` and `options` are those of `load`. An exported file has an engine and a
    precision of its own."""
    if engine is not None:
        engine = choice("engine", engine, NAMES)
    if precision is not None:
        precision = precision_named(precision, PRECISIONS)
    folder = open_run(run, verify=verify)
    if isinstance(folder, ExportedRun):
        options |= {"merge": merge, "verify": verify}
        return _load_file(run, engine, precision, threads, options)
    ways = possible(engine or "torch", precision or "float32")
    way = ways[0] if len(ways) == 1 else fastest(folder, run, ways, threads, trial, log, merge or 0)
    predictor = load_way(folder, run, way, threads, trial, log, merge or 0, **options)
    predictor.exact = functools.cache(lambda: load(run, merge=merge, verify=verify, **options))
    return predictor


def _load_file(
    run: str | Path,
    engine: str | None,
    precision: str | None,
    threads: int | None,
    options: dict[str, Any],
) -> Predictor:
    found = load(run, engine=None if engine == "auto" else engine, threads=threads, **options)
    if precision not in (None, "auto", found.engine.precision):
        raise ConfigError(
            f"precision = {precision!r}: {run} was exported in {found.engine.precision}: take the "
            f"run folder, or export it with --precision {precision} (.xml has all of them)"
        )
    return found


def possible(engine: str, precision: str) -> list[Way]:
    """The ways that are asked for, of those that there are here; at least one, or it is an error
    that says why."""
    if precision == "bfloat16":
        check_bfloat16()
    engines = MEASURED if engine == "auto" else (engine,)
    precisions = ("float32", "bfloat16") if precision == "auto" else (precision,)
    ways = [
        Way(name, each)
        for name in engines
        for each in precisions
        if each in ENGINES[name] and (each != "bfloat16" or has_bfloat16())
    ]
    here = [way for way in ways if engine != "auto" or _is_installed(way.engine)]
    if not ways:
        able = [name for name, known in ENGINES.items() if precision in known]
        raise ConfigError(
            f"engine = {engine!r} does not compute in {precision} here: use {' or '.join(able)}, "
            f"or one of {', '.join(ENGINES[engine])}"
        )
    return here or ways[-1:]  # which says what to install


def _is_installed(engine: str) -> bool:
    return engine not in SUFFIXES or importlib.util.find_spec(engine) is not None


def load_way(
    folder: Run,
    run: str | Path,
    way: Way,
    threads: int | None = None,
    trial: FindTrial | None = None,
    log: Log = lambda text: None,
    merge: int = 0,
    **options: Any,
) -> Predictor:
    """The predictor of a run folder, computed in one way."""
    options |= {"threads": threads, "merge": merge, "verify": folder.verify}
    if way.engine in SUFFIXES:
        path = cached_file(folder, run, way.engine, log, way.precision, trial, merge)
        return load(path, **options)
    return load(run, engine=way.engine, precision=way.precision, **options)


def cached_file(
    folder: Run,
    run: str | Path,
    engine: str,
    log: Log,
    precision: str = "float32",
    trial: FindTrial | None = None,
    merge: int = 0,
) -> Path:
    """The exported file that `engine` runs, from the cache or made now."""
    name = "model" if precision == "float32" else f"model-{precision}"
    path = _place(folder, merge) / f"{name}{SUFFIXES[engine]}"
    if path.is_file():
        return path
    with _alone(path, log):
        if path.is_file():
            return path
        config = replace(folder.read_config(), merge=merge)
        found = _trial(run, trial) if precision == "int8" else None
        log(f"exporting {run} for {engine}{_in(precision)}, once")
        done = export(
            load(run, "cpu", merge=merge, verify=folder.verify),
            config,
            path,
            _own_images(config),
            recipe=folder.recipe_text(),
            precision=precision,
            trial=found,
        )
        if done.loss is not None:
            log(f"{precision}: {done.loss.text}")
    return path


@contextmanager
def _alone(path: Path, log: Log) -> Iterator[None]:
    """Of several processes that need a file of the cache, one makes it; the others wait, and find
    it when they are inside."""
    try:
        import fcntl
    except ImportError:  # Windows: each makes it, and the last one's stays
        with making_folder(path.parent):
            yield
        return
    lock = path.with_name(f"{path.name}.lock")
    with making_folder(path.parent), ExitStack() as stack:
        with naming_file(lock):
            file = stack.enter_context(lock.open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"another process makes {path}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _in(precision: str) -> str:
    return "" if precision == "float32" else f" in {precision}"


def _trial(run: str | Path, find: FindTrial | None) -> Trial:
    try:
        if find is None:
            raise ConfigError("no data is given")
        return find()
    except (ConfigError, DataError) as error:
        raise ConfigError(
            f"precision = 'int8' is calibrated with images of yours, and those of {run} cannot be "
            f"used: {error}\nexport it with others: vitreous export {run} FILE.xml --precision "
            "int8 --data DATA"
        ) from None


def _own_images(config: RunConfig) -> list[Tensor]:
    """Of the data that the model was trained on, as far as it can be opened by its name alone."""
    channels = config.preprocess.channels
    if config.data and is_there(config.data):
        try:
            return some_images(config.data, channels)
        except (ConfigError, DataError):
            pass
    return some_images(None, channels)


def fastest(
    folder: Run,
    run: str | Path,
    ways: list[Way],
    threads: int | None,
    trial: FindTrial | None,
    log: Log,
    merge: int = 0,
) -> Way:
    """The one that takes the least time for a few images, of those that give the answers of
    float32; measured once."""
    stamp = hashlib.sha256(repr((_machine(), threads, ways)).encode()).hexdigest()[:12]
    note = _place(folder, merge) / f"fastest-{stamp}.json"
    seconds = _noted(note, ways)
    if seconds is None:
        with _alone(note, log):
            seconds = _noted(note, ways)
            if seconds is None:
                seconds = _timed(folder, run, ways, threads, trial, log, merge)
                write_text(note, json.dumps([[*way, each] for way, each in seconds.items()]))
    best = min(seconds, key=lambda way: seconds[way])
    times = ", ".join(f"{way} {1000 * each:.1f}" for way, each in seconds.items())
    log(f"engine: {best}, the fastest here (ms per image: {times})")
    return best


def _noted(note: Path, ways: list[Way]) -> dict[Way, float] | None:
    """What was measured before."""
    try:
        rows = json.loads(note.read_text(encoding="utf-8"))
        found = {Way(engine, precision): float(each) for engine, precision, each in rows}
    except (OSError, ValueError, TypeError):
        return None
    return found if found and found.keys() <= set(ways) else None


def _timed(
    folder: Run,
    run: str | Path,
    ways: list[Way],
    threads: int | None,
    trial: FindTrial | None,
    log: Log,
    merge: int,
) -> dict[Way, float]:
    """Seconds per image of each that can be made and agrees; the rounds take turns, so that other
    work on the machine is shared."""
    config = folder.read_config()
    images = _own_images(config)
    exact = load(run, "cpu", merge=merge, verify=folder.verify)
    predictors, errors = {}, []
    for way in ways:
        try:
            found = load_way(folder, run, way, threads, trial, log, merge)
            _check_agreement(exact, found, way, images)
        except (ConfigError, ExportError) as error:
            log(f"{way} is left out: {error}")
            errors.append(error)
            continue
        predictors[way] = found
    if not predictors:
        raise errors[-1]
    prepared = [config.preprocess(image) for image in images]
    batch = batch_of(prepared, BATCH, exact.engine.image_size)
    taken: dict[Way, list[float]] = {way: [] for way in predictors}
    for _ in range(ROUNDS):
        for way, predictor in predictors.items():
            taken[way].append(_seconds(predictor, batch))
    return {way: min(each[1:]) / BATCH for way, each in taken.items()}  # the first warms up


def _check_agreement(exact: Predictor, found: Predictor, way: Way, images: list[Tensor]) -> None:
    """float32 is verified when it is exported, and int8 by what it loses."""
    if way.precision != "bfloat16":
        return
    agreement = agreement_of(exact, found.engine, images)
    if not agreement >= AGREEMENT:
        raise ExportError(
            f"its predictions agree with those in float32 to {agreement:.2%} on {len(images)} "
            "images"
        )


@torch.inference_mode()
def _seconds(predictor: Predictor, images: Tensor) -> float:
    time.sleep(PAUSE)
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
    for name in ("vitreous", "torch", "onnx", "onnxruntime", "openvino", "nncf"):
        try:
            found.append(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            found.append("")
    return found
