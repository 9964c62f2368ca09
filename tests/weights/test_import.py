"""Weights in and out: complete or refused, changed only when asked, exact there and back."""

import itertools

import numpy as np
import pytest
import torch
from compare import perturb, picture, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from runs import own_file
from torch import nn

import vitreous
from vitreous.config import flat, records, type_hints
from vitreous.errors import CheckpointError, ConfigError, VitreousError
from vitreous.layers.position import resample_grid
from vitreous.layers.resample import adapt_channels
from vitreous.models import build, family_of
from vitreous.models.vit import ViTConfig
from vitreous.weights.families import state_dict_of
from vitreous.weights.identify import readings
from vitreous.weights.origin import open_weights
from vitreous.weights.rules.exporting import MAX_LISTED
from vitreous.weights.rules.formats import OWN, find_format, formats
from vitreous.weights.stated import HIDDEN_FIELDS

POSITIONS = tuple(records(type_hints(ViTConfig)["position"]))

SMALL = {"image_size": 32, "patch": 8, "dim": 32, "depth": 2, "heads": 4, "classes": 5}
BOTH = {"tokens": "class+distillation", "pool": "both"}
GAP = {"tokens": "none", "pool": "mean"}
LUCIDRAINS = {"embedding.norm": True, "attention.qkv_bias": False, "norm_eps": 1e-5}
HYBRID = {**SMALL, "stages": (1, 2), "width": 32, "patch": 1, "image_size": (16, 24)}
RESNET = {"stages": (1, 2), "width": 8, "classes": 5}
DETR = {
    "image_size": 32,
    "classes": 3,
    "backbone": "resnet",
    "backbone_fields": {"stages": (1, 1), "width": 8, "norm": "frozen"},
    "dim": 16,
    "heads": 2,
    "encoder_depth": 1,
    "decoder_depth": 2,
    "mlp_dim": 24,
    "queries": 4,
}
OBJECTS = {
    "classes": 3,
    "dim": 16,
    "heads": 2,
    "cross_heads": 2,
    "decoder_depth": 2,
    "mlp_dim": 24,
    "queries": 4,
    "groups": 2,
    "projector_depth": 1,
    "image_size": 32,
}
INSIDE = {
    "dim": 32,
    "depth": 2,
    "heads": 4,
    "patch": 8,
    "windows.side": 2,
    "windows.global_blocks": (1,),
}
RF_DETR = {
    **OBJECTS,
    "backbone": "dinov2",
    "backbone_fields": {**INSIDE, "layer_scale": 1.0},
    "blocks": (0, 1),
}
LW_DETR = {
    **OBJECTS,
    "backbone": "vit",
    "backbone_fields": {
        **{**INSIDE, "tokens": "none", "pool": "mean", "final_norm": "none"},
        **{"attention.key_bias": False, "layer_scale": 0.1},
    },
    "blocks": (0, 1),
}
REGISTERS = {"backbone_fields": {**RF_DETR["backbone_fields"], "registers": 2}}
SWIN = {"image_size": 32, "dim": 16, "depths": (2, 2), "heads": (2, 4), "window": 4, "classes": 5}
STEM = {
    "patch": 2,
    "stem": "conv",
    "stem.layers": [
        {"width": 8, "stride": 2, "bias": False, "norm": "batch", "activation": "relu"},
        {"bias": False, "norm": "batch", "activation": "relu"},
    ],
}
PLAIN = [{}, {"patch": (4, 8), "image_size": (20, 32), "channels": 2}]
WIDE_HEADS = {"head_dim": 12}

CAN = {
    "timm": [
        *PLAIN,
        BOTH,
        {**BOTH, "registers": 2},
        {**GAP, "final_norm": "pooled"},
        {**GAP, "registers": 2},
        {"registers": 3},
        {"attention.qk_norm": True, "attention.qkv_bias": False},
        {"layer_scale": 0.1},
        {"final_norm": False, "position": "none"},
        {"embed_norm": True, "embedding.bias": False, "head": "projection"},
        {"tokens": "none", "pool": "attention"},
        {"position.prefix": False, "registers": 2},
    ],
    "deit": [*PLAIN, BOTH],
    "google": [*PLAIN, GAP, {"head": "tanh", "head.hidden": 24}, {"position": "none"}],
    "huggingface": [*PLAIN, BOTH, {"attention.qkv_bias": False}, {"head": "none", "pool": "none"}],
    "torchvision": [{}, {"channels": 2}, {"head": "tanh", "head.hidden": 24}, STEM],
    "vit_pytorch": [
        {**LUCIDRAINS, **fields}
        for fields in (
            *PLAIN,
            WIDE_HEADS,
            GAP,
            {**GAP, "position": "sines-2d", "attention.projection_bias": False},
        )
    ],
    "paddle": [*PLAIN, BOTH, {"attention.qkv_bias": False}],
    OWN: [
        *PLAIN,
        WIDE_HEADS,
        {**BOTH, "registers": 2, "attention.qk_norm": True, "layer_scale": 0.1, "head": "none"},
        {"head": "mlp", "embedding.norm": True, "activation": "silu-gated", "norm": "post"},
        {"embed_norm": True, "pool": "attention", "position.prefix": False},
        {
            **STEM,
            "stem.patch_dim": 8,
            "stem.grid_layers": [{"width": 32, "norm": "layer"}, {"groups": 32}],
        },
        *({"position": position, **GAP} for position in POSITIONS),
        *({"position": position, "registers": 1} for position in POSITIONS),
    ],
}
CAN["huggingface-v4"] = CAN["huggingface"]
TINY = {**SMALL, "mlp_dim": 40}
BACKBONES = [
    ("timm", "dinov2-s/14", {}),
    ("timm", "dinov2-g/14-reg", {"position.prefix": False}),
    ("timm", "dinov3-s/16", {"image_size": (24, 40)}),
    ("timm", "dinov3-s+/16", {"attention.qkv_bias": False}),
    ("official", "dinov2-g/14-reg", {"head": "none"}),
    ("official", "dinov3-s/16", {"head": "none"}),
    ("official", "dinov3-s+/16", {"head": "none"}),
    ("timm", "eva02-ti/14", {}),
    ("timm", "eva02-b/14", {"layer_scale": 0.1}),
    ("timm", "beit-b/16", {"image_size": (24, 40)}),
    ("timm", "beit-b/16", {"position": "learned-1d", "pool": "class", "final_norm": "tokens"}),
    *[
        (format, name, fields)
        for format in ("huggingface", "huggingface-v4", OWN)
        for name, fields in (
            ("dinov2-s/14", {"pool": "class+mean"}),
            ("dinov2-g/14-reg", {"head": "none"}),
            ("dinov3-s/16", {"head": "none"}),
            ("dinov3-s+/16", {"head": "none"}),
            ("beit-b/16", {}),
            ("beit-b/16", {"position": "learned-1d", "head": "none"}),
        )
    ],
]
AUTOENCODER = {
    "image_size": 32,
    "encoder": "vit",
    "encoder_fields": {
        name: v for name, v in SMALL.items() if name not in ("image_size", "classes")
    },
    "decoder_dim": 16,
    "decoder_heads": 1,
}
WORDS = {"vocabulary": 9, "length": 6, "dim": 24, "depth": 2, "heads": 2, "classes": 4}
CASES = [
    *[(name, "vit", fields) for name, all_fields in CAN.items() for fields in all_fields],
    *[(format, name, {**TINY, **fields}) for format, name, fields in BACKBONES],
    *[
        (name, "clip", {**SMALL, **fields})
        for name in ("timm", "huggingface", "huggingface-v4", "open_clip", OWN)
        for fields in ({"head": "projection"}, {"head": "none", "activation": "gelu"})
    ],
    *[
        (name, "siglip", {**SMALL, "head": "none", **fields})
        for name in ("timm", "huggingface", "huggingface-v4", "open_clip", OWN)
        for fields in ({}, {"image_size": (16, 24) if name in ("timm", OWN) else 24, "channels": 1})
    ],
    *[
        (name, "pe", {**SMALL, "pool.heads": 2, "head": head})
        for name in ("timm", "open_clip", "official", OWN)
        for head in ("projection", "none")
    ],
    *[
        (name, "clip-text", {**WORDS, "head": head})
        for name in ("huggingface", "huggingface-v4", "open_clip", OWN)
        for head in ("projection", "none")
    ],
    *[
        (name, "siglip-text", {**WORDS, "classes": 40})
        for name in ("huggingface", "huggingface-v4", "open_clip", OWN)
    ],
    *[(name, "pe-text", WORDS) for name in ("open_clip", "official", OWN)],
    *[
        (name, "mae", {**SMALL, "head": "none"})
        for name in ("timm", "deit", "huggingface", "huggingface-v4", OWN)
    ],
    *[
        (name, "mae-pretrain", AUTOENCODER)
        for name in ("deit", "huggingface", "huggingface-v4", OWN)
    ],
    *[
        (name, "hybrid", {**HYBRID, **fields})
        for name in ("timm", "google", OWN)
        for fields in ({}, {"stages": (), "patch": 2}, {"channels": 1, "depth": 1})
    ],
    *[
        (name, "resnet", {**RESNET, "block": block})
        for name in ("timm", "torchvision", OWN)
        for block in ("basic", "bottleneck")
    ],
    *[
        (name, "swin", {**SWIN, **fields})
        for name in ("timm", "official", "torchvision", "huggingface", "huggingface-v4", OWN)
        for fields in (
            {},
            {"depths": (1, 2, 1), "heads": (1, 2, 2), "image_size": (128, 192), "channels": 1},
            {"patch": 2, "mlp_ratio": 2.5},
            {"head": "none"},
        )
    ],
    *[
        (name, "swin", {**SWIN, "patch": (2, 4), "window": (2, 4), "qkv_bias": bias})
        for name, bias in (("timm", False), ("torchvision", True), (OWN, False))
    ],
    *[
        (name, "swin", {**SWIN, "image_size": (24, 40), "depths": (1, 2, 1), "heads": (1, 2, 2)})
        for name in ("torchvision", OWN)
    ],
    *[
        (name, "detr", {**DETR, "backbone_fields": {**DETR["backbone_fields"], **fields}})
        for name in ("official", "huggingface", "huggingface-v4", OWN)
        for fields in ({}, {"block": "basic", "dilated": True})
    ],
    *[
        (name, "rf-detr", {**RF_DETR, **fields})
        for name in ("official", "huggingface", OWN)
        for fields in ({}, {"masks": True})
    ],
    ("official", "rf-detr", {**RF_DETR, **REGISTERS, "scales": (2.0, 0.5)}),
    *[
        (name, "lw-detr", {**LW_DETR, "scales": scales})
        for name in ("huggingface", OWN)
        for scales in ((1.0,), (2.0, 0.5))
    ],
]


