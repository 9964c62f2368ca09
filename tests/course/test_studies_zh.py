"""What the studies say has its Chinese, and what they have found is told in it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from vitreous.config import read_toml
from vitreous.course import results
from vitreous.course.results import SEEN, Telling, all_results
from vitreous.study import verdict
from vitreous.study.find import shipped
from vitreous.study.numbers import Numbers, Point
from vitreous.study.result import StudyResult
from vitreous.study.spec import TIERS, axis_of
from vitreous.study.statistics import Difference
from vitreous.tasks.metric import Metric

TABLE = read_toml(Path(results.__file__).with_name("studies_zh.toml"), "the studies' words")["text"]
STUDIES = shipped()
BY_NAME = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
PRODUCT = re.compile(r"[A-Z]\w+ [\d.]+")
"""DropPath 0.1: the same in both languages."""
SERIES = {
    "attention-distance": {"attention-distance": [1, 2, 3, 4]},
    "decoder-layers": {name: [1, 2, 3] for name in ("ap", "ap-nms", "nms-gain")},
    "trust": {name: ["attention", "class-map", "random"] for name in ("deletion", "insertion")},
    "token-norms": {},
}
CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"[A-Za-z]+(?:[ ,;]+[a-z]+){2,}")
"""Three words and more, of which names and titles have only the first in small letters."""
WORDS = re.compile(
    r"\b(the|a|an|of|to|and|or|is|are|than|with|without|against|between|points|pixels|not|seeds|on)\b"
)
COUNTED = re.compile(r"[\d,]*\d(?:\.\d+)?")


def texts(study):
    """All that a reader sees of a study's file."""
    axes = [table["over"] for table in (*study.tier.values(), study.own) if "over" in table]
    axes = [axis_of(table, study.file) for table in axes] + ([study.axis] if study.axis else [])
    known = [
        study.question,
        study.claim.text,
        study.claim.source,
        study.claim.differs,
        study.paper.what,
        study.paper.note,
        *(rule.text for rule in study.expect),
        *(axis.title for axis in axes),
        *(each.title for each in study.variant if not PRODUCT.fullmatch(each.title)),
    ]
    return list(filter(None, known))


@BY_NAME
def test_all_that_a_study_says_has_its_chinese(study):
    assert all(rule.text for rule in study.expect)
    assert [text for text in texts(study) if text not in TABLE] == []


def test_nothing_is_in_the_table_that_no_study_says():
    assert TABLE.keys() - {text for study in STUDIES for text in texts(study)} == set()


@pytest.mark.parametrize("english", TABLE)
def test_chinese_is_chinese_with_the_same_numbers(english):
    chinese = TABLE[english]
    assert CHINESE.search(chinese) or chinese == english.replace(", ", "，")
    assert not re.search(r"[,;:?!] |[.,;:?!]$|\d x \d|\dx\d", chinese.replace("et al. ", ""))
    assert english.endswith(("?", ".")) == chinese.endswith(("？", "。"))
    if not re.search(r"million|100,000 parameters|86 M|[12]-D", english):  # 万, 亿, 一维
        assert numbers(chinese) == numbers(english)


def numbers(text):
    return Counter(COUNTED.findall(text))


# ---- what was found


def result(study, tier="standard", seeds=3):
    """As study.json has it, with made-up numbers for all that the study measures."""
    study = study.at_tier(tier, seeds)
    places = {name: at for each in study.measure for name, at in SERIES[each.what].items()}
    metric = Metric("ap" if study.recipe.get("task") == "detect" else "accuracy")
    points = []
    for variant in study.variant:
        for value in study.axis.values if study.axis else [None]:
            found = {"parameters": 5e4, "flops": 0.002, "high-norm": 0.1, metric.key: 0.9}
            count = len(points)
            point = Point(variant.name, value, 1e-3, dict.fromkeys((1e-3, 3e-3, 1e-2), 0.9))
            for seed in range(seeds):
                apart = 0.01 * ((count + seed * (count + 1)) % 7)
                for name, number in found.items():
                    point.numbers.setdefault(name, {})[seed] = number - apart
                for name, at in places.items():
                    rows = [(x, 0.1 * i + apart) for i, x in enumerate(at)]
                    point.series.setdefault(name, {})[seed] = rows
            points.append(point)
    known = {"k-NN on pixels": 0.9, "the most frequent class": 0.1, "the best constant boxes": 0.05}
    told = Numbers(study, metric, (), points)
    about = (study.recipe["data"], 100.0, "Machine @ 2.50GHz")
    return StudyResult(study, tier, told, {}, known, *about).to_dict()


