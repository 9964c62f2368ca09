"""Pages from the templates in templates/: what is filled in is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from vitreous.pages.figure import svg

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("vitreous.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["svg"] = svg
    return made
