"""ViT and DeiT give transformers' outputs with its weights, and the other way."""

import pytest
import torch
from compare import TOLERANCE, both_ways, perturb, picture, relative_error
from transformers import (
    DeiTConfig,
    DeiTForImageClassificationWithTeacher,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

import vitreous

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


def logits(output):
    return output.logits


@pytest.mark.parametrize("bias", [True, False])
def test_vit(bias):
    theirs = ViTForImageClassification(ViTConfig(**SMALL, qkv_bias=bias))
    ours = vitreous.create("vit", **OURS, classes=7, qkv_bias=bias)
    report = both_ways(theirs, ours, picture(2, 3, 32, 32), "huggingface", logits)
    assert ours.config.norm_eps == 1e-12, "transformers' epsilon comes with its weights"
    assert "norm_eps" in report.numbers


def test_vit_b16_at_full_size():
    theirs = ViTForImageClassification(ViTConfig(num_labels=1000))
    ours = vitreous.create("google/vit-base-patch16-224")
    report = both_ways(theirs, ours, picture(2, 3, 224, 224), "huggingface", logits)
    assert not report.numbers, "the name already says the epsilon"


def test_deit_with_teacher():
    theirs = DeiTForImageClassificationWithTeacher(DeiTConfig(**SMALL))
    ours = vitreous.create("vit", **OURS, classes=7, tokens="class+distillation", pool="both")
    images = picture(2, 3, 32, 32)
    both_ways(theirs, ours, images, "huggingface", logits)
    with torch.no_grad():
        reference, both = theirs(images), ours.train()(images)
    assert relative_error(both.class_logits, reference.cls_logits) < TOLERANCE
    assert relative_error(both.distillation_logits, reference.distillation_logits) < TOLERANCE


@torch.no_grad()
def test_bare_model_without_head():
    theirs = perturb(ViTModel(ViTConfig(**SMALL)))
    ours = vitreous.create("vit", **OURS, head="none", pool="none").eval()
    report = vitreous.import_weights(ours, theirs.state_dict(), format="huggingface")
    assert report.dropped == ["pooler.dense.weight", "pooler.dense.bias"]
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images).last_hidden_state) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("format", ["huggingface", "huggingface-v4"])
def test_files_of_save_pretrained_and_for_from_pretrained(tmp_path, format):
    """Files keep the names of transformers 4; both spellings are read, by us and by them."""
    theirs = perturb(ViTForImageClassification(ViTConfig(**SMALL)))
    theirs.save_pretrained(tmp_path)
    ours = vitreous.create("vit", **OURS, classes=7).eval()
    vitreous.import_weights(ours, tmp_path, format="huggingface")
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images).logits) < TOLERANCE

    from vitreous.weights.files import write_tensors

    perturb(ours, seed=9)
    exported = vitreous.export_weights(ours, format)
    write_tensors(tmp_path / "model.safetensors", exported, "safetensors", {"format": "pt"})
    again, info = ViTForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert [*info["missing_keys"], *info["unexpected_keys"]] == []
    assert relative_error(again.eval()(images).logits, ours(images)) < TOLERANCE
