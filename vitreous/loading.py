"""A run that was opened becomes a predictor: its model with its weights, or its graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from vitreous.config import pair
from vitreous.data.preprocess import Preprocess
from vitreous.engines.device import find_device
from vitreous.engines.fewer_tokens import merge_tokens
from vitreous.engines.graph import GraphEngine, open_graph
from vitreous.engines.probes import Probes
from vitreous.engines.torch import TorchEngine
from vitreous.errors import ConfigError
from vitreous.import_run import ExportedRun, open_run
from vitreous.inference import USUAL, InferenceOptions
from vitreous.models import FAMILIES
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.resized_run import at_size
from vitreous.run_folder import OpenedRun
from vitreous.tasks import task_class
from vitreous.weights.importing import import_weights
from vitreous.worded_run import with_words


def predictor_of(run: OpenedRun, options: InferenceOptions = USUAL) -> Predictor:
    """A run folder is computed by torch, in float32 or bfloat16; a file by what its suffix says, or
    another engine that can run it. `vitreous.deploy.engine.load_with` has all others."""
    is_file = isinstance(run, ExportedRun)
    run = run if is_file else adapted(run, options)
    config = run.config
    device = find_device("cpu" if is_file and options.device is None else options.device)
    options = replace(options, device=device)
    engine: GraphEngine | TorchEngine
    if isinstance(run, ExportedRun):
        engine = graph_engine(run, options)
    else:
        model = run.create_model()
        if options.merge is not None:
            merge_tokens(model, options.merge)
        import_weights(model, run.stored_weights(), "vitreous", **run.fit)
        precision = options.precision or "float32"
        probes = Probes.of(model, options.probe or (), options.probe_seed)
        engine = TorchEngine(model.to(device).eval(), precision, options.threads, probes)
    task = task_class(config.task).restored(config.labels, config.decoding)
    if task.teacher:  # loaded when it is asked
        named = InferenceOptions(device=device)
        teacher = cache(
            lambda: vectors_for(predictor_of(open_run(task.teacher), named), config.preprocess)
        )
        task.ask = lambda images: teacher()(images)
    return Predictor(engine, config.preprocess, task, options)


def adapted(run: OpenedRun, options: InferenceOptions, log: Log = silent) -> OpenedRun:
    """The run with the classes and the image size that the options name."""
    worded = with_words(run, options.classes, options.templates, log=log)
    return at_size(worded, options.image_size)


def graph_engine(run: ExportedRun, options: InferenceOptions = USUAL) -> GraphEngine:
    """Of an exported file; what it says about itself is compared with its graph."""
    config = run.config
    if options.merge not in (None, config.merge):
        raise ConfigError(
            f"merge = {options.merge}: {run.reference} was exported with merge = {config.merge}, "
            f"which cannot be changed any more: export its run folder with --merge {options.merge}"
        )
    if options.image_size is not None:
        height, width = pair("image_size", config.preprocess.image_size)
        raise ConfigError(
            f"image_size = {options.image_size}: {run.reference} was exported for {height}x{width} "
            "and takes no other size: give its run folder"
        )
    if options.classes is not None:
        raise ConfigError(
            f"classes: {run.reference} was exported with its own, and takes no others: export the "
            "run folder with these"
        )
    if options.probe is not None:
        raise ConfigError(
            f"probe = {list(options.probe)}: {run.reference} is a graph, in which nothing can be "
            "changed: give its run folder"
        )
    if options.device is not None and find_device(options.device).type != "cpu":
        raise ConfigError(f"device = {str(options.device)!r}: exported files run on the CPU")
    graph = open_graph(run.file, options.engine, options.threads, verify=run.verify)
    family, classes = FAMILIES[config.family].model, len(config.labels)
    return GraphEngine(graph, family, config.preprocess, run.path, classes)


def vectors_for(teacher: Predictor, preprocess: Preprocess) -> Callable[[Tensor], Tensor]:
    """What a model gives for images that another one's preprocessing has prepared: it sees the same
    pixels, at its own size and with its own mean and std."""
    translate = preprocess.translator(teacher.preprocess, teacher.device)

    @torch.no_grad()
    def vectors(images: Tensor) -> Tensor:
        return teacher.model.core.vectors(translate(images.to(teacher.device)))

    return vectors
