"""What the course's pages embed, for a notebook: the living page at a step, and figures."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from vitreous.course.html import Words, drawn_figure
from vitreous.course.text import Language


@cache
def _living_page() -> tuple[str, bool]:
    """And whether the model runs in it."""
    from vitreous.course.site import write_living

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "living.html")
        live = write_living(path)
        return path.read_text(encoding="utf-8"), live


@dataclass(frozen=True)
class InlineHTML:
    """HTML that a notebook shows."""

    html: str

    def __repr__(self) -> str:
        return "a notebook shows this"

    def _repr_html_(self) -> str:
        return self.html


def living(step: str | None = None, *, lang: Language = "en", **options: object) -> InlineHTML:
    """The living page of the digits model, at a step: `living("scores", block=1, head=2)`."""
    page, live = _living_page()
    given = {"only": "steps", **({} if step is None else {"step": step}), **options, "lang": lang}
    fragment = "&".join(f"{key}={value}" for key, value in given.items())
    page = page.replace("<head>", f"<head><script>location.hash={fragment!r}</script>", 1)
    note = "" if live else f"<small>{Words(lang)('stored')}</small>"
    return InlineHTML(
        f'<iframe srcdoc="{escape(page)}" style="width:100%;height:560px;border:0"></iframe>{note}'
    )


def figure(chapter: int, name: str, lang: Language = "en") -> InlineHTML:
    """A figure of a chapter."""
    from vitreous.pages.figure import INK, LINE, SOFT

    named = {"ink": INK, "soft": SOFT, "line": LINE, "a": "#1f6feb", "b": "#c2410c", "c": "#15803d"}
    colours = ";".join(f"--{name}:{colour}" for name, colour in named.items())
    drawn = drawn_figure(chapter, name, lang)
    return InlineHTML(f'<div style="{colours};background:#fff;max-width:40rem">{drawn}</div>')
