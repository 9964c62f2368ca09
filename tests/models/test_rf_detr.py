"""RF-DETR and LW-DETR: windows, sizes, groups, backbones; parity is in tests/parity."""

import pytest
import torch
from compare import perturb

import vitreous
from vitreous.errors import ConfigError
from vitreous.layers.proposals import moved
from vitreous.layers.windows import into_windows, out_of_windows
from vitreous.models import configure
from vitreous.models.rf_detr import used_blocks
from vitreous.tasks.objects.losses import quality_loss
from vitreous.weights.fields import GivenFields
from vitreous.weights.infer import infer

SMALL = {
    "classes": 3,
    "dim": 32,
    "heads": 4,
    "cross_heads": 4,
    "decoder_depth": 2,
    "mlp_dim": 32,
    "queries": 6,
    "groups": 3,
    "projector_depth": 1,
}
VIT = {"dim": 24, "depth": 4, "heads": 3, "mlp_dim": 48, "patch": 8}


def tiny(image_size=64, backbone="vit", fields=VIT, **changes):
    torch.manual_seed(0)
    made = {**SMALL, "backbone": backbone, "backbone_fields": fields, **changes}
    return vitreous.create("rf-detr", image_size=image_size, **made).eval()


@pytest.mark.parametrize(("prefix", "side"), [(0, 2), (1, 2), (5, 3)])
def test_windows_are_cut_and_joined(prefix, side):
    grid = (2 * side, 3 * side)
    x = torch.arange(side * side * prefix + grid[0] * grid[1])[None, :, None].float()
    windows = into_windows(x, grid, side, prefix)
    assert windows.shape == (side * side, prefix + 6, 1)
    assert torch.equal(out_of_windows(windows, grid, side, prefix), x)
    numbers = torch.arange(grid[0] * grid[1]).view(grid) + side * side * prefix
    assert windows[1, prefix:, 0].tolist() == numbers[:2, 3:6].flatten().tolist()


def test_a_window_sees_nothing_of_the_others():
    """But for blocks in which all tokens see each other."""
    image = torch.randn(1, 3, 32, 32)
    other = image.clone()
    other[..., 16:, 16:] += 1  # the last of four windows
    for global_blocks, changed in (((), 1), ((1,), 4)):
        fields = {
            **VIT,
            "windows.side": 2,
            "windows.global_blocks": global_blocks,
            "image_size": 32,
        }
        model = vitreous.create("vit", **fields).eval()
        with torch.no_grad():
            maps = [model.maps(each)[-1] for each in (image, other)]
        differ = (maps[0] - maps[1]).abs().amax(dim=1)[0] > 1e-6
        parts = [differ[:2, :2], differ[:2, 2:], differ[2:, :2], differ[2:, 2:]]
        assert sum(bool(part.any()) for part in parts) == changed


def test_windows_without_any_block_inside_them_are_the_plain_vit():
    """Apart from the class token, which each window has for itself."""
    fields = {**VIT, "tokens": "none", "pool": "mean", "image_size": 32}
    plain = vitreous.create("vit", **fields).eval()
    windows = vitreous.create(
        "vit", **fields, windows={"side": 2, "global_blocks": (0, 1, 2, 3)}
    ).eval()
    windows.load_state_dict(plain.state_dict())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(windows(images), plain(images), atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"position": "conditional"}, "acts in or behind the blocks"),
        ({"position": "rotary", "heads": 2}, "acts in or behind the blocks"),
        ({"windows.global_blocks": (4,)}, "there is no block 4 of 4"),
        ({"image_size": 40}, "does not divide into 2x2 windows"),
    ],
)
def test_windows_that_do_not_fit(fields, said):
    with pytest.raises(ConfigError, match=said):
        vitreous.create("vit", **{**VIT, "windows.side": 2, "image_size": 32, **fields})


