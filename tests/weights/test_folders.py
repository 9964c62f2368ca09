"""Folders of transformers and timm: what their JSON files state, where they contradict themselves,
and models that are not ours."""

import json

import pytest
import torch
from compare import perturb
from runs import own_file

import vitreous
from vitreous.errors import CheckpointError, ConfigError
from vitreous.weights.adopt import find
from vitreous.weights.io.files import write_tensors
from vitreous.weights.timm_files import argument_maps, make_timm_config, read_timm_model
from vitreous.weights.transformers_preprocessor import read_preprocessor

FIELDS = {"image_size": 32, "patch": 8, "dim": 32, "depth": 1, "heads": 4, "mlp_dim": 64}
PREPARED = {"size": 32, "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3}


def folder_of(path, name="vit", prepared=PREPARED, tensors=None, config=None, **changes):
    """A folder of transformers with random weights."""
    model = perturb(vitreous.create(name, **{**FIELDS, **changes}))
    path.mkdir(exist_ok=True)
    own = own_file(path / "own.safetensors", model)
    vitreous.convert(own, path / "theirs", to_format="huggingface")
    folder = path / "theirs"
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stated, **(config or {})}))
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    if tensors:
        own = vitreous.export_weights(model, "huggingface")
        write_tensors(folder / "model.safetensors", {**own, **tensors}, "safetensors")
    return folder


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"crop_size": 32, "do_center_crop": False}, {"resize": "square", "crop": 1.0}),
        ({"crop_size": 28, "do_center_crop": True}, {"resize": "shorter", "image_size": 28}),
        ({"rescale_factor": 2 / 255}, {"mean": (0.25,) * 3, "std": (0.125,) * 3}),
        ({"do_rescale": False, "do_normalize": False}, {"mean": (0.0,), "std": (1 / 255,)}),
    ],
)
def test_preprocessors_are_read_as_transformers_applies_them(tmp_path, stated, expected):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({**PREPARED, **stated}))
    found, _ = read_preprocessor(file)
    assert {name: pytest.approx(found[name]) for name in expected} == expected


def test_what_a_preprocessor_does_otherwise_is_asked_for_or_told(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({**PREPARED, "resample": 1}))
    assert "interpolation" not in read_preprocessor(file)[0], "Lanczos"
    file.write_text(json.dumps({**PREPARED, "do_resize": False}))
    assert "crop" not in read_preprocessor(file)[0]
    sides = {"size": {"height": 36, "width": 36}, "crop_size": 32, "do_center_crop": True}
    file.write_text(json.dumps({**PREPARED, **sides}))
    assert "distorts" in read_preprocessor(file)[1][0]
    file.write_text(json.dumps({"image_processor": PREPARED, "processor_class": "CLIPProcessor"}))
    assert read_preprocessor(file)[0]["std"] == (0.25,) * 3


def test_a_class_for_another_task_is_refused_but_its_backbone_is_read(tmp_path):
    extra = {"decode_head.weight": torch.zeros(3, 32)}
    config = {"architectures": ["ViTForSemanticSegmentation"]}
    folder = folder_of(tmp_path, head="none", tensors=extra, config=config)
    with pytest.raises(CheckpointError, match=r"unexpected +decode_head.weight"):
        vitreous.import_run(folder, tmp_path / "run2")
    done = vitreous.import_run(folder, tmp_path / "run2", drop=["decode_head.*"])
    assert done.config.task == "features"


def test_a_model_that_is_not_ours_is_named(tmp_path):
    folder = folder_of(tmp_path, head="none", config={"model_type": "new", "layer_norm_eps": 1e-9})
    done = vitreous.import_run(folder, tmp_path / "seen")
    assert (done.config.config["heads"], done.config.config["norm_eps"]) == (4, 1e-9)
    assert not {"heads", "norm_eps"} & {*done.assumed}, "the source states them"
    assert "transformers' new" in done.notes[0]
    write_tensors(folder / "model.safetensors", {"strange": torch.zeros(2)}, "safetensors")
    with pytest.raises(ConfigError, match="is transformers' new, which Vitreous does not have"):
        vitreous.import_run(folder, tmp_path / "run2")


