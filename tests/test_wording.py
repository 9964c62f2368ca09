"""Counts and lists in messages."""

import re
from pathlib import Path

import pytest

import vitreous
from vitreous.wording import counted, listed, none_or, plural

NOUNS = ("image", "class", "object", "epoch", "file", "label", "frame", "tensor", "vector", "box")


@pytest.mark.parametrize(
    ("noun", "several"),
    [
        *(("image", "images"), ("class", "classes"), ("box", "boxes"), ("query", "queries")),
        *(("key", "keys"), ("patch", "patches"), ("file of code", "files of code")),
    ],
)
def test_one_and_several(noun, several):
    assert plural(noun) == several
    assert [counted(n, noun) for n in (0, 1, 2, 1797)] == [
        *(f"0 {several}", f"1 {noun}", f"2 {several}", f"1,797 {several}")
    ]
    assert (none_or(0, noun), none_or(1, noun)) == (f"no {several}", f"1 {noun}")


def test_lists_end_where_one_more_would_not_fit():
    assert listed("abcd") == "a, b, c, d"
    assert listed("abcde") == "a, b, c and 2 more"
    assert listed([]) == ""


def test_messages_do_not_put_a_number_before_a_plural():
    """`{len(x)} images` is "1 images" one day: `counted` is for that."""
    words = "|".join(map(plural, NOUNS))
    pattern = re.compile(r"\{len\([^{}]*\)(:,)?\} (" + words + r")\b")
    root = Path(vitreous.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if pattern.search(line) and not re.search(r"of (the )?\{len", line)
    ]
    assert not found, "\n".join(found)
