"""`vitreous export`: a trained model as a file for other engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.api.arguments import Folder, Log, to_stderr

if TYPE_CHECKING:
    from vitreous.deploy.export import Exported


def export(
    run: Folder,
    file: Folder,
    *,
    data: str | None = None,
    input: str = "float32",
    force: bool = False,
    log: Log | None = None,
) -> Exported:
    """Write the model of a run folder to a .onnx, .xml (OpenVINO) or .pt2 (torch.export) file,
    which `load` takes like a run folder.

    It is verified on images of `data` (generated ones unless given) before it is written. `input`
    is float32, for normalised values, or uint8: then the graph normalises. A file that exists is
    replaced only with `force`.
    """
    from vitreous.deploy.export import export, some_images
    from vitreous.errors import ConfigError
    from vitreous.import_run import open_run
    from vitreous.predict import load

    path = Path(file)
    if path.exists() and not force:
        raise ConfigError(f"{path} exists: choose another name, or replace it with --force")
    folder = open_run(run)
    config = folder.read_config()
    images = some_images(data, config.preprocess.channels)
    predictor = load(os.fspath(run), "cpu")
    return export(
        predictor,
        config,
        path,
        images,
        recipe=folder.recipe_text(),
        input=input,
        log=log or to_stderr,
    )
