"""--recompute and --checkpoint keep less and change nothing; bfloat16 only where it is a gain."""

import contextlib
from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from vitreous.engines.accelerate import accelerate
from vitreous.engines.linear import training_step
from vitreous.engines.world import ALONE
from vitreous.errors import ConfigError
from vitreous.models import create
from vitreous.train import memory, plan
from vitreous.train.memory import cheap, checkpoint_blocks, recompute_cheap, recomputing
from vitreous.train.recipe import Recipe, continued
from vitreous.train.rehearsal import dry_run

SMALL_VIT = {"patch": 4, "dim": 32, "depth": 2, "heads": 2, "image_size": 16}
MODELS = {
    "vit": ("vit", {**SMALL_VIT, "drop_path": 0.3}),
    "wide": ("vit", {**SMALL_VIT, "dim": 256}),  # where linear layers may be oneDNN's
    "dropout": ("vit", {**SMALL_VIT, "dropout": 0.2, "activation": "silu-gated"}),
    "conditional": ("cpvt-ti/16", {**SMALL_VIT, "norm": "post"}),
    "swin": (
        "swin-t",
        {"image_size": 36, "dim": 8, "depths": (2, 2), "heads": (2, 2), "window": 4},
    ),
    "batch norm": ("resnet", {"image_size": 32, "block": "basic", "stages": (1, 1), "width": 8}),
    "decoder": (
        "segmenter",
        {
            "image_size": 16,
            "heads": 2,
            "encoder": "vit",
            "encoder_fields": {"patch": 4, "dim": 16, "depth": 1, "heads": 2},
        },
    ),
}


def step(name, how, precision=None):
    """The gradients and buffers behind one step, and how many bytes its backward needed."""
    family, fields = MODELS[name]
    torch.manual_seed(0)
    model = accelerate(create(family, **fields).train())
    if how == "checkpoint":
        checkpoint_blocks(model)
    if how == "recompute":
        recompute_cheap(model)
    size = model.own_size()
    images, kept = torch.randn(4, 3, *size), {}

    weights = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=precision is not None))
        plain = saved_tensors_hooks(keep, lambda tensor: tensor)
        stack.enter_context(recomputing(keep) if how == "recompute" else plain)
        stack.enter_context(training_step())
        output = model(images)
    output.float().square().mean().backward()
    state = dict(model.named_buffers())
    state |= {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    return state, sum(kept.values())


@pytest.mark.parametrize("how", ["recompute", "checkpoint"])
@pytest.mark.parametrize("precision", [None, "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_the_step_has_the_same_bits(name, precision, how):
    plain, needed = step(name, "", precision)
    other, less = step(name, how, precision)
    assert plain.keys() == other.keys()
    assert all(torch.equal(plain[key], other[key]) for key in plain)
    if name in ("vit", "swin") and precision is None:
        assert less < 0.85 * needed


def test_memory_that_is_used_again_is_not_taken_for_what_was_there(monkeypatch):
    """A cheap tensor that nobody needs goes, and then others may be where it was."""
    monkeypatch.setattr(memory, "_memory", lambda tensor: 0)
    x, weight = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with recomputing():
        cheap(torch.sin, x)
        output = (2 * x) @ weight
    output.sum().backward()
    expected = 2 * x.detach().sum(0)[:, None].expand(4, 4)
    torch.testing.assert_close(weight.grad, expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [("compile", "recompute"), ("compile", "checkpoint"), ("checkpoint", "recompute")],
)
def test_what_does_not_go_together(one, other):
    with pytest.raises(ConfigError, match=f"{one} .* leave out {other}"):
        Recipe(**{one: True, other: True})


@pytest.mark.parametrize(
    ("able", "dim", "expected"),
    [(True, 192, "bfloat16"), (True, 64, "float32"), (False, 192, "float32")],
)
def test_bfloat16_where_the_cpu_is_made_for_it(monkeypatch, able, dim, expected):
    monkeypatch.setattr(plan, "has_bfloat16", lambda: able)
    with torch.device("meta"):
        model = create("vit", **{**SMALL_VIT, "dim": dim})
    said = []
    assert plan.choose_precision(model, ALONE, said.append) == expected
    assert len(said) == able


def test_a_resumed_run_keeps_its_precision():
    """Also one from before `auto`, whatever the machine is made for."""
    for stored in ("float32", "bfloat16"):
        assert continued(Recipe(precision=stored), Recipe()).precision == stored
    with pytest.raises(ConfigError, match="precision = 'bfloat16', but the run to resume has"):
        continued(Recipe(precision="float32"), Recipe(precision="bfloat16"))


def test_a_dry_run_says_how_much_less_is_needed():
    fields = ("patch=2", "dim=32", "depth=4", "heads=2")
    recipe = Recipe("digits", model="vit", fields=fields, image_size=(8,), batch=64, epochs=1)
    needed = [
        dry_run(replace(recipe, **how), lambda text: None).bytes_needed
        for how in ({}, {"recompute": True}, {"checkpoint": True})
    ]
    assert needed[0] > 1.2 * needed[1] > 1.2 * needed[2]
