"""Weights to start from: what of them is kept, and what is said about it."""

import re

import pytest
import torch
from compare import perturb

import vitreous
from vitreous.config import to_dict
from vitreous.errors import ConfigError
from vitreous.tasks import task_for
from vitreous.train.build_model import Start, build, choose_preprocess, find_start
from vitreous.train.open_data import open_usable
from vitreous.train.recipe import Recipe
from vitreous.weights.io.files import write_tensors

FIELDS = {"image_size": 16, "patch": 8, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 64}
PREPARED = {"mean": 0.4, "std": 0.3, "crop": 0.8, "interpolation": "bicubic"}
DIGITS = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    model = perturb(vitreous.create("vit", classes=10, channels=1, **FIELDS))
    write_tensors(path, vitreous.export_weights(model, "timm"), "safetensors")
    return path, model


def start(weights, **options):
    """The model and preprocessing that training on the digits would begin with, and the log."""
    recipe = Recipe(data="digits", weights=str(weights), channels=1, **options)
    source, lines = open_usable(recipe, lambda text: None), []
    kind, found = task_for(source.truth_kind), find_start(recipe)
    model = build(recipe, kind, source, found, lines.append)
    samples = source.splits["train"][:20]
    prepared = choose_preprocess(recipe, kind, model, source, samples, found, lines.append)
    return model, prepared, "\n".join(lines)


def imported(file, tmp_path, labels):
    options = {"labels": labels, "changes": {"heads": 2}, **PREPARED}
    return vitreous.import_run(file[0], tmp_path / "run", **options)


def test_a_file_needs_no_model_and_its_head_is_kept_when_asked(file, tmp_path):
    model, _, said = start(file[0])
    assert model.config.dim == 32
    assert "head: new, for 10 classes: the weights name none (--set-recipe keep_head" in said
    assert "because the weights do not state theirs" in said
    assert "assumed: heads=" in said
    assert "assumed: heads=" not in start(file[0], fields=("heads=2",))[2]
    assert not torch.equal(model.head.out.weight, file[1].head.out.weight)
    assert torch.equal(model.patch.weight, file[1].patch.weight)
    model, _, said = start(file[0], keep_head=True)
    assert "head: kept, as asked" in said
    assert torch.equal(model.head.out.weight, file[1].head.out.weight)
    recipe = Recipe(data="shapes:20", weights=str(file[0]), keep_head=True, channels=1)
    source = open_usable(recipe, lambda text: None)
    with pytest.raises(ConfigError, match="of the weights has 10 classes, shapes:20 has 6"):
        build(recipe, task_for("class"), source, find_start(recipe), lambda text: None)
    thousand = tmp_path / "thousand.safetensors"  # as many as the found model has by default
    model = vitreous.create("vit-ti/16", depth=1)
    write_tensors(thousand, vitreous.export_weights(model, "timm"), "safetensors")
    with pytest.raises(ConfigError, match="of the weights has 1,000 classes, digits has 10"):
        start(thousand, keep_head=True, image_size=(32, 32))
    recipe = Recipe(data="digits", model="vit", keep_head=True)
    source = open_usable(recipe, lambda text: None)
    with pytest.raises(ConfigError, match="needs weights"):
        build(recipe, task_for(source.truth_kind), source, None, lambda text: None)


def test_the_same_classes_keep_the_head_and_the_preprocessing(file, tmp_path):
    model, prepared, said = start(imported(file, tmp_path, DIGITS).path)
    assert "head: kept: the weights know the same 10 classes" in said
    assert torch.equal(model.head.out.weight, file[1].head.out.weight)
    assert (prepared.mean, prepared.std) == ((0.4,), (0.3,))
    assert "mean and std" not in said, "they are a part of the preprocessing"
    assert (prepared.crop, prepared.interpolation) == (0.8, "bicubic")
    assert (
        "preprocessing: shorter side to 20, bicubic, centre crop 16x16, mean 0.4, std 0.3"
        ", as the weights were trained with" in said
    )
    _, _, said = start(tmp_path / "run", image_size=(24, 24), interpolation="bilinear")
    assert "centre crop 24x24" in said
    assert "; of these, as the weights were trained with: resize, crop, mean, std" in said


def test_classes_in_another_order_keep_their_rows(file, tmp_path):
    model, _, said = start(imported(file, tmp_path, DIGITS[::-1]).path)
    assert "head: kept" in said
    assert torch.equal(model.head.out.weight, file[1].head.out.weight.flip(0))
    assert torch.equal(model.head.out.bias, file[1].head.out.bias.flip(0))


def test_other_classes_get_a_new_head(file, tmp_path):
    _, prepared, said = start(imported(file, tmp_path, [*DIGITS[:9], "ten"]).path)
    assert "head: new, for 10 classes: the weights know 10 others" in said
    assert prepared.crop == 0.8, "the preprocessing stays"


def test_a_classifier_inside_a_segmenter_is_found_from_its_tensors(file):
    recipe = Recipe(data="shapes:20", weights=str(file[0]), task="segment", channels=1)
    source, lines = open_usable(recipe, lambda text: None), []
    found = find_start(recipe)
    model = build(recipe, task_for("mask"), source, found, lines.append)
    assert (model.encoder.config.dim, model.encoder.config.depth) == (32, 1)
    assert torch.equal(model.encoder.patch.weight, file[1].patch.weight)


def test_a_run_folder_inside_a_detector_takes_images_of_any_size(file, tmp_path):
    """Pad = False of the classifier stopped the training of a detector at 128x170 pixels."""
    weights = str(imported(file, tmp_path, DIGITS).path)
    recipe = Recipe(data="shapes:20", weights=weights, task="detect", channels=1)
    source = open_usable(recipe, lambda text: None)
    lines: list[str] = []
    model = build(recipe, task_for("boxes"), source, find_start(recipe), lines.append).eval()
    assert "model: rf-detr with backbone vit, images" in "\n".join(lines)
    assert torch.equal(model.core.patch.weight, file[1].patch.weight)
    with torch.no_grad():
        assert model([torch.rand(1, 24, 21)]).logits.isfinite().all()


def test_a_detector_learns_masks():
    """It keeps all that it knows; what it lacks, its mask head, begins anew and is reported."""
    plain = {"masks": False, "backbone_fields": {"stages": (1, 1)}}
    torch.manual_seed(0)
    detector = vitreous.create("rf-detr-seg-mini", image_size=64, classes=6, **plain)
    recipe = Recipe(data="shapes:20", weights="detector", task="instance", channels=3)
    source = open_usable(recipe, lambda text: None)
    tensors = detector.state_dict()
    begin = Start("rf-detr-seg-mini", to_dict(detector.config), source.labels, None, tensors)
    lines: list[str] = []
    model = build(recipe, task_for(source.truth_kind), source, begin, lines.append)
    assert model.config.masks
    assert re.search(r"re-initialised +mask_head", "\n".join(lines))
    for name, value in model.state_dict().items():
        assert name.startswith("mask_head.") or torch.equal(value, tensors[name]), name
