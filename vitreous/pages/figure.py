"""How figures look and where they go: PNG files, and SVG inside pages that is light or dark as the
page is. All figures are drawn by matplotlib, without pyplot: nothing global, and no window system.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from vitreous.atomic_write import making_folder, replacing
from vitreous.pages.pictures import smaller_url

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

P = ParamSpec("P")

INK, SOFT, LINE = "#1d2733", "#5d6b7a", "#d7dee6"
ACCENTS = ("#1f6feb", "#c2410c", "#15803d")
VARIABLES = dict(zip((INK, SOFT, LINE, *ACCENTS), ("ink", "soft", "line", *"abc"), strict=True))
"""In a page each of these colours is the variable of this name, which base.html gives a value for
light and for dark."""
DASHES = ("-", (0, (5, 3)), (0, (1.5, 2)))
"""Lines differ by their dashes, not by colour alone."""
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a class may be called $x$
    "svg.fonttype": "none",
    "svg.hashsalt": "vitreous",  # the same figure gives the same bytes
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.labelsize": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.labelcolor": SOFT,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """A function that draws a figure, in our style; matplotlib is imported when it is called."""

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> Figure:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **options)

    return drawn


def new_figure(width: float, height: float) -> Figure:
    """In inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> Path:
    with making_folder(path.parent), replacing(path, sync=False) as temporary:
        _written(figure, temporary, format="png", dpi=180, facecolor="white")
    return path


def svg(figure: Figure, least: float = 0.7) -> Markup:
    """The figure as an element of a page: text stays text, colours follow the page. It is at least
    so many times its own size."""
    from markupsafe import Markup

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    _written(figure, buffer, format="svg", dpi=110, transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for useless in (r"<!--.*?-->", r"<metadata>.*?</metadata>", r"<style.*?</style>"):
        text = re.sub(useless, "", text, flags=re.DOTALL)
    text = re.sub(r'(<(?:g|image)\b[^>]*?) id="[^"]*"', r"\1", text)
    text = re.sub(r'data:image/png;base64,[^"]*', lambda url: smaller_url(url[0]), text)
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    wide = 72 * figure.get_figwidth()
    size = f'style="min-width:{least * wide:.0f}px;max-width:{1.6 * wide:.0f}px" role="img"'
    text = re.sub(r'^(<svg\b[^>]*?) width="[^"]*"', rf"\1 {size}", text)
    text = re.sub(r'^(<svg\b[^>]*?) height="[^"]*"', r"\1", text)
    return Markup(re.sub(r"\s*\n\s*", "\n", text))


def _written(figure: Figure, file: Any, **options: Any) -> None:
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure.savefig(file, **options)
