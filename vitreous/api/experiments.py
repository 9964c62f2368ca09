"""`vitreous study`: a paper's claim, measured again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder, to_stderr
from vitreous.config import choice
from vitreous.progress import Log, silent
from vitreous.study.spec import TIERS

if TYPE_CHECKING:
    from vitreous.study.result import StudyResult
    from vitreous.study.run import Cost
    from vitreous.study.spec import Study


def studies() -> list[Study]:
    """Those that ship, by name."""
    from vitreous.study.find import shipped

    return shipped()


def study(
    name: Folder,
    *,
    tier: str = "standard",
    data: Folder | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    out: Folder | None = None,
    progress: bool = True,
    log: Log | None = None,
) -> StudyResult:
    """Measure a paper's claim, or your own: `name` is one that ships or the path of a TOML file.

    `tier` is quick (one seed, little training), standard (three seeds) or full; `seeds` overrides
    how many. `data` takes the place of the study's own. So many `jobs` are trained side by side:
    one on each core unless given. Runs are folders below `out` (runs/study-NAME-TIER); those that
    are there are found again, and one that was interrupted goes on. Writes study.json and
    index.html there.
    """
    from vitreous.atomic_write import write_text
    from vitreous.pages.page_file import write_page
    from vitreous.pages.study import study_page
    from vitreous.study.result import StudyResult, machine_name

    running, tier, log = _opened(name, tier, data, seeds, jobs, out, progress, log)
    running.run()
    recipe = running.study.recipe
    result = StudyResult(
        *(running.study, tier, running.numbers(), running.failures(), running.baselines()),
        *(str(recipe.get("data", "digits")), running.plan.spent(), machine_name()),
    )
    text = json.dumps(result.to_dict(), indent=1, ensure_ascii=False)
    write_text(running.folder / "study.toml", running.study.text)
    write_text(running.folder / "study.json", text + "\n")
    write_page(running.folder / "index.html", study_page(result, running.folder))
    return result


def study_cost(name: Folder, *, tier: str = "standard", **options: Any) -> Cost:
    """What the runs of a study would take, by a few steps of each."""
    values = {"data": None, "seeds": None, "jobs": None, "out": None, "progress": True, "log": None}
    running, _, _ = _opened(name, tier, **{**values, **options})
    return running.run(only_cost=True)


def study_folder(name: str, tier: str) -> Path:
    return Path("runs", f"study-{Path(name).stem}-{tier}")


def _opened(
    name: Folder,
    tier: str,
    data: Folder | None,
    seeds: int | None,
    jobs: int | None,
    out: Folder | None,
    progress: bool,
    log: Log | None,
) -> tuple[Any, str, Log]:
    from vitreous.study.find import find_study
    from vitreous.study.run import StudyRun, check_jobs
    from vitreous.train.threads import available_cores

    tier = choice("tier", tier, tuple(TIERS))
    log = log or (to_stderr if progress else silent)
    found = find_study(os.fspath(name))
    made = found.at_tier(tier, seeds, None if data is None else os.fspath(data))
    folder = study_folder(found.name, tier) if out is None else Path(out)
    side, threads = check_jobs(jobs, available_cores())
    return StudyRun(made, folder, side, threads, log, progress=progress), tier, log
