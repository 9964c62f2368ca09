"""Detection through the same training: what it starts from, what it refuses, what it leaves."""

import json
import re

import numpy as np
import pytest
import torch
import transformers
from compare import perturb
from PIL import Image
from shared import printed
from train import tiny
from train.tiny import arguments, box_folder, train, trained, vitreous_command

import vitreous
from vitreous.cli.main import main
from vitreous.errors import ConfigError
from vitreous.train.recipe import Recipe
from vitreous.weights.io.files import write_tensors

SMALL = {"model": "detr-small", "image_size": (16, 16), "fields": ("dim=16", "heads=2")}


def prepared(tmp_path, **options):
    usual = {"data": str(box_folder()), "epochs": 1, "batch": 8}
    return tiny.prepared(Recipe(**{**usual, **SMALL, **options}), tmp_path / "run")


@pytest.fixture(scope="module")
def run():
    """A run that is good enough for its boxes to be looked for."""
    return trained("detect", "--epochs=1", drawn=True)


def test_the_whole_life(run, tmp_path):
    """Train, evaluate, predict from the folder alone, by the commands; the data's ids come out."""
    assert (run / "report.html").stat().st_size > 10_000
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"loss_class", "loss_box", "loss_giou", "loss_aux_box"} <= lines[-1].keys()
    file = tmp_path / "said.json"
    evaluated = json.loads(vitreous_command("evaluate", run, "--json", "--results", file).stdout)
    assert evaluated["classes"].keys() == {"box", "never seen"}
    assert evaluated["objects"] == 7
    assert evaluated["samples"] == 8
    again = json.loads(vitreous_command("evaluate", run, "--json", "--from", file).stdout)
    assert again["ap"] == pytest.approx(evaluated["ap"], abs=1e-6)
    said = json.loads(file.read_text())
    assert {entry["image_id"] for entry in said} <= {1000 + 7 * number for number in range(8)}
    assert {entry["category_id"] for entry in said} <= {31, 77}
    images = sorted((box_folder() / "test").glob("*.png"))
    out = tmp_path / "out"
    done = vitreous_command("predict", run, *images, "--threshold=0", "--json", "--out", out)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["image"] for each in found] == [str(image) for image in images]
    assert {each["id"] for image in found for each in image["objects"]} <= {31, 77}
    assert (out / "0-boxes.jpg").exists()
    predictor = vitreous.load(run)
    together, alone = predictor(images), [predictor(image) for image in images]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.boxes, other.boxes, atol=1e-3)


def test_over_a_vit_with_crops_of_every_size(tmp_path):
    """Learned positions, and images that the default augmentation leaves at any size."""
    vit = ("backbone=vit", "backbone.patch=4", "backbone.dim=16", "backbone.depth=1")
    fields = (*vit, "backbone.heads=2", "dim=16", "heads=2", "mlp_dim=16", "decoder_depth=1")
    (tmp_path / "run").mkdir()
    trainer, config, _ = prepared(tmp_path, fields=fields, crop="window")
    trainer.run.write_config(config)
    sizes, embed = set(), trainer.model.backbone.embed
    trainer.model.backbone.embed = lambda images: sizes.add(images.shape[2:]) or embed(images)
    trainer.fit()
    assert len(sizes) > 8, sizes
    assert any(height % 4 and height != width for height, width in sizes), sizes
    assert all(p.isfinite().all() for p in trainer.model.parameters())


def test_from_a_classification_run(tmp_path):
    """No model named: the run's own becomes the backbone, with its shape and its weights."""
    first = tmp_path / "digits"
    train(first, "--epochs=1")
    options = {"weights": str(first), "image_size": (16, 16), "model": None, "fields": ()}
    trainer, config, said = prepared(tmp_path, **options)
    model = trainer.model
    assert config.task == "detect"
    assert model.config.backbone == "vit"
    state = vitreous.load(first).model.state_dict()
    for name, value in model.backbone.state_dict().items():
        if not name.startswith(("position.", "patch.weight")):
            assert torch.equal(value, state[name]), name
    assert "resampled" in said
    assert trainer.recipe.crop == "resized"
    few, _, _ = prepared(tmp_path, **options, overfit=2)
    assert few.recipe.crop == "none"  # what is to be learnt by heart stays as it is


