"""Pre-training by LeJEPA and by feature distillation, and what is made of the runs."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from train.tiny import (
    class_folder,
    evaluations,
    quick,
    set_recipe,
    teacher,
    train,
    trained,
    vitreous_command,
)
from train.undrawn import undrawn

import vitreous
from vitreous.data.augment import Augment
from vitreous.data.formats import open_source
from vitreous.data.loader import Batch, Draw, TrainSet
from vitreous.data.preprocess import Preprocess
from vitreous.data.truth import NoTruth
from vitreous.errors import VitreousError
from vitreous.predict import Predictor
from vitreous.run_folder import Run
from vitreous.tasks.lejepa.task import TASK
from vitreous.tasks.pretrain.show import NeighbourReport

METHODS = ("lejepa", "distil")


@pytest.fixture(scope="module", params=METHODS)
def run(request):
    return trained(request.param, "--epochs=3", "--lr=0.01", drawn=True)


def test_it_learns_and_is_judged(run):
    first, *_, last = evaluations(run)
    assert last["loss"] < first["loss"]
    assert last["train_loss"] < first["train_loss"]
    assert {"knn_accuracy", "knn_pixels", "effective_rank", "linear_accuracy"} <= last.keys()
    if run.name.startswith("lejepa"):
        parts = last["loss_invariance"] + last["loss_sigreg"]
        assert last["train_loss"] == pytest.approx(parts, rel=1e-5)


def test_the_report_shows_neighbours(run):
    page = (run / "report.html").read_text()
    assert "<h2>Nearest neighbours</h2>" in page
    assert page.count('alt="neighbour"') == 5 * page.count('alt="image"') > 0
    assert "<h2>Reconstructions</h2>" not in page


@pytest.mark.parametrize("sizes", [[3, 5, 1, 4, 9], [22], [1] * 22, [7, 15]])
def test_images_of_the_report_are_evenly_picked(sizes, monkeypatch):
    monkeypatch.setattr("vitreous.tasks.pretrain.show.MOST", 8)
    model = vitreous.create("vit", patch=4, dim=8, depth=1, heads=2, image_size=8, head="none")
    found = NeighbourReport(Predictor(model, Preprocess(image_size=8), TASK()))
    ids = iter(map(str, range(sum(sizes))))
    for size in sizes:
        names = [next(ids) for _ in range(size)]
        found.see(Batch(torch.rand(size, 3, 8, 8), [0] * size, names, [(8, 8)] * size), None, None)
    assert [each[0] for each in found.seen] == ["0", "4", "8", "12", "16", "20"]


def test_the_run_is_used_by_every_command(run, tmp_path):
    image = class_folder() / "test" / "corner0" / "0.png"
    said = vitreous_command("predict", run, image).stdout
    assert "norm" in said
    result = vitreous.evaluate(run)
    assert result["loss"] == pytest.approx(min(m["loss"] for m in evaluations(run)), rel=0.3)
    predictor = vitreous.load(run)
    assert predictor.embed([image]).shape == (1, 16)
    assert predictor.explain(image).rollout.shape == (4, 4)
    assert "knn" in vitreous_command("embed", run, class_folder(), "--knn", "--json").stdout
    options = [f"--weights={run}", "--freeze=!head.*", "--epochs=1", f"--out={tmp_path}/ft"]
    quick("train", class_folder(), *options)
    tuned, before = Run(tmp_path / "ft"), Run(run)
    assert (tuned.read_config().family, len(tuned.read_config().labels)) == ("vit", 4)
    name = "blocks.0.mlp.fc1.weight"
    assert torch.equal(tuned.read_weights()[name], before.read_weights()[f"encoder.{name}"])
    file = [f"--weights={run / 'model.safetensors'}", *set_recipe("mean=[0.5]", "std=[0.5]")]
    quick("train", class_folder(), *file, "--epochs=1", f"--out={tmp_path}/file")
    assert Run(tmp_path / "file").read_config().family == "vit"


def test_a_dry_run_shows_the_views(tmp_path):
    done = train(tmp_path / "run", "--dry-run", task="lejepa", drawn=True)
    assert "batch" in done.stdout
    assert not (tmp_path / "run" / "config.json").exists()


def test_views_are_a_function_of_the_draw():
    source = open_source(class_folder(), truth="none")
    augment = Augment(crop="resized", scale=0.2, jitter=0.4)
    preprocess = Preprocess(image_size=8, channels=1)
    one = TrainSet(source, source.splits["train"], preprocess, augment, NoTruth(), seed=1)
    three = replace(one, views=3)
    draw = Draw(0, 5, 7)
    views = three[draw][0]
    assert views.shape == (3, 1, 8, 8)
    assert torch.equal(views, three[draw][0])
    assert torch.equal(views[0], one[draw][0])
    assert not any(torch.equal(views[i], views[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert not torch.equal(views, three[draw._replace(epoch=1)][0])


def test_a_student_becomes_like_its_teacher(tmp_path):
    """At the same size: enlarged images would look smoother to it than to itself alone."""
    more = ["--epochs=6", "--lr=0.01", "--crop=none", "--image-size=8", "--set=encoder.dropout=0"]
    train(tmp_path / "student", *more, task="distil")
    run = Run(tmp_path / "student")
    first, *_, last = evaluations(run.path)
    assert last["loss"] < 0.5 * first["loss"] < 0.5
    images = sorted((class_folder() / "test").rglob("*.png"))
    student, wanted = vitreous.load(run.path), vitreous.load(teacher()).embed(images)
    wanted = (wanted - student.model.teacher_mean.numpy()) / student.model.teacher_std.numpy()
    assert abs(wanted.mean()) < 0.2
    assert 0.7 < wanted.std() < 1.3
    given = np.stack([result.values for result in student(images)])
    both = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (given, wanted)]
    assert 1 - (both[0] * both[1]).sum(axis=1).mean() < 0.5
    alike = [np.corrcoef((each @ each.T).flatten(), _same(images))[0, 1] for each in both]
    assert alike[0] > 0.6 * alike[1] > 0
    config = run.read_config()
    assert config.config["teacher_dim"] == 16
    assert config.decoding == {"teacher": str(teacher())}


def _same(images):
    corners = np.array([path.parent.name for path in images])
    return (corners[:, None] == corners).astype(float).flatten()


def test_any_model_can_be_the_student(tmp_path):
    fields = {"encoder.stages": [1], "encoder.width": 8, "encoder.block": "basic"}
    options = {"epochs": 1, "image_size": 16, "batch": 32, "progress": False, "model": "resnet"}
    options |= {"method": "distil", "teacher": teacher(), "fields": fields}
    with undrawn():
        run = vitreous.pretrain(class_folder(), out=tmp_path / "run", **options)
    assert Run(run).read_config().config["encoder"] == "resnet"
    assert vitreous.load(run).embed([Image.new("L", (8, 8))]).shape == (1, 8)


def test_a_teacher_that_is_gone_is_named(tmp_path):
    shutil.copytree(teacher(), tmp_path / "teacher")
    train(tmp_path / "run", f"--teacher={tmp_path / 'teacher'}", "--epochs=1", task="distil")
    shutil.rmtree(tmp_path / "teacher")
    predictor = vitreous.load(tmp_path / "run")
    assert predictor.embed([Image.new("L", (8, 8))]).shape == (1, 16)
    with pytest.raises(VitreousError, match="teacher"):
        vitreous.evaluate(tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method=distil"], "distil needs a teacher"),
        (["--method=distil", "--teacher=nowhere"], "nowhere"),
        (["--method=distil", "--teacher=TEACHER", "--set-recipe=distill=soft"], "distill"),
        (["--method=lejepa", "--teacher=TEACHER"], "teacher = .* is for"),
        (["--method=mae", "--teacher=TEACHER"], "teacher = .* is for"),
        (["--method=lejepa", "--set-recipe=mixup=0.2"], "mixup"),
        (["--method=lejepa", "--set-recipe=accumulate=2"], "accumulate"),
        (["--method=lejepa", "--set=views=1"], "views = 1"),
        (["--method=lejepa", "--set=mask_ratio=0.5"], "mask_ratio"),
    ],
)
def test_what_makes_no_sense_is_refused(words, says):
    words = [word.replace("TEACHER", str(teacher())) for word in words]
    done = vitreous_command("pretrain", class_folder(), *words, "--out=no", check=False)
    assert done.returncode == 2
    assert re.search(says, done.stderr), done.stderr
