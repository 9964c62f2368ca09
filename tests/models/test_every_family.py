"""What must hold for a model of any family."""

import copy
import pickle

import pytest
import torch
from compare import perturb, relative_error
from families import MODELS, made, tensors

from vitreous.layers.tap import tap

PRETRAINING = ("mae", "lejepa", "student")

each = pytest.mark.parametrize("name", MODELS)
predicting = pytest.mark.parametrize("name", [name for name in MODELS if name not in PRETRAINING])


def rows(model, images):
    """What the model gives, as one tensor with a row for each image."""
    found = [value for name, value in model.outputs(images).items() if name != "places"]
    return torch.cat([value.flatten(1) for each in found for value in tensors(each)[:1]], dim=1)


@each
def test_every_parameter_learns(name):
    """Else DistributedDataParallel would wait for a gradient that never comes."""
    model, images = made(name)
    found = [each for each in tensors(model.train()(images)) if each.requires_grad]
    sum(
        (each * torch.linspace(-1, 1, each.numel()).view_as(each)).sum() for each in found
    ).backward()
    learned = {key for key, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert not {key for key, p in model.named_parameters() if p.requires_grad} - learned
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@torch.no_grad()
@each
def test_a_batch_is_its_images_and_a_tap_changes_nothing(name):
    model, images = made(name)
    together = rows(model, images)
    singles = torch.cat([rows(model, image[None]) for image in images])
    assert relative_error(singles, together) < 1e-5
    with tap(dict(model.named_modules()), lambda name, value: None):
        assert relative_error(rows(model, images), together) < 1e-5
    assert torch.equal(rows(model, images), together)


@torch.no_grad()
@predicting
def test_it_exports_for_any_batch_and_compiles_as_one_graph(name):
    """Nothing in it depends on data, and nothing of the tracing is kept."""
    model, images = made(name)
    wanted, more = tensors(model(images)), torch.cat((images, images.flip(0), images[:1]))
    shapes = ({0: torch.export.Dim("b")},)
    program = torch.export.export(model, (images,), dynamic_shapes=shapes).module()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for run, batch in ((program, more), (compiled, images)):
        for ours, theirs in zip(tensors(run(batch)), tensors(model(batch)), strict=True):
            assert relative_error(ours, theirs) < 1e-5
    assert all(map(torch.equal, tensors(model(images)), wanted))
    torch.compiler.reset()


@torch.no_grad()
@each
def test_copies_and_pickles(name):
    """Spawned workers and torch.save of a whole model need it."""
    model, images = made(name)
    wanted = rows(model, images)
    again, twin = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    for other in (again, twin):
        assert other.config == model.config
        assert torch.equal(rows(other, images), wanted)
    assert not torch.equal(rows(perturb(twin, seed=3), images), wanted), "weights of its own"
    twin.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(rows(twin, images), wanted)


@predicting
def test_bfloat16(name):
    model, images = made(name)
    with torch.no_grad():
        exact = tensors(model(images))[0]
        half = tensors(copy.deepcopy(model).to(torch.bfloat16)(images.bfloat16()))[0]
    assert half.dtype == torch.bfloat16
    assert half.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        sum(each.float().sum() for each in tensors(model.train()(images))).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    if name != "rf-detr":  # whose proposals come in another order
        assert relative_error(half.float(), exact) < 0.05
