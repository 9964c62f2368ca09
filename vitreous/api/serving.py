"""`vitreous serve`: models behind an address."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitreous.api.arguments import Folder, to_stderr
from vitreous.api.deployment import load
from vitreous.errors import ConfigError
from vitreous.inference import InferenceOptions
from vitreous.progress import Log

NEEDED = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")
LEAST_TOKEN = 16


def serve(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_hosts: Sequence[str] = (),
    threads: int | None = None,
    workers: int = 1,
    token: Folder | None = None,
    drain: float = 0.0,
    examples: int = 0,
    log: Log | None = None,
    **options: Any,
) -> None:
    """Serves run folders or exported files (NAME=PATH, or PATH) until SIGTERM.

    `threads` compute in each of the `workers`. `token` is a file with the token that requests must
    bear. `allow_hosts` are names by which it may be asked, besides its own. `examples` images of
    each run's own validation data are shown on the page. `options` are those of `load`, and the
    fields of `vitreous.serve.settings.Limits`.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"serving needs {', '.join(missing)}: pip install 'vitreous[serve]'")
    from vitreous.import_run import open_run
    from vitreous.serve.gate import Hosts, is_loopback
    from vitreous.serve.served import named_models
    from vitreous.serve.server import serve
    from vitreous.serve.settings import Limits, Settings

    found = named_models(models)
    for path in found.values():
        open_run(path)  # what cannot be opened is known before anything is loaded
    bounds = {name: options.pop(name) for name in vars(Limits()) if name in options}
    if options.get("max_pixels") is not None:
        bounds["pixels"] = options["max_pixels"]
    settings = Settings(
        found,
        inference=InferenceOptions.of(options),
        threads=threads,
        host=host,
        port=port,
        allow_hosts=tuple(allow_hosts),
        workers=workers,
        token="" if token is None else read_token(Path(token)),
        drain=drain,
        examples=examples,
        limits=Limits(**bounds),
    )
    Hosts.of(host, settings.allow_hosts)  # a name that cannot be one is an error here
    if not is_loopback(host) and token is None:
        (log or to_stderr)(
            f"warning: --host {host} without --token FILE: whoever reaches this machine may use "
            "the models"
        )
    serve(settings, load)


def read_token(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token {path}: cannot be read: {error}") from None
    if len(text) < LEAST_TOKEN or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ConfigError(
            f"--token {path}: expected one line of at least {LEAST_TOKEN} letters, digits and "
            "signs: openssl rand -hex 32 makes one"
        )
    return text
