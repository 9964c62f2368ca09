"""`vitreous export` and `benchmark`, and `vitreous.load`: the engines that run a model."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder, Log, to_stderr
from vitreous.errors import ConfigError, DataError

if TYPE_CHECKING:
    from vitreous.deploy.benchmark import Benchmark
    from vitreous.deploy.export import Exported
    from vitreous.deploy.loss import Trial
    from vitreous.predict import Predictor


def load(
    run: Folder,
    device: Any = None,
    *,
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    max_pixels: int | None = None,
    tile: int | None = None,
    overlap: float | None = None,
    nms: float | None = None,
    merge: int | None = None,
    verify: bool = True,
    log: Log | None = None,
) -> Predictor:
    """The predictor of a run folder, or of a file that `export` wrote; or of
    hf:OWNER/NAME[@REVISION], a name from the catalog, or a folder of transformers or timm, which is
    imported into the cache first.

    `engine` is torch (the default), compile (torch.compile), onnxruntime, openvino, or auto, the
    fastest of them here but compile; onnxruntime and openvino run an exported file, which is made,
    verified and kept in the cache when it is first needed. `precision` is float32 (the default),
    bfloat16, int8, which is calibrated with the run's own data, or auto: bfloat16 where this CPU is
    made for it, it is faster, and predictions agree with float32 in a trial. An exported file has
    an engine and a precision of its own. `threads` is how many threads compute, all cores unless
    given. It refuses images of more than `max_pixels` pixels. With `merge=r`, every block of a ViT
    merges r patches with others that are like them: faster, and less exact. Weights
    and files that were changed after Vitreous wrote them are an error, unless `verify` is False.
    `tile`, `overlap` and `nms`: see `vitreous.predict.load`.
    """
    if not isinstance(run, str | os.PathLike):
        raise ConfigError(f"run = {run!r}: expected the path of a run folder")
    options: dict[str, Any] = {"device": device, "tile": tile, "overlap": overlap, "nms": nms}
    options |= {"merge": merge, "verify": verify}
    if max_pixels is not None:
        options["max_pixels"] = max_pixels
    log = log or to_stderr
    if engine in (None, "torch") and precision in (None, "float32") and threads is None:
        from vitreous.predict import load

        return load(os.fspath(run), engine=engine, **options)
    from vitreous.deploy.engine import load_with

    if device is not None and str(device) != "cpu":
        asked = {"engine": engine, "precision": precision, "threads": threads}
        what = next(f"{name} = {each!r}" for name, each in asked.items() if each is not None)
        raise ConfigError(f"{what} runs on the CPU, not on {device}")
    options["device"] = "cpu"
    ways = (engine, precision, threads)
    return load_with(
        os.fspath(run), *ways, trial=lambda: _trial(run, None, None, log), log=log, **options
    )


def _trial(run: Folder, data: str | None, most: int | None, log: Log) -> Trial:
    """Images of the run's own data, or of others, with labels as far as they have some."""
    from vitreous.api.evaluation import labelled_source
    from vitreous.data.formats import open_source
    from vitreous.deploy.loss import MEASURED, Trial
    from vitreous.tasks import UNLABELLED

    try:
        source = labelled_source(run, data, (None, None, None), None, log)
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
    precision: str = "float32",
    max_loss: float | None = None,
    images: int | None = None,
    merge: int = 0,
    verify: bool = True,
    force: bool = False,
    log: Log | None = None,
) -> Exported:
    """Write the model of a run folder to a .onnx, .xml (OpenVINO) or .pt2 (torch.export) file,
    which `load` takes like a run folder.

    It is verified on images of `data` (generated ones unless given) before it is written. `input`
    is float32, for normalised values, or uint8: then the graph normalises. A file that exists is
    replaced only with `force`. `merge` and `verify` are those of `load`.

    `precision` is float32, bfloat16, float16 or int8. int8 is calibrated with images of train in
    `data`, or in the run's own data. What a lower precision costs is measured on up to `images`
    (1000) images of test, else val; if that is certainly (by its 95 % interval) more than
    `max_loss` (0.5) points of the task's metric, or of predictions that differ where there are no
    labels, nothing is written.
    """
    import torch

    from vitreous.deploy.export import MAX_LOSS, check_precision, export, some_images
    from vitreous.deploy.merging import Comparison
    from vitreous.import_run import open_run
    from vitreous.predict import load

    path = Path(file)
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder: give the name of a file in it, like {path / 'model.onnx'}"
        )
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: choose another name, or replace it with --force")
    precision, log = check_precision(path, precision), log or to_stderr
    _check_limits(precision, data, max_loss, images)
    folder = open_run(run)
    config, trial = replace(folder.read_config(), merge=merge), None
    if precision == "int8" or (precision != "float32" and data is not None):
        trial = _trial(run, data, images, log)
    seen = some_images(data, config.preprocess.channels) if trial is None else trial.images(16)
    predictor = load(os.fspath(run), "cpu", merge=merge, verify=verify)
    done = export(
        predictor,
        config,
        path,
        seen,
        recipe=folder.recipe_text(),
        input=input,
        precision=precision,
        trial=trial,
        max_loss=MAX_LOSS if max_loss is None else max_loss,
        log=log,
    )
    if not merge:
        return done
    comparison = Comparison({0: load(os.fspath(run), "cpu", verify=verify), merge: predictor})
    for start in range(0, len(seen), 8):
        part = seen[start : start + 8]
        sizes = [(image.shape[1], image.shape[2]) for image in part]
        comparison.add(torch.stack([config.preprocess(image) for image in part]), sizes)
    return replace(done, merging=asdict(comparison.found()[1]))


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

    before, log = torch.get_num_threads(), log or to_stderr
    for name in ("engines", "precisions", "against"):  # one may be given as it is
        if isinstance(options.get(name), str):
            options[name] = (options[name],)
    trial = partial(_trial, run, options.get("data"), None, log)
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
