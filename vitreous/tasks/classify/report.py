"""The part of the training report that is about classification."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.pages.charts import confusion_table, line_chart, picture
from vitreous.pages.findings import Findings
from vitreous.predict import Predictor

SHOWN = 24
"""Mistakes on the page."""


@dataclass
class Mistake:
    """An image that the model is sure about, and wrong."""

    id: str
    truth: str
    said: str
    confidence: float
    image: Tensor


class Mistakes(Findings):
    """The mistakes of which the model is most sure."""

    primary = ("accuracy", "part that is right")

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.mistakes: list[Mistake] = []

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output (b, classes), targets (b,)"""
        names = self.predictor.labels
        confidence, said = output.float().softmax(dim=1).max(dim=1)
        found = [
            Mistake(
                batch.ids[i],
                names[targets[i]],
                names[said[i]],
                confidence[i].item(),
                self.predictor.preprocess.restore(batch.images[i]),
            )
            for i in (said != targets).nonzero().flatten().tolist()
        ]
        self.mistakes = sorted([*self.mistakes, *found], key=lambda m: -m.confidence)[:SHOWN]

    def tiles(self, result: dict[str, Any], split: str) -> dict[str, str]:
        return {
            f"accuracy, {split}": f"{100 * result['accuracy']:.2f} %",
            "balanced accuracy": f"{100 * result['balanced_accuracy']:.2f} %",
            "F1, mean of classes": f"{result['f1']:.3f}",
            "calibration error": f"{100 * result['calibration_error']:.1f} %",
            "images": f"{result['samples']:,}",
        }

    def sections(self, result: dict[str, Any]) -> str:
        classes = "".join(
            f"<tr><td>{html.escape(name)}</td><td class=num>{row['samples']}</td>"
            + "".join(f"<td class=num>{row[key]:.3f}</td>" for key in ("precision", "recall", "f1"))
            + "</tr>"
            for name, row in sorted(result["classes"].items(), key=lambda item: item[1]["f1"])
        )
        shots = "".join(
            f"<figure>{picture(m.image)}<figcaption>{html.escape(m.said)}, "
            f"{100 * m.confidence:.0f} % sure<br>is <b>{html.escape(m.truth)}</b><br>"
            f"<span class=soft>{html.escape(m.id)}</span></figcaption></figure>"
            for m in self.mistakes
        )
        return f"""<h2>Classes, the hardest first</h2><div class="wide"><table><tr><th>class</th>
<th class=num>images</th>
<th class=num>precision</th><th class=num>recall</th><th class=num>F1</th></tr>
{classes}</table></div>
<h2>What is taken for what</h2><p class="soft">Rows: truth. Columns: what the model says.</p>
<div class="wide">{confusion_table(list(result["classes"]), result["confusion"])}</div>
<h2>How sure it may be</h2><div class="charts">{_calibration(result["calibration"])}</div>
<h2>Surest mistakes</h2>{f'<div class="shots">{shots}</div>' if shots else "<p>None.</p>"}"""


def _calibration(bins: dict[str, list[float]]) -> str:
    points = [
        (confidence, accuracy)
        for confidence, accuracy, n in zip(
            bins["confidence"], bins["accuracy"], bins["samples"], strict=True
        )
        if n
    ]
    return line_chart(
        "right, by how sure",
        {"measured": points, "ideal": [(0.0, 0.0), (1.0, 1.0)]},
        "how sure the model is",
        "how often it is right",
    )