def test_the_preprocessing_decides_where_the_model_takes_any_size(tmp_path):
    folder = folder_of(tmp_path, "dinov2", head="none", image_size=64)
    done = vitreous.import_run(folder, tmp_path / "run2")
    assert done.config.preprocess.image_size == (32, 32)
    assert [*done.config.config["image_size"]] == [64, 64]
    assert "resampled at run time" in done.notes[0]
    for format in ("huggingface", "timm"):
        again = vitreous.convert(done, tmp_path / format, to_format=format)
        assert not again.notes
        back = vitreous.import_run(tmp_path / format, tmp_path / f"{format}-run")
        assert back.config.preprocess == done.config.preprocess, format


def test_sizes_that_contradict_each_other_are_told(tmp_path):
    folder = folder_of(tmp_path, classes=3, prepared={**PREPARED, "size": 64})
    done = vitreous.import_run(folder, tmp_path / "run2", labels="numbers")
    assert done.config.preprocess.image_size == (32, 32)
    assert done.notes == ("it states images of 64x64: they are prepared for the model's 32x32",)


@pytest.mark.parametrize("family", argument_maps())
def test_timm_folders_state_the_model_that_they_were_written_for(family):
    """Another size than that of any published model, by timm's arguments."""
    row = argument_maps()[family]
    smaller = (
        {} if family == "resnet" else {"image_size": 56, "patch": 4 if family == "swin" else 14}
    )
    if family not in ("resnet", "swin"):
        smaller |= {"dim": 48, "depth": 2, "heads": 3, "mlp_dim": 100}
    with torch.device("meta"):
        model = vitreous.create(row.architectures[-1], classes=7, channels=1, **smaller)
    written = make_timm_config(model, [], {})
    name, changes = read_timm_model(json.loads(json.dumps(written)))
    with torch.device("meta"):
        again = vitreous.create(name, **changes)
    assert again.config == model.config


def test_arguments_of_timm_that_are_not_known_are_named(tmp_path):
    config = {"architecture": "vit_tiny_patch16_224", "model_args": {"weird": 1}}
    with pytest.raises(CheckpointError, match="model_args has weird = 1, which is not known"):
        read_timm_model(config)


def test_stated_size_wins_where_weights_fit_any(tmp_path):
    model = vitreous.create("swin-t", image_size=64, dim=16, depths=(1, 1), heads=(2, 2), window=4)
    own = own_file(tmp_path / "own.safetensors", model)
    vitreous.convert(own, tmp_path / "timm", to_format="timm")
    config = json.loads((tmp_path / "timm" / "config.json").read_text())
    config["pretrained_cfg"]["input_size"] = [3, 224, 224]
    (tmp_path / "timm" / "config.json").write_text(json.dumps(config))
    assert find(tmp_path / "timm").fields["image_size"] == 64


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("config.json", {"hidden_act": ["gelu"]}, r"hidden_act = \['gelu'\] is not supported"),
        ("config.json", {"hidden_size": "wide"}, r"theirs: dim = 'wide'"),
        ("config.json", {"num_hidden_layers": 2}, r"the file has depth = 1 \(the model 2\)"),
        ("preprocessor_config.json", {"size": "big"}, r"cannot be understood \(size = big"),
        ("preprocessor_config.json", {"image_mean": [127.5] * 3}, r"pass mean=\(0.5, 0.5, 0.5\)"),
    ],
)
def test_damaged_descriptions_are_named(tmp_path, file, values, message):
    folder = folder_of(tmp_path, classes=3)
    stated = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**stated, **values}))
    with pytest.raises((CheckpointError, ConfigError), match=message):
        vitreous.import_run(folder, tmp_path / "run2", labels="numbers")
    assert not (tmp_path / "run2").exists()


def test_labels_that_cannot_be_are_refused(tmp_path):
    folder = folder_of(tmp_path, head="none")
    with pytest.raises(ConfigError, match="has no head, and so no classes"):
        vitreous.import_run(folder, tmp_path / "run2", labels="numbers")
    folder = folder_of(tmp_path / "other", classes=3)
    with pytest.raises(ConfigError, match="one of imagenet-1k, coco-91, numbers: did you mean"):
        vitreous.import_run(folder, tmp_path / "run2", labels="imagenet-22k")
    with pytest.raises(ConfigError, match="with resize = 'square' nothing is cropped"):
        vitreous.import_run(folder, tmp_path / "run2", labels="numbers", crop=0.5, resize="square")
