"""Chapters as notebooks: the same text, and code that a reader runs and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitreous.atomic_write import making_folder, write_text
from vitreous.course.facts import fact
from vitreous.course.html import INLINE, Words, cards_of, missing, quoted
from vitreous.course.results import Telling, result_of
from vitreous.course.text import LANGUAGES, Block, Chapter, Code, Directive, Markdown, chapters

LAST = 9
"""Chapters up to this one are about tensors that fit in a cell."""


def write_notebooks(folder: Path) -> list[Path]:
    """Write the first chapters as notebooks; files that are there stay as they are."""
    written = []
    for language in LANGUAGES:
        for chapter in chapters(language)[:LAST]:
            path = folder / f"{chapter.stem}.{language}.ipynb"
            if not path.exists():
                with making_folder(folder):
                    write_text(path, notebook(chapter))
                written.append(path)
    return written


def notebook(chapter: Chapter) -> str:
    """A chapter as the text of a notebook."""
    try:
        from nbformat import v4
    except ImportError as error:
        raise missing("nbformat") from error
    words = Words(chapter.language)
    cells = [v4.new_markdown_cell(f"# {chapter.title}\n\n*{chapter.question}*")]
    for section in chapter.sections:
        cells.append(v4.new_markdown_cell(f"## {section.title}"))
        for block in section.blocks:
            cells += _cells(block, chapter, words)
    for number, cell in enumerate(cells):
        cell["id"] = f"{chapter.stem}-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.writes(v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})) + "\n"


def _cells(block: Block, chapter: Chapter, words: Words) -> list[Any]:
    from nbformat import v4

    if isinstance(block, Code):
        return [v4.new_code_cell(block.text.rstrip())]
    if isinstance(block, Markdown):
        return [
            v4.new_markdown_cell(
                INLINE.sub(lambda found: fact(found[1], chapter.language), block.text)
            )
        ]
    text = _told(block, chapter, words)
    code = _shown(block, chapter)
    return [*([v4.new_markdown_cell(text)] if text else []), *map(v4.new_code_cell, code)]


def _told(block: Directive, chapter: Chapter, words: Words) -> str:
    if block.word == "source":
        quote = quoted(*block.given[:2])
        lines = "\n".join(quote.lines)
        return f"`vitreous/{quote.file}`\n\n```python\n{lines}\n```"
    if block.word == "study":
        found = result_of(block.given[0])
        command = f"vitreous study {block.given[0]}"
        if found is None:
            return words("unmeasured", command)
        return Telling(chapter.language).section(found)
    if block.word == "exercise":
        from vitreous.course.check import exercise_of

        return words("exercise", exercise_of(chapter.number).name, chapter.number)
    if block.word == "cards":
        told = cards_of(chapter.number, chapter.language)
        return "\n\n".join(f"**{question}**\n\n{answer}" for question, answer in told)
    return ""


def _shown(block: Directive, chapter: Chapter) -> list[str]:
    """Code that shows inline what a page has: a figure, or the living page."""
    if block.word == "figure":
        return [
            "from vitreous.course.inline import figure\n\n"
            f'figure({chapter.number}, "{block.given[0]}", lang="{chapter.language}")'
        ]
    if block.word == "live":
        words = [f'"{each}"' for each in block.given]
        words += [f"{key}={_literal(value)}" for key, value in block.options.items()]
        words.append(f'lang="{chapter.language}"')
        return [f"from vitreous.course.inline import living\n\nliving({', '.join(words)})"]
    return []


def _literal(value: str) -> str:
    return value if value.isdecimal() else f'"{value}"'
