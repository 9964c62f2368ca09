"""Each option of training does what it says."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from shared import printed
from train.tiny import class_folder, prepared
from train.undrawn import undrawn

import vitreous
from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.data.loader import Batch, train_batches
from vitreous.errors import ConfigError, DataError, VitreousError
from vitreous.models.vit import ViT
from vitreous.run_folder import Run
from vitreous.tasks.classify.task import Classify
from vitreous.train.open_data import open_named, open_usable, stored_recipe
from vitreous.train.recipe import Recipe, find_recipe
from vitreous.train.run import train
from vitreous.train.teacher import sample_weights
from vitreous.train.trainer import TrainingError

SMALL = Recipe(
    model="vit",
    fields=("depth=1", "dim=16", "heads=2", "patch=4"),
    image_size=(8, 8),
    epochs=1,
    batch=256,
    crop="none",
    ema=0.0,
)


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


def test_a_batch_that_does_not_fit_is_computed_in_parts(plain, tmp_path, monkeypatch):
    """As on a GPU whose memory takes a quarter of it; what is learned is the same."""
    embed, said = ViT.embed, []

    def limited(self, images):
        if self.training and len(images) > 64:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return embed(self, images)

    monkeypatch.setattr(ViT, "embed", limited)
    parts = train(SMALL, tmp_path / "parts", log=said.append)
    assert last_loss(parts) == pytest.approx(last_loss(plain), rel=1e-5)
    assert sum("does not fit into memory" in line for line in said) == 2
    assert stored_recipe(parts).accumulate == 4
    monkeypatch.setattr(
        ViT, "embed", lambda self, images: limited(self, images.repeat(65, 1, 1, 1))
    )
    with pytest.raises(TrainingError, match="does not fit into the memory of cpu: give"):
        train(replace(SMALL, batch=3), tmp_path / "odd")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": "vit-c-mini/2", "fields": ()}, "batch norm then normalises each part"),
        ({"method": "lejepa", "model": None, "fields": ()}, "lejepa compares all images"),
    ],
)
def test_what_depends_on_all_of_a_batch_is_not_computed_in_parts(
    changes, why, tmp_path, monkeypatch
):
    """The error says why, and what to do instead; nothing is changed in silence."""
    trainer, *_ = prepared(replace(SMALL, **changes), tmp_path)

    def full(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.learner, "compute", full)
    trainer.order.stop = 1
    batch = next(train_batches(trainer.train_set, trainer.order, 0))
    with pytest.raises(TrainingError, match=why) as caught:
        trainer.fitting_step(0, batch)
    assert "--batch" in str(caught.value)
    assert trainer.recipe.accumulate == 1


def test_accumulating_with_batch_norm_is_said(tmp_path):
    recipe = replace(SMALL, model="vit-c-mini/2", fields=(), accumulate=2)
    said = prepared(recipe, tmp_path)[2]
    assert "batch norm normalises each of the parts by itself" in said


def test_bfloat16_is_near_and_not_the_same(plain, tmp_path):
    half = train(replace(SMALL, precision="bfloat16"), tmp_path / "half")
    assert last_loss(half) == pytest.approx(last_loss(plain), rel=2e-2)
    assert last_loss(half) != last_loss(plain)
    assert {value.dtype for value in half.read_weights().values()} == {torch.float32}


def test_compiled_learns_the_same(plain, tmp_path, monkeypatch):
    """Without the C++ that Inductor would write and compile for the same graphs, which takes most
    of the time and is torch's own."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled = train(replace(SMALL, compile=True), tmp_path / "compiled")
    assert last_loss(compiled) == pytest.approx(last_loss(plain), rel=1e-4)
    assert compiled.read_weights().keys() == plain.read_weights().keys()


def test_patience_stops_a_run_that_does_not_improve(tmp_path):
    """With a rate of nothing, the second evaluation is as good as the first and no better."""
    run = train(replace(SMALL, epochs=30, lr=1e-30, patience=2), tmp_path / "run")
    assert [line["step"] for line in run.metrics() if line["kind"] == "evaluation"] == [5, 10, 15]
    assert len(run.metrics()) == 3


