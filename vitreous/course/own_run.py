"""Numbers of the reader's own run, for cards that ask about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.course.model_numbers import scaled, times
from vitreous.course.study_numbers import Language, NotMeasuredError
from vitreous.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vitreous.run_folder import OpenedRun


def own(number: str, lang: Language = "en", run: str | Path | None = None) -> str:
    """`58,474`: a number of the reader's run folder. One that a run does not have, a detector's
    accuracy say, and all of them without a run, are `NotMeasuredError`."""
    if number not in OWN:
        hint = did_you_mean(number, OWN) or f": there are {', '.join(OWN)}"
        raise ConfigError(f"unknown number of a run: {number!r}{hint}")
    if run is None:
        raise NotMeasuredError("it needs a run folder of yours: pass run=RUN")
    from vitreous.run_folder import OpenedRun, Run

    return OWN[number](OpenedRun(Run(run)), lang)


def _parameters(run: OpenedRun, lang: Language) -> str:
    return f"{sum(each.numel() for each in run.blank_model().parameters()):,}"


def _flops(run: OpenedRun, lang: Language) -> str:
    from vitreous.engines.summary import summarise

    rows = summarise(run.blank_model(), skip=False)
    return scaled(sum(row.flops for row in rows), "FLOPs")


def _tokens(run: OpenedRun, lang: Language) -> str:
    core = run.blank_model().core
    gh, gw = core.levels(core.own_size())[0].grid
    return f"{core.prefix_length + gh * gw:,}"


def _grid(run: OpenedRun, lang: Language) -> str:
    core = run.blank_model().core
    return times(core.levels(core.own_size())[0].grid)


def _image_size(run: OpenedRun, lang: Language) -> str:
    return times(run.blank_model().own_size())


def _field(name: str) -> Callable[[OpenedRun, Language], str]:
    def read(run: OpenedRun, lang: Language) -> str:
        value = getattr(run.blank_model().core.config, name, None)
        if type(value) is not int:
            raise NotMeasuredError(f"{run.path}: its model has no single {name}")
        return f"{value:,}"

    return read


def _model(run: OpenedRun, lang: Language) -> str:
    return run.config.model


def _classes(run: OpenedRun, lang: Language) -> str:
    return f"{len(run.config.labels):,}"


def _score(run: OpenedRun, lang: Language) -> str:
    """The metric that decides, with its interval: `98.9 % (97.8 to 99.7)`."""
    found, metric = _verdict(run), _metric(run)
    if not isinstance(found.get(metric.key), int | float):
        raise NotMeasuredError(f"{run.path}: its verdict.json has no {metric.key}")
    text = metric.text(found[metric.key])
    limits = found.get("intervals", {}).get(metric.key)
    if limits is None:
        return text
    low, high = (metric.text(each).removesuffix(" %") for each in limits)
    return f"{text}（{low} 到 {high}）" if lang == "zh" else f"{text} ({low} to {high})"


def _baseline(run: OpenedRun, lang: Language) -> str:
    """The best of what knows nothing: `99.4 %`."""
    return _metric(run).text(_strongest(run)[1])


def _baseline_name(run: OpenedRun, lang: Language) -> str:
    name = _strongest(run)[0]
    chinese = {"k-NN on pixels": "像素上的 k-NN", "the most frequent class": "最常见的类别"}
    return chinese.get(name, name) if lang == "zh" else name


def _metric_name(run: OpenedRun, lang: Language) -> str:
    name = _metric(run).name
    return {"accuracy": "准确率"}.get(name, name) if lang == "zh" else name


def _strongest(run: OpenedRun) -> tuple[str, float]:
    metric = _metric(run)
    known = {
        name: numbers[metric.key]
        for name, numbers in _verdict(run).get("baselines", {}).items()
        if isinstance(numbers.get(metric.key), int | float)
    }
    if not known:
        raise NotMeasuredError(f"{run.path}: its verdict.json has no baselines")
    name = max(known, key=lambda each: metric.rank(known[each]))
    return name, known[name]


def _metric(run: OpenedRun) -> Any:
    from vitreous.tasks import task_class

    return task_class(run.config.task).metric


def _verdict(run: OpenedRun) -> dict[str, Any]:
    path = run.path / "verdict.json"
    if not path.is_file():
        raise NotMeasuredError(f"{run.path} has no verdict.json: training writes it at its end")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    except (OSError, ValueError):
        pass
    raise ConfigError(f"{path}: not a readable JSON file")


OWN: Mapping[str, Callable[[OpenedRun, Language], str]] = {
    "model": _model,
    "parameters": _parameters,
    "flops": _flops,
    "tokens": _tokens,
    "grid": _grid,
    "image_size": _image_size,
    "dim": _field("dim"),
    "depth": _field("depth"),
    "heads": _field("heads"),
    "classes": _classes,
    "metric": _metric_name,
    "score": _score,
    "baseline": _baseline,
    "baseline_name": _baseline_name,
}
