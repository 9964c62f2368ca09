"""`vitreous benchmark`: how fast a model is here, by each engine and in each library, with the same
answers.

All ways take turns, round by round, so that other work on the machine slows all of them; the first
round warms up and is not counted. Peers get the same weights, and each way is compared with torch
in float32 before it is timed.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.config import choice, to_dict
from vitreous.data.preprocess import Preprocess
from vitreous.deploy.engine import SUFFIXES, cached_file
from vitreous.deploy.export import batch_of, some_images
from vitreous.errors import ConfigError, VitreousError
from vitreous.import_run import open_run
from vitreous.labels import LabelMap
from vitreous.models import create
from vitreous.models import names as model_names
from vitreous.models.model import Model
from vitreous.models.names import translate
from vitreous.models.summary import summarise
from vitreous.predict import load
from vitreous.run_folder import Run, RunConfig, versions
from vitreous.tasks import task_of_model
from vitreous.tasks.task import is_classifier
from vitreous.weights.rules.exporting import export_weights
from vitreous.weights.rules.keys import family_of
from vitreous.weights.timm_files import make_timm_config
from vitreous.weights.transformers_files import make_config

Log = Callable[[str], None]
Way = Callable[[Tensor], Tensor]
"""Images -> the first of the model's outputs."""
ENGINES = ("torch", *SUFFIXES)
PEERS = ("timm", "transformers")
PEAK_SIDE = 1024
"""Of the square matrices whose product measures what the machine can do."""


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
    difference: float
    """Of the first output from torch's in float32, relative to its largest value."""
    peak_part: float
    """Floating-point operations per second, as a part of what the machine reaches with large
    matrices, both at their best."""


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
    engines: Sequence[str] = ENGINES,
    against: Sequence[str] = (),
    rounds: int = 10,
    log: Log = lambda text: None,
) -> Benchmark:
    """Of a run folder, or of a model by its name with random weights."""
    for name in engines:
        choice("engine", name, ENGINES)
    for name in against:
        choice("against", name, PEERS)
    if rounds < 2 or any(batch < 1 for batch in batches) or not batches:
        raise ConfigError(f"rounds = {rounds}, batch = {list(batches)}: expected at least 2 and 1")
    with tempfile.TemporaryDirectory() as kept:
        run = _as_run(what, Path(kept))
        folder = open_run(run)
        config = folder.read_config()
        predictor = load(run, "cpu")
        model = predictor.model
        ways: dict[str, Way] = {"torch": lambda images: _first(model.outputs(images))}
        left_out: dict[str, str] = {}
        for name in (*(name for name in engines if name != "torch"), *against):
            try:
                peer = name in PEERS
                ways[name] = _peer(name, model) if peer else _engine(name, folder, run, log)
            except VitreousError as error:
                left_out[name] = str(error)
                log(f"{name} is left out: {error}")
        stored = some_images(None, config.preprocess.channels)
        began = time.perf_counter()
        prepared = [config.preprocess(image) for image in stored]
        preprocessing = 1000 * (time.perf_counter() - began) / len(prepared)
        size = predictor.engine.image_size
        flops = sum(row.flops for row in summarise(model))
        peak = _peak(rounds)
        timings = []
        for batch in batches:
            log(f"batches of {batch}: {rounds} rounds of {', '.join(ways)}")
            images = batch_of(prepared, batch, size)
            timings += _timed(ways, images, rounds, flops, peak)
    return Benchmark(
        *(model.name or family_of(model), size, flops, torch.get_num_threads(), peak),
        *(preprocessing, [each for each in timings if each.way in (*engines, *against)], left_out),
    )


def _timed(
    ways: dict[str, Way], images: Tensor, rounds: int, flops: int, peak: float
) -> list[Timing]:
    count = len(images)
    wanted = ways["torch"](images)
    apart = {
        name: float((way(images) - wanted).abs().max() / wanted.abs().max().clamp(min=1e-9))
        for name, way in ways.items()
    }  # and all of them are warm
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way(images)
            taken[name].append((time.perf_counter() - began) / count)
    found = []
    for name, each in taken.items():
        best, median = min(each), statistics.median(each)
        late = sorted(each)[min(int(0.95 * len(each)), len(each) - 1)]
        speed = flops / best / peak
        numbers = (1000 * best, 1000 * median, 1000 * late, 1 / median, apart[name], speed)
        found.append(Timing(name, count, *numbers))
    return found


def _first(outputs: dict[str, Tensor]) -> Tensor:
    return next(iter(outputs.values()))


def _engine(name: str, folder: Run, run: str, log: Log) -> Way:
    engine = load(cached_file(folder, run, name, log)).engine
    return lambda images: _first(engine.tensors(images))  # type: ignore[attr-defined]


def _peer(name: str, model: Model) -> Way:
    """Another library's model with the same weights."""
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"{name} is not installed: pip install {name}")
    module = _timm(model) if name == "timm" else _transformers(model)
    module.eval()

    def way(images: Tensor) -> Tensor:
        found = module(images)
        return found if isinstance(found, Tensor) else found.logits

    return way


def _timm(model: Model) -> nn.Module:
    import timm

    config = make_timm_config(model, (), {})
    options = {"num_classes": config["num_classes"], "in_chans": model.config.channels}
    found: nn.Module = timm.create_model(
        config["architecture"], **options, **config.get("model_args", {})
    )
    found.load_state_dict(export_weights(model, "timm"))
    return found


def _transformers(model: Model) -> nn.Module:
    import transformers

    values = make_config(model)
    kind = getattr(transformers, values["architectures"][0])
    found: nn.Module = kind(transformers.AutoConfig.for_model(**values))
    # Buffers that transformers computes itself may be missing, weights may not.
    missing, unknown = found.load_state_dict(export_weights(model, "huggingface"), strict=False)
    weights = [name for name in missing if name in dict(found.named_parameters())]
    if weights or unknown:
        names = ", ".join([*weights, *unknown])
        raise ConfigError(f"transformers' model has other weights: {names}")
    return found


def _peak(rounds: int) -> float:
    """FLOP per second of a product of large matrices."""
    one, other = torch.randn(PEAK_SIDE, PEAK_SIDE), torch.randn(PEAK_SIDE, PEAK_SIDE)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        torch.mm(one, other)
        taken.append(time.perf_counter() - began)
    return float(2 * PEAK_SIDE**3 / min(taken))


def _as_run(what: str, kept: Path) -> str:
    """The run that is meant; of a model's name one with random weights, which is thrown away."""
    if Path(what).exists() or (translate(what) or what) not in model_names():
        return what
    if not is_classifier(what):
        raise ConfigError(
            f"{what} is no classifier: give a run folder, which has its preprocessing"
        )
    model = create(what)
    run = Run(kept / "run")
    run.path.mkdir()
    size, channels = model.own_size(), model.config.channels
    classes = [str(number) for number in range(model.config.classes)]
    labels = LabelMap(tuple(classes), tuple(range(len(classes))))
    family = family_of(model)
    about = (model.name, family, to_dict(model.config), task_of_model(family), labels)
    run.write_config(RunConfig(*about, Preprocess(size, channels=channels), "", "", versions()))
    run.write_weights(model, model.state_dict())
    return str(run.path)
