"""Both languages of a chapter are in step, its code runs, and what it names is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from vitreous.course.facts import NotMeasuredError, fact
from vitreous.course.figures import figure_of
from vitreous.course.html import INLINE, quoted
from vitreous.course.text import Code, Directive, Markdown, chapters

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("outputs", ROOT / "tools" / "course_outputs.py")
outputs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(outputs)

ENGLISH, CHINESE = chapters("en"), chapters("zh")
PARTS = ["idea", "code", "measured", "notes", "exercise", "cards", "read-on"]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
by_name = pytest.mark.parametrize("chapter", ENGLISH, ids=lambda chapter: chapter.stem)


def other(chapter):
    return next(each for each in CHINESE if each.stem == chapter.stem)


def directives(chapter):
    return [b for b in chapter.blocks() if isinstance(b, Directive)]


def facts(chapter):
    texts = (b.text for b in chapter.blocks() if isinstance(b, Markdown))
    return sorted(found for text in texts for found in INLINE.findall(text))


def test_chapters_are_numbered_from_one_in_both_languages():
    assert [each.number for each in ENGLISH] == list(range(1, len(ENGLISH) + 1))
    assert [each.stem for each in ENGLISH] == [each.stem for each in CHINESE]


@by_name
def test_both_languages_have_the_same_sections_code_and_directives(chapter):
    chinese = other(chapter)
    assert [each.id for each in chapter.sections] == [each.id for each in chinese.sections]
    assert directives(chapter) == directives(chinese)
    assert list(chapter.code()) == list(chinese.code())
    assert facts(chapter) == facts(chinese)
    assert chapter.minutes == chinese.minutes


@by_name
def test_a_chapter_has_its_parts(chapter):
    ids = [each.id for each in chapter.sections]
    assert [each for each in ids if each in PARTS] == PARTS
    assert len(set(ids)) == len(ids)


@by_name
def test_chinese_is_chinese(chapter):
    for section in other(chapter).sections:
        text = "".join(b.text for b in section.blocks if isinstance(b, Markdown))
        assert not text or re.search("[\u4e00-\u9fff]", text), section.id


@by_name
def test_what_it_quotes_draws_and_computes_is_there(chapter):
    for block in directives(chapter):
        if block.word == "source":
            assert quoted(*block.given).lines
        elif block.word == "figure":
            draw, chinese = figure_of(chapter.number, *block.given)
            texts = {t.get_text() for t in draw().findobj(lambda a: hasattr(a, "get_text"))}
            shown = {text for text in texts if re.search("[a-z]{4}", text)}
            assert shown <= chinese.keys(), "a label without its Chinese"
    for text in facts(chapter):
        for language in ("en", "zh"):
            try:
                assert fact(text, language)
            except NotMeasuredError:
                pytest.fail(f"{text}: this study has no result yet")


@by_name
def test_its_code_prints_what_it_says(chapter):
    torch.manual_seed(0)
    printed = outputs.printed(chapter)
    for name, code in chapter.code().items():
        assert same(printed[name], code.output), f"{name}:\n{printed[name]}\n{code.output}"


def same(printed: str, said: str) -> bool:
    """The same words, and numbers within 2 %."""
    found, expected = NUMBER.findall(printed), NUMBER.findall(said)
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", said).split():
        return False
    return all(
        abs(float(a) - float(b)) <= 0.02 * abs(float(b)) + 0.011
        for a, b in zip(found, expected, strict=True)
    )


def test_outputs_are_not_lost():
    assert all(isinstance(code, Code) for each in ENGLISH for code in each.code().values())
