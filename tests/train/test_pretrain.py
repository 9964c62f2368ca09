"""Pre-training on images alone, from the folder to what is made of the run."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from train.tiny import (
    PRETRAIN,
    class_folder,
    evaluations,
    mask_folder,
    quick,
    set_recipe,
    vitreous_command,
)

import vitreous
from vitreous.data.formats import open_source
from vitreous.errors import DataError
from vitreous.neighbours import standardised
from vitreous.run_folder import Run
from vitreous.tasks import PRETRAINING
from vitreous.train.probe import effective_rank, linear_accuracy


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder without any classes, some of them deeper."""
    root, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for number in range(40):
        folder = root if number % 2 else root / "2024" / "may"
        folder.mkdir(parents=True, exist_ok=True)
        image = np.kron(random.integers(0, 255, (4, 4, 3)), np.ones((5, 6, 1)))
        Image.fromarray(image.astype(np.uint8)).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "photos"
    words = [*PRETRAIN, "--set=decoder_dim=16", "--epochs=3", f"--out={out}"]
    vitreous_command("pretrain", photos, *words)
    return out


def test_a_folder_without_classes(run):
    config, measured = Run(run).read_config(), evaluations(run)
    assert (config.task, config.family, len(config.labels)) == ("mae", "mae-pretrain", 0)
    assert [m["samples"] for m in measured] == [4] * 3
    assert all(m["effective_rank"] > 1 for m in measured)
    assert not any("knn_accuracy" in m for m in measured)
    assert measured[-1]["loss"] < measured[0]["loss"]
    recipe = (run / "recipe.toml").read_text()
    assert 'method = "mae"' in recipe
    assert "betas = [0.9, 0.95]" in recipe


def test_the_report_shows_reconstructions_and_what_comes_next(run):
    page = (run / "report.html").read_text()
    for words in ("<h2>Reconstructions</h2>", "true patch", f"vitreous train DATA --weights {run}"):
        assert words in page
    assert 'alt="masked"' in page
    assert "classes" not in page.partition("<main")[2].partition("</header>")[0]


def test_the_run_is_used_by_every_command(run, photos, tmp_path):
    image = photos / "1.png"
    vitreous_command("predict", run, image, f"--out={tmp_path}")
    with Image.open(tmp_path / "1-reconstruction.png") as drawn:
        assert drawn.width > 3 * drawn.height
    hidden = json.loads((tmp_path / "1.json").read_text())["hidden"]
    assert np.sum(hidden) == 12
    result = json.loads(vitreous_command("evaluate", run, "--json").stdout)
    best = min(each["loss"] for each in evaluations(run))
    assert result["loss"] == pytest.approx(best, rel=1e-5)
    assert result["split"] == "val"
    predictor = vitreous.load(run)
    assert predictor.embed([image]).shape == (1, 16)
    assert predictor.explain(image).rollout.shape == (4, 4)
    written = vitreous_command("explain", run, image, f"--out={tmp_path / 'why'}").stdout
    assert "maps.png" in written


def test_the_encoder_is_fine_tuned(run, tmp_path):
    options = ["--freeze=!head.*", "--epochs=1", "--set-recipe=channels=3"]
    quick("train", class_folder(), f"--weights={run}", *options, f"--out={tmp_path}/ft")
    tuned, before = Run(tmp_path / "ft"), Run(run)
    config = tuned.read_config()
    assert (config.family, config.config["pool"], len(config.labels)) == ("vit", "mean", 4)
    assert config.preprocess.mean == before.read_config().preprocess.mean
    weights, encoder = tuned.read_weights(), before.read_weights()
    for name in ("blocks.0.mlp.fc1.weight", "position.table", "norm.weight"):
        assert torch.equal(weights[name], encoder[f"encoder.{name}"])


