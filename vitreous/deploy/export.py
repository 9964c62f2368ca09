"""`vitreous export`: a trained model as one file that other engines run, with all it needs to know.

The graph is traced once by torch.export and written as ONNX, OpenVINO or torch's own format. Before
the file gets its name, it is opened as users will open it, and must give the same predictions as
torch does on real images; otherwise nothing is written. A lower precision is judged by the metric,
which may lose half a point on the user's images.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.atomic_write import check_writable, making_folder, naming_file, renaming_files
from vitreous.config import changed, choice, pair
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.deploy.for_tracing import for_tracing
from vitreous.deploy.graph_files import write_graph
from vitreous.deploy.loss import Loss, Trial, agreement_of, measured_loss
from vitreous.deploy.rewrite import fold_normalisation, rewrite
from vitreous.engines.graph import (
    INPUTS,
    GraphEngine,
    Note,
    graph_input,
    open_graph,
    read_file,
)
from vitreous.engines.precision import check_bfloat16, precision_named
from vitreous.engines.table import FORMATS
from vitreous.errors import ConfigError, DataError, VitreousError, Word, advice
from vitreous.labels import NoLabels
from vitreous.models import family_of, stored_fields
from vitreous.models.model import Model
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.run_folder import RunConfig
from vitreous.tasks import UNLABELLED, task_class
from vitreous.wording import counted

TOLERANCE = 1e-4
"""The largest difference of an output, relative to its largest value."""
LEAST_AGREEMENT = 0.9
"""Of a lower precision, where there are no images to measure its loss on: the few that are verified
on are unlike the user's, and what is broken agrees on none of them."""
FEW = 50
"""Images on which points lost are mostly chance."""
MAX_LOSS = 0.5
"""Points of the metric that a lower precision may lose."""
BATCHES = (1, 2, 5)
"""That every file is tried with."""
TIES, NOISE = 4, 0.01
"""How often an image is tried again whose tokens are merged otherwise, and with how much noise."""
SHORTEST, LONGEST = 64, 4096
"""Of a side, where height and width are free."""
NOT_CARRIED = {
    (".onnx", "bfloat16"): "ONNX Runtime does not compute in it on a CPU: write .xml or .pt2, or "
    "halve the file with float16",
    (".pt2", "float16"): "torch would compute in it, which CPUs are slow at: write .onnx or .xml, "
    "where weights are stored in it, or take bfloat16",
    (".pt2", "int8"): "torch.export's files have no integers here: write .xml or .onnx",
}
"""What a format cannot do, and what to do instead."""


class ExportError(VitreousError):
    """A model that another engine does not compute as torch does."""


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with torch in float32."""

    path: Path
    format: str
    engine: str
    """Which it was verified with."""
    precision: str
    bytes: int
    difference: float
    """The largest of an output, relative to its largest value."""
    images: int
    """On so many images,"""
    agreement: float
    """how far the predictions are the same, in the mean, from 0 to 1."""
    loss: Loss | None = None
    """Of a lower precision, where there was data to measure it on."""
    merging: dict[str, Any] | None = None
    """What merging tokens gains and costs on these images, in torch: the fields of
    `vitreous.deploy.merging.Merged`."""


class Traced(nn.Module):
    """What the graph computes: the model's outputs by name, and the normalisation if it is in it,
    which becomes part of the model's first layer if that can be. What it takes and gives is in
    float32, whatever the model's weights are."""

    def __init__(self, model: Model, preprocess: Preprocess | None) -> None:
        super().__init__()
        self.model, self.preprocess = model, preprocess
        if preprocess is not None:
            scaled = ([255 * value for value in each] for each in (preprocess.mean, preprocess.std))
            self.folded = fold_normalisation(model, *scaled) == 1
            for name in ("mean", "std"):
                values = torch.tensor(getattr(preprocess, name)).view(-1, 1, 1)
                self.register_buffer(name, values)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.preprocess is not None:
            images = images.float()
            if not self.folded:  # then the first layer takes them as they are
                mean, std = self.get_buffer("mean"), self.get_buffer("std")
                images = (images / 255 - mean) / std
        outputs = self.model.outputs(images.to(next(self.model.parameters()).dtype))
        return tuple(values.float() for values in outputs.values())


