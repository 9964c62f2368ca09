"""ViT, DeiT, hybrids, ResNets and Swins give timm's outputs with timm's weights, and back."""

import re

import pytest
import timm
import torch
from compare import TOLERANCE, assert_same_bits, both_ways, perturb, picture, relative_error
from timm.models.deit import VisionTransformerDistilled
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer

import vitreous
from vitreous.errors import CheckpointError
from vitreous.models.names import translate

SMALL = {"depth": 2}


def small_timm(**changes):
    fields = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4}
    return VisionTransformer(**{**fields, "num_classes": 7, **changes})


def small_ours(**changes):
    fields = {"image_size": 32, "patch": 8, "dim": 48, "depth": 3, "heads": 4, "classes": 7}
    return vitreous.create("vit", **{**fields, **changes})


@pytest.mark.parametrize(
    ("name", "theirs", "size"),
    [
        ("vit-ti/16", "vit_tiny_patch16_224", (224, 224)),
        ("vit-s/16", "vit_small_patch16_224", (224, 224)),
        ("vit-s/32", "vit_small_patch32_224", (224, 224)),
        ("vit-b/32", "vit_base_patch32_384", (384, 384)),
        ("vit-s/16", "vit_small_patch16_384", (384, 384)),
        ("vit-ti/16", "vit_tiny_patch16_224", (160, 224)),
        ("r+vit-ti/16", "vit_tiny_r_s16_p8_224", (224, 224)),
        ("r26+vit-s/32", "vit_small_r26_s32_224", (96, 160)),
        ("r26+vit-s/32", "vit_small_r26_s32_224", (100, 90)),
        ("r50+vit-b/16", "vit_base_r50_s16_224", (96, 96)),
        ("r50+vit-l/32", "vit_large_r50_s32_224", (96, 96)),
    ],
)
def test_vit_and_hybrid(name, theirs, size):
    reference = timm.create_model(theirs, img_size=size, num_classes=11, **SMALL)
    ours = vitreous.create(name, image_size=size, classes=11, **SMALL)
    both_ways(reference, ours, picture(2, 3, *size), "timm")


@pytest.mark.parametrize("size", [(40, 16), (37, 70)])
def test_vit_at_another_size_than_it_was_made_for(size):
    """timm's dynamic_img_size, and dynamic_img_pad for what is no multiple of the patch."""
    reference = small_timm(dynamic_img_size=True, dynamic_img_pad=True)
    ours = small_ours(dynamic_size=True, pad=True).eval()
    vitreous.import_weights(ours, perturb(reference).state_dict(), "timm")
    images = picture(2, 3, *size)
    with torch.no_grad():
        assert relative_error(ours(images), reference(images)) < TOLERANCE


def test_vit_b16_at_full_size():
    reference = timm.create_model("vit_base_patch16_224")
    ours = vitreous.create("vit_base_patch16_224")
    both_ways(reference, ours, picture(2, 3, 224, 224), "timm")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"global_pool": "avg"}, {"pool": "mean", "final_norm": "pooled"}),
        (
            {"global_pool": "avg", "class_token": False, "fc_norm": False},
            {"pool": "mean", "tokens": "none"},
        ),
        ({"global_pool": ""}, {"pool": "none"}),
        ({"qkv_bias": False}, {"qkv_bias": False}),
        ({"qk_norm": True}, {"qk_norm": True}),
        ({"init_values": 0.1}, {"layer_scale": 0.1}),
        ({"final_norm": False}, {"final_norm": False}),
        ({"mlp_ratio": 2.5}, {"mlp_dim": 120}),
        ({"in_chans": 5, "img_size": (24, 40)}, {"channels": 5, "image_size": (24, 40)}),
        ({"patch_size": (4, 8)}, {"patch": (4, 8)}),
        ({"act_layer": "gelu_tanh"}, {"activation": "gelu-tanh"}),
        ({"act_layer": "relu"}, {"activation": "relu"}),
        ({"act_layer": "quick_gelu"}, {"activation": "quick-gelu"}),
        ({"reg_tokens": 3}, {"registers": 3}),
        ({"pos_embed": "none"}, {"position": "none"}),
        ({"pre_norm": True}, {"embed_norm": True, "patch_bias": False}),
        ({"class_token": False, "global_pool": "map"}, {"tokens": "none", "pool": "attention"}),
        (
            {"no_embed_class": True, "reg_tokens": 2, "init_values": 0.1},
            {"prefix_positions": False, "registers": 2, "layer_scale": 0.1},
        ),
    ],
    ids=str,
)
def test_every_choice(theirs, ours):
    size = ours.get("image_size", (32, 32))
    images = picture(2, ours.get("channels", 3), *size)
    both_ways(small_timm(**theirs), small_ours(norm_eps=1e-6, **ours), images, "timm")


