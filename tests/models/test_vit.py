"""What must hold for every ViT, whatever it is made of."""

import copy
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from compare import perturb, picture, relative_error, whole
from torch import nn

import vitreous
from vitreous.config import records, type_hints
from vitreous.engines.accelerate import accelerate
from vitreous.errors import ConfigError, InputError
from vitreous.layers.block import DropPath
from vitreous.layers.head import DistilledOutput
from vitreous.layers.position import Learned1d, Position
from vitreous.layers.tap import tap
from vitreous.models.vit import ViTConfig

POSITIONS = tuple(records(type_hints(ViTConfig)["position"]))

SIZE = (24, 32)  # 3 x 4 patches: height and width cannot be taken for one another
SMALL = {"image_size": SIZE, "patch": 8, "dim": 32, "depth": 3, "heads": 4, "classes": 5}
BOTH = {"tokens": "class+distillation", "pool": "both"}
GAP = {"tokens": "none", "pool": "mean"}
ANY_SIZE = ("none", "sines-1d", "sines-2d", "conditional", "rotary")
HYBRID = {"image_size": (48, 64), "stages": (1, 1), "width": 32, "patch": 2}
PARTS = {
    **{position: {"position": position} for position in POSITIONS},
    "qk_norm": {"attention.qk_norm": True, "position": "relative"},
    "no bias": {"attention.qkv_bias": False, "attention.projection_bias": False},
    "no key bias": {"attention.key_bias": False},
    "normed gated MLP": {"activation": "silu-gated", "mlp.norm": True},
    "centred rotary, registers": {
        **{"position": "rotary", "position.coordinates": "centred", "position.layout": "halves"},
        "registers": 2,
    },
    "registers": {"registers": 3},
    "relative with registers": {"registers": 2, "position": "relative"},
    "wide heads, own scale": {"head_dim": 20, "attention.scale": 0.3},
    "post": {"norm": "post"},
    "layer scale": {"layer_scale": 0.5},
    "both": BOTH,
    "both, relative, registers": {**BOTH, "position": "relative", "registers": 2},
    "both, post": {**BOTH, "norm": "post", "layer_scale": 0.3},
    "mean": {**GAP, "position": "relative"},
    "mean beside a class token": {"pool": "mean", "final_norm": "pooled"},
    "class and mean": {"pool": "class+mean", "registers": 1},
    "all tokens": {"pool": "none"},
    "patch norm": {"embedding.norm": True},
    "norm before the blocks": {"embed_norm": True, "embedding.bias": False},
    "attention pooling": {"tokens": "none", "pool": "attention"},
    "attention pooling beside tokens": {"registers": 1, "pool": "attention"},
    "prefix without positions": {"position.prefix": False, "registers": 2},
}


def vit(**changes):
    return perturb(vitreous.create("vit", **{**SMALL, **changes}))


def hybrid(**changes):
    return perturb(vitreous.create("hybrid", **{**SMALL, **HYBRID, **changes}))


def images(count=2, size=SIZE, channels=3):
    return picture(count, channels, *size)


def parts(table=PARTS):
    return pytest.mark.parametrize("fields", table.values(), ids=table)


def both_tensors(output):
    return torch.cat(output) if isinstance(output, DistilledOutput) else output


# Attention


@torch.no_grad()
@parts()
def test_fused_attention_equals_explicit(fields):
    model, seen = vit(**fields), {}
    fused = model(images())
    with tap(dict(model.named_modules()), seen.__setitem__):
        explicit = model(images())
    assert relative_error(explicit, fused) < 1e-6
    pooling = seen.pop("pooling.attention.weights", None)
    assert (pooling is not None) == (model.config.pool.kind == "attention")
    weights = [value for name, value in seen.items() if name.endswith("attention.weights")]
    assert len(weights) == 3
    n = 12 + model.config.prefix
    for value in weights:
        assert value.shape == (2, 4, n, n)  # of the last block too, though few tokens are read
        torch.testing.assert_close(value.sum(-1), torch.ones(value.shape[:-1]))
        assert value.std() > 1e-3
    assert torch.equal(model(images()), fused), "the tap is gone"


