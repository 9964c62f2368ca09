"""The models of a server: their names, and how they are loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitreous.engines.table import FORMATS
from vitreous.errors import ConfigError
from vitreous.import_run import open_run
from vitreous.predict import Predictor
from vitreous.run_folder import OpenedRun
from vitreous.serve.app import Load
from vitreous.serve.examples import read_examples
from vitreous.serve.metrics import ServerMetrics
from vitreous.serve.served import ServedModel
from vitreous.serve.settings import Settings

LoadPredictor = Callable[..., Predictor]
"""`vitreous.load`, which stands above this layer."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def named_models(given: Sequence[str]) -> dict[str, str]:
    """Of NAME=PATH, or PATH alone, which is called like its last part."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or "/" in name or not _NAME.fullmatch(name):
            path = text
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", _last_part(text)).strip("-.")[:64]
        if not _NAME.fullmatch(name) or not path:
            raise ConfigError(f"{text}: give it a name of letters and digits: NAME={path}")
        if name in found:
            raise ConfigError(
                f"two models are called {name!r}: {found[name]} and {path}: give one another name, "
                f"NAME={path}"
            )
        found[name] = path
    return found


def _last_part(text: str) -> str:
    path = Path(text).resolve() if Path(text).exists() else Path(text)
    return path.stem if path.suffix in FORMATS else path.name


def loader(settings: Settings, load: LoadPredictor) -> Load:
    """What loads all models and warms them up, for the app."""
    return partial(_load, settings, load)


def load_model(path: str, settings: Settings, load: LoadPredictor) -> tuple[OpenedRun, Predictor]:
    """Here and in every worker."""
    run = open_run(path, verify=settings.inference.verify)
    options = replace(settings.inference, max_pixels=settings.limits.pixels)
    return run, load(run, **vars(options))


def _load(
    settings: Settings, load: LoadPredictor, pool: ThreadPoolExecutor, metrics: ServerMetrics
) -> dict[str, ServedModel]:
    found = {}
    for name, path in settings.models.items():
        run, predictor = load_model(path, settings, load)
        examples = read_examples(name, run, settings.examples, settings.limits.pixels)
        found[name] = ServedModel(
            *(name, predictor, run.config, settings.limits, pool, metrics, examples)
        )
        found[name].warm_up()
    return found
