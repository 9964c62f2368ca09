"""What the validation curve of a run says: whether it had become flat, or was still rising."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vitreous.run_folder import Run
from vitreous.tasks.task import Task
from vitreous.tasks.verdict import Finding, percent

FEW_EVALUATIONS = 5
"""Below which a curve does not show whether it has become flat."""
RISING = 0.025
"""By which fraction of its value a metric improves in the last third of a run that was too short:
0.046 in the eight epochs on street scenes in docs/segmentation.md, of which more bring more."""

Evaluations = Sequence[dict[str, Any]]


def evaluations(run: Run, task: Task | type[Task]) -> Evaluations:
    lines = run.metrics()
    return [m for m in lines if m.get("kind") == "evaluation" and task.primary in m]


def flat_since(run: Run, task: Task | type[Task]) -> str:
    """Where the last third of the evaluations brought nothing, that; more of it would not."""
    steps = evaluations(run, task)
    if len(steps) < FEW_EVALUATIONS:
        return ""
    best = _best(steps, task)
    if steps.index(best) >= len(steps) * 2 / 3:
        return ""
    return f"nothing was gained behind epoch {best['epoch']:.0f} of {steps[-1]['epoch']:.0f}"


def still_rising(run: Run, task: Task | type[Task]) -> list[Finding]:
    """A metric that has improved much in the last third of the evaluations, by the best before it
    and the best in it: the run was too short."""
    steps = evaluations(run, task)
    last = -(-len(steps) // 3)
    if last == len(steps):
        return []
    before, after = _best(steps[:-last], task), _best(steps[-last:], task)
    old, new = before[task.primary], after[task.primary]
    if not task.better(new, old) or abs(new - old) <= RISING * abs(new):
        return []
    name, verb = task.primary_name or task.primary, "falling" if task.lower_is_better else "rising"
    shown = [f"{v:.3g}" if task.lower_is_better else percent(v) for v in (old, new)]
    seen = (
        f"{name} on val was still {verb} when training ended: {shown[0]} by epoch "
        f"{before['epoch']:.3g}, {shown[1]} by epoch {after['epoch']:.3g}"
    )
    return [Finding("warn", seen, "longer")]


def _best(steps: Evaluations, task: Task | type[Task]) -> dict[str, Any]:
    sign = -1 if task.lower_is_better else 1
    return max(steps, key=lambda line: sign * line[task.primary])
