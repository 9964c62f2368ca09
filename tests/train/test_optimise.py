"""Groups, learning rates and the average of the weights."""

import pytest
import torch

import vitreous
from vitreous.errors import ConfigError
from vitreous.train.optimizer import Average, freeze, lr_factor, parameter_groups

FIELDS = {"image_size": 16, "patch": 8, "dim": 16, "depth": 3, "heads": 2, "classes": 4}


def rates(model, layer_decay):
    groups = parameter_groups(model, lr=1.0, weight_decay=0.1, layer_decay=layer_decay)
    of = {id(p): name for name, p in model.named_parameters()}
    return {of[id(p)]: (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}


def test_every_parameter_is_in_one_group_and_vectors_do_not_decay():
    model = vitreous.create("vit", **FIELDS)
    found = rates(model, 1.0)
    assert found.keys() == dict(model.named_parameters()).keys()
    assert found["blocks.0.mlp.fc1.weight"] == (1.0, 0.1)
    for name in ("blocks.0.mlp.fc1.bias", "norm.weight", "position.table", "prefix.class_token"):
        assert found[name] == (1.0, 0.0)


def test_rates_fall_towards_the_image():
    found = {name: lr for name, (lr, _) in rates(vitreous.create("vit", **FIELDS), 0.5).items()}
    assert found["head.out.weight"] == found["norm.weight"] == 1.0
    assert [found[f"blocks.{i}.mlp.fc1.weight"] for i in (2, 1, 0)] == [0.5, 0.25, 0.125]
    assert found["patch.weight"] == found["position.table"] == 0.0625


def test_rates_know_about_stages():
    fields = {"image_size": 32, "dim": 8, "depths": (2, 3), "heads": (1, 2), "window": 4}
    found = {n: lr for n, (lr, _) in rates(vitreous.create("swin", **fields), 0.5).items()}
    blocks = [(1, 2), (1, 1), (1, 0), (0, 1), (0, 0)]
    names = [f"stages.{stage}.blocks.{block}.mlp.fc1.weight" for stage, block in blocks]
    assert [found[name] for name in names] == [0.5**i for i in range(1, 6)]
    assert found["stages.1.merge.reduction.weight"] == found[names[2]]
    assert found["patch.weight"] == found["patch_norm.weight"] == 0.5**6
    assert found["head.out.weight"] == found["norm.weight"] == 1.0


@pytest.mark.parametrize(
    ("model", "core"),
    [
        ({"name": "segmenter", "encoder": "resnet", "decoder": "pyramid"}, "encoder"),
        ({"name": "detr", "backbone": "resnet", "dim": 16, "heads": 2}, "backbone"),
    ],
)
def test_rates_fall_only_where_the_image_is_looked_at(model, core):
    """Both have an encoder; in DETR it is no part of what came with other weights."""
    small = {"block": "basic", "stages": (1, 1), "width": 8}
    model = vitreous.create(**model, classes=4, image_size=32, **{f"{core}_fields": small})
    found = rates(model, 0.5)
    inside = {name for name in found if name.startswith(f"{core}.")}
    assert all(found[name][0] == 1.0 for name in found.keys() - inside)
    stages = [f"{core}.stages.{i}.0.conv1.weight" for i in (1, 0)]
    assert [found[name][0] for name in (*stages, f"{core}.root.conv.weight")] == [0.5, 0.25, 0.125]
    assert found.get("queries.weight", (1.0, 0.0)) == (1.0, 0.0)


def test_relative_biases_do_not_decay():
    fields = {"image_size": 32, "dim": 8, "depths": (1,), "heads": (1,), "window": 4}
    found = rates(vitreous.create("swin", **fields), 1.0)
    assert found["stages.0.blocks.0.attention.bias_table"] == (1.0, 0.0)


def test_warm_up_and_cosine():
    values = [lr_factor(step, 100, warmup=0.1, final=0.01) for step in range(101)]
    assert values[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert max(values) == 1.0
    assert values[10:] == sorted(values[10:], reverse=True)
    assert values[100] == pytest.approx(0.01)


def test_the_schedule_runs_for_the_head_and_then_for_all():
    alone = [lr_factor(step, 20, warmup=0.1, final=0.0) for step in range(20)]
    both = [lr_factor(step, 60, warmup=0.1, final=0.0, head_steps=20) for step in range(60)]
    assert both[:20] == alone
    assert both[20:] == [lr_factor(step, 40, warmup=0.1, final=0.0) for step in range(40)]


def test_freezing():
    model = vitreous.create("vit", **FIELDS)
    freeze(model, ["blocks.*", "patch.*"])
    learning = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"prefix", "position", "norm", "head"}
    with pytest.raises(ConfigError, match="matches no parameter"):
        freeze(model, ["block.*"])
    freeze(model, ["*"])
    with pytest.raises(ConfigError, match="freeze"):
        parameter_groups(model, lr=1, weight_decay=0, layer_decay=1)


def test_average_follows_its_formula():
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(0.0)
    average = Average(model, 0.9)
    expected = 0.0
    for step in range(30):
        with torch.no_grad():
            model.weight.fill_(float(step))
        average.update(model, step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert average.state["weight"].item() == pytest.approx(expected, rel=1e-5)
