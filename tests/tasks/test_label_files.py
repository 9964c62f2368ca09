"""What `predict` writes of detections, for other tools and as labels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from tasks.detect_runs import LABELS, write_coco

import vitreous
from vitreous.data.formats import open_source
from vitreous.labels import LabelMap
from vitreous.tasks import task_class
from vitreous.tasks.objects.boxes import clipped, normalised

THRESHOLD = 0.4


@pytest.fixture
def predict(command, detector):
    """What is said on stderr."""

    def run(*words, code=0):
        threshold = f"--threshold={THRESHOLD}"
        return command("predict", detector.path, *words, threshold, code=code).err

    return run


@pytest.fixture(scope="module")
def model(detector):
    return vitreous.load(detector.path)


def test_boxes_end_where_the_image_ends(model, photos):
    boxes = torch.tensor([[0.5, 0.5, 3.0, 0.2], [0.1, 0.9, 0.1, 0.4], [0.5, 0.5, 0.2, 0.2]])
    cut = clipped(boxes, (20, 40))
    assert cut[0].tolist() == pytest.approx([0, 8, 40, 12])
    assert cut[1].tolist() == pytest.approx([2, 14, 6, 20])
    assert torch.allclose(normalised(cut[2], (20, 40)), boxes[2])
    for result in model(photos):
        height, width = result.size
        assert result.boxes.min() >= 0
        assert (result.boxes <= (width, height, width, height)).all()


@pytest.mark.parametrize("format", ["yolo", "coco"])
def test_labels_are_read_back_as_they_were_found(predict, model, photos, tmp_path, format):
    out = tmp_path / "labelled"
    predict(*photos, photos[0], "--out", out, "--save-labels", format)
    source = open_source(out, truth="boxes", val_fraction=0)
    assert source.kind == format
    samples = {s.id.rpartition("/")[2]: s for part in source.splits.values() for s in part}
    assert len(samples) == len(photos)
    results = [result.above(THRESHOLD) for result in model(photos)]
    assert sum(len(result.objects) for result in results) > 5
    for path, result in zip(photos, results, strict=True):
        sample = samples[path.name.replace(" ", "-")]
        assert torch.equal(source.image(sample), model.read(path)[0])
        truth = source.truth(sample)
        names = [source.labels.names[label] for label in truth["labels"]]
        assert names == [found.label for found in result.objects]
        expected = np.array([found.box for found in result.objects]).reshape(-1, 4)
        np.testing.assert_allclose(truth["boxes"].numpy(), expected, atol=1e-3)
    assert not [problem for problem in source.problems if problem.fatal]
    told = predict(*photos, "--out", out, "--save-labels", format, code=2)
    assert "already exists" in told


def resolved_by_ultralytics(yaml_file, cwd):
    """By the rules of its documentation: train and val are needed, a path that is not absolute is
    below a folder of its own, and lists have paths that begin with "./", for their own folder."""
    data = yaml.safe_load(yaml_file.read_text())
    root = Path(data.get("path", yaml_file.parent))
    root = root if root.is_absolute() else cwd / "datasets" / root
    images = {}
    for split in ("train", "val"):
        file = root / data[split]
        lines = file.read_text().splitlines()
        images[split] = [Path(line.replace("./", f"{file.parent}/", 1)) for line in lines]
    return images, data["names"]


def test_yolo_labels_are_where_ultralytics_looks(predict, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    predict(*photos, "--out", "labelled", "--save-labels", "yolo")
    images, names = resolved_by_ultralytics(Path("labelled", "data.yaml"), tmp_path)
    assert names == dict(enumerate(LABELS.names))
    assert not {*images["train"]} & {*images["val"]}
    for image in (*images["train"], *images["val"]):
        assert image.is_file()
        assert Path(str(image).replace("/images/", "/labels/")).with_suffix(".txt").is_file()
    assert len(images["train"]) + len(images["val"]) == len(photos)
    # a folder that was moved is still read by us, and of a copy it is said what is read
    shutil.copytree("labelled", "copied")
    assert any("if this is a copy, change path" in note for note in open_source("copied").notes)
    shutil.move("labelled", "moved")
    moved = open_source("moved")
    assert {s.id for part in moved.splits.values() for s in part} == {
        f"images/{image.name}" for part in images.values() for image in part
    }


def test_an_image_that_exif_rotates_is_saved_upright(predict, model, photos, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    turned, out = tmp_path / "turned.jpg", tmp_path / "out"
    with Image.open(photos[1]) as image:
        image.save(turned, exif=exif, quality=100)
    predict(turned, "--out", out, "--save-labels", "yolo")
    source = open_source(out, val_fraction=0)
    (sample,) = source.splits["train"]
    assert source.problems[0].leak  # a single image is train and val
    assert source.image(sample).shape == model.read(turned)[0].shape
    source.truth(sample)


def test_results_have_the_ids_of_the_data(predict, detector, model, tmp_path):
    """COCO's own tool reads them."""
    from faster_coco_eval import COCO

    file = write_coco(tmp_path / "data", detector)
    images, out = tmp_path / "data" / "val", tmp_path / "out"
    predict(images, "--out", out, "--data", file)
    truth = COCO(str(file))
    found = truth.loadRes(str(out / "results.json"))
    assert set(found.getImgIds()) == set(truth.getImgIds())
    rows = json.loads((out / "results.json").read_text())
    ids = {image["id"]: image["file_name"] for image in truth.dataset["images"]}
    for result in model(sorted(images.iterdir())):
        name = result.image.rpartition("/")[2]
        mine = [row for row in rows if ids[row["image_id"]] == name]
        assert len(mine) == len(result.boxes)
    told = predict(images, "--out", tmp_path / "l", "--data", file, "--save-labels=coco")
    written = json.loads((tmp_path / "l" / "annotations" / "instances_train.json").read_text())
    assert {image["id"] for image in written["images"]} == ids.keys()
    assert [kind["id"] for kind in written["categories"]] == list(LABELS.external)
    assert "left out" not in told
    values = json.loads(file.read_text())
    values["categories"] = [kind for kind in values["categories"] if kind["name"] != "dog"]
    file.write_text(json.dumps(values | {"annotations": []}))
    assert "are left out: dog" in predict(images, "--out", out, "--data", file)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--save-labels=yolo"], "--save-labels is about what is written: give --out FOLDER"),
        (["--data=x.json"], "--data is about what is written: give --out FOLDER"),
        (["--save-labels=xml", "--out=o"], "xml: for the task detect use one of yolo, coco"),
        (["--data={data}", "--out=o"], "no image called"),
        (["--data={data}", "--out=o", "--save-labels=yolo"], "yolo files have no ids"),
    ],
)
def test_what_cannot_be_written_is_refused_first(
    predict, photos, tmp_path, options, words, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    data = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": []}
    data |= {"categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "data.json").write_text(json.dumps(data))
    filled = [each.format(data=tmp_path / "data.json") for each in options]
    assert words in predict(photos[0], *filled, code=2)
    assert not (tmp_path / "o").exists()


def test_ids_in_json_are_numbers(model, photos):
    """JSON's `id` has one type, whatever the data has."""
    for external, numbers in (
        (("cat", "dog", "owl"), (0, 1, 2)),
        ((7, 3, 12), (7, 3, 12)),
        (("background", 1, 2), (0, 1, 2)),
        (("#ff0000", "#00ff00", 0), (1, 2, 0)),
    ):
        labels = LabelMap(("a", "b", "c"), external)
        assert labels.numbers == numbers
        classify, tag = (task_class(name)(labels) for name in ("classify", "tag"))
        output = torch.tensor([[1.0, 5.0, 0.0]])
        assert classify.decode(output, [""])[0].to_dict()["id"] == numbers[1]
        assert tag.decode(output, [""])[0].to_dict()["top"][0]["id"] == numbers[1]
        mask = vitreous.results.Segmentation(
            np.array([[1]], np.int16), np.ones((1, 1), np.float16), labels.names, external
        )
        assert mask.to_dict()["classes"][0]["id"] == numbers[1]
    objects = model(photos[0]).above(0).to_dict()["objects"]
    assert {type(each["id"]) for each in objects} == {int}
