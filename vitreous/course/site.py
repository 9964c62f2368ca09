"""The course as a folder of pages that needs no network: chapters in English, in Chinese and side
by side, cards, glossary, myths, the one file, the living page, and the project's documentation."""

from __future__ import annotations

import re
import shutil
import sysconfig
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from vitreous.atomic_write import making_folder
from vitreous.course.glossary import read_glossary
from vitreous.course.html import (
    ONE_FILE,
    PACKAGE,
    Pages,
    Words,
    cards_of,
    coloured,
    inline,
    links,
    markdown,
)
from vitreous.course.myths import CLAIM, TRUTH, Myth, measured_myths
from vitreous.course.text import LANGUAGES, Chapter, Language, chapters
from vitreous.errors import ConfigError, VitreousError
from vitreous.pages.page_file import write_page
from vitreous.pages.template import render
from vitreous.progress import Log, silent

LINK = re.compile(r'(?P<before>(?:href|src)=")(?P<to>[^"#:]+)(?P<anchor>#[^"]*)?"')


TITLE = "ViT 8x8"
"""Of the living page, in any language."""


@dataclass(frozen=True)
class Page:
    """A page of the site, in a language."""

    stem: str
    title: str
    body: str
    eyebrow: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    """Anchor and title of each."""
    previous: tuple[str, str] | None = None
    next: tuple[str, str] | None = None
    both: str = ""


