"""DETR's own properties; its numbers are compared in tests/parity/test_detr.py."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from compare import perturb, picture, relative_error
from torch import nn

import vitreous
from vitreous.engines.summary import summarise
from vitreous.errors import ConfigError, InputError
from vitreous.layers.padding import Padding
from vitreous.layers.sines import image_sines
from vitreous.layers.tap import tap
from vitreous.models import configure
from vitreous.models.detr import DETR, DETRConfig
from vitreous.models.model import Level, Model

RESNET = {"block": "basic", "stages": (1, 1), "width": 8, "norm": "frozen"}
SMALL = {
    "image_size": 64,
    "classes": 4,
    "backbone": "resnet",
    "backbone_fields": RESNET,
    "dim": 32,
    "heads": 4,
    "encoder_depth": 2,
    "decoder_depth": 3,
    "mlp_dim": 48,
    "queries": 6,
}
BACKBONES = {
    "resnet, frozen": ("resnet", RESNET),
    "resnet, batch": ("resnet", {**RESNET, "norm": "batch"}),
    "resnet, group": ("resnet", {**RESNET, "norm": "group", "block": "bottleneck"}),
    "resnet, dilated": ("resnet", {**RESNET, "dilated": True}),
    "swin": ("swin", {"dim": 8, "depths": (1, 2), "heads": (1, 2), "window": 4}),
    "vit": ("vit", {"patch": 8, "dim": 24, "depth": 2, "heads": 2, "position": "sines-2d"}),
}


def detr(**changes):
    torch.manual_seed(0)
    return perturb(vitreous.create("detr", **{**SMALL, **changes}))


def pictures(*sizes):
    return [picture(1, 3, *size, seed=seed)[0] for seed, size in enumerate(sizes)]


class Cells(Model):
    """A backbone that knows no neighbours: each cell of 8x8 pixels by itself."""

    depth = 1

    def __init__(self, channels=12):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 8, stride=8)

    def levels(self, size):
        return [Level(self.conv.out_channels, (size[0] // 8, size[1] // 8), (8, 8))]

    def maps(self, images, blocks=None, *, norm=False):
        return [self.conv(images)]


def on_cells():
    fields = {name: value for name, value in SMALL.items() if not name.startswith("backbone")}
    return perturb(DETR(DETRConfig(**fields), Cells()))


# Padding


def test_padding_is_never_attended_to():
    """Exactly: not a weight of the encoder, nor of a query, lies on it."""
    model, images = detr(), pictures((64, 40), (33, 64), (9, 8))
    seen, layers = {}, {layer.name: layer for layer in model.attentions((64, 64))}
    with torch.no_grad(), tap(dict(model.named_modules()), lambda *shown: seen.update([shown])):
        model(images)
    looks = {name: w for name, w in seen.items() if name.endswith("weights")}
    assert len(looks) == 2 + 2 * 3
    for name, weights in looks.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        layer = layers[name.removesuffix(".weights")]
        if layer.part == "decoder":
            assert weights.shape == (3, 4, 6, 6)
            continue
        grid = layer.columns.grid
        assert grid == (8, 8)
        on_map = weights.unflatten(-1, grid)
        for image, (rows, columns) in enumerate(((8, 5), (5, 8), (2, 1))):
            assert (on_map[image, :, :, rows:] == 0).all()
            assert (on_map[image, :, :, :, columns:] == 0).all()
            assert (on_map[image, :, :, :rows, :columns] > 0).all()


def test_an_image_alone_and_padded_is_the_same_to_the_transformer():
    """The maps are the same here, so all that may differ is in which order sums are made: 1e-5.
    What stands in the padding cannot matter at all, as its weight is zero."""
    model, images = on_cells(), pictures((64, 40), (32, 64), (8, 8))
    with torch.no_grad():
        together = model(images)
        for number, image in enumerate(images):
            alone = model(image[None])
            assert relative_error(together.logits[:, number], alone.logits[:, 0]) < 1e-5
            assert relative_error(together.boxes[:, number], alone.boxes[:, 0]) < 1e-5
        pad = F.pad
        try:
            F.pad = lambda image, by: pad(image, by, value=3.0)
            other = model(images)
        finally:
            F.pad = pad
    assert torch.equal(other.logits, together.logits)
    assert torch.equal(other.boxes, together.boxes)


def test_an_image_alone_and_padded_differ_only_as_far_as_the_backbone_sees():
    """A convolution sees zeros beyond an image that is alone; beyond one that is padded, behind
    the first norm, what becomes of zeros. So maps differ, but only as far from the edge as it sees:
    14 pixels here (7x7, then 3x3 with steps of 2 and twice 3x3 with steps of 4), 4 positions."""
    model = detr(backbone_fields={**RESNET, "stages": (1,)})
    images = pictures((64, 48), (96, 96))
    with torch.no_grad():
        (alone,) = model.maps([images[0]], [0])
        (both,) = model.maps(images, [0])
    torch.testing.assert_close(both[:1, :, :12, :8], alone[:, :, :12, :8])
    assert not torch.allclose(both[:1, :, :16, :12], alone)


def test_images_of_one_size_need_no_padding():
    model, images = detr(), torch.stack(pictures((64, 48), (64, 48)))
    with torch.no_grad():
        batch, listed = model(images), model(list(images))
    assert torch.equal(batch.logits, listed.logits)


@pytest.mark.parametrize("pixels", [30, 33, 64, 97, 100, 170, 267, 333])
def test_rows_of_the_map_are_image_where_the_nearest_pixel_is(pixels):
    length = -(-pixels // 32)
    sizes = torch.tensor([(high, 4) for high in range(1, pixels + 1)])
    found, counts = Padding(sizes, (pixels, 5)).on((length, 2))
    for (high, _), rows, (count, columns) in zip(sizes, found[:, :, 0], counts, strict=True):
        mask = torch.arange(pixels) < high
        expected = F.interpolate(mask[None, None, :, None].expand(1, 1, -1, 5).float(), (length, 2))
        assert torch.equal(rows, expected[0, 0, :, 0].bool())
        assert rows[0]
        assert (count, columns) == (rows.sum(), 2)


@pytest.mark.parametrize("temperature", [10_000, 20])
def test_positions_by_the_formula(temperature):
    """Counted over the image itself, in the middle of each half a sine and a cosine in turn."""
    dim, grid, inside = 16, (3, 5), [(3, 5), (2, 4), (1, 1)]
    rows, columns = torch.tensor(inside).unbind(1)
    ours = image_sines(rows, columns, grid, dim, temperature).unflatten(1, grid)
    for number, counts in enumerate(inside):
        for place in ((0, 0), (1, 3), (2, 4)):
            wanted = []
            for at, count in zip(place, counts, strict=True):  # y, then x
                turned = (at + 1) / (count + 1e-6) * 2 * math.pi
                for k in range(dim // 4):
                    angle = turned / temperature ** (2 * k / (dim // 2))
                    wanted += [math.sin(angle), math.cos(angle)]
            torch.testing.assert_close(ours[number, place[0], place[1]], torch.tensor(wanted))


# Backbones whose positions depend on the size

SCALED = pytest.mark.parametrize(
    "position", ["learned-1d", "learned-2d", "relative", "learned-1d+rotary", "rotary"]
)
SIZES = [(64, 40), (33, 61), (64, 40), (9, 70), (7, 5)]


def over_vit(position, **changes):
    fields = {"patch": 8, "dim": 24, "depth": 2, "heads": 2, "position": position}
    if position == "rotary":
        fields["rotary_coordinates"] = "centred"
    return detr(backbone="vit", backbone_fields=fields, **changes)


@SCALED
def test_a_learned_backbone_takes_every_size_and_sees_no_padding(position):
    """A batch is its images: at each image's own grid, whatever else is in the batch."""
    model, batch = over_vit(position), pictures(*SIZES)
    with torch.no_grad():
        together, found = model(batch), model.maps(batch, [0, 1])
        for number, image in enumerate(batch):
            alone, single = model(image[None]), model.maps(image[None], [0, 1])
            assert relative_error(together.logits[:, number], alone.logits[:, 0]) < 1e-5
            assert relative_error(together.boxes[:, number], alone.boxes[:, 0]) < 1e-5
            gh, gw = model.levels((image.shape[1], image.shape[2]))[-1].grid
            assert (gh, gw) == (-(-image.shape[1] // 8), -(-image.shape[2] // 8))
            for both, one in zip(found, single, strict=True):
                assert relative_error(both[number, :, :gh, :gw], one[0]) < 1e-5
                assert not both[number, :, gh:].any()
                assert not both[number, :, :, gw:].any()
            layers = model.attentions((image.shape[1], image.shape[2]))
            assert {layer.columns.grid for layer in layers if layer.part != "decoder"} == {(gh, gw)}
        model.sharded = True  # image by image, as often on every process
        torch.testing.assert_close(model(batch).logits, together.logits)
        same = picture(3, 3, 64, 64)
        sharded = model(same).logits
        model.sharded = False
        torch.testing.assert_close(sharded, model(same).logits)


@SCALED
def test_it_learns_at_every_size(position):
    model = over_vit(position, dropout=0.0, attention_dropout=0.0).train()
    output = model(pictures(*SIZES))
    (output.logits.square().mean() + output.boxes.square().mean()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(p.grad.any() for p in model.backbone.position.parameters())


# What comes out


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone(name):
    backbone, fields = BACKBONES[name]
    model = detr(backbone=backbone, backbone_fields=fields)
    images = picture(3, 3, 64, 64)
    with torch.no_grad():
        output = model(images)
        assert output.logits.shape == (1, 3, 6, 5)
        assert output.boxes.shape == (1, 3, 6, 4)
        assert ((output.boxes > 0) & (output.boxes < 1)).all()
        for i in range(3):  # a batch is its images
            alone = model(images[i : i + 1])
            torch.testing.assert_close(
                alone.logits[:, 0], output.logits[:, i], rtol=1e-4, atol=1e-5
            )
            torch.testing.assert_close(alone.boxes[:, 0], output.boxes[:, i], rtol=1e-4, atol=1e-5)
        with tap(
            dict(model.named_modules()), lambda name, tensor: None
        ):  # looked into, it says the same
            explicit = model(images)
        torch.testing.assert_close(explicit.logits, output.logits, rtol=1e-4, atol=1e-5)
        for sizes in (((64, 64), (64, 64)), ((64, 40), (48, 64))):
            assert model(pictures(*sizes)).logits.shape == (1, 2, 6, 5)


def test_explicit_equals_fused_with_padding():
    model, images = detr(), pictures((64, 40), (33, 64))
    with torch.no_grad():
        fused = model(images)
        with tap(dict(model.named_modules()), lambda name, tensor: None):
            explicit = model(images)
    assert relative_error(explicit.logits, fused.logits) < 1e-5
    assert relative_error(explicit.boxes, fused.boxes) < 1e-5


def test_every_layer_while_training_and_only_the_last_afterwards():
    model, images = detr(dropout=0.0, attention_dropout=0.0), picture(2, 3, 64, 64)
    calls = []
    model.norm.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        last = model(images)
        assert len(calls) == 1, "no work for what nobody asked for"
        every = model(images, every_layer=True)
        training = model.train()(images)
    assert last.logits.shape[0] == last.boxes.shape[0] == 1
    assert every.logits.shape[:2] == (3, 2)
    torch.testing.assert_close(every.logits[-1:], last.logits)
    torch.testing.assert_close(every.boxes[-1:], last.boxes)
    torch.testing.assert_close(training.logits, every.logits)
    assert not torch.allclose(every.logits[0], every.logits[1])


@pytest.mark.parametrize("name", BACKBONES)
def test_every_parameter_learns(name):
    """Else DistributedDataParallel would wait for a gradient that never comes."""
    backbone, fields = BACKBONES[name]
    model = detr(backbone=backbone, backbone_fields=fields).train()
    output = model(picture(2, 3, 64, 64))
    (output.logits.square().mean() + output.boxes.square().mean()).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_an_order_of_queries_is_an_order_of_answers():
    """A set: queries are told apart by what they are, and not by where they stand."""
    model, images, order = detr(), picture(1, 3, 64, 64), torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.no_grad():
        before = model(images)
        model.queries.weight.copy_(model.queries.weight[order])
        after = model(images)
    torch.testing.assert_close(after.logits, before.logits[:, :, order], rtol=1e-4, atol=1e-5)


def test_maps_are_the_backbones():
    model, images = detr(), picture(2, 3, 64, 48)
    with torch.no_grad():
        found, inner = model.maps(images, [0, 1]), model.backbone.maps(images, [0, 1])
    for ours, theirs in zip(found, inner, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert [tuple(m.shape[2:]) for m in found] == [level.grid for level in model.levels((64, 48))]
    assert model.core is model.backbone
    layers = {layer.name: layer for layer in model.attentions((64, 48))}
    assert layers["decoder.0.cross_attention"].columns.grid == (8, 6)
    assert layers["decoder.0.cross_attention"].rows.prefix == 6
    assert layers["decoder.0.self_attention"].columns.prefix == 6
    assert model.width == 32


def test_the_walk_adds_up():
    model = detr()
    stages = {stage.name: stage for stage in summarise(model)}
    assert sum(stage.parameters for stage in stages.values()) == sum(
        p.numel() for p in model.parameters()
    )
    assert stages["projection"].shape == (8, 8, 32)
    assert stages["encoder.1"].shape == (64, 32)
    assert stages["queries"].shape == stages["decoder.2"].shape == (6, 32)
    assert (stages["class_head"].shape, stages["box_head"].shape) == ((6, 5), (6, 4))


def test_it_learns_in_bfloat16():
    """Boxes keep the digits of float32: in bfloat16, places near 1 are three pixels of 800 apart"""
    model = detr().train()
    with torch.autocast("cpu", torch.bfloat16):
        output = model(picture(2, 3, 64, 64))
    assert output.boxes.dtype == torch.float32
    output.boxes.sum().backward()


def test_a_map_that_is_told_where_things_are():
    """Cells that look alike are the same to the paper's encoder but for whom they see; here not."""
    model, image = on_cells(), torch.ones(1, 3, 64, 64)
    with torch.no_grad():
        told = {}
        for added in (False, True):
            model.config = dataclasses.replace(model.config, add_position=added)
            with tap(model.steps(), lambda name, tensor: told.setdefault(name, tensor)):
                model(image)
            alike = (told.pop("encoder.0") - told["tokens"]).std(dim=1).max() < 1e-5
            assert alike == (not added)
            told.clear()


# The backbone's own


def test_a_frozen_norm_is_batch_norm_as_it_stands_and_nothing_of_it_learns():
    fields = {**RESNET, "stages": (1, 2), "block": "bottleneck", "classes": 3}
    batch = perturb(vitreous.create("resnet", **{**fields, "norm": "batch"}))
    frozen = vitreous.create("resnet", **fields)
    counted = {k: v for k, v in batch.state_dict().items() if not k.endswith("batches_tracked")}
    frozen.load_state_dict(counted, strict=True)
    images = picture(2, 3, 64, 48)
    with torch.no_grad():
        assert relative_error(frozen.eval()(images), batch(images)) < 1e-6
        assert torch.equal(frozen.train()(images), frozen.eval()(images))
    learning = dict(frozen.named_parameters())
    assert not [name for name in learning if "norm" in name]
    assert len(learning) == len([name for name in batch.state_dict() if "conv" in name]) + 2
    assert all(torch.equal(frozen.state_dict()[name], value) for name, value in counted.items())


@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_a_dilated_stage_keeps_the_size(block):
    fields = {**RESNET, "block": block, "stages": (1, 1, 2), "head": "none"}
    plain, dilated = (
        perturb(vitreous.create("resnet", **fields, dilated=dilated)) for dilated in (False, True)
    )
    images = picture(1, 3, 64, 96)
    with torch.no_grad():
        maps = dilated.maps(images, range(3))
        (coarse,) = plain.maps(images)
    assert [tuple(m.shape[2:]) for m in maps] == [(16, 24), (8, 12), (8, 12)]
    assert [level.grid for level in dilated.levels((64, 96))] == [(16, 24), (8, 12), (8, 12)]
    assert [level.pixels for level in dilated.levels((64, 96))] == [(4, 4), (8, 8), (8, 8)]
    # every second position saw what the coarse map's saw, but for the edges
    middle = maps[-1][:, :, ::2, ::2][:, :, 1:-1, 1:-1]
    torch.testing.assert_close(middle, coarse[:, :, 1:-1, 1:-1], rtol=1e-4, atol=1e-4)


# Names and sizes


def test_parameters_are_the_papers():
    """Table 1 of the paper: 41M for R50, and DC5 has no more; 60M for R101. It counts what learns
    there, and there the backbone's root and first stage do not."""
    for name, papers in (("detr-r50", 41_302_368), ("detr-r101", 60_242_272)):
        with torch.device("meta"):
            plain, dilated = vitreous.create(name), vitreous.create(f"{name}-dc5")
        count = sum(p.numel() for p in plain.parameters())
        still = (plain.backbone.root, plain.backbone.stages[0])
        assert count - sum(p.numel() for part in still for p in part.parameters()) == papers
        assert count == sum(p.numel() for p in dilated.parameters())
        assert plain.levels((800, 1066))[-1].grid == (25, 34)
        assert dilated.levels((800, 1066))[-1].grid == (50, 67)


def test_the_small_one_is_small():
    with torch.device("meta"):
        small = vitreous.create("detr-small", classes=6)
    assert sum(p.numel() for p in small.parameters()) < 3e6
    assert small.levels((128, 128))[-1].pixels == (16, 16)


@pytest.mark.parametrize(
    ("foreign", "name"),
    [
        ("facebook/detr-resnet-50", "detr-r50"),
        ("facebook/detr-resnet-101-dc5", "detr-r101-dc5"),
        ("detr_resnet101", "detr-r101"),
        ("detr_resnet50_dc5", "detr-r50-dc5"),
    ],
)
def test_names_elsewhere(foreign, name):
    assert configure(foreign) == configure(name)


@pytest.mark.parametrize("name", ["facebook/detr-resnet-18", "facebook/detr-resnet-50-panoptic"])
def test_detrs_that_are_others(name):
    with pytest.raises(ConfigError, match="unknown model"):
        configure(name)


def test_fields_of_the_backbone_are_added_to_the_variants():
    with torch.device("meta"):
        model = vitreous.create("detr-r50", backbone_fields={"stages": (1, 1, 1, 1)})
    assert model.backbone.config.stages == (1, 1, 1, 1)
    assert model.backbone.config.norm == "frozen"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "resnet-55"}, "did you mean .*'resnet-50'"),
        ({"backbone_fields": {"classes": 3}}, "give classes itself"),
        ({"backbone_fields": {"widht": 3}}, "unknown field 'widht'"),
        ({"backbone_fields": {"norm": "frosen"}}, "did you mean 'frozen'"),
        ({"backbone_fields": {"stages": (1,), "dilated": True}}, "the only stage does not halve"),
        ({"heads": 7}, "does not divide into 7 heads"),
        ({"dim": 30, "heads": 5}, "multiple of 4"),
        ({"queries": 0}, "queries = 0"),
        ({"classes": 0}, "at least 1"),
        ({"decoder_depth": 0}, "decoder_depth = 0"),
        ({"encoder_depth": -1}, "encoder_depth = -1"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"norm_eps": 0.0}, "small number above 0"),
        ({"activation": "rleu"}, "did you mean 'relu'"),
        ({"num_queries": 3}, "unknown field 'num_queries'.*did you mean 'queries'"),
    ],
)
def test_bad_configs(fields, message):
    with pytest.raises(ConfigError, match=message):
        vitreous.create("detr", **{**SMALL, **fields})


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(1, 1, 64, 64), "this model takes"),
        ([torch.zeros(3, 64, 64), torch.zeros(1, 64, 64)], "this model takes"),
        ([torch.zeros(64, 64)], "this model takes"),
        ([], "at least one image"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "normalised floating-point values"),
    ],
)
def test_bad_images(images, message):
    with pytest.raises(InputError, match=message):
        detr()(images)
