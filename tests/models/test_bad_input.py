"""Every mistake gets a message that says what was given, what was expected, and what to do."""

import pytest
import torch

import vitreous
from vitreous.config import flat
from vitreous.errors import ConfigError, InputError
from vitreous.models import configure, known_name

SMALL = {"image_size": 32, "patch": 8, "dim": 32, "depth": 2, "heads": 4, "classes": 5}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vit-b/61", r"unknown model 'vit-b/61': did you mean .*'vit-b/16'"),
        ("vti-b/16", r"unknown model 'vti-b/16': did you mean .*'vit-b/16'"),
        ("vit_base_patch17_224", r"unknown model 'vit_base_patch17_224'.*vitreous models"),
        ("resnet-55", r"did you mean .*'resnet-50'"),
        ("deit-s/16-destilled", r"did you mean .*'deit-s/16-distilled'"),
        ("", r"unknown model ''"),
        ("zzz", r"unknown model 'zzz' .*vitreous models"),
    ],
)
def test_unknown_names(name, says):
    with pytest.raises(ConfigError, match=says):
        vitreous.create(name)


FIELDS = [
    # unknown fields
    ({"num_classes": 3}, r"unknown field 'num_classes' in model 'vit'.*did you mean 'classes'"),
    ({"img_size": 3}, r"unknown field 'img_size'.*did you mean 'image_size'"),
    ({"quux": 3}, r"unknown field 'quux'.*the fields are image_size, patch"),
    # wrong types
    ({"dim": "32"}, r"dim = '32' in model 'vit': expected int, got str"),
    ({"classes": 2.5}, r"classes = 2.5.*expected int, got float"),
    ({"classes": True}, r"classes = True.*expected int"),
    ({"attention.qkv_bias": 1}, r"qkv_bias = 1.*expected bool"),
    ({"norm_eps": "1e-6"}, r"norm_eps = '1e-6'.*expected float"),
    ({"norm_eps": None}, r"norm_eps = None.*expected float"),
    ({"image_size": "224"}, r"image_size = '224'.*expected int or tuple"),
    ({"image_size": (32, 32, 3)}, r"image_size = \(32, 32, 3\)"),
    ({"image_size": [32.0, 32]}, r"image_size = \(32.0, 32\)"),
    # out of range
    ({"classes": 0}, r"classes = 0.*at least 1.*head='none'"),
    ({"classes": -1}, r"classes = -1.*at least 1"),
    ({"depth": 0}, r"depth = 0.*at least 1"),
    ({"heads": 0}, r"heads = 0.*at least 1"),
    ({"head_dim": 0}, r"head_dim = 0.*at least 1"),
    ({"mlp_dim": 0}, r"mlp_dim = 0.*at least 1"),
    ({"channels": 0}, r"channels = 0.*at least 1"),
    ({"registers": -1}, r"registers = -1.*0 or more"),
    ({"image_size": 0}, r"image_size = 0.*positive"),
    ({"patch": (8, -8)}, r"patch = \(8, -8\).*positive"),
    ({"dropout": 1.0}, r"dropout = 1.0.*below 1"),
    ({"drop_path": -0.1}, r"drop_path = -0.1.*0 to below 1"),
    ({"attention": {"dropout": float("nan")}}, r"attention.dropout = nan"),
    ({"norm_eps": 0}, r"norm_eps = 0.*above 0"),
    ({"position": {"kind": "rotary", "base": 0.5}}, r"position.base = 0.5.*1 or more"),
    ({"position": "rotary", "position.reference": (4, 0)}, r"reference = \(4, 0\).*positive"),
    ({"position": "rotary", "head_dim": 6}, r"width 6 with position 'rotary'.*multiple of 4"),
    # unknown words
    ({"position": "lerned-1d"}, r"position = 'lerned-1d' is not known.*did you mean 'learned-1d'"),
    ({"activation": "mish"}, r"activation = 'mish' is not known.*gelu"),
    ({"pool": "best"}, r"pool = 'best' is not known.*class, mean.*both, none, attention.*flatten"),
    ({"norm": "rms"}, r"norm = 'rms' is not known: use one of layer, batch"),
    ({"pool": "flatten", "final_norm": "pooled"}, "use .tokens."),
    ({"embedding": "none"}, "needs patch = 1 and stem.layers"),
    ({"init": "xavier"}, r"init = 'xavier' is not known"),
    ({"head": "lin"}, r"head = 'lin' is not known"),
    # what does not go together
    (
        {"image_size": 30},
        r"image 30x30 does not divide into 8x8 patches.*multiple of 8, or pass pad",
    ),
    ({"image_size": (32, 36)}, r"image 32x36 does not divide"),
    ({"patch": (8, 6)}, r"8x6 patches.*8 in height and 6 in width"),
    ({"dim": 30}, r"dim = 30 does not divide into 4 heads.*head_dim"),
    ({"dim": 30, "heads": 3, "position": "sines-2d"}, r"dim = 30.*sines-2d.*multiple of 4"),
    ({"dim": 33, "heads": 3, "position": "learned-2d"}, r"dim = 33.*learned-2d.*multiple of 2"),
    ({"tokens": "none"}, r"pool = 'class' needs tokens = 'class'.*pool = 'mean'"),
    ({"pool": "both"}, r"pool = 'both' needs tokens = 'class\+distillation'"),
    (
        {"pool": "both", "tokens": "class+distillation", "head": "tanh"},
        r"pool = 'both' needs head = 'linear', not 'tanh'",
    ),
    ({"head": "none"}, r"head = 'none' has no classes"),
]


