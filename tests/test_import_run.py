"""Weights from elsewhere become run folders: what is stated, what is asked for, what is written."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from compare import assert_same_bits, perturb

import vitreous
from vitreous.checksums import file_sha256
from vitreous.cli.main import main
from vitreous.data.photographs import photographs
from vitreous.engines.accelerate import plain
from vitreous.errors import CheckpointError, ConfigError
from vitreous.import_run import open_run
from vitreous.run_folder import Run
from vitreous.train.build_model import find_start
from vitreous.train.recipe import Recipe
from vitreous.weights import catalog as catalog_module
from vitreous.weights.catalog import catalog
from vitreous.weights.io.files import read_tensors, write_tensors

SHARED = Path("/work/shared")
FIELDS = {"image_size": 32, "patch": 8, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 64}
PREPARED = {"mean": 0.5, "std": 0.25, "crop": 0.9, "interpolation": "bicubic"}
NAMES = ["cat", "dog", "crane", "crane", "owl"]
NAMES_TOLD_APART = ["cat", "dog", "crane (2)", "crane (3)", "owl"]


def weights(path, format="timm", **changes):
    """A file of another library, and our model with the same weights."""
    changes = changes if "head" in changes else {"classes": 5, **changes}
    model = perturb(vitreous.create("vit", **{**FIELDS, **changes})).eval()
    write_tensors(path, vitreous.export_weights(model, format), "safetensors")
    return model


@pytest.fixture
def file(tmp_path):
    weights(tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.fixture
def run(file, tmp_path):
    options = {"model": "vit", "changes": FIELDS, "labels": ["a", "b", "c", "d", "e"], **PREPARED}
    return vitreous.import_run(file, tmp_path / "run", **options)


def logits(model, preprocess, image):
    with torch.inference_mode():
        return model(preprocess(image)[None])[0]


def test_an_imported_run_is_taken_like_a_trained_one(run, file, tmp_path, capsys):
    photo = photographs()[0]
    predictor = vitreous.load(run)
    assert sorted(predictor(photo).scores) == ["a", "b", "c", "d", "e"]
    assert predictor.embed([photo]).shape == (1, 32)
    assert {"look.html"} <= {path.name for path in vitreous.explain(run, photo, tmp_path / "why")}
    data = [(image.permute(1, 2, 0).numpy(), label) for image in photographs() for label in "abc"]
    assert vitreous.evaluate(run, {"test": data})["samples"] == 6
    with pytest.raises(ConfigError, match="was imported and has no data of its own"):
        vitreous.evaluate(run)
    origin = Run(run.path).read_config().origin
    assert origin["files"] == {"w.safetensors": file_sha256(file)}
    assert (origin["source"], origin["format"]) == (str(file), "timm")
    converted = vitreous.convert(run, tmp_path / "again.safetensors")
    assert converted.difference == 0


def hybrid_of_google():
    fields = {"image_size": 32, "stages": (1,), "width": 32, "patch": 1, "dim": 32, "depth": 1}
    model = perturb(vitreous.create("hybrid", **fields, heads=2, classes=5))
    state = vitreous.export_weights(model, "google")
    return {k: v.reshape(1, 1, 1, -1) if "/gn" in f"/{k}" else v for k, v in state.items()}


def registers_with_positions():
    state = vitreous.export_weights(
        perturb(vitreous.create("vit", **FIELDS, registers=3, classes=5)), "timm"
    )
    return {**state, "pos_embed": torch.randn(1, 1 + 3 + 16, 32)}


def mask_token():
    fields = {**FIELDS, "image_size": 56, "patch": 14, "head": "none"}
    state = vitreous.export_weights(perturb(vitreous.create("dinov2", **fields)), "official")
    return {**state, "mask_token": torch.randn(1, 32)}


@pytest.mark.parametrize(
    ("make", "format"),
    [(hybrid_of_google, "google"), (registers_with_positions, "timm"), (mask_token, "official")],
)
def test_what_the_model_has_no_use_for_is_exported_again(tmp_path, make, format):
    """A run folder keeps it beside the weights, and so does a file of ours."""
    source, path = make(), tmp_path / "source.safetensors"
    write_tensors(path, source, "safetensors")
    labels = {} if format == "official" else {"labels": "numbers"}
    run = vitreous.import_run(path, tmp_path / "run", **labels, **PREPARED)
    assert run.report.format == format
    vitreous.convert(run, tmp_path / "ours.safetensors")
    for ours in (run, tmp_path / "ours.safetensors"):
        vitreous.convert(ours, tmp_path / "back.safetensors", to_format=format)
        assert_same_bits(read_tensors(tmp_path / "back.safetensors").tensors, source)
    model = vitreous.load(run).model
    perturb(model, seed=3)  # as training does
    exported = vitreous.export_weights(model, format)
    shapes = [{key: value.shape for key, value in each.items()} for each in (exported, source)]
    assert shapes[0] == shapes[1]
    again = vitreous.create(run.config.family, **run.config.config).eval()
    vitreous.import_weights(again, exported, format)
    image = photographs()[0]
    both = plain(model), again
    expected, got = (logits(each, run.config.preprocess, image) for each in both)
    assert torch.equal(got, expected)


def test_a_projection_needs_no_names(tmp_path):
    model = perturb(vitreous.create("clip", **FIELDS, head="projection", classes=7))
    exported = vitreous.export_weights(model, "timm")
    assert not exported["head.bias"].any(), "timm's linear layer needs one"
    write_tensors(tmp_path / "w.safetensors", exported, "safetensors")
    given = {**PREPARED, "changes": {"activation": "gelu"}}
    run = vitreous.import_run(tmp_path / "w.safetensors", tmp_path / "run", **given)
    assert (run.config.task, run.config.config["head"]) == ("features", "projection")
    vitreous.convert(run, tmp_path / "back.safetensors", to_format="timm")
    assert_same_bits(read_tensors(tmp_path / "back.safetensors").tensors, exported)


def test_everything_that_is_missing_is_asked_for_at_once(file, tmp_path, capsys):
    model = ["--model", "vit", *(w for k, v in FIELDS.items() for w in ("--set", f"{k}={v}"))]
    command = ["import", str(file), "--out", str(tmp_path / "run"), *model]
    assert main(command) == 2
    said = capsys.readouterr().err
    for option in ("labels names.txt", "mean 0.5 0.5 0.5", "std", "crop 0.9", "interpolation"):
        assert f"--{option}" in said
    assert not (tmp_path / "run").exists()
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    rest = ["--mean", "0.5", "--std", "0.5", "--crop", "0.9", "--interpolation", "bicubic"]
    assert main([*command, *rest, "--labels", str(tmp_path / "names.txt")]) == 2
    assert "4 names of classes" in capsys.readouterr().err
    assert main([*command, *rest, "--labels", "numbers"]) == 0
    assert "shorter side to 35, bicubic, centre crop 32x32" in capsys.readouterr().out
    assert Run(tmp_path / "run").read_config().labels.names == ("0", "1", "2", "3", "4")


def test_what_is_not_ours_stays(run, file, tmp_path):
    options = {"labels": "numbers", **PREPARED}
    assert vitreous.import_run(file, run.path, **options).config.labels.names[0] == "0"
    with pytest.raises(ConfigError, match="would replace what is imported"):
        vitreous.import_run(run.path, run.path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="did not write it"):
        vitreous.import_run(file, other, **options)
    vitreous.import_run(file, other, **options, force=True)
    (other / "recipe.toml").write_text("")
    with pytest.raises(ConfigError, match="has a trained run"):
        vitreous.import_run(file, other, **options, force=True)


def test_weights_that_give_no_numbers_are_not_written(tmp_path):
    model = perturb(vitreous.create("vit", classes=5, **FIELDS))
    tensors = vitreous.export_weights(model, "timm")
    tensors["blocks.0.attn.proj.weight"] *= 1e30
    tensors["blocks.0.mlp.fc2.weight"] *= 1e30
    tensors["norm.weight"] *= 1e38
    write_tensors(tmp_path / "w.safetensors", tensors, "safetensors")
    with pytest.raises(CheckpointError, match="not finite"):
        vitreous.import_run(
            *(tmp_path / "w.safetensors", tmp_path / "run"),
            **{"model": "vit", "changes": FIELDS, "labels": "numbers", **PREPARED},
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("format", ["huggingface", "timm"])
@pytest.mark.parametrize("crop", [0.8, None])
def test_a_folder_of_another_library_states_everything(file, tmp_path, monkeypatch, format, crop):
    """Convert writes labels and preprocessing, and importing them again gives the same run."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    how = {"crop": crop} if crop else {"resize": "square"}
    prepared = {**PREPARED, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.3)}
    del prepared["crop"]
    first = vitreous.import_run(
        *(file, tmp_path / "first"),
        **{"model": "vit", "changes": FIELDS, "labels": NAMES_TOLD_APART, **prepared, **how},
    )
    done = vitreous.convert(first, tmp_path / "folder", to_format=format)
    assert not [note for note in done.notes if "written" in note]
    again = vitreous.import_run(tmp_path / "folder", tmp_path / "again")
    before, after = first.config, again.config
    assert after.labels.names == before.labels.names
    assert after.preprocess == before.preprocess
    assert (after.family, after.config, after.task) == (before.family, before.config, before.task)
    both = [Run(each.path).read_weights() for each in (first, again)]
    assert all(torch.equal(both[0][name], both[1][name]) for name in both[0])

    # Where half a pixel is left on both sides of the crop, transformers decides otherwise.
    photo = photographs()[1][:, :, :427]
    predictor = vitreous.load(tmp_path / "folder")  # in one step
    assert predictor.labels == before.labels.names
    values, expected = before.preprocess(photo), logits(predictor.model, before.preprocess, photo)
    if format == "timm":
        import timm
        from timm.data import create_transform, resolve_model_data_config
        from torchvision.transforms.functional import to_pil_image

        theirs = timm.create_model(f"local-dir:{tmp_path / 'folder'}", pretrained=True).eval()
        config = resolve_model_data_config(theirs)
        seen = create_transform(**config)(to_pil_image(photo))[None]
        assert tuple(theirs.pretrained_cfg["label_names"]) == before.labels.names
        got = theirs(seen)
    else:
        from transformers import AutoImageProcessor, AutoModelForImageClassification

        theirs = AutoModelForImageClassification.from_pretrained(tmp_path / "folder").eval()
        processor = AutoImageProcessor.from_pretrained(tmp_path / "folder")
        seen = processor(images=photo, return_tensors="pt")["pixel_values"]
        assert tuple(theirs.config.id2label.values()) == before.labels.names
        got = theirs(seen).logits
    # transformers resizes with torchvision, which differs from Pillow by up to a step of 8 bits
    pixels, outputs = (1e-5, 1e-4) if format == "timm" else (0.05, 0.05)
    assert (seen[0] - values).abs().max() < pixels
    assert (got[0] - expected).abs().max() < outputs


