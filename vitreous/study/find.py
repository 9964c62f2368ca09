"""The studies that ship, in the clone or installed, and what they have found; and a study by its
name or file."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

from vitreous.errors import ConfigError, did_you_mean
from vitreous.study.read import read_study
from vitreous.study.spec import Study

INSTALLED = Path("share", "vitreous", "studies")


def places() -> list[Path]:
    return [Path(__file__).parents[2] / "studies", Path(sysconfig.get_path("data")) / INSTALLED]


def shipped() -> list[Study]:
    """By name."""
    found: dict[str, Path] = {}
    for place in reversed(places()):  # the clone's own before the installed ones
        found |= {path.stem: path for path in place.glob("*.toml")}
    return [read_study(found[name]) for name in sorted(found)]


def find_study(name: str) -> Study:
    """A study file, or the name of one that ships."""
    ours = [place / f"{name}.toml" for place in places()]
    path = next((path for path in [Path(name), *ours] if path.is_file()), None)
    if path is not None:
        return read_study(path)
    if name.endswith(".toml"):
        raise ConfigError(f"{name}: there is no such study file")
    known = sorted({path.stem for place in places() for path in place.glob("*.toml")})
    hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
    raise ConfigError(f"study {name!r} is neither a file nor a study that ships{hint}")


def find_result(name: str) -> dict[str, Any] | None:
    """The study.json that ships of a study; None where it has not been measured yet."""
    files = (place / "results" / f"{name}.json" for place in places())
    path = next((path for path in files if path.is_file()), None)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))
