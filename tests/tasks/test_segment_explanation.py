"""What is explained of a model that segments: a pixel and its patch, against the plain formulas."""

import json

import numpy as np
import pytest
import torch
from browser import assert_all_is_shown, phone, wait_for
from compare import assert_same_classes
from PIL import Image
from tasks.report_page import assert_report
from tasks.segment_runs import LABELS, NAMES, WINDOW, make_model, make_run, scenes

import vitreous
from vitreous.api.report import write_report
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError
from vitreous.explain.attention import look, pixel_reader
from vitreous.explain.parameters import filters, position_similarity
from vitreous.explain.rollout import Rollout
from vitreous.labels import LabelMap
from vitreous.models.model import Places
from vitreous.pages.content import class_table
from vitreous.predict import Predictor
from vitreous.tasks.classify.task import Classify
from vitreous.tasks.segment.metrics import MaskPrediction, SegmentMetrics
from vitreous.tasks.segment.show import SHOW
from vitreous.tasks.segment.task import Segment

KINDS = ("mask, class token", "linear, no token", "swin, pyramid")


def predictor_of(kind, window=WINDOW, resize="none"):
    preprocess = Preprocess(image_size=window, resize=resize, whole=True)
    return Predictor(make_model(kind, window), preprocess, Segment(LABELS))


def picture(*size):
    return np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)


def layers_of(model, images):
    layers = []
    with torch.no_grad():
        look(model, images, layers.append)
    return layers


# ---- which patch a pixel is in