def test_another_task_takes_the_encoder_and_a_file_of_the_run(run, tmp_path):
    options = [f"--weights={run / 'model.safetensors'}", *set_recipe("mean=[0.5]", "std=[0.5]")]
    more = ["--epochs=1", "--image-size=16", f"--out={tmp_path}/seg"]
    quick("train", mask_folder(), *options, *more)
    assert Run(tmp_path / "seg").read_config().config["encoder"] == "vit"


def test_pretraining_goes_on_from_a_run_and_from_a_classifier(run, photos, tmp_path):
    quick("pretrain", photos, f"--weights={run}", "--epochs=1", f"--out={tmp_path}/on")
    assert Run(tmp_path / "on").read_config().config["decoder_dim"] == 16
    small = ["--model=vit", *(f"--set={f}" for f in ("patch=4", "dim=16", "depth=1", "heads=2"))]
    start = [*small, "--image-size=16", "--epochs=1", f"--out={tmp_path}/start"]
    quick("train", class_folder(), *start)
    options = [f"--weights={tmp_path}/start", "--epochs=1", f"--out={tmp_path}/from"]
    said = quick("pretrain", class_folder(), *options).stderr
    assert "tensors loaded" in said


def test_labels_judge_the_features(tmp_path):
    out = tmp_path / "run"
    vitreous_command("pretrain", class_folder(), *PRETRAIN, "--epochs=2", f"--out={out}")
    first, last = evaluations(out)
    assert 0 <= first["knn_accuracy"] <= 1
    assert first["knn_pixels"] == last["knn_pixels"] > 0.5, "bright corners are seen in pixels"
    assert "linear_accuracy" not in first
    assert last["linear_accuracy"] > 0.5
    assert last["linear_pixels"] > 0.9
    page, kept = (out / "report.html").read_text(), json.loads((out / "verdict.json").read_text())
    assert "linear probe" in page
    assert "for pixels" in kept["verdicts"][0]["seen"]


def test_the_smallest_loss_is_the_best(photos, tmp_path, monkeypatch):
    from vitreous.tasks.pretrain.method import MeanLoss

    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0])  # the report measures, too
    monkeypatch.setattr(MeanLoss, "compute", lambda *_: {"loss": next(losses), "samples": 4})
    words = [*PRETRAIN, "--epochs=3", "--patience=5", f"--out={tmp_path}/run"]
    quick("pretrain", photos, *words)
    said = vitreous_command("pretrain", "--resume", f"--out={tmp_path}/run", check=False).stderr
    assert "finished" in said
    progress = json.loads(max((tmp_path / "run/checkpoints").glob("*/progress.json")).read_text())
    assert (progress["best"], progress["waited"]) == (1.0, 1)


def test_rank_and_linear_probe():
    random = np.random.default_rng(0)
    assert effective_rank(np.ones((50, 8), np.float32)) == pytest.approx(1)
    assert effective_rank(np.eye(8, dtype=np.float32)) == pytest.approx(8)
    assert effective_rank(np.zeros((5, 3), np.float32)) == pytest.approx(1)
    train, _ = standardised(5 + 3 * random.normal(size=(99, 4)), np.zeros((1, 4)))
    np.testing.assert_allclose((train.mean(0), train.std(0)), ([0] * 4, [1] * 4), atol=1e-6)
    targets = np.arange(60) % 3
    vectors = (np.eye(3)[targets] + 0.1 * random.normal(size=(60, 3))).astype(np.float32)
    assert linear_accuracy(vectors, targets, vectors, targets) == 1
    assert linear_accuracy(vectors, 0 * targets, vectors, targets) == pytest.approx(1 / 3)


