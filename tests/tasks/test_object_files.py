"""What `predict` and `evaluate` print and write for a detector, and COCO's files of results."""

import json
import re

import pytest
from PIL import Image
from tasks import segment_runs
from tasks.detect_runs import LABELS, NAMES, SIZES, objects

import vitreous
from vitreous.api import evaluation
from vitreous.errors import ConfigError
from vitreous.pages.prediction_files import file_names
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.objects.draw import enlargement
from vitreous.tasks.objects.metrics import NUMBERS
from vitreous.tasks.objects.show import file_ids

# ---- predict


def test_predict_writes_boxes_and_results(detector, photos, tmp_path, printed):
    out = tmp_path / "out"
    options = ("--threshold=0.4", f"--out={out}", "--json")
    lines = printed("predict", detector.path, photos[0].parent, *options).splitlines()
    told = [json.loads(line) for line in lines]
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
    printed("predict", detector.path, *photos[:1] * 2, f"--out={out}")
    assert len(json.loads((out / "results.json").read_text())) == 5  # of one image, named twice


def test_predict_prints_the_most_confident(detector, photos, printed):
    text = printed("predict", detector.path, *photos, "--top=2", "--threshold=0.6")
    head, *rows = text.splitlines()
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


def test_thresholds_are_for_detectors(detector, photos, tmp_path, refused):
    other = segment_runs.make_run(tmp_path / "segmenter", "linear, no token")
    assert "--threshold 0.5" in refused("predict", other.path, photos[0], "--threshold=0.5")
    for senseless in ("1.5", "-0.1", "nan"):
        words = ("predict", detector.path, photos[0], "--threshold", senseless)
        assert "from 0 to 1" in refused(*words)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (
            {"a/x.png": "x", "b/x.png": "b-x", "b/X.jpg": "b-X-2", "c d/y?.png": "y"}
            | {"/z.png": "z", "b-x.tif": "b-x-3"},
            (),
        ),
        ({"a/x.png": "x", "results.png": "results-2", "c/Results.jpg": "c-Results"}, ("results",)),
    ],
)
def test_no_two_images_have_files_of_the_same_name(names, taken):
    assert file_names([*names, "a/x.png"], taken=taken) == names


def test_what_results_call_an_image():
    names = {"a/x.png": "a/x.png", "b/x.png": "b/x.png", "c/Results.jpg": "Results.jpg"}
    assert file_ids([*names]) == names


def test_an_image_that_is_called_results(detector, photos, tmp_path, printed):
    path = tmp_path / "results.png"
    path.write_bytes(photos[0].read_bytes())
    printed("predict", detector.path, path, f"--out={tmp_path / 'out'}")
    written = {p.name for p in (tmp_path / "out").iterdir()}
    name = f"{tmp_path.name}-results"
    assert written == {f"{name}-boxes.jpg", f"{name}.json", "results.json"}
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 5


def test_what_cannot_be_written(detector, photos, tmp_path, refused):
    lost = tmp_path / "a-boxes.png"
    for path in (tmp_path / "a.png", lost):
        path.write_bytes(photos[0].read_bytes())
    told = refused("predict", detector.path, tmp_path, f"--out={tmp_path}")
    assert "a-boxes.png would be written over" in told
    told = refused("predict", detector.path, photos[0], f"--out={lost}")
    assert f"--out {lost}: cannot be written" in told
    bad, out = tmp_path / "bad.png", tmp_path / "out"
    bad.write_bytes(b"no image")
    told = refused("predict", detector.path, bad, photos[0], f"--out={out}")
    assert "1 of 2 images could not be used" in told
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


@pytest.fixture
def evaluated(printed):
    return lambda *words: json.loads(printed("evaluate", *words, "--json"))


def test_results_written_and_read_give_the_same_numbers(detector, coco, tmp_path, evaluated):
    path = tmp_path / "new" / "results.json"
    direct = evaluated(detector.path, coco)
    assert evaluated(detector.path, coco, "--results", path) == direct
    assert 0.2 < direct["ap"] < 0.9
    rows = json.loads(path.read_text())
    assert len(rows) == 5 * len(SIZES)
    assert {row["image_id"] for row in rows} == {1000 - 37 * i for i in range(len(SIZES))}
    assert {row["category_id"] for row in rows} <= set(LABELS.external)
    read = evaluated(detector.path, coco, "--from", path)
    ours = {key: direct[key] for key in NUMBERS if direct[key] is not None}
    assert 5 < len(ours) < 12
    assert {key: read[key] for key in ours} == pytest.approx(ours, rel=1e-6)
    assert all(read[key] is None for key in NUMBERS if key not in ours)
    assert list(read["classes"]) == list(direct["classes"])
    for stats in coco_ap(coco, path):
        theirs = dict(zip(NUMBERS, stats, strict=True))
        assert ours == pytest.approx({key: theirs[key] for key in ours}, rel=1e-6)


