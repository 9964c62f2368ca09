"""Where a detector looks: maps of its queries, and their pages in a browser."""

import json
import re

import numpy as np
import pytest
import torch
from browser import phone, point_at, wait_for
from pages.test_viewer import page_data, unpack
from tasks.detect_runs import LABELS, NAMES, SIZE, SIZES, make_model, make_run

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError
from vitreous.explain.attention import has_attention, look
from vitreous.layers.tap import tap
from vitreous.pages import viewer
from vitreous.pages.inside import model_figures
from vitreous.predict import Predictor
from vitreous.tasks.detect.show import SHOW
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.objects.show import mapped, object_rows


def viewer_data(found):
    return page_data(viewer.page(SHOW.viewer_data(found, None), "image", "model"))


def predictor_of(backbone="resnet", threshold=0.3, **fields):
    preprocess = Preprocess(image_size=SIZE, resize="shorter", whole=True)
    task = Detect(LABELS, threshold=threshold)
    return Predictor(make_model(backbone, **fields), preprocess, task)


def weights_of(model, values):
    """What all attention of encoder and decoder is, by name."""
    found = {}
    with (
        torch.no_grad(),
        tap(dict(model.named_modules()), lambda name, tensor: found.update({name: tensor})),
    ):
        model(values[None])
    return {
        name.removesuffix(".weights"): tensor[0]
        for name, tensor in found.items()
        if name.endswith(".weights")
    }


