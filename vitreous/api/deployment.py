"""`vitreous export` and `benchmark`, and `vitreous.load`: the engines that run a model."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder, Log, to_stderr
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from vitreous.deploy.benchmark import Benchmark
    from vitreous.deploy.export import Exported
    from vitreous.predict import Predictor


def load(
    run: Folder,
    device: Any = None,
    *,
    engine: str = "torch",
    max_pixels: int | None = None,
    tile: int | None = None,
    overlap: float | None = None,
    nms: float | None = None,
    merge: int | None = None,
    log: Log | None = None,
) -> Predictor:
    """The predictor of a run folder, or of a file that `export` wrote; or of
    hf:OWNER/NAME[@REVISION], a name from the catalog, or a folder of transformers or timm, which is
    imported into the cache first.

    `engine` is torch, onnxruntime, openvino, or auto, the fastest of them here; all but torch run
    an exported file, which is made, verified and kept in the cache when it is first needed. It
    refuses images of more than `max_pixels` pixels. With `merge=r`, every block of a ViT merges r
    patches with others that are like them: faster, and less exact. `tile`, `overlap` and `nms`: see
    `vitreous.predict.load`.
    """
    from vitreous.predict import load

    if not isinstance(run, str | os.PathLike):
        raise ConfigError(f"run = {run!r}: expected the path of a run folder")
    options: dict[str, Any] = {"device": device, "tile": tile, "overlap": overlap, "nms": nms}
    options["merge"] = merge
    if max_pixels is not None:
        options["max_pixels"] = max_pixels
    if engine == "torch":
        return load(os.fspath(run), **options)
    from vitreous.deploy.engine import load_with

    if device is not None and str(device) != "cpu":
        raise ConfigError(f"engine = {engine!r} runs on the CPU, not on {device}")
    return load_with(os.fspath(run), engine, log=log or to_stderr, **options)


def export(
    run: Folder,
    file: Folder,
    *,
    data: str | None = None,
    input: str = "float32",
    merge: int = 0,
    force: bool = False,
    log: Log | None = None,
) -> Exported:
    """Write the model of a run folder to a .onnx, .xml (OpenVINO) or .pt2 (torch.export) file,
    which `load` takes like a run folder.

    It is verified on images of `data` (generated ones unless given) before it is written. `input`
    is float32, for normalised values, or uint8: then the graph normalises. `merge` is that of
    `load`. A file that exists is replaced only with `force`.
    """
    import torch

    from vitreous.deploy.export import export, some_images
    from vitreous.deploy.merging import Comparison
    from vitreous.import_run import open_run
    from vitreous.predict import load

    path = Path(file)
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: choose another name, or replace it with --force")
    folder = open_run(run)
    config = replace(folder.read_config(), merge=merge)
    images = some_images(data, config.preprocess.channels)
    predictor = load(os.fspath(run), "cpu", merge=merge)
    done = export(
        predictor,
        config,
        path,
        images,
        recipe=folder.recipe_text(),
        input=input,
        log=log or to_stderr,
    )
    if not merge:
        return done
    comparison = Comparison({0: load(os.fspath(run), "cpu"), merge: predictor})
    for start in range(0, len(images), 8):
        part = images[start : start + 8]
        sizes = [(image.shape[1], image.shape[2]) for image in part]
        comparison.add(torch.stack([config.preprocess(image) for image in part]), sizes)
    return replace(done, merging=asdict(comparison.found()[1]))


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
    against, rounds, data, memory, changes.
    """
    import torch

    from vitreous.deploy.benchmark import benchmark

    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        found = benchmark(os.fspath(run), log=log or to_stderr, **options)
    finally:
        torch.set_num_threads(before)
    if figure is not None:
        from vitreous.pages.benchmark import benchmark_figure
        from vitreous.pages.figure import save

        save(benchmark_figure(found), Path(figure))
    return found