def test_other_classes_keep_everything_but_the_class_head(run, tmp_path):
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"31": "crate", "77": None}))
    options = {"weights": str(run), "names": str(names), "model": None, "fields": ()}
    trainer, _, _ = prepared(tmp_path, **options)
    state = vitreous.load(run).model.state_dict()
    ours = trainer.model.state_dict()
    fresh = {
        name
        for name, value in ours.items()
        if value.shape != state[name].shape or not torch.equal(value, state[name])
    }
    assert fresh == {"class_head.weight", "class_head.bias"}
    assert len(ours["class_head.bias"]) == 2  # crate, and no object


RESNET = ("backbone=resnet-18", "backbone.norm=frozen", "encoder_depth=1", "decoder_depth=1")


@pytest.mark.parametrize("library", ["huggingface", "official"])
def test_from_a_detector_of_another_library(tmp_path, library):
    """All but the class head stays; a file without a config is known by the names in it."""
    other = {"name": "detr", "classes": 91, "dim": 32, "heads": 2, "mlp_dim": 16, "queries": 9}
    shape = {"encoder_depth": 1, "decoder_depth": 1, "backbone": "resnet-18"}
    first = perturb(vitreous.create(**other, **shape, backbone_fields={"norm": "frozen"}))
    state = vitreous.export_weights(first, library)
    if library == "official":
        weights = tmp_path / "detr.pth"
        torch.save({"model": state}, weights)
        fields = (*RESNET, "dim=32", "heads=2", "mlp_dim=16", "queries=9")
        options = {"model": "detr", "fields": fields}
    else:
        weights = tmp_path / "detr"
        weights.mkdir()
        described = {"model_type": "detr", "architectures": ["DetrForObjectDetection"]}
        described |= {"backbone": "resnet18", "d_model": 32, "num_queries": 9, "num_labels": 91}
        described |= {"encoder_layers": 1, "encoder_ffn_dim": 16, "encoder_attention_heads": 2}
        described |= {"decoder_layers": 1, "decoder_ffn_dim": 16, "decoder_attention_heads": 2}
        (weights / "config.json").write_text(json.dumps(described))
        write_tensors(weights / "model.safetensors", state, "safetensors", {"format": "pt"})
        limits = {"size": {"shortest_edge": 64, "longest_edge": 99}, "image_mean": [0.4, 0.3, 0.2]}
        prepared_so = json.dumps({**limits, "image_std": [0.3, 0.3, 0.3]})
        (weights / "preprocessor_config.json").write_text(prepared_so)
        options = {"model": None, "fields": ()}
    trainer, config, said = prepared(tmp_path, weights=str(weights), image_size=(64, 64), **options)
    assert "class_head" in said
    ours, theirs = trainer.model.state_dict(), first.state_dict()
    kept = [name for name in theirs if not name.startswith("class_head.")]
    assert all(torch.equal(ours[name], theirs[name]) for name in kept)
    assert len(ours["class_head.bias"]) == 3
    if library == "official":
        assert config.preprocess.longest == 107
    else:
        assert (config.preprocess.longest, config.preprocess.mean) == (99, (0.4, 0.3, 0.2))