@torch.no_grad()
def test_attention_by_the_equation():
    """One block's attention, written out from what it shows."""
    model, seen = vit(position="relative", attention={"scale": 0.4}, pool="none", registers=1), {}
    with tap(dict(model.named_modules()), seen.__setitem__):
        model(images())
    bias = model.position.score_bias(0, 2, (3, 4))
    q, k, v = (seen[f"blocks.0.attention.{name}"] for name in "qkv")
    scores = torch.einsum("bhqe,bhke->bhqk", q, k) * 0.4 + bias
    torch.testing.assert_close(seen["blocks.0.attention.weights"], scores.softmax(-1))
    x = seen["position"]
    out = torch.einsum("bhqk,bhke->bqhe", scores.softmax(-1), v).flatten(2)
    block = model.blocks[0]
    wanted = x + block.attention.projection(out)
    wanted = wanted + block.mlp(block.norm2(wanted))
    assert relative_error(seen["blocks.0"], wanted) < 1e-6


@torch.no_grad()
@pytest.mark.parametrize("make", [vit, hybrid])
@pytest.mark.parametrize("position", POSITIONS)
def test_batch_equals_singles(make, position):
    model = make(position=position)
    batch = images(3, model.config.image_size)
    singles = torch.cat([model(image[None]) for image in batch])
    assert relative_error(model(batch), singles) < 1e-6


def gradients(model, output):
    model.zero_grad()
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    (output * weights).sum().backward()
    zero = torch.zeros
    return {
        name: zero(p.shape) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }


# Between the steps


class Turned(Position):
    """Like rotary positions: pairs of channels of queries and keys turn with the patch's place."""

    def __init__(self, shift=0):
        super().__init__()
        self.shift, self.calls = shift, 0

    def rotation(self, prefix, grid, device=None):
        places = torch.arange(grid[0] * grid[1]) + self.shift + 1.0
        angles = torch.cat((torch.zeros(prefix), places))[:, None]  # the prefix has no place

        def rotate(x):
            self.calls += 1
            first, second = x.chunk(2, dim=-1)
            cos, sin = angles.cos(), angles.sin()
            return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)

        return rotate


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, BOTH, {"registers": 2}, GAP], ids=str)
def test_a_position_on_queries_and_keys_reaches_every_block(fields):
    model, seen = vit(position="none", **fields), {}
    plain = model(images())
    model.position = Turned()
    turned = model(images())
    assert model.position.calls == 6
    assert relative_error(turned, plain) > 1e-3
    assert relative_error(turned, whole(model, images())) < 1e-6
    with tap(dict(model.named_modules()), seen.__setitem__):
        model(images())
    p, x = model.prefix_length, model.embed(images())[0]
    for i, block in enumerate(model.blocks):
        key, made = seen[f"blocks.{i}.attention.k"], block.attention.make(block.norm1(x))[1]
        torch.testing.assert_close(key[:, :, :p], made[:, :, :p])  # the prefix has no place
        assert relative_error(key[:, :, p:], made[:, :, p:]) > 0.1
        x = seen[f"blocks.{i}"]


@torch.no_grad()
def test_turned_queries_and_keys_know_only_offsets():
    model = vit(position="none", **GAP)
    model.position = Turned()
    here = model(images())
    model.position = Turned(shift=5)
    assert relative_error(model(images()), here) < 1e-5


@pytest.mark.parametrize("fields", [{}, {**BOTH, "registers": 1}, GAP, {"norm": "post"}], ids=str)
def test_tokens_can_be_masked_between_embed_and_encode(fields):
    """As masked pre-training does it: what is left out is seen by no block, and gets no gradient.

    Encoding the visible tokens is encoding all while the masked ones take no part in attention.
    """

    class Hidden(Position):
        def score_bias(self, block, prefix, grid):
            bias = torch.zeros(1, 1, 1, p + 12)
            bias[..., masked] = -torch.inf
            return bias

    model = vit(**fields)
    x, grid = model.embed(images())
    p = model.prefix_length
    patches = torch.randperm(12, generator=torch.Generator().manual_seed(0)) + p
    masked, visible = patches[:7], torch.cat((torch.arange(p), patches[7:]))
    x.retain_grad()
    encoded = model.encode(x[:, visible], grid)
    encoded.square().sum().backward()
    assert encoded.shape == (2, p + 5, 32)
    assert not x.grad[:, masked].any()
    assert x.grad[:, visible].abs().amax(dim=-1).min() > 0
    assert model.head(model.pool(encoded)) is not None
    model.position = Hidden()
    with torch.no_grad():
        whole = model.encode(x, grid)
    assert relative_error(encoded, whole[:, visible]) < 1e-6


# Gradients

