"""Each check accepts a right solution, and names the usual mistakes; solutions are here alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from vitreous.cli.main import main
from vitreous.course.check import check, exercise_files, exercise_of, start, steps_of, verdict
from vitreous.errors import ConfigError

NUMBERS = [int(path.name[:2]) for path in exercise_files()]


def solution(number: int) -> ModuleType:
    path = Path(__file__).with_name("solutions") / f"s{number:02}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judged(number: int, **changed):
    """The verdict of the solution, with some functions in place of its own."""
    theirs = SimpleNamespace(**(vars(solution(number)) | changed))
    name = exercise_of(number).name
    return verdict(theirs, name, steps_of(number), Path(name))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_solution_is_accepted(number):
    found = judged(number)
    assert found.state == "right", found


@pytest.mark.parametrize("number", NUMBERS)
def test_other_right_ways_are_accepted(number):
    for function, ways in getattr(solution(number), "RIGHT", {}).items():
        for way in ways:
            found = judged(number, **{function: way})
            assert found.state == "right", (way, found)


@pytest.mark.parametrize("number", NUMBERS)
def test_usual_mistakes_are_named(number):
    wrong = solution(number).WRONG
    assert sum(map(len, wrong.values())) >= 3
    for function, mistakes in wrong.items():
        for words, mistake in mistakes.items():
            found = judged(number, **{function: mistake})
            assert (found.state, found.function) == ("wrong", function), (words, found)
            assert words in found.cause[0], (words, found)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_function_that_the_reader_has_not_written_is_open(number, tmp_path):
    start(tmp_path)
    assert check(tmp_path, number).state == "open"


@pytest.mark.parametrize("number", NUMBERS)
def test_steps_are_the_functions_of_the_file_in_order(number):
    text = exercise_of(number).read_text(encoding="utf-8")
    functions = [line[4:].split("(")[0] for line in text.splitlines() if line.startswith("def ")]
    assert list(dict.fromkeys(step.function for step in steps_of(number))) == functions


def test_an_error_in_the_readers_code_is_named_with_its_line(tmp_path):
    start(tmp_path)
    file = tmp_path / exercise_of(1).name
    file.write_text("def patchify(image, patch):\n    return image.nonsense\n")
    found = check(tmp_path, 1)
    assert (found.state, found.function) == ("broken", "patchify")
    assert "line 2" in found.seen
    file.write_text("def patchify(image patch):\n")
    found = check(tmp_path, 1)
    assert found.state == "broken"
    assert "SyntaxError (line 1)" in found.seen


def test_what_a_reader_has_written_is_kept(tmp_path):
    start(tmp_path)
    file = tmp_path / exercise_of(1).name
    file.write_text("mine")
    assert start(tmp_path) == []
    assert file.read_text() == "mine"


def test_a_folder_without_exercises_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="vitreous course start"):
        check(tmp_path, 1)
    with pytest.raises(ConfigError, match="there are exercises 1 to"):
        check(tmp_path, 99)


@pytest.mark.parametrize(
    ("words", "user"),
    [
        (["site", "--lang", "zh"], "cards"),
        (["start", "site", "--dir", "elsewhere"], "check"),
        (["cards", "cards.md", "--json"], "check"),
        (["check", "1", "--runtime", "here"], "DIR"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(words, user, capsys):
    assert main(["course", *words]) == 2
    assert f"is an option of vitreous course {user}: leave it out" in capsys.readouterr().err
