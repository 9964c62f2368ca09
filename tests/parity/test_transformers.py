"""ViT, DeiT and Swin give transformers' outputs with its weights, and the other way."""

import pytest
import torch
import transformers as hf
from compare import TOLERANCE, assert_same_bits, both_ways, perturb, picture, relative_error

import vitreous
from vitreous.errors import CheckpointError
from vitreous.weights.identify import readings
from vitreous.weights.io.files import read_tensors, write_tensors
from vitreous.weights.origin import open_weights
from vitreous.weights.transformers_files import read_config
from vitreous.weights.transformers_preprocessor import read_json

SMALL = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 7,
}
OURS = {"dim": 48, "depth": 3, "heads": 4, "mlp_dim": 96, "image_size": 32, "patch": 8}


def config_in(folder):
    path = folder / "config.json"
    return read_config(read_json(path), path)


def logits(output):
    return output.logits


def opened(kind, folder):
    """By transformers, with all of its weights and no others."""
    again, info = kind.from_pretrained(folder, output_loading_info=True)
    assert [*info["missing_keys"], *info["unexpected_keys"]] == []
    return again.eval()


def converted(theirs, folder):
    """A folder that transformers saves, converted by us, as transformers opens it."""
    theirs.save_pretrained(folder / "theirs")
    vitreous.convert(folder / "theirs", folder / "ours", to_format="huggingface-v4")
    return opened(type(theirs), folder / "ours")


@pytest.mark.parametrize("bias", [True, False])
def test_vit(bias):
    theirs = hf.ViTForImageClassification(hf.ViTConfig(**SMALL, qkv_bias=bias))
    ours = vitreous.create("vit", **OURS, classes=7, qkv_bias=bias)
    report = both_ways(theirs, ours, picture(2, 3, 32, 32), "huggingface", logits)
    assert ours.config.norm_eps == 1e-12, "transformers' epsilon comes with its weights"
    assert "norm_eps" in report.numbers


def test_vit_b16_at_full_width():
    """Of the full depth there is one test, against timm."""
    theirs = hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000, num_hidden_layers=2))
    ours = vitreous.create("google/vit-base-patch16-224", depth=2)
    report = both_ways(theirs, ours, picture(2, 3, 224, 224), "huggingface", logits)
    assert not report.numbers, "the name already says the epsilon"


def test_deit_with_teacher():
    theirs = hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**SMALL))
    ours = vitreous.create("vit", **OURS, classes=7, tokens="class+distillation", pool="both")
    images = picture(2, 3, 32, 32)
    both_ways(theirs, ours, images, "huggingface", logits)
    with torch.no_grad():
        reference, both = theirs(images), ours.train()(images)
    assert relative_error(both.class_logits, reference.cls_logits) < TOLERANCE
    assert relative_error(both.distillation_logits, reference.distillation_logits) < TOLERANCE


@torch.no_grad()
def test_bare_model_without_head():
    theirs = perturb(hf.ViTModel(hf.ViTConfig(**SMALL)))
    ours = vitreous.create("vit", **OURS, head="none", pool="none").eval()
    report = vitreous.import_weights(ours, theirs.state_dict(), format="huggingface")
    assert report.kept == ["pooler.dense.weight", "pooler.dense.bias"]
    assert_same_bits(vitreous.export_weights(ours, "huggingface"), theirs.state_dict())
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images).last_hidden_state) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("format", ["huggingface", "huggingface-v4"])
def test_files_of_save_pretrained_and_for_from_pretrained(tmp_path, format):
    """Files keep the names of transformers 4; both spellings are read, by us and by them."""
    theirs = perturb(hf.ViTForImageClassification(hf.ViTConfig(**SMALL)))
    theirs.save_pretrained(tmp_path)
    ours = vitreous.create("vit", **OURS, classes=7).eval()
    vitreous.import_weights(ours, tmp_path, format="huggingface")
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images).logits) < TOLERANCE

    perturb(ours, seed=9)
    exported = vitreous.export_weights(ours, format)
    write_tensors(tmp_path / "model.safetensors", exported, "safetensors", {"format": "pt"})
    again = opened(hf.ViTForImageClassification, tmp_path)
    assert relative_error(again(images).logits, ours(images)) < TOLERANCE