@torch.no_grad()
def test_positions_without_rows_for_prefix_tokens():
    """timm's no_embed_class: the import knows it by the number of rows."""
    theirs = perturb(small_timm(no_embed_class=True, reg_tokens=2))
    ours = small_ours(registers=2).eval()
    report = vitreous.import_weights(ours, theirs.state_dict(), format="timm")
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE
    assert any("without rows" in note for note in report.notes)
    assert_same_bits(vitreous.export_weights(ours, "timm"), theirs.state_dict())


@torch.no_grad()
def test_silu_gated_mlp():
    from timm.layers import GluMlp

    theirs = perturb(small_timm(mlp_layer=GluMlp, act_layer="silu", mlp_ratio=4))
    # timm counts both halves as the MLP's width, and lets the second one be the gate.
    ours = small_ours(activation="silu-gated", mlp_dim=96).eval()
    state = theirs.state_dict()
    for key in [k for k in state if ".fc1." in k]:
        value, gate = state[key].chunk(2)
        state[key] = torch.cat((gate, value))
    vitreous.import_weights(ours, state, format="timm")
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE


BY_NAME = [
    ("vit_base_patch32_clip_224", {}, {}),
    ("vit_base_patch32_clip_quickgelu_224", {"img_size": 64}, {}),
    ("vit_large_patch14_clip_224", {"img_size": (28, 42)}, {}),
    ("vit_base_patch16_siglip_224", {}, {}),
    ("vit_so400m_patch14_siglip_224", {"img_size": (28, 42)}, {}),
    ("vit_giantopt_patch16_siglip_256", {"img_size": 32}, {}),
    ("deit3_small_patch16_224", {}, {}),
    ("deit3_medium_patch16_224", {"img_size": 48}, {}),
    ("vit_base_patch16_224.mae", {"img_size": 48}, {}),
    ("vit_pe_core_base_patch16_224", {"img_size": (48, 64)}, {}),
    ("vit_pe_core_large_patch14_336", {"img_size": (28, 42)}, {}),
    (
        "vit_pe_core_gigantic_patch14_448",
        {"img_size": (28, 42), "attn_pool_mlp_ratio": 6144 / 48},
        {},
    ),
    ("vit_small_patch14_dinov2", {"img_size": 42}, {}),
    ("vit_small_patch14_dinov2", {"img_size": (28, 56)}, {}),
    ("vit_small_patch14_reg4_dinov2", {"img_size": (28, 56)}, {}),
    ("vit_giant_patch14_reg4_dinov2", {"img_size": 56}, {}),
    ("vit_so400m_patch14_reg1_tipsv2", {"img_size": 56}, {}),
    ("vit_small_patch16_dinov3", {"img_size": 64}, {}),
    ("vit_small_plus_patch16_dinov3", {"img_size": 48}, {}),
    ("vit_base_patch16_dinov3_qkvb", {"img_size": (32, 64)}, {}),
    (
        *("vit_huge_plus_patch16_dinov3_qkvb", {"img_size": (80, 48), "global_pool": "token"}),
        {"pool": "class"},
    ),
    ("eva02_tiny_patch14_336", {"img_size": 42}, {}),
    ("eva02_base_patch14_448", {"img_size": (28, 56)}, {}),
    ("eva02_large_patch14_224", {"img_size": (70, 28), "init_values": 0.3}, {"layer_scale": 0.3}),
    ("beit_base_patch16_224", {"img_size": 48}, {}),
    ("beit_large_patch16_384", {"img_size": (32, 80)}, {}),
    ("beitv2_base_patch16_224", {"img_size": 32, "qkv_bias": False}, {"qkv_bias": False}),
]


