"""Parts of a config: records with a kind, given by it, as a table or field by field."""

import json

import pytest

import vitreous
from vitreous.config import (
    config_fields,
    fitting,
    flat,
    marks,
    merged,
    records,
    to_dict,
    type_hints,
)
from vitreous.errors import ConfigError
from vitreous.layers.rotary import RotaryConfig
from vitreous.models import configure
from vitreous.models.detr import DETRConfig
from vitreous.models.old_fields import OLD_FIELDS
from vitreous.models.vit import ViTConfig

PARTS = {name: kinds for name, hint in type_hints(ViTConfig).items() if (kinds := records(hint))}

LAYER = {"kind": "conv", "layers": [{"width": 768}]}
NEEDED = {
    ("pool", "both"): {"tokens": "class+distillation"},
    ("stem", "resnet"): {"patch": 1},
    ("embedding", "none"): {"patch": 1, "stem": LAYER, "image_size": 8},
}


def config(name="vit-b/16", **fields):
    return configure(name, **fields)[1]


def test_a_plain_vit_has_few_fields_and_no_empty_stems():
    assert len(vars(config())) <= 30
    model = vitreous.create("vit", dim=32, depth=1, heads=4, image_size=32)
    assert not any("Stem" in type(module).__name__ for module in model.modules())


@pytest.mark.parametrize(
    "position",
    [
        {"position": {"kind": "rotary", "base": 100}},
        {"position": "rotary", "position.base": 100},
        {"position.base": 100, "position": "Rotary"},
        {"position": RotaryConfig(base=100.0)},
        {"position": RotaryConfig(), "position.base": 100},
        config_fields(["position=rotary", "position.base=100"]),
        {"position": "rotary", "rotary_base": 100},
    ],
    ids=str,
)
def test_ways_to_give_a_part(position):
    assert config(**position).position == RotaryConfig(base=100.0)


def test_a_part_of_the_same_kind_keeps_its_other_fields():
    usual = config("dinov3-b/16").position
    for given in ({"position.base": 50}, {"position": {"kind": "rotary", "base": 50}}):
        found = config("dinov3-b/16", **given).position
        assert (found.base, found.layout, found.coordinates) == (50, "halves", "centred")
    assert config("dinov3-b/16", position="rotary").position == usual
    assert config("dinov3-b/16", position="learned-1d").position.kind == "learned-1d"


@pytest.mark.parametrize(("part", "kinds"), PARTS.items(), ids=PARTS)
def test_every_kind_is_written_and_read(part, kinds):
    for kind, record in kinds.items():
        made = record(kind=kind) if kind else record()
        written = json.loads(json.dumps({part: made}, default=to_dict))[part]
        assert kind == "" or written["kind"] == kind
        whole = config(**{part: written, **NEEDED.get((part, kind), {})})
        assert getattr(whole, part) == made
        fields = {name: v for name, v in to_dict(whole).items() if name != "classes"}
        assert configure("vit", **json.loads(json.dumps(fields)))[1] == whole
        fields = {name: v for name, v in flat(whole).items() if name != "classes"}
        assert configure("vit", **fields)[1] == whole


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position": "rotry"}, "position = 'rotry' is not known: did you mean 'rotary'"),
        ({"position": {"kind": "rotary", "bse": 3}}, "'position.bse'.*did you mean 'base'"),
        ({"position.base": 3}, r"position.base .*is for position = 'rotary'.*is 'learned-1d'"),
        ({"position.nothing": 3}, "unknown field 'position.nothing'.*fields are prefix, grid"),
        ({"pool.heads": 3}, "pool.heads .*is for pool = 'attention', and pool is 'class'"),
        ({"position": 3}, "position = 3.*expected one of none, learned-1d.*or a table"),
        ({"attention": "softmax"}, "attention = 'softmax'.*expected a table"),
        ({"attention.qkvbias": True}, "did you mean 'qkv_bias'"),
        ({"rotary_base": 3}, "position.base"),
        ({"positon": "rotary"}, "unknown field 'positon'.*did you mean 'position'"),
        ({"base": 100}, "unknown field 'base'.*did you mean 'position.base'"),
    ],
    ids=str,
)
def test_errors_name_the_part_and_a_remedy(fields, message):
    with pytest.raises(ConfigError, match=message):
        config(**fields)


def test_fields_of_older_versions():
    """All of them exist today; a file that names every field is read by the kinds that it has."""
    assert {each.now for each in OLD_FIELDS.values()} <= {*marks(ViTConfig), *marks(DETRConfig)}
    old = {"position": "learned-1d", "rotary_base": 1e4, "sines_prefix": False, "head": "linear"}
    old |= {"prefix_positions": False, "head_hidden": None, "pool": "class", "pool_heads": None}
    old |= {"qkv_bias": False, "windows": 1, "global_blocks": [], "patch_embedding": True}
    old |= {"stem_layers": [], "grid_layers": [], "patch_dim": None, "patch_bias": False}
    found = config(**old)
    assert found.position.prefix is found.attention.qkv_bias is found.embedding.bias is False
    assert (found.stem.kind, found.windows.side) == ("none", 1)
    inner = {"windows": 2, "global_blocks": (1,), "position_grid": 4}
    detector = config("rf-detr", backbone_fields=inner).backbone_fields
    assert detector == {"windows.side": 2, "windows.global_blocks": (1,), "position.grid": 4}


def test_changes_of_a_kind_discard_fields_of_the_other():
    first = {"position": "rotary", "position.base": 3, "heads": 2}
    assert merged(first, {"position": "learned-1d"}) == {"position": "learned-1d", "heads": 2}
    assert merged(first, {"position": "rotary"}) == first
    assert fitting(config(), {"position.base": 3, "head.hidden": 4, "dim": 8}) == {"dim": 8}