@pytest.mark.parametrize("size", [(64, 64), (64, 96), (56, 40), (61, 83), (24, 24)])
@pytest.mark.parametrize("windows", [1, 2])
def test_any_size_at_run_time(size, windows):
    """Learned positions are resampled, images padded to whole patches and windows; a map with
    fewer positions than queries has fewer queries."""
    model = tiny(fields={**VIT, "windows.side": windows, "windows.global_blocks": (1, 3)})
    output = model(torch.randn(2, 3, *size))
    step = 8 * windows
    positions = -(-size[0] // step) * -(-size[1] // step) * windows**2
    assert output.logits.shape == (1, 2, min(6, positions), 3)
    assert output.boxes.isfinite().all()
    model.train()
    targets = [{"labels": torch.tensor([0]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}] * 2
    sum(quality_loss(model(torch.randn(2, 3, *size)), targets, None).values()).backward()


@pytest.mark.parametrize(
    ("backbone", "fields", "blocks"),
    [
        ("swin", {"dim": 12, "depths": (1, 1, 1), "heads": (1, 2, 4), "window": 4}, [0, 1, 2]),
        ("resnet", {"block": "basic", "stages": (1, 1, 1), "width": 8}, [0, 1, 2]),
        ("vit", VIT, [0, 1, 2, 3]),
        ("vit", {**VIT, "depth": 12}, [2, 5, 8, 11]),
        ("vit", {**VIT, "depth": 2}, [0, 1]),
    ],
)
@pytest.mark.parametrize("scales", [(1.0,), (2.0, 0.5)])
def test_any_model_as_backbone(backbone, fields, blocks, scales):
    model = tiny(backbone=backbone, fields=fields, scales=scales)
    assert model.decoded == blocks
    assert list(model.config.blocks) == blocks
    assert model(torch.randn(1, 3, 64, 64)).boxes.shape == (1, 1, 6, 4)


def test_every_parameter_learns():
    """What is behind the last map that is used has none that do: nothing reads it."""
    model = tiny(masks=True, blocks=(0, 2)).train()
    output = model(torch.randn(2, 3, 64, 64))
    assert output.masks.shape == (2, 2, 18, 16, 16)
    targets = [{"labels": torch.tensor([0]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}] * 2
    loss = sum(quality_loss(output, targets, None).values())
    (loss + output.masks.square().mean() + output.proposed_masks.square().mean()).backward()
    left = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert not left
    fixed = {name.split(".")[2] for name, p in model.named_parameters() if not p.requires_grad}
    assert fixed == {"3"}


def test_blocks_that_nobody_reads_are_not_computed():
    """Nor shown, nor trained; of a Swin, whose stages have several blocks, stages are meant."""
    model = tiny(blocks=(0, 2))
    model.backbone.blocks[3].register_forward_hook(lambda *_: pytest.fail("nobody reads it"))
    model(torch.randn(1, 3, 64, 64))
    names = [layer.name for layer in model.attentions() if layer.part == "encoder"]
    assert names == [f"backbone.blocks.{i}.attention" for i in range(3)]
    swin = {"dim": 12, "depths": (2, 1, 2), "heads": (1, 2, 4), "window": 4}
    for blocks, frozen in ((None, set()), ((0, 1), {"2"})):
        model = tiny(backbone="swin", fields=swin, blocks=blocks)
        fixed = [name for name, p in model.backbone.named_parameters() if not p.requires_grad]
        assert {name.split(".")[1] for name in fixed} == frozen


def test_groups_do_not_see_each_other():
    """In training, the first group gives what it gives in eval mode, with or without others."""
    model = tiny()
    images = torch.randn(2, 3, 64, 64)
    alone = model(images, every_layer=True)
    together = model.train()(images)
    assert together.groups == 3
    assert torch.allclose(together.logits[:, :, :6], alone.logits, atol=1e-5)
    assert torch.allclose(together.boxes[:, :, :6], alone.boxes, atol=1e-5)


def test_boxes_move_relative_to_their_size():
    boxes = torch.tensor([0.5, 0.4, 0.2, 0.1])
    assert torch.allclose(moved(boxes, torch.zeros(4)), boxes)
    found = moved(boxes, torch.tensor([1.0, -1.0, 0.0, 2.0]).log1p().nan_to_num(-1.0, neginf=-1.0))
    assert found[2] == boxes[2]
    assert found[3] == pytest.approx(0.3)


def test_blocks_are_counted_from_either_end():
    vit = vitreous.create("vit", image_size=32, **VIT)
    assert used_blocks(vit, (-1, 0)) == [3, 0]
    with pytest.raises(ConfigError, match="this model has 4 blocks"):
        used_blocks(vit, (4,))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scales": (4.0,)}, "expected some of 2, 1 and 0.5"),
        ({"scales": ()}, "expected some of 2, 1 and 0.5"),
        ({"dim": 30, "heads": 5}, "use a multiple of 4"),
        ({"heads": 5}, "does not divide into 5 heads"),
        ({"cross_heads": 5}, "does not divide into 5 cross_heads"),
    ],
)
def test_bad_configs(changes, said):
    with pytest.raises(ConfigError, match=said):
        tiny(**changes)


@pytest.mark.parametrize("name", ["rf-detr-n", "rf-detr-b", "rf-detr-seg-s", "lw-detr-ti"])
def test_the_tensors_of_a_named_model_keep_what_they_do_not_show(name):
    """Windows, and which blocks are used: another backbone of the same shapes would compute
    something else. Without a name nothing is found."""
    with torch.device("meta"):
        model = vitreous.create(name, classes=5)
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    (found,) = infer(shapes, {}, GivenFields(model=name))
    usual = configure(name)[1]
    assert not found.misfits
    assert not found.unused
    for field in ("backbone", "backbone_fields", "image_size", "cross_heads", "points"):
        assert getattr(found.config, field) == getattr(usual, field)
    assert found.config.classes == 5
    assert not [each for each in infer(shapes, {}) if not each.misfits and not each.unused]


def test_choices_of_another_engine_are_compared_with_equally_good_ones():
    """Two proposals of nearly the same score may come in any order; worse ones may not be taken."""
    model = perturb(tiny())
    images = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        plain = model.outputs(images)
        again = model.outputs(images, like=plain)
        for name, values in plain.items():
            assert torch.equal(values, again[name]), name
        # the first two change places: as good only up to a larger rounding error than there is
        places = plain["places"].clone()
        places[:, :2] = places[:, :2].flip(1)
        found = model(images, places=places.long())
        other = model.outputs(images, like={"places": places})
        assert torch.equal(other["logits"], found.logits[-1])
        assert not torch.allclose(other["logits"], plain["logits"])
        assert torch.equal(other["places"], plain["places"])  # which differ from what was given
        module = "vitreous.models.rf_detr.ROUNDING"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, 10.0)
            assert torch.equal(model.outputs(images, like={"places": places})["places"], places)