@pytest.mark.parametrize(("theirs", "changes", "fields"), BY_NAME, ids=str)
def test_by_name(theirs, changes, fields):
    """Every choice of these families, which timm's name alone must bring."""
    small = {"embed_dim": 48, "num_heads": 4, "depth": 2, "num_classes": 7}
    reference = timm.create_model(theirs, **small, **changes)
    size, hidden = reference.patch_embed.img_size, reference.blocks[0].mlp.fc2.in_features
    ours = {"dim": 48, "heads": 4, "depth": 2, "mlp_dim": hidden, "classes": 7, **fields}
    ours = vitreous.create(theirs, **ours, image_size=size)
    both_ways(reference, ours, picture(2, 3, *size), "timm")


NEWER = [
    "*dinov2",
    "*tipsv2",
    "*dinov3*",
    "*_clip_*",
    "*_siglip_*",
    "deit3_*",
    "beit*",
    "eva02_*",
    "*_pe_core_*",
]
KNOWN = [
    name
    for name in timm.list_models(NEWER)
    if (ours := translate(name)) is not None and ours[0] in vitreous.models()
]


@torch.no_grad()
@pytest.mark.parametrize("name", KNOWN)
def test_outputs_of_every_name(name):
    """The numbers that hide behind a name: activation, epsilon, rotary positions, pooling."""
    patch = int(re.search(r"patch(\d+)", name)[1])
    size = (2 * patch, patch)
    small = {"embed_dim": 24, "num_heads": 3, "depth": 1, "num_classes": 5, "img_size": size}
    if "pe_core_gigantic" in name:
        small["attn_pool_mlp_ratio"] = 6144 / 24
    reference = perturb(timm.create_model(name, **small))
    fields = {"dim": 24, "heads": 3, "depth": 1, "classes": 5, "image_size": size}
    hidden = reference.blocks[0].mlp.fc2.in_features
    ours = vitreous.create(name, **fields, mlp_dim=hidden).eval()
    vitreous.import_weights(ours, reference.state_dict(), "timm")
    images = picture(2, 3, *size)
    assert relative_error(ours(images), reference(images)) < TOLERANCE


def test_names_of_all_families():
    assert len(KNOWN) > 70


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("dinov2-s/14", "vit_small_patch14_dinov2"),
        ("dinov2-g/14-reg", "vit_giant_patch14_reg4_dinov2"),
    ],
)
def test_files_of_dinov2_itself(name, theirs):
    """timm's own conversion of their names is the reference."""
    from timm.models.vision_transformer import checkpoint_filter_fn

    small = {"dim": 48, "heads": 4, "depth": 2, "mlp_dim": 256, "image_size": 56, "head": "none"}
    ours = perturb(vitreous.create(name, **small))
    exported = vitreous.export_weights(ours, "official")
    ratio = 2 * 256 / 48 if "giant" in theirs else 256 / 48
    options = {"embed_dim": 48, "num_heads": 4, "depth": 2, "img_size": 56, "num_classes": 0}
    reference = timm.create_model(theirs, **options, mlp_ratio=ratio).eval()
    reference.load_state_dict(checkpoint_filter_fn(dict(exported), reference), strict=True)
    images = picture(2, 3, 56, 56)
    assert relative_error(ours(images), reference(images)) < TOLERANCE
    again = vitreous.create(name, **small).eval()
    exported["mask_token"] = torch.randn(1, 48)
    report = vitreous.import_weights(again, exported)
    assert (report.format, report.kept) == ("official", ["mask_token"])
    assert_same_bits(vitreous.export_weights(again, "official"), exported)
    assert torch.equal(again(images), ours(images))


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("dinov3-s/16", "vit_small_patch16_dinov3_qkvb"),
        ("dinov3-s+/16", "vit_small_plus_patch16_dinov3_qkvb"),
    ],
)
def test_files_of_dinov3_itself(name, theirs):
    """timm's own conversion of their names is the reference."""
    from timm.models.eva import checkpoint_filter_fn

    small = {"dim": 48, "heads": 4, "depth": 2, "image_size": 48, "head": "none"}
    hidden = {"mlp_dim": 192}
    ours = perturb(vitreous.create(name, **small, **hidden))
    state = vitreous.export_weights(ours, "official")
    state["mask_token"] = torch.randn(1, 48)
    state["rope_embed.periods"] = state["rope_embed.periods"].bfloat16().float()
    state["blocks.0.attn.qkv.bias"][48:96] = 0.5  # the mask holds it at zero
    options = {"embed_dim": 48, "num_heads": 4, "depth": 2, "img_size": 48, "num_classes": 0}
    reference = timm.create_model(theirs, **options, mlp_ratio=4, global_pool="token").eval()
    reference.load_state_dict(checkpoint_filter_fn(dict(state), reference), strict=True)
    images = picture(2, 3, 48, 48)
    again = vitreous.create(name, **small, **hidden).eval()
    report = vitreous.import_weights(again, state)
    assert (report.format, report.kept) == ("official", ["mask_token", "rope_embed.periods"])
    assert relative_error(again(images), reference(images)) < TOLERANCE
    assert_same_bits(vitreous.export_weights(again, "official"), state)
    other = vitreous.create(name, **small, **hidden, rotary_base=1000.0)
    with pytest.raises(CheckpointError, match=r"rope_embed\.periods: other values"):
        vitreous.import_weights(other, state, "official")