# The same names and layouts: nothing can tell them apart.
ALIKE = {
    ("deit", "vit"): ["timm"],
    ("huggingface-v4", "vit"): ["huggingface"],
    ("huggingface-v4", "clip"): ["huggingface"],
    ("huggingface-v4", "siglip"): ["huggingface"],
    ("huggingface-v4", "clip-text"): ["huggingface"],
    ("huggingface-v4", "siglip-text"): ["huggingface"],
    ("huggingface-v4", "mae"): ["huggingface"],
    ("deit", "mae"): ["timm"],
    ("huggingface-v4", "mae-pretrain"): ["huggingface"],
    ("timm", "resnet"): ["torchvision"],
    ("torchvision", "resnet"): ["timm"],
    ("huggingface-v4", "swin"): ["huggingface"],
    ("huggingface-v4", "detr"): ["huggingface"],
}
ALIKE |= {("huggingface-v4", name): ["huggingface"] for _, name, _ in BACKBONES}


def make(name="vit", seed=0, **fields):
    config = {**SMALL, **fields} if name == "vit" else {**fields}
    if config.get("head") == "none":
        config.pop("classes")
    return perturb(vitreous.create(name, **config), seed)


def same_state(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def copy_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def refusal(model, source, *args, error=CheckpointError, **options):
    """The message of the refusal, which must leave the model as it was, to the bit."""
    before, config = copy_of(model), model.config
    with pytest.raises(error) as caught:
        vitreous.import_weights(model, source, *args, **options)
    assert same_state(copy_of(model), before)
    assert model.config == config
    return str(caught.value)


# There and back


@pytest.mark.parametrize(("format", "name", "fields"), CASES, ids=lambda v: str(v)[:60])
def test_round_trip_is_exact(format, name, fields):
    ours, again = make(name, **fields), make(name, seed=1, **fields)
    exported = vitreous.export_weights(ours, format)
    assert all(value.is_contiguous() for value in exported.values())
    report = vitreous.import_weights(again, exported, format)
    assert report.loaded == list(ours.state_dict())
    assert same_state(again.state_dict(), ours.state_dict())
    assert same_state(vitreous.export_weights(again, format), exported)
    found_out = make(name, seed=1, **fields)
    report = vitreous.import_weights(found_out, exported)
    assert same_state(found_out.state_dict(), ours.state_dict())
    assert report.format in (format, *ALIKE.get((format, name), ()))
    flat = format == "vit_pytorch" and fields.get("patch") == (4, 8)  # any patch of 64 numbers
    biased = format != OWN and fields.get("head") == "projection"  # with zeros where we have none
    # Which blocks are used, and their windows, does not show: such models are named. The text tower
    # of PE is CLIP's.
    named = name in ("rf-detr", "lw-detr", "pe-text")
    if not flat and not biased and not named:
        identify(ours, exported, report.format)


def identify(ours, exported, format):
    """The model is found from the tensors: one has every shape, and what shows is right."""
    asked = family_of(ours) if state_dict_of(ours).found_if_asked else None
    found = readings(open_weights(exported), model=asked)
    assert {each.format for each in found} == {format}
    with torch.device("meta"):
        models = [vitreous.create(each.model, **each.fields) for each in found]
    shapes = [{k: v.shape for k, v in model.state_dict().items()} for model in models]
    assert all(each == {k: v.shape for k, v in ours.state_dict().items()} for each in shapes)
    unseen = {"image_size", *found[0].assumed, "layer_scale", "backbone_fields", "encoder_fields"}
    # Rotary positions have no tensors, and heads do not show.
    unseen |= {name for name in HIDDEN_FIELDS if name.startswith(("position.", "pool."))}
    fields = flat(ours.config)
    unseen |= {"position"} if "learned-1d" in fields.get("position", "") else set()
    for name, value in fields.items():
        if name not in unseen and value is not None:
            ways = {str(flat(model.config).get(name)) for model in models}
            assert str(value) in ways, name
            assert len(ways) == 1 or name == "window"  # higher or wider
    if "image_size" not in {*found[0].assumed} and hasattr(ours.config, "image_size"):
        assert ours.config.image_size in [model.config.image_size for model in models]


@pytest.mark.parametrize("family", ["clip", "pe"])
def test_a_projection_is_no_layer_of_classes(family):
    """timm's files of CLIP have a bias of zeros, which its linear layer needs."""
    heads = {"pool.heads": 2} if family == "pe" else {}
    for head in ("projection", "linear"):
        model = make(family, **SMALL, **heads, head=head)
        exported = vitreous.export_weights(model, "timm")
        found = readings(open_weights(exported))
        assert [each.fields.get("head", "linear") for each in found] == [head]


@pytest.mark.parametrize("family", ["clip", "siglip", "pe"])
def test_a_tower_is_called_by_its_own_name(family):
    """A ViT with all its fields changed would fit too, and is not mentioned."""
    heads = {"pool.heads": 2} if family == "pe" else {}
    exported = vitreous.export_weights(make(family, **SMALL, **heads), "timm")
    found = readings(open_weights(exported))
    assert [each.model for each in found] == [family]


def test_positions_of_tokens_are_added_to_tokens_without_positions():
    """A class token plus its row is a class token: nothing is lost where ours has no such row."""
    fields = {"tokens": "class+distillation", "pool": "both", "registers": 2}
    source, ours = make(**fields), make(seed=1, **fields, **{"position.prefix": False})
    report = vitreous.import_weights(ours, vitreous.export_weights(source, "timm"), "timm")
    images = torch.randn(2, 3, *ours.own_size())
    torch.testing.assert_close(ours(images), source(images))
    assert any("added to the tokens" in note for note in report.notes)


def test_pooling_and_head_are_left_out_of_an_encoder():
    """A Segmenter over a SigLIP reads its patches alone, and has no parameters that pool them."""
    fields = {name: value for name, value in SMALL.items() if name not in ("image_size", "classes")}
    whole = vitreous.create("segmenter", image_size=32, encoder="siglip", encoder_fields=fields)
    source = vitreous.export_weights(make("siglip", **SMALL), "timm")
    report = vitreous.import_weights(
        whole.core, source, reinit=[*state_dict_of(whole.core).behind_maps]
    )
    assert report.loaded == list(whole.core.state_dict())
    assert report.dropped == [key for key in source if key.startswith(("attn_pool.", "head."))]


def test_decoder_of_a_mae_is_dropped_by_name():
    ours = make("mae", **SMALL, head="none")
    decoder = {
        key: torch.ones(2) for key in ("mask_token", "decoder_pos_embed", "decoder_embed.bias")
    }
    report = vitreous.import_weights(ours, {**vitreous.export_weights(ours, "deit"), **decoder})
    assert report.dropped == [*decoder]


def test_timm_is_called_timm():
    exported = vitreous.export_weights(make(), "timm")
    assert vitreous.import_weights(make(), exported).format == "timm"
    message = refusal(make(), exported, "google")
    assert "its keys match format 'timm'" in message


def test_every_rule_is_used_by_some_model():
    used = {}
    for format, name, fields in CASES:
        model = make(name, **fields)
        rules = find_format(format, family_of(model))
        found = {rules.rule_for(parameter)[0].ours for parameter in model.state_dict()}
        derived = [
            rules.rule_for(buffer, derived=True) for buffer in state_dict_of(model).derived(model)
        ]
        found |= {rule[0].ours for rule in derived if rule}
        used.setdefault((format, rules.families), set()).update(found)
    for format, sets in formats().items():
        for rules in sets:
            used_by_none = {each.ours for each in rules.rules if each.unused or each.if_absent}
            idle = {each.ours for each in rules.rules + rules.derived} - used_by_none
            idle -= set().union(*(found for (name, _), found in used.items() if name == format))
            if format == "timm":
                idle.discard("head.hidden.{p}")  # of files from before 0.6, which are read
            if rules.same_as.startswith("timm/"):  # some for models that this format has not
                idle -= {each.ours for each in find_format("timm", rules.families[0]).rules}
            assert not idle, (format, idle)


FOR_VIT = [name for name, sets in formats().items() if any("vit" in s.families for s in sets)]
fields_of_any_model = st.fixed_dictionaries(
    {
        "patch": st.sampled_from([4, 8, (4, 8), (2, 8)]),
        "image_size": st.sampled_from([16, (8, 24), (24, 16)]),
        "channels": st.integers(1, 4),
        "heads": st.integers(1, 4),
        "head_dim": st.integers(1, 9),
        "mlp_dim": st.integers(1, 40),
        "depth": st.integers(1, 3),
        "classes": st.integers(1, 4),
        "registers": st.integers(0, 2),
        "position": st.sampled_from(list(POSITIONS)),
        "tokens, pool": st.sampled_from(
            [
                ("class", "class"),
                ("none", "mean"),
                ("class", "mean"),
                ("class+distillation", "both"),
            ]
        ),
        "head": st.sampled_from(["linear", "tanh", "mlp"]),
        "attention.qkv_bias": st.booleans(),
        "attention.key_bias": st.booleans(),
        "mlp.norm": st.booleans(),
        "attention.projection_bias": st.booleans(),
        "attention.qk_norm": st.booleans(),
        "layer_scale": st.sampled_from([None, 0.1]),
        "embedding.norm": st.booleans(),
        "final_norm": st.sampled_from(["tokens", "pooled", "none"]),
    }
)


def _sizes(model):
    return model.config.image_size, model.config.patch


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(fields=fields_of_any_model, format=st.sampled_from([*FOR_VIT, OWN]))
def test_any_model_goes_there_and_back_or_is_refused_by_name(fields, format):
    fields = dict(fields)
    fields["tokens"], fields["pool"] = fields.pop("tokens, pool")
    if fields["pool"] == "both":
        fields["head"] = "linear"
    if "rotary" in fields["position"]:
        fields["head_dim"] = 8
    ours = perturb(vitreous.create("vit", dim=16, **fields))
    rules = find_format(format, "vit")
    unknown = [n for n in ours.state_dict() if rules.rule_for(n) is None]
    unable = rules.unsupported(ours.config)
    if unknown or unable:
        says = "has no rule for" if unknown else "do not support"
        with pytest.raises(CheckpointError, match=says) as caught:
            vitreous.export_weights(ours, format)
        assert all(name in str(caught.value) for name in unknown[:MAX_LISTED] or unable)
        return
    exported = vitreous.export_weights(ours, format)
    again = perturb(vitreous.create("vit", dim=16, **fields), seed=1)
    # 26 rows may be a class token and 5x5, or also a register and 6x4: who knows, must say it
    table = fields["registers"] and fields["position"].startswith("learned-1d")
    known = tuple(side // patch for side, patch in zip(*_sizes(ours), strict=True))
    grid = {"source_grid": known} if table else {}
    vitreous.import_weights(again, exported, format, keep=["norm_eps"], **grid)
    assert same_state(again.state_dict(), ours.state_dict())
    images = picture(1, ours.config.channels, *ours.config.image_size)
    with torch.no_grad():
        assert torch.equal(again(images), ours(images))


CANNOT = [
    ("timm", {"position": "relative"}, ["position.blocks.0.table", "position.blocks.1.table"]),
    ("timm", {"position": "conditional"}, ["position.generator.weight"]),
    ("timm", {"head": "mlp"}, ["head.norm.weight"]),
    ("google", {"registers": 1}, ["prefix.registers"]),
    ("google", BOTH, ["prefix.distillation_token", "head.distillation.weight"]),
    ("huggingface", {"layer_scale": 0.1}, ["blocks.0.scale1.gamma", "blocks.1.scale2.gamma"]),
    ("huggingface", {"head": "tanh"}, ["head.hidden.weight"]),
    ("torchvision", BOTH, ["prefix.distillation_token"]),
    ("vit_pytorch", {"attention.qkv_bias": True}, ["blocks.0.attention.qkv.bias"]),
    ("paddle", {"attention.qk_norm": True}, ["blocks.1.attention.k_norm.weight"]),
]


@pytest.mark.parametrize(("format", "fields", "names"), CANNOT, ids=lambda v: str(v)[:40])
def test_what_a_format_cannot_say_is_refused_by_name(format, fields, names):
    with pytest.raises(CheckpointError, match=f"format '{format}' has no rule for") as caught:
        vitreous.export_weights(make(**fields), format)
    for name in names:
        assert name in str(caught.value)


def test_formats_that_do_not_exist_or_have_no_rules():
    with pytest.raises(ConfigError, match="unknown format 'tim': did you mean 'timm'"):
        vitreous.export_weights(make(), "tim")
    with pytest.raises(ConfigError, match=r"'google' has no rules for resnet.*timm, torchvision"):
        vitreous.export_weights(make("resnet", **RESNET), "google")
    with pytest.raises(ConfigError, match=r"Linear is not a model of Vitreous.*create"):
        vitreous.import_weights(nn.Linear(2, 2), {}, "timm")


# Complete or refused


@pytest.mark.parametrize("format", ["timm", OWN])
def test_one_message_lists_everything(format):
    model = make()
    state = copy_of(make(seed=1)) if format == OWN else vitreous.export_weights(make(), format)
    keys = list(state)
    lost, odd = [keys[0], keys[-1]], keys[5]
    for key in lost:
        del state[key]
    state[odd] = torch.zeros(3, 7)
    state |= {"extra.a": torch.zeros(2, 9), "extra.b": torch.zeros(4)}
    message = refusal(model, state, format)
    assert "2 missing, 2 unexpected, 1 with a wrong shape; nothing was loaded" in message
    for word in (*lost, "extra.a (2, 9)", "extra.b (4,)", "(3, 7)", "reinit=", "drop="):
        assert word in message


def test_every_single_loss_is_noticed():
    state = vitreous.export_weights(make(depth=1), "huggingface")
    model = make(depth=1)
    for key in state:
        less = {k: v for k, v in state.items() if k != key}
        assert key in refusal(model, less, "huggingface")


def test_message_stays_readable():
    """The formats with many spellings must not list every product of them."""
    message = refusal(make(), vitreous.export_weights(make(), "timm"), "huggingface")
    assert "its keys match format" in message
    assert max(map(len, message.splitlines())) < 400


def test_weights_of_another_family_are_one_sentence(tmp_path):
    path = own_file(tmp_path / "own.safetensors", make("swin", **SWIN))
    with pytest.raises(CheckpointError) as caught:
        vitreous.import_weights(make(), path, OWN)
    (line,) = str(caught.value).splitlines()
    assert f"{path} is for swin, not for vit" in line
    assert "Create swin (--model), or take weights of vit" in line


def test_another_model():
    small, large = make(), make(dim=48, depth=3)
    message = refusal(small, copy_of(large), OWN)
    assert "dim = 48 (the model 32), depth = 3 (the model 2)" in message
    assert "create the model with dim=48, depth=3" in message
    assert "--set dim=48 --set depth=3" in message
    assert len(message.splitlines()) == 2, "nothing is left to explain"
    keyed = {**copy_of(large), "junk": torch.ones(2)}
    message = refusal(small, keyed, OWN)
    assert "unexpected   junk (2,)" in message
    assert len(message.splitlines()) == 5
    message = refusal(small, copy_of(make("resnet", **RESNET)))
    assert "any known format" in message
    assert "root.conv.weight" in message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reinit": "head.*"}, r"reinit = 'head.*': expected a list"),
        ({"drop": "head.*"}, r"drop = 'head.*': expected a list"),
        ({"keep": "norm_eps"}, r"keep = 'norm_eps': expected a list"),
        ({"reinit": ["heads.*"]}, r"reinit = 'heads.*' matches no parameter"),
        ({"drop": ["heads.*"]}, r"drop = 'heads.*' matches no"),
        ({"keep": ["nrom_eps"]}, r"nrom_eps"),
        ({"resample": "nearest"}, r"resample = 'nearest': use 'bicubic' or 'bilinear'"),
        ({"source_grid": (2, 0)}, r"source_grid = (2, 0)"),
    ],
    ids=str,
)
def test_wrong_options(options, says):
    exported = vitreous.export_weights(make(seed=1), "huggingface")
    assert says in refusal(make(), exported, "huggingface", error=ConfigError, **options)


