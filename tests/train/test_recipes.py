"""Every recipe parses, says what it promises, and starts; a written recipe reads back the same."""

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from follow import shorten
from PIL import Image
from runs import OLD_RUNS
from shared import printed
from train.tiny import box_folder, digit_folder, mask_folder, vitreous_command
from train.undrawn import undrawn

from vitreous.errors import ConfigError
from vitreous.run_folder import Run
from vitreous.train.recipe import Recipe, parse_recipe, read_recipe, write_recipe
from vitreous.train.run import train

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))
# What the words of the headers' commands stand for.
STANDS_FOR = {
    "DATA": digit_folder,
    "IMAGENET": digit_folder,
    "./images-and-masks": mask_folder,
    "names.json": lambda: mask_folder() / "classes.json",
    "./images-with-boxes": box_folder,
    "RUN": lambda: OLD_RUNS / "classify",
    "W": lambda: OLD_RUNS / "classify",
    "detr-r50.orig-coco": lambda: OLD_RUNS / "detect",
}
PAPER_SIZE = ["--image-size=32", "--set=depth=1", "--batch=20"]
SMALLER = {
    "detect": ["--image-size=32"],
    "distil": PAPER_SIZE,
    "distil-features": ["--image-size=16"],
    "imagenet-augreg": [*PAPER_SIZE, "--set-recipe=compile=false", "--precision=float32"],
    "imagenet-deit": [*PAPER_SIZE, "--set-recipe=compile=false", "--precision=float32"],
    "segment": ["--image-size=16", "--set=encoder.depth=1"],
}


def test_there_are_recipes():
    assert len(RECIPES) >= 6


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_headers_promise_a_command_a_result_hardware_and_time(path):
    text = path.read_text()
    for word in ("command:", "expected:", "hardware:", "time:"):
        assert f"# {word}" in text, word


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_command_of_the_header_runs(path, tmp_path):
    """On little data, for one epoch, and with a smaller model where it has the papers' size."""
    command = re.search(r"# command: +(?:torchrun .* -m )?vitreous (.*)", path.read_text())
    words = [
        str(STANDS_FOR[word]()) if word in STANDS_FOR else word for word in shlex.split(command[1])
    ]
    out = tmp_path / "run"
    more = [*SMALLER.get(path.stem, []), "--workers=0", f"--out={out}"]
    with undrawn():
        vitreous_command(*shorten([*words, *more]))
    assert read_recipe(out / "recipe.toml").items() >= unchanged(path).items()
    assert (out / "report.html").exists()
    if path.stem == "linear-probe":
        name = "blocks.0.mlp.fc1.weight"
        assert torch.equal(
            Run(out).read_weights()[name], Run(OLD_RUNS / "classify").read_weights()[name]
        )


def unchanged(path):
    """What the recipe says, without what was made smaller."""
    smaller = {"data", "image_size", "epochs", "batch", "workers", "compile", "precision", "fields"}
    return {name: value for name, value in read_recipe(path).items() if name not in smaller}


def test_a_recipe_survives_writing():
    recipe = Recipe(fields=("a=1",), lr=1e-3, betas=(0.8, 0.9), mean=(0.5,))
    assert (
        Recipe(
            **{
                k: tuple(v) if isinstance(v, list) else v
                for k, v in tomllib.loads(write_recipe(recipe)).items()
            }
        )
        == recipe
    )


def test_distillation_learns_from_another_run(tmp_path):
    base = Recipe(epochs=1, batch=256, model="vit", image_size=(8, 8), crop="shift")
    small = ("depth=1", "dim=16", "heads=2", "patch=4")
    teacher = train(replace(base, fields=small), tmp_path / "teacher")
    both = (*small, "tokens=class+distillation", "pool=both")
    for kind in ("hard", "soft"):
        recipe = replace(base, fields=both, teacher=str(teacher.path), distill=kind)
        run = train(recipe, tmp_path / kind)
        assert run.metrics()[0]["train_loss"] > 0
    # a teacher of another size, normalised otherwise, is given the same pixels its own way
    run = train(replace(recipe, mean=(0.1,), image_size=(12, 12)), tmp_path / "other")
    assert run.metrics()[0]["train_loss"] > 0
    with pytest.raises(ConfigError, match="needs a teacher"):
        Recipe(distill="soft")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"lr": -1.0}, "lr = -1.0"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"sampler": "balancd"}, "did you mean 'balanced'"),
        ({"warmup": 2.0}, "warmup = 2.0"),
        ({"lr": float("inf")}, "lr = inf"),
        ({"weight_decay": float("nan")}, "weight_decay = nan"),
        ({"betas": (0.9, 2.0)}, "betas"),
        ({"workers": -1}, "workers = -1"),
    ],
)
def test_senseless_settings(change, words):
    with pytest.raises(ConfigError, match=words):
        Recipe(**change)