def test_results_of_predict_can_be_measured(detector, coco, tmp_path, printed, evaluated):
    """They know images by the names of their files."""
    printed("predict", detector.path, coco.parent.parent / "val", f"--out={tmp_path}")
    read = evaluated(detector.path, coco, "--from", tmp_path / "results.json")
    assert read["ap"] == pytest.approx(evaluated(detector.path, coco)["ap"], rel=1e-6)


def test_ids_are_the_data_s_own(detector, coco, tmp_path, command, evaluated):
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
    told = command("evaluate", detector.path, path, "--results", results).err
    assert "has not are left out: dog" in told
    assert {row["category_id"] for row in json.loads(results.read_text())} <= {90, 5, 4}
    direct = evaluated(detector.path, path)
    read = evaluated(detector.path, path, "--from", results)
    assert read["ap"] == pytest.approx(direct["ap"])
    (stats, _) = coco_ap(path, results)
    assert stats[0] == pytest.approx(direct["ap"])


def test_images_and_classes_may_have_names_only(detector, tmp_path, monkeypatch, evaluated):
    """They are numbered, since COCO's tools take nothing else."""
    source = objects()
    source.labels = vitreous.labels.LabelMap(NAMES, NAMES)
    monkeypatch.setattr(evaluation, "labelled_source", lambda *given, **options: (source, True))
    path = tmp_path / "results.json"
    direct = evaluated(detector.path, "--results", path)
    rows = json.loads(path.read_text())
    assert {(row["image_id"], row["file_name"]) for row in rows} == {
        (i + 1, f"test/{i}<b>.png") for i in range(len(SIZES))
    }
    assert {row["category_id"] for row in rows} <= set(range(len(NAMES)))
    read = evaluated(detector.path, "--from", path)
    assert read["ar100"] == pytest.approx(direct["ar100"])
    assert (read["samples"], read["objects"]) == (direct["samples"], direct["objects"])


GOOD = {"image_id": 963, "category_id": 7, "bbox": [1, 2, 3, 4], "score": 0.5}
BAD = {
    "an unknown image": ([{**GOOD, "image_id": 5}], r"1 rows have an image_id that .* 5; it"),
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
def test_files_that_are_no_results(what, detector, coco, tmp_path, refused):
    values, words = BAD[what]
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(values))
    error = refused("evaluate", detector.path, coco, "--from", path)
    assert re.search(words, error), error
    assert str(path) in error


def test_files_that_cannot_be_read_or_written(detector, coco, photos, tmp_path, refused, evaluated):
    options, path = ("evaluate", detector.path, coco), tmp_path / "theirs.json"
    assert "cannot be read: No such file" in refused(*options, f"--from={path}")
    for content, says in ((b"[{", "is not JSON"), (b"\xff\xfe\x00", "is not text in UTF-8")):
        path.write_bytes(content)
        assert f"theirs.json: {says}" in refused(*options, f"--from={path}")
    for place in (tmp_path, photos[0] / "results.json"):
        told = refused(*options, f"--results={place}")
        assert f"--results {place}: cannot be written" in told
    path.write_text("[]")
    assert evaluated(detector.path, coco, "--from", path)["ap"] == 0
    assert "use one of them" in refused(*options, f"--from={path}", f"--results={path}")
    assert path.read_text() == "[]"
    assert "has no split 'test'; it has train" in refused(*options, "--split=test")


def test_results_are_for_detectors(tmp_path, refused, monkeypatch):
    other = segment_runs.make_run(tmp_path / "segmenter", "linear, no token")
    monkeypatch.setattr(
        evaluation, "labelled_source", lambda *given, **options: (segment_runs.scenes(), True)
    )
    for option in ("--results", "--from"):
        told = refused("evaluate", other.path, option, tmp_path / "a.json")
        assert f"{tmp_path / 'a.json'}: COCO files of results" in told


def test_what_is_not_a_number_is_not_written(detector, coco, tmp_path, refused, monkeypatch):
    infer = Detect.infer

    def broken(self, model, images, sizes):
        answers = infer(self, model, images, sizes)
        return [answer._replace(scores=answer.scores * float("nan")) for answer in answers]

    monkeypatch.setattr(Detect, "infer", broken)
    told = refused("evaluate", detector.path, coco, f"--results={tmp_path / 'results.json'}")
    assert "photo 0.png: the model's output is not finite" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threshold", [float("nan"), 2, -1, "x", None])
def test_a_threshold_is_from_0_to_1(detector, photos, threshold):
    with pytest.raises(ConfigError, match="expected a number from 0 to 1"):
        vitreous.load(detector.path)(photos[0]).above(threshold)
