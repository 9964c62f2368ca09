"""The student of another model's features: any encoder, and which part of the features counts."""

import pytest
import torch
from compare import perturb

import vitreous
from vitreous.models.distil import Predicted
from vitreous.tasks.distil.task import TASK, distance

SMALL = {
    "vit": {"patch": 8, "dim": 16, "depth": 1, "heads": 2},
    "resnet": {"stages": [1], "width": 8, "block": "basic"},
    "deit-ti/16-distilled": {"depth": 1, "dim": 16, "heads": 2},
}


@pytest.mark.parametrize("encoder", SMALL)
def test_every_parameter_learns(encoder):
    changes = {"image_size": 32, "teacher_dim": 5, "encoder_fields": SMALL[encoder]}
    model = perturb(vitreous.create("distil", encoder=encoder, **changes)).train()
    output = model(torch.randn(4, 3, 32, 32))
    assert output.vectors.shape == (4, 5)
    TASK().loss(output, None, torch.randn(4, 5))["loss"].backward()
    unmoved = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not unmoved


def test_what_all_images_share_does_not_count():
    """Neither a large mean, nor a dimension that is larger than the others."""
    generator = torch.Generator().manual_seed(0)
    plain, student = (torch.randn(64, 6, generator=generator) for _ in range(2))
    teacher = plain * torch.tensor([5, 1, 1, 1, 1, 0.5]) + 50
    model = vitreous.create("distil", image_size=32, teacher_dim=6)
    model.measure(teacher)
    wanted = (plain - plain.mean(dim=0)) / plain.std(dim=0, correction=0)
    exact = 1 - torch.cosine_similarity(student, wanted)
    found = Predicted(student, model.teacher_mean, model.teacher_std)
    torch.testing.assert_close(distance(found, teacher), exact, rtol=1e-3, atol=1e-4)
    assert distance(found._replace(vectors=3 * wanted), teacher).abs().max() < 1e-4


def test_a_dead_dimension_is_not_divided_by_nothing():
    model = vitreous.create("distil", image_size=32, teacher_dim=3)
    model.measure(torch.tensor([[1.0, 0, 2], [-1.0, 0, 4]]))
    assert model.teacher_std.tolist() == pytest.approx([1, 2 / 30, 1])
    model.measure(torch.tensor([[1.0, 2, 3]]))
    assert model.teacher_std.isfinite().all()
