"""The cards of the course, cards.toml: answered with numbers, and written for Anki or as Markdown.

Answers are computed when they are asked for: from the package, from the studies that ship, and with
`run=` from a run folder of the reader. A card whose number is not known is left out, with a reason.

An Anki note is known by its card's id, whatever its language and numbers. So importing a file again
(other numbers, the other language) updates the notes, and what one has learned stays.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import re
import sqlite3
import tempfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from vitreous.atomic_write import making_folder, replacing, write_text
from vitreous.course.contents import CHAPTERS
from vitreous.course.entries import CourseEntry, by_chapter, read_entries
from vitreous.course.facts import Language, NotMeasuredError
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    import genanki

QUESTION, ANSWER = 0, 1
Languages = Literal["en", "zh", "both"]
SPECIAL = re.compile(r"(`[^`]+`|\$[^$]+\$)")
"""`code` and $mathematics$."""
STYLE = """.card { font-family: sans-serif; font-size: 20px; line-height: 1.5; text-align: left; }
.other { margin-top: 0.7em; padding-top: 0.7em; border-top: 1px solid #8884; }
code { font-size: 85%; overflow-wrap: anywhere; }"""


@dataclass(frozen=True)
class Card(CourseEntry):
    """Its texts are a question and an answer."""


@dataclass(frozen=True)
class AnsweredCard:
    """A card with its numbers; in both languages there are two questions and two answers."""

    card: Card
    questions: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class CardSet:
    """Cards of some chapters, in their order."""

    lang: Languages
    cards: tuple[AnsweredCard, ...]
    left_out: dict[str, str]
    """Cards without an answer, and why."""

    def chapters(self) -> dict[int, list[AnsweredCard]]:
        """Those that have cards."""
        found: dict[int, list[AnsweredCard]] = {}
        for each in self.cards:
            found.setdefault(each.card.chapter, []).append(each)
        return found


@cache
def read_cards() -> tuple[Card, ...]:
    path = Path(__file__).with_name("cards.toml")
    cards = read_entries(path, "card", Card, range(2, 3))
    return tuple(itertools.chain.from_iterable(by_chapter(cards).values()))


def answer_cards(
    lang: Languages = "en",
    run: str | Path | None = None,
    chapters: Iterable[int] | None = None,
) -> CardSet:
    """The cards of these chapters (all, unless given), with their numbers."""
    if lang not in get_args(Languages):
        raise ConfigError(f"lang = {lang!r}: expected one of {', '.join(get_args(Languages))}")
    wanted = set(CHAPTERS) if chapters is None else set(chapters)
    if wanted - set(CHAPTERS):
        unknown = min(wanted - set(CHAPTERS))
        raise ConfigError(f"there is no chapter {unknown}: there are 1 to {max(CHAPTERS)}")
    found, left_out = list[AnsweredCard](), dict[str, str]()
    for card in read_cards():
        if card.chapter not in wanted:
            continue
        try:
            texts = [
                [card.text(part, each, run) for each in _languages(lang)]
                for part in (QUESTION, ANSWER)
            ]
            found.append(AnsweredCard(card, tuple(texts[QUESTION]), tuple(texts[ANSWER])))
        except NotMeasuredError as error:
            left_out[card.id] = str(error)
    return CardSet(lang, tuple(found), left_out)


def write_cards(
    path: str | Path,
    lang: Languages = "en",
    run: str | Path | None = None,
    chapters: Iterable[int] | None = None,
) -> CardSet:
    """As FILE.apkg for Anki, or as FILE.md; what was written."""
    path = Path(path)
    if path.suffix not in (".apkg", ".md"):
        raise ConfigError(f"{path}: cards are written as FILE.apkg (for Anki) or FILE.md")
    found = answer_cards(lang, run, chapters)
    with making_folder(path.parent):
        if path.suffix == ".md":
            write_text(path, cards_markdown(found))
        else:
            with replacing(path) as temporary:
                write_anki(temporary, found)
    return found


def cards_markdown(found: CardSet) -> str:
    """A section for each chapter; the answer stands below its question."""
    parts = []
    for number, cards in found.chapters().items():
        parts.append(f"## {number} {_title(number, found.lang)}")
        for each in cards:
            parts += [*(f"**{question}**" for question in each.questions), *each.answers]
    return "\n\n".join(parts) + "\n"


def write_anki(path: Path, found: CardSet, when: float | None = None) -> None:
    """An Anki package: a deck for each chapter below one for the course. `when` is the time that
    the notes are from, in seconds; Anki updates notes that it has by those that are newer."""
    genanki = _genanki()
    model = _model()
    decks = []
    for number, cards in found.chapters().items():
        name = f"Vitreous::{number:02d} {_title(number, found.lang)}"
        decks.append(deck := genanki.Deck(_stable(f"chapter {number}"), name))
        for each in cards:
            fields = [*(map(_both, (each.questions, each.answers))), each.card.id]
            guid = genanki.guid_for("vitreous course", each.card.id)
            tags = [f"vitreous::chapter-{number:02d}"]
            deck.add_note(genanki.Note(model, fields, guid=guid, tags=tags))
    when = time.time() if when is None else when
    # genanki's own way to write a file leaves a database behind in the folder for temporary files.
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "collection.anki2")
        connection = sqlite3.connect(database)
        try:
            numbers = itertools.count(int(when * 1000))
            genanki.Package(decks).write_to_db(connection.cursor(), when, numbers)
            connection.commit()
        finally:
            connection.close()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
            for name, content in (("collection.anki2", database.read_bytes()), ("media", b"{}")):
                package.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def as_html(text: str) -> str:
    """A card's text as Anki shows it: its mathematics is set by MathJax."""
    return "".join(_piece(each) for each in SPECIAL.split(text))


def _piece(text: str) -> str:
    if SPECIAL.fullmatch(text):
        inner = html.escape(text[1:-1])
        return f"<code>{inner}</code>" if text[0] == "`" else rf"\({inner}\)"
    return html.escape(text).replace("\n", "<br>")


def _both(texts: tuple[str, ...]) -> str:
    first, *others = map(as_html, texts)
    return first + "".join(f'<div class="other">{each}</div>' for each in others)


def _model() -> genanki.Model:
    """The form of a note."""
    question = "{{Question}}"
    answer = '{{FrontSide}}<hr id="answer">{{Answer}}'
    return _genanki().Model(
        _stable("card"),
        "Vitreous course",
        fields=[{"name": "Question"}, {"name": "Answer"}, {"name": "Id"}],
        templates=[{"name": "Card", "qfmt": question, "afmt": answer}],
        css=STYLE,
    )


def _stable(name: str) -> int:
    """A number that Anki knows decks and forms by: the same in every version."""
    digest = hashlib.sha256(f"vitreous course {name}".encode()).digest()
    return (1 << 30) + int.from_bytes(digest[:8]) % (1 << 30)


def _title(number: int, lang: Languages) -> str:
    title = CHAPTERS[number]
    return " · ".join(title) if lang == "both" else getattr(title, lang)


def _languages(lang: Languages) -> tuple[Language, ...]:
    return ("en", "zh") if lang == "both" else (lang,)


def _genanki() -> Any:
    try:
        import genanki
    except ImportError:
        raise ConfigError(
            "cards for Anki need genanki: pip install 'vitreous[course]', or write FILE.md"
        ) from None
    return genanki