TOWERS = {  # their class and its config, our family and fields, and which of their outputs is ours
    "clip": (hf.CLIPVisionModel, {}, "clip", {"head": "none"}, "pooler_output"),
    "clip, gelu": (
        hf.CLIPVisionModelWithProjection,
        {"hidden_act": "gelu", "projection_dim": 7, "image_size": 40},
        *("clip", {"head": "projection", "classes": 7, "activation": "gelu", "image_size": 40}),
        "image_embeds",
    ),
    "siglip": (hf.SiglipVisionModel, {}, "siglip", {"head": "none"}, "pooler_output"),
    "mae": (
        *(hf.ViTMAEModel, {"mask_ratio": 0.0}),
        *("mae", {"head": "none", "pool": "none"}, "last_hidden_state"),
    ),
}


DECODER = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1}
DECODER |= {"decoder_num_attention_heads": 2, "decoder_intermediate_size": 16}


def small_towers(kind):
    model, changes, family, fields, output = TOWERS[kind]
    theirs = model(model.config_class(**{**SMALL, **changes}))
    return theirs, vitreous.create(family, **{**OURS, **fields}), output


def images_in_order(theirs, size):
    """A MAE shuffles the patches, even where it masks none: noise that grows keeps their order."""
    shuffles = isinstance(theirs, hf.ViTMAEModel | hf.ViTMAEForPreTraining)
    options = {"noise": torch.arange(16.0).expand(2, -1)} if shuffles else {}
    return picture(2, 3, *size), options


@torch.no_grad()
@pytest.mark.parametrize("kind", TOWERS)
def test_tower(kind, tmp_path):
    """Weights both ways, and a folder: read as transformers saves it, and written for it."""
    theirs, ours, output = small_towers(kind)
    images, options = images_in_order(theirs, ours.own_size())

    class Called(torch.nn.Module):
        state_dict, load_state_dict = theirs.state_dict, theirs.load_state_dict

        def forward(self, images):
            return getattr(theirs(images, **options), output)

    report = both_ways(Called(), ours, images, "huggingface")
    assert report.dropped == []
    again = converted(theirs, tmp_path)
    wanted = getattr(theirs(images, **options), output)
    again.config.mask_ratio = 0.0
    assert relative_error(getattr(again(images, **options), output), wanted) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("kind", ["clip", "siglip", "mae"])
def test_image_tower_of_a_whole_model(kind, tmp_path):
    """The text tower, or the decoder, is dropped by name."""
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"intermediate_size": 16, "vocab_size": 40, "bos_token_id": 1, "eos_token_id": 2}
    towers = {"vision_config": SMALL, "text_config": text}
    theirs = {
        "clip": lambda: hf.CLIPModel(hf.CLIPConfig(**towers, projection_dim=7)),
        "siglip": lambda: hf.SiglipModel(hf.SiglipConfig(**towers)),
        "mae": lambda: hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**SMALL, **DECODER, mask_ratio=0.0)),
    }[kind]()
    perturb(theirs).save_pretrained(tmp_path)
    family, fields = config_in(tmp_path)
    pool = {"pool": "none"} if kind == "mae" else {}
    ours = vitreous.create(family, **fields, **pool).eval()
    report = vitreous.import_weights(ours, tmp_path)
    aside = ("text_", "logit_") if kind != "mae" else ("decoder.",)
    assert report.dropped
    assert all(key.startswith(aside) for key in report.dropped)
    assert f"{aside[0].rstrip('._')}" in str(report)
    assert str(report).count("\n") < len(report.dropped), "many keys of one part are one line"
    images, options = images_in_order(theirs, ours.own_size())
    if kind == "mae":
        wanted = theirs.vit(images, **options).last_hidden_state
    else:
        wanted = theirs.get_image_features(images).pooler_output
        assert relative_error(ours.vectors(images), wanted) < TOLERANCE
    assert relative_error(ours(images), wanted) < TOLERANCE


