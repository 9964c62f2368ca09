"""What the studies that ship have found, as texts quote it. Texts ask for it by `facts.py`.

A study whose result does not ship yet has no numbers: `NotMeasuredError`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from vitreous.errors import ConfigError
from vitreous.pages.words import LANGUAGES, WORDS

if TYPE_CHECKING:
    from vitreous.study.numbers import Numbers, Point

Language = Literal["en", "zh"]
Value = int | float | str | None
UNITS = {"points": "个百分点", "pixels": "像素"}


class NotMeasuredError(ConfigError):
    """A number that a study or a run could have, and has not: not measured yet."""


def study(
    study: str, variant: str, number: str = "", value: Value = None, lang: Language = "en"
) -> str:
    """`96.5 % (93.9 to 99.1)`: of a variant, at a value of the study's axis (the last one unless
    given); `number` is the study's metric unless given."""
    numbers = _numbers(study)
    point, name = _point(study, variant, number, value), _name(numbers, number)
    metric, mean = numbers.metric_of(name), point.mean(name)
    if mean is None:
        raise _unknown(study, f"{variant} has no {name}", point.numbers)
    limits = point.interval(name, metric.range)
    if limits is None or not all(map(math.isfinite, limits)):
        return _in(lang, metric.text(mean))
    ends = [metric.text(each).removesuffix(metric.unit or "%").rstrip() for each in limits]
    return _in(lang, metric.text(mean)) + _between(ends, lang)


def difference(
    study: str,
    a: str,
    b: str,
    number: str = "",
    value: Value = None,
    lang: Language = "en",
) -> str:
    """`+22.1 points (+20.0 to +24.2)`: a minus b, in pairs of seeds."""
    from vitreous.study.verdict import signed

    numbers = _numbers(study)
    first, second = (_point(study, each, number, value) for each in (a, b))
    found, unit = numbers.difference(first, second, number), numbers.unit(number)
    if found is None:
        raise _unknown(study, f"{a} and {b} do not both have {number}", first.numbers)
    if found.low == found.high and found.mean.is_integer():  # parameters
        return f"{found.mean:+,.0f}".replace("-", "−")
    text = _in(lang, f"{signed(found.mean)} {unit}".rstrip())
    if found.low == found.high or math.isinf(found.low):
        return text
    return text + _between([signed(found.low), signed(found.high)], lang)


def verdict(study: str, lang: Language = "en") -> str:
    """`undecided at this scale`; or reproduced, or contradicted."""
    return _word(_result(study)["verdict"], lang)


def rule(study: str, number: int, lang: Language = "en") -> str:
    """`holds`: what became of a rule of the study, counted from 1."""
    rules = _result(study)["rules"]
    if not 1 <= number <= len(rules):
        raise ConfigError(f"rule {number} of study {study!r}: there are 1 to {len(rules)}")
    return _word(rules[number - 1]["outcome"], lang)


def lr(study: str, variant: str, value: Value = None) -> str:
    """`0.003`: the learning rate that validation images chose."""
    found = _point(study, variant, "", value).lr
    if found is None:
        raise _unknown(study, f"{variant} has no learning rate", [])
    return f"{found:g}"


def baseline(study: str, name: str = "k-NN on pixels") -> str:
    """`99.4 %`: what knows nothing, on the same test images."""
    known = {key: each for key, each in _result(study)["baselines"].items() if each is not None}
    if name not in known:
        raise _unknown(study, f"there is no baseline {name!r}", known)
    return _numbers(study).metric.text(known[name])


def paper(study: str, variant: str, value: Value = None) -> str:
    """`64.2 %`: the paper's own number for a variant, or for an arm that the study does not have;
    at a place of the paper's axis where it has one."""
    from vitreous.study.find import find_study
    from vitreous.study.spec import text_of

    about = find_study(study).paper  # needs no result
    known = {**about.values, **about.others}
    if variant not in known:
        raise _unknown(study, f"the paper has no number for {variant!r}", known)
    found = known[variant]
    if isinstance(found, list):
        places = {text_of(x): y for x, y in found}
        if value is None or text_of(value) not in places:
            raise _unknown(study, f"the paper has {variant} at several places", places)
        found = places[text_of(value)]
    return f"{found:.1f} {about.unit}".rstrip()


def seeds(study: str) -> str:
    """`3`"""
    return str(_result(study)["seeds"])


def cpu_minutes(study: str) -> str:
    """`28`"""
    return f"{_result(study)['cpu_minutes']:,.0f}"


def command(study: str) -> str:
    """`vitreous study positions`: what repeats it."""
    from vitreous.study.find import find_study
    from vitreous.study.result import command as spelled

    return spelled(find_study(study).name, "standard")


# ---- reading


@cache
def _result(name: str) -> dict[str, Any]:
    from vitreous.study.find import find_result, find_study

    find_study(name)  # an unknown name is another error
    found = find_result(name)
    if found is None:
        raise NotMeasuredError(
            f"study {name!r} is not measured yet: 'vitreous study {name}' does it"
        )
    return found


@cache
def _numbers(name: str) -> Numbers:
    from vitreous.study.find import find_study
    from vitreous.study.numbers import Numbers, from_mapping
    from vitreous.tasks.metric import Metric

    found = _result(name)
    points = [from_mapping(each) for each in found["points"]]
    return Numbers(find_study(name), Metric(found["metric"]), (), points)


def _name(numbers: Numbers, number: str) -> str:
    return number or numbers.metric_of("").key


def _point(study: str, variant: str, number: str, value: Value) -> Point:
    numbers = _numbers(study)
    point = numbers.at(variant, value, number)
    if point is None:
        known = {f"{p.variant}@{p.at}" if p.at else p.variant: None for p in numbers.points}
        at = "" if value is None else f" at {value}"
        raise _unknown(study, f"there is no {variant!r}{at}", known)
    return point


def _unknown(study: str, what: str, known: Any) -> ConfigError:
    listed = f": there are {', '.join(map(str, known))}" if known else ""
    return ConfigError(f"study {study!r}: {what}{listed}")


def _word(key: str, lang: Language) -> str:
    """As the page of a study says it."""
    text = str(WORDS["study"][key][LANGUAGES.index(lang)]).rstrip(":：")
    return text[0].lower() + text[1:]


def _in(lang: Language, text: str) -> str:
    """Its unit in the reader's language."""
    if lang == "zh":
        for english, chinese in UNITS.items():
            text = text.replace(english, chinese)
    return text


def _between(ends: list[str], lang: Language) -> str:
    return f"（{' 到 '.join(ends)}）" if lang == "zh" else f" ({' to '.join(ends)})"
