"""The myths: both languages, and what their commands print when a reader runs them."""

import re
import shlex

import pytest

from vitreous.cli.main import main, module_of
from vitreous.cli.parse import parse
from vitreous.course.contents import CHAPTERS
from vitreous.course.entries import PLACE, read_entries
from vitreous.course.facts import NotMeasuredError, fact
from vitreous.course.myths import CLAIM, TRUTH, Myth, measured_myths, read_myths
from vitreous.errors import ConfigError
from vitreous.study.find import find_result, find_study

MYTHS = read_myths()
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?")
STUDY = re.compile(r'(?:study|paper|difference)\("([\w-]+)"')
by_id = pytest.mark.parametrize("myth", MYTHS, ids=lambda myth: myth.id)


def studies_of(myth):
    """Those whose results it shows."""
    return {found[1] for each in myth.values if (found := re.match(r'study\("([\w-]+)"', each))}


def numbers(text):
    return {float(each.replace(",", "")) for each in NUMBER.findall(text)}


def printed(command, capsys):
    """By a command that takes no training."""
    program, *words = shlex.split(command)
    if program == "python":
        option, code = words
        assert option == "-c"
        exec(compile(code, command, "exec"), {})
    else:
        assert program == "vitreous"
        assert main(words) == 0
    return capsys.readouterr().out


def test_there_are_myths_of_every_chapter():
    assert {each.chapter for each in MYTHS} == set(CHAPTERS)
    assert {each.verdict for each in MYTHS} == {"true", "false", "depends"}


@by_id
def test_a_myth_is_told_in_both_languages(myth):
    """All but those that wait for a study, which is named."""
    missing = [each for each in studies_of(myth) if find_result(each) is None]
    assert (myth in measured_myths()) == (not missing)
    for lang, end in (("en", "."), ("zh", "。")):
        assert myth.text(CLAIM, lang).endswith(end)
        if missing:
            with pytest.raises(NotMeasuredError, match=missing[0]):
                myth.text(TRUTH, lang)
            continue
        text = myth.text(TRUTH, lang)
        assert text.endswith(end)
        assert not PLACE.search(text)
        assert any("\u4e00" <= each <= "\u9fff" for each in text) == (lang == "zh")


@by_id
def test_its_command_shows_its_numbers(myth, capsys):
    """Of a study, which takes minutes, the command is read, not run."""
    words = shlex.split(myth.command)
    if words[:2] == ["vitreous", "study"]:
        assert studies_of(myth) == {find_study(words[2]).name}
        parse("study", module_of("study"), words[2:])
        return
    known = numbers(printed(myth.command, capsys))
    for each in myth.values:
        if not each.startswith("paper("):
            assert numbers(fact(each)) <= known, each


def test_what_waits_for_a_number_is_left_out(monkeypatch):
    from vitreous.course import myths

    waits = Myth("a", 1, ("c", "{0}"), ("c", "{0}"), ('own("score")',), "false", "vitreous")
    monkeypatch.setattr(myths, "read_myths", lambda: (waits, MYTHS[0]))
    assert myths.measured_myths.__wrapped__() == (MYTHS[0],)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("verdict = 'maybe'\ncommand = 'vitreous'", "a: verdict = 'maybe': expected one of true,"),
        ("verdict = 'true'", "a: a myth needs a command"),
        ("command = 'vitreous'\nanswer = 'b'", "unknown field 'answer'"),
    ],
)
def test_a_myth_that_cannot_be_shown_is_an_error(line, message, tmp_path):
    path = tmp_path / "myths.toml"
    path.write_text(f"[[myth]]\nid = 'a'\nchapter = 1\nen = ['b', 'c']\nzh = ['b', 'c']\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        read_entries(path, "myth", Myth, range(2, 3))