@pytest.mark.parametrize("source", [{"a": "text"}, {"a": {"b": torch.zeros(1)}}, {}])
def test_sources_that_are_no_weights(source):
    for format in (None, "timm"):
        refusal(make(), source, format)


# Named exceptions


def test_reinit():
    state = copy_of(make(seed=1))
    model = make()
    before = copy_of(model)
    report = vitreous.import_weights(model, state, OWN, reinit=["head.*", "blocks.1.norm?.bias"])
    afresh = ["blocks.1.norm1.bias", "blocks.1.norm2.bias", "head.out.weight", "head.out.bias"]
    assert report.reinitialised == afresh
    assert report.dropped == afresh
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]) == (name not in afresh), name
        assert not torch.equal(value, before[name])
    assert model.head.out.bias.eq(0).all()
    assert model.head.out.weight.std().item() == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize("format", ["timm", "google", OWN])
@pytest.mark.parametrize(
    ("source", "target"),
    list(itertools.permutations(["linear", "tanh", "none"], 2)),
)
def test_another_head(format, source, target):
    if (format, source) == ("timm", "tanh"):
        pytest.skip("timm has no such head any more")
    exported = vitreous.export_weights(make(head=source), format)
    model = make(seed=1, head=target)
    if target == "none":
        refusal(model, exported, format)
        drop = [key for key in exported if key.startswith(("head", "pre_logits"))]
        report = vitreous.import_weights(model, exported, format, drop=drop)
        assert report.dropped == drop
    else:
        report = vitreous.import_weights(model, exported, format, reinit=["head.*"])
        assert set(report.reinitialised) == {n for n in model.state_dict() if "head." in n}
    assert torch.equal(model.norm.weight, make().norm.weight)