HEADS = {
    "linear": {},
    "tanh": {"head": "tanh"},
    "mlp": {"head": "mlp", "head.hidden": 24},
    "none": {"head": "none"},
    "mean, mlp": {"head": "mlp", **GAP},
    "gated": {"activation": "silu-gated"},
    "projection": {"head": "projection"},
    "depth 1": {"depth": 1, "pool": "mean"},
}


@parts(PARTS | HEADS)
def test_every_parameter_receives_a_gradient(fields):
    config = {**SMALL, **fields}
    if config.get("head") == "none":
        del config["classes"]
    model = perturb(vitreous.create("vit", **config)).train()
    found = gradients(model, both_tensors(model(images())))
    for name, value in found.items():
        if name.endswith("k_norm.bias"):
            continue  # adds the same to all scores of a query: softmax does not see it
        assert value.abs().max() > 1e-4, name


# Maps and tokens


@torch.no_grad()
@parts({name: fields for name, fields in PARTS.items() if name != "conditional"})
def test_tokens_and_maps_are_what_the_blocks_give(fields):
    model, caught, blocks = vit(**fields), {}, [2, 0, -2, -1, 0]
    for i, block in enumerate(model.blocks):
        block.register_forward_hook(lambda _, __, out, i=i: caught.__setitem__(i, out))
    found, maps = model.tokens(images(), blocks), model.maps(images(), blocks)
    for asked, tokens, grid in zip([2, 0, 1, 2, 0], found, maps, strict=True):
        assert torch.equal(tokens, caught[asked])
        assert grid.shape == (2, 32, 3, 4)
        assert torch.equal(grid[:, :, 1, 2], tokens[:, model.config.prefix + 6])
    assert torch.equal(model.tokens(images())[0], found[0])
    caught.clear()
    (normed,) = model.tokens(images(), [1], norm=True)
    assert torch.equal(normed, model.pooled_norm(model.norm(found[2])))
    assert caught.keys() == {0, 1}, "nobody reads the last block"
    assert model.maps(images(), []) == []


@torch.no_grad()
def test_tokens_of_cpvt():
    model, seen = vit(position="conditional"), {}
    with tap(model.steps(), seen.__setitem__):
        found = model.tokens(images(), [0, 1, 2])
    for i, tokens in enumerate(found):
        behind = model.position.after(i, seen[f"blocks.{i}"], 1, (3, 4))
        assert torch.equal(tokens, behind)
        assert torch.equal(tokens, seen[f"blocks.{i}"]) == (i > 0), "behind the first block alone"


@torch.no_grad()
@pytest.mark.parametrize("cell", [(0, 0), (0, 3), (2, 0), (1, 2)])
def test_a_patch_is_at_its_place_in_the_map(cell):
    """With attention silenced, changing one patch changes one cell of the map."""
    model = vit(position="none", **GAP)
    for block in model.blocks:
        nn.init.zeros_(block.attention.projection.weight)
    before = images(1)
    after = before.clone()
    y, x = cell
    after[:, :, 8 * y : 8 * y + 8, 8 * x : 8 * x + 8] += 1
    maps = [model.maps(batch, [1])[0] for batch in (before, after)]
    changed = (maps[0] - maps[1]).abs().amax(1)[0] > 1e-5
    assert changed.nonzero().tolist() == [[y, x]]


@torch.no_grad()
def test_maps_of_hybrid_and_resnet():
    batch = images(2, (48, 64))
    assert [tuple(m.shape) for m in hybrid().maps(batch, [0, -1])] == [(2, 32, 3, 4)] * 2

    resnet = perturb(vitreous.create("resnet", stages=(1, 1, 1), width=8, classes=5))
    caught = {}
    for i, stage in enumerate(resnet.stages):
        stage.register_forward_hook(lambda _, __, out, i=i: caught.__setitem__(i, out))
    maps = resnet.maps(batch, [-1, 0])
    assert torch.equal(maps[0], caught[2])
    assert torch.equal(maps[1], caught[0])
    assert [tuple(m.shape) for m in maps] == [(2, 128, 3, 4), (2, 32, 12, 16)]
    assert torch.equal(resnet.tokens(batch)[0][:, 5], maps[0][:, :, 1, 1])


@pytest.mark.parametrize("index", [3, -4])
def test_maps_of_a_block_that_is_not_there(index):
    with pytest.raises(ConfigError, match=rf"block {index} .*3 blocks.*0 to 2"):
        vit().maps(images(), [index])


# What happens only in training