@torch.no_grad()
def export(
    predictor: Predictor,
    config: RunConfig,
    path: Path,
    images: Sequence[Tensor],
    *,
    recipe: str | None = None,
    input: str = "float32",
    precision: str = "float32",
    trial: Trial | None = None,
    max_loss: float = MAX_LOSS,
    log: Log = silent,
) -> Exported:
    """Write the model of `predictor` to `path`, whose suffix says how, verified on `images`, which
    are (c, h, w) as they are stored. A lower precision may lose `max_loss` points on the images of
    `trial`; int8 needs them."""
    precision = check_precision(path, precision)
    check_writable(path.parent, named=path)
    if precision == "int8" and trial is None:
        given = advice(": pass ", data=Word("DATA"))
        raise ConfigError(f"precision = 'int8' is calibrated with images of yours{given}")
    input = choice("input", input, INPUTS)
    model, config = exported_part(predictor.model, config)
    any_size = config.preprocess.whole and not predictor.task.windows and not is_square(config)
    if any_size and family_of(model.core) != "resnet":
        raise ConfigError(
            f"{model.name or family_of(model)} takes images of any proportions, and its backbone "
            "cannot be traced for them: train it with --resize square"
        )
    log(f"tracing {model.name or family_of(model)}")
    constant = for_tracing(copy.deepcopy(model))
    rewrite(constant)
    if path.suffix == ".pt2" and precision == "bfloat16":
        constant.to(torch.bfloat16)
    module = Traced(constant, config.preprocess if input == "uint8" else None).eval()
    program = traced(module, config.preprocess, input, any_size=any_size)
    names = tuple(model.outputs(example_of(config.preprocess, 1)))
    about = json.dumps(replace(config, checksums={}).to_dict())  # which are of the run folder
    note = Note(about, recipe or "", names, input, precision, any_size)
    task = task_class(config.task).restored(config.labels, config.decoding)
    reference = Predictor(model, config.preprocess, task)
    with (
        making_folder(path.parent),
        renaming_files(path.parent, path, last=lambda each: each.name == path.name) as folder,
    ):
        file = folder / path.name
        log(f"writing {FORMATS[path.suffix]}" + f" in {precision}" * (precision != "float32"))
        with naming_file(path):
            write_graph(program, note, file, calibration(reference, trial, input))
        graph = open_graph(read_file(file))
        engine = GraphEngine(graph, type(model), config.preprocess, file, len(config.labels))
        log(f"verifying with {graph.engine}")
        apart, agreement = compared(engine, reference, images)
        loss = None
        if precision != "float32" and trial is not None:
            loss = measured_loss(reference, engine, trial, log)
            if loss.images < FEW:
                few = counted(loss.images, "image")
                log(f"from {few} little is learned about what is lost: pass more as data")
        why = fault(graph.engine, precision, apart, agreement, loss, max_loss)
        if why:
            raise ExportError(f"{path} was not written: {why}")
        if loss is not None and loss.points > max_loss:
            log(
                f"{precision}: {loss.points:.2f} points are more than {max_loss:g}, but may be "
                f"chance: {counted(loss.images, 'image')} cannot tell. More of them can"
            )
        size = sum(each.stat().st_size for each in folder.iterdir())
    return Exported(
        path,
        FORMATS[path.suffix],
        graph.engine,
        note.precision,
        size,
        apart,
        len(images),
        agreement,
        loss,
    )


def check_precision(path: Path, word: str) -> str:
    """The precision that is meant, which a file of this suffix must be able to have."""
    if path.suffix not in FORMATS:
        known = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        raise ConfigError(f"{path}: the suffix says what to write: {known}")
    precision = precision_named(word)
    if (path.suffix, precision) in NOT_CARRIED:
        why = NOT_CARRIED[path.suffix, precision]
        raise ConfigError(f"precision = {precision!r} for {path}: {why}")
    if precision == "bfloat16":
        check_bfloat16()  # it is verified here
    return precision


def fault(
    engine: str, precision: str, apart: float, agreement: float, loss: Loss | None, limit: float
) -> str:
    """Why a file is not good enough, or nothing."""
    if precision == "float32":
        if not apart <= TOLERANCE:
            return (
                f"{engine} differs from torch by {apart:.1e} of the largest output, more than "
                f"{TOLERANCE:g}"
            )
    elif loss is not None:
        if loss.above(limit):
            remedy = "allow more with --max-loss, or take another precision"
            if not loss.metric:
                remedy += ", or give data with labels: it may lose fewer points than differ"
            return f"{precision} costs more than {limit:g} points: {loss.text}; {remedy}"
    elif not agreement >= LEAST_AGREEMENT:
        return (
            f"predictions in {precision} agree with float32's to {agreement:.2%}: pass data, to "
            "measure what is lost on images of yours"
        )
    return ""


def calibration(predictor: Predictor, trial: Trial | None, input: str) -> Iterator[NDArray[Any]]:
    """What the graph is given when the images of a trial are predicted, one at a time."""
    if trial is None:
        return
    for sample in trial.calibration:
        values = predictor.view(trial.source.image(sample), trial.source.where(sample)).values
        yield graph_input(values[None], predictor.preprocess, input)


