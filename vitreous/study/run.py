"""Runs a study: what is there already is found again, the rest is trained, and all of it measured.

STUDY/study.toml   the file
STUDY/runs/        a run folder for each arm, learning rate that is tried, and seed
STUDY/measured/    what each run was measured by
STUDY/study.json   the result
STUDY/index.html   the page
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vitreous.atomic_write import write_text
from vitreous.errors import ConfigError, VitreousError
from vitreous.progress import CountProgress, Log, time_left
from vitreous.run_folder import OpenedRun, Run
from vitreous.study.jobs import Job, Jobs, with_threads
from vitreous.study.measures import check_measure
from vitreous.study.numbers import Numbers, Point
from vitreous.study.pool import Pool
from vitreous.study.spec import Axis, Study, Table, Variant, text_of
from vitreous.tasks import task_class
from vitreous.tasks.metric import Metric
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
        there = (
            f"{counted(self.found, 'run')} of {self.runs} are there already; " if self.found else ""
        )
        left = self.runs - self.found
        if not left:
            return f"all {counted(self.runs, 'run')} are there already"
        minutes = self.seconds / 60
        wall = minutes / min(self.jobs, left)
        return (
            f"{there}{counted(left, 'run')} to train and measure: about {_minutes(minutes)} of CPU "
            f"time, {_minutes(wall)} with {self.jobs} side by side"
        )


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 2 else f"{60 * minutes:.0f} s"


@dataclass
class Arm:
    """A variant at a value of the axis that needs runs of its own."""

    row: Variant
    value: Any
    seconds: float = 0.0
    """That a run takes; with what it needs."""
    epochs: int | None = None
    """Where they are not the recipe's: what is held equal decides."""
    failed: dict[str, str] = field(default_factory=dict)
    tried: dict[float, float | None] = field(default_factory=dict)
    lr: float | None = None

    @property
    def title(self) -> str:
        return self.row.name + ("" if self.value is None else f" at {text_of(self.value)}")


