"""How classifications are printed, reported and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitreous.data.loader import Batch
from vitreous.explain.explanation import MapExplanation
from vitreous.labels import LabelMap
from vitreous.pages import charts
from vitreous.pages.content import Number, Section, class_table, measured, percent
from vitreous.pages.words import Message
from vitreous.results import Classification
from vitreous.tasks.show import Show, TaskReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ClassifyReport(TaskReport):
    """Confusion matrix, calibration, and the errors in which the model is most confident."""

    curves = {"accuracy": "accuracy"}  # noqa: RUF012
    most = 24

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output (b, classes), targets (b,)"""
        confidence, predicted = output.float().softmax(dim=1).max(dim=1)
        for i in (predicted != targets).nonzero().flatten().tolist():
            score, names = confidence[i].item(), self.predictor.labels
            if self.worst.wants(-score):
                caption = f"{names[predicted[i]]}, {percent(score, 0)}"
                note = f"ground truth: {names[targets[i]]}"
                self.worst.add(-score, self.example(batch, i, caption, note))

    def headline(self, result: Mapping[str, Any]) -> dict[str, Number]:
        return {
            "accuracy": measured(result, "accuracy", 2),
            "balanced accuracy": measured(result, "balanced_accuracy", 2),
            "F1, mean of classes": measured(result, "f1"),
            "calibration error": Number(percent(result["calibration_error"])),
        }

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        columns = {"samples": "images", "precision": "precision", "recall": "recall", "f1": "F1"}
        matrix = charts.confusion_matrix(list(result["classes"]), result["confusion"])
        diagram = charts.reliability_diagram(result["calibration"], result["calibration_error"])
        return [
            Section("Confusion matrix", figures=[(matrix, "")], half=True),
            Section(
                "Classes, the hardest first",
                table=class_table(result["classes"], columns, "f1"),
                half=True,
            ),
            Section("Reliability diagram (calibration)", figures=[(diagram, "")], half=True),
            Section(
                "Most confident errors",
                "The prediction with its confidence, and the ground truth.",
                examples=self.worst.found,
                half=True,
            ),
        ]


class ClassifyShow(Show):
    headings = ("label", "score>", "then")
    takes_top = True
    excludes = True
    report = ClassifyReport

    def row(self, result: Classification, top: int) -> tuple[str, ...]:
        best, *others = result.top(top)
        rest = ", ".join(f"{name} {score:.3f}" for name, score in others)
        return best[0], f"{best[1]:.3f}", rest

    def record(self, result: Classification, top: int) -> dict[str, Any]:
        return result.to_dict(top)

    def targets(self, batch: Batch) -> Sequence[Any]:
        """Of each image two classes, and the share of the first."""
        return list(zip(*(column.tolist() for column in batch.targets), strict=True))

    def target_text(self, target: Any, labels: LabelMap) -> str:
        first, second, share = target
        if share == 1 or first == second:
            return labels.names[first]
        return f"{percent(share, 0)} {labels.names[first]}, {labels.names[second]}"

    def words(self, result: Classification) -> str:
        return f"{result.label} {percent(result.score, 0)}"

    def truth_words(self, target: Any, labels: LabelMap) -> str:
        return labels.names[target]

    def conflict(self, result: Classification, other: Classification) -> float:
        """Of two classes the smaller probability."""
        return min(result.score, other.score) if result.label != other.label else 0.0

    def figures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        return {
            "classes": charts.class_scores(result["classes"], "f1", "F1"),
            "confusion": charts.confusion_matrix(list(result["classes"]), result["confusion"]),
            "calibration": charts.reliability_diagram(
                result["calibration"], result["calibration_error"]
            ),
        }

    def answer(self, found: MapExplanation) -> Message:
        return ["classified", found.result.label, percent(found.result.score)]


SHOW = ClassifyShow()
