"""`vitreous benchmark`: how fast a model is here, by each engine and in each library, with the same
answers.

All ways (`candidates.py`) take turns, round by round, so that other work on the machine slows all
of them; what warms up is not counted. Peers get the same weights, and each way is compared with
torch in float32 before it is timed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import to_dict
from vitreous.deploy.candidates import (
    Candidate,
    Compute,
    build,
    candidates_of_file,
    our_candidates,
)
from vitreous.deploy.engine import PAUSE, FindTrial
from vitreous.deploy.export import batch_of, some_images
from vitreous.deploy.loss import agreements
from vitreous.deploy.memory import peak_memory
from vitreous.deploy.peers import OUTPUTS, export_peer, peer
from vitreous.deploy.turns import take_turns
from vitreous.engines.linear import linear
from vitreous.engines.summary import summarise
from vitreous.engines.table import ENGINES, GRAPHS
from vitreous.errors import ConfigError, VitreousError
from vitreous.import_run import ExportedRun, open_run
from vitreous.inference import InferenceOptions
from vitreous.labels import LabelMap, NoLabels
from vitreous.loading import predictor_of
from vitreous.models import create, family_of, image_model
from vitreous.models import names as model_names
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.models.text import TextTower
from vitreous.models.two_towers import of_images
from vitreous.progress import Log, silent
from vitreous.run_folder import OpenedRun, Run, RunConfig, names_classes, versions
from vitreous.tasks import task_class, task_of_model
from vitreous.weights.blank import without_values

PEAK_SIDE = 2048
"""Of the square matrices whose product measures what the machine can do."""
CACHE = "VITREOUS_CACHE"
COMPARED = 8
"""Images on which answers are compared."""


@dataclass(frozen=True)
class Timing:
    """One way to run the model, with batches of one length. Times are in milliseconds per image."""

    way: str
    batch: int
    best: float
    median: float
    p95: float
    images_per_second: float
    """Of the median."""
    memory: int | None
    """Bytes at most while it predicts: weights and activations (see `memory.py`); None where this
    cannot be measured."""
    difference: float
    """Of the outputs from the reference's, relative to the largest value of each."""
    agreement: float
    """How far the answers are the same as the reference's, in the mean, from 0 to 1."""
    peak_part: float
    """Floating-point operations per second, as a part of what the machine reaches with large
    matrices, both at their best. The operations are those of our model, for all ways."""


@dataclass(frozen=True)
class Benchmark:
    model: str
    image_size: tuple[int, int]
    flops: int
    """Of one image."""
    threads: int
    peak: float
    """FLOP per second of a product of large matrices."""
    preprocessing: float
    """Milliseconds per image, before any of the times."""
    images: int
    """So many were compared."""
    reference: str
    """What the others are compared with: torch in float32, or of an exported file its usual engine,
    if that is here."""
    timings: list[Timing]
    left_out: dict[str, str]
    """Ways that could not be tried, and why."""

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "timings": [asdict(each) for each in self.timings]}


