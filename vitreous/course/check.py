"""Checks an exercise: the reader's functions against the library's own tensors, step by step.

The first step that differs is named, with its usual cause where one of the known mistakes gives
just what the reader has. The solution is never printed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from vitreous.course.text import chapters
from vitreous.errors import ConfigError, VitreousError

EXERCISES = Path(__file__).with_name("exercises")
Cause = tuple[str, str]
"""Why an answer is wrong, in English and in Chinese."""


@dataclass(frozen=True)
class ExerciseStep:
    """One thing that a reader's function must give."""

    function: str
    """Its name in the exercise's file."""
    given: tuple[Any, ...]
    expected: Any
    """A tensor, or a number, or a tuple of them."""
    mistakes: dict[Cause, Any] = field(default_factory=dict)
    """What usual mistakes would give: a value, or a function that makes it."""
    hint: Cause = ("", "")
    """Where to look if no known mistake fits."""
    tolerance: float = 1e-5


@dataclass(frozen=True)
class ExerciseResult:
    """What became of an exercise."""

    exercise: str
    state: Literal["right", "wrong", "open", "broken"]
    """Right; wrong at a step; not begun; or it raised an error."""
    step: int = 0
    """How many steps are right; the next one is not."""
    steps: int = 0
    function: str = ""
    seen: str = ""
    """How the two differ, or the error."""
    cause: Cause = ("", "")


def exercise_files() -> list[Path]:
    """What readers complete, in order."""
    return sorted(EXERCISES.glob("[0-9]*.py"))


def exercise_of(number: int) -> Path:
    found = [path for path in exercise_files() if path.name.startswith(f"{number:02}_")]
    if not found:
        last = len(chapters("en"))
        raise ConfigError(f"exercise {number}: there are exercises 1 to {last}")
    return found[0]


def start(folder: Path) -> list[Path]:
    """Write the exercises; files that a reader has changed stay."""
    from vitreous.atomic_write import making_folder, write_text

    written = []
    with making_folder(folder):
        for path in exercise_files():
            if not (folder / path.name).exists():
                written.append(folder / path.name)
                write_text(folder / path.name, path.read_text(encoding="utf-8"))
    return written


def check(folder: Path, number: int) -> ExerciseResult:
    """One exercise in the reader's folder."""
    name = exercise_of(number).name
    if not (folder / name).is_file():
        raise ConfigError(
            f"{folder / name} does not exist: `vitreous course start DIR` writes the exercises; "
            "pass --dir DIR, or call this inside of it"
        )
    try:
        theirs = _imported(folder / name)
    except Exception as error:  # a reader's file may raise anything
        return ExerciseResult(name, "broken", seen=_told(error, folder / name))
    return verdict(theirs, name, steps_of(number), folder / name)


def steps_of(number: int) -> list[ExerciseStep]:
    made: Callable[[], Iterable[ExerciseStep]] = importlib.import_module(
        f"vitreous.course.checks.c{number:02}"
    ).steps
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(number)
        return list(made())


def verdict(theirs: ModuleType, name: str, steps: list[ExerciseStep], file: Path) -> ExerciseResult:
    for done, step in enumerate(steps):
        function = getattr(theirs, step.function, None)
        at = (done, len(steps), step.function)
        if function is None:
            return ExerciseResult(name, "broken", *at, f"the file has no function {step.function}")
        try:
            with torch.random.fork_rng(), torch.no_grad():
                answer = function(*map(_copied, step.given))
        except VitreousError as error:
            return ExerciseResult(name, "broken", *at, str(error))
        except Exception as error:  # a reader's code may raise anything
            return ExerciseResult(name, "broken", *at, _told(error, file), step.hint)
        if answer is None or answer is ...:
            state: Literal["open", "wrong"] = "wrong" if done else "open"
            return ExerciseResult(name, state, *at, "it returns nothing yet")
        if seen := difference(answer, step.expected, step.tolerance):
            return ExerciseResult(name, "wrong", *at, seen, _cause(answer, step))
    return ExerciseResult(name, "right", len(steps), len(steps))


def _cause(answer: Any, step: ExerciseStep) -> Cause:
    for cause, mistake in step.mistakes.items():
        wrong = mistake() if callable(mistake) else mistake
        if not difference(answer, wrong, step.tolerance):
            return cause
    return step.hint


def difference(answer: Any, expected: Any, tolerance: float) -> str:
    """How two values differ, in words; nothing if they do not."""
    if isinstance(expected, tuple | list):
        if not isinstance(answer, tuple | list) or len(answer) != len(expected):
            return f"expected {len(expected)} values, got {_kind(answer)}"
        for i, (one, other) in enumerate(zip(answer, expected, strict=True)):
            if seen := difference(one, other, tolerance):
                return f"value {i + 1} of {len(expected)}: {seen}"
        return ""
    if isinstance(expected, Tensor) != isinstance(answer, Tensor):
        return f"expected {_kind(expected)}, got {_kind(answer)}"
    if not isinstance(expected, Tensor):
        same = answer == expected or (
            isinstance(answer, int | float)
            and abs(answer - expected) <= tolerance * max(1.0, abs(expected))
        )
        return "" if same else f"got {answer!r}, which is not it"
    if answer.shape != expected.shape:
        return f"expected the shape {tuple(expected.shape)}, got {tuple(answer.shape)}"
    if not torch.isfinite(answer.float()).all() and torch.isfinite(expected.float()).all():
        return "some numbers are nan or inf"
    answer, expected = answer.detach(), expected.detach()
    apart = (answer.double() - expected.double()).abs()
    apart = torch.where(answer == expected, torch.zeros_like(apart), apart)
    if apart.max() <= tolerance * max(1.0, float(expected.double().abs().max())):
        return ""
    share = float((apart > tolerance).double().mean())
    place = tuple(int(i) for i in torch.unravel_index(apart.argmax(), apart.shape))
    where = f" at {list(place)}" if place else ""
    return (
        f"the shape is right, {share:.0%} of the numbers are not; the furthest{where}: "
        f"{float(answer[place]):.4g}, off by {float(apart[place]):.3g}"
    )


def _kind(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _copied(value: Any) -> Any:
    """So that a reader who changes a tensor in place changes nobody else's."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"exercise_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def _told(error: Exception, file: Path) -> str:
    """An error of the reader's code, with its line in the reader's file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == file
    ]
    if isinstance(error, SyntaxError) and error.lineno:
        lines = [error.lineno]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}{where}: {error}"