def test_names_that_are_given_twice_are_told_apart(file, tmp_path):
    folder = tmp_path / "folder"
    vitreous.convert(file, folder, to_format="huggingface", model="vit", changes=FIELDS)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {str(number): name for number, name in enumerate(NAMES)}
    config["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(config))
    prepared = {"size": 32, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    done = vitreous.import_run(folder, tmp_path / "run")
    assert list(done.config.labels.names) == NAMES_TOLD_APART
    assert done.config.preprocess.resize == "square"
    assert vitreous.load(done)(photographs()[0]).above(0) is not None, "the task of several labels"


def test_a_model_without_a_head_gives_features(tmp_path, capsys):
    model = weights(tmp_path / "w.safetensors", head="none")
    done = vitreous.import_run(
        *(tmp_path / "w.safetensors", tmp_path / "run"),
        **{"model": "vit", "changes": {**FIELDS, "head": "none"}, **PREPARED},
    )
    photo = photographs()[0]
    predictor = vitreous.load(done)
    vector = predictor(photo).values
    np.testing.assert_allclose(vector, predictor.embed(photo)[0], atol=1e-5)
    torch.testing.assert_close(torch.tensor(vector), logits(model, done.config.preprocess, photo))
    assert {"look.html"} <= {path.name for path in vitreous.explain(done, photo, tmp_path / "why")}
    with pytest.raises(ConfigError, match="no head"):
        vitreous.evaluate(done, {"test": [(photo, "a")]})


@pytest.fixture
def entry(file, tmp_path, monkeypatch):
    """A catalog with one small entry, whose file is in the cache already."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    known = next(e for e in catalog().values() if e.address.startswith("https://"))
    fields = {
        **vars(known),
        "name": "tiny.test",
        "model": "vit",
        "format": "timm",
        "address": "https://example.invalid/w.safetensors",
        "classes": 5,
        "config": FIELDS,
        "labels": "",
        "sha256": "",
        "licence": "MIT",
        "preprocessing": type(known.preprocessing)(32, 0.9, "bicubic", (0.5,) * 3, (0.5,) * 3),
    }
    made = type(known)(**fields)
    monkeypatch.setattr(catalog_module, "catalog", lambda: {made.name: made})
    there = tmp_path / "cache" / "example.invalid" / "w.safetensors"
    there.parent.mkdir(parents=True)
    there.write_bytes(file.read_bytes())
    return made


def test_what_is_no_run_folder_is_told_what_to_do(file, tmp_path, capsys):
    for given, advice in [
        (str(file), f"vitreous import {file} --out RUN"),
        (
            "vit-b/17",
            "there is no such run folder, model or catalog entry: did you mean 'vit-b/16'",
        ),
    ]:
        assert main(["predict", given, "photo.jpg"]) == 2
        assert advice in capsys.readouterr().err


def test_a_model_that_is_named_otherwise_than_it_is(file, tmp_path, capsys):
    """The name of the caller is kept, and what differs from it is said."""
    run = vitreous.import_run(
        file, tmp_path / "run", model="vit-ti/16", labels="numbers", **PREPARED
    )
    assert any("those of a vit-ti/16 with" in note and "dim=32" in note for note in run.notes)


def test_a_catalog_name_is_enough(entry, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"import it first.*import tiny.test --out RUN --labels"):
        vitreous.load("tiny.test")
    object.__setattr__(entry, "labels", "imagenet-1k")
    with pytest.raises(ConfigError, match=r"1,000 names of .* 5 classes"):
        vitreous.load("tiny.test")
    done = vitreous.import_run("tiny.test", tmp_path / "run", labels=["a", "b", "c", "d", "e"])
    assert done.config.origin["licence"] == "MIT"
    assert done.config.preprocess.crop == 0.9
    start = find_start(Recipe(weights="tiny.test"))
    assert (start.model, start.fields["dim"]) == ("vit", 32)
    assert (start.preprocess.crop, start.preprocess.interpolation) == (0.9, "bicubic")
    assert start.labels.names[0] == "tench"


def test_a_model_whose_labels_are_known_is_loaded_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    weights(tmp_path / "w.safetensors", classes=1000)
    folder = tmp_path / "folder"
    options = {"to_format": "timm", "model": "vit", "changes": FIELDS}
    vitreous.convert(tmp_path / "w.safetensors", folder, **options)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= {"mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.9}
    config["pretrained_cfg"] |= {"interpolation": "bicubic", "hf_hub_id": "timm/vit.x_ft_in1k"}
    (folder / "config.json").write_text(json.dumps(config))
    first = open_run(folder)
    assert first.read_config().labels.names[:2] == ("tench", "goldfish")
    before = (first.path / "config.json").stat().st_mtime_ns
    assert open_run(folder).path == first.path
    assert (first.path / "config.json").stat().st_mtime_ns == before
    import sklearn.datasets

    photo = Path(sklearn.datasets.__file__).parent / "images" / "china.jpg"
    assert main(["predict", str(folder), str(photo), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in first.read_config().labels.names


def test_a_file_of_the_catalog_is_known_by_its_hash(file, tmp_path, monkeypatch, entry):
    object.__setattr__(entry, "sha256", file_sha256(file)[:8])
    done = vitreous.import_run(file, tmp_path / "run", labels="numbers")
    assert (done.config.origin["licence"], done.config.preprocess.crop) == ("MIT", 0.9)


def test_a_known_file_is_prepared_for_as_the_catalog_says(file, tmp_path, entry):
    """Whoever is given the file itself: load, and train with or without a model's name."""
    weights(file, head="none")
    object.__setattr__(entry, "config", {**FIELDS, "head": "none"})
    object.__setattr__(entry, "classes", 0)
    with pytest.raises(ConfigError, match=r"does not state its .*mean.*vitreous import .*--mean"):
        vitreous.load(file)
    object.__setattr__(entry, "sha256", file_sha256(file)[:8])
    predictor = vitreous.load(file)
    assert (predictor.preprocess.crop, predictor.preprocess.interpolation) == (0.9, "bicubic")
    same = vitreous.load(vitreous.import_run(file, tmp_path / "run"))
    photo = photographs()[0]
    assert np.array_equal(predictor.embed(photo), same.embed(photo))
    for model in (None, "vit"):
        fields = () if model is None else tuple(f"{name}={value}" for name, value in FIELDS.items())
        start = find_start(Recipe(weights=str(file), model=model, fields=fields))
        assert start.preprocess is not None
        assert start.preprocess.mean == (0.5, 0.5, 0.5)


# ---- the real thing


def photos(folder):
    """Real photographs of several sizes, and parts of them."""
    import sklearn.datasets
    from PIL import Image

    paths = [*Path(sklearn.datasets.__file__).parent.glob("images/*.jpg")]
    paths += sorted(folder.glob("camvid/train/*.png"))[:2]
    paths += sorted(folder.glob("bccd/**/*.jpg"))[:2]
    for path in paths:
        image = Image.open(path).convert("RGB")
        yield image
        width, height = image.size
        yield image.crop((width // 4, height // 5, width - 7, height - 3))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared weights are on one machine only")
@torch.inference_mode()
def test_predictions_are_timms_with_real_weights(tmp_path):
    import timm
    from timm.data import create_transform

    path = SHARED / "weights" / "vit_tiny_patch16_224.safetensors"
    options = {"mean": 0.5, "std": 0.5, "crop": 0.9, "interpolation": "bicubic"}
    run = vitreous.import_run(path, tmp_path / "run", labels="imagenet-1k", **options)
    assert run.config.model == "vit-ti/16", "found from the tensors"
    assert run.assumed["heads"] == (3, "as in the model that the file is named after")
    theirs = timm.create_model("vit_tiny_patch16_224", checkpoint_path=str(path)).eval()
    transform = create_transform(
        **{"input_size": (3, 224, 224), "interpolation": "bicubic", "crop_pct": 0.9},
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
    )
    predictor = vitreous.load(run)
    for image in photos(SHARED / "data"):
        expected = theirs(transform(image)[None])[0]
        assert predictor(np.asarray(image)).id == expected.argmax()
        values = predictor.prepare(predictor.read(np.asarray(image))[0])
        assert (predictor.model(values[None])[0] - expected).abs().max() < 1e-3
