"""`vitreous export` and `benchmark`, and `vitreous.load`: the engines that run a model."""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder, to_stderr
from vitreous.errors import ConfigError, DataError, VitreousError
from vitreous.inference import InferenceOptions
from vitreous.progress import Log

if TYPE_CHECKING:
    from vitreous.deploy.benchmark import Benchmark
    from vitreous.deploy.export import Exported
    from vitreous.deploy.loss import Trial
    from vitreous.predict import Predictor
    from vitreous.run_folder import OpenedRun


def load(
    run: Folder | OpenedRun, device: Any = None, *, log: Log | None = None, **options: Any
) -> Predictor:
    """The predictor of a run folder, or of a file that `export` wrote; or of
    hf:OWNER/NAME[@REVISION], a name from the catalog, or a folder of transformers or timm, which is
    imported into the cache first.

    `options` are the fields of `vitreous.inference.InferenceOptions`. `engine` is torch (the
    default), onnxruntime, openvino, or auto, the fastest of them here; onnxruntime and openvino run
    an exported file, which is made, verified and kept in the cache when it is first needed.
    `precision` is float32 (the default), bfloat16, int8, which is calibrated with the run's own
    data, or auto: bfloat16 where this CPU is made for it, it is faster, and predictions agree with
    float32 in a trial. An exported file has an engine and a precision of its own. `threads` is how
    many threads compute, all cores unless given.

    Images of more than `max_pixels` pixels are refused, and those that would be enlarged to more,
    before memory is spent on them. `tile` cuts images into tiles of so many pixels that share a
    part, `overlap` (0.2), with the next one: small objects in large images are found that way.
    `nms` is the largest IoU of two boxes of a class; without it a detector predicts them all. With
    `merge=r`, every block of a ViT merges r patches with others that are like them: faster, and
    less exact. With `image_size`, the model sees images of another size than in training: learned
    positions are resampled, others computed for it. `classes` are words, of a model with a text
    tower: a list, a mapping from ids to words, or a file (docs/words.md), and `templates` the
    sentences that they stand in, "a photo of a {}." unless given. `probe` changes something inside
    while the model answers, such as ["shuffle-patches", "no-head=3.1"] (docs/explain.md), what is
    random by `probe_seed`. Weights and files that were changed after Vitreous wrote them are an
    error, unless `verify` is False.
    """
    from vitreous.import_run import open_run

    given = InferenceOptions.of({"device": device, **options})
    return load_run(open_run(run, verify=given.verify), given, log or to_stderr)


def load_run(run: OpenedRun, options: InferenceOptions, log: Log) -> Predictor:
    """The same of a run that is open; int8 is calibrated with its own data."""
    from vitreous.deploy.engine import load_with

    return load_with(run, options, lambda: _trial(run, None, None, log), log)


def _trial(run: OpenedRun, data: str | None, most: int | None, log: Log) -> Trial:
    """Images of the run's own data, or of others, with labels as far as they have some."""
    from vitreous.api.evaluation import labelled_source
    from vitreous.data.formats import open_source
    from vitreous.deploy.loss import MEASURED, Trial
    from vitreous.tasks import UNLABELLED

    try:
        source, _ = labelled_source(run, data, log)
    except DataError:
        if data is None:
            raise
        source = open_source(data, truth=UNLABELLED, val_fraction=0)
    return Trial.of(source, most or MEASURED)


def export(
    run: Folder,
    file: Folder,
    *,
    data: str | None = None,
    input: str = "float32",
    precision: str | None = None,
    max_loss: float | None = None,
    images: int | None = None,
    merge: int = 0,
    classes: Any = None,
    templates: Any = None,
    runtime: Folder | None = None,
    webgpu: bool = False,
    verify: bool = True,
    force: bool = False,
    log: Log | None = None,
) -> Exported:
    """Write the model of a run folder to a .onnx, .xml (OpenVINO) or .pt2 (torch.export) file,
    which `load` takes like a run folder; or to an .html file: a page in which the model runs, with
    every step inside (`runtime` is then a folder with onnxruntime-web, which else npm fetches;
    with `webgpu` the page, 3.7 MB larger, uses the graphics chip where a browser can).

    It is verified on images of `data` (generated ones unless given) before it is written. `input`
    is float32, for normalised values, or uint8: then the graph normalises. A file that exists is
    replaced only with `force`. `merge`, `classes`, `templates` and `verify` are those of `load`.

    `precision` is float32, bfloat16, float16 or int8. int8 is calibrated with images of train in
    `data`, or in the run's own data. What a lower precision costs is measured on up to `images`
    (1000) images of test, else val; if that is certainly (by its 95 % interval) more than
    `max_loss` (0.5) points of the task's metric, or of predictions that differ where there are no
    labels, nothing is written.
    """
    import torch

    from vitreous.deploy.export import MAX_LOSS, check_precision, export, some_images
    from vitreous.deploy.loss import agreement_of
    from vitreous.deploy.merging import merging_cost
    from vitreous.import_run import open_run
    from vitreous.loading import adapted, predictor_of

    path, words = Path(file), InferenceOptions(classes=classes, templates=templates)
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder: give the name of a file in it, like {path / 'model.onnx'}"
        )
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: choose another name, or replace it with --force")
    log = log or to_stderr
    if path.suffix.lower() in PAGES:
        given = {
            "input": input != "float32",
            "max_loss": max_loss,
            "images": images,
            "merge": merge,
        }
        if wrong := [name for name, value in given.items() if value]:
            option = wrong[0].replace("_", "-")
            raise ConfigError(f"--{option} is not for pages: leave it out")
        opened = adapted(open_run(run, verify=verify), words, log)
        return _export_page(opened, path, data, precision, runtime, webgpu, log)
    if option := "runtime" if runtime is not None else "webgpu" if webgpu else "":
        raise ConfigError(f"--{option} is for pages: give a name that ends in .html, not {path}")
    precision = check_precision(path, precision or "float32")
    _check_limits(precision, data, max_loss, images)
    opened, trial = adapted(open_run(run, verify=verify), words, log), None
    config = replace(opened.config, merge=merge)
    if precision == "int8" or (precision != "float32" and data is not None):
        trial = _trial(opened, data, images, log)
    seen = some_images(data, config.preprocess.channels) if trial is None else trial.images(16)
    predictor = predictor_of(opened, InferenceOptions(device="cpu", merge=merge))
    done = export(
        predictor,
        config,
        path,
        seen,
        recipe=opened.recipe_text(),
        input=input,
        precision=precision,
        trial=trial,
        max_loss=MAX_LOSS if max_loss is None else max_loss,
        log=log,
    )
    if not merge:
        return done
    plain = predictor_of(opened, InferenceOptions(device="cpu"))
    timed = torch.stack([config.preprocess(image) for image in seen[:8]])
    agreement = agreement_of(plain, predictor.engine, seen)
    cost = merging_cost(plain, predictor, merge, timed, agreement)
    return replace(done, merging=asdict(cost[1]))


