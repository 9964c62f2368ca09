"""Swin's own properties; its numbers are compared in tests/parity."""

import itertools
import math

import pytest
import torch
from compare import perturb, picture

import vitreous
from vitreous.engines.accelerate import accelerate
from vitreous.engines.attention import cached_windows
from vitreous.errors import ConfigError, InputError
from vitreous.models.swin import WindowAttention, windows_of

SMALL = {"image_size": 32, "dim": 8, "depths": (2, 2), "heads": (2, 4), "window": 4, "classes": 5}


def swin(**changes):
    torch.manual_seed(0)
    return perturb(vitreous.create("swin", **{**SMALL, **changes}))


@pytest.mark.parametrize(
    ("window", "size"), [((2, 2), (4, 6)), ((3, 2), (6, 8)), ((7, 7), (7, 14))]
)
def test_a_map_is_cut_into_windows_and_put_together_again(window, size):
    (h, w), (wh, ww) = size, window
    cut = windows_of(size, window, (0, 0), torch.device("cpu"))
    tokens = [
        (top + y) * w + left + x
        for top, left in itertools.product(range(0, h, wh), range(0, w, ww))
        for y, x in itertools.product(range(wh), range(ww))
    ]
    assert cut.order.tolist() == tokens
    assert torch.equal(cut.order[cut.inverse], torch.arange(h * w))


def influence(attention, size):
    """(tokens, tokens): whether the second changes what comes out at the first."""
    x = torch.randn(1, *size, attention.qkv.in_features, requires_grad=True)
    out = attention(x)
    rows = []
    for y in range(size[0]):
        for z in range(size[1]):
            (gradient,) = torch.autograd.grad(out[0, y, z].sum(), x, retain_graph=True)
            rows.append(gradient[0].abs().sum(-1).flatten() > 0)
    return torch.stack(rows)


def test_windows_at_rest_know_nothing_of_each_other():
    attention = perturb(WindowAttention(8, 2, (2, 3), shifted=False))
    found = influence(attention, (4, 6))
    ys, xs = torch.arange(24) // 6 // 2, torch.arange(24) % 6 // 3
    window = ys * 2 + xs
    assert torch.equal(found, window[:, None] == window[None])