def test_drop_path_keeps_the_expectation_and_is_off_in_eval():
    layer, x = DropPath(0.3), torch.ones(20_000, 2, 3)
    torch.manual_seed(0)
    out = layer.train()(x)
    kept = out[:, 0, 0] > 0
    assert torch.equal(out, kept[:, None, None] * x / 0.7), "a sample is dropped whole"
    assert abs(kept.float().mean().item() - 0.7) < 0.01
    assert abs(out.mean().item() - 1) < 0.02
    assert layer.eval()(x) is x


def test_drop_path_grows_linearly_with_depth():
    model = vitreous.create("vit", **{**SMALL, "depth": 5}, drop_path=0.2)
    rates = [block.drop_path.rate for block in model.blocks]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


def test_drop_path_of_a_block_skips_its_branches():
    model = vit(drop_path=0.5, depth=2)
    block, x = model.blocks[1].train(), picture(400, 3, 32, 1).squeeze(3)
    torch.manual_seed(0)
    same = (block(x) == x).flatten(1).all(1).float().mean()
    assert abs(same - 0.25) < 0.08, "both branches skipped with 0.5 each"


@pytest.mark.parametrize("field", ["dropout", "attention.dropout", "drop_path"])
def test_dropouts_act_in_training_only(field):
    model = vit(**{field: 0.5})
    plain = vit()
    assert torch.equal(model(images()), plain(images())), "eval"
    model.train()
    torch.manual_seed(0)
    first, second = model(images()), model(images())
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(first, model(images()))


def test_dropout_rates_arrive_where_they_belong():
    model = vit(dropout=0.1, attention={"dropout": 0.2})
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.1}
    assert sum(isinstance(m, nn.Dropout) for m in model.modules()) == 1 + 3 * 2
    assert {block.attention.attention_dropout for block in model.blocks} == {0.2}


def test_attention_dropout_keeps_the_expectation_when_looked_into():
    model, seen = vit(attention={"dropout": 0.4}).train(), {}
    attention, x = model.blocks[0].attention, picture(1, 13, 32, 1).squeeze(3)
    torch.manual_seed(0)
    with tap({"": attention}, seen.__setitem__):
        mean = torch.stack([attention(x) for _ in range(1500)]).mean(0)
    assert relative_error(mean, attention.eval()(x)) < 0.1
    torch.testing.assert_close(seen["weights"].sum(-1), torch.ones(1, 4, 13))


# First weights


def test_trunc_normal_initialisation():
    torch.manual_seed(0)
    model = vitreous.create("vit", **{**SMALL, "dim": 96}, registers=2)
    for name, value in model.named_parameters():
        if "norm" in name:
            assert value.eq(float(name.endswith("weight"))).all(), name
        elif name.endswith("bias"):
            assert value.eq(0).all(), name
        elif name.startswith("patch"):
            assert value.std().item() == pytest.approx(192**-0.5, rel=0.1)
        else:
            assert value.std().item() == pytest.approx(0.02, rel=0.25), name


def test_jax_initialisation():
    torch.manual_seed(0)
    model = vitreous.create("vit", **{**SMALL, "dim": 96, "heads": 2}, init="jax", head_dim=16)
    assert model.head.out.weight.eq(0).all()
    assert model.prefix.class_token.eq(0).all()
    for q in model.blocks[0].attention.qkv.weight.chunk(
        3
    ):  # Xavier by itself: 32 + 96, not 96 + 96
        bound = (6 / (32 + 96)) ** 0.5
        assert 0.95 * bound < q.abs().max() <= bound
    assert 1e-7 < model.blocks[0].mlp.fc1.bias.std() < 2e-6
    assert model.blocks[0].attention.qkv.bias.eq(0).all()
    assert model(images()).eq(0).all()


@pytest.mark.parametrize("init", ["trunc-normal", "jax"])
def test_registers_begin_apart(init):
    """Equal registers would get equal gradients and stay equal for ever."""
    model = vitreous.create("vit", **SMALL, registers=3, init=init)
    assert torch.unique(model.prefix.registers, dim=0).shape[0] == 3


def test_layer_scale_begins_at_its_value():
    model = vitreous.create("vit", **SMALL, layer_scale=1e-3)
    for block in model.blocks:
        for scale in (block.scale1, block.scale2):
            assert torch.equal(scale.gamma, torch.full((32,), 1e-3))
    none = vitreous.create("vit", **SMALL)
    assert not any("gamma" in name for name in none.state_dict())


# Other sizes