@pytest.mark.parametrize(
    ("kind", "window"), [*((kind, WINDOW) for kind in KINDS), ("swin, pyramid", (18, 26))]
)
def test_a_pixel_is_read_in_its_patch(kind, window):
    """Rows and columns, on grids that are not square, in the coarser ones of Swin too."""
    layers = layers_of(make_model(kind, window), torch.randn(1, 3, *window))
    for layer in layers:
        (gh, gw), (ph, pw) = layer.places.grid, layer.places.pixels
        assert (gh * ph >= window[0], gw * pw >= window[1]) == (True, True)
        for y, x in ((0, 0), (0, window[1] - 1), (window[0] - 1, 0), (9, 17), (15, 3)):
            pixels = torch.zeros(window)
            pixels[y, x] = 1
            found = pixel_reader(pixels)(layer)
            assert found.shape == (layer.tokens,)
            assert found.nonzero().flatten().tolist() == [
                layer.places.prefix + (y // ph) * gw + x // pw
            ]
            assert found.sum() == 1


def test_pixels_count_in_their_patches():
    layer = layers_of(make_model("mask, class token"), torch.randn(1, 3, *WINDOW))[0]
    pixels = torch.rand(WINDOW)
    found = pixel_reader(pixels)(layer)
    assert found[0] == 0  # the class token has no place
    assert found.sum().item() == pytest.approx(1)
    for row in range(4):
        for column in range(6):
            inside = pixels[4 * row : 4 * row + 4, 4 * column : 4 * column + 4].sum()
            share = (inside / pixels.sum()).item()
            assert found[1 + 6 * row + column].item() == pytest.approx(share, rel=1e-4)


def test_the_decoder_s_layers_are_left_out():
    model = make_model("mask, class token")
    layers = layers_of(model, torch.randn(1, 3, *WINDOW))
    assert [layer.name for layer in layers] == [f"encoder.blocks.{i}.attention" for i in range(2)]
    assert all(layer.places == Places(1, (4, 6), (4, 4)) for layer in layers)
    assert position_similarity(model).shape == (4, 6, 4, 6)
    assert filters(model).shape[1:] == (3, 4, 4)
    with torch.no_grad():
        images = torch.randn(2, 3, *WINDOW)
        torch.testing.assert_close(look(model, images, lambda _: None), model(images))


# ---- what the model sees of an image


@pytest.mark.parametrize("resize", ["none", "shorter", "square"])
@pytest.mark.parametrize("size", [(16, 24), (40, 90), (10, 50), (50, 10), (9, 11), (1, 1)])
def test_a_mark_in_the_image_is_where_the_view_says(size, resize):
    predictor = predictor_of("linear, no token", resize=resize)
    black = torch.zeros(3, *size, dtype=torch.uint8)
    for y, x in ((0, 0), (size[0] - 1, size[1] - 1), (size[0] // 2, size[1] // 3)):
        image = black.clone()
        image[:, y, x] = 255
        view, without = predictor.view(image, at=(y, x)), predictor.view(black, at=(y, x))
        assert view.values.shape == (3, *WINDOW)
        row, column = view.place(y, x)
        brighter = (view.values - without.values).sum(0)
        assert brighter[row, column] > 0
        if resize == "none":
            assert divmod(brighter.argmax().item(), WINDOW[1]) == (row, column)
        height, width = view.inside
        assert (view.values[:, height:] == 0).all()
        assert (view.values[:, :, width:] == 0).all()
        top, left, tall, wide = view.region
        assert top < y + 0.5 < top + tall
        assert left < x + 0.5 < left + wide


def test_a_view_is_a_part_of_what_is_predicted():
    """An image that fits the window is seen as the task sees it; of a larger one, a part."""
    predictor = predictor_of("linear, no token")
    for size in (WINDOW, (10, 20)):
        image, name = predictor.read(picture(*size))
        view = predictor.view(image, name)
        (answer,) = predictor.task.infer(predictor.engine, [predictor.prepare(image)], [size])
        with torch.no_grad():
            said = predictor.model(view.values[None])[0].argmax(0)[: size[0], : size[1]]
        assert_same_classes(said, answer.classes)
    image, name = predictor.read(picture(50, 70))
    view = predictor.view(image, name, (30, 69))
    assert view.region == (22, 46, 16, 24)
    assert torch.equal(view.values, predictor.prepare(image)[:, 22:38, 46:70])


# ---- explanations


@pytest.mark.parametrize("size", [(50, 70), WINDOW, (12, 20)], ids=["large", "fits", "small"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_explanation_of_a_pixel(kind, size):
    predictor = predictor_of(kind)
    image = picture(*size)
    found = predictor.explain(image, classes=["car", "sky"], pixel=(9, 3), layers=True)
    assert found.result.mask.shape == size
    assert_same_classes(found.result.mask, predictor(image).mask)
    assert found.pixel == (9, 3)
    assert found.chosen
    assert found.image.shape == (3, *WINDOW)
    assert found.rollout.sum().item() == pytest.approx(1)
    assert list(found.class_maps) == ["car", "sky"]
    for values in found.class_maps.values():
        assert values.sum().item() == pytest.approx(1)
    for attended, layer in zip(found.attention, found.layers, strict=True):
        (gh, gw), (ph, pw) = layer.places.grid, layer.places.pixels
        assert attended.shape == (layer.heads, gh, gw)
        y, x = found.at
        patch = layer.places.prefix + y // ph * gw + x // pw
        if layer.places.windows is None:
            expected = layer.weights[0, :, patch, layer.places.prefix :]
        else:
            window, place = (layer.places.windows == patch).nonzero()[0].tolist()
            expected = torch.zeros(layer.heads, gh * gw)
            expected[:, layer.places.windows[window]] = layer.weights[window, :, place]
        torch.testing.assert_close(attended.flatten(1), expected)
    top, left, _, _ = found.region
    row, column = ((p - q) // s for p, q, s in zip((9, 3), (top, left), found.pixels, strict=True))
    box = found.box(int(row), int(column))
    assert box[0] <= 9 < box[2]
    assert box[1] <= 3 < box[3]
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["pixel"], told["size"]) == ([9, 3], list(size))


def test_the_middle_is_asked_about_unless_a_pixel_is_given():
    predictor = predictor_of("linear, no token")
    found = predictor.explain(picture(50, 70))
    assert found.pixel == (25, 35)
    assert not found.chosen
    assert found.region == (18, 24, 16, 24)
    counts = found.prediction.flatten().bincount(minlength=4)
    largest = sorted((i for i in range(4) if counts[i]), key=lambda i: -counts[i])[:3]
    assert list(found.class_maps) == [NAMES[i] for i in largest]
    assert predictor.explain(picture(20, 20), 0).class_maps == {}
    chosen = predictor.explain(picture(50, 70), 2, pixel=(25, 35))
    with torch.no_grad():
        view = predictor.view(*predictor.read(picture(50, 70)))
        scores = predictor.model(view.values[None])[0, :, 8, 12]
    assert list(chosen.class_maps) == [NAMES[i] for i in scores.topk(2).indices]


@pytest.mark.parametrize("chosen", [True, False])
def test_class_maps_are_the_formula(chosen):
    """The gradient of the pixel's score, or of the mean score of the pixels that are said to be of
    the class; followed back from their patches."""
    predictor = predictor_of("mask, class token")
    image = picture(*WINDOW)
    found = predictor.explain(image, ["road", "tree"], pixel=(13, 6) if chosen else None)
    values, layers = predictor.prepare(*predictor.read(image))[None], []
    logits = look(predictor.model, values.requires_grad_(), layers.append)
    said = logits[0].argmax(0)
    for name, values in found.class_maps.items():
        number = NAMES.index(name)
        pixels = torch.zeros(WINDOW)
        if chosen:
            pixels[13, 6] = 1
        else:
            pixels[said == number if (said == number).any() else ...] = 1
        score = (logits[0, number] * pixels).sum() / pixels.sum()
        weights = [layer.weights for layer in layers]
        gradients = torch.autograd.grad(score, weights, retain_graph=True)
        relevance = torch.eye(25)
        for layer, gradient in zip(layers, gradients, strict=True):
            relevance = relevance + (layer.weights * gradient)[0].clamp(min=0).mean(0) @ relevance
        start = pixel_reader(pixels)(layers[-1])
        expected = (start @ (relevance - torch.eye(25)))[1:].unflatten(0, (4, 6)).detach()
        torch.testing.assert_close(values, expected / expected.sum(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rollout_from_a_patch_leaves_out_what_it_kept(kind):
    model, rollout, matrices = make_model(kind), Rollout(), []
    pixels = torch.zeros(WINDOW)
    pixels[6, 21] = 1

    def see(layer):
        rollout.see(layer)
        eye = torch.eye(layer.tokens)[None]
        mean = layer.weights.mean(1)
        matrices.append((layer, (layer.gather(mean, eye) + eye)[0] / 2))

    with torch.no_grad():
        look(model, torch.randn(1, 3, *WINDOW), see)
    (first, flow), kept = matrices[0], torch.eye(matrices[0][0].tokens) / 2
    for layer, matrix in matrices[1:]:
        if layer.tokens != len(flow):  # Swin merges two by two
            (gh, gw), (mh, mw) = first.places.grid, layer.places.grid
            merge = torch.zeros(mh * mw, gh * gw)
            for y in range(gh):
                for x in range(gw):
                    merge[y // 2 * mw + x // 2, y * gw + x] = 0.25
            flow, kept = merge @ flow, merge @ kept
        flow, kept = matrix @ flow, kept / 2
    expected = first.on_grid(pixel_reader(pixels)(matrices[-1][0]) @ (flow - kept))
    found = rollout.map(pixel_reader(pixels), own=False)[0]
    torch.testing.assert_close(found, expected / expected.sum(), rtol=1e-4, atol=1e-6)
    assert found.sum().item() == pytest.approx(1)


def test_what_cannot_be_asked():
    predictor = predictor_of("linear, no token")
    for pixel in ((50, 0), (0, 70), (-1, 0)):
        with pytest.raises(ConfigError, match=r"array is 50x70 .* y goes from 0 to 49, x from 0 t"):
            predictor.explain(picture(50, 70), pixel=pixel)
    for pixel in (3, (1,), (1, 2, 3), "12", (1.0, 2.0), (True, False)):
        with pytest.raises(ConfigError, match="expected two whole numbers, y and x"):
            predictor.explain(picture(50, 70), pixel=pixel)
    with pytest.raises(ConfigError, match="no class 'raod': did you mean 'road'"):
        predictor.explain(picture(50, 70), classes=["raod"])
    with pytest.raises(ConfigError, match="resnet-18, the encoder of segmenter, has no attention"):
        predictor_of("resnet", (64, 64)).explain(picture(64, 64))
    model = vitreous.create("vit", image_size=8, patch=4, dim=8, depth=1, heads=1, classes=2)
    task = Classify(LabelMap.of_names(("a", "b")))
    with pytest.raises(ConfigError, match="whole image: leave the pixel out"):
        Predictor(model, Preprocess(image_size=8), task).explain(picture(8, 8), pixel=(0, 0))


# ---- pictures and pages


def test_the_maps_are_drawn_beside_the_prediction():
    predictor = predictor_of("mask, class token")
    for pixel, marks in ((None, [2, 0, 2, 0, 0, 0]), ((1, 22), [2, 0, 2, 2, 2, 0])):
        found = predictor.explain(picture(*WINDOW), ["car", "road"], pixel=pixel)
        axes = SHOW.map_figure(found).axes
        assert [each.get_title() for each in axes] == [
            *("input", "prediction"),
            *("rollout from the pixel", "for car", "for road", ""),
        ]
        assert [len(each.lines) for each in axes] == marks
        y, x = pixel or (8, 12)
        assert axes[0].lines[0].get_xydata().tolist() == [[x, y]]
        legend = [text.get_text() for text in axes[1].get_legend().get_texts()]
        assert legend == [NAMES[i] for i in found.prediction.unique()]


def test_the_page_begins_with_the_pixel():
    found = predictor_of("mask, class token").explain(picture(50, 70), pixel=(40, 60), layers=True)
    data = SHOW.viewer_data(found, None)
    top, left, _, _ = found.region
    assert data["chosen"] == [(40 - top + 0.5) / 16, (60 - left + 0.5) / 24]
    result = found.result
    name, sure = NAMES[result.mask[40, 60]], 100 * result.confidence[40, 60]
    assert data["answer"] == ["pixelIs", 40, 60, name, f"{sure:.1f} %"]
    assert len(data["layers"]) == 2


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos") / "my photo.png"
    Image.fromarray(picture(50, 70)).save(path)
    return path


@pytest.mark.parametrize("kind", ["mask, class token", "swin, pyramid"])
def test_the_pages_in_a_browser(chromium, kind, photo, tmp_path, printed):
    run = make_run(tmp_path / "run", kind)
    printed("explain", run.path, photo, "--pixel", "40", "69", f"--out={tmp_path}")
    with phone(chromium, tmp_path / "my-photo" / "look.html") as page:
        # row 8 and column 23 of what is seen
        place = "row 2, column 3" if "swin" in kind else "row 3, column 6"
        found = vitreous.load(run.path).explain(photo, pixel=(40, 69))
        assert found.at == (8, 23)
        assert wait_for(page, "attends").startswith(f"The patch in {place} attends most to")
        assert "The pixel in row 40, column 69 is" in page.inner_text("#answer")
        for name in page.eval_on_selector_all("#what option", "all => all.map(o => o.value)"):
            page.locator("#what").select_option(name)
            page.wait_for_timeout(30)


def test_the_explain_command(photo, tmp_path, printed, refused):
    words = ("explain", make_run(tmp_path / "run", "swin, pyramid").path, photo, "--pixel")
    told = json.loads(printed(*words, "3", "60", "--json", "--classes=tree"))
    assert (told["pixel"], list(told["class_maps"])) == ([3, 60], ["tree"])
    told = refused(*words, "50", "60", f"--out={tmp_path / 'out'}")
    assert "my photo.png is 50x70 (height x width)" in told
    assert not (tmp_path / "out").exists()


# ---- the report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(make_run(tmp_path_factory.mktemp("report") / "run"), scenes(), "test")


def test_the_report_has_what_it_promises(report):
    # loss, mean IoU, learning rate, confusion; inside: four images, distances, filters, positions
    drawn = ("mean IoU", ["Confusion matrix"], 3 + 1 + 7, "iou")
    text, rows = assert_report(report, ("miou", "pixel_accuracy", "mean_accuracy"), 2, *drawn)
    for words in ("input", "ground truth", "prediction"):
        assert text.count(f'alt="{words}"') == 6
    assert text.count("</i>ignored") == 1
    assert "test/0&lt;b&gt;.png" in text
    assert "–" in rows["tree"], "its accuracy, where no pixel is of the class"


def test_classes_that_nobody_has_seen_come_last():
    seen = {"iou": 0.5, "pixels": 1000}
    nowhere = {"iou": None, "pixels": 0}
    table = class_table({"a": nowhere, "b": seen}, {"pixels": "pixels", "iou": "IoU"}, "iou")
    assert table.headings == ("class", "pixels>", "IoU>")
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts == [["b", "1,000", "0.500"], ["a", "0", "–"]]


def test_an_image_s_own_miou():
    truth = torch.tensor([[0, 0, 1, 1], [-1, -1, 1, 1]], dtype=torch.int16)
    said = torch.tensor([[0, 2, 1, 1], [0, 1, 1, 1]], dtype=torch.int16)
    metrics = SegmentMetrics(LabelMap.of_ids(range(4)))
    nothing = torch.full_like(truth, -1)
    metrics.update([MaskPrediction(said, said)] * 2, [truth, nothing])
    assert metrics.each()[0] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert metrics.each()[1].isnan()


def test_the_report_in_a_browser(chromium, report):
    assert_all_is_shown(chromium, report[0])
