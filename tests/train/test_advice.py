"""Few images and random weights: what to do instead, and what applies with weights."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from train.tiny import class_folder, vitreous_command

import vitreous
from vitreous.cli import train as train_command
from vitreous.cli.parse import parse
from vitreous.cli.train import TrainArguments
from vitreous.data.formats import open_source
from vitreous.tasks import TASKS, task_class
from vitreous.tasks.defaults import Glance
from vitreous.tasks.task import is_classifier
from vitreous.train import advice
from vitreous.train.advice import PERMISSIVE, fine_tuning_advice, fitting_weights
from vitreous.train.plan import check_options
from vitreous.train.recipe import Recipe, find_recipe, read_recipe
from vitreous.weights.catalog import catalog


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Colour images of 32x32 in two folders."""
    root = tmp_path_factory.mktemp("advice") / "my photographs"
    random = np.random.default_rng(0)
    for number in range(24):
        path = root / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    return root


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("name", TASKS)
def test_the_weights_fit_task_licence_and_machine(name, on_cpu):
    task = task_class(name)
    entry = fitting_weights(task, Glance(200, 300, 3, False, on_cpu))
    assert entry.licence in PERMISSIVE
    flops = vitreous.api.model_counts(entry.model)[entry.model]["flops"]
    if is_classifier(entry.model):
        assert flops <= (advice.FLOPS_ON_CPU if on_cpu else advice.FLOPS_ON_GPU)


def test_a_licence_that_forbids_uses_is_never_advised(monkeypatch):
    task, glance = task_class(next(iter(TASKS))), Glance(200, 200, 3, True, True)
    best = fitting_weights(task, glance)
    forbidden = catalog() | {best.name: replace(best, licence="CC-BY-NC-4.0")}
    monkeypatch.setattr(advice, "catalog", lambda: forbidden)
    assert fitting_weights(task, glance).name != best.name


def test_few_photographs_are_better_fine_tuned(photographs, tmp_path):
    """In the log and in the report; the command can be parsed, and names what was named."""
    out = tmp_path / "run"
    words = ["--model=vit", "--set=patch=16", "--set=dim=16", "--set=depth=1", "--set=heads=2"]
    words += ["--image-size", "32", "--epochs=1", f"--out={out}"]
    told = vitreous_command("train", photographs, *words).stderr
    (command,) = [line.strip() for line in told.splitlines() if "vitreous train" in line]
    command = command.partition("   (Apache-2.0")[0]
    assert "22 images are few" in told
    assert "CIFAR-10" in told
    given = parse("train", train_command, shlex.split(command)[2:])
    assert isinstance(given, TrainArguments)
    assert given.weights == "vit-ti/16.augreg-in21k-ft-in1k-224"
    assert not given.image_size  # chosen for weights and images: see test_start.py
    assert given.data == str(photographs)
    report = (out / "report.html").read_text()
    assert "<dt>Fine-tune</dt>" in report
    assert given.weights in report


@pytest.mark.parametrize(
    "options",
    [{"weights": "somewhere"}, {"overfit": 4}, {"data": "shapes:100"}, {"data": "digits"}],
)
def test_no_advice_where_it_would_be_none(photographs, options):
    recipe = Recipe(**{"data": str(photographs), **options})
    source = open_source(str(photographs))
    assert fine_tuning_advice(recipe, task_class("classify"), source, True) is None


def test_no_advice_for_many_or_tiny_images(photographs, monkeypatch):
    task = task_class("classify")
    tiny = open_source(str(class_folder()))
    assert fine_tuning_advice(Recipe(data=str(class_folder())), task, tiny, True) is None
    monkeypatch.setattr(advice, "FEW", 22)
    source = open_source(str(photographs))
    assert fine_tuning_advice(Recipe(data=str(photographs)), task, source, True) is None


def test_the_recipe_for_weights_applies_and_options_override_it(capsys):
    """Also its name is told, and that it need not be used."""
    words = ["DATA", "--weights=W"]
    given = parse("train", train_command, words)
    values = read_recipe(find_recipe("fine-tune"))
    assert given.optimisation.layer_decay == values["layer_decay"] != 1.0
    assert "recipe: fine-tune, because weights are given" in capsys.readouterr().err
    other = parse("train", train_command, [*words, "--layer-decay=0.5"])
    assert other.optimisation.layer_decay == 0.5
    lora = parse("train", train_command, [*words, "--lora", "8"])
    assert lora.lr == read_recipe(find_recipe("lora"))["lr"]
    capsys.readouterr()
    none = parse("train", train_command, [*words, "--recipe=none"])
    assert none.to_recipe() == Recipe(data="DATA", weights="W")
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", TASKS)
def test_the_recipe_for_weights_suits_every_task(name):
    recipe = Recipe(**read_recipe(find_recipe("fine-tune")), weights="W")
    check_options(recipe, task_class(name))
    assert recipe.crop is recipe.batch is recipe.epochs is None
