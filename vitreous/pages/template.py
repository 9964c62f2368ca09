"""Pages from the templates in templates/: what is filled in is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.pages.figure import svg
from vitreous.pages.words import english

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def program(*files: Path) -> str:
    """JavaScript modules, for a page that has them in one script: without imports and exports."""
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    kept = [line.removeprefix("export ") for line in lines if not line.startswith("import ")]
    return "\n".join(kept)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("vitreous.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["svg"] = svg
    made.filters["english"] = english
    made.globals["script"] = lambda *names: Markup(program(*(TEMPLATES / name for name in names)))
    return made
