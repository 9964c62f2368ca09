"""Does a paper's claim hold for what was measured? By rules that the study file stated before.

A rule holds, fails, or is undecided: chance alone could make the difference between the two. A
claim is reproduced where all its rules hold, contradicted where one fails, and else undecided at
this scale.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vitreous.study.numbers import Numbers, Point, flipped
from vitreous.study.spec import Expect, arm_of, text_of
from vitreous.study.statistics import Difference, difference

Outcome = Literal["holds", "fails", "undecided"]
Conclusion = Literal["reproduced", "contradicted", "undecided"]


@dataclass(frozen=True)
class Ruling:
    """What a rule says about the numbers."""

    text: str
    outcome: Outcome
    seen: str
    """The difference in words."""


def judged(numbers: Numbers) -> list[Ruling]:
    return [_ruling(numbers, rule) for rule in numbers.study.expect]


def concluded(rulings: Iterable[Ruling]) -> Conclusion:
    outcomes = [each.outcome for each in rulings]
    if "fails" in outcomes:
        return "contradicted"
    return "reproduced" if outcomes and set(outcomes) == {"holds"} else "undecided"


def _ruling(numbers: Numbers, rule: Expect) -> Ruling:
    kind = rule.kind
    if kind in ("better", "more"):
        return _compared(numbers, rule, getattr(rule, kind))
    if kind == "close":
        return _close(numbers, rule)
    if kind == "gap":
        return _gap(numbers, rule)
    return _along(numbers, rule, getattr(rule, kind))


def _compared(numbers: Numbers, rule: Expect, first: str) -> Ruling:
    """first minus than, larger where it is as the rule says."""
    values = [rule.at]
    if rule.at == "all" and numbers.axis is not None:
        values = list(numbers.axis.values)
    seen, outcomes = [], list[Outcome]()
    for value in values:
        a, b = numbers.at(first, value, rule.on), numbers.at(rule.than, value, rule.on)
        found = numbers.difference(a, b, rule.on)
        names = f"{first} against {rule.than}"
        names += f" at {text_of(value)}" if value is not None else ""
        seen.append(spelled(numbers, rule.on, names, found))
        lower = rule.kind == "better" and numbers.metric_of(rule.on).lower_is_better
        outcomes.append(
            _beyond(None if found is None else flipped(found) if lower else found, rule.by)
        )
    return Ruling(rule.text or _words(rule), _all(outcomes), "; ".join(seen))


def _close(numbers: Numbers, rule: Expect) -> Ruling:
    assert rule.within is not None
    seen, outcomes = [], list[Outcome]()
    for first, second in itertools.combinations(rule.close, 2):
        a, b = (numbers.at(each, rule.at, rule.on) for each in (first, second))
        found = numbers.difference(a, b, rule.on)
        seen.append(spelled(numbers, rule.on, f"{first} against {second}", found))
        if found is None:
            outcomes.append("undecided")
        elif -rule.within <= found.low and found.high <= rule.within:
            outcomes.append("holds")
        elif found.low > rule.within or found.high < -rule.within:
            outcomes.append("fails")
        else:
            outcomes.append("undecided")
    return Ruling(rule.text or _words(rule), _all(outcomes), "; ".join(seen))


def _gap(numbers: Numbers, rule: Expect) -> Ruling:
    """How the difference of two variants moves along the axis; larger is better for the first."""
    first, second = (numbers.along(each, rule.on) for each in rule.gap)
    if not first or len(first) != len(second) or len(first) < 2:
        return Ruling(rule.text or _words(rule), "undecided", "there are no numbers to compare")
    sign = flipped if numbers.metric_of(rule.on).lower_is_better else (lambda found: found)
    ends = [numbers.difference(first[i], second[i], rule.on) for i in (0, -1)]
    names = " against ".join(rule.gap)
    seen = "; ".join(
        spelled(numbers, rule.on, f"{names} at {text_of(point.value)}", found)
        for point, found in zip((first[0], first[-1]), ends, strict=True)
    )
    if ends[0] is None or ends[1] is None:
        return Ruling(rule.text or _words(rule), "undecided", seen)
    begin, end = (sign(each) for each in ends if each is not None)
    if rule.along == "turns":
        outcome = _all([_beyond(flipped(begin)), _beyond(end)])
    else:
        moved = _moved(numbers, rule, first, second)
        moved = None if moved is None else sign(moved)
        up = moved if begin.mean < 0 else None if moved is None else flipped(moved)
        if rule.along == "grows" and up is not None:
            up = flipped(up)
        outcome = _beyond(up)
    return Ruling(rule.text or _words(rule), outcome, seen)


def _moved(
    numbers: Numbers, rule: Expect, first: Sequence[Point], second: Sequence[Point]
) -> Difference | None:
    """The difference at the last value minus that at the first one, by seed."""
    name = numbers.metric_of(rule.on).key
    places = [each.of(name) for each in (first[0], second[0], first[-1], second[-1])]
    seeds = sorted(set.intersection(*(set(each) for each in places)))
    if not seeds:
        return None
    a0, b0, a1, b1 = ([each[seed] for seed in seeds] for each in places)
    scale = numbers.scale(rule.on)
    ends = [[scale * (x - y) for x, y in zip(*pair, strict=True)] for pair in ((a1, b1), (a0, b0))]
    return difference(*ends)


def _along(numbers: Numbers, rule: Expect, name: str) -> Ruling:
    points = numbers.along(arm_of(name), rule.on)
    if len(points) < 2:
        return Ruling(rule.text or _words(rule), "undecided", "there are no two values to compare")
    found = numbers.difference(points[-1], points[0], rule.on)
    ends = " and ".join(text_of(each.value) for each in (points[0], points[-1]))
    seen = spelled(numbers, rule.on, f"{name} between {ends}", found)
    if found is not None and rule.kind == "falls":
        found = flipped(found)
    return Ruling(rule.text or _words(rule), _beyond(found, rule.by), seen)


def _beyond(found: Difference | None, by: float = 0.0) -> Outcome:
    """Whether a difference is larger than `by`, whatever chance did."""
    if found is None:
        return "undecided"
    if found.low > by:
        return "holds"
    return "fails" if found.high < by or (found.high == found.low == by) else "undecided"


def _all(outcomes: Iterable[Outcome]) -> Outcome:
    found = set(outcomes)
    if "fails" in found:
        return "fails"
    return "holds" if found == {"holds"} else "undecided"


def spelled(numbers: Numbers, on: str, names: str, found: Difference | None) -> str:
    """`none against learned: -29.5 points (-33.1 to -25.9)`"""
    if found is None:
        return f"{names}: not measured"
    unit = numbers.unit(on)
    value = f"{signed(found.mean)} {unit}".rstrip()
    if math.isinf(found.low):
        return f"{names}: {value}, of which one run each cannot tell how much is chance"
    if found.low == found.high:
        return f"{names}: {value}"
    return f"{names}: {value} ({signed(found.low)} to {signed(found.high)})"


def signed(value: float) -> str:
    size = abs(value)
    text = (
        f"{size:,.0f}"
        if size >= 1000
        else f"{size:.1f}"
        if size >= 0.1 or not size
        else f"{size:.2g}"
    )
    return f"{'−' if value < 0 else '+'}{text}"


def _words(rule: Expect) -> str:
    """For a rule without words of its own."""
    on = f" ({rule.on})" if rule.on else ""
    if rule.kind in ("better", "more"):
        how = "higher" if rule.more else "better"
        return f"{getattr(rule, rule.kind)} is {how} than {rule.than}{on}"
    if rule.kind == "close":
        return f"{', '.join(rule.close)} are within {rule.within:g} of each other{on}"
    if rule.kind == "gap":
        return f"the difference of {' and '.join(rule.gap)} {rule.along}{on}"
    return f"{getattr(rule, rule.kind)} {rule.kind}{on}"
