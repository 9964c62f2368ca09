"""What a living page says of each step of a model, and how detectors and segmenters decode."""

import pytest
import torch
from compare import perturb
from families import made

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.deploy.living import AFTER, stored_numbers
from vitreous.labels import LabelMap
from vitreous.pages.model_facts import about
from vitreous.pages.steps import STEPS, source_of
from vitreous.pages.words import LANGUAGES, WORDS
from vitreous.predict import Predictor
from vitreous.tasks import task_class


def told(model, task, size=None, **how):
    """What the page of a model knows, with stored numbers."""
    pre = Preprocess(image_size=model.own_size(), channels=model.config.channels, **how)
    labels = LabelMap.of_ids(range(model.config.classes))
    predictor = Predictor(model, pre, task_class(task).restored(labels, {}))
    pixels = torch.rand(pre.channels, *(size or model.own_size())) * 255
    graph, numbers = stored_numbers(model, pre, pixels)
    return about(predictor, graph, []), numbers


def stages(given):
    """Behind the encoder: their outputs and shapes."""
    names = [each["output"] for each in given["steps"] if each["group"] is None]
    behind = [name for name in names if name.startswith(f"{AFTER}.")]
    return {name.removeprefix(f"{AFTER}."): given["outputs"][name][1:] for name in behind}


SMALL = {"image_size": 8, "patch": 4, "dim": 8, "depth": 2, "heads": 1, "classes": 2}


def test_a_conditional_position_is_added_behind_the_first_block():
    torch.manual_seed(0)
    model = perturb(vitreous.create("vit", position="conditional", **SMALL))
    given, _ = told(model, "classify")
    names = [each["output"] for each in given["steps"]]
    at = names.index("position.conditional")
    assert names.index("blocks.0") + 2 == at == names.index("blocks.1.norm1") - 1
    assert names[at - 1] == "position.generated"
    assert "convolution" in given["steps"][at - 1]["why"][0]


@pytest.mark.parametrize(("name", "position"), [("beit", "bias"), ("dinov3", "angles")])
def test_positions_that_act_in_the_blocks_are_steps(name, position):
    given, _ = told(made(name)[0], "classify")
    found = [each["group"] for each in given["steps"] if each["key"] == position]
    assert found == ([["block", 0], ["block", 1]] if position == "bias" else [None])


def test_norms_behind_the_sums_come_in_their_order():
    given, _ = told(made("vit, post")[0], "classify")
    block = [each["key"] for each in given["steps"] if each["group"] == ["block", 0]]
    assert block[0] == "q"
    assert block.index("attention") < block.index("norm1") < block.index("fc1")


def test_a_segmenter_is_decoded_stage_by_stage():
    model, _ = made("segmenter")
    given, _ = told(model, "segment", whole=True)
    k = model.config.classes
    assert stages(given) == {
        "encoder": [64, 4, 4],
        "decoder.project": [16, 64],
        "decoder.norm": [k + 16, 64],
        "decoder.class_out": [k, 64],
        "decoder.patch_out": [16, 64],
        "decoder": [k, 4, 4],
        "upsample": [k, 32, 32],
    }
    assert {f"{AFTER}.decoder.blocks.0", f"{AFTER}.decoder.blocks.0.sum"} <= given["outputs"].keys()
    groups = {tuple(each["group"]) for each in given["steps"] if each["group"]}
    assert groups == {*(("block", i) for i in range(2)), *(("maskBlock", i) for i in range(2))}


@pytest.mark.parametrize("size", [None, (64, 96)])
def test_a_detector_is_decoded_stage_by_stage(size):
    """Images of any size, too, whose numbers are stored."""
    model, _ = made("detr")
    given, numbers = told(model, "detect", size, whole=True)
    height, width = size or (64, 64)
    gh, gw = height // 32, width // 32
    assert stages(given) == {
        "backbone": [512, gh, gw],
        "projection": [256, gh, gw],
        "tokens": [gh * gw, 256],
        "queries": [5, 256],
        "norm": [5, 256],
        "class_head": [5, model.config.classes + 1],
        "box_head": [5, 4],
    }
    assert given["input"] == [3, height, width]
    assert given["sets"]["map"]["grid"] == [gh, gw]
    cross = next(
        each for each in given["steps"] if each["output"].endswith("cross_attention.weights")
    )
    assert (cross["rows"], cross["columns"]) == ("queries", "map")
    shares = numbers[cross["output"]].sum(-1)
    torch.testing.assert_close(torch.from_numpy(shares), torch.ones(1, 4, 5))
    assert ("patch_order" in given["changes"]) == (size is None)


def test_a_detector_with_proposals():
    given, _ = told(made("rf-detr")[0], "instance", whole=True)
    shown = stages(given)
    assert {"proposals", "query_boxes", "box_position", "queries", "class_head", "mask_head"} <= {
        *shown
    }
    points = next(each for each in given["steps"] if each["key"] == "points")
    assert points["picture"] == "attention"


@pytest.mark.parametrize(("placed", "words"), [(True, "are added to it"), (False, "not in it")])
def test_it_says_whether_the_map_knows_places(placed, words):
    fields = {"dim": 16, "heads": 2, "mlp_dim": 16, "encoder_depth": 0, "decoder_depth": 1}
    backbone = {"block": "basic", "stages": (1,), "width": 8}
    fields |= {"image_size": 16, "backbone": "resnet", "backbone_fields": backbone, "queries": 2}
    model = vitreous.create("detr", add_position=placed, classes=2, **fields).eval()
    given, _ = told(model, "detect", whole=True)
    tokens = next(each for each in given["steps"] if each["output"] == f"{AFTER}.tokens")
    assert words in tokens["why"][0]


@pytest.mark.parametrize("name", ["swin", "resnet", "hybrid", "siglip", "dinov2"])
def test_every_step_has_words(name):
    given, _ = told(made(name)[0], "classify")
    assert not [each["output"] for each in given["steps"] if each["key"] == "other"]
    assert all(all(each["title"]) and all(each["why"]) for each in given["steps"])
    assert not any("{0}" in text for each in given["steps"] for text in each["title"])


def named(how):
    of = (how or {}).get("of", [])
    return [of] if isinstance(of, str) else of


@pytest.mark.parametrize(
    "name", ["vit", "siglip", "cpvt", "beit", "dinov3", "eva", "segmenter", "detr", "rf-detr"]
)
def test_what_makes_a_cell_is_there(name):
    task = {"segmenter": "segment", "detr": "detect", "rf-detr": "instance"}.get(name, "classify")
    given, _ = told(made(name)[0], task, whole=task != "classify")
    known = {*given["outputs"], *given["same"]}
    missing = [each for step in given["steps"] for each in named(step["how"]) if each not in known]
    assert not missing


@pytest.mark.parametrize("key", STEPS)
def test_every_statement_of_the_steps_is_found(key):
    words = STEPS[key]
    for language in LANGUAGES:
        title, why = words[language]
        assert title
        assert why
    if "source" in words:
        found = source_of(*words["source"])
        assert words["source"][2].split("\n")[0] in found["code"]
        assert len(found["code"]) < 300


@pytest.mark.parametrize("kind", ["block", "maskBlock", "encoderLayer", "decoderLayer"])
def test_every_layer_has_words(kind):
    assert WORDS["living"][kind]
    assert WORDS["living"][f"{kind}Is"]
