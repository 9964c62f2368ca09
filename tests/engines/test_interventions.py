"""What if a part of a model is switched off: the same as a model whose weights say so."""

import copy
from dataclasses import replace

import pytest
import torch
from families import made

from vitreous.engines.interventions import Interventions, intervening, watched
from vitreous.layers.position import NoPosition
from vitreous.layers.tap import tap

IN_BLOCKS = ("cpvt", "beit", "dinov3", "eva", "pe")
"""Families whose positions act in the blocks or behind one: conditional, relative, rotary."""
ADDED = ("vit", "vit, sines", "deit", "segmenter", "dinov2")
NAMES = (*ADDED, *IN_BLOCKS, "swin", "resnet")


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    model, images = made(request.param)
    return request.param, model, images


@pytest.fixture(scope="module")
def vit():
    return made("vit")


def outputs(model, images, given):
    with torch.inference_mode(), intervening(model, given):
        return tensor_of(model(given.rearranged(images)))


def tensor_of(output):
    return output if isinstance(output, torch.Tensor) else output[0]


@torch.inference_mode()
def plainly(model, images):
    """The model as it is, computed step by step as a tapped one is."""
    with tap(watched(model), lambda name, tensor: None):
        return tensor_of(model(images))


def without(model, *names, columns=slice(None)):
    """The same model with zeros in these parameters."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for name in names:
            other.core.get_parameter(name)[..., columns] = 0
    return other


def without_positions(model):
    core = model.core
    made = type(core)(replace(core.config, position=NoPosition())).train(core.training)
    weights = core.state_dict()
    made.load_state_dict({key: weights[key] for key in weights if not key.startswith("position.")})
    if core is model:
        return made
    other = copy.deepcopy(model)
    setattr(other, model.config.part, made)
    return other


def test_neutral_is_bit_equal(case):
    name, model, images = case
    given = Interventions.of(model)
    assert torch.equal(outputs(model, images, given), plainly(model, images)), name
    assert ("position" in given) == (name != "resnet")
    assert ("position_order" in given) == (name not in ("swin", "resnet"))
    assert ("heads" in given) == (name != "resnet")


def test_nothing_is_left_behind(case):
    _, model, images = case
    with torch.inference_mode():
        before = tensor_of(model(images))
    given = Interventions.of(model)
    for name, value in given.items():
        given[name] = value.flip(0) if name.endswith("_order") else torch.zeros_like(value)
    changed = outputs(model, images, given)
    with pytest.raises(RuntimeError, match="inside"), intervening(model, given):
        raise RuntimeError("inside")
    with torch.inference_mode():
        assert torch.equal(tensor_of(model(images)), before)
    assert not torch.equal(changed, before) or not given
    assert not any(module._forward_hooks for module in model.modules())


def test_every_intervention_changes_something(case):
    name, model, images = case
    plain = outputs(model, images, Interventions.of(model))
    for key in Interventions.of(model):
        given = Interventions.of(model)
        given[key] = given[key].flip(0) if key.endswith("_order") else torch.zeros_like(given[key])
        assert not torch.allclose(outputs(model, images, given), plain), (name, key)


@pytest.mark.parametrize("name", ["vit", "deit", "segmenter"])
def test_positions_off_is_a_table_of_zeros(name):
    model, images = made(name)
    given = Interventions.of(model)
    given["position"] *= 0
    wanted = without(model, "position.table")
    assert torch.equal(outputs(model, images, given), plainly(wanted, images))


@pytest.mark.parametrize("name", [*ADDED, *IN_BLOCKS])
def test_positions_off_is_a_model_without_positions(name):
    """Of position "none", and with the same weights otherwise."""
    model, images = made(name)
    given = Interventions.of(model)
    given["position"] *= 0
    assert torch.equal(outputs(model, images, given), plainly(without_positions(model), images))


def test_positions_of_windows_off_are_tables_of_zeros():
    model, images = made("swin")
    given = Interventions.of(model)
    given["position"] *= 0
    tables = [key for key, _ in model.named_parameters() if key.endswith("bias_table")]
    assert torch.equal(outputs(model, images, given), plainly(without(model, *tables), images))


def test_class_token_zero(vit):
    model, images = vit
    given = Interventions.of(model)
    given["class_token"] *= 0
    wanted = without(model, "prefix.class_token")
    assert torch.equal(outputs(model, images, given), plainly(wanted, images))


def test_a_head_off_is_columns_of_the_projection_that_are_zero(vit):
    model, images = vit
    given = Interventions.of(model)
    given["heads"][1, 2] = 0
    width = model.blocks[1].attention.head_dim
    columns = slice(2 * width, 3 * width)
    wanted = without(model, "blocks.1.attention.projection.weight", columns=columns)
    torch.testing.assert_close(outputs(model, images, given), plainly(wanted, images))


@pytest.mark.parametrize(
    ("part", "layer"), [("attention", "attention.projection"), ("mlp", "mlp.fc2")]
)
def test_attention_or_mlp_off_is_a_last_layer_of_zeros(vit, part, layer):
    model, images = vit
    given = Interventions.of(model)
    given[part][0] = 0
    wanted = without(model, f"blocks.0.{layer}.weight", f"blocks.0.{layer}.bias")
    assert torch.equal(outputs(model, images, given), plainly(wanted, images))


def test_swin_has_attention_in_every_stage():
    model, images = made("swin")
    given = Interventions.of(model)
    assert given["heads"].shape == (4, 4)  # two stages of two blocks, of 2 and 4 heads
    plain = outputs(model, images, given)
    for layer in range(4):
        given = Interventions.of(model)
        given["mlp"][layer] = 0
        assert not torch.allclose(outputs(model, images, given), plain)
    given = Interventions.of(model)
    given["heads"][:2, 2:] = 0  # heads that the first stage does not have
    assert torch.equal(outputs(model, images, given), plain)


@pytest.mark.parametrize("name", [*ADDED[:3], "dinov2", *IN_BLOCKS])
def test_patches_are_a_set_but_for_their_positions(name):
    """With its position, a patch may stand anywhere; the logits stay the same."""
    model, images = made(name)
    given = Interventions.of(model)
    plain = outputs(model, images, given)
    given["patch_order"] = torch.randperm(
        len(given["patch_order"]), generator=torch.Generator().manual_seed(3)
    )
    alone = outputs(model, images, given)
    given["position_order"] = given["patch_order"]
    together = outputs(model, images, given)
    size = plain.abs().max()
    assert (together - plain).abs().max() < 1e-5 * size
    assert (alone - plain).abs().max() > 1e-3 * size


def test_patches_move_and_become_gray(vit):
    model, _ = vit
    given = Interventions.of(model)
    (gh, gw), (ph, pw) = given.grid, given.pixels
    images = torch.arange(gh * gw).reshape(1, 1, gh, gw).float() + 1
    images = images.repeat_interleave(ph, 2).repeat_interleave(pw, 3)
    assert torch.equal(given.rearranged(images), images)
    given["patch_order"] = given["patch_order"].flip(0)
    given["patch_keep"][0] = 0
    moved = given.rearranged(images)[0, 0, ::ph, ::pw].flatten()
    assert moved.tolist() == [0, *range(gh * gw - 1, 0, -1)]
