"""What `vitreous explain` writes: the numbers in it, and the page in a real browser."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
from browser import overlay, phone, point_at, wait_for
from compare import perturb
from PIL import Image
from runs import write_run

import vitreous
from vitreous.cli.main import main
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError
from vitreous.explain.attention import Layer
from vitreous.explain.explanation import MapExplanation
from vitreous.explain.parameters import position_similarity
from vitreous.labels import LabelMap
from vitreous.models.model import Places
from vitreous.pages import charts, maps, viewer
from vitreous.pages.pictures import data_url
from vitreous.predict import Predictor
from vitreous.results import Classification
from vitreous.tasks.classify.show import SHOW
from vitreous.tasks.classify.task import Classify

NAMES = ("cat", "dog", "emu", "fox")


def make_run(folder, family, **fields):
    """A run with random weights and images that are not square."""
    torch.manual_seed(0)
    model = perturb(vitreous.create(family, image_size=(16, 24), patch=4, classes=4, **fields))
    return write_run(folder, model, LabelMap(NAMES, NAMES), Preprocess(image_size=(16, 24)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("explain") / "run", "vit", dim=16, depth=2, heads=2)


@pytest.fixture(scope="module")
def swin_run(tmp_path_factory):
    fields = {"dim": 8, "depths": (2, 2), "heads": (1, 2), "window": 2}
    return make_run(tmp_path_factory.mktemp("explain") / "swin", "swin", **fields)


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos") / "my photo.png"
    values = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    Image.fromarray(values).save(path)
    return path


def test_explanation_has_named_tensors_and_coordinates(run, photo):
    predictor = vitreous.load(run.path)
    found = predictor.explain(photo, classes=["dog", "cat"], layers=True)
    assert [layer.shape for layer in found.attention] == [(2, 4, 6)] * 2
    assert found.rollout.sum().item() == pytest.approx(1)
    assert list(found.class_maps) == ["dog", "cat"]
    for attended, layer in zip(found.attention, found.layers, strict=True):
        assert layer.weights.shape == (1, 2, 25, 25)
        torch.testing.assert_close(attended, layer.weights[0, :, 0, 1:].unflatten(-1, (4, 6)))
    assert found.result.scores == pytest.approx(predictor(photo).scores)
    # 40x50 becomes 19x24 and is cut to 16x24: what lies between rows 2 and 18 of 19
    top, left, height, width = found.region
    assert (left, width) == (0, 50)
    assert (top, height) == pytest.approx((2 * 40 / 19, 16 * 40 / 19))
    assert found.box(0, 0)[:2] == pytest.approx((top, 0))
    assert found.box(3, 5)[2:] == pytest.approx((top + height, 50))
    assert found.box(1, 2) == pytest.approx(
        (top + height / 4, 2 * 50 / 6, top + height / 2, 3 * 50 / 6)
    )
    assert json.loads(json.dumps(found.to_dict()))["grid"] == [4, 6]
    with pytest.raises(ConfigError, match="no class 'cta': did you mean 'cat'"):
        predictor.explain(photo, classes=["cta"])
    for senseless in ("cat", -1, True, [3], 2.0, None):
        with pytest.raises(ConfigError, match="expected a list of names"):
            predictor.explain(photo, classes=senseless)
    assert predictor.explain(photo, classes=0).class_maps == {}
    with torch.inference_mode():
        assert len(predictor.explain(photo, classes=1).class_maps) == 1
    with pytest.raises(ConfigError, match="no patch"):
        found.box(4, 0)


def test_the_region_is_where_the_pixels_come_from():
    """A mark in the image is found in the patch whose box it lies in."""
    preprocess = Preprocess(image_size=(16, 24), crop=0.8, mean=(0.0,), std=(1.0,))
    for size in ((40, 50), (100, 61), (37, 200)):
        top, left, height, width = preprocess.region(*size)
        image = torch.zeros(3, *size, dtype=torch.uint8)
        y, x = int(top + 0.7 * height), int(left + 0.3 * width)
        image[:, y - 1 : y + 2, x - 1 : x + 2] = 255
        where = preprocess(image).sum(0).flatten().argmax().item()
        assert abs(where // 24 / 16 - (y + 0.5 - top) / height) < 0.1
        assert abs(where % 24 / 24 - (x + 0.5 - left) / width) < 0.1


def unpack(url):
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return torch.from_numpy(np.asarray(image.convert("L")).astype(np.float32))


def page_data(page):
    return json.loads(re.search(r'application/json">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_holds_the_attention(run, photo):
    predictor = vitreous.load(run.path)
    found = predictor.explain(photo, layers=True)
    data = viewer_data(found, position_similarity(predictor.model))
    assert (len(data["layers"]), data["grid"], data["size"]) == (2, [4, 6], [16, 24])
    for packed, layer in zip(data["layers"], found.layers, strict=True):
        assert (packed["heads"], packed["grid"], packed["pixels"]) == (2, [4, 6], [4, 4])
        stored = unpack(packed["attention"]) / 255
        most = torch.tensor(packed["most"])
        values = stored.square() * most[:, None]
        weights = layer.weights.reshape(50, 25)
        # half a step of 15 in the root, and just below the largest a whole one
        assert ((values - weights).abs() <= most[:, None] * 2 / 15 + 1e-4).all()
        assert torch.equal(values.argmax(1), weights.argmax(1))
    assert data["maps"]["attention rollout"] == pytest.approx(
        found.rollout.flatten().tolist(), rel=1e-3
    )
    assert sum(name.startswith("for the class") for name in data["maps"]) == 3
    assert unpack(data["positions"]).shape == (24, 24)


def viewer_data(found, positions=None):
    return page_data(viewer.page(SHOW.viewer_data(found, positions), "image", "model"))


def fake_explanation(layers, heads, grid):
    tokens = grid[0] * grid[1] + 1
    weights = torch.rand(layers, heads, tokens, tokens) ** 2
    result = Classification("<b>x</b></script>", 0.5, 0, {"x": 0.5}, "a<b>.png")
    weights = weights / weights.sum(-1, keepdim=True)
    places = Places(1, grid, (16, 16))
    return MapExplanation(
        result=result,
        image=torch.rand(3, 16 * grid[0], 16 * grid[1]),
        grid=grid,
        pixels=(16, 16),
        region=(0, 0, 1, 1),
        attention=[layer[:, 0, 1:].unflatten(-1, grid) for layer in weights],
        rollout=torch.rand(grid),
        class_maps={"x": torch.rand(grid)},
        layers=[Layer(i, "", layer[None], places) for i, layer in enumerate(weights)],
    )


def test_a_page_of_vit_b_stays_small_whatever_the_attention():
    found = fake_explanation(12, 12, (14, 14))
    page = viewer.page(SHOW.viewer_data(found, torch.rand(14, 14, 14, 14)), "a<b>.png", "vit")
    assert len(page) < 5_000_000
    assert "a&lt;b&gt;.png" in page
    data = page_data(page)
    assert data["layers"][0]["heads"] == 12
    assert data["answer"] == ["classified", "<b>x</b></script>", "50.0 %"]


def test_long_sequences_are_averaged_and_that_is_said():
    data = viewer_data(fake_explanation(12, 4, (24, 24)))
    assert data["layers"][0]["heads"] == 1
    assert ["averaged"] in data["note"]


def test_a_map_leaves_the_photo_visible():
    """Where its value is small, light stays light and dark does not become black."""
    image = torch.zeros(3, 8, 8)
    image[:, :, 4:] = 1.0
    image[0, :4] = 1.0
    values = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    figure = maps.grid([[maps.Panel(image, values=values, patch=(4, 4), scale="attention")]])
    below, over = figure.axes[0].images
    shown = np.asarray(below.get_array()) / 255
    assert (shown == shown[..., :1]).all(), "all colour is the map's"
    alpha = over.get_alpha()[..., None]
    mixed = alpha * over.cmap(over.get_array())[..., :3] + (1 - alpha) * shown[::4, ::4]
    assert mixed[0, 1].min() > 0.7
    assert mixed[1, 0].min() > 0.15
    assert mixed[1, 1].tolist() == pytest.approx([0.99, 0.92, 0.27], abs=0.02)
    (bar,) = figure.axes[0].child_axes
    assert bar.get_xlabel() == "attention"
    assert [label.get_text() for label in bar.get_xticklabels()] == ["0 %", "100 %"]


def test_a_map_of_one_value_has_one_number():
    panel = maps.Panel(torch.rand(3, 4, 4), values=torch.full((2, 2), 0.25), scale="attention")
    (bar,) = maps.grid([[panel]]).axes[0].child_axes
    assert [label.get_text() for label in bar.get_xticklabels()] == ["25 %"]


def test_the_image_stands_beside_what_the_model_sees_of_it(run):
    """With a frame, where it is not all of it."""
    predictor = vitreous.load(run.path)
    for size, titles in (((60, 20), ["image; frame: input", "input"]), ((24, 16), ["input"])):
        found = predictor.explain(Image.new("RGB", size, "red"), 0)
        axes = SHOW.map_figure(found).axes
        assert [each.get_title() for each in axes[:-1]][: len(titles)] == titles
        if len(titles) == 2:
            top, left, height, width = found.region
            assert axes[0].images[0].get_array().shape[:2] == (size[1], size[0])
            frame = axes[0].patches[-1].get_bbox().bounds
            assert frame == pytest.approx((left - 0.5, top - 0.5, width, height))


def test_figures_show_the_numbers():
    attention = torch.rand(2, 3, 4, 6)
    figure = maps.head_attention(torch.rand(3, 16, 24), attention)
    drawn = [axes.images[-1].get_array() for axes in figure.axes]
    np.testing.assert_allclose(drawn[1 + 2], attention[0, 2])
    np.testing.assert_allclose(drawn[4 + 1], attention[1, 0])
    similar = torch.rand(3, 5, 3, 5)
    figure = maps.position_grid(similar)
    tiles = figure.axes[0].images[0].get_array()  # of 3x5, with a gap between them
    expected = similar[1, 4] - similar[1, 4].min()
    np.testing.assert_allclose(tiles[4:7, 24:29], expected / expected.max(), rtol=1e-5)
    distances = [torch.rand(2), torch.rand(3)]
    figure = charts.attention_distances(distances, 10.0)
    dots = figure.axes[0].collections[1].get_offsets()
    np.testing.assert_allclose(dots, [(2, value) for value in distances[1]], rtol=1e-6)
    drawn = {"rollout": torch.rand(4, 6)}
    image = torch.rand(1, 16, 24)
    panels = [maps.Panel(image), maps.Panel(image, "rollout", drawn["rollout"], patch=(4, 5))]
    figure = maps.grid([panels])
    np.testing.assert_allclose(figure.axes[1].images[1].get_array(), drawn["rollout"])
    assert list(figure.axes[1].images[1].get_extent()) == [
        -0.5,
        29.5,
        15.5,
        -0.5,
    ]  # the last ones reach over
    assert figure.axes[1].get_xlim() == (-0.5, 23.5)


def test_the_command_writes_everything(run, photo, tmp_path, capsys):
    assert main(["explain", str(run.path), str(photo), f"--out={tmp_path / 'out'}"]) == 0
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    inside = {f"my-photo/{name}" for name in ("maps.png", "heads.png", "look.html")}
    assert names == {"positions.png", "filters.png", "distances.png"} | inside
    assert main(["explain", str(run.path), str(photo), "--json", "--classes=emu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert list(json.loads(lines[-1])["class_maps"]) == ["emu"]
    assert main(["explain", str(run.path), str(photo), "--classes=emuu"]) == 2
    assert "did you mean 'emu'" in capsys.readouterr().err


def test_one_bad_image_does_not_lose_the_others(run, photo, tmp_path, capsys):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    options = ["explain", str(run.path), str(bad), str(photo)]
    assert main([*options, f"--out={tmp_path / 'out'}"]) == 2
    assert "1 of 2 images could not be used" in capsys.readouterr().err
    assert (tmp_path / "out" / "002-my-photo" / "look.html").exists()
    assert (tmp_path / "out" / "distances.png").exists()
    assert main([*options, "--json"]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["explain", str(run.path), str(photo), f"--out={bad}"]) == 2
    assert f"--out {bad}: cannot be written" in capsys.readouterr().err


def test_nothing_is_written_for_a_class_that_is_not_there(run, photo, tmp_path):
    out = tmp_path / "out"
    assert main(["explain", str(run.path), str(photo), "--classes=x", f"--out={out}"]) == 2
    assert not out.exists()


def test_a_run_without_attention(tmp_path, photo, capsys):
    model = vitreous.create("resnet-18", classes=4, image_size=32)
    predictor = Predictor(model, Preprocess(image_size=32), Classify(LabelMap(NAMES, NAMES)))
    with pytest.raises(ConfigError, match="no attention"):
        predictor.explain(photo)


def most_local(layer):
    """The head whose patches attend to the nearest ones, on average."""
    places = layer.places
    gh, gw = places.grid
    spots = torch.stack(torch.meshgrid(torch.arange(gh), torch.arange(gw), indexing="ij"), -1)
    spots = spots.flatten(0, 1).float()
    apart = torch.cdist(spots, spots)
    if places.windows is None:
        weights = layer.weights[0, :, places.prefix :, places.prefix :]
        far, kept = weights * apart, weights
    else:
        inside = places.windows >= 0
        pairs = inside[:, :, None] & inside[:, None, :]
        near = apart[places.windows[:, :, None], places.windows[:, None, :]]
        kept = (layer.weights * pairs[:, None]).transpose(0, 1)
        far = kept * near
    return (far.flatten(1).sum(1) / kept.flatten(1).sum(1)).argmin().item()


def wait_for_head(page):
    page.wait_for_function("document.getElementById('head').value !== 'mean'")
    return page.input_value("#head")


def test_in_chinese_and_back(chromium, run, photo, tmp_path):
    """The browser's language first; a switch keeps what is shown."""
    assert main(["explain", str(run.path), str(photo), f"--out={tmp_path}"]) == 0
    page = chromium.new_page(locale="zh-CN")
    page.goto((tmp_path / "my-photo" / "look.html").as_uri())
    wait_for(page, "最关注")
    wait_for_head(page)
    assert page.get_attribute("html", "lang") == "zh-Hans"
    assert page.title().startswith("my photo.png：")
    for label in page.locator("#what option, .choices label").all_text_contents():
        assert re.search("[一-龥]", label), label
    page.locator("#layer").fill("0")
    page.locator("#head").select_option("mean")
    page.locator("#what").select_option("token 0")
    wait_for(page, "类别标记最关注")
    shown = overlay(page)
    page.locator("#language").select_option("en")
    assert wait_for(page, "attends").startswith("The class token attends most to")
    assert overlay(page) == shown
    assert (page.input_value("#layer"), page.input_value("#head")) == ("0", "mean")
    assert page.get_attribute("html", "lang") == "en"
    page.close()


