"""How tags are printed, reported and explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.explain.explanation import MapExplanation
from vitreous.labels import IGNORED, LabelMap
from vitreous.pages import charts
from vitreous.pages.content import Number, Section, class_table, measured, percent
from vitreous.pages.words import Message
from vitreous.predict import Predictor
from vitreous.tasks.show import Show, TaskReport
from vitreous.tasks.tag.task import Tag, Tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTE = """AP: average precision, the area below the precision-recall curve; a random order of the
images reaches the label's share of them. Precision, recall and F1 hold at the threshold, which was
chosen on the validation images."""


class TagReport(TaskReport):
    """Precision over recall, and the errors in which the model is most confident."""

    curves = {"map": "mAP"}  # noqa: RUF012
    most = 24

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        assert isinstance(predictor.task, Tag)
        self.thresholds = predictor.task.thresholds

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output and targets (b, classes)"""
        scores = output.float().sigmoid()
        wrong = ((scores >= self.thresholds) != (targets == 1)) & (targets != IGNORED)
        # the worst label of each image, by how far its probability is from the ground truth
        distance, label = ((scores - targets).abs() * wrong).max(dim=1)
        for i in wrong.any(dim=1).nonzero().flatten().tolist():
            worst, key, names = int(label[i]), -distance[i].item(), self.predictor.labels
            if self.worst.wants(key):
                what = "missed" if targets[i, worst] else "wrong"
                caption = f"{what}: {names[worst]}, {percent(scores[i, worst].item(), 0)}"
                true = ", ".join(names[j] for j in (targets[i] == 1).nonzero().flatten().tolist())
                note = f"ground truth: {true or 'no label'}"
                self.worst.add(key, self.example(batch, i, caption, note))

    def headline(self, result: Mapping[str, Any]) -> dict[str, Number]:
        return {
            "mAP": measured(result, "map", 2),
            "mAP of a random order": Number(percent(result["map_chance"])),
            "F1, mean of labels": measured(result, "f1"),
            "images with all labels right": measured(result, "exact_match"),
        }

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        keys = ("samples", "ap", "precision", "recall", "f1", "threshold")
        columns = {key: key for key in keys} | {"samples": "images", "ap": "AP", "f1": "F1"}
        return [
            Section("Precision and recall", figures=[(_curves(result), "")], half=True),
            Section(
                "Labels, the hardest first",
                NOTE,
                table=class_table(result["classes"], columns, "ap"),
                half=True,
            ),
            Section(
                "Most confident errors",
                "The label with its probability, and the ground truth.",
                examples=self.worst.found,
            ),
        ]


class TagShow(Show):
    headings = ("labels", "below their threshold")
    has_threshold = True
    takes_top = True
    report = TagReport

    def row(self, result: Tags, top: int) -> tuple[str, ...]:
        chosen = result.labels[:top]
        others = [name for name in result.scores if name not in result.labels]
        return tuple(
            ", ".join(f"{name} {result.scores[name]:.3f}" for name in names)
            for names in (chosen, others[: max(top - len(chosen), 0)])
        )

    def record(self, result: Tags, top: int) -> dict[str, Any]:
        return result.to_dict(top)

    def target_text(self, target: Tensor, labels: LabelMap) -> str:
        """Shares below one come from mixed images."""
        shares = {labels.names[i]: target[i].item() for i in target.nonzero().flatten().tolist()}
        texts = (n if share == 1 else f"{percent(share, 0)} {n}" for n, share in shares.items())
        return ", ".join(texts) or "no label"

    def words(self, result: Tags) -> str:
        chosen = (f"{name} {percent(result.scores[name], 0)}" for name in result.labels)
        return ", ".join(chosen) or "no label"

    def truth_words(self, target: Tensor, labels: LabelMap) -> str:
        return self.target_text(target == 1, labels)  # without what is not known

    def conflict(self, result: Tags, other: Tags) -> float:
        """Of the labels that one has and the other has not, the largest difference of scores."""
        differ = set(result.labels) ^ set(other.labels)
        scores = (abs(result.scores.get(n, 0.0) - other.scores.get(n, 0.0)) for n in differ)
        return max(scores, default=0.0)

    def figures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        return {
            "classes": charts.class_scores(result["classes"], "ap", "AP"),
            "precision": _curves(result),
        }

    def answer(self, found: MapExplanation) -> Message:
        chosen = (f"{name} {percent(found.result.scores[name])}" for name in found.result.labels)
        return ", ".join(chosen) or ["noLabel"]


def _curves(result: Mapping[str, Any]) -> Figure:
    return charts.precision_recall(result["curves"], title="in brackets: mean precision")


SHOW = TagShow()