@torch.no_grad()
def test_dinov3_at_any_size():
    """Coordinates follow the image: no size is special, and no aspect ratio."""
    small = {"embed_dim": 48, "num_heads": 4, "depth": 2, "num_classes": 0}
    theirs = perturb(timm.create_model("vit_small_patch16_dinov3", **small))
    ours = {"dim": 48, "heads": 4, "depth": 2, "mlp_dim": 192, "head": "none"}
    ours = vitreous.create("vit_small_patch16_dinov3", **ours).eval()
    vitreous.import_weights(ours, theirs.state_dict())
    for size in ((64, 64), (32, 112), (96, 16)):
        images = picture(2, 3, *size)
        assert relative_error(ours(images), theirs(images)) < TOLERANCE


@torch.no_grad()
def test_towers_of_openai_and_open_clip():
    """timm's own conversion of their names is the reference: of a whole CLIP, text included."""
    from timm.models.vision_transformer import checkpoint_filter_fn

    small = {"dim": 48, "heads": 4, "depth": 2, "mlp_dim": 192}
    ours = perturb(vitreous.create("clip-b/32-image", **small, head="projection", classes=7))
    exported = vitreous.export_weights(ours, "open_clip")
    assert "visual.transformer.resblocks.1.attn.in_proj_weight" in exported
    theirs = timm.create_model(
        "vit_base_patch32_clip_quickgelu_224", embed_dim=48, num_heads=4, depth=2, num_classes=7
    ).eval()
    text = ["positional_embedding", "transformer.resblocks.0.ln_1.weight", "ln_final.bias"]
    text += ["token_embedding.weight", "text_projection", "logit_scale"]
    whole = {**exported, **{key: torch.ones(3, 4) for key in text}}
    theirs.load_state_dict(checkpoint_filter_fn(whole, theirs), strict=True)
    images = picture(2, 3, 224, 224)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE

    again = vitreous.create("clip-b/32-image", **small, head="projection", classes=7)
    report = vitreous.import_weights(again, whole)
    assert (report.format, report.dropped) == ("open_clip", text)
    assert torch.equal(again.eval()(images), ours(images))
    by_itself = {key.removeprefix("visual."): value for key, value in exported.items()}
    assert vitreous.import_weights(again, by_itself).format == "open_clip"


@torch.no_grad()
def test_a_model_of_timm_inside_open_clip():
    """open_clip's SigLIP: its trunk is timm's model."""
    theirs = perturb(small_timm(class_token=False, global_pool="map", num_classes=0, reg_tokens=0))
    tower = {f"visual.trunk.{key}": value for key, value in theirs.state_dict().items()}
    text = {"text.token_embedding.weight": torch.ones(3, 4), "logit_bias": torch.ones([])}
    ours = {"image_size": 32, "patch": 8, "dim": 48, "depth": 3, "heads": 4, "head": "none"}
    ours = vitreous.create("siglip", **ours, activation="gelu").eval()
    report = vitreous.import_weights(ours, {**tower, **text})
    assert (report.format, report.dropped) == ("open_clip", [*text])
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE
    assert_same_bits(vitreous.export_weights(ours, "open_clip"), tower)