def test_the_longer_side_ends_somewhere(tmp_path):
    trainer, config, _ = prepared(tmp_path, image_size=(60, 60))
    assert config.preprocess.longest == 100
    wide = trainer.train_set.preprocess
    assert wide.working_size(30, 45) == (60, 90)
    assert wide.working_size(30, 90) == (33, 100)
    assert wide.working_size(900, 3) == (100, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longest": 8}, "longest = 8 is shorter than a side of image_size"),
        ({"longest": 80, "resize": "square"}, "longest = 80 has no effect with resize = 'square'"),
        ({"model": "vit-ti/16", "fields": ()}, "cannot detect"),
        ({"mixup": 0.2}, "mixup = 0.2 is for the task classify"),
        ({"smoothing": 0.1}, "smoothing = 0.1 is for the task classify and segment"),
        ({"dice": 1.0}, "dice = 1.0 is for the task segment"),
        ({"crop": "shift"}, "crop = 'shift' is not for detect"),
    ],
)
def test_what_does_not_fit_together(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        prepared(tmp_path, **options)
    assert not (tmp_path / "run").exists()


def test_dry_run_shows_the_boxes(tmp_path):
    """Images of different sizes in one picture, each box where it has moved to."""
    arguments = ["train", str(box_folder()), "--dry-run", f"--out={tmp_path / 'x'}", "--batch=16"]
    assert "batch       16x3" in printed(*arguments, "--epochs=1", "--image-size", "32")
    with Image.open(tmp_path / "x-first-batch.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
    blue = (abs(pixels - (0x43, 0x63, 0xD8)) < 8).all(axis=1)  # the first class's
    assert blue.sum() > 500
    assert not (tmp_path / "x").exists()


def test_as_many_queries_as_the_data_needs(tmp_path):
    """One object at most: ten are the fewest. With fewer than objects, that is said."""
    trainer, _, said = prepared(tmp_path, model=None, fields=("decoder_depth=1",))
    assert trainer.model.config.queries == 10
    assert "10 queries for up to 1 object" in said
    crowd = tmp_path / "crowd" / "train"
    crowd.mkdir(parents=True)
    boxes = [{"id": i, "image_id": 1, "category_id": 1, "bbox": [i, 0, 3, 4]} for i in range(9)]
    image = {"id": 1, "file_name": "a.png", "height": 20, "width": 20}
    Image.new("RGB", (20, 20)).save(crowd / "a.png")
    Image.new("RGB", (20, 20)).save(crowd / "b.png")
    whole = {"images": [image, {**image, "id": 2, "file_name": "b.png"}], "annotations": boxes}
    whole |= {"categories": [{"id": 1, "name": "thing"}]}
    (crowd / "_annotations.coco.json").write_text(json.dumps(whole))
    options = {"data": str(crowd.parent), "overfit": 2, "batch": 2}
    _, _, said = prepared(tmp_path, **options, fields=(*SMALL["fields"], "queries=5"))
    assert "images with 9 objects, and the model has 5 queries" in said
    trainer, _, _ = prepared(tmp_path, **options, model=None, fields=())
    assert trainer.model.config.queries == 18


def test_a_few_images_are_learned_in_small_batches(tmp_path):
    """As was measured on BCCD: eight images in batches of two reach AP 0.99 after 2,400 steps."""
    trainer, _, said = prepared(tmp_path, overfit=8, batch=None, epochs=None)
    assert (trainer.recipe.batch, trainer.recipe.epochs) == (2, 12)
    assert "overfit: 8 images" in said


def test_what_was_learned_by_heart_is_measured_once(tmp_path, capsys):
    """By its name, as the split train: 8 images, not 400, and not as if they had been held out."""
    few = ["--overfit=2", "--epochs=1", "--batch=20", f"--out={tmp_path / 'run'}"]
    said = printed("train", *arguments("detect")[:-2], *few)
    assert "on train (2 images)" in said
    assert "<b>These images were trained on.</b>" in (tmp_path / "run" / "report.html").read_text()
    results = tmp_path / "said.json"
    first = printed("evaluate", tmp_path / "run", f"--results={results}")
    assert ", train: 2 images" in first
    assert len(json.loads(results.read_text())) == 2 * 4  # images, queries
    assert main(["evaluate", str(tmp_path / "run"), f"--from={results}"]) == 0
    numbers = [
        re.findall(r"^  (ap\w*) +([\d.-]+)", text, re.MULTILINE)
        for text in (first, capsys.readouterr().out)
    ]
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == 6


def test_a_checkpoint_of_another_library_keeps_its_size(tmp_path):
    theirs = transformers.DetrConfig(
        backbone="resnet18",
        num_queries=5,
        **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
        **{"encoder_ffn_dim": 16, "decoder_ffn_dim": 16},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    )
    transformers.DetrForObjectDetection(theirs).save_pretrained(tmp_path / "theirs")
    size = {"shortest_edge": 64, "longest_edge": 107}
    transformers.DetrImageProcessor(size=size).save_pretrained(tmp_path / "theirs")
    options = {"weights": str(tmp_path / "theirs"), "model": None, "fields": (), "image_size": None}
    _, config, said = prepared(tmp_path, **options)
    assert "images 64x64" in said
    assert config.preprocess.longest == 107
