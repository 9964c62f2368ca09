"""What is probed is what `Interventions` do; what is random belongs to the image."""

import json

import pytest
import torch
from families import made
from runs import of_digits, vit_file, vit_run
from shared import printed, refused

import vitreous
from vitreous.cli.main import main
from vitreous.engines.interventions import Interventions, intervening
from vitreous.engines.probes import KINDS, Probes
from vitreous.engines.torch import TorchEngine
from vitreous.errors import ConfigError

RANDOM = ("shuffle-patches", "shuffle-positions", "swap-patches=3", "mask-patches=0.5")


def asked(model, images, *probes, seed=0):
    return TorchEngine(model, probes=Probes.of(model, probes, seed))(images)


@pytest.fixture(scope="module")
def vit():
    return made("vit")


FIXED = {
    "no-positions": ("position", ()),
    "no-class-token": ("class_token", ()),
    "no-attention=2": ("attention", 1),
    "no-mlp=1": ("mlp", 0),
    "no-head=2.4": ("heads", (1, 3)),
}


@pytest.mark.parametrize("probe", FIXED)
def test_a_probe_is_an_intervention(vit, probe):
    """On the accelerated model as on the plain one."""
    model, images = vit
    given, (name, place) = Interventions.of(model), FIXED[probe]
    given[name][place] = 0
    with torch.inference_mode(), intervening(model, given):
        wanted = model(images)
    found = asked(model, images, probe)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, asked(model, images), rtol=1e-4)


@pytest.mark.parametrize("name", ["vit", "vit, sines", "dinov2", "cpvt", "beit", "dinov3", "eva"])
def test_what_is_random_depends_on_the_image_alone(name):
    model, _ = made(name)
    images = torch.randn(5, 3, *model.own_size())
    found = asked(model, images, *RANDOM)
    single = torch.cat([asked(model, each[None], *RANDOM) for each in images])
    torch.testing.assert_close(found, single, rtol=1e-5, atol=1e-5)
    backwards = asked(model, images.flip(0), *RANDOM).flip(0)
    torch.testing.assert_close(found, backwards, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, asked(model, images, *RANDOM, seed=1), rtol=1e-3)


@pytest.mark.parametrize("name", ["cpvt", "beit", "dinov3", "eva", "swin"])
def test_no_positions_of_other_kinds(name):
    model, images = made(name)
    given = Interventions.of(model)
    given["position"] *= 0
    with torch.inference_mode(), intervening(model, given):
        wanted = model(images)
    found = asked(model, images, "no-positions")
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, asked(model, images), rtol=1e-3)


