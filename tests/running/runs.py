"""Run folders with random weights, for whatever is exported."""

import torch
from compare import perturb

import vitreous
from vitreous.config import to_dict
from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap, NoLabels
from vitreous.models import family_of
from vitreous.run_folder import Run, RunConfig, versions

VIT = {"dim": 48, "depth": 2, "heads": 3, "mlp_dim": 96, "patch": 8}
NAMES = ("red", "green", "blue", "grey", "black")


def made(folder, task, name, *, classes=5, whole=False, resize="shorter", **fields):
    """A run folder with random weights."""
    torch.manual_seed(0)
    given = fields if classes is None else {"classes": classes, **fields}
    model = perturb(vitreous.create(name, **{"image_size": 64, **given}))
    model.name = model.name or name
    labels = LabelMap(NAMES, tuple(range(10, 15))) if classes else NoLabels()
    size = model.own_size() if classes else (64, 64)
    prepared = Preprocess(size, resize=resize, whole=whole, mean=(0.5, 0.4, 0.3), std=(0.2,))
    run = Run(folder)
    run.path.mkdir(parents=True)
    run.write_config(
        RunConfig(
            *(model.name, family_of(model), to_dict(model.config), task, labels, prepared),
            *("shapes", "", versions()),
        )
    )
    run.write_weights(model, model.state_dict())
    return run.path
