"""Which engine runs a model here, and how precisely: what is asked for, or the fastest (`auto`).

An engine that is not torch runs an exported file, which is made once, verified, and kept in the
cache; so is the choice of the fastest, for this run, this machine and these versions. `auto`
measures only what gives the same answers: float32, and bfloat16 where all predictions for a few
images are those of float32. It never takes int8, which needs data and costs points.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.atomic_write import making_folder, naming_file, write_text
from vitreous.config import choice
from vitreous.data.formats import is_there
from vitreous.deploy.export import ExportError, batch_of, export, some_images
from vitreous.deploy.loss import Trial, agreement_of
from vitreous.engines.precision import check_bfloat16, has_bfloat16, precision_named
from vitreous.engines.table import CHOICES, ENGINES, GRAPHS, PRECISION_CHOICES, is_installed
from vitreous.errors import ConfigError, DataError
from vitreous.import_run import ExportedRun, open_run
from vitreous.inference import USUAL, InferenceOptions
from vitreous.loading import adapted, predictor_of
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.resized_run import ResizedRun
from vitreous.run_folder import OpenedRun, RunConfig
from vitreous.weights.hub import cache_folder

PAUSE = 0.1
"""Seconds between two engines that are timed: threads of one (ONNX Runtime's) wait for more work by
spinning, and would take a quarter from the next, which nobody has beside it otherwise."""
FindTrial = Callable[[], Trial]
"""Opens the run's own data, for int8; an error says why it cannot."""
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


EXACT = Way("torch", "float32")


def load_with(
    run: OpenedRun,
    options: InferenceOptions = USUAL,
    trial: FindTrial | None = None,
    log: Log = silent,
) -> Predictor:
    """The predictor of a run folder, whose model is computed as the options say; `trial` gives
    images for int8. An exported file has an engine and a precision of its own."""
    asked = options.given("engine", "precision", "threads")
    if options.engine is not None:
        options = replace(options, engine=choice("engine", options.engine, CHOICES))
    if options.precision is not None:
        precision = precision_named(options.precision, PRECISION_CHOICES)
        options = replace(options, precision=precision)
    engine, precision = options.engine or "torch", options.precision or "float32"
    if options.probe is not None and not isinstance(run, ExportedRun):
        engine = "torch" if engine == "auto" else engine
        if engine != "torch":
            raise ConfigError(
                f"probe = {list(options.probe)}: {engine} runs a graph, in which nothing can be "
                "changed: leave engine out"
            )
    if Way(engine, precision) != EXACT or options.threads is not None:
        if options.device is not None and str(options.device) != "cpu":
            what = f"{asked[0]} = {getattr(options, asked[0])!r}"
            raise ConfigError(f"{what} runs on the CPU, not on {options.device}")
        options = replace(options, device="cpu")
    if isinstance(run, ExportedRun):
        return _load_file(run, options)
    run = adapted(run, options, log)
    options = replace(options, image_size=None, classes=None, templates=None)
    if isinstance(run, ResizedRun):
        log(run.done)
    ways = possible(engine, precision)
    way = ways[0] if len(ways) == 1 else fastest(run, ways, options, trial, log)
    predictor = load_way(run, way, options, trial, log)
    if way != EXACT:
        exact = replace(options, engine=None, precision=None, threads=None)
        predictor.exact = functools.cache(lambda: predictor_of(run, exact))
    return predictor


def _load_file(run: ExportedRun, options: InferenceOptions) -> Predictor:
    engine = None if options.engine == "auto" else options.engine
    found = predictor_of(run, replace(options, engine=engine))
    if options.precision not in (None, "auto", found.engine.precision):
        raise ConfigError(
            f"precision = {options.precision!r}: {run.reference} was exported in "
            f"{found.engine.precision}: take the run folder, or export it with --precision "
            f"{options.precision} (.xml has all of them)"
        )
    return found


def possible(engine: str, precision: str) -> list[Way]:
    """The ways that are asked for, of those that there are here; at least one, or it is an error
    that says why."""
    if precision == "bfloat16":
        check_bfloat16()
    precisions = ("float32", "bfloat16") if precision == "auto" else (precision,)
    ways = [
        Way(name, each)
        for name in (ENGINES if engine == "auto" else (engine,))
        for each in precisions
        if each in ENGINES[name].precisions and (each != "bfloat16" or has_bfloat16())
    ]
    here = [way for way in ways if engine != "auto" or is_installed(way.engine)]
    if not ways:
        able = [name for name, kind in ENGINES.items() if precision in kind.precisions]
        raise ConfigError(
            f"engine = {engine!r} does not compute in {precision} here: use {' or '.join(able)}, "
            f"or one of {', '.join(ENGINES[engine].precisions)}"
        )
    return here or ways[-1:]  # which says what to install


def load_way(
    run: OpenedRun,
    way: Way,
    options: InferenceOptions = USUAL,
    trial: FindTrial | None = None,
    log: Log = silent,
) -> Predictor:
    """The predictor of a run folder, computed in one way."""
    if way.engine in GRAPHS:
        path = cached_file(run, way, log, trial, options.merge or 0)
        file = open_run(path, verify=run.verify)
        return predictor_of(file, replace(options, engine=way.engine, precision=None))
    return predictor_of(run, replace(options, engine=None, precision=way.precision))


def cached_file(
    run: OpenedRun, way: Way, log: Log, trial: FindTrial | None = None, merge: int = 0
) -> Path:
    """The exported file that an engine runs, from the cache or made now."""
    name = "model" if way.precision == "float32" else f"model-{way.precision}"
    path = _place(run, merge) / f"{name}{ENGINES[way.engine].opens[0]}"
    if path.is_file():
        return path
    with _alone(path, log):
        if path.is_file():
            return path
        found = _trial(run, trial) if way.precision == "int8" else None
        lower = "" if way.precision == "float32" else f" in {way.precision}"
        log(f"exporting {run.reference} for {way.engine}{lower}, once")
        done = export(
            predictor_of(run, InferenceOptions(device="cpu", merge=merge)),
            replace(run.config, merge=merge),
            path,
            _own_images(run.config),
            recipe=run.recipe_text(),
            precision=way.precision,
            trial=found,
        )
        if done.loss is not None:
            log(f"{way.precision}: {done.loss.text}")
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


def _trial(run: OpenedRun, find: FindTrial | None) -> Trial:
    try:
        if find is None:
            raise ConfigError("no data is given")
        return find()
    except (ConfigError, DataError) as error:
        raise ConfigError(
            f"precision = 'int8' is calibrated with images of yours, and those of {run.reference} "
            f"cannot be used: {error}\nexport it with others: vitreous export {run.reference} "
            "FILE.xml --precision int8 --data DATA"
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
    run: OpenedRun,
    ways: list[Way],
    options: InferenceOptions,
    trial: FindTrial | None,
    log: Log,
) -> Way:
    """The one that takes the least time for a few images, of those that give the answers of
    float32; measured once."""
    facts = (_machine(), options.threads, ways)
    stamp = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
    note = _place(run, options.merge or 0) / f"fastest-{stamp}.json"
    seconds = _noted(note, ways)
    if seconds is None:
        with _alone(note, log):
            seconds = _noted(note, ways)
            if seconds is None:
                seconds = _timed(run, ways, options, trial, log)
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
    run: OpenedRun,
    ways: list[Way],
    options: InferenceOptions,
    trial: FindTrial | None,
    log: Log,
) -> dict[Way, float]:
    """Seconds per image of each that can be made and agrees; the rounds take turns, so that other
    work on the machine is shared."""
    options = InferenceOptions(device="cpu", merge=options.merge, threads=options.threads)
    images = _own_images(run.config)
    exact = predictor_of(run, replace(options, threads=None))
    predictors, errors = {}, []
    for way in ways:
        try:
            found = load_way(run, way, options, trial, log)
            _check_agreement(exact, found, way, images)
        except (ConfigError, ExportError) as error:
            log(f"{way} is left out: {error}")
            errors.append(error)
            continue
        predictors[way] = found
    if not predictors:
        raise errors[-1]
    prepared = [exact.preprocess(image) for image in images]
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


def _place(run: OpenedRun, merge: int = 0) -> Path:
    """In the cache, for these weights and this config, and the versions that export them."""
    weights = run.weights if run.checkpoint is None else run.checkpoint / "manifest.json"
    facts = [weights.resolve(), weights.stat().st_size, weights.stat().st_mtime_ns]
    facts += [replace(run.config, merge=merge).to_dict(), _versions()]
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
