"""Each option of training does what it says."""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image

from vitreous.cli.main import main
from vitreous.data.sources import open_source
from vitreous.errors import ConfigError
from vitreous.run_folder import Run
from vitreous.train.distributed import World
from vitreous.train.recipe import Recipe, find_recipe
from vitreous.train.start import class_weights, prepare, sample_weights, train

SMALL = Recipe(
    model="vit",
    fields=("depth=1", "dim=16", "heads=2", "patch=4"),
    image_size=(8, 8),
    epochs=1,
    batch=256,
    crop="none",
    ema=0.0,
)
ALONE = World(0, 1, torch.device("cpu"))


def last_loss(run):
    return run.metrics()[-1]["train_loss"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(SMALL, tmp_path_factory.mktemp("plain") / "run")


def test_accumulating_equals_the_whole_batch(plain, tmp_path):
    parts = train(replace(SMALL, accumulate=4), tmp_path / "parts")
    assert last_loss(parts) == pytest.approx(last_loss(plain), rel=1e-5)
    for name, value in plain.read_weights().items():
        torch.testing.assert_close(parts.read_weights()[name], value, rtol=1e-3, atol=1e-5)


def test_bfloat16_is_near_and_not_the_same(plain, tmp_path):
    half = train(replace(SMALL, precision="bfloat16"), tmp_path / "half")
    assert last_loss(half) == pytest.approx(last_loss(plain), rel=2e-2)
    assert last_loss(half) != last_loss(plain)
    assert {value.dtype for value in half.read_weights().values()} == {torch.float32}


def test_compiled_learns_the_same(plain, tmp_path):
    compiled = train(replace(SMALL, compile=True), tmp_path / "compiled")
    assert last_loss(compiled) == pytest.approx(last_loss(plain), rel=1e-4)
    assert compiled.read_weights().keys() == plain.read_weights().keys()


def test_patience_stops_a_run_that_does_not_improve(tmp_path):
    """With a rate of nothing, the second evaluation is as good as the first and no better."""
    run = train(replace(SMALL, epochs=30, lr=1e-30, patience=2), tmp_path / "run")
    assert [line["step"] for line in run.metrics() if line["kind"] == "evaluation"] == [5, 10, 15]
    assert len(run.metrics()) == 3


def test_frozen_parts_stay(tmp_path):
    trainer = prepare(
        replace(SMALL, freeze=("blocks.*",)), Run(tmp_path), ALONE, lambda _: None, lambda _: None
    )
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.fit()
    moved = {n for n, v in trainer.model.state_dict().items() if not torch.equal(v, before[n])}
    assert not {name for name in moved if name.startswith("blocks.")}
    assert "head.out.weight" in moved


@pytest.fixture
def uneven(tmp_path):
    """30 of one class, 10 of the other."""
    for name, count in (("many", 30), ("few", 10)):
        (tmp_path / "images" / "train" / name).mkdir(parents=True)
        (tmp_path / "images" / "val" / name).mkdir(parents=True)
        for number in range(count):
            picture = Image.new("L", (8, 8), 5 * number + (3 if name == "few" else 0))
            picture.save(tmp_path / "images" / "train" / name / f"{number}.png")
        picture.save(tmp_path / "images" / "val" / name / "0.png")
    return str(tmp_path / "images")


def test_rare_classes_count_more(uneven):
    source = open_source(uneven)
    names = source.labels.names
    weights = class_weights(replace(SMALL, class_weights="auto"), source, source.splits["train"])
    by_name = dict(zip(names, weights.tolist(), strict=True))
    assert by_name == pytest.approx({"few": 40 / (2 * 10), "many": 40 / (2 * 30)})
    assert class_weights(SMALL, source, source.splits["train"]) is None


def test_balanced_sampling_draws_classes_equally_often(uneven, tmp_path):
    recipe = replace(SMALL, data=uneven, sampler="balanced", batch=8)
    trainer = prepare(recipe, Run(tmp_path / "run"), ALONE, lambda _: None, lambda _: None)
    drawn = [
        trainer.train_set.samples[number].target
        for epoch in range(100)
        for number in trainer.order.epoch(epoch)
    ]
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.03)
    assert sample_weights(SMALL, trainer.train_set.source, trainer.train_set.samples) is None


def test_metrics_of_steps_and_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(replace(SMALL, log_every=2, tensorboard=True), tmp_path / "run")
    steps = [line for line in run.metrics() if line["kind"] == "step"]
    assert [line["step"] for line in steps] == [2, 4]
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4, 5]
    assert events.Scalars("train/loss")[1].value == pytest.approx(steps[0]["loss"])
    accuracy = run.metrics()[-1]["accuracy"]
    assert events.Scalars("val/accuracy")[0].value == pytest.approx(accuracy)


def test_recipes_are_found_by_name(tmp_path):
    assert find_recipe("fine-tune").name == "fine-tune.toml"
    with pytest.raises(ConfigError, match="did you mean 'fine-tune'"):
        find_recipe("finetune")


def test_dry_run_lists_every_bad_file(uneven, tmp_path, capsys):
    from pathlib import Path

    for name in ("many/3.png", "few/5.png"):
        (Path(uneven) / "train" / name).write_bytes(b"no image")
    options = ["train", uneven, "--dry-run", "--epochs=1", f"--out={tmp_path / 'run'}"]
    assert main(options) == 2
    said = capsys.readouterr()
    assert "many/3.png" in said.out
    assert "few/5.png" in said.out
    assert "2 images cannot be read" in said.err
    assert main([*options, "--on-bad=skip"]) == 0


def test_names_and_seed_of_the_run_are_those_of_its_evaluation(tmp_path, capsys):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"digit {number}" for number in range(10)))
    run = train(replace(SMALL, names=str(names), seed=3), tmp_path / "run")
    assert run.read_config().labels.names[7] == "digit 7"
    capsys.readouterr()
    assert main(["evaluate", str(run.path), "--split=val", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] == pytest.approx(run.metrics()[-1]["accuracy"])
    assert "digit 7" in result["classes"]


def test_figures_of_an_evaluation(plain, tmp_path):
    folder = tmp_path / "figures"
    assert main(["evaluate", str(plain.path), f"--figures={folder}"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "calibration.png",
        "classes.png",
        "confusion.png",
    ]
    for path in folder.iterdir():
        with Image.open(path) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20