@torch.no_grad()
@pytest.mark.parametrize("position", ANY_SIZE)
def test_positions_for_any_size_need_none(position):
    model = vit(position=position)
    other = vit(position=position, image_size=(40, 16))
    other.load_state_dict(model.state_dict())
    batch = images(2, (40, 16))
    assert torch.equal(model(batch), other(batch))
    assert model.maps(batch)[0].shape == (2, 32, 5, 2)


LEARNED = pytest.mark.parametrize("position", [p for p in POSITIONS if p not in ANY_SIZE])


@torch.no_grad()
@LEARNED
def test_a_classifier_refuses_another_size_unless_asked(position):
    message = r"40x16.*24x32.*dynamic_size=True.*image_size=\(40, 16\).*resample"
    batch = images(1, (40, 16))
    with pytest.raises(InputError, match=message):
        vit(position=position)(batch)
    assert vit(position=position).maps(batch)[0].shape == (1, 32, 5, 2)
    assert vit(position=position).vectors(batch).shape == (1, 32)
    for use in ("maps", "vectors", "forward"):
        with pytest.raises(InputError, match=message):
            getattr(vit(position=position, dynamic_size=False), use)(batch)


@LEARNED
def test_another_size_is_what_importing_at_that_size_gives(position):
    """Bit for bit, from the cache or not, and in inference mode too; and it learns."""
    model, size = vit(position=position, dynamic_size=True, registers=1), (40, 16)
    imported = vit(position=position, registers=1, image_size=size)
    batch = images(2, size)

    def check():
        vitreous.import_weights(
            imported, model.state_dict(), "vitreous", resample="bicubic", source_grid=(3, 4)
        )
        with torch.inference_mode():
            wanted = imported(batch)
            assert torch.equal(model(batch), wanted)
            assert torch.equal(model(batch), wanted)
        assert torch.equal(model(batch), imported(batch))

    check()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model(batch).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.position.parameters())
    optimizer.step()  # fused: torch's version counter does not see it
    check()
    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
    check()


@torch.no_grad()
def test_positions_are_resampled_once_for_each_grid(monkeypatch):
    model, done, resample = accelerate(vit(dynamic_size=True)), [], Learned1d.resample
    monkeypatch.setattr(
        Learned1d, "resample", lambda *given: done.append(given[-1]) or resample(*given)
    )
    sizes = [(40, 16), (8, 8), SIZE, (40, 16), (8, 8)]
    batches = [images(1, size) for size in sizes]
    wanted = [model(batch) for batch in batches]
    assert done == [(5, 2), (1, 1)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(torch.no_grad()(model), batches * 8))
    assert all(map(torch.equal, found, wanted * 8))
    assert done == [(5, 2), (1, 1)]
    copy.deepcopy(model)(batches[0])
    assert done == [(5, 2), (1, 1), (5, 2)], "a copy has its own"
    for side in range(2, 30):
        model(images(1, (8, 8 * side)))
    ((_, made),) = model.position.resampled.entries.values()
    assert len(made) <= model.position.resampled.most, "memory is bounded"


@torch.no_grad()
@LEARNED
def test_another_size_exports(position):
    model, batch = vit(position=position, dynamic_size=True), images(2, (40, 16))
    wanted = model(batch)
    program = torch.export.export(model, (batch,), dynamic_shapes=({0: torch.export.Dim("b")},))
    assert relative_error(program.module()(batch), wanted) < 1e-6
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert relative_error(compiled(batch), wanted) < 1e-6
    assert torch.equal(model(batch), wanted), "nothing of the tracing is kept"
    torch.compiler.reset()


@pytest.mark.parametrize("make", [vit, hybrid])
def test_any_size_still_has_to_divide(make):
    model = make(position="sines-2d")
    size = model.config.image_size
    with pytest.raises((InputError, ConfigError), match="does not divide"):
        model(images(1, (size[0] + 4, size[1])))


@torch.no_grad()
def test_pad_takes_every_size():
    padded, plain = vit(position="conditional", pad=True), vit(position="conditional")
    batch = images(2, (21, 27))
    whole = torch.zeros(2, 3, 24, 32)
    whole[:, :, :21, :27] = batch
    assert torch.equal(padded(batch), plain(whole))
    fixed = vit(image_size=(21, 27), pad=True)
    assert fixed.config.grid == (3, 4)
    assert fixed(batch).shape == (2, 5)