def test_shifted_windows_keep_what_was_not_near_apart():
    """A token is seen by those of its shifted window that did not come round from another edge."""
    attention = perturb(WindowAttention(8, 2, (4, 4), shifted=True))
    found = influence(attention, (8, 12))
    for query in range(96):
        for key in range(96):
            same = [
                (a + 2) // 4 == (b + 2) // 4  # windows begin two further left and up
                for a, b in ((query // 12, key // 12), (query % 12, key % 12))
            ]
            assert bool(found[query, key]) == all(same), (query, key)


def test_a_block_by_hand():
    """Shifted, with bias and mask, token by token."""
    attention = perturb(WindowAttention(6, 2, (2, 2), shifted=True))
    x = torch.randn(1, 4, 4, 6)
    q, k, v = attention.qkv(x).reshape(4, 4, 3, 2, 3).permute(2, 0, 1, 3, 4)
    expected = torch.zeros(4, 4, 6)
    for y in range(4):
        for z in range(4):
            near = [
                (a, b)
                for a in range(4)
                for b in range(4)
                if (a + 1) // 2 == (y + 1) // 2 and (b + 1) // 2 == (z + 1) // 2
            ]
            for head in range(2):
                scores = torch.stack(
                    [
                        q[y, z, head] @ k[a, b, head] / math.sqrt(3)
                        + attention.bias_table[(y - a + 1) * 3 + (z - b + 1), head]
                        for a, b in near
                    ]
                ).softmax(0)
                mixed = sum(s * v[a, b, head] for s, (a, b) in zip(scores, near, strict=True))
                expected[y, z, 3 * head : 3 * head + 3] = mixed
    torch.testing.assert_close(attention(x)[0], attention.projection(expected))


def test_one_window_is_not_shifted():
    attention = WindowAttention(8, 2, (4, 4), shifted=True)
    assert attention.shift((4, 8)) == (0, 2)
    assert attention.shift((8, 8)) == (2, 2)
    assert WindowAttention(8, 2, (4, 4), shifted=False).shift((8, 8)) == (0, 0)


def test_masks_are_made_once_and_not_saved():
    model = accelerate(swin())
    cached_windows.cache_clear()
    with torch.inference_mode():
        model(picture(1, 3, 32, 32))
    assert cached_windows.cache_info().misses == 3  # the second stage has one window only
    model(picture(1, 3, 32, 32)).sum().backward()  # made in inference mode, used to learn
    assert cached_windows.cache_info().misses == 3
    masks = [
        attention.windows(attention.padded(size), torch.device("cpu")).mask is not None
        for size, stage in (((8, 8), model.stages[0]), ((4, 4), model.stages[1]))
        for attention in (block.attention for block in stage.blocks)
    ]
    assert masks == [False, True, False, False]
    assert cached_windows.cache_info().misses == 3
    assert not [name for name in model.state_dict() if "mask" in name or "index" in name]


@pytest.mark.parametrize("size", [(32, 32), (32, 64), (20, 44), (37, 51), (8, 8)])
def test_any_size(size):
    model = swin()
    with torch.no_grad():
        maps = model.maps(picture(2, 3, *size), [0, 1])
        (tokens,) = model.tokens(picture(2, 3, *size), [0])
        assert model(picture(2, 3, *size)).shape == (2, 5)
    h, w = -(-size[0] // 4), -(-size[1] // 4)
    assert maps[0].shape == (2, 8, h, w)
    assert maps[1].shape == (2, 16, -(-h // 2), -(-w // 2))
    torch.testing.assert_close(maps[0].flatten(2).mT, tokens)


def test_the_pyramid_has_strides_4_8_16_32():
    model = vitreous.create("swin-t", head="none").eval()
    with torch.no_grad():
        maps = model.maps(torch.zeros(1, 3, 64, 96), range(4))
    shapes = [tuple(m.shape[1:]) for m in maps]
    assert shapes == [(96, 16, 24), (192, 8, 12), (384, 4, 6), (768, 2, 3)]
    resnet = vitreous.create("resnet-50", head="none").eval()
    with torch.no_grad():
        maps = resnet.maps(torch.zeros(1, 3, 64, 96), range(4))
    assert [tuple(m.shape[2:]) for m in maps] == [(16, 24), (8, 12), (4, 6), (2, 3)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": (2,)}, "one number each for every stage"),
        ({"heads": (3, 4)}, "does not divide into 3 heads"),
        ({"depths": (0, 2)}, "expected at least 1"),
        ({"windwo": 7}, "did you mean 'window'"),
        ({"window": 0}, "window"),
        ({"mlp_ratio": -1.0}, "mlp_ratio = -1.0"),
    ],
)
def test_bad_configs(changes, words):
    with pytest.raises(ConfigError, match=words):
        vitreous.create("swin", **{**SMALL, **changes})


def test_bad_images():
    with pytest.raises(InputError, match="this model takes"):
        swin()(torch.zeros(1, 1, 32, 32))


def test_mlp_in_pieces_is_the_same(monkeypatch):
    """Without gradients, narrow MLPs over many tokens are computed piece by piece."""
    model, images = accelerate(swin()), picture(2, 3, 64, 64)
    with torch.no_grad():
        whole = model(images)
        monkeypatch.setattr("vitreous.engines.linear.PIECE", 300)
        counted = model.stages[0].blocks[0].mlp.pieces(torch.zeros(2, 16, 16, 8))
        assert counted == -(-2 * 16 * 16 * 32 // 300)
        torch.testing.assert_close(model(images), whole, rtol=1e-5, atol=1e-5)
