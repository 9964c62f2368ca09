"""Masked autoencoders: forward and loss as transformers computes them, weights both ways."""

import pytest
import torch
from compare import perturb, picture, relative_error
from transformers import ViTMAEConfig, ViTMAEForPreTraining

import vitreous
from vitreous.models.mae import patchify
from vitreous.tasks.mae.task import masked_loss
from vitreous.weights.adopt import find
from vitreous.weights.importing import load

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 48, "image_size": 24, "patch_size": 6, "num_channels": 1}
SMALL |= {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1}
SMALL |= {"decoder_num_attention_heads": 2, "decoder_intermediate_size": 40}
OURS = {"image_size": 24, "channels": 1, "encoder": "mae", "decoder_dim": 16, "decoder_heads": 2}
OURS |= {"decoder_depth": 1, "decoder_mlp_dim": 40}
ENCODER = {"patch": 6, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 48}
TOLERANCE = 1e-5


def make(**changes):
    fields = {**OURS, "encoder_fields": ENCODER, **changes}
    return perturb(vitreous.create("mae-pretrain", **fields)).eval()


@torch.no_grad()
@pytest.mark.parametrize("norm_pix_loss", [True, False])
@pytest.mark.parametrize("mask_ratio", [0.75, 0.4])
def test_forward_and_loss_of_transformers_both_ways(norm_pix_loss, mask_ratio, tmp_path):
    options = {"norm_pix_loss": norm_pix_loss, "mask_ratio": mask_ratio}
    theirs = perturb(ViTMAEForPreTraining(ViTMAEConfig(**SMALL, **options))).eval()
    ours = make(normalised_pixels=norm_pix_loss, mask_ratio=mask_ratio)
    images, noise = picture(2, 1, 24, 24), torch.rand(2, 16)

    def compare(theirs, ours):
        wanted, got = theirs(images, noise=noise), ours(images, noise)
        assert relative_error(got.prediction, wanted.logits) < TOLERANCE
        assert torch.equal(got.mask.flatten(1), wanted.mask)
        assert abs(masked_loss(got).mean() - wanted.loss) < TOLERANCE
        assert torch.equal(patchify(images, (4, 4)), theirs.patchify(images))

    report = vitreous.import_weights(ours, theirs.state_dict())
    assert report.dropped == []
    assert report.format == "huggingface"
    compare(theirs, ours)
    again = ViTMAEForPreTraining(ViTMAEConfig(**SMALL, **options)).eval()
    again.load_state_dict(vitreous.export_weights(ours, "huggingface"))
    compare(again, ours)

    theirs.save_pretrained(tmp_path / "theirs")
    found = find(tmp_path / "theirs", model="mae-pretrain")
    compare(theirs, load(found)[0])
    assert find(tmp_path / "theirs").model == "mae", "the encoder alone, unless it is asked for"
    vitreous.convert(
        tmp_path / "theirs", tmp_path / "ours", to_format="huggingface-v4", model="mae-pretrain"
    )
    read, info = ViTMAEForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert [*info["missing_keys"], *info["unexpected_keys"]] == []
    compare(read.eval(), ours)


def test_a_run_folder_with_the_decoder(tmp_path):
    theirs = perturb(ViTMAEForPreTraining(ViTMAEConfig(**SMALL)))
    theirs.save_pretrained(tmp_path / "theirs")
    options = {"mean": (0.5,), "std": (0.5,), "crop": 1.0, "interpolation": "bicubic"}
    with pytest.raises(vitreous.errors.ConfigError, match="mean"):
        vitreous.import_run(tmp_path / "theirs", tmp_path / "run", model="mae-pretrain")
    vitreous.import_run(tmp_path / "theirs", tmp_path / "run", model="mae-pretrain", **options)
    predictor = vitreous.load(tmp_path / "run")
    assert predictor.task.name == "mae"
    result = predictor(torch.rand(1, 30, 40))
    assert result.loss > 0
    assert result.mask.sum() == 12


def test_keys_of_the_papers_code(tmp_path):
    """facebookresearch/mae: mae_pretrain_vit_*_full.pth, or what main_pretrain.py saves."""
    ours = make()
    keys = vitreous.export_weights(ours, "deit")
    assert {"mask_token", "decoder_pos_embed", "decoder_embed.weight", "cls_token"} <= keys.keys()
    assert {"decoder_blocks.0.attn.qkv.weight", "decoder_norm.bias"} <= keys.keys()
    assert keys["decoder_pred.weight"].shape == (36, 16)
    assert keys["decoder_pos_embed"].shape == (1, 17, 16)
    torch.save({"model": keys, "epoch": 3}, tmp_path / "pretrain.pth")
    heads = {"encoder_fields": {"heads": 4}, "decoder_heads": 2}
    found = find(tmp_path / "pretrain.pth", model="mae-pretrain", changes=heads)
    again, report = load(found)
    images = picture(2, 1, 24, 24)
    assert report.format == "deit"
    assert torch.equal(again(images).prediction, ours(images).prediction)
    encoder, report = load(find(tmp_path / "pretrain.pth"))
    assert encoder.config.head.kind == "none"
    assert all(key.startswith(("mask_token", "decoder_")) for key in report.dropped)