@torch.no_grad()
def test_classifier_of_siglip(tmp_path):
    """It reads the mean of the patches, and keeps an attention pooling that it has no use for."""
    config = hf.SiglipConfig(vision_config=SMALL, num_labels=7)
    theirs = perturb(hf.SiglipForImageClassification(config))
    theirs.save_pretrained(tmp_path / "theirs")
    family, fields = config_in(tmp_path / "theirs")
    ours = vitreous.create(family, **fields, classes=7)
    images = picture(2, 3, 32, 32)
    report = both_ways(theirs, ours, images, "huggingface", logits)
    assert len(report.kept) == 11

    stored = opened(type(theirs), tmp_path / "theirs")
    again = converted(stored, tmp_path)
    assert relative_error(again(images).logits, stored(images).logits) < TOLERANCE

    # A file alone shows both the pooling and the classifier: only one model has them.
    write_tensors(tmp_path / "file.safetensors", theirs.state_dict(), "safetensors")
    (reading,) = readings(open_weights(tmp_path / "file.safetensors"))
    assert (reading.format, reading.fields["pool"]) == ("huggingface", "mean")
    ours = vitreous.create("siglip", **OURS, classes=7)
    with pytest.raises(CheckpointError, match="do not support pool = 'attention'"):
        vitreous.export_weights(ours, "huggingface")


SWIGLU = {"use_swiglu_ffn": True}
RELATIVE = {"use_relative_position_bias": True, "intermediate_size": 96}
GATED = {"use_gated_mlp": True, "hidden_act": "silu", "num_register_tokens": 4}
BACKBONES = {  # their class and its config; our variant and its; what is ours of theirs
    "dinov2, class": (
        *(hf.Dinov2ForImageClassification, {"num_labels": 7}),
        *("dinov2-s/14", {"mlp_dim": 192, "classes": 7, "pool": "class+mean"}, "logits"),
    ),
    "dinov2, gated": (
        *(hf.Dinov2Model, SWIGLU),
        *("dinov2-g/14", {"mlp_dim": 128, "head": "none"}, "pooler_output"),
    ),
    "dinov2, registers": (
        *(hf.Dinov2WithRegistersForImageClassification, {"num_labels": 7}),
        *("dinov2-s/14-reg", {"mlp_dim": 192, "classes": 7, "pool": "class+mean"}, "logits"),
    ),
    "dinov2, registers, gated": (
        *(hf.Dinov2WithRegistersModel, SWIGLU),
        *("dinov2-g/14-reg", {"mlp_dim": 128, "head": "none", "pool": "none"}),
        "last_hidden_state",
    ),
    "tipsv2": (
        *(hf.Tipsv2VisionModel, {}),
        *("tipsv2-b/14", {"mlp_dim": 192, "head": "none", "pool": "none"}, "last_hidden_state"),
    ),
    "dinov3": (
        *(hf.DINOv3ViTModel, {"num_register_tokens": 4, "intermediate_size": 96}),
        *("dinov3-s/16", {"mlp_dim": 96, "head": "none"}, "pooler_output"),
    ),
    "dinov3, gated": (
        *(hf.DINOv3ViTModel, {**GATED, "intermediate_size": 96}),
        *("dinov3-s+/16", {"mlp_dim": 96, "head": "none", "pool": "none"}, "last_hidden_state"),
    ),
    "dinov3, all biases": (
        *(hf.DINOv3ViTModel, {**GATED, "key_bias": True, "intermediate_size": 96}),
        *("dinov3-s+/16", {"mlp_dim": 96, "head": "none", "key_bias": True}, "pooler_output"),
    ),
    "beit": (
        *(hf.BeitForImageClassification, {**RELATIVE, "num_labels": 7}),
        *("beit-b/16", {"mlp_dim": 96, "classes": 7}, "logits"),
    ),
    "beit, bare": (
        *(hf.BeitModel, {**RELATIVE, "use_mask_token": True}),
        *("beit-l/16", {"mlp_dim": 96, "head": "none"}, "pooler_output"),
    ),
}


def small_backbones(kind):
    model, changes, name, fields, output = BACKBONES[kind]
    sizes = {key: SMALL[key] for key in SMALL if key not in ("intermediate_size", "num_labels")}
    ours = {**{key: OURS[key] for key in OURS if key != "mlp_dim"}, **fields}
    theirs = model(model.config_class(**sizes, **changes))
    return theirs, vitreous.create(name, **ours), output


@pytest.mark.parametrize("kind", BACKBONES)
def test_backbone(kind):
    theirs, ours, output = small_backbones(kind)
    size = (24, 48) if kind.startswith("dinov3") else (32, 32)  # any size, where there is no table
    images = picture(2, 3, *size)
    both_ways(theirs, ours, images, "huggingface", lambda found: getattr(found, output))


