"""A last block that computes what is read alone; token merging, compared with the paper's steps
written out for one token after another."""

import copy

import pytest
import torch
from compare import perturb, relative_error, whole
from torch.utils.flop_counter import FlopCounterMode

import vitreous
from vitreous.engines.fewer_tokens import merge_tokens, skip_unread
from vitreous.errors import ConfigError
from vitreous.layers.tap import tap
from vitreous.layers.token_merging import TokenMerging

TINY = {"image_size": 48, "patch": 8, "dim": 32, "depth": 4, "heads": 4, "mlp_dim": 64}


def made(name="vit", merge=0, **fields):
    torch.manual_seed(0)
    model = perturb(vitreous.create(name, **{**TINY, "classes": 7, **fields})).eval()
    merge_tokens(model, merge)
    return model


def images(count=3, size=48):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


BOTH = {"tokens": "class+distillation", "pool": "both"}
READING = {
    "class": {},
    "both": BOTH,
    "relative, registers": {**BOTH, "position": "relative", "registers": 2},
    "rotary": {"position": "rotary", "registers": 1},
    "no key bias": {"key_bias": False},
    "post": {"norm": "post", "layer_scale": 0.3},
    "stream": {"norm.place": "stream"},
    "batch": {"norm": "batch", "norm.place": "post"},
    "pre+stream": {"norm": "pre+stream"},
}


def gradients(model, output):
    model.zero_grad()
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    (output * weights).sum().backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    return {name: torch.zeros(1) if grad is None else grad for name, grad in found.items()}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("fields", READING.values(), ids=READING)
def test_a_short_last_block_is_exact(fields, training):
    full = made(**fields).train(training)
    short = skip_unread(copy.deepcopy(full))
    wanted, found = full(images()), short(images())
    if isinstance(wanted, tuple):
        wanted, found = torch.cat(wanted), torch.cat(found)
    assert relative_error(found, wanted) < 1e-6
    wanted = gradients(full, wanted)
    for name, value in gradients(short, found).items():
        # What is zero by mathematics is noise, so compare with the size of all gradients.
        error = (value - wanted[name]).norm()
        assert error <= 1e-5 * max(wanted[name].norm().item(), 1.0), name
    skip_unread(short, False)
    assert [type(each) for each in short.modules()] == [type(each) for each in full.modules()]


@pytest.mark.parametrize(("fields", "reads"), [({}, 1), (BOTH, 2), ({"registers": 4}, 1)])
def test_it_saves_most_of_a_block(fields, reads):
    def flops(depth, short=False):
        with torch.device("meta"):
            model = skip_unread(vitreous.create("vit", **{**TINY, "depth": depth, **fields}), short)
            with FlopCounterMode(display=False) as counter:
                model(torch.empty(1, 3, 48, 48))
        return counter.get_total_flops()

    block, saved = flops(3) - flops(2), flops(3) - flops(3, short=True)
    n, d = 36 + made(**fields).prefix_length, 32
    # Left over: keys and values for all tokens, everything else for those that are read.
    needed = 2 * n * d * 2 * d + 2 * reads * (d * d + 2 * n * d + d * d + 4 * d * d)
    assert block - saved == needed
    assert saved > 0.6 * block


@torch.inference_mode()
def test_who_looks_into_the_last_block_sees_all_tokens():
    model, seen = skip_unread(made()), {}
    expected = model(images())
    with tap(dict(model.named_modules()), seen.__setitem__):
        torch.testing.assert_close(model(images()), expected, rtol=1e-5, atol=1e-5)
    assert seen["blocks.3.attention.weights"].shape == (3, 4, 37, 37)
    assert seen["norm"].shape == (3, 37, 32)
    with tap(model.steps(), seen.__setitem__):  # and around it what is computed
        assert torch.equal(model(images()), expected)
    assert seen["blocks.3"].shape == (3, 1, 32)


def test_models_that_read_all_tokens_stay_as_they_are():
    for fields in ({"tokens": "none", "pool": "mean"}, {"pool": "mean"}, {"pool": "none"}):
        model = made(**fields)
        before = [type(each) for each in model.modules()]
        assert [type(each) for each in skip_unread(model).modules()] == before


def merged(tokens, keys, r, prefix):
    """Section 3 for one image: tokens are (vector, size, patches in it), keys (heads, n, e)."""
    patches = list(range(prefix, len(tokens)))
    a, b = patches[1::2], patches[::2]
    mean = keys.mean(dim=0)
    edges = []
    for i in a:
        cosines = [torch.cosine_similarity(mean[i], mean[j], dim=0).item() for j in b]
        edges.append((max(cosines), i, b[cosines.index(max(cosines))]))
    edges.sort(reverse=True)
    groups = {j: [tokens[j]] for j in b}
    for _, i, j in edges[:r]:
        groups[j].append(tokens[i])

    def joined(group):
        size = sum(s for _, s, _ in group)
        inside = [patch for *_, patches in group for patch in patches]
        return sum(x * s for x, s, _ in group) / size, size, inside

    kept = [tokens[i] for _, i, _ in edges[r:]]
    return [*tokens[:prefix], *kept, *(joined(groups[j]) for j in b)]


