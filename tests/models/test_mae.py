"""A masked autoencoder: what is hidden stays hidden, and any plain ViT can be inside."""

import pytest
import torch
from compare import perturb

import vitreous
from vitreous.errors import ConfigError
from vitreous.models.mae import patchify, unpatchify
from vitreous.tasks.mae.task import TASK, masked_loss

TINY = {"patch": 4, "dim": 16, "depth": 1, "heads": 2}


def make(mask_ratio=0.75, **fields):
    changes = {"image_size": 32, "mask_ratio": mask_ratio, "encoder_fields": {**TINY, **fields}}
    return perturb(vitreous.create("mae-pretrain", encoder="vit", **changes))


def test_the_encoder_sees_nothing_of_what_is_hidden():
    model, images = make().eval(), torch.randn(2, 3, 32, 32)
    output = model(images)
    hidden = output.mask[:, None].repeat_interleave(4, 2).repeat_interleave(4, 3).bool()
    other = torch.where(hidden, torch.randn_like(images), images)
    assert torch.equal(model(other).prediction, output.prediction)
    assert not torch.equal(model(other).target, output.target)
    seen = torch.where(hidden, images, torch.randn_like(images))
    assert not torch.equal(model(seen).prediction, output.prediction)


@pytest.mark.parametrize("mask_ratio", [0.75, 0.5])
def test_masks_differ_in_training_and_are_the_same_in_evaluation(mask_ratio):
    model, images = make(mask_ratio).train(), torch.randn(3, 3, 32, 32)
    torch.manual_seed(0)
    masks = model(images).mask
    assert masks.flatten(1).sum(dim=1).tolist() == [64 * mask_ratio] * 3
    assert not torch.equal(masks[0], masks[1])
    torch.manual_seed(0)
    assert torch.equal(model(images).mask, masks)
    model.eval()
    whole = model(images)
    for i in range(3):  # whatever batch an image is in
        alone = model(images[i : i + 1])
        assert torch.equal(alone.mask[0], whole.mask[i])
        torch.testing.assert_close(alone.prediction[0], whole.prediction[i])


@pytest.mark.parametrize(
    "fields",
    [
        {"position": "sines-2d", "tokens": "none", "pool": "mean"},
        {"registers": 2},
        {"tokens": "class+distillation", "pool": "both", "position": "learned-2d"},
        {"final_norm": "pooled"},
    ],
)
def test_every_parameter_learns(fields):
    model = make(**fields).train()
    TASK().loss(model(torch.randn(2, 3, 32, 32)), None)["loss"].backward()
    unmoved = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert unmoved == {"decoder.position.table"}, "which are fixed sines"


def test_loss_and_pictures():
    model, images = make().eval(), torch.randn(2, 3, 32, 24)
    assert torch.equal(unpatchify(patchify(images, (8, 6)), (8, 6), (32, 24)), images)
    images = torch.randn(2, 3, 32, 32)
    output = model(images)
    torch.testing.assert_close(output.target * output.std + output.mean, patchify(images, (8, 8)))
    assert masked_loss(output._replace(prediction=output.target)).tolist() == [0, 0]
    seen = output.mask.flatten(1)[:, :, None] == 0  # visible patches do not count
    wrong = torch.where(seen, output.target + 1, output.target)
    assert masked_loss(output._replace(prediction=wrong)).tolist() == [0, 0]
    found = TASK().infer(lambda images: output._replace(prediction=output.target), images, [])
    torch.testing.assert_close(found[1].pixels, images[1])


def test_decoders_have_a_size_that_fits_the_encoder():
    with torch.device("meta"):
        sizes = {
            name: vitreous.create("mae-pretrain", encoder=name).config
            for name in ("vit-ti/16", "vit-s/16", "mae-b/16", "vit-l/16")
        }
    found = {n: (c.decoder_dim, c.decoder_depth, c.decoder_heads) for n, c in sizes.items()}
    assert found["mae-b/16"] == found["vit-l/16"] == (512, 8, 16)
    assert found["vit-ti/16"] == (128, 4, 4)
    assert found["vit-s/16"] == (256, 4, 8)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder": "swin-t"}, "no plain ViT"),
        ({"encoder": "resnet-18"}, "no plain ViT"),
        ({"encoder": "cpvt-ti/16"}, r"positions \(conditional\) that need all patches"),
        ({"encoder": "dinov3-s/16"}, r"positions \(rotary\)"),
        ({"encoder": "r50+vit-b/16"}, "convolutions"),
        ({"encoder": "mae-pretrain-b/16"}, "no model that classifies"),
        ({"mask_ratio": 1.0}, "mask_ratio = 1.0"),
        ({"mask_ratio": 0.75, "image_size": 16}, "leaves all of them hidden"),
        ({"decoder_dim": 30, "decoder_heads": 4}, "decoder_dim = 30"),
        ({"image_size": 100}, "does not divide"),
        ({"classes": 10}, "classes"),
    ],
)
def test_what_cannot_be_masked_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words), torch.device("meta"):
        vitreous.create("mae-pretrain", **changes)


def test_another_image_size():
    model = make()
    state = vitreous.export_weights(model, "vitreous")
    larger = vitreous.create("mae-pretrain", **{**vars(model.config), "image_size": 40})
    report = vitreous.import_weights(larger, state, resample="bicubic")
    assert {*report.resampled} == {"encoder.position.table", "decoder.position.table"}
    assert larger(torch.randn(1, 3, 40, 40)).prediction.shape == (1, 100, 48)