def close(ours, theirs):
    """A ViT that is looked into rounds otherwise, and attention is sharp."""
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backbone", ["resnet", "vit"])
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_maps_are_those_of_the_queries(backbone, number, photos):
    predictor = predictor_of(backbone)
    if backbone == "vit" and number in (1, 2, 5):
        pytest.skip("a ViT takes images that divide into patches")
    found = predictor.explain(photos[number], layers=True)
    result = predictor(photos[number])
    assert found.result.to_dict() == result.to_dict()
    assert [each.found for each in found.looks] == (result.objects or result.above(0).objects[:3])
    assert found.below == (not result.objects)
    values = predictor.prepare(*predictor.read(photos[number]))
    weights = weights_of(predictor.model, values)
    height, width = values.shape[1:]
    gh, gw = found.grid
    assert (gh, gw) == (-(-height // 8), -(-width // 8))
    for each in found.looks:
        assert each.heads.shape == (2, 2, gh, gw)
        torch.testing.assert_close(each.heads.sum((-1, -2)), torch.ones(2, 2))
        for layer in range(2):
            rows = weights[f"decoder.{layer}.cross_attention"][:, each.found.query]
            close(each.heads[layer], rows.reshape(2, gh, gw))
        torch.testing.assert_close(each.layers, each.heads.mean(1))
        torch.testing.assert_close(each.map, each.heads[-1].mean(0))
    (attended,), (layer,) = found.attention, found.layers
    torch.testing.assert_close(attended.sum((-1, -2)), torch.ones(2))
    y, x = found.at
    rows = weights["encoder.0.attention"][:, y // 8 * gw + x // 8]
    close(attended, rows.reshape(2, gh, gw))
    close(layer.weights[0], weights["encoder.0.attention"])
    left, top, right, bottom = found.looks[0].found.box
    assert abs(found.pixel[1] - (max(left, 0) + min(right, result.size[1])) / 2) <= 1
    assert abs(found.pixel[0] - (max(top, 0) + min(bottom, result.size[0])) / 2) <= 1
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["looks"][0]["query"] == found.looks[0].found.query
    assert np.array(told["looks"][0]["attention"]).shape == (2, gh, gw)
    assert not {"rollout", "class_maps"} & set(told)


@pytest.mark.parametrize("pixel", [(0, 0), (0, 69), (32, 0), (32, 69), (17, 41)])
def test_a_chosen_pixel_is_at_its_place(pixel, photos):
    """The image is 33x70, the model sees 32x68 of it, smaller; the last places reach over."""
    predictor = predictor_of()
    found = predictor.explain(photos[2], pixel=pixel)
    assert (found.pixel, found.chosen) == (pixel, True)
    _, height, width = found.image.shape
    y, x = found.at
    assert (y, x) == (int((pixel[0] + 0.5) * height / 33), int((pixel[1] + 0.5) * width / 70))
    top, left, bottom, right = found.box(y // 8, x // 8)
    assert top <= pixel[0] + 0.5 <= bottom
    assert left <= pixel[1] + 0.5 <= right
    weights = weights_of(predictor.model, predictor.prepare(*predictor.read(photos[2])))
    rows = weights["encoder.0.attention"][:, y // 8 * found.grid[1] + x // 8]
    torch.testing.assert_close(found.attention[0].flatten(1), rows)


def test_which_objects_are_explained(photos):
    many = predictor_of(queries=30, threshold=0.0).explain(photos[2])
    assert len(many.looks) == 10
    assert not many.below
    none = predictor_of(threshold=1.0).explain(photos[2])
    assert none.below
    assert [each.found.score for each in none.looks] == sorted(none.result.scores)[::-1][:3]
    result = none.result
    there = [name for name in NAMES if NAMES.index(name) in result.classes]
    assert len(there) > 1
    for name in there:
        found = predictor_of(threshold=0.0).explain(photos[2], [name])
        assert {each.found.label for each in found.looks} == {name}
    (missing, *_) = set(NAMES) - set(there)
    found = predictor_of().explain(photos[2], [missing])
    assert (found.looks, found.below, found.pixel) == ([], True, (16, 35))
    SHOW.map_figure(found)
    viewer_data(found)
    with pytest.raises(ConfigError, match="no class 'dgo': did you mean 'dog'"):
        predictor_of().explain(photos[2], ["dgo"])
    with pytest.raises(ConfigError, match=r"33x70 \(height x width\): y goes from 0 to 32"):
        predictor_of().explain(photos[2], pixel=(33, 0))
    with pytest.raises(ConfigError, match="expected two whole numbers"):
        predictor_of().explain(photos[2], pixel=(1.0, 2.0))


def test_a_detector_has_attention_whatever_its_backbone(photos):
    for backbone, name in (("resnet", "encoder.0.attention"), ("vit", "encoder.0.attention")):
        predictor = predictor_of(backbone)
        assert has_attention(predictor.model)
        layers = []
        with torch.no_grad():
            look(predictor.model, torch.randn(2, 3, *SIZE), layers.append)
        assert [layer.name for layer in layers] == [name]
        assert layers[0].places.grid == (4, 6)
    predictor = predictor_of(encoder_depth=0)
    values = [predictor.view(*predictor.read(photo)).values for photo in photos]
    assert has_attention(predictor.model)
    assert list(model_figures(predictor, values)) == ["filters"]
    assert list(model_figures(predictor_of(), values)) == ["distances", "filters"]
    found = predictor.explain(photos[0], layers=True)
    assert found.attention == found.layers == []
    assert viewer_data(found)["layers"] == []


def test_maps_are_drawn_with_their_boxes(photos):
    found = predictor_of(threshold=0.3).explain(photos[0])
    axes = SHOW.map_figure(found).axes
    words = [f"{each.found.label} {each.found.score:.2f}" for each in found.looks]
    assert [each.get_title() for each in axes[: len(words) + 1]] == ["detections", *words]
    _, height, width = found.image.shape
    for place, each in zip(axes[1:], found.looks, strict=False):
        np.testing.assert_allclose(place.images[-1].get_array(), each.map)
        (scale,) = place.child_axes
        assert scale.get_xlabel() == "attention to a patch"
        left, top, right, bottom = each.found.box
        x, y = left * width / 60 - 0.5, top * height / 40 - 0.5
        drawn = place.patches[-1].get_bbox()
        assert (drawn.x0, drawn.y0) == pytest.approx((x, y))
        assert (drawn.x1, drawn.y1) == pytest.approx(
            (right * width / 60 - 0.5, bottom * height / 40 - 0.5)
        )
    rows = object_rows(found, "head", [mapped(found, each.heads[-1]) for each in found.looks])
    place = rows.axes[3 * 1 + 2]  # of the second object the second head
    np.testing.assert_allclose(place.images[-1].get_array(), found.looks[1].heads[-1][1])


def test_the_page_holds_the_queries(photos):
    found = predictor_of().explain(photos[0], layers=True)
    data = viewer_data(found)
    names = [f"{each.found.label} {each.found.score:.2f}" for each in found.looks]
    assert data["objects"]["names"] == names
    assert data["answer"][0] == "found"
    for packed, layer in zip(data["objects"]["layers"], (0, 1), strict=True):
        most = torch.tensor(packed["most"])
        values = (unpack(packed["attention"]) / 255).square() * most[:, None]
        expected = torch.stack([each.heads[layer] for each in found.looks], dim=1)
        # half a step of 15 in the root, and just below the largest a whole one
        difference = (values - expected.flatten(2).flatten(0, 1)).abs()
        assert (difference <= most[:, None] * 2 / 15 + 1e-4).all()
    left, top, right, bottom = found.looks[0].found.box
    expected = (left / 60, top / 40, right / 60, bottom / 40)
    assert data["objects"]["boxes"][0] == pytest.approx(expected)
    nothing = predictor_of(threshold=1.0).explain(photos[0])
    assert SHOW.answer(nothing) == ["noneReachesHighest", "1"]


def test_the_explain_command(detector, photos, tmp_path, printed):
    options = ("explain", detector.path, photos[0], photos[3])
    printed(*options, f"--out={tmp_path / 'out'}", "--pixel", "3", "10")
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    files = ("objects.png", "layers.png", "heads.png", "pixel.png", "look.html")
    folders = ("001-photo-0", "002-photo-3")
    assert names == {"distances.png", "filters.png"} | {f"{a}/{b}" for a in folders for b in files}
    told = [json.loads(line) for line in printed(*options, "--json").splitlines()]
    assert [each["size"] for each in told] == [[40, 60], [20, 20]]
    assert all(each["looks"] for each in told)


@pytest.mark.parametrize("depth", [1, 0], ids=["encoder", "no encoder"])
def test_the_pages_in_a_browser(chromium, depth, photos, tmp_path, printed):
    detector = make_run(tmp_path / "detector", encoder_depth=depth)
    printed("explain", detector.path, photos[1], f"--out={tmp_path}")
    found = vitreous.load(detector.path).explain(photos[1], layers=True)
    gh, gw = found.grid
    with phone(chromium, tmp_path / "photo-1" / "look.html") as page:
        wait_for(page, "looks most at")
        drawn = set()
        for number, each in enumerate(found.looks):
            page.locator("#what").select_option(f"object {number}")
            for layer, maps in enumerate(each.layers):
                page.locator("#layer").fill(str(layer))
                name = f"{each.found.label} {each.found.score:.2f}"
                page.wait_for_timeout(50)  # the words of the layer before are much alike
                said = wait_for(page, f"The query that found {name} looks most at")
                row, column = map(int, re.findall(r"row (\d+), column (\d+):", said)[0])
                # as well as 16 steps can tell
                assert maps[row - 1, column - 1] > 0.85 * maps.max()
                drawn.add(page.evaluate("document.getElementById('over').toDataURL()"))
        assert len(drawn) == 2 * len(found.looks)
        options = page.eval_on_selector_all("#what option", "all => all.map(o => o.value)")
        assert ("attention" in options) == bool(depth)
        if depth:
            point_at(page, 2, 1, (gh, gw))
            page.mouse.down()  # a patch instead of an object
            wait_for(page, "The patch in row 3, column 2 attends most to")
            page.wait_for_function("document.getElementById('head').value !== 'mean'")
            page.locator("#head").select_option("mean")
            weights = found.layers[0].weights[0].mean(0)[2 * gw + 1]
            row, column = divmod(weights.argmax().item(), gw)
            wait_for(page, f"attends most to row {row + 1}, column {column + 1}:")
            assert page.locator("#what").input_value() == "attention"
            page.locator("#head").select_option("1")
            page.locator("#what").select_option("object 0")  # which has more layers
            wait_for(page, "looks most at")
            last = len(found.looks[0].layers) - 1
            assert last > len(found.layers) - 1
            assert page.locator("#layer").input_value() == str(last)


def test_the_page_begins_with_a_chosen_pixel(chromium, detector, photos, tmp_path, printed):
    printed("explain", detector.path, photos[0], f"--out={tmp_path}", "--pixel", "39", "59")
    with phone(chromium, tmp_path / "photo-0" / "look.html") as page:
        gh, gw = vitreous.load(detector.path).explain(photos[0]).grid
        assert wait_for(page, "attends").startswith(f"The patch in row {gh}, column {gw} attends")
