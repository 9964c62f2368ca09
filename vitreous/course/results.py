"""What the studies found, as Markdown: for docs/study-results.md, and for the chapters.

The study.json files of a whole run are kept in studies/results of the clone, or beside the
installed studies.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from vitreous.config import read_toml
from vitreous.study.find import places

Found = dict[str, Any]
OUTCOMES = {
    "holds": ("holds", "成立"),
    "fails": ("**does not hold**", "**不成立**"),
    "undecided": ("undecided", "无法判定"),
}
VERDICTS = {
    "reproduced": ("reproduced", "得到复现"),
    "contradicted": ("contradicted", "与之相反"),
    "undecided": ("undecided at this scale", "在这个规模上无法判定"),
}
SAID = {
    "baselines": ("What knows nothing, on the same images", "同样的图像上，什么都不懂的方法"),
    "edge": (
        "At the edge of the learning rates tried, so that a better one may lie beyond",
        "最优学习率落在所试范围的边缘，范围之外可能还有更好的",
    ),
    "failed": ("Failed", "失败"),
    "cost": (
        "`{0}`: {1}, {2} seeds, {3:.0f} CPU minutes on {4}.",
        "`{0}`：{1}，{2} 个随机种子，在 {4} 上用了 {3:.0f} 分钟 CPU 时间。",
    ),
    "to": (" to ", " 至 "),
    "and": (", ", "、"),
    "is": (": ", "："),
    "variant": ("variant", "变体"),
    "paper": ("paper", "论文"),
    "parameters": ("parameters", "参数量"),
}


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


class Telling:
    """Tells a study's result in a language."""

    def __init__(self, language: str = "en") -> None:
        self.number = ("en", "zh").index(language)

    def word(self, key: str) -> str:
        return SAID[key][self.number]

    def own(self, text: str) -> str:
        """A text of the study's file."""
        return _chinese().get(text, text) if self.number else text

    def section(self, found: Found) -> str:
        """Everything, the question as its first line."""
        claim = found["claim"]
        return self._paragraphs(
            f"**{self.own(found['question'])}** {self.own(claim['text'])} ({claim['source']})",
            self.own(claim["differs"]),
            *self._body(found),
            self.own(found["paper"].get("note", "")),
            *(f"{self.word('failed')}: {what}: {why}" for what, why in found["failures"].items()),
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
        lines = (
            f"- {OUTCOMES[each['outcome']][self.number]}{self.word('is')}"
            f"{self.own(each['text'])} {each['seen']}"
            for each in found["rules"]
        )
        return "\n".join(lines)

    def baselines(self, found: Found) -> str:
        known = [
            f"{name} {100 * value:.1f} %"
            for name, value in found["baselines"].items()
            if value is not None
        ]
        if not known:
            return ""
        return f"{self.word('baselines')}{self.word('is')}{self.word('and').join(known)}."

    def cost(self, found: Found) -> str:
        given = (found["command"], found["data"], found["seeds"], found["cpu_minutes"])
        return self.word("cost").format(*given, found["machine"])

    def edges(self, found: Found) -> str:
        """Variants whose learning rate is the smallest or the largest of those tried."""
        names = []
        for point in found["points"]:
            tried = sorted(each["lr"] for each in point["tried"])
            if len(tried) > 2 and point["lr"] in (tried[0], tried[-1]):
                names.append(point["variant"])
        listed = self.word("and").join(dict.fromkeys(names))
        return f"{self.word('edge')}{self.word('is')}{listed}." if names else ""

    def table(self, found: Found) -> str:
        axis, name = found["axis"], found["metric"]
        head = [self.word("variant"), *([self.own(axis)] if axis else []), name.replace("_", " ")]
        head += [self.word("paper"), "lr", "MFLOP", self.word("parameters")]
        lines = [row(*head), row(*["---"] * len(head))]
        for point in found["points"]:
            means = {each: value["mean"] for each, value in point["numbers"].items()}
            flops, parameters = means.get("flops"), means.get("parameters")
            lines.append(
                row(
                    *(point["variant"], *([text(point["value"])] if axis else [])),
                    *(self.value(point, name), papers(found["paper"], point), text(point["lr"])),
                    "" if flops is None else f"{1000 * flops:.2f}",
                    "" if parameters is None else f"{parameters:,.0f}",
                )
            )
        return "".join(lines).rstrip()

    def value(self, point: Found, name: str) -> str:
        found = point["numbers"].get(name)
        if found is None:
            return "–"
        value, limits = f"{100 * found['mean']:.1f} %", found["interval"]
        if limits is None:
            return value
        return f"{value} ({100 * limits[0]:.1f}{self.word('to')}{100 * limits[1]:.1f})"


def row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def papers(paper: Found, point: Found) -> str:
    value = paper["values"].get(point["variant"])
    if isinstance(value, list):
        value = next((y for x, y in value if text(x) == text(point["value"])), None)
    return "" if value is None else f"{value:g} {paper['unit']}".rstrip()


def text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(text, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