@pytest.mark.parametrize(("fields", "says"), FIELDS, ids=[str(fields) for fields, _ in FIELDS])
def test_fields(fields, says):
    with pytest.raises(ConfigError, match=says):
        vitreous.create("vit", **{**SMALL, **fields})


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("hybrid", {"width": 48}, r"width = 48.*multiple of 32"),
        ("hybrid", {"stages": (1, 0)}, r"stages = \(1, 0\).*at least one block"),
        ("hybrid", {"image_size": 80, "patch": 8}, r"does not divide into 8x8 patches"),
        ("resnet", {"stages": ()}, r"stages = \(\).*at least one block"),
        ("resnet", {"block": "bottelneck"}, r"did you mean 'bottleneck'"),
        ("resnet", {"classes": 0}, r"classes = 0.*head='none'"),
        ("resnet", {"patch": 16}, r"unknown field 'patch'"),
        ("vit-b/16", {"stages": (1,)}, r"unknown field 'stages' in model 'vit-b/16'"),
    ],
)
def test_fields_of_other_families(name, fields, says):
    with pytest.raises(ConfigError, match=says):
        vitreous.create(name, **fields)


@pytest.mark.parametrize("name", ["vit", "resnet", "hybrid"])
@pytest.mark.parametrize("shape", [(1, 1, 32, 32), (3, 32, 32), (1, 32, 32, 3), (1, 4, 32, 32)])
def test_shape_of_images(name, shape):
    small = {"resnet": {"stages": (1,), "width": 8}, "vit": SMALL}.get(
        name, {"image_size": 32, "stages": (), "width": 32, "dim": 32, "depth": 1, "heads": 4}
    )
    model = vitreous.create(name, **small)
    with pytest.raises(InputError, match=r"images of shape .*takes \(batch, 3, .*channels=") as e:
        model(torch.zeros(shape))
    assert str(shape) in str(e.value)


def test_size_of_images():
    model = vitreous.create("vit", **SMALL)
    with pytest.raises(InputError, match=r"images of 32x40.*made for 32x32.*resize"):
        model(torch.zeros(1, 3, 32, 40))
    free = vitreous.create("vit", **SMALL, position="none")
    with pytest.raises((ConfigError, InputError), match=r"image 32x36 does not divide"):
        free(torch.zeros(1, 3, 32, 36))


def test_lists_and_whole_numbers_are_understood():
    """What JSON and TOML can hold: lists for tuples, 1 for 1.0."""
    config = configure("vit", image_size=[32, 64], patch=[8, 16], dropout=0, layer_scale=1)[1]
    assert config.image_size == (32, 64)
    assert config.patch == (8, 16)
    assert isinstance(config.layer_scale, float)
    assert configure("vit", position="Learned 2-D")[1].position.kind == "learned-2d"