@torch.inference_mode()
def benchmark(
    what: str,
    *,
    batches: Sequence[int] = (1, 8),
    engines: Sequence[str] | None = None,
    precisions: Sequence[str] = ("float32",),
    against: Sequence[str] = (),
    rounds: int = 10,
    data: str | None = None,
    memory: bool = True,
    changes: Mapping[str, Any] | None = None,
    verify: bool = True,
    trial: FindTrial | None = None,
    log: Log = silent,
) -> Benchmark:
    """Of a run folder, of an exported file, or of a model by its name with random weights and
    `changes` to its config. `verify` is that of `load`. Answers are compared on images
    of `data`, and `trial` gives those that int8 is calibrated with."""
    if rounds < 2 or any(batch < 1 for batch in batches) or not batches:
        raise ConfigError(f"rounds = {rounds}, batch = {list(batches)}: expected at least 2 and 1")
    peers = [Candidate.peer(text) for text in against]
    with tempfile.TemporaryDirectory() as kept, ExitStack() as stack:
        named = _as_run(what, Path(kept), changes or {})
        if named != what:
            stack.enter_context(_cache(kept))  # nobody needs random weights again
        run = open_run(named, verify=verify)
        config = run.config
        if isinstance(run, ExportedRun):
            ways = candidates_of_file(run, engines)
            reference = candidates_of_file(run, None)[0]
        else:
            ways, reference = our_candidates(engines or tuple(ENGINES), precisions), Candidate()
        stored = some_images(data, config.preprocess.channels, COMPARED)
        began = time.perf_counter()
        prepared = [config.preprocess(image) for image in stored]
        preprocessing = 1000 * (time.perf_counter() - began) / len(prepared)
        model = _model_of(run)
        if task_class(config.task).pretrains and model.core is not model:
            raise ConfigError(
                f"{what} was pre-trained without labels: export its encoder, and give that file"
            )
        size = model.own_size()
        flops = flops_of(config)
        built = _Built(run, model, Path(kept), batch_of(prepared, 2, size), trial, log)
        computes = built.all([reference, *(way for way in (*ways, *peers) if way != reference)])
        asked = {str(way) for way in (*ways, *peers)}
        if not asked & computes.keys():
            raise ConfigError(f"nothing can be measured: {'; '.join(built.reasons())}")
        base = str(reference)
        if base not in computes:  # the engine of an exported file may not be installed
            base = next(iter(computes))
            log(f"{reference} is not here: the others are compared with {base}")
        task = task_class(config.task).restored(config.labels, config.decoding)
        sizes = [(image.shape[1], image.shape[2]) for image in stored]
        pairs = list(zip(prepared, sizes, strict=True))
        plain = _Engine(computes[base], size)
        agreement = {
            way: statistics.fmean(agreements(task, plain, _Engine(compute, size), pairs))
            for way, compute in computes.items()
        }
        bytes_ = {}
        if memory:
            log("measuring memory, each way in a process of its own")
            timed = [way for way in (*ways, *peers) if str(way) in computes]
            bytes_ = peak_memory(timed, run, batches, built.graphs)
        peak = _peak(rounds)
        timings = []
        for batch in batches:
            log(f"batches of {batch}: {rounds} rounds of {', '.join(computes)}")
            images = batch_of(prepared, batch, size)
            apart = _differences(computes, base, images, model)
            for way, taken in _times(
                {way: compute for way, compute in computes.items() if way in asked}, images, rounds
            ).items():
                best, median = min(taken), statistics.median(taken)
                late = sorted(taken)[min(int(0.95 * len(taken)), len(taken) - 1)]
                numbers = (1000 * best, 1000 * median, 1000 * late, 1 / median)
                close = (apart[way], agreement[way], flops / best / peak)
                timings.append(Timing(way, batch, *numbers, bytes_.get((way, batch)), *close))
    return Benchmark(
        *(config.model or config.family, size, flops, torch.get_num_threads(), peak),
        *(preprocessing, len(stored), base, timings, built.left_out),
    )


class _Built:
    """Ways that are ready to run, and why others are not."""

    def __init__(
        self,
        run: OpenedRun,
        model: Model,
        folder: Path,
        images: Tensor,
        trial: FindTrial | None,
        log: Log,
    ) -> None:
        self.run, self.model, self.folder, self.images = run, model, folder, images
        self.trial, self.log = trial, log
        self.graphs: dict[str, Path] = {}
        """Other libraries' exports, by library."""
        self.left_out: dict[str, str] = {}

    def all(self, ways: Sequence[Candidate]) -> dict[str, Compute]:
        found = {}
        for way in ways:
            try:
                if way.library and next(self.model.parameters()).is_meta:
                    raise ConfigError("an exported file has no weights for it: give the run folder")
                found[str(way)] = build(
                    way,
                    self.run,
                    self.model,
                    graph=self._graph(way),
                    trial=self.trial,
                    log=self.log,
                )
            except VitreousError as error:
                self.left_out[str(way)] = str(error)
                self.log(f"{way} is left out: {error}")
        return found

    def reasons(self) -> list[str]:
        """Why ways are left out; each reason once, where several have the same."""
        ways: dict[str, list[str]] = {}
        for way, why in self.left_out.items():
            ways.setdefault(why, []).append(way)
        return [f"{' and '.join(names)}: {why}" for why, names in ways.items()]

    def _graph(self, way: Candidate) -> Path | None:
        """The graph of another library's model, exported once."""
        if not way.library or way.engine not in GRAPHS:
            return None
        if way.library not in self.graphs:
            self.log(f"exporting {way.library}'s model")
            path = self.folder / f"{way.library}.onnx"
            self.graphs[way.library] = export_peer(peer(way.library, self.model), self.images, path)
        return self.graphs[way.library]