@torch.no_grad()
@pytest.mark.parametrize("kind", [kind for kind in BACKBONES if kind != "tipsv2"])
def test_folder_of_a_backbone(kind, tmp_path):
    """Read as transformers saves it, and written for it."""
    theirs, _, output = small_backbones(kind)
    again, images = converted(perturb(theirs), tmp_path), picture(2, 3, 32, 32)
    wanted = getattr(theirs(images), output)
    assert relative_error(getattr(again(images), output), wanted) < TOLERANCE


def small_swins(kind=hf.SwinForImageClassification, size=(32, 32), patch=4, **options):
    shared = {"depths": [2, 2], "qkv_bias": True, "mlp_ratio": 4.0, **options}
    theirs = kind(
        hf.SwinConfig(
            image_size=size,
            patch_size=patch,
            embed_dim=16,
            num_heads=[2, 4],
            window_size=4,
            num_labels=7,
            **shared,
        )
    )
    head = {"head": "none"} if kind is hf.SwinModel else {"classes": 7}
    fields = {"image_size": size, "patch": patch, "dim": 16, "heads": (2, 4), "window": 4}
    return theirs, vitreous.create("swin", **fields, **head, **shared)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": (64, 96)},
        {"size": (52, 76)},  # 13x19 and 7x10 patches: padded to whole windows
        {"size": (50, 75)},  # padded to whole patches too
        {"depths": [1, 3]},
        {"patch": 2, "size": (32, 48)},
        {"qkv_bias": False, "mlp_ratio": 2.5},
    ],
    ids=str,
)
def test_swin(options):
    theirs, ours = small_swins(**options)
    images = picture(2, 3, *options.get("size", (32, 32)))
    both_ways(theirs, ours, images, "huggingface", logits)


@torch.no_grad()
def test_swin_where_one_side_is_no_longer_than_a_window():
    """There transformers shifts no window at all; torchvision, timm and we shift the long side."""
    for size, alike in (((32, 64), False), ((64, 64), True)):
        theirs, ours = small_swins(size=size)
        vitreous.import_weights(ours.eval(), perturb(theirs).state_dict(), "huggingface")
        images = picture(2, 3, *size)
        assert (relative_error(ours(images), theirs(images).logits) < TOLERANCE) == alike


def test_bare_swin():
    theirs, ours = small_swins(hf.SwinModel)
    images = picture(2, 3, 32, 32)
    both_ways(theirs, ours, images, "huggingface", lambda output: output.pooler_output)


def test_swin_t_at_full_size():
    theirs = hf.SwinForImageClassification(hf.SwinConfig(num_labels=1000))
    ours = vitreous.create("microsoft/swin-tiny-patch4-window7-224")
    report = both_ways(theirs, ours, picture(2, 3, 224, 224), "huggingface", logits)
    assert not report.numbers, "transformers' epsilon is the paper's here"


@torch.no_grad()
@pytest.mark.parametrize("format", ["huggingface", "huggingface-v4"])
def test_swin_files_of_save_pretrained_and_for_from_pretrained(tmp_path, format):
    """Files keep the names of transformers 4, and those on the hub an index for each block."""
    theirs, ours = small_swins()
    perturb(theirs).save_pretrained(tmp_path)
    stored = read_tensors(tmp_path).tensors
    table = "swin.encoder.layers.1.blocks.0.attention.self.relative_position_bias_table"
    assert table in stored, "the names of 4.x"
    index = table.replace("bias_table", "index")
    stored[index] = torch.zeros(16, 16, dtype=torch.int64)
    write_tensors(tmp_path / "model.safetensors", stored, "safetensors", {"format": "pt"})
    report = vitreous.import_weights(ours.eval(), tmp_path)
    assert (report.format, report.dropped) == ("huggingface", [index])
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs.eval()(images).logits) < TOLERANCE

    perturb(ours, seed=9)
    exported = vitreous.export_weights(ours, format)
    assert (table in exported) == (format == "huggingface-v4")
    write_tensors(tmp_path / "model.safetensors", exported, "safetensors", {"format": "pt"})
    again = opened(hf.SwinForImageClassification, tmp_path)
    assert relative_error(again(images).logits, ours(images)) < TOLERANCE
