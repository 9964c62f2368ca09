"""Numbers that texts ask for, against those of others and against brute force."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import t
from torchvision import models as theirs

import vitreous
from vitreous.course import DIGITS
from vitreous.course.facts import FACTS, NotMeasuredError, fact
from vitreous.course.study_numbers import _numbers, _result
from vitreous.data.formats import open_source
from vitreous.errors import ConfigError
from vitreous.study import find
from vitreous.study.numbers import as_mapping, from_mapping

RESULTS = Path(__file__).parents[2] / "studies" / "results"


def test_parameters_are_those_that_everybody_counts():
    assert fact('parameters("vit-b/16")') == "86,567,656"
    assert fact('parameters("vit-b/32")') == "88,224,232"
    assert fact('parameters("resnet-50")') == "25,557,032"
    assert fact('parameters("vit-b/16", "head")') == f"{768 * 1000 + 1000:,}"
    assert fact('parameters("vit-b/16", "patch")') == f"{16 * 16 * 3 * 768 + 768:,}"
    assert fact('parameters("vit-b/16", "position")') == f"{197 * 768:,}"
    block = 4 * 768**2 + 4 * 768 + 2 * 4 * 768**2 + 5 * 768 + 4 * 768
    assert fact('parameters("vit-b/16", "blocks.0")') == f"{block:,}"
    assert fact('parameters("vit-b/16", classes=10)') == f"{86_567_656 - 990 * 769:,}"


@pytest.mark.parametrize(
    ("name", "layers", "dim", "mlp", "heads", "millions"),
    [
        ("vit-b/16", 12, 768, 3072, 12, 86),
        ("vit-l/16", 24, 1024, 4096, 16, 307),
        ("vit-h/14", 32, 1280, 5120, 16, 632),
    ],
)
def test_table_1_of_the_paper(name, layers, dim, mlp, heads, millions):
    words = ("depth", "dim", "mlp_dim", "heads")
    found = [fact(f'field("{name}", "{word}")') for word in words]
    assert found == [f"{each:,}" for each in (layers, dim, mlp, heads)]
    count = int(fact(f'parameters("{name}")').replace(",", ""))
    assert abs(count / 1e6 - millions) / millions < 0.01


def test_tokens_patches_and_shapes():
    assert fact('tokens("vit-b/16")') == "197"
    assert fact('tokens("vit-b/16", 384)') == "577"
    assert fact('tokens("vit-b/16", size=(160, 224))') == str(1 + 10 * 14)
    assert fact('patches("vit-h/14")') == "256"
    assert fact('tokens("deit-b/16-distilled")') == "198"
    assert fact('patches("swin-t", stage=4)') == "49"
    assert fact('grid("vit-b/32", 384)') == "12 × 12"
    assert fact('patch_values("vit-h/14")') == str(14 * 14 * 3)
    assert fact('shape("vit-b/16", "position.table")') == "197 × 768"
    assert fact('stage("vit-b/16", "patch")') == "14 × 14 × 768"
    assert fact('stage("vit-b/16", "blocks.11")') == "197 × 768"
    assert fact('attention_weights("vit-b/16")') == f"{12 * 12 * 197**2:,}"


@pytest.mark.parametrize(
    ("call", "weights"),
    [
        ('("vit-b/16")', theirs.ViT_B_16_Weights.IMAGENET1K_V1),
        ('("vit-b/16", 384)', theirs.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1),
        ('("vit-l/16")', theirs.ViT_L_16_Weights.IMAGENET1K_V1),
        ('("swin-t")', theirs.Swin_T_Weights.IMAGENET1K_V1),
        ('("resnet-50")', theirs.ResNet50_Weights.IMAGENET1K_V2),
    ],
)
def test_operations_are_those_that_torchvision_states(call, weights):
    """Its `_ops` are multiply-accumulates."""
    billions = weights.meta["_ops"]
    for name, value in (("macs", billions), ("flops", 2 * billions)):
        number, unit = fact(f"{name}{call}").split()
        assert unit == {"macs": "GMACs", "flops": "GFLOPs"}[name]
        assert number == f"{value:#.3g}".rstrip(".")


def test_the_part_that_grows_with_the_square_of_the_tokens():
    """By hand: of each multiply-accumulate of q kᵀ and of weights times v, in 12 blocks."""
    for size, n in ((224, 197), (384, 577)):
        square, linear = 12 * 2 * n**2 * 768, 12 * 12 * n * 768**2
        rest = (n - 1) * 768**2 + 768 * 1000
        share = square / (square + linear + rest)
        assert fact(f'attention_share("vit-b/16", {size})') == f"{100 * share:.1f} %"


def test_fewer_operations_where_the_head_reads_one_token():
    assert fact('flops("vit-b/16", read_only=True)') == "32.7 GFLOPs"  # as `vitreous summary`


def test_variance_of_the_products():
    torch.manual_seed(0)
    q, k = torch.randn(1000, 64), torch.randn(1000, 64)
    scores = q @ k.T
    assert fact("attention_variance(64)") == f"{scores.var():.1f}" == "64.2"
    assert fact("attention_variance(64, divided=True)") == f"{(scores / 8).var():.1f}" == "1.0"
    for d in (16, 256):
        assert abs(float(fact(f"attention_variance({d})")) / d - 1) < 0.05


def test_softmax_of_scores_that_are_not_divided_is_nearly_one_hot():
    large, small = (float(fact(f"largest_weight(divided={s})")[:-2]) for s in (False, True))
    assert large > 50 > 10 > small
    generator = np.random.default_rng(1)  # other random numbers give nearly the same
    scores = (generator.normal(size=(2000, 1, 64)) * generator.normal(size=(2000, 197, 64))).sum(-1)
    for divided, factor in ((False, 1.0), (True, 8.0)):
        weights = np.exp(scores / factor)
        top = (weights / weights.sum(1, keepdims=True)).max(1)
        assert abs(float(fact(f"largest_weight(divided={divided})")[:-2]) - 100 * top.mean()) < 3
        mine = float(fact(f"saturated(divided={divided})")[:-2])
        assert abs(mine - 100 * (top > 0.99).mean()) < 3


def test_what_holds_exactly_is_found_to_hold():
    before = torch.random.get_rng_state()
    assert fact("reordered()") == fact('reordered("block")') == "below 1e-12"
    assert fact("convolution_difference()") == "below 1e-12"
    assert torch.equal(before, torch.random.get_rng_state())


def test_what_random_modules_show():
    assert fact("answers_reordered()") == "below 1e-12"
    together, apart = (float(fact(f"alike(sums={s}, blocks=2)")) for s in (False, True))
    assert apart < 0.1 < 0.99 < together
    share = float(fact("skipped(0.25)")[:-2])
    assert abs(share - 25) < 4  # of 1,000, three standard deviations
    assert fact("window_reach(4, shifted=False)") == fact("window_reach(1)") == "16"
    assert int(fact("window_reach(2)")) == 64  # all windows that share a corner with the first


def test_a_matrix_from_every_pixel_to_every_token():
    assert fact('dense_weights("vit-b/16")') == f"{(3 * 224 * 224) * (196 * 768):,}"


# ---- the digits model


def test_the_digits_model_has_the_accuracy_of_its_verdict():
    verdict = json.loads((DIGITS / "verdict.json").read_text())
    assert fact("digits_accuracy()") == f"{100 * verdict['accuracy']:.1f} %"
    found = [fact(f'digits_mistaken("{each}")') for each in ("no scale", "one head", "ReLU")]
    assert all(float(each[:-2]) < 98 for each in found)
    assert fact("digits_accuracy()") == f"{100 * verdict['accuracy']:.1f} %"  # it is as it was
    assert fact("digits_baseline()") == "99.4 %"
    total = sum(int(fact(f'digits_count("{s}")').replace(",", "")) for s in ("train", "test"))
    assert total == verdict["samples"] + verdict["baselines"]["k-NN on pixels"]["learned_from"]


def test_a_mistake_is_the_model_with_another_field():
    """Against the same weights in a model that is made so."""
    predictor = vitreous.load(DIGITS)
    fields = {"patch": 2, "dim": 48, "depth": 3, "mlp_dim": 96, "image_size": 8}
    other = vitreous.create("vit", **fields, heads=1, channels=1, classes=10).eval()
    other.load_state_dict(predictor.model.state_dict())
    source = open_source("digits")
    samples = source.splits["test"]
    images = torch.stack([predictor.prepare(source.image(each)) for each in samples])
    right = other(images).argmax(1) == torch.tensor([each.target for each in samples])
    assert fact('digits_mistaken("one head")') == f"{100 * right.double().mean():.1f} %"


def test_what_is_seen_inside_the_digits_model():
    """Even attention: each of 17 tokens alike; distances in a grid of 4 x 4, two pixels apart."""
    assert fact('own_weight("even")') == f"{100 / 17:.0f} %"
    places = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(16, 2) * 2.0
    even = np.linalg.norm(places[:, None] - places, axis=-1).mean()
    assert fact('attention_distance("even")') == f"{even:.1f}"
    for name in ("own_weight", "attention_distance", "score_variance", "exchanged_scores"):
        least, most = (fact(f'{name}("{each}")').removesuffix(" %") for each in ("least", "most"))
        assert float(least) < float(most)
    assert fact("key_bias_difference()") == "below 1e-12"
    assert fact("key_bias_difference()", "zh") == "小于 1e-12"
    assert fact('norm_influence("layer")') == "0.00" < fact('norm_influence("batch")')


def test_boxes_of_the_scene():
    """NMS leaves at least one box for each object, and removes some."""
    boxes, kept, objects = (
        int(fact(each)) for each in ("scene_boxes()", "scene_boxes(3, nms=True)", "scene_objects()")
    )
    assert boxes > kept >= objects
    assert 0.5 < float(fact('empty_mask("pixel_accuracy")')) < 0.9
    assert fact('empty_mask("miou")') == "0.11"  # one class of seven, and that not quite


def test_other_fields():
    assert fact('field("vit-b/16", "head_width")') == "64"
    assert fact('field("vit-b/16", "norm.place")') == "pre"
    assert fact('field("vit-b/16", "position")') == "learned-1d"
    assert fact('field("swin-t", "heads")') == "3, 6, 12, 24"
    assert fact('field("detr-r50", "queries")') == "100"
    assert fact('field("segmenter-s/16", "core.dim")') == "384"
    assert fact('megabytes("vit-b/16")') == "346 MB"
    assert fact('megabytes("vit-b/16", 8)') == "86.6 MB"


# ---- studies


def raw(study):
    return json.loads((RESULTS / f"{study}.json").read_text(encoding="utf-8"))


def test_numbers_of_a_study_are_those_of_its_file():
    points = {each["variant"]: each["numbers"]["accuracy"] for each in raw("positions")["points"]}
    for variant, about in points.items():
        values = np.array(list(about["by_seed"].values()))
        half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
        mean = values.mean()
        low, high = 100 * max(mean - half, 0), 100 * min(mean + half, 1)
        expected = f"{100 * mean:.1f} % ({low:.1f} to {high:.1f})"
        assert fact(f'study("positions", "{variant}")') == expected
    assert fact('study("positions", "none", "parameters")') == "57,754"


def test_differences_are_those_of_the_rules_that_decided():
    seen = raw("positions")["rules"][0]["seen"]
    found = fact('difference("positions", "learned-1d", "none")')
    assert f"learned-1d against none: {found}" == seen
    assert fact('difference("positions", "learned-1d", "none", "parameters")') == f"+{17 * 48}"


def test_words_of_a_study_in_both_languages():
    assert fact('verdict("positions")') == "undecided at this scale"
    assert fact('verdict("positions")', "zh") == "在此规模下无法判定"
    assert fact('verdict("positions", "zh")') == fact('verdict("positions", lang="zh")')
    assert fact('verdict("positions", "zh")', "en") == "在此规模下无法判定"
    assert fact('rule("positions", 1)') == "holds"
    assert fact('rule("positions", 1)', "zh") == "成立"
    found = fact('difference("positions", "learned-1d", "none")', "zh")
    assert found == "+22.1 个百分点（+20.0 到 +24.2）"
    assert fact('study("positions", "none")', "zh") == "74.4%（70.5 到 78.2）"


def test_what_else_a_study_says():
    assert fact('baseline("positions")') == "99.4 %"
    assert fact('lr("positions", "rotary")') == "0.01"
    assert fact('paper("positions", "none")') == "61.4 %"
    assert fact('paper("resolution", "learned", 384)') == "71.2 %"
    assert fact('command("norm")') == "vitreous study norm"
    assert fact('seeds("positions")') == "3"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_result_that_is_read_is_the_one_that_was_written(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    for point in found["points"]:
        again = json.loads(json.dumps(as_mapping(from_mapping(point))))
        assert again == point


@pytest.fixture
def forgotten():
    """What has been read of results is read again, before and after."""
    for cached in (_result, _numbers):
        cached.cache_clear()
    yield
    for cached in (_result, _numbers):
        cached.cache_clear()


def test_a_study_without_a_result_is_not_measured_yet(monkeypatch, tmp_path, forgotten):
    (tmp_path / "mine.toml").write_text((RESULTS.parent / "norm.toml").read_text())
    monkeypatch.setattr(find, "places", lambda: [tmp_path])
    for call in ('study("mine", "pre")', 'verdict("mine")', 'difference("mine", "pre", "post")'):
        with pytest.raises(NotMeasuredError, match="'mine' is not measured yet: 'vitreous study"):
            fact(call)
    assert fact('paper("mine", "pre")') == "83.2 %"  # which needs no run


def test_results_are_found_where_the_package_is_installed(monkeypatch, tmp_path, forgotten):
    (tmp_path / "results").mkdir()
    for name in ("positions.toml", "results/positions.json"):
        (tmp_path / name).write_bytes((RESULTS.parent / name).read_bytes())
    monkeypatch.setattr(find, "places", lambda: [Path("nowhere"), tmp_path])
    assert fact('rule("positions", 1)') == "holds"


# ---- what a text may say


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "parameters",
        "lambda: 1",
        '__import__("os").system("true")',
        'parameters("vit-b/16").upper()',
        'parameters(open("x"))',
        'parameters("a" + "b")',
        'parameters(f"vit-b/16")',
        "parameters(*('vit-b/16',))",
        "parameters(**{'model': 'vit-b/16'})",
        'parameters(["vit-b/16"])',
        'parameters("vit-b/16"); tokens("vit-b/16")',
        'parameters(x := "vit-b/16")',
        "attention_variance(10**3)",
        "(" * 500 + ")" * 500,
    ],
)
def test_only_a_call_with_literals_is_a_fact(text):
    with pytest.raises(ConfigError):
        fact(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('parametrs("vit-b/16")', "did you mean 'parameters'"),
        ("parameters()", "missing a required argument"),
        ("parameters(5)", "model = 5: expected str"),
        ('tokens("vit-b/16", 384, 1, 2)', "too many positional"),
        ('tokens("vit-b/16", "384")', "size = '384': expected"),
        ('tokens("vit-b/16", True)', "size = True: expected"),
        ('tokens("vit-b/16", 225)', "does not divide into 16x16"),
        ('tokens("vit-b/17")', "did you mean 'vit-b/16'"),
        ('tokens("vit-b/16", foo=1)', "unknown field 'foo'"),
        ('tokens("swin-t", stage=5)', "there are 1 to 4"),
        ('attention_share("swin-t")', "no plain ViT"),
        ('patch_values("resnet-50")', "cuts no patches"),
        ('field("vit-b/16", "__class__")', "no field '__class__'"),
        ('field("vit-b/16", "grid_of")', "no field 'grid_of'"),
        ('parameters("vit-b/16", "blocs")', "no parameters below 'blocs'"),
        ('digits_mistaken("no scal")', "did you mean 'no scale'"),
        ('digits_accuracy("no-heads=1.1")', "did you mean 'no-head"),
        ("digits_accuracy(size=7)", "does not divide"),
        ("window_reach(5)", "blocks = 5: expected"),
        ("attention_variance(0)", "d = 0: expected 1 to"),
        ("attention_variance(1e3)", "d = 1000.0: expected int"),
        ('study("position", "none")', "did you mean 'positions'"),
        ('study("positions", "nothing")', "there is no 'nothing'"),
        ('study("positions", "none", "acc")', "none has no acc"),
        ('verdict("positions", "de")', "lang = 'de'"),
        ('own("score", run="elsewhere")', "a text cannot choose the run"),
        ('own("scor")', "did you mean 'score'"),
        ('own("score")', "it needs a run folder of yours"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")) as error:
        fact(text)
    assert str(error.value).startswith(text)


def test_every_fact_says_what_it_gives():
    for name, function in FACTS.items():
        assert function.__doc__.startswith("`"), name


def test_counts_need_no_torch(tmp_path):
    """The package is read in a process of its own, since this one has torch already."""
    import subprocess

    code = (
        "import sys; from vitreous.course.facts import fact; "
        "assert fact('parameters(\"vit-b/16\")') == '86,567,656'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
