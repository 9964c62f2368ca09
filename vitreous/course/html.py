"""Text as HTML: Markdown, formulas as MathML, code in colours, and what directives put in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous.config import read_toml
from vitreous.course import results
from vitreous.course.cards import answer_cards
from vitreous.course.facts import fact
from vitreous.course.figures import figure_of
from vitreous.course.text import Block, Chapter, Code, Directive, Language, Markdown, chapters
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

PACKAGE = Path(__file__).parents[1]
WORDS: dict[str, list[str]] = read_toml(
    Path(__file__).with_name("words.toml"), "the course's words"
)
ONE_FILE = "course/vit.py"
STUDIED = re.compile(r"[Cc]hapters? (\d+)|第 (\d+) 章")
INLINE = re.compile(r"\{\{(.+?)\}\}")
WRAPPED = re.compile(
    r"(?<=[\u3000-\u9fff\uff00-\uffef])\n(?=[\u4e00-\u9fff\uff00-\uffef“（])"
    r"|(?<=[，。；：、！？）”])\n[ ]*(?=[A-Za-z`$*“][^ ])"
)
"""A line's end inside a Chinese paragraph, which no space stands for."""
UNIT = re.compile(r"(?<=\d) (?=%|[kMGT]?(?:FLOPs|MACs|B)\b)")
TIMES = re.compile(r"(?<=\d) × (?=\d)")
"""Where a line should not end: 98.9 %, 17.6 GMACs, 197 × 768."""
LONG = 28
"""Letters of a word that may be wider than a phone's column."""
SHOWN = re.compile(r"<text\b[^>]*>([^<]+)</text>")
"""What stands in a figure."""
FORMULA_END = re.compile(r"(?<=</math></span>)(?=[，。；：、！？）”])")


class Words:
    """What the course's pages say in a language."""

    def __init__(self, language: Language) -> None:
        self.language, self.number = language, ("en", "zh").index(language)

    def __call__(self, key: str, *given: object) -> str:
        return WORDS[key][self.number].format(*given)


def missing(package: str) -> ConfigError:
    return ConfigError(
        f"the course needs {package}, which is not installed: pip install 'vitreous[course]'"
    )


