"""Every named model has exactly the parameters it should have, by table and by other libraries."""

import tomllib

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    DeiTConfig,
    DeiTForImageClassificationWithTeacher,
    SwinConfig,
    SwinForImageClassification,
)
from transformers import ViTConfig as HfConfig
from transformers import ViTForImageClassification as HfViT

import vitreous
from vitreous.engines import counts
from vitreous.engines.fewer_tokens import skip_unread
from vitreous.engines.summary import summarise
from vitreous.errors import ConfigError
from vitreous.models import configure
from vitreous.models.names import translate
from vitreous.weights.families import state_dict_of

PARAMETERS = {
    "vit-ti/8": 5_719_720,
    "vit-ti/14": 5_694_376,
    "vit-ti/16": 5_717_416,
    "vit-ti/32": 6_131_560,
    "vit-s/8": 22_055_272,
    "vit-s/14": 22_004_584,
    "vit-s/16": 22_050_664,
    "vit-s/32": 22_878_952,
    "vit-b/8": 86_576_872,
    "vit-b/14": 86_475_496,
    "vit-b/16": 86_567_656,
    "vit-b/32": 88_224_232,
    "vit-l/8": 304_338_920,
    "vit-l/14": 304_203_752,
    "vit-l/16": 304_326_632,
    "vit-l/32": 306_535_400,
    "vit-h/8": 632_214_760,
    "vit-h/14": 632_045_800,
    "vit-h/16": 632_199_400,
    "vit-h/32": 634_960_360,
    "vit-g/8": 1_012_797_288,
    "vit-g/14": 1_012_611_432,
    "vit-g/16": 1_012_780_392,
    "vit-g/32": 1_015_817_448,
    "vit-G/8": 1_844_660_328,
    "vit-G/14": 1_844_440_680,
    "vit-G/16": 1_844_640_360,
    "vit-G/32": 1_848_229_608,
    "deit-ti/16": 5_717_416,
    "deit-s/16": 22_050_664,
    "deit-b/16": 86_567_656,
    "deit-ti/16-distilled": 5_910_800,
    "deit-s/16-distilled": 22_436_432,
    "deit-b/16-distilled": 87_338_192,
    "deit3-s/16": 22_059_496,
    "deit3-m/16": 38_849_512,
    "deit3-b/16": 86_585_320,
    "deit3-l/16": 304_374_760,
    "deit3-h/14": 632_126_440,
    "cpvt-ti/16": 5_681_512,
    "cpvt-s/16": 21_978_856,
    "cpvt-b/16": 86_424_040,
    "cpvt-ti/16-gap": 5_681_320,
    "cpvt-s/16-gap": 21_978_472,
    "cpvt-b/16-gap": 86_423_272,
    "vit-c-1gf": 4_567_936,  # 4.6, 17.8, 81.6 and 167.8 million in the paper
    "vit-c-4gf": 17_754_136,
    "vit-c-18gf": 81_573_160,
    "vit-c-36gf": 167_796_008,
    "vit-c-mini/2": 265_416,
    "vit-c-mini/8": 735_768,
    "vit-c-mini/16": 1_148_440,
    "r+vit-ti/16": 6_337_704,
    "r26+vit-s/32": 36_431_912,
    "r26+vit-b/32": 101_383_976,
    "r50+vit-b/16": 98_659_112,
    "r50+vit-l/32": 328_994_856,
    "clip-b/32": 151_277_313,
    "clip-b/16": 149_620_737,
    "clip-l/14": 427_616_513,
    "clip-h/14": 986_109_441,
    "clip-g/14": 1_366_678_273,
    "clip-G/14": 2_539_567_105,
    "siglip-b/16": 203_155_970,
    "siglip-b/32": 376_856_066,
    "siglip-l/16": 652_150_786,
    "siglip-so400m/14": 877_360_306,
    "siglip-so400m/16": 1_135_670_962,
    "siglip-g/16": 1_871_393_906,
    "pe-ti/16": 69_545_601,
    "pe-s/16": 87_187_713,
    "pe-b/16": 447_659_521,
    "pe-l/14": 671_137_793,
    "pe-G/14": 2_419_266_561,
    "clip-b/32-image": 88_225_000,
    "clip-b/16-image": 86_568_424,
    "clip-l/14-image": 304_204_776,
    "clip-h/14-image": 632_047_080,
    "clip-g/14-image": 1_012_612_840,
    "clip-G/14-image": 1_844_442_344,
    "clip-b-text": 63_428_096,
    "clip-l-text": 123_650_304,
    "clip-h-text": 354_032_640,
    "clip-G-text": 694_659_840,
    "siglip-b/16-image": 93_653_224,
    "siglip-b/32-image": 95_321_320,
    "siglip-l/16-image": 316_981_224,
    "siglip-so400m/14-image": 428_833_704,
    "siglip-so400m/16-image": 429_041_064,
    "siglip-g/16-image": 1_164_705_256,
    "siglip-b-text": 110_271_744,
    "siglip-l-text": 336_194_560,
    "siglip-so400m-text": 449_734_896,
    "pe-ti/16-image": 6_235_240,
    "pe-s/16-image": 23_971_048,
    "pe-b/16-image": 93_655_528,
    "pe-l/14-image": 317_127_656,
    "pe-G/14-image": 1_881_603_560,
    "pe-s-text": 63_405_056,
    "pe-l-text": 353_986_560,
    "pe-G-text": 537_233_920,
    "mae-b/16": 86_567_656,
    "mae-l/16": 304_326_632,
    "mae-h/14": 632_045_800,
    "mae-pretrain-b/16": 111_907_840,
    "mae-pretrain-l/16": 329_541_888,
    "mae-pretrain-h/14": 657_074_508,
    "dinov2-s/14": 22_441_192,
    "dinov2-b/14": 87_348_712,
    "dinov2-l/14": 305_392_616,
    "dinov2-g/14": 1_138_016_232,
    "dinov2-s/14-reg": 22_442_728,
    "dinov2-b/14-reg": 87_351_784,
    "dinov2-l/14-reg": 305_396_712,
    "dinov2-g/14-reg": 1_138_022_376,
    "tipsv2-b/14": 87_084_520,
    "tipsv2-l/14": 305_040_360,
    "tipsv2-so400m/14": 414_545_752,
    "tipsv2-g/14": 1_137_487_848,
    "dinov3-s/16": 21_981_160,
    "dinov3-s+/16": 29_077_480,
    "dinov3-b/16": 86_428_648,
    "dinov3-l/16": 304_153_576,
    "dinov3-h+/16": 841_872_360,
    "eva02-ti/14": 5_756_584,
    "eva02-s/14": 22_129_000,
    "eva02-b/14": 87_117_544,
    "eva02-l/14": 305_080_232,
    "beit-b/16": 86_530_984,
    "beit-l/16": 304_430_568,
    "swin-t": 28_288_354,
    "swin-s": 49_606_258,
    "swin-b": 87_768_224,
    "swin-l": 196_532_476,
    "swin-b-384": 87_903_584,
    "swin-l-384": 196_735_516,
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "segmenter-ti/16": 6_713_388,
    "segmenter-s/16": 26_033_964,
    "segmenter-s/32": 26_623_788,
    "segmenter-b/8": 104_414_508,
    "segmenter-b/16": 102_497_580,
    "segmenter-b/32": 103_677_228,
    "segmenter-l/16": 333_234_476,
    "segmenter-ti/16-linear": 5_712_342,
    "segmenter-s/16-linear": 22_041_366,
    "segmenter-s/32-linear": 22_631_190,
    "segmenter-b/8-linear": 88_466_838,
    "segmenter-b/16-linear": 86_549_910,
    "segmenter-b/32-linear": 87_729_558,
    "segmenter-l/16-linear": 304_893_078,
    "segmenter-mini/8": 841_270,
    "segmenter-mini/4": 2_988_534,
    "detr-r50": 41_524_768,
    "detr-r101": 60_464_672,
    "detr-r50-dc5": 41_524_768,
    "detr-r101-dc5": 60_464_672,
    "detr-small": 2_020_736,
    "lw-detr-ti": 12_051_810,
    "lw-detr-s": 14_557_186,
    "lw-detr-m": 28_236_994,
    "lw-detr-l": 46_823_266,
    "lw-detr-xl": 118_032_610,
    "rf-detr-mini": 1_956_043,
    "rf-detr-seg-mini": 2_157_132,
    "rf-detr-n": 30_466_914,
    "rf-detr-s": 32_110_786,
    "rf-detr-m": 33_687_074,
    "rf-detr-b": 32_174_146,
    "rf-detr-l": 33_932_834,
    "rf-detr-l-2025": 135_636_706,
    "rf-detr-seg-n": 33_577_091,
    "rf-detr-seg-s": 33_710_723,
    "rf-detr-seg-m": 35_693_875,
    "rf-detr-seg-l": 35_873_587,
    "rf-detr-seg-xl": 38_113_251,
    "rf-detr-seg-2xl": 38_647_779,
}
TIMM = [
    name
    for name in timm.list_models()
    if (found := translate(name)) is not None and found[0] in PARAMETERS
    # of ViTs, one size shows that sizes are understood
    if not name.endswith(("_336", "_378", "_384", "_448", "_512"))
    or ("base" in name and name.endswith("_384"))
    or name.startswith(("swin", "vit_pe"))
]
TORCHVISION = [
    "vit_b_16",
    "vit_b_32",
    "vit_l_16",
    "vit_l_32",
    "vit_h_14",
    "swin_t",
    "swin_s",
    "swin_b",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
]
TRANSFORMERS = [
    name
    for name in PARAMETERS
    if name.startswith(("vit-ti", "vit-s", "vit-b", "deit-"))
    or (name.startswith("vit-") and name.endswith("/14"))  # large: once
]