def test_class_count():
    state, model = copy_of(make(classes=9)), make(seed=1)
    message = refusal(model, state, OWN)
    assert "head.out.weight: (9, 32), the model has (5, 32)" in message
    assert "create it with as many classes, or let the head start afresh" in message
    report = vitreous.import_weights(model, state, OWN, reinit=["head.*"])
    assert report.reinitialised == ["head.out.weight", "head.out.bias"]


def test_drop():
    state = {**copy_of(make(seed=1)), "optimizer.a": torch.ones(2), "optimizer.b": torch.ones(1)}
    report = vitreous.import_weights(make(), state, OWN, drop=["optimizer.*"])
    assert report.dropped == ["optimizer.a", "optimizer.b"]
    assert report.loaded == list(make().state_dict())


def test_what_is_dropped_is_not_loaded():
    model, state = make(), copy_of(make(seed=1))
    assert "missing      head.out.weight" in refusal(model, state, OWN, drop=["head.*"])


def test_blocks_beyond_the_model_are_not_taken_for_those_that_start_afresh():
    """layer3 is stages.2: starting stages.3 afresh says nothing about its superfluous blocks."""
    fields = {"width": 8, "block": "basic", "classes": 5}
    deep = vitreous.export_weights(make("resnet", stages=(1, 1, 3, 1), **fields), "torchvision")
    model = make("resnet", stages=(1, 1, 1, 1), **fields)
    message = refusal(model, deep, "torchvision", reinit=["stages.3.*"])
    assert "stages = (1, 1, 3, 1) (the model (1, 1, 1, 1))" in message
    vitreous.import_weights(model, deep, "torchvision", reinit=["stages.2.*"])


# Resolution


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("format", ["timm", "google", OWN])
@pytest.mark.parametrize("fields", [{}, {**GAP, "pool": "mean"}], ids=["class", "none"])
def test_positions_from_square_to_rectangle(format, mode, fields):
    source, target = make(**fields), make(seed=1, image_size=(24, 48), **fields)
    exported = vitreous.export_weights(source, format)
    message = refusal(target, exported, format)
    assert "positions change from 4x4 to 3x6: pass resample='bicubic'" in message
    report = vitreous.import_weights(target, exported, format, resample=mode)
    assert report.resampled == {"position.table": f"4x4 to 3x6, {mode}"}
    rows = source.position.rows
    wanted = resample_grid(source.position.table[rows:].unflatten(0, (4, 4)), (3, 6), mode)
    assert torch.equal(target.position.table[rows:], wanted.flatten(0, 1))
    assert torch.equal(target.position.table[:rows], source.position.table[:rows])
    assert "position.table" not in report.loaded