def test_the_page_in_a_browser(chromium, run, photo, tmp_path):
    assert main(["explain", str(run.path), str(photo), f"--out={tmp_path}"]) == 0
    found = vitreous.load(run.path).explain(photo, layers=True)
    with phone(chromium, tmp_path / "my-photo" / "look.html") as page:
        assert wait_for(page, "attends").startswith("The patch in row 3, column 4 attends most to")
        head = wait_for_head(page)
        assert head == str(most_local(found.layers[1])), "not the mean, where nothing is seen"
        assert page.input_value("#layer") == "1"
        page.locator("#head").select_option("mean")
        first = overlay(page)
        point_at(page, 1, 2, (4, 6))
        said = wait_for(page, "The patch in row 2, c")
        weights = found.layers[1].weights[0].mean(0)[1 + 1 * 6 + 2, 1:]
        row, column = divmod(weights.argmax().item(), 6)
        assert said.startswith(
            f"The patch in row 2, column 3 attends most to row {row + 1}, column {column + 1}:"
        )
        share = float(re.search(r": ([\d.]+) %", said)[1]) / 100
        assert share == pytest.approx(weights.max().item(), rel=0.15)
        second = overlay(page)
        assert first != second
        page.locator("#head").select_option("1")
        third = overlay(page)
        assert third != second
        page.locator("#layer").fill("0")
        assert "1 of 2" in page.inner_text("#forLayer")
        assert overlay(page) != third
        page.locator("#stage").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert "row 3, column 4" in wait_for(page, "row 3, c")
        page.keyboard.press("t")
        wait_for(page, "The class token")
        point_at(page, 2, 2, (4, 6))
        for name in page.eval_on_selector_all("#what option", "all => all.map(o => o.value)"):
            before = overlay(page)
            page.locator("#what").select_option(name)
            page.wait_for_timeout(50)
            assert name == "attention" or overlay(page) != before, name
            looks = name in ("attention", "token 0")
            assert page.locator("#head").is_visible() == looks


