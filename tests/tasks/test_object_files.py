"""What `predict` and `evaluate` print and write for a detector, and COCO's files of results."""

import json
import re

import pytest
from PIL import Image
from tasks import segment_runs
from tasks.detect_runs import (
    LABELS,
    NAMES,
    SIZES,
    objects,
)

import vitreous
from vitreous.api import evaluation
from vitreous.cli.main import main
from vitreous.errors import ConfigError
from vitreous.pages.prediction_files import file_names
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.objects.draw import enlargement
from vitreous.tasks.objects.metrics import NUMBERS
from vitreous.tasks.objects.show import file_ids

# ---- predict


def test_predict_writes_boxes_and_results(detector, photos, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["predict", str(detector.path), str(photos[0].parent), "--threshold", "0.4"]
    assert main([*options, f"--out={out}", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    results = vitreous.load(detector.path)(photos)
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
    assert main(["predict", str(detector.path), *[str(photos[0])] * 2, f"--out={out}"]) == 0
    assert len(json.loads((out / "results.json").read_text())) == 5  # of one image, named twice


def test_predict_prints_the_most_confident(detector, photos, capsys):
    options = ["predict", str(detector.path), *map(str, photos), "--top", "2"]
    assert main([*options, "--threshold=0.6"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["image", "size", "objects", "detections"]
    for row, result in zip(rows, vitreous.load(detector.path)(photos), strict=True):
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


def test_thresholds_are_for_detectors(detector, photos, tmp_path, capsys):
    other = segment_runs.make_run(tmp_path / "segmenter", "linear, no token")
    assert main(["predict", str(other.path), str(photos[0]), "--threshold=0.5"]) == 2
    assert "--threshold 0.5" in capsys.readouterr().err
    for senseless in ("1.5", "-0.1", "nan"):
        assert main(["predict", str(detector.path), str(photos[0]), "--threshold", senseless]) == 2
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


def test_an_image_that_is_called_results(detector, photos, tmp_path):
    path = tmp_path / "results.png"
    path.write_bytes(photos[0].read_bytes())
    assert main(["predict", str(detector.path), str(path), f"--out={tmp_path / 'out'}"]) == 0
    written = {p.name for p in (tmp_path / "out").iterdir()}
    name = f"{tmp_path.name}-results"
    assert written == {f"{name}-boxes.jpg", f"{name}.json", "results.json"}
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 5


def test_what_cannot_be_written(detector, photos, tmp_path, capsys):
    lost = tmp_path / "a-boxes.png"
    for path in (tmp_path / "a.png", lost):
        path.write_bytes(photos[0].read_bytes())
    assert main(["predict", str(detector.path), str(tmp_path), f"--out={tmp_path}"]) == 2
    assert "a-boxes.png would be written over" in capsys.readouterr().err
    assert main(["predict", str(detector.path), str(photos[0]), f"--out={lost}"]) == 2
    assert f"--out {lost}: cannot be written" in capsys.readouterr().err
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    out = tmp_path / "out"
    assert main(["predict", str(detector.path), str(bad), str(photos[0]), f"--out={out}"]) == 2
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


def test_results_written_and_read_give_the_same_numbers(detector, coco, tmp_path, capsys):
    path = tmp_path / "new" / "results.json"
    direct = told_by(capsys, detector.path, coco)
    writing = told_by(capsys, detector.path, coco, "--results", path)
    assert writing == direct
    assert 0.2 < direct["ap"] < 0.9
    rows = json.loads(path.read_text())
    assert len(rows) == 5 * len(SIZES)
    assert {row["image_id"] for row in rows} == {1000 - 37 * i for i in range(len(SIZES))}
    assert {row["category_id"] for row in rows} <= set(LABELS.external)
    read = told_by(capsys, detector.path, coco, "--from", path)
    ours = {key: direct[key] for key in NUMBERS if direct[key] is not None}
    assert 5 < len(ours) < 12
    assert {key: read[key] for key in ours} == pytest.approx(ours, rel=1e-6)
    assert all(read[key] is None for key in NUMBERS if key not in ours)
    assert list(read["classes"]) == list(direct["classes"])
    for stats in coco_ap(coco, path):
        theirs = dict(zip(NUMBERS, stats, strict=True))
        assert ours == pytest.approx({key: theirs[key] for key in ours}, rel=1e-6)


def test_results_of_predict_can_be_measured(detector, coco, tmp_path, capsys):
    """They know images by the names of their files."""
    images = coco.parent.parent / "val"
    assert main(["predict", str(detector.path), str(images), f"--out={tmp_path}"]) == 0
    read = told_by(capsys, detector.path, coco, "--from", tmp_path / "results.json")
    assert read["ap"] == pytest.approx(told_by(capsys, detector.path, coco)["ap"], rel=1e-6)


def test_ids_are_the_data_s_own(detector, coco, tmp_path, capsys):
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
    assert main(["evaluate", str(detector.path), str(path), "--results", str(results)]) == 0
    assert "has not are left out: dog" in capsys.readouterr().err
    assert {row["category_id"] for row in json.loads(results.read_text())} <= {90, 5, 4}
    direct = told_by(capsys, detector.path, path)
    assert told_by(capsys, detector.path, path, "--from", results)["ap"] == pytest.approx(
        direct["ap"]
    )
    (stats, _) = coco_ap(path, results)
    assert stats[0] == pytest.approx(direct["ap"])


def test_images_and_classes_may_have_names_only(detector, tmp_path, monkeypatch, capsys):
    """They are numbered, since COCO's tools take nothing else."""
    labels = vitreous.labels.LabelMap(NAMES, NAMES)
    source = objects()
    source.labels = labels
    monkeypatch.setattr(evaluation, "labelled_source", lambda *given: (source, True))
    path = tmp_path / "results.json"
    direct = told_by(capsys, detector.path, "--results", path)
    rows = json.loads(path.read_text())
    assert {(row["image_id"], row["file_name"]) for row in rows} == {
        (i + 1, f"test/{i}<b>.png") for i in range(len(SIZES))
    }
    assert {row["category_id"] for row in rows} <= set(range(len(NAMES)))
    read = told_by(capsys, detector.path, "--from", path)
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
def test_files_that_are_no_results(what, detector, coco, tmp_path, capsys):
    values, words = BAD[what]
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(values))
    assert main(["evaluate", str(detector.path), str(coco), "--from", str(path)]) == 2
    error = capsys.readouterr().err
    assert re.search(words, error), error
    assert str(path) in error


def test_files_that_cannot_be_read_or_written(detector, coco, photos, tmp_path, capsys):
    options = ["evaluate", str(detector.path), str(coco)]
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
    assert told_by(capsys, detector.path, coco, "--from", path)["ap"] == 0
    assert main([*options, f"--from={path}", f"--results={path}"]) == 2
    assert "use one of them" in capsys.readouterr().err
    assert path.read_text() == "[]"
    assert main(["evaluate", str(detector.path), str(coco), "--split=test"]) == 2
    assert "has no split 'test'; it has train" in capsys.readouterr().err


def test_results_are_for_detectors(tmp_path, capsys, monkeypatch):
    other = segment_runs.make_run(tmp_path / "segmenter", "linear, no token")
    monkeypatch.setattr(evaluation, "labelled_source", lambda *given: (segment_runs.scenes(), True))
    for option in ("--results", "--from"):
        assert main(["evaluate", str(other.path), option, str(tmp_path / "a.json")]) == 2
        assert f"{tmp_path / 'a.json'}: COCO files of results" in capsys.readouterr().err


def test_what_is_not_a_number_is_not_written(detector, coco, tmp_path, capsys, monkeypatch):
    infer = Detect.infer

    def broken(self, model, images, sizes):
        answers = infer(self, model, images, sizes)
        return [answer._replace(scores=answer.scores * float("nan")) for answer in answers]

    monkeypatch.setattr(Detect, "infer", broken)
    path = tmp_path / "results.json"
    assert main(["evaluate", str(detector.path), str(coco), f"--results={path}"]) == 2
    assert "photo 0.png: the model's output is not finite" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threshold", [float("nan"), 2, -1, "x", None])
def test_a_threshold_is_from_0_to_1(detector, photos, threshold):
    with pytest.raises(ConfigError, match="expected a number from 0 to 1"):
        vitreous.load(detector.path)(photos[0]).above(threshold)
