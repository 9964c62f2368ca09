"""Run folders with random weights, for tests of what is done with a run."""

from pathlib import Path

import torch
from compare import perturb
from shared import once

import vitreous
from vitreous.config import to_dict
from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap, NoLabels
from vitreous.models import family_of
from vitreous.run_folder import Run, RunConfig, versions
from vitreous.train.recipe import Recipe, write_recipe
from vitreous.weights.io.files import write_tensors
from vitreous.weights.origin import own_metadata

OLD_RUNS = Path(__file__).parent / "old_runs" / "8922915"
"""Trained ones, small: classify, segment, detect."""
VIT = {"dim": 48, "depth": 2, "heads": 3, "mlp_dim": 96, "patch": 8}
NAMES = ("red", "green", "blue", "grey", "black")


def own_file(path, model):
    """Weights as a file of ours, which states its model."""
    write_tensors(path, model.state_dict(), "safetensors", own_metadata(model))
    return path


def write_run(folder, model, labels, preprocess, task="classify", data="digits"):
    """A run folder as training would leave it."""
    run, family = Run(folder), family_of(model)
    run.path.mkdir(parents=True)
    about = (model.name or family, family, to_dict(model.config), task, labels, preprocess)
    run.write_config(RunConfig(*about, data, "", versions()))
    run.write_weights(model, model.state_dict())
    return run


def made(folder, task, name, *, classes=5, whole=False, resize="shorter", **fields):
    """The path of a run folder with a model of this name."""
    torch.manual_seed(0)
    given = fields if classes is None else {"classes": classes, **fields}
    model = perturb(vitreous.create(name, **{"image_size": 64, **given}))
    model.name = model.name or name
    labels = LabelMap(NAMES, tuple(range(10, 15))) if classes else NoLabels()
    size = model.own_size() if classes else (64, 64)
    prepared = Preprocess(size, resize=resize, whole=whole, mean=(0.5, 0.4, 0.3), std=(0.2,))
    return write_run(folder, model, labels, prepared, task, "shapes").path


def of_digits(folder):
    """The built-in digits, with the recipe and the log of a training of one epoch."""
    torch.manual_seed(0)
    fields = {"image_size": 8, "patch": 4, "dim": 16, "depth": 1, "heads": 2, "channels": 1}
    model = vitreous.create("vit", **fields, classes=10)
    prepared = Preprocess(image_size=8, channels=1, mean=(0.3,), std=(0.37,))
    run = write_run(folder, model, LabelMap.of_ids(range(10)), prepared)
    recipe = Recipe(data="digits", epochs=1, batch=64, lr=1e-3)
    run.write_text("recipe.toml", write_recipe(recipe))
    numbers = {"train_loss": 2.3, "loss": 2.3, "accuracy": 0.1, "lr": 1e-3}
    run.log(step=1, kind="evaluation", epoch=1.0, **numbers)
    return run


def vit_run():
    """A classifier that nobody changes."""
    return once("vit", lambda path: made(path, "classify", "vit", **VIT))


def vit_file(suffix):
    """The same as an exported file."""

    def write(folder):
        folder.mkdir()
        vitreous.export(vit_run(), folder / f"model{suffix}", log=lambda text: None)

    return once(f"vit{suffix}", write) / f"model{suffix}"