@torch.no_grad()
def test_cpvt_moves_with_its_picture():
    """A shift by one patch shifts the maps, but for the border that the generator sees.

    Attention looks at all patches, so the shifted picture must have the same ones: it is rolled.
    """
    model = vit(position="conditional", depth=1, image_size=64, **GAP)
    batch = images(1, (64, 64))
    (before,) = model.maps(batch)
    (after,) = model.maps(batch.roll((8, 16), (2, 3)))
    moved = before.roll((1, 2), (2, 3))
    inside = (slice(None), slice(None), slice(2, -1), slice(3, -1))
    assert relative_error(after[inside], moved[inside]) < 1e-5
    assert relative_error(after, moved) > 1e-2, "the border tells where the picture ends"


@torch.no_grad()
def test_position_decides_whether_order_matters():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    batch = images()
    cut = batch.unfold(2, 8, 8).unfold(3, 8, 8).flatten(2, 3)[:, :, order]
    cut = cut.unflatten(2, (3, 4)).permute(0, 1, 2, 4, 3, 5)
    mixed = cut.reshape(2, 3, *SIZE)
    for position in POSITIONS:
        error = relative_error(vit(position=position)(mixed), vit(position=position)(batch))
        assert (error < 1e-5) == (position == "none"), position


# Life with torch


def test_models_and_layers_need_no_torchvision():
    code = (
        "import sys; sys.modules['torchvision'] = None\n"
        "import torch, vitreous, vitreous.models, vitreous.layers.position, vitreous.weights\n"
        "for name in ('vit', 'hybrid', 'resnet'):\n"
        "    model = vitreous.create(name, image_size=32, width=32, stages=(1,))"
        " if name != 'vit' else vitreous.create('vit', image_size=32, depth=1)\n"
        "    model(torch.zeros(1, 3, 32, 32))\n"
        "vitreous.export_weights(vitreous.create('vit', depth=1), 'timm')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@torch.no_grad()
@parts()
def test_every_part_runs_in_half_precision(fields):
    exact = vit(**fields)(images())
    half = vit(**fields).to(torch.bfloat16)(images().bfloat16())
    assert relative_error(half.float(), exact) < 0.05
    with torch.autocast("cpu", torch.bfloat16):
        assert relative_error(vit(**fields)(images()).float(), exact) < 0.05


@torch.no_grad()
def test_distilled_outputs():
    model = vit(**BOTH)
    mean = model(images())
    both = model.train()(images())
    assert isinstance(both, DistilledOutput)
    assert torch.equal((both.class_logits + both.distillation_logits) / 2, mean)
    assert not torch.allclose(both.class_logits, both.distillation_logits)


@torch.no_grad()
def test_heads_by_their_definition():
    for head, pool in itertools.product(("linear", "tanh", "mlp"), ("class", "mean", "none")):
        model, seen = vit(head=head, pool=pool), {}
        with tap(model.steps(), seen.__setitem__):
            out = model(images())
        x = seen["pooled_norm"]
        if head == "tanh":
            x = model.head.hidden(x).tanh()
        elif head == "mlp":
            x = nn.functional.gelu(model.head.hidden(model.head.norm(x)))
        assert torch.equal(out, model.head.out(x))
        assert out.shape == ((2, 13, 5) if pool == "none" else (2, 5))


@torch.no_grad()
@pytest.mark.parametrize("final_norm", ["tokens", "pooled", "none"])
def test_final_norm_and_pooling_by_their_definition(final_norm):
    model = vit(final_norm=final_norm, pool="mean", registers=2, norm_eps=1e-3)
    (x,) = model.tokens(images())
    if final_norm == "tokens":
        x = nn.functional.layer_norm(x, (32,), model.norm.weight, model.norm.bias, 1e-3)
    x = x[:, 3:].mean(1)
    if final_norm == "pooled":
        norm = model.pooled_norm
        x = nn.functional.layer_norm(x, (32,), norm.weight, norm.bias, 1e-3)
    assert relative_error(model(images()), model.head(x)) < 1e-6


@torch.no_grad()
def test_resampling_beside_rotary_positions_is_antialiased_if_asked():
    fields = {**{"image_size": 32, "patch": 4, "dim": 32, "depth": 1, "heads": 2, "classes": 3}}
    fields |= {"position": "learned-1d+rotary", "dynamic_size": True}
    smooth = vitreous.create("vit", **fields)
    plain = vitreous.create("vit", **fields, position_antialias=False)
    plain.load_state_dict(smooth.state_dict())
    small, large = torch.randn(1, 3, 16, 16), torch.randn(1, 3, 32, 32)
    assert torch.equal(plain(large), smooth(large))
    assert not torch.equal(plain(small), smooth(small))