def test_collapse_is_said(photos, tmp_path, monkeypatch):
    from vitreous.models.vit import ViT

    same = lambda self, images, pool="head": torch.ones(len(images), 16)  # noqa: E731
    monkeypatch.setattr(ViT, "vectors", same)
    words = [*PRETRAIN, "--epochs=1", f"--out={tmp_path}/run"]
    done = quick("pretrain", photos, *words)
    assert "collapse" in done.stderr
    assert "bad      the features have collapsed" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pretrain", "PHOTOS", "--overfit=4"], "pretrain has no option --overfit"),
        (["pretrain", "PHOTOS", "--set-recipe=smoothing=0.1"], "smoothing = 0.1 is for the task"),
        (["pretrain", "PHOTOS", "--set-recipe=class_weights=auto"], "class_weights"),
        (["pretrain", "PHOTOS", "--set-recipe=mixup=0.2"], "mixup"),
        (["pretrain", "PHOTOS", "--set-recipe=task=tag"], "task = 'tag' has no meaning"),
        (["pretrain", "PHOTOS", "--model=swin-t"], "no plain ViT"),
        (["pretrain", "PHOTOS", "--method=simclr"], "method"),
        (["pretrain", "PHOTOS", "--val-fraction=0"], "'val'"),
        (["pretrain", "nowhere"], "no such file or folder"),
        (["train", "PHOTOS"], "is only|only the class|nothing that says"),
        (["train", "images:PHOTOS"], "no labels to train with.*vitreous pretrain"),
        (["train", "PHOTOS", "--recipe=mae"], "this recipe is for 'vitreous pretrain'"),
        (["train", "--resume", "--out=RUN"], "this recipe is for 'vitreous pretrain'"),
        (["train", "PHOTOS", "--model=mae-pretrain"], "cannot|only the class|nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(words, says, photos, run):
    words = [word.replace("PHOTOS", str(photos)).replace("RUN", str(run)) for word in words]
    done = vitreous_command(*words, check=False)
    assert done.returncode == 2
    assert re.search(says, done.stderr), done.stderr


def test_images_alone(photos, tmp_path):
    source = open_source(photos, truth="none")
    counts = {split: len(samples) for split, samples in source.splits.items()}
    assert counts == {"train": 36, "val": 4}
    assert (source.truth_kind, source.kind, source.labelled) == ("none", "images", None)
    labelled = open_source(class_folder(), truth="none")
    assert (labelled.truth_kind, len(labelled.labels)) == ("none", 0)
    assert labelled.labelled.truth_kind == "class"
    for split in ("train", "val"):
        (tmp_path / "split" / split).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "split" / split / "a.png")
    assert {*open_source(tmp_path / "split", truth="none").splits} == {"train", "val"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images"):
        open_source(tmp_path / "empty", truth="none")


def test_from_python(photos, tmp_path):
    options = {"model": "vit", "image_size": 16, "batch": 8, "epochs": 1, "progress": False}
    fields = {"encoder.patch": 4, "encoder.dim": 16, "encoder.depth": 1, "encoder.heads": 2}
    run = vitreous.pretrain(photos, out=tmp_path / "run", fields=fields, **options)
    assert (run.metric, run.split) == ("loss", "val")
    assert Run(run).read_config().task == PRETRAINING[0]
    assert Run(run).read_config().config["encoder_fields"]["dim"] == 16
    again = vitreous.pretrain(out=run, resume=True, epochs=2, progress=False)
    assert evaluations(again)[-1]["epoch"] == 2
    paths = sorted(photos.rglob("*.png"))
    # fields that only an encoder has are those of the model that was named as the encoder
    plain = {name.removeprefix("encoder."): value for name, value in fields.items()}
    plain |= {"mask_ratio": 0.5} if PRETRAINING[0] == "mae" else {}
    listed = vitreous.pretrain(paths, out=tmp_path / "listed", fields=plain, **options)
    assert Run(listed).read_config().config["encoder_fields"]["dim"] == 16
    assert evaluations(listed)[-1]["samples"] == 4
    measured = [vitreous.evaluate(listed, data)["loss"] for data in (paths[:5], paths[:5] * 2)]
    assert measured[0] == pytest.approx(measured[1])