@torch.no_grad()
def test_perception_encoder_in_its_own_names():
    from timm.models.eva import checkpoint_filter_fn

    small = {"dim": 48, "heads": 4, "depth": 2, "mlp_dim": 192, "image_size": 64}
    ours = perturb(vitreous.create("pe-b/16-image", **small, head="projection", classes=7))
    exported = vitreous.export_weights(ours, "official")
    assert "visual.attn_pool.attn.in_proj_weight" in exported
    theirs = timm.create_model(
        *("vit_pe_core_base_patch16_224",),
        **{"embed_dim": 48, "num_heads": 4, "depth": 2, "num_classes": 7, "img_size": 64},
    ).eval()
    theirs.load_state_dict(checkpoint_filter_fn(exported, theirs), strict=True)
    images = picture(2, 3, 64, 64)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE


def test_deit_distilled():
    theirs = VisionTransformerDistilled(
        img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=4, num_classes=7
    )
    ours = small_ours(tokens="class+distillation", pool="both")
    images = picture(2, 3, 32, 32)
    both_ways(theirs, ours, images, "timm")
    theirs.set_distilled_training(True)
    with torch.no_grad():
        pairs = zip(ours.train()(images), theirs.train()(images), strict=True)
    for mine, reference in pairs:
        assert relative_error(mine, reference) < TOLERANCE


def test_deit_small_distilled_by_name_as_deit_file():
    theirs = timm.create_model("deit_small_distilled_patch16_224", depth=2)
    ours = vitreous.create("deit-s/16-distilled", depth=2)
    both_ways(theirs, ours, picture(2, 3, 224, 224), "deit")


@pytest.mark.parametrize("layers", [18, 34, 50, 101])
def test_resnet(layers):
    theirs = timm.create_model(f"resnet{layers}", num_classes=11)
    ours = vitreous.create(f"resnet-{layers}", classes=11)
    both_ways(theirs, ours, picture(2, 3, 70, 64), "timm")


def small_swins(size=(32, 32), patch=4, window=4, depths=(2, 2), heads=(2, 4), **options):
    shared = {"qkv_bias": True, "mlp_ratio": 4.0, **options}
    theirs = SwinTransformer(
        img_size=size,
        patch_size=patch,
        window_size=window,
        embed_dim=16,
        depths=depths,
        num_heads=heads,
        num_classes=7,
        **shared,
    )
    fields = {"image_size": size, "patch": patch, "window": window}
    ours = vitreous.create(
        "swin", **fields, dim=16, depths=depths, heads=heads, classes=7, **shared
    )
    return theirs, ours


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": (64, 96)},
        {"size": (32, 64)},  # one window high in the second stage: only columns are shifted
        {"depths": (1, 1)},  # no window is shifted
        {"depths": (3, 1, 2), "heads": (1, 2, 8), "size": (64, 64)},
        {"window": (2, 4), "size": (32, 64)},
        {"patch": 2, "size": (32, 48)},
        {"qkv_bias": False, "mlp_ratio": 2.5},
    ],
    ids=str,
)
def test_swin(options):
    theirs, ours = small_swins(**options)
    both_ways(theirs, ours, picture(2, 3, *options.get("size", (32, 32))), "timm")


def test_swin_t_at_full_size():
    theirs = timm.create_model("swin_tiny_patch4_window7_224")
    ours = vitreous.create("swin_tiny_patch4_window7_224")
    both_ways(theirs, ours, picture(2, 3, 224, 224), "timm")


@torch.no_grad()
def test_windows_that_timm_made_smaller():
    """For a map that is smaller than its windows, timm keeps a table for smaller ones."""
    theirs = perturb(small_swins(size=(24, 24))[0])  # 6x6, then 3x3 patches
    ours = small_swins(size=(24, 24))[1].eval()
    report = vitreous.import_weights(ours, theirs.state_dict(), resample="bicubic")
    changed = [f"stages.1.blocks.{i}.attention.bias_table" for i in range(2)]
    assert report.resampled == dict.fromkeys(changed, "3x3 to 4x4, bicubic")
