"""Pages as files."""

from __future__ import annotations

import os
from pathlib import Path

from vitreous.errors import ConfigError


def check_page_name(path: Path) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: a page is written: give a name that ends in .html")


def write_page(path: Path, page: str) -> Path:
    """A page that is there completely, or as it was."""
    check_page_name(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    return path