def test_positions_from_rectangle_to_rectangle():
    source, target = make(image_size=(24, 48)), make(seed=1, image_size=(40, 32))
    state = copy_of(source)
    assert "pass source_grid=(height, width)" in refusal(target, state, OWN, resample="bicubic")
    message = refusal(target, state, OWN, resample="bicubic", source_grid=(3, 5))
    assert "do not make a grid of 3x5" in message
    options = {"resample": "bicubic", "source_grid": (3, 6)}
    report = vitreous.import_weights(target, state, OWN, **options)
    assert report.resampled == {"position.table": "3x6 to 5x4, bicubic"}
    wanted = resample_grid(source.position.table[1:].unflatten(0, (3, 6)), (5, 4), "bicubic")
    assert torch.equal(target.position.table[1:], wanted.flatten(0, 1))


def test_as_many_patches_in_another_shape():
    source, target = make(image_size=(16, 64)), make(seed=1)  # 2x8 and 4x4
    options = {"resample": "bilinear", "source_grid": (2, 8)}
    report = vitreous.import_weights(target, copy_of(source), OWN, **options)
    assert report.resampled == {"position.table": "2x8 to 4x4, bilinear"}


AMBIGUOUS = [
    # 7x7 and a class token make 50 rows, which are not 5x10 patches without one.
    ({"image_size": 56}, {"image_size": (40, 80)}),
    # 14x14 and two tokens make 198 rows, which are not 11x18 patches.
    ({"image_size": 112, **BOTH}, {"image_size": (88, 144), **BOTH}),
    # 4x4 and a class token make 17 rows: not 2x7 patches, two registers' rows and a class token.
    ({"image_size": 32}, {"image_size": (16, 56), "registers": 2}),
]


@pytest.mark.parametrize(("source", "target"), AMBIGUOUS, ids=str)
def test_rows_of_positions_are_not_mistaken(source, target):
    """Resampled or refused as unclear: patches do not become tokens, nor tokens patches."""
    source, target = make(**source), make(seed=1, **target)
    options = {"reinit": ["prefix.registers"]} if target.config.registers else {}
    refusal(target, copy_of(source), OWN, **options)
    options |= {"resample": "bicubic", "source_grid": source.config.grid}
    report = vitreous.import_weights(target, copy_of(source), OWN, **options)
    assert report.resampled
    rows = source.config.rows
    assert torch.equal(target.position.table[:rows], source.position.table[:rows])


@pytest.mark.parametrize("target", [(40, 32), (24, 48), 16], ids=str)
def test_two_dimensional_and_relative_positions(target):
    for position, names in {
        "learned-2d": ["position.y", "position.x"],
        "relative": ["position.blocks.0.table", "position.blocks.1.table"],
    }.items():
        fields = {"position": position}
        source = make(image_size=(24, 56), **fields)
        model = make(seed=1, image_size=target, **fields)
        state = copy_of(source)
        changing = [n for n in names if state[n].shape != model.state_dict()[n].shape]
        message = refusal(model, state, OWN)
        grid = {"source_grid": (3, 7)} if position == "relative" else {}
        if grid:
            assert all(f"{name}: 68 rows are not the offsets" in message for name in changing)
        else:
            assert all(f"wrong shape  {name}: positions change" in message for name in changing)
        report = vitreous.import_weights(model, state, OWN, resample="bicubic", **grid)
        assert list(report.resampled) == changing
        for name in changing:
            value = source.get_parameter(name)
            name_inside = name.removeprefix("position.")
            wanted = model.position.resample(name_inside, value, (3, 7), "bicubic")
            assert torch.equal(model.get_parameter(name), wanted)


@pytest.mark.parametrize("fields", [{}, GAP], ids=str)
def test_relative_positions_of_older_runs(fields):
    """They were stacked over the blocks, those of the prefix apart; also inside another model."""
    model = make(position="relative", image_size=(24, 40), **fields)
    state, rows = copy_of(model), 3 if model.config.prefix else 0
    tables = [state.pop(f"position.blocks.{i}.table") for i in range(2)]
    state["position.bias"] = torch.stack([t[: 5 * 9].T.unflatten(1, (5, 9)) for t in tables])
    if rows:
        state["position.prefix_bias"] = torch.stack([table[-rows:].T for table in tables])
    again = make(seed=1, position="relative", image_size=(24, 40), **fields)
    vitreous.import_weights(again, state, OWN)
    assert same_state(copy_of(again), copy_of(model))

    inside = {
        k: v for k, v in {**SMALL, **fields, "position": "relative"}.items() if k != "classes"
    }
    del inside["image_size"]
    outer = {"image_size": (24, 40), "classes": 3, "encoder": "vit", "encoder_fields": inside}
    whole = perturb(vitreous.create("segmenter", **outer))
    core = {k: v for k, v in state.items() if not k.startswith("head.")}
    old = {k: v for k, v in copy_of(whole).items() if not k.startswith("encoder.")}
    vitreous.import_weights(whole, {**old, **{f"encoder.{k}": v for k, v in core.items()}}, OWN)
    assert torch.equal(whole.encoder.position.blocks[1].table, tables[1])


