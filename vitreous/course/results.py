"""What the studies found, as Markdown: for docs/study-results.md, and for the chapters.

The study.json files of a whole run are kept in studies/results of the clone, or beside the
installed studies.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from vitreous.config import read_toml
from vitreous.study.find import find_study, places
from vitreous.study.spec import Study

Found = dict[str, Any]
OUTCOMES = {
    "holds": ("holds", "成立"),
    "fails": ("**does not hold**", "**不成立**"),
    "undecided": ("undecided", "无法判定"),
}
VERDICTS = {
    "reproduced": ("reproduced", "得到复现"),
    "contradicted": ("contradicted", "与论断矛盾"),
    "undecided": ("undecided at this scale", "在这个规模上无法判定"),
}
SAID = {
    "opening": ("**{0}** {1} ({2})", "**{0}** {1}（{2}）"),
    "rule": ("- {0}: {1} {2}", "- {0}：{1}{2}"),
    "baselines": (
        "What knows nothing, on the same images: {0}.",
        "在同样的图像上，不训练模型的基线：{0}。",
    ),
    "edge": (
        "At the edge of the learning rates tried, so that a better one may lie beyond: {0}.",
        "最优学习率落在所试范围的边缘，范围之外可能还有更好的：{0}。",
    ),
    "failed": ("Failed: {0}: {1}", "失败：{0}：{1}"),
    "cost": (
        "`{0}`: {1}, {2} seeds, {3:.0f} CPU minutes on {4}.",
        "`{0}`：{1}，{2} 个随机种子，在 {4} 上用了 {3:.0f} 分钟 CPU 时间。",
    ),
    "interval": ("{0} ({1} to {2})", "{0}（{1} 至 {2}）"),
    "named": ("{0} ({1})", "{0}（{1}）"),
    "and": (", ", "、"),
    "variant": ("variant", "变体"),
    "paper": ("paper", "论文"),
    "lr": ("lr", "学习率"),
    "parameters": ("parameters", "参数量"),
}
METRICS = {
    "accuracy": ("accuracy", "准确率"),
    "balanced_accuracy": ("balanced accuracy", "平衡准确率"),
    "ap": ("AP", "AP"),
    "map": ("mAP", "mAP"),
    "miou": ("mean IoU", "平均 IoU"),
}
BASELINES = {
    "k-NN on pixels": "像素上的 k-NN",
    "the most frequent class": "最常见的类别",
    "the best constant boxes": "最好的固定边界框",
}
"""Those of the tasks that studies have, in Chinese."""
SEEN = [
    (r"there are no numbers to compare", "没有可以比较的数字"),
    (r"there are no two values to compare", "没有可以比较的两个取值"),
    (r": not measured", "：没有测量"),
    (
        r", of which one run each cannot tell how much is chance",
        "，各只有一次运行，无法判断其中有多少出于偶然",
    ),
    (r" points\b", " 个百分点"),
    (r" pixels\b", " 像素"),
    (r" \((\S+) to (\S+)\)", r"（\1 至 \2）"),
    (r" against ", " 对 "),
    (r" between (\S+) and (\S+): ", r" 从 \1 到 \2："),
    (r" at first([:：])", r"，取第一个值时\1"),
    (r" at last([:：])", r"，取最后一个值时\1"),
    (r" at (\S+?)([:：])", r"，取 \1 时\2"),
    (r": ", "："),
    (r"; ", "；"),
]
"""What `study/verdict.py` writes about a difference, in Chinese, one after the other."""


def all_results() -> list[Found]:
    """Of every study that has been run, by name."""
    files = {p.stem: p for place in reversed(places()) for p in place.glob("results/*.json")}
    return [json.loads(files[name].read_text(encoding="utf-8")) for name in sorted(files)]


def result_of(study: str) -> Found | None:
    return next((each for each in all_results() if each["study"] == study), None)


@cache
def _chinese() -> dict[str, str]:
    """Questions, claims and names of studies, by their English text."""
    return read_toml(Path(__file__).with_name("studies_zh.toml"), "the studies' words")["text"]


@cache
def _study(name: str, tier: str) -> Study:
    """Its labels are not in the result."""
    return find_study(name).at_tier(tier)


class Telling:
    """Tells a study's result in a language."""

    def __init__(self, language: str = "en") -> None:
        self.number = ("en", "zh").index(language)

    def word(self, key: str, *given: Any) -> str:
        return SAID[key][self.number].format(*given)

    def own(self, text: str) -> str:
        """A text of the study's file."""
        return _chinese().get(text, text) if self.number else text

    def section(self, found: Found) -> str:
        """Everything, the question as its first line."""
        claim = found["claim"]
        return self._paragraphs(
            self.word(
                "opening", *map(self.own, (found["question"], claim["text"], claim["source"]))
            ),
            self.own(claim["differs"]),
            *self._body(found),
            self.own(found["paper"].get("note", "")),
            *(self.word("failed", what, why) for what, why in found["failures"].items()),
            self.cost(found),
        )

    def short(self, found: Found) -> str:
        """Without what a chapter says itself."""
        differs = self.own(found["claim"]["differs"])
        return self._paragraphs(differs, *self._body(found), self.cost(found))

    def _body(self, found: Found) -> tuple[str, ...]:
        return self.rules(found), self.table(found), self.baselines(found), self.edges(found)

    def _paragraphs(self, *parts: str) -> str:
        return "\n\n".join(filter(None, parts)) + "\n"

    def verdict(self, found: Found) -> str:
        return VERDICTS[found["verdict"]][self.number]

    def rules(self, found: Found) -> str:
        return "\n".join(
            self.word(
                "rule",
                OUTCOMES[each["outcome"]][self.number],
                self.own(each["text"]),
                self.seen(each["seen"]),
            )
            for each in found["rules"]
        )

    def seen(self, text: str) -> str:
        """The differences behind a rule."""
        if self.number:
            for english, chinese in SEEN:
                text = re.sub(english, chinese, text)
        return text

    def baselines(self, found: Found) -> str:
        known = [
            f"{self.baseline(name)} {100 * value:.1f} %"
            for name, value in found["baselines"].items()
            if value is not None
        ]
        return self.word("baselines", self.word("and").join(known)) if known else ""

    def baseline(self, name: str) -> str:
        return BASELINES.get(name, name) if self.number else name

    def metric(self, name: str) -> str:
        return METRICS[name][self.number] if name in METRICS else name.replace("_", " ")

    def cost(self, found: Found) -> str:
        given = (found["command"], found["data"], found["seeds"], found["cpu_minutes"])
        return self.word("cost", *given, found["machine"])

    def edges(self, found: Found) -> str:
        """Variants whose learning rate is the smallest or the largest of those tried."""
        names = []
        for point in found["points"]:
            tried = sorted(each["lr"] for each in point["tried"])
            if len(tried) > 2 and point["lr"] in (tried[0], tried[-1]):
                names.append(point["variant"])
        listed = self.word("and").join(dict.fromkeys(names))
        return self.word("edge", listed) if names else ""

    def variant(self, study: Study, name: str) -> str:
        """Its label; and its name, by which rules call it, unless the label has that."""
        titles = {each.name: each.title for each in study.variant}
        label = self.own(titles.get(name, name))
        return label if _letters(name) in _letters(label) else self.word("named", label, name)

    def table(self, found: Found) -> str:
        study, name = _study(found["study"], found["tier"]), found["metric"]
        axis = [self.own(study.axis.title)] if study.axis else []
        head = [self.word("variant"), *axis, self.metric(name), self.word("paper")]
        head += [self.word("lr"), "MFLOP", self.word("parameters")]
        lines = [row(*head), row(*["---"] * len(head))]
        for point in found["points"]:
            means = {each: value["mean"] for each, value in point["numbers"].items()}
            flops, parameters = means.get("flops"), means.get("parameters")
            lines.append(
                row(
                    self.variant(study, point["variant"]),
                    *([text(point["value"])] if axis else []),
                    *(self.value(point, name), papers(found["paper"], point), text(point["lr"])),
                    "" if flops is None else f"{1000 * flops:.2f}",
                    "" if parameters is None else f"{parameters:,.0f}",
                )
            )
        return "".join(lines).rstrip()

    def value(self, point: Found, name: str) -> str:
        """A share, with its interval as far as a share goes."""
        found = point["numbers"].get(name)
        if found is None:
            return "–"
        value, limits = f"{100 * found['mean']:.1f} %", found["interval"]
        if limits is None:
            return value
        inside = (min(max(each, 0.0), 1.0) for each in limits)
        return self.word("interval", value, *(f"{100 * each:.1f}" for each in inside))


def row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text.lower())


def papers(paper: Found, point: Found) -> str:
    value = paper["values"].get(point["variant"])
    if isinstance(value, list):
        value = next((y for x, y in value if text(x) == text(point["value"])), None)
    return "" if value is None else f"{value:g} {paper['unit']}".rstrip()


def text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(text, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