def write_site(folder: Path, *, runtime: Path | None = None, log: Log = silent) -> Path:
    """Write the course to a folder, and return its first page."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: the course is written to a folder, give another")
    live = write_living(folder / "living.html", runtime, log)
    for language in LANGUAGES:
        log(f"writing the chapters ({language})")
        with making_folder(folder / language):
            for page in language_pages(language, live):
                _write(folder / language / f"{page.stem}.html", page, language)
            for page in docs_pages(language):
                _write(folder / language / "docs" / f"{page.stem}.html", page, language, up="../")
    log("writing both languages side by side")
    for english, chinese in zip(*map(chapters, LANGUAGES), strict=True):
        text = side_by_side(english, chinese, live)
        write_page(folder / "both" / f"{english.stem}.html", text)
    images = documentation() / "images"
    shutil.copytree(images, folder / "images", dirs_exist_ok=True)
    write_page(folder / "index.html", render("course_start.html", words=[*map(Words, LANGUAGES)]))
    return folder / "index.html"


def write_living(path: Path, runtime: Path | None = None, log: Log = silent) -> bool:
    """The page of the digits model, and whether it runs there: where its runtime cannot be had, it
    shows stored numbers. One that was given has to do."""
    from vitreous.course.model import digit, digits
    from vitreous.pages.living import living_page, stored_page

    digits_shown = [digit(number) for number in range(10)]
    images, labels = zip(*digits_shown, strict=True)
    try:
        living_page(digits(), path, images, labels=labels, runtime=runtime, browser=False, log=log)
    except VitreousError as error:
        if runtime is not None:
            raise
        log(f"the model does not run in these pages, they show stored numbers: {error}")
        stored_page(digits(), path, images[0], TITLE)
        return False
    return True


def language_pages(language: Language, live: bool) -> list[Page]:
    words = Words(language)
    told = chapters(language)
    pages = [chapter_page(chapter, words, told, live) for chapter in told]
    return [
        start_page(words, told),
        *pages,
        one_file_page(words),
        cards_page(words, told),
        glossary_page(words, told),
        *([myths_page(words, told)] if measured_myths() else []),
        docs_index(words),
    ]


def chapter_page(chapter: Chapter, words: Words, told: tuple[Chapter, ...], live: bool) -> Page:
    made = Pages(chapter, live=live)
    body = "".join(
        f'<section id="{each.id}"><h2><a href="#{each.id}">{each.title}</a></h2>'
        f"{made.section(each.blocks)}</section>"
        for each in chapter.sections
    )
    before, behind = around(chapter, told)
    return Page(
        chapter.stem,
        chapter.title,
        f'<p class="question">{chapter.question}</p>{body}',
        f"{words('chapter', chapter.number)} · {words('minutes', chapter.minutes)}",
        tuple((each.id, each.title) for each in chapter.sections),
        None if before is None else (before.stem, before.title),
        None if behind is None else (behind.stem, behind.title),
        f"../both/{chapter.stem}.html",
    )


def side_by_side(english: Chapter, chinese: Chapter, live: bool) -> str:
    """Both languages of a chapter, section beside section."""
    rows = []
    for one, other in zip(english.sections, chinese.sections, strict=True):
        texts = [
            Pages(each, f"../{each.language}/", live=live).section(section.blocks)
            for each, section in ((english, one), (chinese, other))
        ]
        rows.append((one.id, (one.title, other.title), texts))
    before, behind = around(english, chapters("en"))
    return render(
        "course_both.html",
        title=f"{english.title} · {chinese.title}",
        number=english.number,
        previous=before,
        next=behind,
        questions=(english.question, chinese.question),
        rows=rows,
        stem=english.stem,
        words=[*map(Words, LANGUAGES)],
    )


def around(chapter: Chapter, told: tuple[Chapter, ...]) -> tuple[Chapter | None, Chapter | None]:
    """The chapters before and behind it."""
    place = told.index(chapter)
    before, behind = told[max(place - 1, 0) : place], told[place + 1 : place + 2]
    return next(iter(before), None), next(iter(behind), None)


def start_page(words: Words, told: tuple[Chapter, ...]) -> Page:
    rows = "".join(
        f'<li><a href="{each.stem}.html"><b>{each.title}</b></a><span>{each.question}</span>'
        f'<small class="soft">{words("minutes", each.minutes)}</small></li>'
        for each in told
    )
    body = (
        f'<p>{words("intro")}</p><p class="soft">{words("light")}</p>'
        f'<section><ol class="chapters">{rows}</ol></section>'
        f"<section><h2>{words('how')}</h2>{markdown(words('howText'))}</section>"
    )
    return Page("index", words("title"), body, words("name"))


def one_file_page(words: Words) -> Page:
    text = (PACKAGE / ONE_FILE).read_text(encoding="utf-8")
    lines = "".join(
        f'<span class="line" id="L{number}"><i>{number}</i>{line}</span>'
        for number, line in enumerate(coloured(text, "python").splitlines(), 1)
    )
    body = f'{markdown(words("oneFileIntro"))}<pre class="code numbered"><code>{lines}</code></pre>'
    return Page("vit", words("oneFile"), body, f"vitreous/{ONE_FILE}")


def cards_page(words: Words, told: tuple[Chapter, ...]) -> Page:
    parts = []
    for chapter in told:
        rows = "".join(
            f"<details><summary>{markdown(question)}</summary><div>{markdown(answer)}</div></details>"
            for question, answer in cards_of(chapter.number, words.language)
        )
        parts.append(
            f'<section><h2><a href="{chapter.stem}.html">{chapter.number} {chapter.title}</a></h2>'
            f'<div class="cards">{rows}</div></section>'
        )
    return Page("cards", words("cards"), markdown(words("cardsIntro")) + "".join(parts))


def glossary_page(words: Words, told: tuple[Chapter, ...]) -> Page:
    stems = {each.number: each.stem for each in told}
    rows = "".join(
        f'<dt id="{each.id}">{inline(each.text(0, words.language))} <span class="soft">'
        f"{inline(each.text(0, 'zh' if words.language == 'en' else 'en'))}</span></dt>"
        f"<dd>{markdown(each.text(1, words.language))}"
        f'<a href="{stems[each.chapter]}.html">{words("chapter", each.chapter)}</a></dd>'
        for each in sorted(read_glossary(), key=lambda each: each.text(0, "en").lower())
    )
    body = f'<p>{words("glossaryIntro")}</p><section><dl class="terms">{rows}</dl></section>'
    return Page("glossary", words("glossary"), body)


def myths_page(words: Words, told: tuple[Chapter, ...]) -> Page:
    parts = []
    for chapter in told:
        myths = [each for each in measured_myths() if each.chapter == chapter.number]
        if myths:
            parts.append(
                f'<section><h2><a href="{chapter.stem}.html">{chapter.number} {chapter.title}</a>'
                f"</h2>{''.join(_myth(each, words, told) for each in myths)}</section>"
            )
    return Page("myths", words("myths"), f"<p>{words('mythsIntro')}</p>{''.join(parts)}")


def _myth(myth: Myth, words: Words, told: tuple[Chapter, ...]) -> str:
    tone = {"true": "good", "false": "bad", "depends": "warn"}[myth.verdict]
    claim, truth = (myth.text(part, words.language) for part in (CLAIM, TRUTH))
    return (
        f'<aside class="study {tone}" id="{myth.id}"><header><strong>{inline(claim)}</strong>'
        f"<b>{words(myth.verdict)}</b></header>{markdown(truth, links(told))}"
        f'<p class="soft">{words("command")}: <code>{escape(myth.command)}</code></p></aside>'
    )


# ---- the documentation


def documentation() -> Path:
    """The docs of the clone, or those that were installed."""
    places = [PACKAGE.parent / "docs", Path(sysconfig.get_path("data"), "share/vitreous/docs")]
    return next((place for place in places if place.is_dir()), places[0])


def docs_files(language: Language) -> dict[str, tuple[Path, Language]]:
    """By stem: the page in this language, or else in English; and which it is."""
    found: dict[str, tuple[Path, Language]] = {
        path.stem: (path, "en") for path in sorted(documentation().glob("*.md"))
    }
    if language == "zh":
        found |= {path.stem: (path, "zh") for path in documentation().glob("zh/*.md")}
    return found


def title_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return re.search(r"^# (.+)$", text, re.MULTILINE)[1].replace("`", "")  # type: ignore[index]


def docs_pages(language: Language) -> list[Page]:
    return [
        Page(stem, title_of(path), docs_body(path, written), Words(language)("docs"))
        for stem, (path, written) in docs_files(language).items()
    ]


def docs_body(path: Path, written: Language) -> str:
    """A page of the docs without its title, its links leading to pages of the site."""
    text = re.sub(r"\A# .+\n", "", path.read_text(encoding="utf-8"))
    return LINK.sub(lambda found: _to_site(found, path, written), markdown(text))


def _to_site(found: re.Match[str], page: Path, written: Language) -> str:
    target = (page.parent / found["to"]).resolve()
    if target.parent.name == "images":
        to = f"../../images/{target.name}"
    elif target.suffix == ".md" and target.is_relative_to(documentation().resolve()):
        to = f"{_folder(target, written, bool(found['anchor']))}{target.stem}.html"
        to += found["anchor"] or ""
    else:
        to = "../docs.html"  # another file of the repository
    return f'{found["before"]}{to}"'


def _folder(target: Path, written: Language, anchored: bool) -> str:
    """Where another page of the docs stands, seen from one in this language. An English page among
    the Chinese ones leads to Chinese pages where there are some; their anchors are others."""
    language: Language = "zh" if target.parent.name == "zh" else "en"
    translated = docs_files("zh")[target.stem][1] == "zh"
    same = language == written and not (anchored and language == "en")
    return "" if same or not translated else f"../../{language}/docs/"


def docs_index(words: Words) -> Page:
    language = words.language
    rows = "".join(
        f'<li><a href="docs/{stem}.html">{title_of(path)}</a> '
        f'<span class="soft">{"" if written == language else words("onlyEnglish")}</span></li>'
        for stem, (path, written) in docs_files(language).items()
    )
    return Page("docs", words("docs"), f'<section><ul class="plain">{rows}</ul></section>')


def _write(path: Path, page: Page, language: Language, up: str = "") -> None:
    words = Words(language)
    other = "zh" if language == "en" else "en"
    values: dict[str, Any] = {
        "title": page.title,
        "page": page,
        "words": words,
        "language": language,
        "up": up,
        "chapters": chapters(language),
        "other": f"{up}../{other}/{'docs/' if up else ''}{page.stem}.html",
        "has_myths": bool(measured_myths()),
    }
    write_page(path, render("course.html", **values))
