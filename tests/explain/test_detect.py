"""What is drawn, written, read and explained of a model that detects."""

import json
import re

import numpy as np
import pytest
import torch
from explain.detect_runs import (
    LABELS,
    NAMES,
    SIZE,
    SIZES,
    make_model,
    make_run,
    objects,
    write_coco,
    write_photos,
)
from explain.test_pages import BROWSER, browser, page_data, point_at, unpack, wait_for
from PIL import Image

import vitreous
from vitreous.api import evaluation
from vitreous.api.report import write_report
from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError
from vitreous.explain.attention import has_attention, look
from vitreous.layers.tap import tap
from vitreous.pages import charts, viewer
from vitreous.pages.figure import save
from vitreous.pages.inside import model_figures
from vitreous.pages.maps import Mark
from vitreous.pages.pictures import data_url
from vitreous.pages.prediction_files import file_names
from vitreous.pages.report import loss_terms
from vitreous.predict import Predictor
from vitreous.results import Detection
from vitreous.tasks.detect.show import SHOW
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.objects import draw as boxes
from vitreous.tasks.objects.draw import boxed, enlargement, told_apart
from vitreous.tasks.objects.report import judge
from vitreous.tasks.objects.show import file_ids, object_rows
from vitreous.tasks.objects.walk import objects_table, walk_through

RED = (230, 25, 75)


def viewer_data(found):
    return page_data(viewer.page(SHOW.viewer_data(found, None), "title"))


def predictor_of(backbone="resnet", threshold=0.3, **fields):
    preprocess = Preprocess(image_size=SIZE, resize="shorter", whole=True)
    task = Detect(LABELS, threshold=threshold)
    return Predictor(make_model(backbone, **fields), preprocess, task)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def coco(run, tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp("data"), run)


# ---- boxes in pictures