def test_patience_looks_at_the_smoothed_metric(tmp_path):
    """One lucky evaluation does not make all that follow look like no improvement."""
    trainer, *_ = prepared(SMALL, tmp_path)
    waited = []
    for value in (0.5, 0.7, 0.6, 0.64, 0.66, 0.66, 0.5, 0.5):
        trainer.validation._wait(trainer.progress, value)
        waited.append(trainer.progress.waited)
    assert waited == [0, 0, 1, 0, 0, 0, 1, 2]


def test_multi_scale_gives_each_step_a_size_of_its_own(tmp_path):
    small = {"model": "detr-small", "image_size": (64, 64), "batch": 4, "crop": "none", "epochs": 1}
    recipe = Recipe(data="shapes:16", task="detect", **small, multi_scale=(0.5, 1.5))
    trainer, *_ = prepared(recipe, tmp_path)
    batch = Batch(torch.rand(2, 3, 64, 64), [], [], [])
    sizes = [tuple(trainer.learner.rescaled(step, batch).images.shape[2:]) for step in range(20)]
    assert sizes == [
        tuple(trainer.learner.rescaled(step, batch).images.shape[2:]) for step in range(20)
    ]
    pixels = trainer.model.levels((64, 64))[-1].pixels[0]
    assert len(set(sizes)) > 2
    assert all(32 <= h == w <= 96 and h % pixels == 0 for h, w in sizes)
    listed = trainer.learner.rescaled(0, batch._replace(images=list(batch.images)))
    assert {tuple(each.shape[1:]) for each in listed.images} == {sizes[0]}


@pytest.mark.parametrize("given", [(0.0, 1.0), (1.2, 0.8), (1.0, 9.0)])
def test_multi_scale_out_of_range(given):
    with pytest.raises(ConfigError, match="multi_scale"):
        Recipe(multi_scale=given)


def test_multi_scale_is_for_boxes(tmp_path):
    with pytest.raises(ConfigError, match=r"multi_scale = .* is for the task"):
        train(replace(SMALL, multi_scale=(0.5, 1.5)), tmp_path / "run")


def test_frozen_parts_stay(tmp_path):
    trainer, *_ = prepared(replace(SMALL, freeze=("blocks.*",)), tmp_path)
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
    learned = source.splits["train"]
    task = Classify.for_training(replace(SMALL, class_weights="auto"), source, learned)
    weights = task.class_weights
    by_name = dict(zip(names, weights.tolist(), strict=True))
    assert by_name == pytest.approx({"few": 40 / (2 * 10), "many": 40 / (2 * 30)})
    assert Classify.for_training(SMALL, source, learned).class_weights is None


def test_balanced_sampling_draws_classes_equally_often(uneven, tmp_path):
    recipe = replace(SMALL, data=uneven, sampler="balanced", batch=8)
    trainer, *_ = prepared(recipe, tmp_path / "run")
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
    result = json.loads(printed("evaluate", run.path, "--split=val", "--json"))
    assert result["accuracy"] == pytest.approx(run.metrics()[-1]["accuracy"])
    assert "digit 7" in result["classes"]


def test_figures_of_an_evaluation(plain, tmp_path):
    folder = tmp_path / "figures"
    assert main(["evaluate", str(plain.path), f"--figures={folder}"]) == 0
    drawn = {f"{name}.png" for name in ("calibration", "classes", "confusion")}
    assert {path.name for path in folder.iterdir()} == drawn
    for path in folder.iterdir():
        with Image.open(path) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20