def count(build, *args, **fields):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(*args, **fields).parameters())


def test_table_has_every_variant_and_no_other():
    assert list(PARAMETERS) == vitreous.models()


@pytest.mark.parametrize("name", PARAMETERS)
def test_exact_count(name):
    assert count(vitreous.create, name) == PARAMETERS[name]


def test_timm_has_most_of_them():
    """So that a change in timm's names cannot empty the comparison."""
    assert len({translate(name)[0] for name in TIMM}) >= 51, TIMM


@pytest.mark.parametrize("name", TIMM)
def test_count_of_timm(name):
    assert count(vitreous.create, name) == count(timm.create_model, name, num_classes=1000)


@pytest.mark.parametrize("name", TORCHVISION)
def test_count_of_torchvision(name):
    assert count(vitreous.create, name) == count(getattr(torchvision.models, name), weights=None)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_count_of_transformers(name):
    config = configure(name)[1]
    distilled = config.pool.kind == "both"
    kind, model = HfConfig, HfViT
    if distilled:
        kind, model = DeiTConfig, DeiTForImageClassificationWithTeacher
    theirs = kind(
        hidden_size=config.dim,
        num_hidden_layers=config.depth,
        num_attention_heads=config.heads,
        intermediate_size=config.mlp_dim,
        image_size=config.image_size[0],
        patch_size=config.patch[0],
        num_labels=config.classes,
    )
    assert count(model, theirs) == PARAMETERS[name]