@pytest.mark.parametrize("size", [(30, 40), (200, 300), (700, 1000)])
def test_a_box_is_drawn_where_it_is(size):
    height, width = size
    box = (0.25 * width, 0.4 * height, 0.75 * width, 0.9 * height)
    picture = boxed(torch.full((3, *size), 90, dtype=torch.uint8), [Mark(box, "", RED)])
    times = enlargement(*size)
    array = np.asarray(picture)
    assert array.shape == (height * times, width * times, 3)
    coloured = (array == RED).all(axis=2)
    ys, xs = np.nonzero(coloured)
    left, top, right, bottom = (round(edge * times) for edge in box)
    # a thin dark line is outermost
    assert (ys.min(), ys.max()) == (top + 1, bottom - 2)
    assert (xs.min(), xs.max()) == (left + 1, right - 2)
    inside = array[top:bottom, left:right]
    assert (inside[0] == 16).all()
    assert (inside[:, -1] == 16).all()
    outside = np.ones(array.shape[:2], bool)
    outside[top:bottom, left:right] = False
    assert (array[outside] == 90).all()
    middle = inside[len(inside) // 3 : -len(inside) // 3, inside.shape[1] // 3 : -40 * times]
    assert (middle == 90).all()


def labels_of(monkeypatch, size, marks):
    """Where the words are."""
    found, place = [], boxes._label
    monkeypatch.setattr(boxes, "_label", lambda *a: found.append(place(*a)) or found[-1])
    return found, boxed(torch.zeros(3, *size, dtype=torch.uint8), marks)


@pytest.mark.parametrize("size", [(64, 64), (9, 400), (400, 9), (480, 640), (2000, 300), (1, 1)])
def test_words_stay_inside(size, monkeypatch):
    height, width = size
    places = [(0, 0, 1, 1), (0.9, 0.9, 1, 1), (-1, -1, 2, 2), (0.5, 0, 0.6, 1), (0.2, 0.95, 3, 4)]
    marks = [
        Mark((left * width, top * height, right * width, bottom * height), words, RED)
        for left, top, right, bottom in places
        for words in ("cat 0.99", "a class of a very long name, which nobody reads 0.99")
    ]
    found, picture = labels_of(monkeypatch, size, marks)
    assert len(found) == len(marks)
    for left, top, right, bottom in found:
        assert 0 <= left < right <= picture.width
        assert top >= 0
        assert bottom <= max(picture.height, bottom - top)


def test_words_do_not_cover_each_other(monkeypatch):
    marks = [Mark((40, 60 + i, 200, 200 + i), f"cat 0.{i}", RED) for i in range(6)]
    found, _ = labels_of(monkeypatch, (480, 640), marks)
    assert not any(boxes._meet(a, b) for i, a in enumerate(found) for b in found[:i])


def test_letters_and_lines_grow_with_the_picture():
    assert [enlargement(*size) for size in ((64, 64), (300, 200), (480, 640), (5, 9000))] == [
        *(8, 2, 1, 7)
    ]
    sizes = [boxes.letter_size(*size) for size in ((512, 512), (480, 640), (3000, 4000))]
    assert sizes == sorted(sizes)
    assert sizes[0] >= boxes.SMALLEST
    assert sizes[-1] / 3000 == pytest.approx(sizes[0] / 512, rel=0.2)


def test_boxes_are_drawn_into_all_kinds_of_images():
    bright = torch.arange(600, dtype=torch.int32).reshape(1, 20, 30) % 256
    marks = [Mark((3, 3, 20, 15), "cat", RED, dashed=True)]
    gray = np.asarray(boxed(bright.to(torch.uint8), marks))
    for image in (
        bright.to(torch.uint8).expand(3, -1, -1),
        torch.cat((bright, torch.zeros(1, 20, 30))).to(torch.uint8),
        (bright * 100 + 7).to(torch.uint16),
        bright.float() / 255 - 3,
    ):
        assert abs(np.asarray(boxed(image, marks)).astype(int) - gray).max() <= 1
    for strange in ((50.0, 50.0, 60.0, 60.0), (5.0, 5.0, 5.0, 5.0), (9.0, 9.0, 2.0, 2.0)):
        boxed(bright.to(torch.uint8), [Mark(strange, "outside, or nothing", RED)])


# ---- predict


def test_predict_writes_boxes_and_results(run, photos, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["predict", str(run.path), str(photos[0].parent), "--threshold", "0.4"]
    assert main([*options, f"--out={out}", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    results = vitreous.load(run.path)(photos)
    assert told == [result.above(0.4).to_dict() for result in results]
    assert sum(len(each["objects"]) for each in told) > 5
    names = [f"photo-{i}" for i in range(len(photos))]
    expected = {f"{name}{end}" for name in names for end in ("-boxes.jpg", ".json")}
    assert {p.name for p in out.iterdir()} == expected | {"results.json"}
    for name, each, size in zip(names, told, SIZES, strict=True):
        stored = json.loads((out / f"{name}.json").read_text())
        assert stored == {**each, "threshold": 0.4, "picture": f"{name}-boxes.jpg"}
        times = enlargement(*size)
        with Image.open(out / f"{name}-boxes.jpg") as picture:
            assert picture.size == (size[1] * times, size[0] * times)
    rows = json.loads((out / "results.json").read_text())
    assert rows == [
        {**row, "file_name": photo.name}
        for number, (photo, result) in enumerate(zip(photos, results, strict=True), 1)
        for row in result.to_coco(number)
    ]
    assert len(rows) == 5 * len(photos)  # every query, whatever the threshold
    assert main(["predict", str(run.path), *[str(photos[0])] * 2, f"--out={out}"]) == 0
    assert len(json.loads((out / "results.json").read_text())) == 5  # of one image, named twice


def test_predict_prints_the_most_confident(run, photos, capsys):
    options = ["predict", str(run.path), *map(str, photos), "--top", "2"]
    assert main([*options, "--threshold=0.6"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["image", "size", "objects", "detections"]
    for row, result in zip(rows, vitreous.load(run.path)(photos), strict=True):
        found = result.above(0.6).objects
        size = "{}x{}".format(*result.size)
        assert re.search(rf"{size} +{len(found)}  ", row)
        for each in found[:2]:
            assert f"{each.label} {each.score:.2f}" in row
        assert row.endswith("…") == (len(found) > 2)
        if not found:
            best = result.above(0).objects[0]
            words = f"none of 0.6 or more; {best.label} {best.score:.2f} is next"
            assert row.endswith(words)


def test_thresholds_are_for_detectors(run, photos, tmp_path, capsys):
    from explain.segment_runs import make_run as make_segmenter

    other = make_segmenter(tmp_path / "segmenter", "linear, no token")
    assert main(["predict", str(other.path), str(photos[0]), "--threshold=0.5"]) == 2
    assert "--threshold 0.5" in capsys.readouterr().err
    for senseless in ("1.5", "-0.1", "nan"):
        assert main(["predict", str(run.path), str(photos[0]), "--threshold", senseless]) == 2
        assert "from 0 to 1" in capsys.readouterr().err


def test_names_of_files_and_of_images():
    paths = ["a/x.png", "b/x.png", "results.png", "c/Results.jpg"]
    assert file_names(paths, taken=("results",)) == {
        "a/x.png": "x",
        "b/x.png": "b-x",
        "results.png": "results-2",
        "c/Results.jpg": "c-Results",
    }
    assert file_ids(paths) == {
        "a/x.png": "a/x.png",
        "b/x.png": "b/x.png",
        "results.png": "results.png",
        "c/Results.jpg": "Results.jpg",
    }


def test_an_image_that_is_called_results(run, photos, tmp_path):
    path = tmp_path / "results.png"
    path.write_bytes(photos[0].read_bytes())
    assert main(["predict", str(run.path), str(path), f"--out={tmp_path / 'out'}"]) == 0
    written = {p.name for p in (tmp_path / "out").iterdir()}
    name = f"{tmp_path.name}-results"
    assert written == {f"{name}-boxes.jpg", f"{name}.json", "results.json"}
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 5


def test_what_cannot_be_written(run, photos, tmp_path, capsys):
    lost = tmp_path / "a-boxes.png"
    for path in (tmp_path / "a.png", lost):
        path.write_bytes(photos[0].read_bytes())
    assert main(["predict", str(run.path), str(tmp_path), f"--out={tmp_path}"]) == 2
    assert "a-boxes.png would be written over" in capsys.readouterr().err
    assert main(["predict", str(run.path), str(photos[0]), f"--out={lost}"]) == 2
    assert f"--out {lost}: cannot be written" in capsys.readouterr().err
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    out = tmp_path / "out"
    assert main(["predict", str(run.path), str(bad), str(photos[0]), f"--out={out}"]) == 2
    assert "1 of 2 images could not be used" in capsys.readouterr().err
    assert len(json.loads((out / "results.json").read_text())) == 5
    assert not list(out.glob("*.part"))


# ---- files of results


def coco_ap(coco, results):
    """By faster-coco-eval and by pycocotools, which read the file themselves."""
    import faster_coco_eval
    import pycocotools.coco
    import pycocotools.cocoeval

    pairs = (
        (faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster),
        (pycocotools.coco.COCO, pycocotools.cocoeval.COCOeval),
    )
    for read, measure in pairs:
        truth = read(str(coco))
        measured = measure(truth, truth.loadRes(str(results)), "bbox")
        measured.evaluate()
        measured.accumulate()
        measured.summarize()
        yield [None if value < 0 else value for value in measured.stats[:12]]


def told_by(capsys, *options):
    capsys.readouterr()
    assert main(["evaluate", *map(str, options), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_results_written_and_read_give_the_same_numbers(run, coco, tmp_path, capsys):
    from vitreous.tasks.objects.metrics import NUMBERS

    path = tmp_path / "new" / "results.json"
    direct = told_by(capsys, run.path, coco)
    writing = told_by(capsys, run.path, coco, "--results", path)
    assert writing == direct
    assert 0.2 < direct["ap"] < 0.9
    rows = json.loads(path.read_text())
    assert len(rows) == 5 * len(SIZES)
    assert {row["image_id"] for row in rows} == {1000 - 37 * i for i in range(len(SIZES))}
    assert {row["category_id"] for row in rows} <= set(LABELS.external)
    read = told_by(capsys, run.path, coco, "--from", path)
    ours = {key: direct[key] for key in NUMBERS if direct[key] is not None}
    assert 5 < len(ours) < 12
    assert {key: read[key] for key in ours} == pytest.approx(ours, rel=1e-6)
    assert all(read[key] is None for key in NUMBERS if key not in ours)
    assert list(read["classes"]) == list(direct["classes"])
    for stats in coco_ap(coco, path):
        theirs = dict(zip(NUMBERS, stats, strict=True))
        assert ours == pytest.approx({key: theirs[key] for key in ours}, rel=1e-6)


def test_results_of_predict_can_be_measured(run, coco, tmp_path, capsys):
    """They know images by the names of their files."""
    images = coco.parent.parent / "val"
    assert main(["predict", str(run.path), str(images), f"--out={tmp_path}"]) == 0
    read = told_by(capsys, run.path, coco, "--from", tmp_path / "results.json")
    assert read["ap"] == pytest.approx(told_by(capsys, run.path, coco)["ap"], rel=1e-6)


def test_ids_are_the_data_s_own(run, coco, tmp_path, capsys):
    """Other data may call the same classes otherwise, and have fewer of them."""
    values = json.loads(coco.read_text())
    other = {3: 90, 12: 5, 200: 4}
    values["annotations"] = [a for a in values["annotations"] if a["category_id"] in other]
    for annotation in values["annotations"]:
        annotation["category_id"] = other[annotation["category_id"]]
    kept = [category for category in values["categories"] if category["id"] in other]
    values["categories"] = [{**category, "id": other[category["id"]]} for category in kept]
    path = tmp_path / "annotations" / "instances_val.json"
    path.parent.mkdir()
    path.write_text(json.dumps(values))
    (tmp_path / "val").symlink_to(coco.parent.parent / "val")
    results = tmp_path / "results.json"
    assert main(["evaluate", str(run.path), str(path), "--results", str(results)]) == 0
    assert "has not are left out: dog" in capsys.readouterr().err
    assert {row["category_id"] for row in json.loads(results.read_text())} <= {90, 5, 4}
    direct = told_by(capsys, run.path, path)
    assert told_by(capsys, run.path, path, "--from", results)["ap"] == pytest.approx(direct["ap"])
    (stats, _) = coco_ap(path, results)
    assert stats[0] == pytest.approx(direct["ap"])


def test_images_and_classes_may_have_names_only(run, tmp_path, monkeypatch, capsys):
    """14.20: they are numbered, since COCO's tools take nothing else."""
    labels = vitreous.labels.LabelMap(NAMES, NAMES)
    source = objects()
    source.labels = labels
    monkeypatch.setattr(evaluation, "_labelled", lambda *given: (source, True))
    path = tmp_path / "results.json"
    direct = told_by(capsys, run.path, "--results", path)
    rows = json.loads(path.read_text())
    assert {(row["image_id"], row["file_name"]) for row in rows} == {
        (i + 1, f"test/{i}<b>.png") for i in range(len(SIZES))
    }
    assert {row["category_id"] for row in rows} <= set(range(len(NAMES)))
    read = told_by(capsys, run.path, "--from", path)
    assert read["ar100"] == pytest.approx(direct["ar100"])
    assert (read["samples"], read["objects"]) == (direct["samples"], direct["objects"])


GOOD = {"image_id": 963, "category_id": 7, "bbox": [1, 2, 3, 4], "score": 0.5}
BAD = {
    "an unknown image": (
        [{**GOOD, "image_id": 5}],
        r"1 rows have an image_id that train of .* 5; it",
    ),
    "images as text": ([{**GOOD, "image_id": "963"}] * 3, r"3 rows .* write them without quotes"),
    "an unknown category": ([GOOD, {**GOOD, "category_id": 8}], r"category_id that .* 8; it has 3"),
    "a name for a category": ([{**GOOD, "category_id": "dog"}], r"category_id .*\"dog\"; it has 3"),
    "no score": ([GOOD, {k: v for k, v in GOOD.items() if k != "score"}], "row 1: has no score"),
    "nothing": ([{}], "row 0: has no image_id and no category_id and no bbox and no score"),
    "masks": ([{**GOOD, "bbox": None, "segmentation": {}}], "row 0: bbox is null"),
    "masks alone": (
        [{k: v for k, v in GOOD.items() if k != "bbox"} | {"segmentation": {}}],
        "has no bbox; masks are not boxes",
    ),
    "a short box": ([{**GOOD, "bbox": [1, 2, 3]}], "expected left, top, width, height"),
    "a box of text": ([{**GOOD, "bbox": ["1", 2, 3, 4]}], "expected left, top, width, height"),
    "a negative width": ([{**GOOD, "bbox": [5, 5, -3, 4]}], "width and height are 0 or more"),
    "no number": ([{**GOOD, "score": float("nan")}], "score is NaN: expected a number"),
    "endless": ([{**GOOD, "bbox": [0, 0, float("inf"), 1]}], "bbox is"),
    "true": ([{**GOOD, "image_id": True}], "image_id is true: expected a number or a name"),
    "a list": ([{**GOOD, "category_id": [7]}], r"category_id is \[7\]: expected a number"),
    "no rows": ([1], "row 0: is 1, where an object"),
    "the truth": ({"images": [], "annotations": []}, "this is the ground truth"),
    "something else": ("hello", "is not a COCO file of results"),
}


@pytest.mark.parametrize("what", BAD)
def test_files_that_are_no_results(what, run, coco, tmp_path, capsys):
    values, words = BAD[what]
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(values))
    assert main(["evaluate", str(run.path), str(coco), "--from", str(path)]) == 2
    error = capsys.readouterr().err
    assert re.search(words, error), error
    assert str(path) in error


def test_files_that_cannot_be_read_or_written(run, coco, photos, tmp_path, capsys):
    options = ["evaluate", str(run.path), str(coco)]
    path = tmp_path / "theirs.json"
    assert main([*options, f"--from={path}"]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    path.write_text("[{")
    assert main([*options, f"--from={path}"]) == 2
    assert "theirs.json: is not JSON" in capsys.readouterr().err
    path.write_bytes(b"\xff\xfe\x00")
    assert main([*options, f"--from={path}"]) == 2
    assert "is not text in UTF-8" in capsys.readouterr().err
    for place in (tmp_path, photos[0] / "results.json"):
        assert main([*options, f"--results={place}"]) == 2
        assert f"--results {place}: cannot be written" in capsys.readouterr().err
    path.write_text("[]")
    assert told_by(capsys, run.path, coco, "--from", path)["ap"] == 0
    assert main([*options, f"--from={path}", f"--results={path}"]) == 2
    assert "use one of them" in capsys.readouterr().err
    assert path.read_text() == "[]"
    assert main(["evaluate", str(run.path), str(coco), "--split=test"]) == 2
    assert "has no split 'test'; it has train" in capsys.readouterr().err


def test_results_are_for_detectors(tmp_path, capsys, monkeypatch):
    from explain.segment_runs import make_run as make_segmenter
    from explain.segment_runs import scenes

    other = make_segmenter(tmp_path / "segmenter", "linear, no token")
    monkeypatch.setattr(evaluation, "_labelled", lambda *given: (scenes(), True))
    for option in ("--results", "--from"):
        assert main(["evaluate", str(other.path), option, str(tmp_path / "a.json")]) == 2
        assert f"{tmp_path / 'a.json'}: COCO files of results" in capsys.readouterr().err


def test_what_is_not_a_number_is_not_written(run, coco, tmp_path, capsys, monkeypatch):
    infer = Detect.infer

    def broken(self, model, images, sizes):
        answers = infer(self, model, images, sizes)
        return [answer._replace(scores=answer.scores * float("nan")) for answer in answers]

    monkeypatch.setattr(Detect, "infer", broken)
    path = tmp_path / "results.json"
    assert main(["evaluate", str(run.path), str(coco), f"--results={path}"]) == 2
    assert "photo 0.png: the model's output is not finite" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---- evaluate


def test_evaluation_is_printed_and_drawn(run, coco, tmp_path, capsys):
    from vitreous.tasks.objects.metrics import NUMBERS

    folder = tmp_path / "figures"
    assert main(["evaluate", str(run.path), str(coco), f"--figures={folder}"]) == 0
    text = capsys.readouterr().out
    result = vitreous.load(run.path).evaluate(
        open_source(coco, truth="boxes", val_fraction=0), "train"
    )
    for name in NUMBERS:
        value = result[name]
        assert f"{name:<18} {'-' if value is None else f'{value:.4f}'}" in text
    assert result["ap_large"] is None
    lines = [line.split() for line in text.splitlines()]
    assert ["class", "ap", "ap50", "ap75", "ar100", "objects"] in lines
    assert ["fox", "-", "-", "-", "-", "0"] in lines
    assert sorted(p.name for p in folder.iterdir()) == ["classes.png", "precision.png"]


def test_curves_are_of_classes_or_of_their_mean():
    recall = [i / 100 for i in range(101)]
    few = {f"class {i}": [i / 10] * 101 for i in range(9)} | {"nowhere": None}
    drawn = charts.precision_recall({"recall": recall, "precision": few}).axes[0]
    assert [line.get_label() for line in drawn.lines] == [f"class {i} (0.{i}0)" for i in range(9)]
    many = {f"class {i}": [i / 20] * 101 for i in range(11)}
    (line,) = charts.precision_recall({"recall": recall, "precision": many}).axes[0].lines
    assert line.get_label() == "mean of 11 classes (0.25)"
    nothing = {"recall": recall, "precision": {"a": None}}
    assert not charts.precision_recall(nothing).axes[0].lines


def test_figures_of_classes_that_are_nowhere(tmp_path):
    curves = {"recall": [0.0, 1.0], "precision": {"a": None}}
    result = {"classes": {"a": {"ap": None}}, "curves": curves}
    drawn = SHOW.figures(result)
    assert list(drawn) == ["classes", "precision"]
    for name, figure in drawn.items():
        save(figure, tmp_path / f"{name}.png")


# ---- where a detector looks


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


def test_boxes_of_one_class_that_overlap_can_be_told_apart():
    """14.24: by tints of the class's colour; a box that is alone has the colour itself."""
    red, blue = RED, (67, 99, 216)
    boxes = [(0, 0, 10, 10), (5, 5, 15, 15), (8, 8, 20, 20), (30, 30, 40, 40)]
    marks = [Mark(box, "", red) for box in boxes] + [Mark(boxes[0], "", blue)]
    drawn = told_apart(marks)
    assert [mark.box for mark in drawn] == [mark.box for mark in marks]
    colours = [mark.colour for mark in drawn]
    assert len(set(colours[:3])) == 3
    assert (colours[0], colours[3], colours[4]) == (red, red, blue)
    assert all(0 <= part <= 255 for colour in colours for part in colour)


def test_maps_are_drawn_with_their_boxes(photos):
    found = predictor_of(threshold=0.3).explain(photos[0])
    axes = SHOW.map_figure(found).axes
    words = [f"{each.found.label} {each.found.score:.2f}" for each in found.looks]
    assert [each.get_title() for each in axes[: len(words) + 1]] == ["detections", *words]
    _, height, width = found.image.shape
    for place, each in zip(axes[1:], found.looks, strict=False):
        np.testing.assert_allclose(place.images[-1].get_array(), each.map)
        (scale,) = place.child_axes  # 14.24
        assert scale.get_xlabel() == "attention to a patch"
        left, top, right, bottom = each.found.box
        x, y = left * width / 60 - 0.5, top * height / 40 - 0.5
        drawn = place.patches[-1].get_bbox()
        assert (drawn.x0, drawn.y0) == pytest.approx((x, y))
        assert (drawn.x1, drawn.y1) == pytest.approx(
            (right * width / 60 - 0.5, bottom * height / 40 - 0.5)
        )
    rows = object_rows(found, "head", [each.heads[-1] for each in found.looks])
    place = rows.axes[3 * 1 + 2]  # of the second object the second head
    np.testing.assert_allclose(place.images[-1].get_array(), found.looks[1].heads[-1][1])


# ---- the walk and the pages


def test_the_walk_through_a_detector(photos):
    predictor = predictor_of()
    stops, result = walk_through(predictor, predictor.view(*predictor.read(photos[2])))
    height, width = predictor.prepare(*predictor.read(photos[2])).shape[1:]
    gh, gw = -(-height // 8), -(-width // 8)
    assert {stop.name: stop.shape for stop in stops} == {
        "image": (height, width, 3),
        "backbone": (gh, gw, 16),
        "projection": (gh, gw, 16),
        "tokens": (gh * gw, 16),
        "encoder.0": (gh * gw, 16),
        "queries": (5, 16),
        "decoder.0": (5, 16),
        "decoder.1": (5, 16),
        "norm": (5, 16),
        "class_head": (5, 5),
        "box_head": (5, 4),
    }
    # queries side by side: there are more of them than classes
    torch.testing.assert_close(stops[-2].pictures[0].sum(dim=1), torch.ones(1, 5))
    assert all(stop.words for stop in stops)
    assert [stop.words[:15] for stop in stops[-5:-3]] == ["Decoder layer 1", "Decoder layer 2"]
    np.testing.assert_allclose(result.boxes, predictor(photos[2]).boxes, rtol=1e-4, atol=1e-3)
    assert len(objects_table(result).rows) == len(result.objects)
    none = objects_table(result.above(1.0))
    assert len(none.rows) == 3
    assert none.headings[1] == "score, all below 100 %>"


def test_the_page_holds_the_queries(photos):
    found = predictor_of().explain(photos[0], layers=True)
    data = viewer_data(found)
    names = [f"{each.found.label} {each.found.score:.2f}" for each in found.looks]
    assert data["objects"]["names"] == names
    assert data["answer"].startswith("Found: ")
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
    assert SHOW.answer(nothing) == "No score reaches 1. The highest:"


def test_the_explain_command(run, photos, tmp_path, capsys):
    options = ["explain", str(run.path), str(photos[0]), str(photos[3])]
    assert main([*options, f"--out={tmp_path / 'out'}", "--pixel", "3", "10"]) == 0
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    files = ("objects.png", "layers.png", "heads.png", "pixel.png", "look.html", "walk.html")
    folders = ("001-photo-0", "002-photo-3")
    assert names == {"distances.png", "filters.png"} | {f"{a}/{b}" for a in folders for b in files}
    capsys.readouterr()
    assert main([*options, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["size"] for each in told] == [[40, 60], [20, 20]]
    assert all(each["looks"] for each in told)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("depth", [1, 0], ids=["encoder", "no encoder"])
def test_the_pages_in_a_browser(depth, photos, tmp_path):
    run = make_run(tmp_path / "run", encoder_depth=depth)
    assert main(["explain", str(run.path), str(photos[1]), f"--out={tmp_path}"]) == 0
    found = vitreous.load(run.path).explain(photos[1], layers=True)
    gh, gw = found.grid
    with browser((tmp_path / "photo-1" / "look.html").as_uri()) as page:
        wait_for(page, "looks most at")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
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
            said = wait_for(page, "The patch in row 3, column 2 attends most to")
            weights = found.layers[0].weights[0].mean(0)[2 * gw + 1]
            row, column = divmod(weights.argmax().item(), gw)
            assert f"row {row + 1}, column {column + 1}:" in said
            assert page.locator("#what").input_value() == "attention"
            page.locator("#head").select_option("1")
            page.locator("#what").select_option("object 0")  # which has more layers
            wait_for(page, "looks most at")
            last = len(found.looks[0].layers) - 1
            assert last > len(found.layers) - 1
            assert page.locator("#layer").input_value() == str(last)
    with browser((tmp_path / "photo-1" / "walk.html").as_uri()) as page:
        text = page.inner_text("main")
        assert "box_head 5 × 4" in text
        assert "query" in text
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_the_page_begins_with_a_chosen_pixel(run, photos, tmp_path):
    options = ["explain", str(run.path), str(photos[0]), f"--out={tmp_path}"]
    assert main([*options, "--pixel", "39", "59"]) == 0
    with browser((tmp_path / "photo-0" / "look.html").as_uri()) as page:
        gh, gw = vitreous.load(run.path).explain(photos[0]).grid
        assert wait_for(page, "attends").startswith(f"The patch in row {gh}, column {gw} attends")


# ---- the report


def test_the_report_has_what_it_promises(tmp_path):
    run = make_run(tmp_path / "run")
    page, split, result = write_report(run, objects(), "test")
    text = page.read_text()
    assert split == "test"
    assert "best at epoch 1 of 2" in text
    for key in ("ap", "ap50", "ap75"):
        assert f"<b>{100 * result[key]:.1f} %</b>" in text
    assert f" of {result['objects']} objects" in text
    # loss, its terms, those of earlier layers, AP, learning rate; precision; inside: four images,
    # distances, filters
    assert text.count("<svg") == 5 + 1 + 6
    for words in ("Classes, the hardest first", "Precision and recall", "Worst images"):
        assert f"<h2>{words}</h2>" in text
    assert text.count('alt="ground truth"') == text.count('alt="prediction"') > 2
    assert "test/1&lt;b&gt;.png" in text
    assert not re.search(r"""(src|href)=["']http""", text), "nothing is fetched from elsewhere"
    rows = re.findall(r"<tr><td><i [^>]*></i>(\w+)</td>(.*?)</tr>", text, re.DOTALL)
    aps = {name: result["classes"][name]["ap"] for name in NAMES}
    assert aps["fox"] is None
    hardest = sorted(NAMES, key=lambda name: 2 if aps[name] is None else aps[name])
    assert [name for name, _ in rows] == hardest
    assert dict(rows)["fox"].count("–") == 4
    scores = [float(each) for each in re.findall(r"<b>F1 ([\d.]+)</b>", text)]
    assert scores == sorted(scores)


def test_the_terms_of_a_loss_have_charts():
    logged = [{"loss_class": 1, "loss_aux_class": 1}, {"loss_box": 1, "loss": 3, "lr": 1}]
    assert loss_terms(logged) == {
        "loss, by term": {"loss_class": "class", "loss_box": "box"},
        "loss of earlier layers": {"loss_aux_class": "class"},
    }
    assert loss_terms([{"loss": 1}]) == {}
    many = loss_terms([{f"loss_{i}": 1 for i in range(4)}])
    assert [len(keys) for keys in many.values()] == [3, 1]


def judged(said, truth):
    """said: (box, class); truth: (box, class, crowd)"""
    return judge(
        torch.tensor([box for box, _ in said]).reshape(-1, 4).float(),
        torch.tensor([label for _, label in said], dtype=torch.int64),
        torch.tensor([box for box, _, _ in truth]).reshape(-1, 4).float(),
        torch.tensor([label for _, label, _ in truth], dtype=torch.int64),
        torch.tensor([crowd for _, _, crowd in truth], dtype=torch.bool),
    )


def test_what_counts_as_found():
    a, b, c = (0, 0, 10, 10), (20, 0, 30, 10), (0, 0, 10, 6)
    whole = judged([(a, 0), (b, 1)], [(b, 1, False), (a, 0, False)])
    assert (whole.missed, whole.false, whole.f1) == (0, 0, 1)
    twice = judged([(c, 0), (a, 0)], [(a, 0, False)])
    assert twice.right.tolist() == [
        True,
        False,
    ]  # the most confident has it, though the other fits better
    assert (twice.missed, twice.false, twice.f1) == (0, 1, pytest.approx(2 / 3))
    other = judged([(a, 1)], [(a, 0, False), (b, 0, False)])
    assert (other.missed, other.false, other.f1) == (2, 1, 0)
    crowd = judged([(c, 0), (a, 0), (b, 0)], [(a, 0, True)])
    assert crowd.counted.tolist() == [False, False, True]
    assert (crowd.objects, crowd.missed, crowd.false, crowd.f1) == (0, 0, 1, 0)
    assert judged([], []).f1 is None
    assert judged([(a, 0)], [(a, 0, True)]).f1 is None
    assert judged([], [(a, 0, False)]).f1 == 0
    assert judged([(a, 0)], []).f1 == 0


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_the_report_in_a_browser(tmp_path):
    page, _, _ = write_report(make_run(tmp_path / "run"), objects(), "test")
    with browser(page.as_uri()) as opened:
        assert opened.evaluate("document.documentElement.scrollWidth") <= 390
        broken = "[...document.images].filter(i => !i.naturalWidth).length"
        assert opened.evaluate(broken) == 0


def test_detections_are_what_is_explained(photos):
    assert isinstance(predictor_of().explain(photos[0]).result, Detection)


def test_pictures_longer_than_webp_can_be():
    for width, kind in ((20_000, "png"), (200, "webp"), (20, "png")):
        assert data_url(Image.new("RGB", (width, 3))).startswith(f"data:image/{kind}")


@pytest.mark.parametrize("threshold", [float("nan"), 2, -1, "x", None])
def test_a_threshold_is_from_0_to_1(photos, threshold):
    with pytest.raises(ConfigError, match="expected a number from 0 to 1"):
        predictor_of()(photos[0]).above(threshold)


def test_the_walk_says_whether_the_map_knows_places(photos):
    for placed, words in ((True, "is added to it"), (False, "is not in it")):
        predictor = predictor_of(placed=placed)
        stops, _ = walk_through(predictor, predictor.view(*predictor.read(photos[0])))
        (tokens,) = [stop for stop in stops if stop.name == "tokens"]
        assert words in tokens.words