def test_a_run_that_stopped_early_says_so_and_goes_on_only_when_made_longer(tmp_path):
    said = []
    recipe = replace(SMALL, epochs=30, lr=1e-30, patience=2)
    train(recipe, tmp_path / "run", log=said.append)
    assert any("stopped early: no improvement in 2 evaluations" in line for line in said)
    run = train(recipe, tmp_path / "run", resume=True, log=said.append)
    assert len(run.metrics()) == 3
    assert "this run is finished" in said[-1]
    train(replace(recipe, epochs=31), tmp_path / "run", resume=True)
    assert len(run.metrics()) == 5  # and stops early once more


def test_everything_but_the_head_rests(tmp_path):
    recipe = replace(SMALL, model="resnet-18", fields=(), freeze=("!head.*",))
    trainer, *_ = prepared(recipe, tmp_path)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.fit()
    after = trainer.model.state_dict()
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"head.out.weight", "head.out.bias"}  # nor do running means move


@pytest.mark.parametrize(
    "change",
    [{"freeze": ("blokcs.*",)}, {"mixup": -1.0}, {"crop": "none of them"}, {"accumulate": 7}],
)
def test_what_fails_at_the_start_leaves_nothing(tmp_path, change):
    with pytest.raises(VitreousError):
        train(replace(SMALL, **change), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    train(SMALL, tmp_path / "run")


def test_out_that_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigError, match=r"--out .*: cannot be written: "):
            train(SMALL, out)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "vit-ti/16"}, "model = 'vit-ti/16', but the run"),
        ({"data": "shapes"}, "data = 'shapes', but the run"),
        ({"ema": 0.5}, "ema = 0.5"),
    ],
)
def test_a_run_goes_on_as_it_was_begun(plain, change, words):
    files = ("config.json", "recipe.toml", "model.safetensors")
    before = [(plain.path / name).read_bytes() for name in files]
    with pytest.raises(ConfigError, match=words):
        train(replace(SMALL, epochs=2, **change), plain.path, resume=True)
    assert [(plain.path / name).read_bytes() for name in files] == before


def test_classes_that_changed_meanwhile_stop_a_resume(uneven, tmp_path):
    recipe = replace(SMALL, data=uneven, batch=8)
    run = train(recipe, tmp_path / "run")
    before = (run.path / "config.json").read_bytes()
    (Path(uneven) / "train" / "more").mkdir()
    for number in range(2):
        Image.new("L", (8, 8)).save(Path(uneven) / "train" / "more" / f"{number}.png")
    with pytest.raises(DataError, match=r"few, many, more.* few, many"):
        train(replace(recipe, epochs=2), run.path, resume=True)
    assert (run.path / "config.json").read_bytes() == before


