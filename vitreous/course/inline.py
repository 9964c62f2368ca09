"""What the course's pages embed, for a notebook: the living page at a step, and figures."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from vitreous.course.figures import figure_of


@cache
def _living_page() -> str:
    from vitreous.course.site import write_living

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "living.html")
        write_living(path)
        return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class InlineHTML:
    """HTML that a notebook shows."""

    html: str

    def __repr__(self) -> str:
        return "a notebook shows this"

    def _repr_html_(self) -> str:
        return self.html


def living(step: str | None = None, **options: object) -> InlineHTML:
    """The living page of the digits model, at a step: `living("scores", block=1, head=2)`."""
    given = {"only": "steps", **({} if step is None else {"step": step}), **options}
    fragment = "&".join(f"{key}={value}" for key, value in given.items())
    page = _living_page().replace("<head>", f"<head><script>location.hash={fragment!r}</script>", 1)
    return InlineHTML(
        f'<iframe srcdoc="{escape(page)}" style="width:100%;height:560px;border:0"></iframe>'
    )


def figure(chapter: int, name: str) -> InlineHTML:
    """A figure of a chapter."""
    from vitreous.pages.figure import INK, LINE, SOFT, svg

    draw, _ = figure_of(chapter, name)
    named = {"ink": INK, "soft": SOFT, "line": LINE, "a": "#1f6feb", "b": "#c2410c", "c": "#15803d"}
    colours = ";".join(f"--{name}:{colour}" for name, colour in named.items())
    return InlineHTML(f'<div style="{colours};background:#fff;max-width:40rem">{svg(draw())}</div>')