@pytest.mark.parametrize("name", vitreous.models("swin*"))
def test_count_of_transformers_swin(name):
    config = configure(name)[1]
    theirs = SwinConfig(
        embed_dim=config.dim,
        depths=config.depths,
        num_heads=config.heads,
        window_size=config.window[0],
        image_size=config.image_size[0],
        num_labels=config.classes,
    )
    assert count(SwinForImageClassification, theirs) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("foreign", "name"),
    [
        ("swin_tiny_patch4_window7_224", "swin-t"),
        ("swin_small_patch4_window7_224.ms_in22k_ft_in1k", "swin-s"),
        ("swin_base_patch4_window7_224_in22k", "swin-b"),
        ("swin_large_patch4_window12_384.ms_in22k", "swin-l-384"),
        ("swin_t", "swin-t"),
        ("Swin_B", "swin-b"),
        ("microsoft/swin-tiny-patch4-window7-224", "swin-t"),
        ("microsoft/swin-large-patch4-window7-224-in22k", "swin-l"),
        ("microsoft/swin-base-patch4-window12-384", "swin-b-384"),
        ("SwinTransformer_tiny_patch4_window7_224", "swin-t"),
        ("SwinTransformer_base_patch4_window12_384", "swin-b-384"),
    ],
)
def test_names_of_swin_elsewhere(foreign, name):
    assert translate(foreign) == (name, {})
    assert configure(foreign) == configure(name)


@pytest.mark.parametrize(
    "name",
    [
        "swin_tiny_patch4_window12_384",
        "swin_huge_patch4_window7_224",
        "swin_tiny_patch4_window8_256",
        "swin_s3_tiny_224",
        "swin_v2_t",
        "swin_l",
        "microsoft/swinv2-tiny-patch4-window8-256",
    ],
)
def test_swins_that_are_others(name):
    with pytest.raises(ConfigError, match="unknown model"):
        configure(name)


def test_listed_counts_are_the_models_own():
    """`vitreous models` lists counts.toml; it has every variant, and torch's counter agrees."""
    listed = tomllib.loads(counts.PATH.read_text(encoding="utf-8"))
    assert list(listed) == vitreous.models()
    assert {name: parameters for name, (parameters, _) in listed.items()} == PARAMETERS
    for name, (parameters, flops) in listed.items():
        if parameters < 30e6:
            assert counts.count(name) == (parameters, flops), name


@pytest.mark.parametrize("name", ["vit-ti/16", "cpvt-ti/16-gap", "r+vit-ti/16", "resnet-18"])
def test_flops_of_the_stages_add_up_to_torchs_own_counter(name):
    with torch.device("meta"):
        model = skip_unread(vitreous.create(name).eval())
        images = torch.zeros(1, 3, 224, 224)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(images)
    stages = summarise(model)
    assert sum(stage.flops for stage in stages) == counter.get_total_flops()
    assert sum(stage.parameters for stage in stages) == sum(p.numel() for p in model.parameters())


def test_a_resnet_for_few_pixels_keeps_the_size_at_first():
    """He et al. 2016, section 4.2; the first convolution shows in the tensors."""
    fields = {"root": "3x3", "width": 8, "stages": (1, 1), "block": "basic", "classes": 3}
    model = vitreous.create("resnet", image_size=16, **fields).eval()
    images = torch.randn(2, 3, 16, 16)
    maps = model.maps(images, [0, 1])
    assert [tuple(each.shape[1:]) for each in maps] == [(8, 16, 16), (16, 8, 8)]
    assert [level.pixels for level in model.levels((16, 16))] == [(1, 1), (2, 2)]
    first = torch.relu(model.root.norm(F.conv2d(images, model.root.conv.weight, padding=1)))
    torch.testing.assert_close(model.stages[0](first), maps[0])
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    (found,) = state_dict_of(model).fields_of(shapes, {})
    assert found["root"] == "3x3"
    assert found["stages"] == (1, 1)