def test_a_resume_needs_no_weights_to_start_from_and_no_working_folder(
    plain, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(plain.path, tmp_path / "start")
    recipe = replace(SMALL, model=None, fields=(), weights="start")
    run = train(recipe, tmp_path / "run")
    shutil.rmtree(tmp_path / "start")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(replace(recipe, weights=None, epochs=2), run.path, resume=True)
    assert len(run.metrics()) == 2


def test_weights_of_a_run_with_options_of_ones_own(plain, tmp_path):
    recipe = replace(SMALL, model=None, fields=(), image_size=(), weights=str(plain.path))
    changed = replace(recipe, resize="square", interpolation="bicubic", mean=(0.25,))
    preprocess = train(changed, tmp_path / "run").read_config().preprocess
    assert (preprocess.resize, preprocess.interpolation) == ("square", "bicubic")
    assert preprocess.mean == (0.25,)
    assert preprocess.std == plain.read_config().preprocess.std
    with pytest.raises(VitreousError, match=r"does not fit|missing"):
        train(replace(recipe, model="vit-ti/16", image_size=(32, 32)), tmp_path / "other")


def test_one_class_and_classes_without_images_are_refused(uneven, tmp_path):
    for number in range(10):
        (Path(uneven) / "train" / "few" / f"{number}.png").write_bytes(b"no image")
    recipe = replace(SMALL, data=uneven, on_bad="skip", batch=8)
    with pytest.raises(DataError, match="no image in train that can be used of the class few"):
        train(recipe, tmp_path / "run")
    for split in ("train", "val"):
        shutil.rmtree(Path(uneven) / split / "few")
    with pytest.raises(DataError, match="only the class 'many'"):
        train(recipe, tmp_path / "run")


def test_steps_that_are_left_out_are_said_and_do_not_count(tmp_path, monkeypatch):
    whole, calls = Classify._cross_entropy, iter(range(100))

    def sometimes(self, logits, targets):
        loss = whole(self, logits, targets)
        return loss * float("nan") if next(calls) == 1 else loss

    monkeypatch.setattr(Classify, "_cross_entropy", sometimes)
    said = []
    run = train(replace(SMALL, skip_nonfinite=1), tmp_path / "run", log=said.append)
    assert any(line.startswith("skipped step 2: loss nan") for line in said)
    skipped, evaluation = run.metrics()
    assert skipped["kind"] == "skipped"
    assert len(skipped["samples"]) == 256
    assert evaluation["train_loss"] > 0
    assert evaluation["train_loss"] == evaluation["train_loss"]


def test_a_batch_larger_than_the_data_is_said(uneven, tmp_path):
    said = []
    recipe = replace(SMALL, data=uneven, batch=64, accumulate=3)
    with pytest.raises(ConfigError, match="choose --batch as a multiple of 3"):
        train(recipe, tmp_path / "run")
    train(replace(recipe, batch=63), tmp_path / "run", log=said.append)
    assert any(re.search("batch: 39, not 63.* 40 ", line) for line in said)


def test_colours_need_colours(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "five" / name).mkdir(parents=True)
        for number in range(4):
            array = np.full((8, 8, 5), 10 * number, np.uint8)
            path = tmp_path / "five" / name / f"{number}.tif"
            tifffile.imwrite(path, array, photometric=1, planarconfig="contig")
    recipe = replace(SMALL, data=str(tmp_path / "five"), batch=2)
    train(recipe, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"jitter = 0\.3 needs images of 1 or 3 channels"):
        train(replace(recipe, jitter=0.3), tmp_path / "other")


def test_overfit_says_whether_the_images_are_known_by_heart(tmp_path, capsys):
    few = ["train", "digits", "--overfit=8", "--model=vit", "--image-size", "8", "--flip=False"]
    few += [f"--set={field}" for field in SMALL.fields]
    main([*few, "--epochs=3", "--lr=5e-3", f"--out={tmp_path / 'a'}"])
    said = capsys.readouterr()
    assert "has fitted its 8 images" in said.out
    assert "8 images, 50 times in each epoch" in said.out + said.err
    assert "the images are learnt" in said.err  # and that is the end, before the last epoch
    rows = [json.loads(row) for row in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert max(row["epoch"] for row in rows) < 3
    main([*few, "--epochs=1", "--lr=1e-9", f"--out={tmp_path / 'b'}"])
    assert "has not fitted its 8 images (accuracy 0." in capsys.readouterr().out


def test_overfit_takes_images_of_all_classes():
    source = open_usable(replace(SMALL, data=str(class_folder()), overfit=4), lambda text: None)
    classes = {sample.target for sample in source.splits["train"]}
    assert len(source.splits["train"]) == len(classes) == 4


def ids(source):
    return {split: {sample.id for sample in each} for split, each in source.splits.items()}


def test_a_fraction_is_learned_from_and_the_rest_is_measured_as_before(tmp_path, capsys):
    """Also by the baselines of a later evaluation; and a resumed run keeps it."""
    words = ["train", str(class_folder()), "--fraction=0.1", "--model=vit", "--image-size", "8"]
    words += [*(f"--set={field}" for field in SMALL.fields), "--epochs=1", "--crop=none"]
    note = "train: 16 of 160 images (fraction 0.1, seed 0)"
    assert main([*words, "--dry-run", f"--out={tmp_path / 'dry'}"]) == 0
    said = capsys.readouterr()
    assert note in said.out + said.err
    assert "56 images, all can be read" in said.out  # none of the others is looked at
    with undrawn():
        assert main([*words, f"--out={tmp_path / 'run'}"]) == 0
    said = capsys.readouterr()
    assert note in said.out + said.err
    assert note in (tmp_path / "run" / "report.html").read_text()
    result = vitreous.evaluate(tmp_path / "run", log=lambda text: None)
    assert result["samples"] == 20
    assert {each["learned_from"] for each in result["baselines"].values()} == {16}
    resume = ["train", "--resume", f"--out={tmp_path / 'run'}", "--epochs=2"]
    with pytest.raises(ConfigError, match=r"fraction = 1.0, but the run to resume has 0.1"):
        train(
            replace(stored_recipe(Run(tmp_path / "run")), fraction=1.0),
            tmp_path / "run",
            resume=True,
        )
    with undrawn():
        assert main(resume) == 0
    said = capsys.readouterr()
    assert note in said.out + said.err


@pytest.mark.parametrize("data", ["shapes:100", "digits"])
@pytest.mark.parametrize("kind", [{}, {"method": "mae"}, {"task": "detect"}])
def test_fractions_are_nested_whatever_is_learned(data, kind):
    if data == "digits" and "task" in kind:
        return
    recipe = replace(SMALL, data=data, **kind)
    whole, third, tenth = (
        ids(open_named(replace(recipe, fraction=fraction))) for fraction in (1.0, 0.3, 0.1)
    )
    assert tenth["train"] < third["train"] < whole["train"]
    assert len(third["train"]) == round(0.3 * len(whole["train"]))
    assert all(part[split] == whole[split] for part in (third, tenth) for split in ("val", "test"))


def test_pretraining_takes_the_fraction_that_training_takes():
    recipe = replace(SMALL, fraction=0.1)
    assert ids(open_named(recipe)) == ids(open_named(replace(recipe, method="mae")))


def test_runs_with_one_split_seed_are_measured_on_the_same_images(tmp_path):
    """While they learn from other images, in another order, from other weights."""
    folder = tmp_path / "all"
    for path in class_folder().glob("*/*/*.png"):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.parent.name / f"{path.parts[-3]}-{path.name}")
    recipe = replace(SMALL, data=str(folder), test_fraction=0.2, fraction=0.5, split_seed=7)
    first, second = (open_named(replace(recipe, seed=seed)) for seed in (0, 1))
    own = open_named(replace(recipe, seed=7, split_seed=None))
    for split in ("val", "test"):
        assert ids(first)[split] == ids(second)[split] == ids(own)[split]
    assert ids(first)["train"] != ids(second)["train"]
    assert ids(open_named(replace(recipe, seed=1, split_seed=None)))["test"] != ids(own)["test"]
    drawn = replace(recipe, data="shapes:40", test_fraction=0.0)
    images = [
        source.image(source.splits["test"][0])
        for source in (open_named(replace(drawn, seed=seed)) for seed in (0, 1))
    ]
    assert torch.equal(*images)


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5])
def test_a_fraction_is_a_part(fraction):
    with pytest.raises(ConfigError, match="expected a part of the training images"):
        replace(SMALL, fraction=fraction)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fields": ("classes=9",)}, "classes = 9"),
        ({"fields": ("image_size=16",)}, "image_size = 16: use --image-size"),
        ({"fields": ("channels=3",)}, "channels = 3: use --set-recipe channels=N"),
        ({"weights_format": "timm"}, "weights_format = 'timm' needs weights"),
        ({"crop": "shift", "scale": 0.5}, "scale = 0.5 has no effect with crop = 'shift'"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        prepared(replace(SMALL, **change), tmp_path / "run")


def test_an_option_that_does_nothing_here_is_told(tmp_path):
    said = prepared(replace(SMALL, crop=None, scale=0.5), tmp_path / "run")[2]
    assert re.search("scale = 0.5 .*'shift'.*'resized'", said)
