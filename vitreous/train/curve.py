"""What the validation curve of a run says: whether it had become flat, or was still rising."""

from __future__ import annotations

from typing import Any

from vitreous.run_folder import Run
from vitreous.tasks.metric import Metric
from vitreous.tasks.verdict import Finding

FEW_EVALUATIONS = 5
"""Below which a curve does not show whether it has become flat."""
RISING = 0.025
"""By which fraction of its value a metric improves in the last third of a run that was too short:
0.046 in the eight epochs on street scenes in docs/segmentation.md, of which more bring more."""


class Curve:
    """The evaluations of a run that have the metric, as metrics.jsonl has them."""

    def __init__(self, run: Run, metric: Metric) -> None:
        self.metric = metric
        self.points: list[dict[str, Any]] = [
            m for m in run.metrics() if m.get("kind") == "evaluation" and metric.key in m
        ]
        self.best = metric.best_of(self.points)

    @property
    def flat_since(self) -> str:
        """Where the last third of the evaluations brought nothing, that; more of it would not."""
        steps, best = self.points, self.best
        if len(steps) < FEW_EVALUATIONS or best is None or steps.index(best) >= len(steps) * 2 / 3:
            return ""
        return f"nothing was gained behind epoch {best['epoch']:.0f} of {steps[-1]['epoch']:.0f}"

    @property
    def still_rising(self) -> list[Finding]:
        """A metric that has improved much in the last third of the evaluations, by the best before
        it and the best in it: the run was too short."""
        metric, last = self.metric, -(-len(self.points) // 3)
        before = metric.best_of(self.points[:-last])
        after = metric.best_of(self.points[-last:])
        if before is None or after is None:
            return []
        old, new = before[metric.key], after[metric.key]
        if not metric.better(new, old) or abs(new - old) <= RISING * abs(new):
            return []
        seen = (
            f"{metric.name} on val was still {'falling' if metric.lower_is_better else 'rising'} "
            f"when training ended: {metric.text(old)} by epoch {before['epoch']:.3g}, "
            f"{metric.text(new)} by epoch {after['epoch']:.3g}"
        )
        return [Finding("warn", seen, "longer")]