class _Engine:
    """A way as tasks take an engine."""

    name, precision = "", "float32"

    def __init__(self, compute: Compute, image_size: tuple[int, int]) -> None:
        self.compute, self.image_size = compute, image_size

    def __call__(self, images: Tensor) -> Any:
        return self.compute(images)

    def vectors(self, images: Tensor, pool: str) -> Tensor:
        raise NotImplementedError

    def vector_length(self, pool: str) -> int:
        raise NotImplementedError


def _differences(
    computes: Mapping[str, Compute], reference: str, images: Tensor, model: Model
) -> dict[str, float]:
    plain = _tensors(computes[reference](images))

    def apart(output: Any) -> float:
        found, wanted = _tensors(output), plain
        places = getattr(output, "places", None)
        if places is not None and not next(model.parameters()).is_meta:
            with torch.inference_mode():
                chosen = model.outputs(images, like={"places": places})
            wanted = {name: chosen[name] for name in found}
        return max(
            float((found[name] - values).abs().max() / values.abs().max().clamp(min=1e-9))
            for name, values in wanted.items()
        )

    return {way: apart(compute(images)) for way, compute in computes.items()}


def _tensors(output: Any) -> dict[str, Tensor]:
    """What is predicted from, of what a model gives."""
    if isinstance(output, Tensor):
        return {"": output}
    named = {name: getattr(output, name, None) for name in OUTPUTS}
    return {name: values for name, values in named.items() if values is not None}


def _times(computes: Mapping[str, Compute], images: Tensor, rounds: int) -> dict[str, list[float]]:
    """Seconds per image in each round."""
    works = {way: partial(compute, images) for way, compute in computes.items()}
    taken = take_turns(works, rounds, pause=PAUSE)
    return {way: [each / len(images) for each in rows] for way, rows in taken.items()}


def _peak(rounds: int) -> float:
    """FLOP per second of a product of large matrices, by the faster of torch's two libraries."""
    one, other = torch.randn(PEAK_SIDE, PEAK_SIDE), torch.randn(PEAK_SIDE, PEAK_SIDE)
    taken = []
    for _ in range(rounds):
        for product in (torch.mm, lambda a, b: linear(a, b, None)):
            began = time.perf_counter()
            product(one, other)
            taken.append(time.perf_counter() - began)
    return float(2 * PEAK_SIDE**3 / min(taken))


def flops_of(config: RunConfig) -> int:
    """Of one image, by torch's counter."""
    with without_values(), torch.inference_mode(False):
        return sum(row.flops for row in summarise(of_images(config.create())))


def _model_of(run: OpenedRun) -> Model:
    """With its weights; of an exported file without, which no other library can get then."""
    if isinstance(run, ExportedRun):
        with without_values():
            return of_images(run.config.create())
    return of_images(predictor_of(run, InferenceOptions(device="cpu")).model)


@contextmanager
def _cache(folder: str) -> Iterator[None]:
    """Inside, what is exported goes there."""
    before = os.environ.get(CACHE)
    os.environ[CACHE] = folder
    try:
        yield
    finally:
        del os.environ[CACHE]
        if before is not None:
            os.environ[CACHE] = before


def _as_run(what: str, kept: Path, changes: Mapping[str, Any]) -> str:
    """The run that is meant; of a model's name one with random weights, which is thrown away."""
    if Path(what).exists() or (translate(what) or (what,))[0] not in model_names():
        if changes:
            names = ", ".join(changes)
            raise ConfigError(f"{names}: {what} is no model's name, and stays as it was trained")
        return what
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        name, fields = image_model(what)
        model = create(name, **{**fields, **changes})
    if isinstance(model, TextTower):
        raise ConfigError(f"{what} is a text tower: a benchmark is of images")
    family, classes = family_of(model), range(model.config.classes)
    named = names_classes(model)
    labels = LabelMap(tuple(map(str, classes)), tuple(classes)) if named else NoLabels()
    task = task_of_model(family, model.config, headless=not named)
    kind, channels = task_class(task), model.config.channels
    # Models that take any size get one here, so that there are batches, and graphs of one size.
    resize = "square" if kind.truth.any_size else None
    preprocess = kind.defaults.choose_preprocess(model.own_size(), channels, resize=resize)
    run = Run(kept / "run")
    run.path.mkdir()
    about = (model.name or what, family, to_dict(model.config), task, labels)
    run.write_config(RunConfig(*about, preprocess, "", "", versions()))
    run.write_weights(model, model.state_dict())
    return str(run.path)