def test_windows_in_a_browser(chromium, swin_run, photo, tmp_path):
    """Swin's later layers have coarser grids, and attention that stays in windows."""
    assert main(["explain", str(swin_run.path), str(photo), f"--out={tmp_path}"]) == 0
    found = vitreous.load(swin_run.path).explain(photo, layers=True)
    with phone(chromium, tmp_path / "my-photo" / "look.html") as page:
        wait_for(page, "attends")
        assert page.locator("#layer").input_value() == "2"
        assert wait_for_head(page) == str(most_local(found.layers[2]))
        page.locator("#head").select_option("mean")
        for number, grid in ((3, (2, 3)), (1, (4, 6)), (0, (4, 6))):
            page.locator("#layer").fill(str(number))
            point_at(page, 0, 0, grid)
            point_at(page, 1, 2, grid)
            said = wait_for(page, "The patch in row 2, column 3 attends")
            layer = found.layers[number]
            askers = torch.zeros(1, layer.tokens)
            askers[0, grid[1] + 2] = 1
            seen = layer.attended(layer.weights.mean(1), askers)[0]
            row, column = divmod(seen.argmax().item(), grid[1])
            assert f"attends most to row {row + 1}, column {column + 1}:" in said, number


def test_pictures_longer_than_webp_can_be():
    for width, kind in ((20_000, "png"), (200, "webp"), (20, "png")):
        assert data_url(Image.new("RGB", (width, 3))).startswith(f"data:image/{kind}")
