"""What of a model is trained, and when: the head on stored features, first the head and then all
of it, low-rank matrices in attention."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from train.test_resume import assert_same_run
from train.tiny import class_folder, final, mask_folder, prepared, vitreous_command

import vitreous
from vitreous.data.augment import Augment, OwnAugment
from vitreous.data.formats import open_source
from vitreous.data.formats.python_data import FROM_PYTHON, from_python
from vitreous.data.loader import TrainSet
from vitreous.engines.world import ALONE
from vitreous.errors import ConfigError
from vitreous.layers.lora import add_lora, merge_lora
from vitreous.run_folder import Run
from vitreous.train import features, trainer
from vitreous.train.open_data import FromPython, stored_recipe
from vitreous.train.recipe import Recipe
from vitreous.train.run import prepare, train

FIELDS = ("patch=4", "dim=16", "depth=2", "heads=2")
BASE = {"model": "vit", "fields": FIELDS, "image_size": (8,), "batch": 16, "epochs": 4, "lr": 0.01}
PROBE = {"freeze": ("!head.*",), "crop": "none", "flip": False}
DROPOUT = {"ema": 0.9, "fields": (*FIELDS, "dropout=0.1"), "crop": "shift"}
HOW = {"probe": PROBE, "unfreeze": {"unfreeze_after": 2, **DROPOUT}, "lora": {"lora": 2, **DROPOUT}}


def recipe_for(how, **changes):
    return Recipe(**{**BASE, "data": str(class_folder()), **HOW[how], **changes})


def fit(out, how, **changes):
    """A run without a report; what was logged."""
    told = []
    settings = {"save_every": 3, "keep": 99, **changes}
    train(recipe_for(how, **settings), out, log=told.append)
    return "\n".join(told)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapted")
    for how in HOW:
        fit(folder / how, how)
    return folder


def state(run, step, part="model"):
    tensors = trainer.checkpoint.load(run / "checkpoints" / f"step-{step:08d}")[0]
    found = {k: v for k, v in tensors.items() if k.startswith(f"{part}.")}
    return {k.removeprefix(f"{part}."): v for k, v in found.items()}


@pytest.mark.parametrize(("how", "step"), [("probe", 12), ("unfreeze", 18), ("lora", 12)])
def test_a_killed_run_ends_with_the_same_bits(runs, tmp_path, how, step):
    out = shutil.copytree(runs / how, tmp_path / "run")
    for path in (out / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    told = []
    train(stored_recipe(Run(out)), out, resume=True, log=told.append)
    assert f"resumed at step {step} of 40" in told
    assert_same_run(runs / how, out)


# The linear probe


def test_stored_features_take_the_steps_of_the_whole_model(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "why_not_stored", lambda *given: "it is forbidden")
    told = fit(tmp_path / "slow", "probe")
    assert "computed in every epoch, because it is forbidden" in told
    fast, slow = final(runs / "probe"), final(tmp_path / "slow")
    assert fast.keys() == slow.keys()
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], rtol=1e-4, atol=1e-5)
    lines = [Run(run).metrics() for run in (runs / "probe", tmp_path / "slow")]
    for one, other in zip(*lines, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    start = state(runs / "probe", 3)
    same = {name for name, value in state(runs / "probe", 40).items() if value.equal(start[name])}
    assert same == {name for name in start if not name.startswith("head.")}


@pytest.mark.parametrize("options", [{}, {"overfit": 8, "epochs": 1}])
def test_each_image_is_read_once(tmp_path, monkeypatch, options):
    """Also those that an overfit repeats."""
    reads, ready = [], prepared(recipe_for("probe", **options), tmp_path)[0]
    kind = type(ready.train_set.source)
    decode = kind.decode

    def noted(source, sample, *given, **named):
        reads.append(sample.id)
        return decode(source, sample, *given, **named)

    monkeypatch.setattr(kind, "decode", noted)
    ready.fit()
    assert len(reads) == len(set(reads)) == (options.get("overfit") or 160 + 20)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"augment": Augment(crop="shift", flip=False)}, "crop = 'shift'"),
        ({"augment": Augment(crop="none", flip=True)}, "flip = True"),
        ({"augment": Augment(crop="none", flip=False, mixup=0.2)}, "mixup = 0.2"),
        ({"own": OwnAugment(lambda image: image)}, "from Python"),
        ({}, ""),
    ],
)
def test_what_changes_an_image_keeps_features_from_being_stored(changes, reason):
    plain = Augment(crop="none", flip=False)
    whole = replace(TrainSet(None, [], None, plain, None, 0), **changes)
    found = features.why_not_stored(Recipe(), whole)
    assert (reason in found) if reason else not found


def test_a_head_on_stored_features_needs_no_more_than_its_epochs_of_a_long_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(trainer, "FEATURE_EPOCHS", 4)
    fit(tmp_path / "run", "probe", epochs=None, time="2h")
    assert Run(tmp_path / "run").metrics()[-1]["epoch"] == 4


def test_a_time_that_is_over_before_all_of_the_model_was_trained(tmp_path):
    told = fit(tmp_path / "short", "unfreeze", epochs=None, time="1s")
    assert "over before all of the model was trained: lower unfreeze_after" in told
    assert Run(tmp_path / "short").metrics()[-1]["step"] == 1


def test_a_segmenter_has_no_head_to_probe_with(tmp_path):
    fields = ("encoder=vit", "encoder.patch=4", "encoder.dim=16", "encoder.depth=1")
    model = ["--model=segmenter", *(f"--set={each}" for each in (*fields, "encoder.heads=2"))]
    words = [*model, "--set=heads=2", "--image-size", "16", "--freeze=!head.*", "--epochs=1"]
    found = vitreous_command("train", mask_folder(), *words, f"--out={tmp_path}/x", check=False)
    assert found.returncode == 2
    assert "to train all but its encoder, pass --freeze 'encoder.*'" in found.stderr


# First the head, then all of it


def test_all_but_the_head_waits(runs):
    """Ten steps are an epoch; the first two train the head."""
    begin, frozen, end = (state(runs / "unfreeze", step) for step in (3, 18, 40))
    for name in begin:
        assert frozen[name].equal(begin[name]) == (not name.startswith("head."))
        assert not end[name].equal(frozen[name])
    steps = state(runs / "unfreeze", 40, "optimizer")
    assert steps["head.out.weight.step"] == 40
    assert steps["patch.weight.step"] == 20
    average = state(runs / "unfreeze", 18, "average")
    assert all(average[name].equal(frozen[name]) for name in begin if not name.startswith("head."))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unfreeze_after": 3, "epochs": 3}, "never trains all"),
        ({"unfreeze_after": 1, "shard": True}, "cannot be used with shard"),
        ({"unfreeze_after": 1, "lora": 4}, "leave out unfreeze_after"),
        ({"lora": -1}, "0 or more"),
        ({"lora": 4, "freeze": ("!head.*",)}, "freezes itself: leave out freeze = '!head"),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(ConfigError, match=message):
        Recipe(**options)


@pytest.mark.parametrize(
    ("how", "options", "message"),
    [
        ("probe", {"unfreeze_after": 1}, "nothing to unfreeze: freeze = '!head"),
        ("lora", {"lora": 10_000}, "far below the model's width, 16"),
    ],
)
def test_options_that_do_not_suit_the_model(how, options, message, tmp_path):
    told = []
    with pytest.raises(ConfigError, match=message):
        prepare(recipe_for(how, **options), Run(tmp_path), ALONE, told.append)
    assert any("has random weights; --weights gives trained ones" in line for line in told)


# LoRA


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("vit", {"image_size": 16, "patch": 4, "dim": 16, "depth": 2, "heads": 2}),
        ("swin", {"image_size": 32, "dim": 8, "depths": (2,), "heads": (2,), "window": 4}),
        (
            "segmenter",
            {"image_size": 16, "encoder": "vit", "heads": 2}
            | {"encoder_fields": {"patch": 4, "dim": 16, "depth": 1, "heads": 2}},
        ),
    ],
)
def test_merged_is_unmerged(name, fields):
    """Also where only some rows of qkv are used, as in the last block."""
    model, plain = (vitreous.create(name, classes=4, **fields).eval() for _ in range(2))
    plain.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, *model.own_size())
    with torch.no_grad():
        before = model(images)
        factors = add_lora(model.core, 3)
        torch.testing.assert_close(model(images), before, rtol=0, atol=0)  # B begins with zeros
        for factor in factors:
            factor.normal_()
        after = model(images)
        assert not torch.allclose(after, before, atol=1e-3)
        plain.load_state_dict(merge_lora(model.state_dict()))
        torch.testing.assert_close(plain(images), after, rtol=1e-4, atol=1e-5)


def test_lora_trains_its_matrices_and_the_head(runs):
    begin, end = state(runs / "lora", 3), state(runs / "lora", 40)
    moved = {name for name in begin if not begin[name].equal(end[name])}
    expected = {name for name in begin if name.startswith("head.") or name[-2:] in (".a", ".b")}
    assert moved == expected
    assert len(moved) == 2 + 2 * 2 * 2  # two blocks with qkv and projection


def test_a_run_with_lora_is_a_plain_model(runs):
    """The weights, those of a checkpoint, and what evaluation during training saw."""
    run = Run(runs / "lora")
    plain = run.read_config().create().state_dict().keys()
    assert run.read_weights().keys() == plain
    assert Run(f"{run.path}@last").read_weights().keys() == plain
    best = max(
        (line for line in run.metrics() if line["kind"] == "evaluation"),
        key=lambda line: (line["accuracy"], -line["step"]),
    )
    found = vitreous.load(run.path).evaluate(open_source(str(class_folder())), "val")
    assert found["loss"] == pytest.approx(best["loss"], rel=1e-4)


def test_a_model_without_attention_has_nothing_to_adapt(tmp_path):
    small = ("block=basic", "stages=[1]", "width=8")
    recipe = Recipe(data=str(class_folder()), model="resnet", fields=small, lora=4)
    with pytest.raises(ConfigError, match="no attention"):
        prepared(recipe, tmp_path)


def test_tags_are_learned_on_stored_features(tmp_path):
    """The other task whose head sees one vector per image."""
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8)
    pairs = [(image, {"bright"} if image.mean() > 127 else {"dark"}) for image in images]
    source, told = from_python({"train": pairs, "val": pairs[:8]}), []
    recipe = recipe_for("probe", data=FROM_PYTHON, epochs=2)
    run = train(recipe, tmp_path / "run", own=FromPython(source), log=told.append)
    assert any("features: computed once" in line for line in told)
    assert run.metrics()[-1]["samples"] == 8
