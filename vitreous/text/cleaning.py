"""What is done to a text before it is cut into tokens.

A checkpoint's texts were cleaned in one way when it was trained, and its vectors are those of texts
that are cleaned so again. The steps and their order are data of the checkpoint.
"""

from __future__ import annotations

import html
import string
from collections.abc import Callable, Sequence

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _repaired(text: str) -> str:
    """Mended encodings, straight quotes, no control characters, composed accents (NFC): ftfy."""
    if text.isascii() and text.isprintable() and "&" not in text:
        return text  # it finds nothing there, and takes most of the time of a short prompt
    import ftfy  # slow to import

    return ftfy.fix_text(text)


def _without_entities(text: str) -> str:
    """Twice: people's captions have "&amp;amp;"."""
    return html.unescape(html.unescape(text))


STEPS: dict[str, Callable[[str], str]] = {
    "ftfy": _repaired,
    "html": _without_entities,
    "underscores": lambda text: text.replace("_", " "),
    "punctuation": lambda text: text.translate(_NO_PUNCTUATION),  # of ASCII
    "lower": str.lower,
    "whitespace": lambda text: " ".join(text.split()),
}
CLIP = ("ftfy", "html", "whitespace", "lower")
"""OpenAI's, with which all of CLIP's vocabulary were trained: OpenCLIP, MetaCLIP, DFN, PE."""
SIGLIP = ("lower", "punctuation", "whitespace")
"""The canonical form of big_vision's evaluations, as transformers has it."""
SIGLIP2 = ("lower",)
"""As big_vision's notebook of SigLIP 2 does it."""
OPEN_CLIP = {
    "lower": CLIP,
    "whitespace": ("ftfy", "html", "whitespace"),
    "canonicalize": ("ftfy", "html", "underscores", "punctuation", "lower", "whitespace"),
}
"""By what an open_clip_config.json calls them (`clean`)."""


def cleaned(text: str, steps: Sequence[str]) -> str:
    for step in steps:
        text = STEPS[step](text)
    return text
