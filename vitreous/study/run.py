"""Runs a study: what is there already is found again, the rest is trained, and all of it measured.

STUDY/study.toml   the file
STUDY/runs/        a run folder for each arm, learning rate that is tried, and seed
STUDY/measured/    what each run was measured by
STUDY/logs/        what the processes that trained them said
STUDY/study.json   the result
STUDY/index.html   the page
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitreous.errors import ConfigError, VitreousError
from vitreous.progress import CountProgress, Log, time_left
from vitreous.study.jobs import StudyJob, with_threads
from vitreous.study.measures import check_measure
from vitreous.study.numbers import Numbers, Point
from vitreous.study.plan import Arm, Found, StudyPlan
from vitreous.study.pool import Pool
from vitreous.study.spec import Study
from vitreous.tasks import task_class
from vitreous.train.recipe import write_recipe
from vitreous.wording import counted

PART = 1000
"""Of a run that the progress counts."""
START_SECONDS = 8.0
"""What a process takes before its first run."""
MEASURE_SECONDS = 1.5
"""What it takes to open and to measure one."""


@dataclass
class Cost:
    """What the runs of a study take."""

    runs: int
    found: int
    """Runs that were there already."""
    seconds: float
    jobs: int

    def __str__(self) -> str:
        left = self.runs - self.found
        if not left:
            return f"all {counted(self.runs, 'run')} are there already"
        there = f"{self.found} of {counted(self.runs, 'run')} are there already; "
        wall = self.seconds / min(self.jobs, left)
        return (
            f"{there if self.found else ''}{counted(left, 'run')} to train and measure: about "
            f"{_minutes(self.seconds)} of CPU time, {_minutes(wall)} with {self.jobs} side by side"
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


class StudyRun:
    """A study at a tier, in a folder."""

    def __init__(
        self, study: Study, folder: Path, jobs: int, threads: int, log: Log, *, progress: bool
    ) -> None:
        for each in study.measure:
            check_measure(each.what, study.file)
        self.study, self.folder, self.log, self.progress = study, folder, log, progress
        self.jobs, self.threads = jobs, threads
        self.plan = StudyPlan(study, folder)
        self.failed: dict[str, tuple[StudyJob, str]] = {}
        """Why, by the name of a job."""

    def run(self, *, only_cost: bool = False) -> Cost:
        """Everything that is not there yet; an error of a run is kept, and the others go on."""
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        try:
            with Pool(self.jobs, logs) as pool:
                self._rehearse(pool)
                cost = self._cost()
                self.log(str(cost))
                if not only_cost:
                    self._train(pool)
        except KeyboardInterrupt:
            self.log("stopped: what is done is kept, and the same command goes on from here")
            raise
        return cost

    @property
    def live(self) -> list[Arm]:
        """Arms that can be built."""
        return [arm for arm in self.plan.arms if not arm.broken]

    def _rehearse(self, pool: Pool) -> None:
        """How long each arm takes, and whether it can be built at all."""
        plan = self.plan
        for arm in plan.arms:
            plan.choose(arm)
        asked = [arm for arm in plan.arms if not arm.row.run and self._is_open(arm)]
        if self.study.equal.what == "flops":
            asked = [arm for arm in plan.arms if not arm.row.run]
        if not asked:
            return
        self.log(f"trying {counted(len(asked), 'arm')} for a few steps, to see what they cost")
        messages = []
        for arm in asked:
            job = with_threads(plan.first(arm), self.threads)
            recipe = replace(job.recipe, weights=None, teacher=None, distill=None)
            messages.append({"do": "rehearse", "name": arm.title, "recipe": write_recipe(recipe)})
        flops: dict[int, float] = {}
        for answer in pool.run(messages, lambda number, part: None):
            arm, found = asked[answer.number], answer.found
            if found["event"] == "stopped":
                raise KeyboardInterrupt
            if found["event"] == "failed":
                arm.broken = found["why"]
                self.log(f"{arm.title} cannot be trained: {found['why']}")
                continue
            arm.seconds = found["seconds"]
            flops[answer.number] = found["flops"] * found["images"]
        if self.study.equal.what == "flops" and flops:
            self._spend_equally(
                [asked[i] for i in sorted(flops)], [flops[i] for i in sorted(flops)]
            )

    def _spend_equally(self, arms: Sequence[Arm], flops: Sequence[float]) -> None:
        """As many epochs as the FLOPs of the first arm allow."""
        for arm, spent in zip(arms, flops, strict=True):
            epochs = self.plan.first(arm).recipe.epochs
            if epochs is None:
                raise ConfigError(f"{self.study.file}: equal FLOPs need epochs in [recipe]")
            arm.epochs = max(round(epochs * flops[0] / spent), 1)
            arm.seconds *= arm.epochs / epochs
            self.plan.choose(arm)

    def _is_open(self, arm: Arm) -> bool:
        plan = self.plan
        searched = all(plan.is_done(job, final=False) for job in plan.search(arm))
        return not searched or not all(
            plan.is_done(plan.final(arm, seed), final=True) for seed in plan.seeds
        )

    def _cost(self) -> Cost:
        """Runs of the search that are as long as the final ones are among these."""
        plan = self.plan
        seconds: dict[str, float] = {}
        done: set[str] = set()

        def count(job: StudyJob, taken: float, final: bool) -> None:
            seconds.setdefault(job.name, taken)
            if plan.is_done(job, final=final):
                done.add(job.name)

        usual = max((arm.seconds for arm in self.live), default=0.0)
        for level in plan.before(self.live):
            for job in level:
                count(job, usual, False)
        for arm in self.live:
            searching = plan.search(arm)
            for job in searching:
                whole = plan.final(arm, 0).recipe.epochs
                part = (job.recipe.epochs or 1) / whole if whole else 1.0
                count(job, arm.seconds * part, False)
            lr = arm.lr or (searching[-1].recipe.lr if searching else None)
            for seed in plan.seeds:
                count(plan.final(arm, seed, lr), arm.seconds, True)
        left = seconds.keys() - done
        total = sum(seconds[name] + MEASURE_SECONDS for name in left) + START_SECONDS * self.jobs
        return Cost(len(seconds), len(done), total, self.jobs)

    def _train(self, pool: Pool) -> None:
        plan = self.plan
        before = plan.before(self.live)
        searching = [job for arm in self.live for job in plan.search(arm)]
        names = {job.name for job in (*searching, *(job for level in before for job in level))}
        total = len(names) + len(self.live) * len(plan.seeds)
        with RunProgress(total, self.log, visible=self.progress) as shown:
            for level in before:
                self._complete(pool, level, shown, final=False)
            self._complete(pool, searching, shown, final=False)
            for arm in self.live:
                plan.choose(arm)
            ready = [arm for arm in self.live if arm.lr is not None or not plan.search(arm)]
            finals = [plan.final(arm, seed) for arm in ready for seed in plan.seeds]
            self._complete(pool, finals, shown, final=True)

    def _complete(
        self, pool: Pool, jobs: Sequence[StudyJob], shown: RunProgress, *, final: bool
    ) -> None:
        """Train and measure what is not done yet."""
        unique = list({job.name: job for job in jobs}.values())
        left = [job for job in unique if not self.plan.is_done(job, final=final)]
        shown.found(len(unique) - len(left))
        ready = []
        for job in left:
            broken = next((name for name in job.needs if name in self.failed), None)
            if broken is None:
                ready.append(job)
            else:
                self._fail(job, f"{broken}, which it needs, failed", shown)
        messages = [self._message(job, final) for job in ready]
        for answer in pool.run(messages, lambda number, part: shown.step(ready[number], part)):
            job, found = ready[answer.number], answer.found
            if found["event"] == "stopped":
                raise KeyboardInterrupt
            if found["event"] == "failed":
                self._fail(job, found["why"], shown)
            else:
                self.plan.store(job, found, final=final)
                shown.end(job, self._said(found))

    def _fail(self, job: StudyJob, why: str, shown: RunProgress) -> None:
        self.failed[job.name] = (job, why)
        shown.end(job, f"failed: {why}")

    def _message(self, job: StudyJob, final: bool) -> dict[str, Any]:
        first = final and job.name == self.plan.final(self.live[0], 0).name
        return {
            "do": "run",
            "name": job.title,
            "run": str(self.plan.maker.runs / job.name),
            "recipe": write_recipe(with_threads(job, self.threads).recipe),
            "evaluations": self.plan.evaluations(job) if final else {},
            "measures": self.plan.measures(job) if final else [],
            "baselines": first,
        }

    def _said(self, found: Found) -> str:
        metric = self.plan.metric
        values = [each["numbers"].get(metric.key) for each in found["evaluations"].values()]
        known = [metric.text(value) for value in values if value is not None]
        if known:
            more = f" and {len(known) - 3} more" if len(known) > 3 else ""
            return f"{metric.name} {', '.join(known[:3])}{more}"
        return "" if found["val"] is None else f"{metric.name} {metric.text(found['val'])} on val"

    def failures(self) -> dict[str, str]:
        """Why, by what failed."""
        arms = {arm.title: arm.broken for arm in self.plan.arms if arm.broken}
        return {**arms, **{job.title: why for job, why in self.failed.values()}}

    def numbers(self) -> Numbers:
        """What all runs that are there have given."""
        task = self.plan.task
        if task is None:
            raise VitreousError(
                f"{self.study.name}: no run could be trained: {'; '.join(self.failures().values())}"
            )
        points = [point for arm in self.plan.arms for point in self._points(arm)]
        kind = task_class(task)
        return Numbers(self.study, kind.metric, kind.other_metrics, points)

    def baselines(self) -> dict[str, float]:
        """What knows nothing, by name, on the same test images."""
        found = self.plan.measured(self.plan.final(self.live[0], 0)) if self.live else None
        return {} if found is None else found.get("baselines", {})

    def _points(self, arm: Arm) -> list[Point]:
        """One; or of an axis that changes how runs are measured, one for each value."""
        axis = self.study.axis
        values = [arm.value] if axis is None or axis.trains else list(axis.values)
        found = [Point(arm.row.name, value, arm.lr, arm.tried) for value in values]
        for seed in self.plan.seeds if not arm.broken else ():
            job = self.plan.final(arm, seed)
            measured = self.plan.measured(job)
            if measured is None or not self.plan.is_done(job, final=True):
                continue
            for point, key in zip(found, self.plan.evaluations(job), strict=True):
                _fill(point, job, seed, measured, key)
        return found


def _fill(point: Point, job: StudyJob, seed: int, measured: Found, key: str) -> None:
    way = measured["evaluations"][key]
    costs = {name: measured.get(name) for name in ("parameters", "training_cpu_seconds")}
    costs["flops"] = None if measured.get("flops") is None else measured["flops"] / 1e9
    for name, value in {**way["numbers"], **costs, **measured.get("measures", {})}.items():
        if isinstance(value, list):
            point.series.setdefault(name, {})[seed] = [(x, y) for x, y in value]
        elif value is not None and math.isfinite(value):
            point.numbers.setdefault(name, {})[seed] = value
    for name, values in way["draws"].items():
        point.draws.setdefault(name, {})[seed] = values
    point.runs[seed] = job.name


class RunProgress(CountProgress):
    """How many runs of all are done, and a line for each that ends."""

    def __init__(self, total: int, log: Log, *, visible: bool) -> None:
        super().__init__(total * PART, log, title="runs", visible=visible)
        self.runs, self.ended, self.trained = total, 0, 0
        self.parts: dict[str, float] = {}

    def found(self, count: int) -> None:
        """They were there already."""
        self.ended += count
        self._show()

    def step(self, job: StudyJob, part: float) -> None:
        self.parts[job.name] = part
        self._show()

    def end(self, job: StudyJob, said: str) -> None:
        self.parts.pop(job.name, None)
        self.ended, self.trained = self.ended + 1, self.trained + 1
        self.log(f"{self.ended} of {self.runs} runs: {job.title}: {said}{self.left}")
        self._show()

    @property
    def left(self) -> str:
        runs = self.runs - self.ended - sum(self.parts.values())
        done = self.trained + sum(self.parts.values())
        if self.runs == self.ended or not done:
            return ""
        return f", {time_left((time.monotonic() - self.began) / done * runs)}"

    def _show(self) -> None:
        if self.bar is not None:
            done = PART * (self.ended + sum(self.parts.values()))
            text = f"{self.ended} of {self.runs} runs{self.left}"
            self.bar.update(self.task, completed=int(done), description=text)


def check_jobs(jobs: int | None, cores: int) -> tuple[int, int]:
    """How many runs go side by side, and the threads that each of them computes with."""
    if jobs is None:
        return cores, 1
    if jobs < 1:
        raise ConfigError(f"jobs = {jobs}: expected at least 1")
    return jobs, max(cores // jobs, 1)
