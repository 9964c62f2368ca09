"""Chapters as text: Markdown with sections, code that runs, and directives, in two languages.

`chapters/NN-name.LANGUAGE.md` begins with a head in TOML between two lines of +++. A section is
`## Title {#id}`; both languages have the same ids. A line that begins with :: is a directive:
`::live scores block=1`. English code blocks have a name, ```python name, and may be followed by
what they print, ```output; the Chinese chapter has them as `::code name`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vitreous.course.study_numbers import Language
from vitreous.errors import ConfigError

FOLDER = Path(__file__).with_name("chapters")
LANGUAGES: tuple[Language, ...] = ("en", "zh")
HEADING = re.compile(r"## (?P<title>.+?) \{#(?P<id>[a-z-]+)\}")
DIRECTIVES = ("source", "live", "study", "figure", "exercise", "cards", "code")


@dataclass(frozen=True)
class Markdown:
    """Text between directives and code."""

    text: str


@dataclass(frozen=True)
class Code:
    """Python that a reader can run, and what it prints."""

    name: str
    text: str
    output: str = ""


@dataclass(frozen=True)
class Directive:
    """What is put in from elsewhere: `word`, what it is about, and options."""

    word: str
    given: tuple[str, ...]
    options: dict[str, str]


Block = Markdown | Code | Directive


@dataclass(frozen=True)
class ChapterSection:
    """A section of a chapter; its id is an anchor, the same in both languages."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Chapter:
    """A chapter in one language."""

    number: int
    name: str
    language: Language
    title: str
    question: str
    minutes: int
    sections: tuple[ChapterSection, ...]

    @property
    def stem(self) -> str:
        return f"{self.number:02}-{self.name}"

    def blocks(self) -> Iterator[Block]:
        for section in self.sections:
            yield from section.blocks

    def code(self) -> dict[str, Code]:
        return {block.name: block for block in self.blocks() if isinstance(block, Code)}


@cache
def chapters(language: Language) -> tuple[Chapter, ...]:
    """All chapters in a language, in order."""
    found = tuple(map(read_chapter, sorted(FOLDER.glob(f"*.{language}.md"))))
    return found if language == "en" else tuple(with_code(each) for each in found)


def with_code(chapter: Chapter) -> Chapter:
    """A Chinese chapter with the code of the English one: it stands in one file alone."""
    code = next(each for each in chapters("en") if each.name == chapter.name).code()
    return Chapter(
        **{
            **vars(chapter),
            "sections": tuple(
                ChapterSection(each.id, each.title, tuple(_coded(b, code) for b in each.blocks))
                for each in chapter.sections
            ),
        }
    )


def _coded(block: Block, code: dict[str, Code]) -> Block:
    if not (isinstance(block, Directive) and block.word == "code"):
        return block
    (name,) = block.given
    if name not in code:
        raise ConfigError(f"::code {name}: the English chapter has {', '.join(code)}")
    return code[name]


def read_chapter(path: Path) -> Chapter:
    stem = path.name.split(".")[0]
    language: Language = "zh" if path.name.endswith(".zh.md") else "en"
    number, name = stem.split("-", 1)
    _, head, body = path.read_text(encoding="utf-8").split("+++\n", 2)
    told = tomllib.loads(head)
    sections = tuple(_sections(body.splitlines(), path.name))
    return Chapter(int(number), name, language, **told, sections=sections)


def _sections(lines: list[str], file: str) -> Iterator[ChapterSection]:
    title, name = "", ""
    inside: list[str] = []
    fence = ""
    for line in lines:
        if line.startswith("```"):
            fence = "" if fence else "```"
        heading = None if fence else HEADING.fullmatch(line)
        if heading:
            if title:
                yield ChapterSection(name, title, tuple(_blocks(inside, file)))
            title, name, inside = heading["title"], heading["id"], []
        else:
            inside.append(line)
    if title:
        yield ChapterSection(name, title, tuple(_blocks(inside, file)))


def _blocks(lines: list[str], file: str) -> Iterator[Block]:
    text: list[str] = []
    rest = iter(lines)
    pending: Code | None = None
    for line in rest:
        if not (line.startswith("::") or re.match(r"```(python \S|output)", line)):
            if line.strip() and pending:
                yield pending
                pending = None
            if text or line.strip():
                text.append(line)
            if line.startswith("```"):  # another fence, taken whole: nothing in it is a directive
                for inner in rest:
                    text.append(inner)
                    if inner.startswith("```"):
                        break
            continue
        if pending and not line.startswith("```output"):
            yield pending
            pending = None
        if text:
            yield Markdown("\n".join(text).strip() + "\n")
            text = []
        if line.startswith("::"):
            yield directive(line, file)
            continue
        inner = "".join(f"{each}\n" for each in iter(lambda: next(rest), "```"))
        if line.startswith("```python"):
            pending = Code(line.split()[1], inner)
        elif pending:
            yield Code(pending.name, pending.text, inner)
            pending = None
        else:
            raise ConfigError(f"{file}: ```output follows no ```python name")
    if pending:
        yield pending
    if text:
        yield Markdown("\n".join(text).strip() + "\n")


def directive(line: str, file: str) -> Directive:
    word, *words = line.removeprefix("::").split()
    if word not in DIRECTIVES:
        raise ConfigError(f"{file}: ::{word}: the directives are {', '.join(DIRECTIVES)}")
    options = dict(each.split("=", 1) for each in words if "=" in each)
    return Directive(word, tuple(each for each in words if "=" not in each), options)
