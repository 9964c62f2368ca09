"""Vision transformers from pixels to proofs: write the course as pages (DIR), with exercises and
notebooks (start DIR), check an exercise (check N), or export the cards (cards FILE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vitreous import api
from vitreous.cli.printing import print_json
from vitreous.errors import ConfigError
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.course.check import ExerciseResult

OPTIONS = {"check": ("dir", "json"), "cards": ("lang", "run")}
"""Of what; all else writes pages, and takes --runtime."""
MARKS = {"right": "✓", "wrong": "✗", "broken": "✗", "open": "·"}


@dataclass(frozen=True)
class CourseArguments:
    what: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        option("[DIR | start DIR | check [N] | cards FILE]", "vitreous-course"),
    ] = ()
    """DIR: write the course there, as pages. start DIR: exercises and notebooks, too. check N:
    check an exercise; all of them without N. cards FILE: the cards for Anki (.apkg) or as .md."""
    dir: Annotated[Path, option("DIR", "this folder")] = Path(".")
    """Where the exercises are that check reads."""
    lang: Literal["en", "zh", "both"] = "both"
    """Language of the cards."""
    run: Annotated[Path | None, option("RUN", "none")] = None
    """Run folder of yours, which some of the cards ask about."""
    runtime: Annotated[Path | None, option("DIR", "fetched by npm")] = None
    """Folder with onnxruntime-web, for the living page, where npm cannot be used."""
    json: Flag = False
    """Print one JSON object per exercise that is checked."""


def run(arguments: CourseArguments) -> int:
    what, *rest = arguments.what or ("vitreous-course",)
    _refuse_others(arguments, what)
    if what == "check":
        return _check(arguments, rest)
    if what == "cards":
        _cards(arguments, rest)
        return 0
    starts = what == "start"
    folder = Path(_one(rest, "start DIR") if starts else _one([what, *rest], "DIR"))
    first = api.write_course(folder, runtime=arguments.runtime, log=print)
    if starts:
        written = api.start_course(folder)
        print(f"{len(written)} exercises and notebooks written to {folder}")
        print(f"complete {folder}/01_patches.py, then: vitreous course check 1 --dir {folder}")
    print(f"Open it: {first.resolve().as_uri()}")
    return 0


def _refuse_others(arguments: CourseArguments, what: str) -> None:
    """An error for an option that would be ignored."""
    own = OPTIONS.get(what, ("runtime",))
    for each in fields(arguments):
        given = each.name != "what" and getattr(arguments, each.name) != each.default
        if given and each.name not in own:
            users = [name for name, theirs in OPTIONS.items() if each.name in theirs]
            raise ConfigError(
                f"--{each.name} is an option of vitreous course {(users or ['DIR'])[0]}: leave it "
                "out here"
            )


def _one(words: Sequence[str], usage: str) -> str:
    if len(words) != 1:
        raise ConfigError(f"vitreous course {usage}: one was expected, {len(words)} were given")
    return words[0]


def _check(arguments: CourseArguments, rest: Sequence[str]) -> int:
    if rest:
        text = _one(rest, "check N")
        if not text.isdecimal():
            raise ConfigError(f"vitreous course check {text}: N is the number of a chapter")
        numbers = [int(text)]
    else:
        numbers = api.exercise_numbers()
    found = [api.check_exercise(number, arguments.dir) for number in numbers]
    for each in found:
        if arguments.json:
            print_json(asdict(each))
        else:
            _print(each, alone=len(found) == 1)
    right = sum(each.state == "right" for each in found)
    if len(found) > 1 and not arguments.json:
        print(f"{right} of {len(found)} exercises are right")
    return 0 if right == len(found) else 2


def _print(found: ExerciseResult, *, alone: bool) -> None:
    steps = f"{found.step} of {found.steps} steps" if found.steps else ""
    if found.state == "right":
        print(f"{MARKS['right']} {found.exercise}: all {found.steps} steps agree with the library")
        return
    if found.state == "open" and not alone:
        print(f"{MARKS['open']} {found.exercise}: not begun")
        return
    print(
        f"{MARKS[found.state]} {found.exercise}: {steps + ' right; ' if steps else ''}"
        f"{found.function + ': ' if found.function else ''}{found.seen}"
    )
    for text in found.cause:
        if text and found.state != "open":
            print(f"  {text}")


def _cards(arguments: CourseArguments, rest: Sequence[str]) -> None:
    path = Path(_one(rest, "cards FILE"))
    count = api.write_cards(path, language=arguments.lang, run=arguments.run)
    print(f"{path}: {count} cards")
