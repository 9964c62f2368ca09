"""Muon beside torch's own, and what it is given."""

import pytest
import torch
from torch import nn

import vitreous
from vitreous.errors import ConfigError
from vitreous.train.muon import MuonAdamW, hidden_matrices, orthogonalised
from vitreous.train.optimizer import make_optimizer
from vitreous.train.recipe import Recipe


@pytest.mark.parametrize("shape", [(24, 24), (16, 48), (48, 16)])
def test_singular_values_become_about_one(shape):
    """Also those that are far smaller than the largest."""
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.logspace(0, -2, min(shape))
    found = torch.linalg.svdvals(orthogonalised((u * values @ v)[None]))
    assert found.max() < 1.3
    assert found.min() > 0.5


@pytest.mark.parametrize("shape", [(24, 24), (16, 48), (48, 16)])
def test_steps_are_those_of_torch(shape):
    """Which computes in bfloat16: equal to a hundredth of what has changed."""
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    group = {"params": [ours], "lr": 0.02, "weight_decay": 0.1}
    ours_by = MuonAdamW([group], {ours})
    theirs_by = torch.optim.Muon(
        [theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(4):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        ours_by.step()
        theirs_by.step()
    assert (ours - theirs).norm() < 0.02 * (theirs - start).norm()


def test_matrices_of_one_shape_are_stepped_as_each_alone(monkeypatch):
    """Also if not all of them fit into one go, and each at its own learning rate."""
    torch.manual_seed(0)
    start, gradients = torch.randn(5, 6, 4), torch.randn(2, 5, 6, 4)
    rates = [0.1, 0.02, 0.1, 0.05, 0.1]

    def stepped(together):
        monkeypatch.setattr("vitreous.train.muon.TOGETHER", together)
        parameters = [nn.Parameter(each.clone()) for each in start]
        pairs = zip(parameters, rates, strict=True)
        groups = [{"params": [each], "lr": lr, "weight_decay": 0.1} for each, lr in pairs]
        optimizer = MuonAdamW(groups, set(parameters))
        for step in gradients:
            for parameter, gradient in zip(parameters, step, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
        return torch.stack([each.detach() for each in parameters])

    alone = stepped(1)
    assert (alone - start).abs().amax(dim=(1, 2)).min() > 0.01
    for together in (3 * 24, 1 << 19):
        torch.testing.assert_close(stepped(together), alone)


def test_a_convolution_is_a_matrix_of_one_row_for_each_output():
    torch.manual_seed(0)
    kernel = nn.Parameter(torch.randn(8, 4, 3, 3))
    matrix = nn.Parameter(kernel.detach().flatten(1))
    kernel.grad = torch.randn(8, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    matrix.grad = kernel.grad.flatten(1)
    for parameter in (kernel, matrix):
        MuonAdamW([{"params": [parameter], "lr": 0.1, "weight_decay": 0.1}], {parameter}).step()
    assert torch.equal(kernel.flatten(1), matrix)


def test_what_is_no_hidden_matrix_is_left_to_adamw():
    model = vitreous.create("vit-c-mini/2", classes=3)
    names = {name for name, p in model.named_parameters() if p in hidden_matrices(model)}
    assert {"stem.layers.1.conv.weight", "blocks.0.attention.qkv.weight"} <= names
    apart = {"stem.layers.0.conv.weight", "position.generator.weight", "head.out.weight"}
    assert not names & apart
    assert all(dict(model.named_parameters())[name].ndim > 1 for name in names)


def test_the_others_are_stepped_as_by_adamw():
    torch.manual_seed(0)
    fields = {"image_size": 16, "patch": 8, "dim": 16, "depth": 1, "heads": 2, "classes": 4}
    models = [vitreous.create("vit", **fields) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    matrices = {n for n, p in models[0].named_parameters() if p in hidden_matrices(models[0])}
    for model, name in zip(models, ("muon", "adamw"), strict=True):
        optimizer = make_optimizer(Recipe(lr=1e-2, optimizer=name), model)
        model(torch.ones(2, 3, 16, 16)).square().sum().backward()
        optimizer.step()
        assert all(p.grad is not None for p in model.parameters())
    ours, theirs = (dict(model.named_parameters()) for model in models)
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]) == (name not in matrices), name


def test_sharded_matrices_are_refused():
    with pytest.raises(ConfigError, match="needs whole matrices: use adamw"):
        Recipe(optimizer="muon", shard=True)