def test_unknown_keys_in_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("epcohs = 3\n")
    with pytest.raises(ConfigError, match=r"mine\.toml.*did you mean 'epochs'"):
        read_recipe(path)


def test_a_loss_that_is_not_finite_stops_and_names_the_samples(tmp_path, monkeypatch):
    from vitreous.tasks.classify.task import Classify
    from vitreous.train.trainer import TrainingError

    monkeypatch.setattr(
        Classify, "_cross_entropy", lambda self, logits, t: logits.sum() * float("nan")
    )
    small = ("depth=1", "dim=16", "heads=2", "patch=4")
    recipe = Recipe(epochs=1, batch=64, model="vit", image_size=(8, 8), fields=small)
    with pytest.raises(
        TrainingError, match=r"loss is not .*step 1: loss nan.*samples \S+, "
    ) as got:
        train(recipe, tmp_path / "nan")
    assert "and 61 more" in str(got.value)
    with pytest.raises(TrainingError, match="step 4"):
        train(replace(recipe, skip_nonfinite=3), tmp_path / "nan3")


def test_a_gradient_that_is_not_finite_is_called_so_with_advice_about_the_rate(
    tmp_path, monkeypatch
):
    from vitreous.tasks.classify.task import Classify
    from vitreous.train.trainer import TrainingError

    # the root of 0 is finite, and its slope is not
    monkeypatch.setattr(
        Classify, "_cross_entropy", lambda self, logits, t: (logits * 0).sqrt().sum()
    )
    small = ("depth=1", "dim=16", "heads=2", "patch=4")
    recipe = Recipe(epochs=1, batch=64, lr=10.0, model="vit", image_size=(8, 8), fields=small)
    with pytest.raises(TrainingError) as got:
        train(recipe, tmp_path / "run")
    text = str(got.value)
    assert re.search(r"the gradient is not finite at step 1: loss 0, gradient norm (nan|inf)", text)
    assert "than 10: --lr 1, or --lr-find" in text
    assert len(text) < 400


def test_dry_run_says_what_would_happen_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = printed("train", "digits", "--dry-run", "--epochs", "2", "--out", "runs/x")
    assert "64x1x8x8" in said
    assert "MiB" in said
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["x-first-batch.png"]
    with Image.open(tmp_path / "runs" / "x-first-batch.png") as picture:
        assert picture.width > 100


def test_from_a_folder_that_transformers_has_saved(tmp_path):
    """It has a config.json, as a run has."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "image_size": 8, "patch_size": 4}
    theirs = ViTForImageClassification(ViTConfig(**sizes))
    theirs.save_pretrained(tmp_path / "vit")
    mean, std = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    prepared = ViTImageProcessor(size={"height": 8, "width": 8}, image_mean=mean, image_std=std)
    prepared.save_pretrained(tmp_path / "vit")
    options = {"epochs": 1, "batch": 512, "freeze": ("!head.*",), "ema": 0, "channels": 3}
    run = train(Recipe(weights=str(tmp_path / "vit"), **options), tmp_path / "run")
    weight = run.read_weights()["norm.weight"]
    assert torch.equal(weight, theirs.vit.layernorm.weight)
    preprocess = run.read_config().preprocess
    assert (preprocess.mean, preprocess.std) == (tuple(mean), tuple(std))
    assert preprocess.resize == "square"


def test_an_option_that_was_removed_is_read_where_it_was_not_used():
    assert parse_recipe("epochs = 3\nmosaic = 0.0\n", "recipe.toml") == Recipe(epochs=3)
    with pytest.raises(ConfigError, match=r"^recipe\.toml: mosaic = 0\.5: this option was removed"):
        parse_recipe("mosaic = 0.5\n", "recipe.toml")
