"""LeJEPA: the loss against its formula, and any encoder inside."""

import math

import numpy as np
import pytest
import torch
from compare import perturb
from scipy.integrate import quad

import vitreous
from vitreous.errors import ConfigError
from vitreous.models.lejepa import Projected
from vitreous.tasks.lejepa.sigreg import random_directions, sigreg
from vitreous.tasks.lejepa.task import TASK, LeJEPAMetrics, fixed_views, invariance

TINY = {"patch": 4, "dim": 16, "depth": 1, "heads": 2}


def make(**fields):
    changes = {"image_size": 16, "encoder_fields": TINY, **fields}
    return perturb(vitreous.create("lejepa", encoder="vit", **changes))


def test_sigreg_is_the_integral():
    """The Epps-Pulley statistic by adaptive integration, direction by direction."""
    x = 0.5 + 1.5 * torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    directions = random_directions(3, 1)[:, :4]
    assert directions.norm(dim=0).tolist() == pytest.approx([1] * 4)
    exact = []
    for along in (x @ directions).T.double().numpy():

        def difference(t, along=along):
            found = np.exp(1j * t * along).mean() - math.exp(-t * t / 2)
            return abs(found) ** 2 * math.exp(-t * t / 2)

        exact.append(len(x) * quad(difference, -3, 3)[0])
    assert sigreg(x, directions).item() == pytest.approx(np.mean(exact), rel=0.01)
    assert sigreg(x, directions, 40).item() == pytest.approx(2 * np.mean(exact), rel=0.01)


def test_sigreg_knows_a_normal_distribution():
    generator = torch.Generator().manual_seed(0)
    normal, directions = torch.randn(512, 8, generator=generator), random_directions(8, 0)
    best = sigreg(normal, directions)
    for other in (0 * normal, normal + 1, normal / 2, normal * 2, normal[:, :1].expand(-1, 8)):
        assert sigreg(other, directions) > 5 * best
    both = sigreg(torch.stack((normal, 0 * normal)), directions)
    torch.testing.assert_close(both[0], best)


def test_its_gradient_leads_away_from_collapse():
    x = torch.nn.Parameter(0.01 * torch.randn(64, 4, generator=torch.Generator().manual_seed(0)))
    optimizer = torch.optim.Adam([x], lr=0.1)
    for step in range(60):
        optimizer.zero_grad()
        sigreg(x, random_directions(4, step)).backward()
        optimizer.step()
    assert 0.7 < x.std(dim=0).min() < x.std(dim=0).max() < 1.3
    assert x.T.corrcoef().fill_diagonal_(0).abs().max() < 0.3


def test_views_that_are_alike_cost_nothing():
    same = torch.randn(5, 1, 4).expand(-1, 3, -1)
    assert invariance(same).tolist() == pytest.approx([0] * 5, abs=1e-12)
    views = torch.tensor([[[0.0, 0.0], [2.0, 0.0]]])
    assert invariance(views).tolist() == [0.5]
    torch.manual_seed(3)
    terms = TASK().loss(Projected(same, 0.25), None)
    torch.manual_seed(3)
    again = TASK().loss(Projected(same, 0.5), None)
    assert terms["sigreg"].item() == pytest.approx(again["sigreg"].item() / 2)


def test_views_of_an_image_go_through_one_encoder():
    model, images = make().eval(), torch.randn(2, 3, 3, 16, 16)
    found = model(images).views
    assert found.shape == (2, 3, 64)
    for view in range(3):
        torch.testing.assert_close(model(images[:, view]).views[:, 0], found[:, view])


@pytest.mark.parametrize("encoder", ["vit", "resnet", "swin", "cpvt-ti/16"])
def test_every_parameter_learns(encoder):
    small = {"vit": TINY, "resnet": {"stages": [1], "width": 8, "block": "basic"}}.get(encoder)
    if encoder == "swin":
        small = {"dim": 8, "depths": [1, 1], "heads": [1, 2], "window": 4}
    elif encoder == "cpvt-ti/16":
        small = {"depth": 2, "dim": 16, "heads": 2}
    changes = {"image_size": 32, "encoder_fields": small}
    model = perturb(vitreous.create("lejepa", encoder=encoder, **changes)).train()
    terms = TASK().loss(model(torch.randn(4, 2, 3, 32, 32)), None)
    sum(terms.values()).backward()
    unmoved = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not unmoved


def test_measured_over_all_images():
    """Batches, their order and processes do not matter."""
    model, images = make().eval(), torch.randn(7, 3, 16, 16)
    views = fixed_views(images)
    assert views.shape == (7, 5, 3, 16, 16)
    assert torch.equal(views[:, 0], images)
    with torch.inference_mode():
        output = TASK().infer(model, images, [])
        whole, one, other = LeJEPAMetrics(), LeJEPAMetrics(), LeJEPAMetrics()
        whole.update(output, None)
        one.update(output[4:], None)
        other.update(output[:4], None)
        expected = whole.compute(whole.counts())
        parts = [one.counts(), LeJEPAMetrics().counts(), other.counts()]
        assert whole.compute(whole.merge(parts)) == pytest.approx(expected)
    weight = model.config.regularisation
    mixed = (1 - weight) * expected["invariance"] + weight * expected["sigreg"]
    assert expected["loss"] == pytest.approx(mixed)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"views": 1}, "views = 1"),
        ({"regularisation": 0.0}, "regularisation = 0.0"),
        ({"encoder": "segmenter-s/16"}, "no model that classifies"),
        ({"classes": 10}, "classes"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words), torch.device("meta"):
        vitreous.create("lejepa", **changes)