@pytest.mark.parametrize("name", ["vit", "cpvt", "beit", "dinov3", "eva"])
def test_patches_with_their_positions_are_a_set(name):
    model, images = made(name)
    same, plain = asked(model, images, "shuffle-tokens"), asked(model, images)
    torch.testing.assert_close(same, plain, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(asked(model, images, "shuffle-patches"), plain, rtol=1e-3)
    with Probes.of(model, ["shuffle-tokens"]).changing(images) as seen:
        assert not torch.equal(seen, images)


def test_how_many_patches_are_masked_and_swapped(vit):
    model, images = vit

    def given(probe):
        return Probes.of(model, [probe]).interventions(images)

    less, more = (given(f"mask-patches={part}")["patch_keep"] for part in (0.25, 0.5))
    assert less.sum(dim=1).tolist() == [12, 12]
    assert more.sum(dim=1).tolist() == [8, 8]
    assert (more <= less).all()
    order = given("swap-patches=3")["patch_order"]
    assert ((order != torch.arange(16)).sum(dim=1) == 6).all()
    assert torch.equal(order.gather(1, order), torch.arange(16).expand(2, -1))


def test_none_changes_nothing(vit):
    model, _ = vit
    assert Probes.of(model, ["none"]) is None
    assert vitreous.load(vit_run(), probe="none").probes is None


REFUSED = [
    ("vit", "shufle-patches", "did you mean 'shuffle-patches'"),
    ("vit", "gray", r"the probes are shuffle-patches, .*no-head=BLOCK\.HEAD"),
    ("vit", "no-attention", "write no-attention=BLOCK"),
    ("vit", "no-positions=3", "write no-positions"),
    ("vit", "no-mlp=0", "no block 0; the model has 2 blocks, counted from 1"),
    ("vit", "no-head=2.5", "no head 5; block 2 has 4 heads, counted from 1"),
    ("vit", "no-head=2", r"a block and a head, like 3\.1"),
    ("vit", "mask-patches=half", "a part of the patches"),
    ("vit", "swap-patches=9", "from 1 to 8 of 16 patches"),
    ("vit, sines", "no-class-token", "has no class token"),
    ("resnet", "no-head=1.1", "has no blocks with attention"),
    ("resnet", "shuffle-positions", "has no positions"),
    ("swin", "shuffle-positions", "has positions inside windows, which have no order"),
]


@pytest.mark.parametrize(("name", "probe", "words"), REFUSED)
def test_what_a_model_does_not_have_is_refused(name, probe, words):
    model, _ = made(name)
    with pytest.raises(ConfigError, match=words) as error:
        Probes.of(model, [probe])
    assert f"probe = {probe!r}" in str(error.value)


def test_a_resnet_has_patches_to_shuffle():
    model, images = made("resnet")
    assert not torch.allclose(asked(model, images, "shuffle-patches"), asked(model, images))


def test_images_of_another_size_are_refused():
    model, _ = made("cpvt")
    with pytest.raises(ConfigError, match="an image is 40x40 here, and the patches of 32x32"):
        asked(model, torch.zeros(1, 3, 40, 40), "shuffle-patches")


def test_engines_that_cannot_are_refused(vit):
    with pytest.raises(ConfigError, match=r"onnxruntime runs a graph.*leave engine out"):
        vitreous.load(vit_run(), engine="onnxruntime", probe="no-mlp=1")
    with pytest.raises(ConfigError, match=r"is a graph.*give its run folder"):
        vitreous.load(vit_file(".onnx"), probe="no-mlp=1")
    with pytest.raises(ConfigError, match="leave merge out"):
        vitreous.load(vit_run(), merge=2, probe="no-mlp=1")
    with pytest.raises(ConfigError, match="give probe, too"):
        vitreous.load(vit_run(), probe_seed=3)
    with pytest.raises(ConfigError, match="leave probe out to look into the model"):
        vitreous.load(vit_run(), probe="no-mlp=1").explain(torch.zeros(3, 64, 64))
    assert vitreous.load(vit_run(), engine="auto", probe="no-mlp=1").engine.name == "torch"


def test_evaluate_and_predict_say_and_do_it(tmp_path):
    run = of_digits(tmp_path / "run").path
    probes = ("shuffle-patches", "no-head=1.2")
    result = json.loads(printed("evaluate", run, "--json", "--probe", *probes))
    assert (result["probe"], result["probe_seed"]) == ([*probes], 0)
    assert "verdicts" not in result
    again = vitreous.evaluate(run, batch=7, probe=probes)
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-6)
    assert vitreous.evaluate(run, probe=probes, probe_seed=1)["loss"] != again["loss"]
    text = printed("evaluate", run, "--probe", "no-positions")
    assert "probe: no-positions\n" in text
    assert "seed" not in text
    plain, probed = (vitreous.load(run, probe=each) for each in (None, "no-mlp=1"))
    image = torch.rand(1, 8, 8)
    assert plain(image).to_dict() != probed(image).to_dict()
    assert "there is no block 2" in refused("predict", run, "x.png", "--probe", "no-mlp=2")


def test_the_help_names_every_probe(capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    text = capsys.readouterr().out
    assert not [name for name in KINDS if name not in text]