def assert_chinese(text, found):
    """No English but names: of variants, values of the axis, papers, commands and machines."""
    for name in (found["command"], found["machine"], found["data"]):
        text = text.replace(name, "")
    text = re.sub(r"《.*?》|et al\.", "", text)
    for point in found["points"]:
        text = text.replace(f"（{point['variant']}）", "")
    assert not ENGLISH.search(text), ENGLISH.search(text)
    assert not WORDS.search(text), WORDS.search(text)


@pytest.mark.parametrize("found", all_results(), ids=lambda found: found["study"])
def test_what_was_found_is_told_in_chinese(found):
    assert_chinese(Telling("zh").section(found), found)


@pytest.mark.parametrize("tier", TIERS)
@BY_NAME
def test_whatever_a_study_finds_is_told_in_chinese(study, tier):
    for seeds in (1, 3):
        found = result(study, tier, seeds)
        assert_chinese(Telling("zh").section(found), found)
        assert_chinese(Telling("zh").short(found), found)
        with pytest.raises(AssertionError):
            assert_chinese(Telling().short(found), found)


def test_every_form_of_a_difference():
    study = next(each for each in STUDIES if each.name == "set-prediction")
    told = Numbers(study, Metric("ap"), (), [])
    forms = {
        "a against b": (
            Difference(22.1, 20.0, 24.2),
            "a 对 b：+22.1 个百分点（+20.0 至 +24.2）",
        ),
        "a@3 against a@12 at first": (
            Difference(-4.0, -4.0, -4.0),
            "a@3 对 a@12，取第一个值时：−4.0 个百分点",
        ),
        "a against b at 0.05": (None, "a 对 b，取 0.05 时：没有测量"),
        "vit between 32 and 16": (
            Difference(1.0, float("-inf"), float("inf")),
            "vit 从 32 到 16：+1.0 个百分点，各只有一次运行，无法判断其中有多少出于偶然",
        ),
    }
    seen = [verdict.spelled(told, "", names, found) for names, (found, _) in forms.items()]
    assert Telling("zh").seen("; ".join(seen)) == "；".join(
        chinese for _, chinese in forms.values()
    )
    layers = verdict.spelled(
        told, "attention-distance", "vit between 1 and 4", Difference(0.2, -0.2, 0.7)
    )
    assert Telling("zh").seen(layers) == "vit 从 1 到 4：+0.2 像素（−0.2 至 +0.7）"
    assert Telling().seen(layers) == layers
    source = Path(verdict.__file__).read_text(encoding="utf-8")
    for phrase in re.findall(r'"undecided", "(there .*?)"', source):
        assert phrase in dict(SEEN)


def test_a_variant_has_its_label_and_the_name_by_which_rules_call_it():
    found = result(next(each for each in STUDIES if each.name == "positions"))
    assert "\n| no positions (none) |" in Telling().table(found)
    assert "\n| learned, 1-D |" in Telling().table(found)
    assert "\n| 没有位置编码（none） | " in Telling("zh").table(found)
    assert Telling("zh").table(found).startswith("| 变体 | 准确率 | 论文 | 学习率 |")


def test_the_axis_has_the_label_of_its_tier():
    study = next(each for each in STUDIES if each.name == "data-scale")
    assert "| 占 3,000 张训练图像的比例 |" in Telling("zh").table(result(study))
    assert "| fraction of 200,000 training images |" in Telling().table(result(study, "full"))


def test_an_interval_of_shares_ends_where_shares_do():
    point = {"numbers": {"accuracy": {"mean": 0.76, "interval": [-0.013, 1.534]}}}
    assert Telling().value(point, "accuracy") == "76.0 % (0.0 to 100.0)"
    assert Telling("zh").value(point, "accuracy") == "76.0 %（0.0 至 100.0）"