def some_images(data: str | None, channels: int, count: int = 16) -> list[Tensor]:
    """(c, h, w) as they are stored: see `some_samples`."""
    source, samples = some_samples(data, channels, count)
    return [source.image(sample) for sample in samples]


def some_samples(
    data: str | None, channels: int, count: int, truth: str | None = None
) -> tuple[Source, Sequence[Sample]]:
    """Of a val or test split, evenly picked; without data, digits for models of gray images and
    scenes of shapes for others. With this kind of ground truth, if the data has it."""
    name = data or ("digits" if channels == 1 else "shapes:40")
    source = None
    for kind in dict.fromkeys((truth, None)):
        if source is None:
            with suppress(DataError):
                source = open_source(name, truth=kind)
    if source is None:  # images alone will do
        source = open_source(name, truth=UNLABELLED, val_fraction=0)
    splits = [source.splits[name] for name in ("val", "test", "train") if name in source.splits]
    samples = next(split for split in splits if len(split))
    return source, samples[:: max(len(samples) // count, 1)][:count]


def is_square(config: RunConfig) -> bool:
    return config.preprocess.resize == "square"


def exported_part(model: Model, config: RunConfig) -> tuple[Model, RunConfig]:
    """The model, or of one that was pre-trained without labels its encoder, which gives vectors."""
    if not task_class(config.task).pretrains or model.core is model:
        return model, config
    core = model.core
    core.config = changed(core.config, {"head": "none"})
    core.head = nn.Identity()
    family = family_of(core)
    config = replace(
        config, model=core.name or family, family=family, config=stored_fields(core.config)
    )
    return core, replace(config, task="features", labels=NoLabels(), decoding={})


def example_of(preprocess: Preprocess, count: int) -> Tensor:
    return torch.zeros(count, preprocess.channels, *pair("image_size", preprocess.image_size))


def traced(
    module: Traced, preprocess: Preprocess, input: str, *, any_size: bool
) -> torch.export.ExportedProgram:
    """The graph for batches of any length."""
    images = example_of(preprocess, 2)
    free: dict[int, Any] = {0: torch.export.Dim("batch", min=1)}
    if any_size:
        images = nn.functional.pad(images, (0, 96, 0, 32))  # else equal sides are taken for a rule
        free[2] = torch.export.Dim("height", min=SHORTEST, max=LONGEST)
        free[3] = torch.export.Dim("width", min=SHORTEST, max=LONGEST)
    given = images.to(torch.uint8) if input == "uint8" else images
    with torch.no_grad():
        return torch.export.export(module, (given,), dynamic_shapes={"images": free})


@torch.inference_mode()
def compared(
    engine: GraphEngine, reference: Predictor, images: Sequence[Tensor]
) -> tuple[float, float]:
    """The largest difference of an output on all images, in batches of several lengths, and how far
    predictions are the same."""
    model = reference.model
    prepared = [reference.preprocess(image) for image in images]
    batches = [batch_of(prepared, count, engine.image_size) for count in BATCHES]
    if engine.graph.note.any_size:
        batches += [values[None] for values in prepared]
    worst = max(difference(model, engine, batch) for batch in batches)
    return worst, agreement_of(reference, engine, images)


def difference(model: Model, engine: GraphEngine, images: Tensor) -> float:
    """The largest of an output, relative to the largest value that it has.

    Where two pairs of tokens are equally alike, rounding decides which is merged, and the outputs
    differ, as they do between torch in float32 and float64. Such an image is compared again with a
    little noise: an engine that computes something else differs then, too.
    """
    apart = _differences(model, engine, images)
    for number in range(TIES if model.merge else 0):
        again = apart > TOLERANCE
        if not again.any():
            break
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(number))
        noisy = _differences(model, engine, images + NOISE * noise)
        apart = torch.where(again, torch.minimum(apart, noisy), apart)
    return float(apart.max())


def _differences(model: Model, engine: GraphEngine, images: Tensor) -> Tensor:
    """(b,): the largest of each image."""
    found = engine.tensors(images)
    wanted = model.outputs(images, like=found)
    apart = [
        (values - found[name]).abs().flatten(1).amax(dim=1) / values.abs().max().clamp(min=1e-6)
        for name, values in wanted.items()
    ]
    return torch.stack(apart).amax(dim=0)


def batch_of(prepared: Sequence[Tensor], count: int, size: tuple[int, int]) -> Tensor:
    """So many images of one size: from the top left corner of those that are given."""
    cut = [
        nn.functional.pad(
            values[:, : size[0], : size[1]],
            (0, max(size[1] - values.shape[2], 0), 0, max(size[0] - values.shape[1], 0)),
        )
        for values in prepared
    ]
    return torch.stack([cut[number % len(cut)] for number in range(count)])