class StudyRun:
    """A study at a tier, in a folder."""

    def __init__(
        self, study: Study, folder: Path, jobs: int, threads: int, log: Log, *, progress: bool
    ) -> None:
        for each in study.measure:
            check_measure(each.what, study.file)
        self.study, self.folder, self.log, self.progress = study, folder, log, progress
        self.jobs, self.threads = jobs, threads
        self.maker = Jobs(study, folder / "runs")
        self.arms = [Arm(row, value) for row in study.variant for value in self.maker.values()]
        self.failed: dict[str, str] = {}
        """Why, by the name of a job."""
        self.cpu_seconds = 0.0

    def run(self, *, only_cost: bool = False) -> Cost:
        """Everything that is not there yet; an error of a run is kept, and the others go on."""
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with Pool(self.jobs, logs) as pool:
            self._rehearse(pool)
            cost = self._cost()
            self.log(str(cost))
            if not only_cost:
                self._train(pool)
        return cost

    # what it takes

    def _rehearse(self, pool: Pool) -> None:
        """How long each arm takes, and whether it can be built at all."""
        asked: list[tuple[Arm, Job]] = []
        for arm in self.arms:
            job = self._job(arm, 0, self._lr_to_plan(arm))
            if self._is_open(arm) and job.trained:
                asked.append((arm, job))
        if not asked:
            return
        self.log(f"trying {counted(len(asked), 'arm')} for a few steps, to see what they cost")
        flops: dict[int, float] = {}
        messages = []
        for _, job in asked:
            plain = replace(job.recipe, weights=None, teacher=None, distill=None)
            recipe = with_threads(replace(job, recipe=plain), self.threads).recipe
            messages.append({"do": "rehearse", "name": job.title, "recipe": write_recipe(recipe)})
        for answer in pool.run(messages, lambda number, part: None):
            arm, found = asked[answer.number][0], answer.found
            if found["event"] != "done":
                arm.failed["built"] = found["why"]
                self.log(f"{arm.title} cannot be trained: {found['why']}")
                continue
            arm.seconds = found["seconds"]
            flops[answer.number] = found["flops"] * found["images"]
        if self.study.equal.what == "flops" and flops:
            self._equal_flops([arm for arm, _ in asked], flops)

    def _equal_flops(self, arms: Sequence[Arm], flops: dict[int, float]) -> None:
        """As many epochs as the FLOPs of the first arm allow."""
        first = flops[min(flops)]
        for number, spent in flops.items():
            arm = arms[number]
            job = self.maker.of(arm.row, 0, arm.value, self._lr_to_plan(arm))
            epochs = job.recipe.epochs
            if epochs is None:
                raise ConfigError(f"{self.study.file}: equal FLOPs need epochs in [recipe]")
            arm.epochs = max(round(epochs * first / spent), 1)
            arm.seconds *= arm.epochs / epochs

    def _cost(self) -> Cost:
        every: dict[str, tuple[Arm, Job, bool]] = {}
        for arm in self.arms:
            if arm.failed:
                continue
            for job in self._searching(arm):
                every.setdefault(job.name, (arm, job, False))
            for seed in self.seeds:
                known = self._known_lr(arm)
                job = self._job(arm, seed, known)
                every[job.name] = (arm, job, True)
                for other in self.maker.needed(job):
                    every.setdefault(other.name, (arm, other, False))
        left = [(arm, job) for arm, job, final in every.values() if not self._is_done(job, final)]
        searched = self.study.search.epochs
        seconds = START_SECONDS * self.jobs
        for arm, job in left:
            whole = job.recipe.epochs or 0
            part = whole / arm_epochs if (arm_epochs := arm.epochs or whole) and searched else 1.0
            seconds += arm.seconds * (part if job.trained else 0) * self._share(arm, job)
            seconds += MEASURE_SECONDS
        return Cost(len(every), len(every) - len(left), seconds, self.jobs)

    def _share(self, arm: Arm, job: Job) -> float:
        """Of a run's time, what one of the search takes."""
        whole, own = arm.epochs or self._job(arm, 0, None).recipe.epochs, job.recipe.epochs
        return own / whole if own and whole and job.row == arm.row.name else 1.0

    # training

    @property
    def seeds(self) -> range:
        return range(self.study.seeds)

    def _train(self, pool: Pool) -> None:
        live = [arm for arm in self.arms if not arm.failed]
        needed = [
            other
            for arm in live
            for seed in self.seeds
            for job in (self._job(arm, seed, None),)
            for other in (*self.maker.needed(job), *([] if job.trained else [job]))
        ]
        total = self._count(live, needed)
        with RunProgress(total, self.log, visible=self.progress) as shown:
            for level in _levels(needed, self.maker):
                self._complete(pool, level, shown, final=False)
            searching = [(arm, job) for arm in live for job in self._searching(arm)]
            self._complete(pool, [job for _, job in searching], shown, final=False)
            for arm in live:
                self._choose(arm)
            finals = [
                self._job(arm, seed, arm.lr)
                for arm in live
                for seed in self.seeds
                if not arm.failed
            ]
            self._complete(pool, finals, shown, final=True)

    def _count(self, live: Sequence[Arm], needed: Iterable[Job]) -> int:
        names = {job.name for job in needed}
        names |= {job.name for arm in live for job in self._searching(arm)}
        return len(names) + len(live) * len(self.seeds)

    def _searching(self, arm: Arm) -> list[Job]:
        """The runs that choose the learning rate of an arm: with the first seed, by validation
        images. The best one is also the first of the final runs, if it is as long."""
        search = self.study.search
        if not search.lr or arm.row.run or "lr" in arm.row.recipe:
            return []
        value = arm.value if search.at == "each" or arm.value is None else self.maker.values()[-1]
        epochs = search.epochs or self._epochs_of(arm, value)
        return [self.maker.of(arm.row, 0, value, lr, epochs) for lr in search.lr]

    def _epochs_of(self, arm: Arm, value: Any) -> int | None:
        same = next(a for a in self.arms if a.row is arm.row and a.value == value)
        return same.epochs

    def _choose(self, arm: Arm) -> None:
        """The learning rate whose run is the best on validation images."""
        metric = self.metric
        for job in self._searching(arm):
            found = self._measured(job)
            lr = job.recipe.lr
            assert lr is not None
            arm.tried[lr] = None if found is None else found["val"]
            if job.name in self.failed:
                arm.failed[f"lr {lr:g}"] = self.failed[job.name]
        known = {lr: value for lr, value in arm.tried.items() if value is not None}
        if known:
            arm.lr = max(known, key=lambda lr: metric.rank(known[lr]))
            arm.failed.clear() if len(known) == len(arm.tried) else None

    def _known_lr(self, arm: Arm) -> float | None:
        """The chosen one, as far as the search is done; else any of them, to count runs."""
        searching = self._searching(arm)
        known = {job.recipe.lr: found["val"] for job in searching if (found := self._measured(job))}
        if len(known) == len(searching) and known:
            return max(known, key=lambda lr: self.metric.rank(known[lr]))
        return searching[-1].recipe.lr if searching else None

    def _lr_to_plan(self, arm: Arm) -> float | None:
        lrs = self.study.search.lr
        return lrs[0] if lrs and "lr" not in arm.row.recipe and not arm.row.run else None

    def _job(self, arm: Arm, seed: int, lr: float | None) -> Job:
        return self.maker.of(arm.row, seed, arm.value, lr, arm.epochs)

    def _complete(
        self, pool: Pool, jobs: Sequence[Job], shown: RunProgress, *, final: bool
    ) -> None:
        """Train and measure what is not done yet."""
        unique = list({job.name: job for job in jobs}.values())
        left = [job for job in unique if not self._is_done(job, final)]
        shown.found(len(unique) - len(left))
        ready = []
        for job in left:
            broken = next((n for n in job.needs if n in self.failed), None)
            if broken is None:
                ready.append(job)
                continue
            self.failed[job.name] = f"{broken}, which it needs, failed"
            shown.end(job, self.failed[job.name])
        messages = [self._message(job, final) for job in ready]
        for answer in pool.run(messages, lambda number, part: shown.step(ready[number], part)):
            job, found = ready[answer.number], answer.found
            if found.pop("event") == "done":
                self._store(job, found)
                shown.end(job, self._said(job, found))
            elif "why" in found:
                self.failed[job.name] = found["why"]
                shown.end(job, f"failed: {found['why']}")
            else:
                raise KeyboardInterrupt

    def _message(self, job: Job, final: bool) -> dict[str, Any]:
        computed = with_threads(job, self.threads)
        return {
            "do": "run",
            "name": job.title,
            "run": str(self.maker.runs / job.name),
            "recipe": write_recipe(computed.recipe),
            "train": True,
            "evaluations": self._evaluations(job) if final else {},
            "measures": self._measures(job) if final else [],
            "threads": computed.recipe.threads,
        }

    def _said(self, job: Job, found: dict[str, Any]) -> str:
        values = [each["numbers"].get(found["metric"]) for each in found["evaluations"].values()]
        known = [self.metric.text(value) for value in values if value is not None]
        if known:
            return f"{self.metric.name} {' '.join(known[:4])}"
        return (
            ""
            if found["val"] is None
            else f"{self.metric.name} {self.metric.text(found['val'])} on val"
        )

    # what is measured

    def _evaluations(self, job: Job) -> Table:
        """Options of `vitreous evaluate`, by what they say."""
        row = self.study.named(job.row)
        axis = self.study.axis
        ways = [row.evaluate]
        if axis is not None and not axis.trains:
            ways = [{**row.evaluate, **_option(axis, value)} for value in axis.values]
        return {json.dumps(each, sort_keys=True): each for each in ways}

    def _measures(self, job: Job) -> list[Table]:
        row = self.study.named(job.row)
        return [
            {"what": each.what, "options": {**each.options, **row.measure.get(each.what, {})}}
            for each in self.study.measure
            if not each.variants or row.name in each.variants
        ]

    def _is_open(self, arm: Arm) -> bool:
        return any(
            not self._is_done(job, final)
            for jobs, final in (
                (self._searching(arm), False),
                ([self._job(arm, seed, self._known_lr(arm)) for seed in self.seeds], True),
            )
            for job in jobs
        )

    def _is_done(self, job: Job, final: bool) -> bool:
        found = self._measured(job)
        if found is None:
            return False
        return not final or (
            self._evaluations(job).keys() <= found["evaluations"].keys()
            and found.get("asked", []) == self._measures(job)
        )

    def _file(self, job: Job) -> Path:
        return self.folder / "measured" / f"{job.name}.json"

    def _measured(self, job: Job) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._file(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        there = (self.maker.runs / job.name / "config.json").is_file()
        return found if there else None

    def _store(self, job: Job, found: dict[str, Any]) -> None:
        if found["evaluations"]:
            found["asked"] = self._measures(job)
        self._file(job).parent.mkdir(exist_ok=True)
        before = self._measured(job) or {}
        found["cpu_seconds"] += before.get("cpu_seconds", 0.0)
        write_text(self._file(job), json.dumps(found) + "\n")

    # the result

    @property
    def task(self) -> str | None:
        """Of the first run that is there."""
        runs = self.maker.runs
        for path in sorted(runs.glob("*/config.json")) if runs.is_dir() else ():
            task = OpenedRun(Run(path.parent)).config.task
            if not task_class(task).pretrains:
                return task
        return None

    @property
    def metric(self) -> Metric:
        task = self.task
        if task is None:
            raise VitreousError(
                f"{self.study.name}: no run could be trained: {'; '.join(self.failures().values())}"
            )
        return task_class(task).metric

    def failures(self) -> dict[str, str]:
        """Why, by what failed."""
        arms = {arm.title: why for arm in self.arms for why in arm.failed.values()}
        return {**arms, **self.failed}

    def numbers(self) -> Numbers:
        """What all runs that are there have given."""
        points = [point for arm in self.arms for point in self._points(arm)]
        metric = self.metric
        others = task_class(self.task or "").other_metrics
        return Numbers(self.study, metric, others, points)

    def _points(self, arm: Arm) -> list[Point]:
        if not arm.tried:
            self._choose(arm)
        axis = self.study.axis
        values = [arm.value] if axis is None or axis.trains else list(axis.values)
        found = [Point(arm.row.name, v, arm.lr, arm.tried, failed=dict(arm.failed)) for v in values]
        for seed in self.seeds if not arm.failed.get("built") else ():
            job = self._job(arm, seed, arm.lr)
            measured = self._measured(job)
            if job.name in self.failed:
                for point in found:
                    point.failed[f"seed {seed}"] = self.failed[job.name]
            if measured is None or not self._is_done(job, final=True):
                continue
            for point, key in zip(found, self._evaluations(job), strict=True):
                self._fill(point, job, seed, measured, key)
        return found

    def _fill(self, point: Point, job: Job, seed: int, measured: dict[str, Any], key: str) -> None:
        way = measured["evaluations"][key]
        costs = {name: measured.get(name) for name in ("parameters", "training_cpu_seconds")}
        costs["flops"] = None if measured.get("flops") is None else measured["flops"] / 1e9
        inside = measured.get("measures", {})
        for name, value in {**way["numbers"], **costs, **inside}.items():
            if isinstance(value, list):
                point.series.setdefault(name, {})[seed] = [(x, y) for x, y in value]
            elif value is not None and math.isfinite(value):
                point.numbers.setdefault(name, {})[seed] = value
        point.draws[seed], point.runs[seed] = way["draws"], job.name

    def spent(self) -> float:
        """CPU seconds of all runs that the study has needed, the search included."""
        folder = self.folder / "measured"
        names = {path.name for path in folder.glob("*.json")} if folder.is_dir() else set()
        mine = {f"{job.name}.json" for job in self._all_jobs()} & names
        read = (json.loads((folder / name).read_text(encoding="utf-8")) for name in sorted(mine))
        return sum(each.get("cpu_seconds", 0.0) for each in read)

    def _all_jobs(self) -> list[Job]:
        found = []
        for arm in self.arms:
            found += self._searching(arm)
            for seed in self.seeds:
                job = self._job(arm, seed, arm.lr)
                found += [job, *self.maker.needed(job)]
        return found


def _option(axis: Axis, value: Any) -> Table:
    if axis.name == "probe":
        return {} if value == "none" else {"probe": [value]}
    return {axis.name: list(value) if isinstance(value, tuple) else value}


def _levels(jobs: Iterable[Job], maker: Jobs) -> list[list[Job]]:
    """Those that need no others, then those that need only these …"""
    left = {job.name: job for job in jobs}
    done: set[str] = set()
    found = []
    while left:
        ready = [job for job in left.values() if not (set(job.needs) & left.keys())]
        found.append(ready)
        done |= {job.name for job in ready}
        left = {name: job for name, job in left.items() if name not in done}
    return found


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

    def step(self, job: Job, part: float) -> None:
        self.parts[job.name] = part
        self._show()

    def end(self, job: Job, said: str) -> None:
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
