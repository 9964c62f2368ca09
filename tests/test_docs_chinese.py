"""The Chinese pages keep step with the English ones, whose commands and code are run."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from follow import blocks
from markdown_pages import dead_links, headings, links, prose, sections

ROOT = Path(__file__).parent.parent
NAMES = ("detection", "explain", "importing", "serving", "training")
CHINESE = {
    ROOT / "README.md": ROOT / "README.zh.md",
    **{ROOT / f"docs/{name}.md": ROOT / f"docs/zh/{name}.md" for name in NAMES},
}
PAIRS = pytest.mark.parametrize(
    ("english", "chinese"), CHINESE.items(), ids=[page.stem for page in CHINESE]
)
CODE = re.compile(r"`([^`]+)`")
HAN = r"[\u3400-\u9fff]"


def to(page, other):
    return Path(os.path.relpath(other, page.parent)).as_posix()


def test_there_is_no_other_chinese_page():
    found = {*ROOT.glob("*.zh.md"), *(ROOT / "docs" / "zh").iterdir()}
    assert found == set(CHINESE.values())


@PAIRS
def test_each_leads_to_the_other_at_its_top(english, chinese):
    for page, other, name in (english, chinese, "中文"), (chinese, english, "English"):
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[2] == f"[{name}]({to(page, other)})"


@PAIRS
def test_code_is_the_same(english, chinese):
    assert blocks(chinese) == blocks(english)


@PAIRS
def test_sections_and_tables_are_the_same(english, chinese):
    """Levels of headings, and rows and columns of tables, in their order."""

    def outline(page):
        cells = re.compile(r"(?<!\\)\|")
        return [
            (
                section.heading.level,
                [len(cells.findall(line)) for line in section.text.splitlines() if line[:1] == "|"],
            )
            for section in sections(page)
        ]

    assert outline(chinese) == outline(english)


@PAIRS
def test_each_section_names_the_same_code(english, chinese):
    """Options, files and names, wherever they stand in a sentence."""

    def names(text):
        return {" ".join(code.split()) for code in CODE.findall(text)}

    for ours, theirs in zip(sections(chinese), sections(english), strict=True):
        assert names(ours.text) == names(theirs.text), ours.heading.title


@PAIRS
def test_each_section_has_the_numbers(english, chinese):
    """A number that is measured again is changed in both languages. Chinese counts in 万, not in
    millions, and may have a numeral where English has a word."""

    def numbers(text):
        text = re.sub(r"\d+ million", "", text)
        text = CODE.sub("", re.sub(r"\]\([^)]*\)", "]", text))
        return Counter(re.findall(r"(?<![\w.])\d++(?:[,.x]\d++)*+(?![A-Za-z])", text))

    for ours, theirs in zip(sections(chinese), sections(english), strict=True):
        assert not numbers(theirs.text) - numbers(ours.text), ours.heading.title


@PAIRS
def test_links_lead_to_the_chinese_page_where_there_is_one(english, chinese):
    def moved(target):
        path, _, anchor = target.partition("#")
        file = (english.parent / path).resolve() if path else english
        other = CHINESE.get(file, file)
        if anchor and other != file:
            place = [heading.anchor for heading in headings(file)].index(anchor)
            anchor = headings(other)[place].anchor
        return (to(chinese, other) if path else "") + (f"#{anchor}" if anchor else "")

    there, here = links(prose(english)), links(prose(chinese))
    assert here[0] == to(chinese, english)
    assert Counter(here[1:]) == Counter(map(moved, there[1:]))


@PAIRS
def test_links_and_anchors_exist(english, chinese):
    assert not dead_links(chinese)


@PAIRS
def test_it_is_set_as_chinese_is(english, chinese):
    """A space between Chinese and Latin; full-width punctuation; one line for each paragraph, as a
    line break would be shown as a space."""
    tight = rf"{HAN}[A-Za-z0-9`]|[A-Za-z0-9`%]{HAN}"
    narrow = rf"{HAN}[,;:!?.]|(?<!\])\([^()\n]*{HAN}"
    broken = rf"[{HAN[1:-1]}，。；：、）]\n(?![-|#\s]|!\[).*{HAN}"
    for section in sections(chinese):
        for wrong in (tight, narrow, broken):
            found = re.finditer(wrong, section.text)
            assert not [section.text[max(at.start() - 9, 0) : at.end() + 9] for at in found]