def by_the_paper(model, image, r):
    """Each patch's token behind the last block, (p + n, d), by loops."""
    x, grid = model.embed(image[None])
    prefix = model.prefix_length
    tokens = [(each, 1, [number - prefix]) for number, each in enumerate(x[0])]
    for number, block in enumerate(model.blocks):
        x, sizes = torch.stack([t[0] for t in tokens]), torch.tensor([t[1] for t in tokens])
        attention = block.attention
        qkv = attention.qkv(block.norm1(x)).unflatten(1, (3, attention.heads, -1))
        q, k, v = qkv.permute(1, 2, 0, 3)  # (heads, n, e)
        scores = q @ k.mT * attention.scale + sizes.log()
        x = x + attention.projection((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
        tokens = [(each, *rest) for each, (_, *rest) in zip(x, tokens, strict=True)]
        if number >= (model.config.position.kind == "conditional"):
            tokens = merged(tokens, k, min(r, (len(tokens) - prefix) // 2), prefix)
        x = torch.stack([each for each, *_ in tokens])
        x = x + block.mlp(block.norm2(x))
        x = model.position.after(number, x[None], prefix, grid)[0]
        tokens = [(each, *rest) for each, (_, *rest) in zip(x, tokens, strict=True)]
    found = torch.zeros(prefix + grid[0] * grid[1], x.shape[1])
    found[:prefix] = x[:prefix]
    for each, size, inside in tokens[prefix:]:
        assert size == len(inside)
        found[[prefix + patch for patch in inside]] = each
    return found


@pytest.mark.parametrize("r", [1, 5, 12])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("vit", {}),
        ("vit", {"pool": "mean", "position": "sines-2d", "image_size": 40}),  # 25 patches: odd
        ("deit", {"tokens": "class+distillation", "pool": "both"}),
        ("vit", {"registers": 2, "pool": "class+mean"}),
        ("vit", {"tokens": "none", "pool": "attention"}),
        ("cpvt", {"position": "conditional"}),
    ],
)
@torch.inference_mode()
def test_it_is_what_the_paper_says(name, fields, r):
    model, given = made(name, r, **fields), images(2, fields.get("image_size", 48))
    expected = model.pool(torch.stack([by_the_paper(model, image, r) for image in given]))
    torch.testing.assert_close(model.pooled(given), expected, rtol=1e-6, atol=1e-6)


@torch.inference_mode()
def test_without_merging_nothing_changes(monkeypatch):
    model = made()
    before = model(images())
    monkeypatch.setattr(TokenMerging, "__init__", None)
    merge_tokens(model, 0)
    assert torch.equal(model(images()), before)


@torch.inference_mode()
def test_equal_tokens_are_merged_without_loss():
    """Proportional attention: one token of size s is s equal ones. Without positions, a plain image
    has equal patches alone; and ties lose no token."""
    model = made(position="none", pool="class+mean")
    plain = torch.ones(2, 3, 48, 48)
    expected = model(plain)
    for r in (1, 7, 18):
        merge_tokens(model, r)
        torch.testing.assert_close(model(plain), expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_batches_and_maps_agree_with_single_images():
    model, given = made(merge=4), images()
    together = model(given)
    for image, row in zip(given, together, strict=True):
        torch.testing.assert_close(model(image[None])[0], row, rtol=1e-5, atol=1e-5)
    assert model.maps(given)[0].shape == (3, 32, 6, 6)
    torch.testing.assert_close(whole(model, given), together, rtol=1e-5, atol=1e-5)
    with pytest.raises(ConfigError, match="tokens of several blocks were requested"):
        model.maps(given, [0, 2])


def test_gradients_reach_every_parameter():
    model = made(merge=4).train()
    model(images()).square().sum().backward()
    assert all(each.grad is not None and each.grad.any() for each in model.parameters())


@pytest.mark.parametrize(
    ("name", "merge", "message"),
    [
        ("vit-ti/16", 99, "can merge at most 98 patches in a block, half"),
        ("vit-ti/16", -1, "expected a whole number, 0 or more"),
        ("vit-ti/16", True, "expected a whole number, 0 or more"),
        ("beit-b/16", 8, "beit-b/16 has position = 'relative'"),
        ("dinov3-s/16", 8, "dinov3-s/16 has position = 'rotary'"),
        ("swin-t", 8, "swin-t is no plain ViT"),
        ("segmenter-ti/16", 8, "reads the maps of its encoder, which need all tokens"),
        ("detr-r50", 8, "reads the maps of its backbone"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(name, merge, message):
    with torch.device("meta"):
        model = vitreous.create(name)
    with pytest.raises(ConfigError, match=message):
        merge_tokens(model, merge)
