"""Pages as files."""

from __future__ import annotations

from pathlib import Path

from vitreous.atomic_write import making_folder, write_text
from vitreous.errors import ConfigError


def check_page_name(path: Path) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: a page is written: give a name that ends in .html")


def write_page(path: Path, page: str) -> Path:
    check_page_name(path)
    with making_folder(path.parent):
        write_text(path, page)
    return path