@pytest.mark.parametrize("position", ["learned-1d", "learned-2d", "relative"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 5), (2, 3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("resample", [None, "bicubic"])
def test_tables_of_a_senseless_shape(position, shape, resample):
    model = make(position=position)
    for name in model.position.state_dict():
        state = {**copy_of(model), f"position.{name}": torch.zeros(shape)}
        assert f"position.{name}" in refusal(model, state, OWN, resample=resample)


def bicubic(table, source, target):
    """Pillow's own bicubic filter, for each head's (2h-1, 2w-1) offsets."""
    height, width = (2 * side - 1 for side in target)
    grids = table.T.unflatten(1, [2 * side - 1 for side in source])
    resized = [
        np.array(Image.fromarray(grid.numpy()).resize((width, height), Image.Resampling.BICUBIC))
        for grid in grids
    ]
    return torch.tensor(np.stack(resized)).flatten(1).T


@torch.no_grad()
@pytest.mark.parametrize("format", ["timm", "huggingface", "torchvision", "official", OWN])
@pytest.mark.parametrize("window", [7, 3, (5, 2)], ids=str)
def test_biases_of_another_window(format, window):
    source, target = make("swin", **SWIN), make("swin", seed=1, **{**SWIN, "window": window})
    exported = vitreous.export_weights(source, format)
    h, w = target.config.window
    name = "stages.1.blocks.0.attention.bias_table"
    message = refusal(target, exported, format)
    change = f"4x4 to {h}x{w}"
    assert f"wrong shape  {name}: windows change from {change}: pass resample=" in message
    assert "0 missing, 0 unexpected, 4 with a wrong shape" in message
    report = vitreous.import_weights(target, exported, format, resample="bicubic")
    tables = [n for n in target.state_dict() if n.endswith("bias_table")]
    assert report.resampled == dict.fromkeys(tables, f"{change}, bicubic")
    assert not set(tables) & set(report.loaded)
    for table in tables:
        wanted = bicubic(source.get_parameter(table), (4, 4), (h, w))
        assert torch.allclose(target.get_parameter(table), wanted, atol=1e-5)


def test_biases_of_a_window_that_is_no_square():
    source = make("swin", **{**SWIN, "window": (2, 4)})
    target, state = make("swin", seed=1, **SWIN), copy_of(source)
    message = refusal(target, state, OWN, resample="bicubic")
    assert "21 offsets are not those of a square window: pass source_grid=" in message
    message = refusal(target, state, OWN, resample="bicubic", source_grid=(3, 4))
    assert "21 offsets are not those of a window of 3x4" in message
    options = {"resample": "bilinear", "source_grid": (2, 4)}
    report = vitreous.import_weights(target, state, OWN, **options)
    assert set(report.resampled.values()) == {"2x4 to 4x4, bilinear"}
    same = make("swin", seed=1, **{**SWIN, "window": (2, 4)})
    assert vitreous.import_weights(same, state, OWN).resampled == {}


@pytest.mark.parametrize("shape", [(), (0, 2), (5,), (48, 2), (49, 3), (25, 3), (3, 4, 5)], ids=str)
@pytest.mark.parametrize("resample", [None, "bicubic"])
def test_bias_tables_of_a_senseless_shape(shape, resample):
    model, name = make("swin", **SWIN), "stages.0.blocks.1.attention.bias_table"
    state = {**copy_of(model), name: torch.zeros(shape)}
    assert name in refusal(model, state, OWN, resample=resample)


# Channels


@pytest.mark.parametrize(("have", "want"), [(3, 1), (3, 5), (1, 3), (6, 3)])
@pytest.mark.parametrize(
    ("name", "fields", "weight", "format"),
    [
        ("vit", {}, "patch.weight", "timm"),
        ("vit", {}, "patch.weight", "google"),
        ("hybrid", HYBRID, "stem.root.conv.weight", "timm"),
        ("resnet", RESNET, "root.conv.weight", "torchvision"),
        ("swin", SWIN, "patch.weight", "torchvision"),
    ],
    ids=["timm", "google", "hybrid", "resnet", "swin"],
)
def test_channels(have, want, name, fields, weight, format):
    source = make(name, **fields, channels=have)
    model = make(name, seed=1, **fields, channels=want)
    exported = vitreous.export_weights(source, format)
    message = refusal(model, exported, format)
    assert f"{weight}: {have} channels, the model has {want}: pass adapt_channels=True" in message
    report = vitreous.import_weights(model, exported, format, adapt_channels=True)
    assert report.adapted == {weight: f"{have} to {want} channels"}
    assert weight not in report.loaded
    wanted = adapt_channels(source.get_parameter(weight), want)
    assert torch.equal(model.get_parameter(weight), wanted)


# Numbers, types, devices


def test_the_epsilon_of_the_library_comes_with_its_weights():
    exported = vitreous.export_weights(make(head="linear"), "huggingface")
    model = make(seed=1)
    report = vitreous.import_weights(model, exported, "huggingface")
    assert model.config.norm_eps == 1e-12
    assert {m.eps for m in model.modules() if isinstance(m, nn.LayerNorm)} == {1e-12}
    assert "1e-06 to 1e-12" in report.numbers["norm_eps"]
    kept = make(seed=1)
    report = vitreous.import_weights(kept, exported, "huggingface", keep=["norm_eps"])
    assert (kept.config.norm_eps, report.numbers) == (1e-6, {})
    assert {m.eps for m in kept.modules() if isinstance(m, nn.LayerNorm)} == {1e-6}


INNER = {"image_size": 32, "encoder": "vit"}
CORE = {"dim": 32, "depth": 1, "heads": 2, "mlp_dim": 32, "patch": 16}


@pytest.mark.parametrize(
    ("family", "fields", "inside"),
    [
        ("segmenter", {"classes": 3, "depth": 1, "norm_eps": 1e-3}, {"norm_eps": 1e-4}),
        ("segmenter", {"classes": 3, "depth": 1, "norm_eps": 1e-3}, {}),
        ("mae-pretrain", {"norm_eps": 1e-3}, {"norm_eps": 1e-4}),
        ("mae-pretrain", {"norm_eps": 1e-3}, {}),
    ],
)
def test_the_epsilon_of_a_model_inside_comes_too_and_is_stored(tmp_path, family, fields, inside):
    source = vitreous.create(family, **INNER, **fields, encoder_fields={**CORE, **inside})
    path = own_file(tmp_path / "own.safetensors", source)
    usual = {k: v for k, v in fields.items() if k != "norm_eps"}
    model = vitreous.create(family, **INNER, **usual, encoder_fields=CORE)
    vitreous.import_weights(model, path)
    assert model.core.config.norm_eps == source.core.config.norm_eps
    again = build(family, model.config)
    for other in (model, again):
        for one, two in zip(source.modules(), other.modules(), strict=True):
            assert getattr(one, "eps", None) == getattr(two, "eps", None), type(one)


def test_the_epsilon_of_a_detector_is_not_that_of_its_backbone_and_projector():
    fields = {
        **{"image_size": 64, "classes": 3, "dim": 32, "heads": 4, "cross_heads": 4, "groups": 1},
        **{"mlp_dim": 32, "decoder_depth": 1, "queries": 5, "projector_depth": 1},
        **{"backbone": "dinov2-s/14", "backbone_fields": {**CORE, "patch": 8}},
    }
    source = vitreous.create("rf-detr", **fields)
    model = vitreous.create("rf-detr", norm_eps=1e-3, **fields)
    vitreous.import_weights(model, vitreous.export_weights(source, "official"), "official")
    for one, two in zip(source.modules(), model.modules(), strict=True):
        assert getattr(one, "eps", None) == getattr(two, "eps", None), type(one)
    assert model.config == source.config


def test_types_are_converted_and_said():
    source = make(seed=1)
    state = {name: value.half() for name, value in copy_of(source).items()}
    model = make()
    report = vitreous.import_weights(model, state, OWN)
    assert report.notes == ["converted from float16"]
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    assert torch.equal(model.norm.weight, state["norm.weight"].float())
    assert vitreous.import_weights(make(), copy_of(source), OWN).notes == []


def test_a_fresh_start_is_no_conversion():
    model = make().to(torch.bfloat16)
    state = copy_of(make(seed=1).to(torch.bfloat16))
    report = vitreous.import_weights(model, state, OWN, reinit=["head.*"])
    assert report.notes == []
    assert {value.dtype for value in model.state_dict().values()} == {torch.bfloat16}


def test_numpy_arrays():
    source, model = make(seed=1), make()
    arrays = {k: v.numpy() for k, v in vitreous.export_weights(source, "google").items()}
    vitreous.import_weights(model, arrays, "google")
    assert same_state(model.state_dict(), source.state_dict())
    for value in arrays.values():
        value[...] = np.nan
    assert all(value.isfinite().all() for value in model.state_dict().values())


@pytest.mark.parametrize(("format", "name", "fields"), CASES[::7], ids=lambda v: str(v)[:40])
def test_a_model_on_the_meta_device(format, name, fields):
    source = make(name, **fields)
    exported = vitreous.export_weights(source, format)
    with torch.device("meta"):
        config = {**SMALL, **fields} if name == "vit" else {**fields}
        if config.get("head") == "none":
            config.pop("classes")
        model = vitreous.create(name, **config)
    vitreous.import_weights(model, exported, format)
    assert same_state(model.state_dict(), source.state_dict())
    wanted = [parameter.requires_grad for parameter in source.parameters()]
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert any(wanted)
    next(iter(exported.values())).zero_()
    (given,) = source.example().values()  # an image, or a text
    output = model.eval()(picture(*given.shape) if given.is_floating_point() else given)
    parts = output if isinstance(output, tuple) else [output]
    assert all(part.isfinite().all() for part in parts if isinstance(part, torch.Tensor))
    assert sum(p.eq(0).all().item() for p in model.parameters()) == 0, "it has its own memory"


def test_meta_device_with_a_fresh_head():
    with torch.device("meta"):
        model = vitreous.create("vit", **SMALL)
    vitreous.import_weights(model, copy_of(make(classes=9)), OWN, reinit=["head.*"])
    assert model.head.out.weight.std().item() == pytest.approx(0.02, rel=0.3)


def test_report_says_it_all():
    source = make(channels=4, classes=9)
    state = {**vitreous.export_weights(source, "huggingface"), "junk": torch.ones(2)}
    state = {key: value.half() for key, value in state.items()}
    model = make(seed=1, image_size=(24, 48))
    report = vitreous.import_weights(
        model,
        state,
        "huggingface",
        reinit=["head.*"],
        drop=["junk"],
        resample="bicubic",
        adapt_channels=True,
    )
    names = [*report.loaded, *report.resampled, *report.adapted, *report.reinitialised]
    assert sorted(names) == sorted(model.state_dict())
    for words in (
        f"state dict (huggingface): {len(report.loaded)} of {len(names)} tensors loaded as",
        "resampled       position.table: 4x4 to 3x6, bicubic",
        "adapted         patch.weight: 4 to 3 channels",
        "re-initialised  head.out.bias",
        "not used        junk",
        "not used        classifier.weight",
        "set             norm_eps: 1e-06 to 1e-12",
        "note            converted from float16",
    ):
        assert words in str(report)


# Rules of one's own

RENAMED = """
about = "a ViT of a thesis"
numbers = { norm_eps = 1e-5 }
prefixes = ["net."]

[rules]
"patch.{p}" = "embed.{p}"
"prefix.class_token" = { theirs = "cls", pattern = "1 1 d -> d" }
"position.table" = { theirs = "pos", pattern = "1 n d -> n d" ROWS }
"blocks.{i}.norm{k}.{p}" = "layer{i+1}.ln{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = { theirs = [
    "layer{i+1}.head{head}.q.{p}", "layer{i+1}.head{head}.k.{p}", "layer{i+1}.head{head}.v.{p}",
], pattern = "(qkv heads) e ... -> (qkv heads e) ..." }
"blocks.{i}.attention.projection.weight" = { theirs = "layer{i+1}.out.w", pattern = "i o -> o i" }
"blocks.{i}.attention.projection.bias" = "layer{i+1}.out.b"
"blocks.{i}.mlp.fc{k}.{p}" = "layer{i+1}.{mlp}.{k}.{p}"
"{all}" = "{all}"

[alternatives]
mlp = ["mlp", "ffn"]
"""


def rules(tmp_path, text, rows=""):
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("ROWS", f', rows = "{rows}"' if rows else ""))
    return path


def test_own_names_and_heads_apart(tmp_path):
    path = rules(tmp_path, RENAMED)
    ours = make(head_dim=12)
    exported = vitreous.export_weights(ours, path)
    width = 4 * 12
    for part, letter in enumerate("qkv"):
        for head in range(4):
            rows = slice(part * width + 12 * head, part * width + 12 * (head + 1))
            weight = ours.blocks[1].attention.qkv.weight[rows]
            assert torch.equal(exported[f"layer2.head{head}.{letter}.weight"], weight)
    assert exported["layer1.out.w"].shape == (48, 32)
    assert exported["cls"].shape == (1, 1, 32)
    odd = {f"net.{key.replace('.mlp.', '.ffn.')}": value for key, value in exported.items()}
    for source in (exported, odd):
        model = make(seed=1, head_dim=12)
        report = vitreous.import_weights(model, source, path)
        assert same_state(model.state_dict(), ours.state_dict())
        assert model.config.norm_eps == 1e-5
        assert str(path) in str(report)
    message = refusal(make(), {k: v for k, v in exported.items() if "head3.k" not in k}, path)
    assert "layer1.head3.k.weight" in message


@torch.no_grad()
@pytest.mark.parametrize("tokens", [{}, BOTH], ids=["class", "distilled"])
def test_positions_without_rows_for_tokens(tmp_path, tokens):
    """Both ways the outputs stay: a token plus its row is a token."""
    path = rules(tmp_path, RENAMED, rows="patches")
    ours, images = make(norm_eps=1e-5, **tokens), picture(2, 3, 32, 32)
    exported = vitreous.export_weights(ours, path)
    assert exported["pos"].shape == (1, 16, 32)
    assert torch.equal(exported["cls"][0, 0], ours.prefix.class_token + ours.position.table[0])
    model = make(seed=1, norm_eps=1e-5, **tokens)
    report = vitreous.import_weights(model, exported, path)
    assert any("without rows" in note for note in report.notes)
    assert relative_error(model(images), ours(images)) < 1e-6
    wide = make(seed=1, image_size=(24, 48), **tokens)
    report = vitreous.import_weights(wide, exported, path, resample="bicubic")
    assert report.resampled["position.table"] == "4x4 to 3x6, bicubic"


EVERY_SECOND = """
[rules]
"blocks.{i}.norm{k}.{p}" = "body.{2i}.{k}.{p}"
"blocks.{i}.{part}.{layer}.{p}" = "body.{2i+1}.{part}.{layer}.{p}"
"{all}" = "{all}"
"""


def test_every_second_number(tmp_path):
    path = rules(tmp_path, EVERY_SECOND)
    ours, model = make(), make(seed=1)
    exported = vitreous.export_weights(ours, path)
    assert "body.2.1.weight" in exported
    assert "body.3.mlp.fc2.bias" in exported
    vitreous.import_weights(model, exported, path)
    assert same_state(model.state_dict(), ours.state_dict())
    deep = vitreous.export_weights(make(depth=3), path)
    message = refusal(model, deep, path, reinit=["blocks.1.*"])
    assert "the file has depth = 3 (the model 2)" in message
    assert "body.3." not in message


def test_rules_built_on_a_known_format(tmp_path):
    text = 'same_as = "timm/vit"\n[rules]\n"head.out.{p}" = "fc.{p}"\n'
    path = rules(tmp_path, text)
    ours, model = make(), make(seed=1)
    exported = vitreous.export_weights(ours, path)
    assert "fc.weight" in exported
    assert "blocks.0.attn.qkv.weight" in exported
    vitreous.import_weights(model, exported, path)
    assert same_state(model.state_dict(), ours.state_dict())


def test_rules_pin_any_field(tmp_path):
    """And a rule for a part that this model lacks is no mistake."""
    text = 'numbers = { heads = 4, norm = "post" }\n[rules]\n'
    path = rules(tmp_path, f'{text}"blocks.{{i}}.scale{{k}}.gamma" = "g{{i}}{{k}}"\n{ALL}')
    model = make(norm="post")
    state = vitreous.export_weights(model, path)
    (found,) = readings(open_weights(state), format=path)
    assert found.fields["heads"] == 4
    assert found.fields["norm.place"] == "post"
    message = refusal(make(), state, path)
    assert (
        "the rules state 'post', the model has 'pre': create it with norm.place='post'" in message
    )
    with pytest.raises(CheckpointError, match=r"norm.place = 'pre'"):
        vitreous.export_weights(make(), path)


ALL = '"{all}" = "{all}"\n'
BAD_RULES = {
    "syntax": ("[rules\n", "not a readable TOML"),
    "no rules": ('about = "x"\n', r"\[rules\]"),
    "rules no table": ("rules = 3\n", r"\[rules\]"),
    "unknown top field": (f"abuot = 'x'\n[rules]\n{ALL}", "unknown field 'abuot'.*'about'"),
    "unknown field": ('[rules]\n"norm.{p}" = { thiers = "x" }\n', "unknown field 'thiers'"),
    "no theirs": ('[rules]\n"norm.{p}" = { pattern = "a -> a" }\n', "'theirs' is missing"),
    "empty theirs": ('[rules]\n"norm.{p}" = []\n', "'theirs' is missing"),
    "wrong theirs": ('[rules]\n"norm.{p}" = true\n', "theirs = True"),
    "wrong value": ('[rules]\n"a" = { value = "zero" }\n', "expected a number, or .identity."),
    "value of theirs": ('[rules]\n"a" = { theirs = "x", value = 0 }\n', "not both"),
    "times": ('[rules]\n"a" = { theirs = "x", times = 0 }\n', "other than 0"),
    "diagonal": ('[rules]\n"a" = { theirs = "x", pattern = "1 a -> a a" }\n', "named twice"),
    "no arrow": ('[rules]\n"norm.{p}" = { theirs = "x", pattern = "a" }\n', "'theirs -> ours'"),
    "two arrows": ('[rules]\n"a" = { theirs = "x", pattern = "a -> a -> a" }\n', "theirs -> ours"),
    "no einops": (
        f'[rules]\n"norm.weight" = {{ theirs = "n", pattern = "(a -> a" }}\n{ALL}',
        "a -> a",
    ),
    "lost axis": (
        f'[rules]\n"norm.weight" = {{ theirs = "n", pattern = "a b -> a" }}\n{ALL}',
        "a b -> a",
    ),
    "parts": ('[rules]\n"a" = { theirs = ["x", "y"], parts = [1] }\n', "a number for each key"),
    "rows": ('[rules]\n"a" = { theirs = "x", rows = "some" }\n', "rows must be"),
    "same_as": ('same_as = "tim/vit"\n', "same_as = 'tim/vit'.*timm/vit"),
    "placeholder": (f'[rules]\n"blocks.{{i}}.norm1.{{p}}" = "n{{j}}.{{p}}"\n{ALL}', r"\{j\}"),
    "group": (f'[rules]\n"blocks.{{1}}.x" = "n{{1}}"\n{ALL}', r"\{1\}"),
    "alternatives no list": (f'[rules]\n{ALL}[alternatives]\nroot = "ab"\n', "root"),
    "alternatives number": (f"[rules]\n{ALL}[alternatives]\nroot = 5\n", "root"),
    "alternatives empty": (f"[rules]\n{ALL}[alternatives]\nroot = []\n", "root"),
    "alternatives all conditional": (
        f'[rules]\n{ALL}[alternatives]\nroot = [{{ name = "x", when = "nothing" }}]\n',
        "root",
    ),
    "numbers": (
        f"numbers = {{ attention.scal = 0.5 }}\n[rules]\n{ALL}",
        "numbers: unknown field 'attention.scal': did you mean 'attention.scale'",
    ),
    "number of no sense": (f"numbers = {{ depth = 0 }}\n[rules]\n{ALL}", "depth = 0"),
    "number of no kind": (f"numbers = {{ norm = 'per' }}\n[rules]\n{ALL}", "norm = 'per'"),
    "choices": (f"[choices]\nactivatoin = ['gelu']\n[rules]\n{ALL}", "did you mean 'activation'"),
    "choice": (f"[choices]\nactivation = ['gleu']\n[rules]\n{ALL}", "'gleu'.*did you mean"),
    "misspelt rule": (
        f'[rules]\n"blocks.{{i}}.atention.qkv.{{p}}" = "b{{i}}.{{p}}"\n{ALL}',
        r"no vit model has such a parameter: did you mean 'blocks.\{i\}.attention.qkv.weight'",
    ),
    "wrong numbers": (f"numbers = {{ norm_eps = 'x' }}\n[rules]\n{ALL}", "norm_eps"),
    "if_absent": (f'[rules]\n"x" = {{ theirs = "x", if_absent = ["width"] }}\n{ALL}', "width"),
}


@pytest.mark.parametrize(("text", "says"), BAD_RULES.values(), ids=BAD_RULES)
def test_bad_rules(tmp_path, text, says):
    path = rules(tmp_path, text)
    with pytest.raises(ConfigError, match=says) as caught:
        vitreous.export_weights(make(), path)
    assert str(path) in str(caught.value)
    assert str(path) in refusal(make(), copy_of(make(seed=1)), path, error=ConfigError)


@pytest.mark.parametrize(
    "rule", ['"norm.{p}" = "n"', '"blocks.{i}.norm1.weight" = "n"'], ids=["two names", "all blocks"]
)
def test_two_parameters_under_one_key_are_not_written(tmp_path, rule):
    """The second would take the first one's place, and the file would be worth nothing."""
    path = rules(tmp_path, f"[rules]\n{rule}\n{ALL}")
    with pytest.raises(VitreousError, match=r"norm1?\.weight"):
        vitreous.export_weights(make(), path)


def test_rules_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.toml: no such file"):
        vitreous.export_weights(make(), tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary.toml: not a readable TOML file"):
        vitreous.export_weights(make(), tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("format", "fields"),
    [
        ("timm", {"norm": "post"}),
        ("timm", {"position": "sines-2d", "tokens": "none", "pool": "mean"}),
        ("timm", {"attention.scale": 0.5}),
        ("google", {"activation": "relu"}),
        ("torchvision", {"pool": "mean"}),
    ],
)
def test_what_another_library_cannot_compute_is_not_exported(format, fields):
    """The parameters would fit, and the outputs would be others."""
    with pytest.raises(CheckpointError, match="do not support.*" + next(iter(fields))):
        vitreous.export_weights(make(**fields), format)


def test_query_apart_from_key_and_value(tmp_path):
    """Keys of unlike size are joined and split in the proportions that `parts` gives."""
    path = tmp_path / "parts.toml"
    joined = '{ theirs = ["b{i}.q.{p}", "b{i}.kv.{p}"], parts = [1, 2] }'
    path.write_text(f'[rules]\n"blocks.{{i}}.attention.qkv.{{p}}" = {joined}\n{ALL}')
    ours, again = make(), make(seed=1)
    state = vitreous.export_weights(ours, path)
    dim = ours.config.dim
    assert state["b0.q.weight"].shape == (dim, dim)
    assert state["b0.kv.bias"].shape == (2 * dim,)
    vitreous.import_weights(again, state, path)
    assert same_state(again.state_dict(), ours.state_dict())


def test_files_from_before_batch_norm_counted():
    ours = vitreous.create("resnet-18", classes=3)
    state = {
        key: value
        for key, value in vitreous.export_weights(ours, "torchvision").items()
        if "num_batches_tracked" not in key
    }
    report = vitreous.import_weights(vitreous.create("resnet-18", classes=3), state, "torchvision")
    assert any("num_batches_tracked: not in the checkpoint" in note for note in report.notes)


def test_channels_change_with_the_norm_before_the_patches():
    fields = {"embedding.norm": True, "attention.qkv_bias": False}
    state = vitreous.export_weights(make(**fields), "vit_pytorch")
    ours = make(**fields, channels=6)
    report = vitreous.import_weights(ours, state, "vit_pytorch", adapt_channels=True)
    assert set(report.adapted) == {"patch.weight", "patch.norm_in.weight", "patch.norm_in.bias"}
    images = picture(2, 3, *ours.config.image_size)
    same = make(**fields)
    vitreous.import_weights(same, state, "vit_pytorch")
    with torch.no_grad():
        assert relative_error(ours(images.repeat(1, 2, 1, 1)), same(images)) < 1e-5


@pytest.mark.parametrize("prefix", ["model.", "net.encoder."])
def test_a_name_that_all_keys_begin_with_is_left_out_and_told(prefix):
    """Lightning keeps a model as `model`, other people's classes as whatever they like."""
    model = vitreous.create("vit", **SMALL)
    perturb(model)
    theirs = vitreous.export_weights(model, "timm")
    wrapped = {f"{prefix}{key}": value for key, value in theirs.items()}
    other = vitreous.create("vit", **SMALL)
    report = vitreous.import_weights(other, wrapped)
    assert report.format == "timm"
    assert any(repr(prefix) in note for note in report.notes)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
    (found, *_) = readings(open_weights(wrapped))
    assert found.format == "timm"
    assert found.fields["dim"] == 32


@pytest.mark.parametrize("format", ["timm", "paddle"])
def test_a_file_of_another_size_is_read_in_its_own_format(format):
    """PaddleClas has timm's keys, with transposed matrices: the shapes tell, also where none is the
    model's."""
    state = vitreous.export_weights(vitreous.create("vit", **SMALL), format)
    model = vitreous.create("vit", **{**SMALL, "dim": 48, "mlp_dim": 192})
    with pytest.raises(CheckpointError, match=r"the file has dim = 32 \(the model 48\)") as error:
        vitreous.import_weights(model, state)
    assert len(str(error.value).splitlines()) < 5