@cache
def _markdown() -> MarkdownIt:
    try:
        from latex2mathml.converter import convert
        from markdown_it import MarkdownIt
        from mdit_py_plugins.anchors import anchors_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
    except ImportError as error:
        raise missing(error.name or "a library") from error

    made = MarkdownIt("commonmark", {"highlight": _highlighted}).enable("table")

    def formula(text: str, options: dict[str, Any]) -> str:
        shown = "block" if options["display_mode"] else "inline"
        return convert(text, display=shown)

    made.use(dollarmath_plugin, renderer=formula, allow_digits=False, double_inline=True)
    made.use(anchors_plugin, max_level=4, slug_func=slug)

    def wide(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        return '<div class="wide"><table>\n'

    made.add_render_rule("table_open", wide)
    made.add_render_rule("table_close", lambda *given: "</table></div>\n")
    made.add_render_rule("text", _linked)
    made.add_render_rule("code_inline", _code)
    return made


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", title.lower())
    return kept.strip().replace(" ", "-")


def _linked(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """A text in which chapters are links, where `env` says what they are called, and in which no
    line ends between a number and its unit."""
    text = escape(tokens[index].content, quote=False)
    text = UNIT.sub("\u00a0", TIMES.sub("\u00a0×\u00a0", text))
    inside_link = any(t.type == "link_open" for t in tokens[:index]) and not any(
        t.type == "link_close" for t in tokens[:index]
    )
    if "chapters" not in env or inside_link:
        return text

    def link(found: re.Match[str]) -> str:
        number = int(found[1] or found[2])
        stem = env["chapters"].get(number)
        return f'<a href="{stem}.html">{found[0]}</a>' if stem else found[0]

    return STUDIED.sub(link, text)


def _code(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """Code in a sentence. Browsers end lines at hyphens, which would tear --image-size apart."""
    words = tokens[index].content.split(" ")
    kept = (f"<span>{escape(w)}</span>" if "-" in w and len(w) < LONG else escape(w) for w in words)
    return f"<code>{' '.join(kept)}</code>"


def _highlighted(code: str, language: str, attributes: str = "") -> str:
    return coloured(code, language.split()[0] if language else "text")


def coloured(code: str, language: str) -> str:
    """Code as spans whose classes course.css colours; nothing of a page runs in it."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound
    except ImportError as error:
        raise missing("pygments") from error
    try:
        lexer = get_lexer_by_name({"sh": "bash"}.get(language, language), stripnl=False)
    except ClassNotFound:
        return escape(code)
    return highlight(code, lexer, HtmlFormatter(nowrap=True))


def markdown(text: str, env: dict[str, Any] | None = None) -> str:
    made = _markdown().render(text, env if env is not None else {})
    return FORMULA_END.sub("\u2060", made)  # a line does not begin with a Chinese full stop


def chinese(text: str) -> str:
    """As Chinese is set: no space where a line ends, and none before %."""
    return re.sub(r"(?<=\d) %", "%", WRAPPED.sub("", text))


class Quote(NamedTuple):
    """Some lines of our source."""

    file: str
    first: int
    lines: list[str]


def quoted(file: str, name: str) -> Quote:
    """A class, a function or a method of a file below vitreous/, or its lines L10-L20."""
    file = ONE_FILE if file == "vit.py" else file
    path = PACKAGE / file
    if not path.is_file():
        raise ConfigError(f"::source {file}: there is no such file below vitreous/")
    lines = path.read_text(encoding="utf-8").splitlines()
    if found := re.fullmatch(r"L(\d+)-L?(\d+)", name):
        first, last = int(found[1]), int(found[2])
    else:
        node: Any = ast.parse("\n".join(lines))
        for part in name.split("."):
            node = next((each for each in node.body if getattr(each, "name", "") == part), None)
            if node is None:
                raise ConfigError(f"::source {file} {name}: there is no {part}")
        starts = [node.lineno, *(each.lineno for each in node.decorator_list)]
        first, last = min(starts), node.end_lineno
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    return Quote(file, first, [line[indent:] for line in lines[first - 1 : last]])


class Pages:
    """Makes HTML of the blocks of a chapter, in a language; `own` is where the pages of this
    language are, `live` whether the model runs in the living page."""

    def __init__(self, chapter: Chapter, own: str = "", *, live: bool = True) -> None:
        self.chapter, self.own, self.live = chapter, own, live
        self.words = Words(chapter.language)
        self.env = links(chapters(chapter.language), but=chapter.number)

    def section(self, blocks: tuple[Block, ...]) -> str:
        return "\n".join(map(self.block, blocks))

    def block(self, block: Block) -> str:
        if isinstance(block, Markdown):
            return self.markdown(block.text)
        if isinstance(block, Code):
            return self.code(block)
        return getattr(self, f"_{block.word}")(block)

    def markdown(self, text: str) -> str:
        return markdown(self.filled(text), self.env)

    def filled(self, text: str) -> str:
        return self.set(INLINE.sub(lambda found: fact(found[1], self.chapter.language), text))

    def set(self, text: str) -> str:
        return chinese(text) if self.chapter.language == "zh" else text

    def code(self, code: Code) -> str:
        shown = f'<pre class="code"><code>{coloured(code.text, "python")}</code></pre>'
        if not code.output:
            return shown
        printed = escape(code.output.rstrip())
        label = self.words("prints")
        return f'{shown}<pre class="output" aria-label="{label}"><code>{printed}</code></pre>'

    def _source(self, block: Directive) -> str:
        quote = quoted(block.given[0], block.given[1])
        coloured_lines = coloured("\n".join(quote.lines), "python").splitlines()
        numbered = "".join(
            f'<span class="line"><i>{quote.first + i}</i>{line}</span>'
            for i, line in enumerate(coloured_lines)
        )
        name, last = f"vitreous/{quote.file}", quote.first + len(quote.lines) - 1
        where = escape(self.words("lines", name, quote.first, last))
        if quote.file == ONE_FILE:
            where = f'<a href="{self.own}vit.html#L{quote.first}">{where}</a>'
        return (
            f'<figure class="source"><figcaption>{where}</figcaption>'
            f'<pre class="code numbered"><code>{numbered}</code></pre></figure>'
        )

    def _live(self, block: Directive) -> str:
        options = {"only": "steps", **block.options}
        if not self.live and options["only"] == "change":  # nothing can be changed
            options["only"] = "steps"
        if block.given:
            options = {"step": block.given[0], **options}
        fragment = "&".join(f"{key}={value}" for key, value in options.items())
        source = escape(f"../living.html#{fragment}&lang={self.chapter.language}")
        note = "" if self.live else f" · {self.words('stored')}"
        return (
            f'<figure class="live"><iframe loading="lazy" src="{source}" '
            f'title="{escape(self.words("live"))}"></iframe>'
            f'<figcaption><a href="{source}" target="_blank" rel="noopener">'
            f"{escape(self.words('alone'))}</a>{note}</figcaption></figure>"
        )

    def _study(self, block: Directive) -> str:
        (name,) = block.given
        found = results.result_of(name)
        telling = results.Telling(self.chapter.language)
        if found is None:
            text = self.words("unmeasured", f"vitreous study {name}")
            return f'<aside class="study"><p>{markdown(text)}</p></aside>'
        question = escape(telling.own(found["question"]))
        tone = {"reproduced": "good", "contradicted": "bad"}.get(found["verdict"], "warn")
        return (
            f'<aside class="study {tone}"><header><span>{escape(self.words("study", name))}</span>'
            f"<b>{escape(telling.verdict(found))}</b></header><p><strong>{question}</strong></p>"
            f"{markdown(self.set(telling.short(found)))}</aside>"
        )

    def _figure(self, block: Directive) -> str:
        (name,) = block.given
        drawn = drawn_figure(self.chapter.number, name, self.chapter.language)
        return f'<figure class="drawn"><div class="wide">{drawn}</div></figure>'

    def _exercise(self, block: Directive) -> str:
        from vitreous.course.check import exercise_of

        path = exercise_of(self.chapter.number)
        text = self.words("exercise", path.name, self.chapter.number)
        code = coloured(path.read_text(encoding="utf-8"), "python")
        return (
            f'<aside class="exercise">{markdown(text)}<details><summary>{path.name}</summary>'
            f'<pre class="code"><code>{code}</code></pre></details></aside>'
        )

    def _cards(self, block: Directive) -> str:
        rows = []
        for question, answer in cards_of(self.chapter.number, self.chapter.language):
            rows.append(
                f"<details><summary>{inline(question)}</summary>"
                f"<div>{markdown(answer)}</div></details>"
            )
        return f'<div class="cards">{"".join(rows)}</div>'


def drawn_figure(number: int, name: str, language: Language) -> str:
    """A figure of a chapter as SVG; who cannot see it is told what stands in it."""
    drawn = _drawn(number, name)
    if language == "zh":
        _, labels = figure_of(number, name)
        for english, text in labels.items():
            drawn = drawn.replace(f">{_text(english)}<", f">{_text(text)}<")
    seen = dict.fromkeys(each for each in SHOWN.findall(drawn) if re.search(r"[^\W\d]", each))
    label = Words(language)("figure", ", ".join(seen)).replace('"', "&quot;")
    return drawn.replace('role="img"', f'role="img" aria-label="{label}"', 1)


@cache
def _drawn(number: int, name: str) -> str:
    """A figure, with its labels in English."""
    from vitreous.pages.figure import svg

    draw, _ = figure_of(number, name)
    return str(svg(draw(), least=1.15))


def _text(label: str) -> str:
    """As matplotlib writes it."""
    return escape(label, quote=False)


def links(told: Iterable[Chapter], but: int = 0) -> dict[str, Any]:
    """Which pages "chapter 3" leads to, for `markdown`; not to the one that says it."""
    return {"chapters": {each.number: each.stem for each in told if each.number != but}}


def cards_of(number: int, language: Language) -> list[tuple[str, str]]:
    """Questions and answers of a chapter's cards."""
    found = answer_cards(language, chapters=[number]).cards
    return [(card.questions[0], card.answers[0]) for card in found]


def inline(text: str) -> str:
    """A line of Markdown, without a paragraph around it."""
    return _markdown().renderInline(text)
