"""An accelerated model is the same model: parameters, hooks, and up to rounding outputs; and what
somebody puts in place of a layer is used."""

import copy
import pickle

import pytest
import torch
from families import MODELS, made, tensors
from torch import nn

from vitreous.engines import convolution
from vitreous.engines.accelerate import accelerate, plain
from vitreous.engines.linear import FastLinear, training_step

WATCHED = (nn.Linear, nn.Conv2d, nn.LayerNorm)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Small convolutions are computed in one pass, too."""
    monkeypatch.setattr(convolution, "WORK", 1)


def apart(found, wanted):
    pairs = zip(tensors(found), tensors(wanted), strict=True)
    return max(((one - other).norm() / other.norm()).item() for one, other in pairs)


def kinds(model):
    return [type(module) for module in model.modules()]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_model(name):
    model, images = made(name)
    before, state = kinds(model), {k: v.clone() for k, v in model.state_dict().items()}

    def same_state(other):
        found = other.state_dict()
        assert list(found) == list(state)
        assert all(torch.equal(found[key], value) for key, value in state.items())

    with torch.no_grad():
        wanted = model(images)
        assert accelerate(model) is model
        same_state(model)
        inside = kinds(model)
        assert inside != before
        found = model(images)
        assert apart(found, wanted) < 2e-6
        same_state(model)
        assert kinds(accelerate(model)) == inside
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert kinds(other) == inside
            assert apart(other(images), found) == 0
        assert kinds(plain(model)) == before
        same_state(model)
        assert apart(model(images), wanted) == 0


@pytest.mark.parametrize("training", [False, True], ids=["predict", "train"])
@pytest.mark.parametrize("fast", [False, True], ids=["plain", "accelerated"])
@pytest.mark.parametrize("name", MODELS)
def test_hooks_of_all_layers_fire(name, fast, training):
    model, images = made(name)
    if fast:
        accelerate(model)
    with torch.set_grad_enabled(training), training_step():
        wanted = model.train(training)(images)
    layers = {k: each for k, each in model.named_modules() if isinstance(each, WATCHED)}
    seen = set()
    for key, layer in layers.items():
        layer.register_forward_hook(lambda module, given, found, key=key: seen.add(key))
    torch.manual_seed(0)
    with torch.set_grad_enabled(training), training_step():
        found = model(images)
    # Of its groups of queries one predicts.
    unread = {key for key in layers if name == "rf-detr" and key.startswith("proposals.1.")}
    assert set(layers) - seen == (set() if training else unread)
    if not training:
        assert apart(found, wanted) < 5e-6


def test_a_layer_in_place_of_another_is_used():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    for name in ("vit", "beit", "siglip"):
        for part in ("attention.qkv", "attention.projection", "mlp.fc1", "mlp.fc2"):
            model, images = made(name)
            accelerate(model)
            owner, _, last = f"blocks.1.{part}".rpartition(".")
            old = model.get_submodule(f"{owner}.{last}")
            new = Doubled(old.in_features, old.out_features, bias=old.bias is not None)
            new.load_state_dict(old.state_dict())
            with torch.no_grad():
                before = model(images)
                setattr(model.get_submodule(owner), last, new)
                after = model(images)
                assert apart(after, before) > 1e-3, (name, part)
                assert apart(accelerate(model)(images), after) == 0
                assert type(new) is Doubled


def test_parametrized_layers_are_accelerated_too():
    from vitreous.layers.lora import add_lora

    model, images = made("vit")
    for factor in add_lora(model, 4):
        nn.init.normal_(factor, std=0.1)
    with torch.no_grad():
        wanted = model(images)
        assert apart(accelerate(model)(images), wanted) < 2e-6
        assert isinstance(model.blocks[0].attention.qkv, FastLinear)


PEFT = ("vit", "dinov3", "siglip", "swin", "detr", "segmenter")


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "accelerated"])
@pytest.mark.parametrize("name", PEFT)
def test_peft_adapts(name, fast):
    peft = pytest.importorskip("peft")
    model, images = made(name)
    if fast:
        accelerate(model)
    config = peft.LoraConfig(r=2, target_modules=["qkv"], init_lora_weights=False)
    with torch.no_grad():
        before = model(images)
        adapted = peft.get_peft_model(model, config).eval()
        assert apart(adapted(images), before) > 1e-4
        with adapted.disable_adapter():
            assert apart(adapted(images), before) < 5e-6


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "accelerated"])
@pytest.mark.parametrize("name", PEFT)
def test_torchao_quantises(name, fast):
    quantization = pytest.importorskip("torchao.quantization")
    model, images = made(name)
    if fast:
        accelerate(model)
    with torch.no_grad():
        before = model(images)
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
        assert 1e-5 < apart(model(images), before) < 0.2
