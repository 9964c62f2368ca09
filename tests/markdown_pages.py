"""What the pages of the documentation have in common: headings, sections, links, anchors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FENCED = re.compile(r"^```.*?^```\n?", flags=re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+")
HEADING = re.compile(r"^(#+) (.+)$", flags=re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Heading(NamedTuple):
    level: int
    title: str

    @property
    def anchor(self) -> str:
        """As GitHub makes it: lower case, no punctuation, hyphens for spaces."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


class Section(NamedTuple):
    heading: Heading
    text: str


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return INDENTED.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))


def sections(page: Path) -> list[Section]:
    """Each heading with what stands below it, up to the next heading of any level."""
    _, *parts = HEADING.split(prose(page))
    return [
        Section(Heading(len(marks), title), text)
        for marks, title, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def headings(page: Path) -> list[Heading]:
    return [section.heading for section in sections(page)]


def links(text: str) -> list[str]:
    """The targets of all links and images to other files and anchors of the repository."""
    return [target for target in LINK.findall(text) if not target.startswith("http")]


def dead_links(page: Path) -> list[str]:
    """Those to a file, or to a heading of a page, that there is not."""

    def leads(target: str) -> bool:
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        return file.exists() and (not anchor or anchor in {each.anchor for each in headings(file)})

    return [target for target in links(prose(page)) if not leads(target)]
