"""Masks, overlays and what `predict` and `evaluate` make of a model that segments."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from runs import vit_run
from tasks.detect_runs import kinds_of_images
from tasks.segment_runs import LABELS, NAMES, make_run, scenes

import vitreous
from vitreous.api import evaluation
from vitreous.cli import evaluate
from vitreous.data.decode.masks import read_mask, to_classes
from vitreous.labels import LabelMap
from vitreous.pages.colours import colours_of
from vitreous.pages.figure import save
from vitreous.results import Segmentation
from vitreous.tasks.segment import draw
from vitreous.tasks.segment.show import SHOW


def result_of(ids, size=(20, 30)):
    mask = np.random.default_rng(0).integers(0, len(ids), size).astype(np.int16)
    names = tuple(f"class {i}" for i in range(len(ids)))
    return Segmentation(mask, np.full(size, 0.5, np.float16), names, tuple(ids), "a.png")


def written(result, folder, image=None):
    image = torch.zeros(3, *result.mask.shape, dtype=torch.uint8) if image is None else image
    draw.write(result, image, folder, "a")
    told = json.loads((folder / "a.json").read_text())
    return folder / "a-mask.png", folder / "a-overlay.jpg", told


# ---- masks


@pytest.mark.parametrize("ids", [range(5), (3, 7, 200, 255), (0,), range(256)])
def test_masks_have_the_data_s_own_numbers(ids, tmp_path):
    result = result_of(ids)
    path, _, told = written(result, tmp_path)
    np.testing.assert_array_equal(read_mask(str(path)).values, np.array(ids)[result.mask])
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    labels = LabelMap(result.names, result.ids)
    back = to_classes(read_mask(str(path)).values, labels, str(path))
    np.testing.assert_array_equal(back, result.mask)
    for each in told["classes"]:
        assert each["value"] == each["id"]
    with Image.open(path) as picture:
        assert picture.mode == "P"
        palette = np.array(picture.getpalette()).reshape(-1, 3)
    np.testing.assert_array_equal(palette[list(ids)], colours_of(result.ids))


def test_colours_of_the_data_are_kept(tmp_path):
    ids = ("#ff0000", "#00ff80", "#0A0B0C")
    result = result_of(ids)
    path, _, told = written(result, tmp_path)
    np.testing.assert_array_equal(read_mask(str(path)).values, result.mask)
    with Image.open(path) as picture:
        colours = np.asarray(picture.convert("RGB"))
    expected = np.array([(255, 0, 0), (0, 255, 128), (10, 11, 12)])
    np.testing.assert_array_equal(colours, expected[result.mask])
    assert {(each["id"], each["value"]) for each in told["classes"]} == {(0, 0), (1, 1), (2, 2)}


@pytest.mark.parametrize(
    ("ids", "numbers"),
    [
        *((ids, range(3)) for ids in ((0, 1, 70_000), (-1, 0, 1), ("cat", "dog", "#ff0000"))),
        *((ids, ids) for ids in ((5, 300, 65_535), range(1000))),
    ],
)
def test_ids_that_do_not_fit_are_counted(ids, numbers, tmp_path):
    result = result_of(ids, (64, 64))
    path, _, _ = written(result, tmp_path)
    values = read_mask(str(path)).values
    np.testing.assert_array_equal(values, np.array(numbers)[result.mask])
    assert values.dtype == (np.uint16 if max(numbers) > 255 else np.uint8)


@pytest.mark.parametrize("count", [2, 19, 20, 150, 256])
def test_colours_differ(count):
    colours = colours_of(tuple(range(count)))
    assert len(set(colours)) == count
    assert colours[:2] == colours_of((5, 9))


def test_what_is_ignored_is_hatched():
    mask = np.array([[0, 1], [-1, -1]], np.int16).repeat(64, 0).repeat(64, 1)
    picture = draw.coloured(mask, [(255, 0, 0), (0, 0, 255)])
    assert (picture[:64, :64] == (255, 0, 0)).all()
    assert (picture[:64, 64:] == (0, 0, 255)).all()
    grays = picture[64:]
    assert (grays == grays[..., :1]).all()
    assert sorted(np.unique(grays)) == [110, 190]


# ---- overlays


@pytest.mark.parametrize("size", [(20, 30), (600, 400)])
def test_an_overlay_is_the_image_with_a_legend_below(size):
    result = result_of(range(3), size)
    picture = draw.overlay(torch.zeros(3, *size, dtype=torch.uint8), result)
    array = np.asarray(picture)
    assert picture.height > size[0]
    assert picture.width >= size[1]
    colours = np.array(colours_of(result.ids))[result.mask]
    expected = (draw.DARKEST * (256 - draw.SHADE) + colours * draw.SHADE) // 256
    np.testing.assert_array_equal(array[: size[0], : size[1]], expected)
    legend = array[size[0] :].reshape(-1, 3)
    for colour in colours_of(result.ids):
        assert (legend == colour).all(axis=1).any(), "each class has its colour in the legend"


def test_all_kinds_of_images_can_be_under_a_mask():
    result = result_of(range(2))
    first, *others = kinds_of_images()
    gray = np.asarray(draw.overlay(first, result))
    for image in others:
        other = np.asarray(draw.overlay(image, result))
        assert abs(other.astype(int) - gray).max() <= 1


def test_long_names_widen_the_legend():
    key = draw.legend({"x" * 80: (1, 2, 3), "y": (4, 5, 6)}, 64, 11)
    assert key.width > 400
    assert (np.asarray(key)[:, -1] == 255).all(), "nothing is cut off"


# ---- the commands


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run", "linear, no token")


@pytest.fixture
def photos(tmp_path):
    values = np.random.default_rng(0)
    for name, size in {"a/x": (16, 24), "b/x": (50, 70), "b/y": (9, 9)}.items():
        path = tmp_path / "photos" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values.integers(0, 255, (*size, 3), np.uint8)).save(path)
    return tmp_path / "photos"


def test_predict_writes_masks_overlays_and_data(run, photos, tmp_path, printed):
    out = tmp_path / "out"
    lines = printed("predict", run.path, photos, f"--out={out}", "--json").splitlines()
    told = [json.loads(line) for line in lines]
    results = vitreous.load(run.path)([photos / "a/x.png", photos / "b/x.png", photos / "b/y.png"])
    assert told == [result.to_dict() for result in results]
    names = ("x", "b-x", "y")
    endings = ("-mask.png", "-overlay.jpg", ".json")
    assert {p.name for p in out.iterdir()} == {name + end for name in names for end in endings}
    for name, result in zip(names, results, strict=True):
        values = read_mask(str(out / f"{name}-mask.png")).values
        np.testing.assert_array_equal(values, np.array(LABELS.external)[result.mask])
        stored = json.loads((out / f"{name}.json").read_text())
        assert stored["image"] == result.image
        assert stored["mask"] == f"{name}-mask.png"
        assert sum(each["pixels"] for each in stored["classes"]) == result.mask.size


def test_predict_prints_the_largest_classes(run, photos, printed):
    head, *rows = printed("predict", run.path, photos, "--top=2").splitlines()
    assert head.split() == ["image", "size", "largest", "share", "then"]
    result = vitreous.load(run.path)(photos / "b/x.png")
    areas = list(result.areas.items())
    words = [f"{name} {100 * share:.1f} %" for name, share in areas[:2]]
    assert " ".join(rows[1].split()).endswith(f"50x70 {' '.join(words)}")


def test_what_cannot_be_written(run, photos, tmp_path, command, refused):
    shutil.copy(photos / "a/x.png", photos / "a/x-mask.png")
    out, err = command("predict", run.path, photos / "a", f"--out={photos / 'a'}", code=2)
    assert "x-mask.png would be written over, which is one of the inputs" in err
    assert out == ""
    words = ("predict", run.path, photos)
    assert "cannot be written" in refused(*words, f"--out={photos / 'a/x.png'}")
    told = refused(*words, "--out=o", "--data=ids.json")
    assert "--data ids.json: no ids are written for the task segment" in told
    told = refused("predict", vit_run(), photos, f"--out={tmp_path / 'o'}")
    assert "nothing is drawn for the task classify" in told
    assert not (tmp_path / "o").exists()


def test_other_masks_are_named_by_a_file(run, tmp_path, printed, refused):
    """Masks have numbers, which a names file outside of the data gives names."""
    for folder, values in (("images", 255), ("masks", len(NAMES))):
        (tmp_path / "data" / folder).mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, values, (20, 30), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / folder / "1.png")
    words = ("evaluate", run.path, tmp_path / "data")
    assert "or pass --names FILE" in refused(*words)
    file = tmp_path / "names.json"
    file.write_text(json.dumps(dict(enumerate(NAMES))))
    assert json.loads(printed(*words, f"--names={file}", "--json"))["samples"] == 1
    assert "leave out the options" in refused("evaluate", run.path, f"--names={file}")


def test_evaluation_is_printed_and_drawn(run, tmp_path, printed, monkeypatch):
    monkeypatch.setattr(evaluation, "labelled_source", lambda *given, **options: (scenes(), True))
    figures = tmp_path / "figures"
    text = printed("evaluate", run.path, f"--figures={figures}")
    result = vitreous.load(run.path).evaluate(scenes(), "test")
    for name in ("miou", "pixel_accuracy", "mean_accuracy"):
        assert f"{name:<18} {result[name]:.4f}" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["class", "iou", "accuracy", "precision", "pixels"] in lines
    tree = next(line for line in lines if line[:1] == ["tree"])
    assert tree[2] == "-", "no pixel is a tree, so that none can be found"
    assert lines[-4][:2] == ["0", "sky"]
    assert sorted(p.name for p in figures.iterdir()) == ["classes.png", "confusion.png"]
    assert json.loads(printed("evaluate", run.path, "--json"))["miou"] == result["miou"]


def test_large_counts_are_shown_as_shares(capsys):
    evaluate._print_confusion(["a", "b"], [[300_000, 100_000], [0, 0]])
    text = capsys.readouterr().out
    assert "in % of the row" in text
    assert ["0", "a", "75.0", "25.0"] in [line.split() for line in text.splitlines()]


def test_figures_leave_out_what_is_not_known(tmp_path):
    rows = {name: {"iou": None if name == "sky" else 0.5} for name in NAMES}
    confusion = [[0] * 4, *([1, 2, 3, 10**6] for _ in range(3))]
    drawn = SHOW.figures({"classes": rows, "confusion": confusion})
    assert list(drawn) == ["classes", "confusion"]
    for name, figure in drawn.items():
        assert save(figure, tmp_path / f"{name}.png").stat().st_size > 1000


def test_other_data_is_opened_for_the_run_s_task(run, printed, monkeypatch):
    opened = {}

    def open_source(name, **options):
        opened.update(options)
        return scenes()

    monkeypatch.setattr("vitreous.train.open_data.open_source", open_source)
    printed("evaluate", run.path, "elsewhere", "--json")
    assert opened["truth"] == "mask"