PAGES = (".html", ".htm")
SAMPLES = 10
"""Images in a page."""


def _export_page(
    opened: OpenedRun,
    path: Path,
    data: str | None,
    precision: str | None,
    runtime: Folder | None,
    webgpu: bool,
    log: Log,
) -> Exported:
    from vitreous.deploy.export import exported_part, some_samples
    from vitreous.loading import predictor_of
    from vitreous.pages.living import living_page
    from vitreous.predict import Predictor
    from vitreous.tasks import task_class, truth_kind_of

    whole = predictor_of(opened, InferenceOptions(device="cpu"))
    model, config = exported_part(whole.model, opened.config)
    task = task_class(config.task).restored(config.labels, config.decoding)
    predictor = Predictor(model, config.preprocess, task)
    folder = None if runtime is None else Path(runtime)
    channels = predictor.preprocess.channels
    shown, known = data or _own_data(opened), set(config.labels.names)
    truth = truth_kind_of(config.task) if known else None
    source, samples = some_samples(shown, channels, SAMPLES, truth)
    named = [[name for name in source.names_of(each) if name in known] for each in samples]
    return living_page(
        predictor,
        path,
        [source.image(each) for each in samples],
        labels=[", ".join(names) for names in named],
        precision=precision,
        runtime=folder,
        webgpu=webgpu,
        log=log,
    )


def _own_data(run: OpenedRun) -> str | None:
    """The data that a run was trained on, if it is still there."""
    from vitreous.data.formats import open_source

    data = tomllib.loads(run.recipe_text() or "").get("data")
    if not isinstance(data, str):
        return None
    try:
        open_source(data)
    except VitreousError:  # it may be gone: others will do
        return None
    return data


def _check_limits(
    precision: str, data: str | None, max_loss: float | None, images: int | None
) -> None:
    """What is about the loss of a lower precision must have one to be about."""
    given = {"max_loss": max_loss, "images": images}
    named = next((name for name, value in given.items() if value is not None), None)
    if named and precision == "float32":
        raise ConfigError(f"{named} is about a lower precision, and float32 loses nothing")
    if named and precision != "int8" and data is None:
        raise ConfigError(f"{named} is about what is lost on data: pass data, too")
    if max_loss is not None and not 0 <= max_loss <= 100:
        raise ConfigError(f"max_loss = {max_loss!r}: expected points, from 0 to 100")
    if images is not None and images < 1:
        raise ConfigError(f"images = {images!r}: expected at least 1")


def benchmark(
    run: Folder,
    *,
    threads: int | None = None,
    figure: Folder | None = None,
    log: Log | None = None,
    **options: Any,
) -> Benchmark:
    """How fast the model of a run folder, an exported file, or a model by its name is on this
    machine, by each engine and in other libraries; drawn to `figure`, if that is given.

    `options` are those of `vitreous.deploy.benchmark.benchmark`: batches, engines, precisions,
    against, rounds, data, memory, changes, verify.
    """
    import torch

    from vitreous.deploy.benchmark import benchmark
    from vitreous.import_run import open_run

    before, log = torch.get_num_threads(), log or to_stderr
    for name in ("engines", "precisions", "against"):  # one may be given as it is
        if isinstance(options.get(name), str):
            options[name] = (options[name],)

    def trial() -> Trial:
        return _trial(open_run(run), options.get("data"), None, log)

    try:
        if threads is not None:
            torch.set_num_threads(threads)
        found = benchmark(os.fspath(run), trial=trial, log=log, **options)
    finally:
        torch.set_num_threads(before)
    if figure is not None:
        from vitreous.pages.benchmark import benchmark_figure
        from vitreous.pages.figure import save

        save(benchmark_figure(found), Path(figure))
    return found
