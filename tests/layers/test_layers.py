"""The shared equations against their plainest form, and against timm where it has the same."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import relative_error
from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat, resample_abs_pos_embed
from timm.layers.pos_embed_sincos import RotaryEmbeddingDinoV3
from timm.models._manipulate import adapt_input_conv

from vitreous.layers.grid_positions import Learned2d, Relative, relative_index
from vitreous.layers.mlp import ACTIVATIONS, Mlp
from vitreous.layers.patch import PatchEmbedding, PatchSizes
from vitreous.layers.position import Learned1d
from vitreous.layers.resample import adapt_channels, resample_grid
from vitreous.layers.rotary import Rotary, RotaryConfig
from vitreous.layers.sines import Sines1d, Sines2d


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
@pytest.mark.parametrize(
    ("channels", "patch", "size"),
    [(3, (8, 8), (32, 32)), (1, (4, 8), (12, 40)), (5, (6, 2), (6, 10)), (3, (1, 1), (3, 4))],
    ids=str,
)
def test_patch_embedding_is_a_convolution(channels, patch, size):
    layer = PatchEmbedding(PatchSizes(channels, patch, 24))
    layer.bias.copy_(random(24))
    images = random(2, channels, *size)
    wanted = F.conv2d(images, layer.weight, layer.bias, stride=patch).permute(0, 2, 3, 1)
    assert relative_error(layer(images), wanted) < 1e-6


@torch.no_grad()
def test_padded_patches_see_zeros_at_the_bottom_and_right():
    layer = PatchEmbedding(PatchSizes(2, (4, 6), 8, pad=True))
    images = random(1, 2, 9, 13)
    padded = F.pad(images, (0, 5, 0, 3))
    assert layer(images).shape == (1, 3, 3, 8)
    assert torch.equal(layer(images), layer(padded))


def test_sines_2d_by_the_formula():
    dim, (gh, gw) = 16, (3, 5)
    ours = Sines2d()(torch.zeros(1, gh * gw, dim), 0, (gh, gw))[0]
    for y in range(gh):
        for x in range(gw):
            angles = [[at / 10_000 ** (k / 3) for k in range(4)] for at in (x, y)]
            wanted = [f(a) for row in angles for f in (math.sin, math.cos) for a in row]
            torch.testing.assert_close(ours[y * gw + x], torch.tensor(wanted))


def test_sines_1d_by_the_formula():
    ours = Sines1d()(torch.zeros(1, 2 + 6, 8), 2, (2, 3))[0]
    assert ours[:2].eq(0).all(), "tokens before the patches have no place"
    for place in range(6):
        angles = [place / 10_000 ** (k / 4) for k in range(4)]
        wanted = [*map(math.sin, angles), *map(math.cos, angles)]
        torch.testing.assert_close(ours[2 + place], torch.tensor(wanted))


ROTARY = {
    "EVA-02": (
        {"reference": (16, 16)},
        lambda grid: RotaryEmbeddingCat(
            16, in_pixels=False, feat_shape=grid, ref_feat_shape=[16, 16]
        ),
    ),
    "Perception Encoder": (
        {"reference": (4, 6), "offset": 1.0, "order": "xy"},
        lambda grid: RotaryEmbeddingCat(
            16,
            in_pixels=False,
            feat_shape=grid,
            ref_feat_shape=[4, 6],
            grid_offset=1.0,
            grid_indexing="xy",
        ),
    ),
    "DINOv3": (
        {"base": 100.0, "coordinates": "centred", "layout": "halves"},
        lambda grid: RotaryEmbeddingDinoV3(16, temperature=100.0, feat_shape=grid),
    ),
}


@pytest.mark.parametrize("grid", [(4, 4), (2, 5)])
@pytest.mark.parametrize("name", ROTARY)
def test_rotary_positions_are_those_of_timm(name, grid):
    fields, theirs = ROTARY[name]
    x, half = random(2, 3, 2 + grid[0] * grid[1], 16), fields.get("layout") == "halves"
    turned = Rotary(16, RotaryConfig(**fields)).rotation(2, grid)(x)
    assert torch.equal(turned[:, :, :2], x[:, :, :2]), "tokens before the patches have no place"
    wanted = apply_rot_embed_cat(x[:, :, 2:], theirs(list(grid)).get_embed(), half=half)
    torch.testing.assert_close(turned[:, :, 2:], wanted)


@pytest.mark.parametrize("grid", [(1, 1), (3, 3), (2, 5), (4, 1)])
def test_relative_index_by_brute_force(grid):
    gh, gw = grid
    index = relative_index(grid)
    places = [(y, x) for y in range(gh) for x in range(gw)]
    for i, (y, x) in enumerate(places):
        for j, (v, u) in enumerate(places):
            assert index[i, j] == (y - v + gh - 1) * (2 * gw - 1) + x - u + gw - 1


@torch.no_grad()
def test_relative_bias_by_brute_force():
    grid, prefix, heads = (2, 3), 2, 4
    module = Relative(2, heads, grid, prefix)
    tables = [block.table for block in module.blocks]
    places = [None] * prefix + [(y, x) for y in range(2) for x in range(3)]
    for block in range(2):
        (bias,) = module.score_bias(block, prefix, grid)
        assert bias.shape == (heads, len(places), len(places))
        for i, query in enumerate(places):
            for j, key in enumerate(places):
                if query and key:
                    dy, dx = query[0] - key[0] + 1, query[1] - key[1] + 2
                    wanted = tables[block][dy * 5 + dx]
                else:
                    which = 2 if query is key else 1 if query else 0
                    wanted = tables[block][15 + which]
                assert torch.equal(bias[:, i, j], wanted)


@torch.no_grad()
def test_learned_2d_is_the_column_beside_the_row():
    module = Learned2d(6, (2, 3))
    added = module(torch.zeros(1, 1 + 6, 6), 1, (2, 3))[0]
    assert added[0].eq(0).all()
    for y in range(2):
        for x in range(3):
            assert torch.equal(added[1 + y * 3 + x], torch.cat((module.x[x], module.y[y])))


GRIDS = [((4, 4), (7, 7)), ((7, 7), (4, 4)), ((4, 4), (3, 6)), ((3, 6), (5, 5)), ((3, 6), (6, 4))]


@torch.no_grad()
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("source", "target"), GRIDS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_resampled_positions_are_those_of_timm(mode, source, target, rows):
    table = random(rows + source[0] * source[1], 8)
    ours = Learned1d(8, target, rows).resample("table", table, source, mode)
    theirs = resample_abs_pos_embed(
        table[None],
        new_size=list(target),
        old_size=list(source),
        num_prefix_tokens=rows,
        interpolation=mode,
        antialias=True,
    )[0]
    assert torch.equal(ours[:rows], table[:rows]), "tokens before the patches are left alone"
    assert relative_error(ours, theirs) < 1e-6


@torch.no_grad()
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("grid", [(4, 4), (3, 5)])
def test_resampling_to_the_same_grid_is_the_identity(mode, grid):
    values = random(*grid, 6)
    assert torch.equal(resample_grid(values, grid, mode), values)
    modules = [Learned1d(6, grid, 1), Learned2d(6, grid), Relative(2, 3, grid, 1)]
    for module in modules:
        for name, value in module.named_parameters():
            assert torch.equal(module.resample(name, value, grid, mode), value)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("target", [(2, 2), (6, 3), (9, 11)])
def test_constant_tables_stay_constant(mode, target):
    source = (3, 5)
    makes = [
        lambda grid: Learned1d(6, grid, 1),
        lambda grid: Learned2d(6, grid),
        lambda grid: Relative(2, 3, grid, 1),
    ]
    for make in makes:
        module = make(target)
        for name, value in make(source).named_parameters():
            resampled = module.resample(name, torch.full_like(value, 0.7), source, mode)
            wanted = module.get_parameter(name)
            torch.testing.assert_close(resampled, torch.full_like(wanted, 0.7))


def test_resampling_keeps_height_and_width_apart():
    """A table that depends on the row only still does so on another grid."""
    rows = torch.arange(4.0)[:, None, None].expand(4, 4, 2).reshape(16, 2)
    ours = Learned1d(2, (8, 2), 0).resample("table", rows, (4, 4), "bilinear").unflatten(0, (8, 2))
    assert torch.allclose(ours[:, 0], ours[:, 1])
    assert (ours[1:, 0, 0] - ours[:-1, 0, 0]).min() >= 0
    assert ours[-1, 0, 0] - ours[0, 0, 0] > 2


@pytest.mark.parametrize("channels", [1, 4, 6, 8])
def test_channels_are_adapted_as_timm_does(channels):
    weight = random(5, 3, 4, 4)
    wanted = adapt_input_conv(channels, weight)
    assert relative_error(adapt_channels(weight, channels), wanted) < 1e-6


def test_channels_there_and_back():
    weight = random(5, 3, 4, 4)
    assert torch.equal(adapt_channels(weight, 3), weight)
    torch.testing.assert_close(adapt_channels(adapt_channels(weight, 6), 3), weight)
    gray = adapt_channels(adapt_channels(weight, 1), 3)
    torch.testing.assert_close(gray, weight.mean(1, keepdim=True).expand_as(weight))


@pytest.mark.parametrize(("have", "want"), [(3, 1), (3, 6), (3, 4), (4, 2), (1, 3)])
def test_adapted_channels_answer_alike_to_a_gray_picture(have, want):
    weight, gray = random(5, have, 4, 4), random(2, 1, 4, 4)
    before = F.conv2d(gray.expand(-1, have, -1, -1), weight)
    after = F.conv2d(gray.expand(-1, want, -1, -1), adapt_channels(weight, want))
    if want % have == 0 or have % want == 0:
        assert relative_error(after, before) < 1e-5
    else:
        assert after.shape == before.shape


def test_activations():
    x = torch.linspace(-3, 3, 12)
    wanted = {
        "gelu": [v * 0.5 * (1 + math.erf(v / 2**0.5)) for v in x.tolist()],
        "gelu-tanh": [
            0.5 * v * (1 + math.tanh((2 / math.pi) ** 0.5 * (v + 0.044715 * v**3)))
            for v in x.tolist()
        ],
        "quick-gelu": [v / (1 + math.exp(-1.702 * v)) for v in x.tolist()],
        "relu": [max(v, 0.0) for v in x.tolist()],
    }
    for name, values in wanted.items():
        torch.testing.assert_close(ACTIVATIONS[name](x), torch.tensor(values), atol=1e-6, rtol=1e-5)
    gate, value = x.chunk(2)
    torch.testing.assert_close(ACTIVATIONS["silu-gated"](x), gate * torch.sigmoid(gate) * value)
    gated = Mlp(8, 12, activation="silu-gated")
    assert gated.fc1.weight.shape == (24, 8)
    assert gated(random(2, 8)).shape == (2, 8)
