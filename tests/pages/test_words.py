"""The one table of words: both languages are whole, and pages say what is in it."""

import re
from pathlib import Path

import pytest

import vitreous
from vitreous.pages.words import WORDS, words_for

FOLDER = Path(vitreous.__file__).parent
TEMPLATES = FOLDER / "pages" / "templates"
PAGES = {
    "living": [*(FOLDER / "pages" / "living").glob("*.js"), TEMPLATES / "living.html"],
    "viewer": [TEMPLATES / "viewer.js"],
    "look": [TEMPLATES / "viewer.html"],
    "map": [TEMPLATES / "vector_map.html"],
    "serve": [*(FOLDER / "serve" / "page").glob("*.*")],
}
KEYS = re.compile(r"""say(?:\.counted)?\("([\w -]+)"[,)]|data-(?:say|label|placeholder)="(\w+)\"""")


def entries(table, before=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from entries(value, f"{before}{key}.")
        else:
            yield before + key, value


def filled_in(said):
    texts = said if isinstance(said, list) else [said]
    return {place for text in texts for place in re.findall(r"\{\d\}", text)}


def test_every_entry_is_in_both_languages():
    for key, said in entries(WORDS):
        assert len(said) == 2, key
        english, chinese = said
        assert english, key
        assert filled_in(english) == filled_in(chinese), key
        for text in english if isinstance(english, list) else [english]:
            assert not re.search("[一-龥]", text), key
    without = {
        key for key, (_, chinese) in entries(WORDS) if not re.search("[一-龥]", f"{chinese}")
    }
    marks = {
        "between",
        "comma",
        "colon",
        "listed",
        "viewer.stop",
        "viewer.between",
        "viewer.then",
        "viewer.layerOf",
        "report.onSplit",
    }
    assert {key.removeprefix("living.") for key in without} <= marks


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_what_is_in_the_table(page):
    known = words_for(page)["en"]
    for file in PAGES[page]:
        said = {a or b for a, b in KEYS.findall(file.read_text(encoding="utf-8"))}
        assert said <= known.keys(), (file.name, said - known.keys())