EPS = {"norm_eps": 1e-12}
FOREIGN = [
    # timm
    ("vit_base_patch16_224", "vit-b/16", {"image_size": (224, 224)}),
    ("vit_tiny_patch16_384.augreg_in21k_ft_in1k", "vit-ti/16", {"image_size": (384, 384)}),
    ("vit_small_patch16_224", "vit-s/16", {"dim": 384, "heads": 6, "depth": 12}),
    ("vit_huge_patch14_224", "vit-h/14", {}),
    ("vit_giant_patch14_224", "vit-g/14", {"dim": 1408}),
    ("vit_gigantic_patch14_224", "vit-G/14", {"dim": 1664}),
    ("deit_base_distilled_patch16_384", "deit-b/16-distilled", {"image_size": (384, 384)}),
    ("deit_tiny_patch16_224.fb_in1k", "deit-ti/16", {}),
    ("vit_tiny_r_s16_p8_224", "r+vit-ti/16", {}),
    ("vit_small_r26_s32_384", "r26+vit-s/32", {"image_size": (384, 384)}),
    ("vit_base_r50_s16_224", "r50+vit-b/16", {"stem.stages": (3, 4, 9)}),
    ("vit_large_r50_s32_224", "r50+vit-l/32", {}),
    ("resnet50.a1_in1k", "resnet-50", {}),
    # torchvision
    ("vit_b_32", "vit-b/32", {"norm_eps": 1e-6}),
    ("vit_h_14", "vit-h/14", {}),
    ("resnet101", "resnet-101", {}),
    # transformers
    ("google/vit-base-patch16-224", "vit-b/16", EPS),
    ("google/vit-large-patch32-384", "vit-l/32", {**EPS, "image_size": (384, 384)}),
    ("google/vit-base-patch16-224-in21k", "vit-b/16", EPS),
    ("facebook/deit-small-patch16-224", "deit-s/16", EPS),
    ("facebook/deit-tiny-distilled-patch16-224", "deit-ti/16-distilled", EPS),
    # google-research/vision_transformer
    ("ViT-B_16", "vit-b/16", {}),
    ("ViT-L_32", "vit-l/32", {}),
    ("R50+ViT-B_16", "r50+vit-b/16", {}),
    ("R26+ViT-S_32", "r26+vit-s/32", {}),
    ("R+ViT-Ti_16", "r+vit-ti/16", {}),
    # PaddleClas
    ("ViT_base_patch16_384", "vit-b/16", {"image_size": (384, 384)}),
    ("ViT_large_patch32_384", "vit-l/32", {"image_size": (384, 384)}),
    ("DeiT_small_distilled_patch16_224", "deit-s/16-distilled", {}),
    # the papers, with their capitals
    ("ViT-B/16", "vit-b/16", {}),
    ("DeiT-S/16", "deit-s/16", {}),
    ("ResNet-50", "resnet-50", {}),
    ("ViT-g/14", "vit-g/14", {"dim": 1408}),
    ("ViT-G/14", "vit-G/14", {"dim": 1664}),
]


@pytest.mark.parametrize(("name", "ours", "fields"), FOREIGN)
def test_foreign_names(name, ours, fields):
    assert known_name(name) == ours
    config, plain = configure(name)[1], configure(ours)[1]
    for field, value in fields.items():
        assert flat(config)[field] == value
    for field in ("dim", "depth", "heads", "patch", "tokens", "pool"):
        assert getattr(config, field, None) == getattr(plain, field, None)


def test_small_vit_of_paddleclas_is_another_one():
    config = configure("ViT_small_patch16_224")[1]
    assert (config.dim, config.depth, config.heads, config.mlp_dim) == (768, 8, 8, 768 * 3)
    assert (config.attention.qkv_bias, config.norm_eps) == (False, 1e-5)
    assert config.attention.scale == pytest.approx(768**-0.5)
    assert configure("vit_small_patch16_224")[1].dim == 384


def test_changes_come_before_what_a_foreign_name_says():
    config = configure("vit_base_patch16_384", image_size=(160, 224), norm_eps=1e-5)[1]
    assert (config.image_size, config.norm_eps) == ((160, 224), 1e-5)


def test_models_lists_by_pattern():
    assert vitreous.models("vit-b/*") == ["vit-b/8", "vit-b/14", "vit-b/16", "vit-b/32"]
    assert vitreous.models("nothing*") == []
