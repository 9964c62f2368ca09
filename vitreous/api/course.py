"""`vitreous course`: the course as pages, its exercises and their checks, its cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vitreous.api.arguments import Folder
from vitreous.progress import Log, silent

if TYPE_CHECKING:
    from vitreous.course.check import ExerciseResult


def write_course(folder: Folder, *, runtime: Folder | None = None, log: Log = silent) -> Path:
    """Write the course as a site of pages that needs no network; returns its first page.

    `runtime` is a folder with onnxruntime-web, for the living page, where npm cannot be used.
    """
    from vitreous.course.site import write_site

    return write_site(Path(folder), runtime=None if runtime is None else Path(runtime), log=log)


def start_course(folder: Folder) -> list[Path]:
    """Write the exercises and the notebooks into a folder; files that are there stay."""
    from vitreous.course.check import start
    from vitreous.course.notebooks import write_notebooks

    folder = Path(folder)
    return [*start(folder), *write_notebooks(folder / "notebooks")]


def check_exercise(number: int, folder: Folder = ".") -> ExerciseResult:
    """Compare an exercise in the reader's folder with the library's own tensors."""
    from vitreous.course.check import check

    return check(Path(folder), number)


def exercise_numbers() -> list[int]:
    from vitreous.course.check import exercise_files

    return [int(path.name[:2]) for path in exercise_files()]


def write_cards(
    path: Folder, *, language: Literal["en", "zh", "both"] = "both", run: Folder | None = None
) -> int:
    """Write the course's cards for Anki (.apkg) or as Markdown (.md); returns how many there are.

    With `run`, a run folder, some of the answers are about the reader's own model.
    """
    from vitreous.course.cards import write_cards as write

    return len(write(Path(path), language, None if run is None else Path(run)).cards)
