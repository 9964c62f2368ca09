"""`report.html`: one self-contained page that shows how good a run is, and where it is wrong."""

from __future__ import annotations

import html
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.data.source import Source
from vitreous.explain.charts import confusion_table, line_chart, picture
from vitreous.predict import Predictor, load
from vitreous.run_folder import Run

STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--soft:#5d6b7a;--line:#d7dee6;--paper:#fff;--a:#1f6feb;
--b:#c2410c;--c:#15803d}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa7b4;--line:#2f3a46;--paper:#10161d;
--a:#6cb0ff;--b:#ffa26b;--c:#5fd38a}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{margin:.4rem 0}
.soft{color:var(--soft)}.big{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}
.big div{border:1px solid var(--line);border-radius:.5rem;padding:.6rem 1rem;min-width:8rem}
.big b{display:block;font-size:1.5rem}.charts{display:grid;gap:1rem;
grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:.5rem}
svg text{fill:var(--soft);font-size:11px}svg .title{fill:var(--ink);font-size:13px}
svg .end{text-anchor:end;dominant-baseline:middle}svg .mid{text-anchor:middle}
svg .grid{stroke:var(--line)}svg .line{fill:none;stroke-width:2}
svg .l0{stroke:var(--a)}svg .l1{stroke:var(--b)}svg .l2{stroke:var(--c)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}td,th{padding:.25rem .6rem;border-bottom:1px solid var(--line);
text-align:left;font-weight:normal}th{color:var(--soft)}.num{text-align:right}
.confusion td,.confusion th{padding:.2rem .4rem;text-align:center}
.cell{background:color-mix(in srgb,var(--a) calc(var(--share)*.6),transparent)}
.tilt span{writing-mode:vertical-rl;transform:rotate(180deg)}
.shots{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr))}
figure{margin:0}figcaption{font-size:.82rem;line-height:1.35;overflow-wrap:anywhere}
img{border-radius:.3rem;image-rendering:pixelated;max-width:100%;background:var(--line)}
pre{background:color-mix(in srgb,var(--line) 40%,transparent);padding:.7rem 1rem;overflow-x:auto;
border-radius:.4rem}
"""


@dataclass
class Mistake:
    """An image that the model is sure about, and wrong."""

    id: str
    truth: str
    said: str
    confidence: float
    image: Tensor


def write_report(
    run: Run, source: Source, split: str | None = None
) -> tuple[Path, str, dict[str, Any]]:
    """Evaluate the run on a split (test, or else val) and write the page. All three, back."""
    predictor = load(run.path)
    split = split or ("test" if "test" in source.splits else "val")
    result, mistakes = examine(predictor, source, split)
    run.write_text("report.html", page(run, result, mistakes, split))
    return run.path / "report.html", split, result


def examine(
    predictor: Predictor, source: Source, split: str, shown: int = 24
) -> tuple[dict[str, Any], list[Mistake]]:
    """The metrics, and the mistakes of which the model is most sure, in one pass."""
    mistakes: list[Mistake] = []
    names = predictor.labels

    def see(batch: Batch, logits: Tensor, targets: Tensor) -> None:
        confidence, said = logits.float().softmax(dim=1).max(dim=1)
        found = [
            Mistake(
                batch.ids[i],
                names[targets[i]],
                names[said[i]],
                confidence[i].item(),
                predictor.preprocess.restore(batch.images[i]),
            )
            for i in (said != targets).nonzero().flatten().tolist()
        ]
        mistakes[:] = sorted([*mistakes, *found], key=lambda m: -m.confidence)[:shown]

    return predictor.evaluate(source, split, see=see), mistakes


def page(run: Run, result: dict[str, Any], mistakes: list[Mistake], split: str) -> str:
    config = run.read_config()
    evaluations = [m for m in run.metrics() if m.get("kind") == "evaluation"]
    best = max(evaluations, key=lambda m: m["accuracy"], default=None)
    numbers = {
        f"accuracy, {split}": f"{100 * result['accuracy']:.2f} %",
        "balanced accuracy": f"{100 * result['balanced_accuracy']:.2f} %",
        "F1, mean of classes": f"{result['f1']:.3f}",
        "calibration error": f"{100 * result['calibration_error']:.1f} %",
        "images": f"{result['samples']:,}",
    }
    tiles = "".join(
        f"<div><b>{value}</b>{html.escape(name)}</div>" for name, value in numbers.items()
    )
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
        for m in mistakes
    )
    title = f"{config.model} on {config.data}"
    repeat = f"vitreous train --recipe {shlex.quote(str(run.path / 'recipe.toml'))}"
    facts = {
        "model": config.model,
        "config": config.config,
        "preprocess": {k: getattr(config.preprocess, k) for k in ("image_size", "mean", "std")},
        "weights": config.weights or "random",
        "versions": config.versions,
    }
    at_best = f", best at epoch {best['epoch']:g} of {evaluations[-1]['epoch']:g}" if best else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>
<p class="soft">Vitreous training report</p><h1>{html.escape(title)}</h1>
<p>{len(config.labels)} classes{at_best}. Measured on the split <b>{split}</b>.</p>
<div class="big">{tiles}</div>
<h2>Learning</h2><div class="charts">{_curves(evaluations)}</div>
<h2>Classes, the hardest first</h2><div class="wide"><table><tr><th>class</th>
<th class=num>images</th>
<th class=num>precision</th><th class=num>recall</th><th class=num>F1</th></tr>
{classes}</table></div>
<h2>What is taken for what</h2><p class="soft">Rows: truth. Columns: what the model says.</p>
<div class="wide">{confusion_table(list(result["classes"]), result["confusion"])}</div>
<h2>How sure it may be</h2><div class="charts">{_calibration(result["calibration"])}</div>
<h2>Surest mistakes</h2>{f'<div class="shots">{shots}</div>' if shots else "<p>None.</p>"}
<h2>What was trained</h2><pre>{html.escape(json.dumps(facts, indent=2))}</pre>
<h2>To repeat it</h2><pre>{html.escape(repeat)}</pre></main></body></html>
"""


def _curves(evaluations: list[dict[str, Any]]) -> str:
    def line(key: str) -> list[tuple[float, float]]:
        return [(m["epoch"], m[key]) for m in evaluations if key in m]

    return (
        line_chart("loss per epoch", {"training": line("train_loss"), "validation": line("loss")})
        + line_chart("accuracy per epoch", {"validation": line("accuracy")})
        + line_chart("learning rate", {"rate": line("lr")})
    )


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
    )
