"""Attention as it is captured, and what is computed from it, against the plain formulas."""

import gc
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from compare import perturb

import vitreous
from vitreous.errors import ConfigError
from vitreous.explain.attention import Layer, head_reader, look
from vitreous.explain.class_maps import ExplainedScore, class_maps
from vitreous.explain.distances import Distances, coordinates, mean_distances
from vitreous.explain.parameters import filters, position_similarity
from vitreous.explain.rollout import Rollout
from vitreous.layers.attention import Attention
from vitreous.layers.tap import is_tapped, tap
from vitreous.models.model import Places


def for_classes(model, image, numbers):
    """What class maps of a classifier are made for."""
    read = head_reader(model, image)
    return [ExplainedScore(lambda logits, n=n: logits[0, n], read) for n in numbers]


SMALL = {"image_size": (12, 20), "patch": 4, "dim": 16, "depth": 3, "heads": 2, "classes": 4}
MODELS = {
    "class token": ("vit", {}),
    "no token": ("vit", {"tokens": "none", "pool": "mean"}),
    "registers": ("vit", {"registers": 3, "pool": "class+mean"}),
    "distilled": ("deit", {"tokens": "class+distillation", "pool": "both"}),
    "conditional": ("cpvt", {"tokens": "none", "pool": "mean", "position": "conditional"}),
    "pooled by attention": ("pe", {"pool.heads": 2, "registers": 1}),
    "dinov3": ("dinov3", {}),
    "beit": ("beit", {}),
    "relative": ("vit", {"position": "relative"}),
    "rotary": ("vit", {"position": "rotary", "registers": 1}),
    "normed": ("vit", {"attention.qk_norm": True, "norm": "post"}),
    "padded": ("vit", {"pad": True, "image_size": (11, 18)}),
    "hybrid": ("hybrid", {"stages": (1,), "width": 32, "patch": 1}),
}


@pytest.fixture(params=MODELS)
def model(request):
    name, changes = MODELS[request.param]
    torch.manual_seed(0)
    return perturb(vitreous.create(name, **{**SMALL, **changes})).eval()


@pytest.fixture
def images(model):
    return torch.randn(2, 3, *model.config.image_size)


def test_captured_attention_is_that_of_the_queries_and_keys(model, images):
    seen = {}
    with torch.no_grad(), tap(dict(model.named_modules()), seen.__setitem__):
        model(images)
    layers = []
    with torch.no_grad():
        look(model, images, layers.append)
    assert [layer.number for layer in layers] == [0, 1, 2]
    places = layers[0].places
    tokens = layers[0].tokens
    for layer in layers:
        bias = model.position.score_bias(layer.number, places.prefix, places.grid)
        q, k = seen[f"{layer.name}.q"], seen[f"{layer.name}.k"]
        scores = torch.einsum("bhqe,bhke->bhqk", q, k) / math.sqrt(q.shape[-1])
        scores = scores if bias is None else scores + bias
        assert layer.weights.shape == (2, 2, tokens, tokens)
        torch.testing.assert_close(layer.weights, scores.exp() / scores.exp().sum(-1, keepdim=True))
        torch.testing.assert_close(layer.weights.sum(-1), torch.ones(2, 2, tokens))


def test_looking_changes_nothing_and_leaves_nothing(model, images, monkeypatch):
    with torch.no_grad():
        before = model(images)
        looked = look(model, images, lambda layer: None)
        torch.testing.assert_close(looked, before, rtol=1e-5, atol=1e-6)
        assert not any(is_tapped(m) or m._forward_hooks for m in model.modules())
        fused = []
        real = F.scaled_dot_product_attention
        monkeypatch.setattr(
            F, "scaled_dot_product_attention", lambda *a, **k: fused.append(1) or real(*a, **k)
        )
        assert torch.equal(model(images), before)
        assert len(fused) == 3 + (model.config.pool.kind == "attention")


def test_attention_pooling_reads_what_its_query_attends_to():
    model = perturb(vitreous.create("siglip", **SMALL)).eval()
    image, seen = torch.randn(1, 3, 12, 20), {}
    with torch.no_grad(), tap(dict(model.named_modules()), seen.__setitem__):
        model(image)
        read = head_reader(model, image)
    layer = Layer(0, "", seen["blocks.2.attention.weights"], model.attentions()[0].columns)
    wanted = seen["pooling.attention.weights"][0].mean(0)[0]
    torch.testing.assert_close(read(layer), wanted)
    assert wanted.std() > 1e-3
    assert read(layer).sum().item() == pytest.approx(1)


def test_nothing_is_left_hooked_after_an_error(model, images):
    def fail(layer):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        look(model, images, fail)
    assert not any(is_tapped(m) or m._forward_hooks for m in model.modules())


def test_layers_are_not_hoarded(model, images):
    """When a layer is shown, those before it are gone, unless somebody keeps them."""
    gone = []
    rollout, distances = Rollout(), Distances()
    gc.freeze()  # what the whole process has made by now need not be looked through each time

    def see(layer):
        gc.collect()
        assert all(reference() is None for reference in gone)
        rollout.see(layer)
        distances.see(layer)
        gone.append(weakref.ref(layer.weights))

    with torch.no_grad():
        look(model, images, see)
    gc.unfreeze()
    assert len(gone) == 3


def test_rollout_is_the_formula(model, images):
    layers, rollout = [], Rollout()

    def see(layer):
        layers.append(layer.weights)
        rollout.see(layer)

    with torch.no_grad():
        look(model, images, see)
    tokens = layers[0].shape[-1]
    for b in range(2):
        expected = torch.eye(tokens)
        for weights in layers:
            mixed = torch.zeros(tokens, tokens)
            for i in range(tokens):
                for j in range(tokens):
                    mean = sum(weights[b, h, i, j] for h in range(2)) / 2
                    mixed[i, j] = (mean + (i == j)) / 2
            expected = mixed @ expected
        (step,) = rollout.steps  # all layers in one
        torch.testing.assert_close(step.weights[b], expected)
        torch.testing.assert_close(step.weights[b].sum(-1), torch.ones(tokens))


def test_mean_attention_distance_by_brute_force(model, images):
    layers = []
    with torch.no_grad():
        look(model, images, lambda layer: layers.append(layer.weights))
    found = mean_distances(model, [images[:1], images[1:]]).result()
    places = model.attentions(tuple(images.shape[2:]))[0].columns
    (gh, gw), p = places.grid, places.prefix
    tall, wide = (4, 4) if model.config.__class__.__name__ != "HybridConfig" else (12 / gh, 20 / gw)
    for number, weights in enumerate(layers):
        for head in range(2):
            total = 0.0
            for b in range(2):
                for i in range(gh * gw):
                    row = weights[b, head, p + i, p:]
                    row = row / row.sum()
                    for j in range(gh * gw):
                        dy, dx = (i // gw - j // gw) * tall, (i % gw - j % gw) * wide
                        total += row[j].item() * math.sqrt(dy * dy + dx * dx)
            assert found[number][head].item() == pytest.approx(total / (2 * gh * gw), rel=1e-5)


def test_a_model_without_attention_says_so():
    with pytest.raises(ConfigError, match="resnet-18 has no attention to look at"):
        look(
            vitreous.create("resnet-18", classes=2).eval(),
            torch.zeros(1, 3, 32, 32),
            lambda _: None,
        )


def attends_to(places, grid=(3, 5), tokens="class"):
    """A ViT of one block whose tokens all look at `places`, and whose class i reads place i.

    Position gives place i the direction i; keys see these directions, and values hand them on.
    """
    pool = "class" if tokens == "class" else "mean"
    model = vitreous.create(
        "vit",
        **{"image_size": (4 * grid[0], 4 * grid[1]), "patch": 4, "dim": 8, "depth": 1, "heads": 1},
        **{"classes": len(places), "tokens": tokens, "pool": pool, "final_norm": False},
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.blocks[0].norm1.weight.fill_(1)
        rows = 1 if tokens == "class" else 0
        model.position.table[:, 7] = 10
        qkv, head = model.blocks[0].attention.qkv, model.head.out
        for number, (row, column) in enumerate(places):
            index = rows + row * grid[1] + column
            model.position.table[index, 7] = 0
            model.position.table[index, number] = 10
            qkv.weight[8, number] = 4  # key
            qkv.weight[16 + number, number] = 1  # value
            head.weight[number, number] = 1
        qkv.bias[0] = 4  # query
        model.blocks[0].attention.projection.weight.copy_(torch.eye(8))
    return model.eval()


@pytest.mark.parametrize("tokens", ["class", "none"])
@pytest.mark.parametrize("place", [(0, 4), (1, 3), (2, 0), (2, 4)])
def test_a_known_place_is_where_the_map_says(place, tokens):
    """Also on a grid that is not square: with height and width swapped, this fails."""
    model, image = attends_to([place], tokens=tokens), torch.zeros(1, 3, 12, 20)
    rollout, rows = Rollout(), []

    def see(layer):
        rollout.see(layer)
        asking = head_reader(model, image)(layer)[None]
        rows.append(layer.on_grid(layer.attended(layer.weights.mean(1), asking))[0])

    with torch.no_grad():
        look(model, image, see)
    maps = {
        "attention": rows[0],
        "rollout": rollout.map(head_reader(model, image))[0],
        "class": class_maps(model, image, for_classes(model, image, [0]))[0],
    }
    for name, found in maps.items():
        assert found.shape == (3, 5), name
        assert divmod(found.argmax().item(), 5) == place, name
        assert found[place] > 0.3, name


def test_two_classes_in_one_picture_give_two_maps():
    model, image = attends_to([(0, 1), (2, 3)]), torch.zeros(1, 3, 12, 20)
    first, second = class_maps(model, image, for_classes(model, image, [0, 1]))
    assert divmod(first.argmax().item(), 5) == (0, 1)
    assert divmod(second.argmax().item(), 5) == (2, 3)
    assert first[0, 1] > 0.9
    assert second[2, 3] > 0.9


def test_class_maps_are_the_formula(model, images):
    """Relevance through all layers, from the first to the last, as the paper writes it."""
    image, layers = images[:1].clone(), []
    logits = look(model, image.requires_grad_(), layers.append)
    gradients = torch.autograd.grad(logits[0, 2], [layer.weights for layer in layers])
    relevance = torch.eye(layers[0].tokens)
    for layer, gradient in zip(layers, gradients, strict=True):
        relevance = relevance + (layer.weights * gradient)[0].clamp(min=0).mean(0) @ relevance
    start = head_reader(model, images[:1])(layers[-1])
    expected = layers[0].on_grid(start @ relevance - start).detach()
    expected = expected / expected.sum()
    found = class_maps(model, images[:1], for_classes(model, images[:1], [2]))[0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    assert found.sum().item() == pytest.approx(1)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_attention_layers_of_the_future_are_found_by_name():
    """Whatever holds the one attention is seen: windows and cross-attention will come this way."""
    attention = Attention(8, 2, 4)
    seen = []
    with tap(
        dict(attention.named_modules()),
        lambda name, tensor: seen.append((name, tuple(tensor.shape))),
    ):
        attention(torch.zeros(6, 9, 8))  # six windows of nine tokens
    assert ("weights", (6, 2, 9, 9)) in seen


def test_position_similarity_is_cosine_and_knows_rows_from_columns():
    model = vitreous.create("vit", **SMALL, position="learned-2d", tokens="none", pool="mean")
    similar = position_similarity(model)
    assert similar.shape == (3, 5, 3, 5)
    x, y = model.position.x.detach(), model.position.y.detach()
    one, other = torch.cat((x[4], y[1])), torch.cat((x[2], y[0]))
    assert similar[1, 4, 0, 2].item() == pytest.approx(
        F.cosine_similarity(one, other, dim=0).item()
    )
    table = position_similarity(vitreous.create("vit", **SMALL))
    assert torch.diagonal(table.reshape(15, 15)).tolist() == pytest.approx([1.0] * 15)
    for kind in ("sines-1d", "sines-2d", "relative", "rotary"):
        assert position_similarity(vitreous.create("vit", **SMALL, position=kind)) is not None, kind
    for kind in ("none", "conditional"):
        assert position_similarity(vitreous.create("vit", **SMALL, position=kind)) is None, kind


def test_filters_are_principal_components():
    model = vitreous.create("vit", **{**SMALL, "dim": 64})
    found = filters(model, 5)
    assert found.shape == (5, 3, 4, 4)
    flat = found.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(5), rtol=1e-4, atol=1e-5)
    weight = model.patch.weight.detach().flatten(1)
    spread = ((weight - weight.mean(0)) @ flat.T).var(0)
    assert (spread[:-1] >= spread[1:]).all()
    total = (weight - weight.mean(0)).T @ (weight - weight.mean(0))
    assert spread[0].item() * 63 == pytest.approx(torch.linalg.eigvalsh(total)[-1].item(), rel=1e-3)


def test_coordinates_are_in_pixels():
    between = torch.cdist(*[coordinates(Places(1, (2, 4), (8, 16)))] * 2)
    assert between[0, 1] == 16
    assert between[0, 4] == 8
    assert between[0, 7] == pytest.approx(math.hypot(8, 48))


# Swin: attention stays inside windows, and patches are merged on the way.


@pytest.fixture(params=[(32, 48), (36, 52)], ids=["whole windows", "filled"])
def swin(request):
    torch.manual_seed(0)
    model = vitreous.create(
        "swin", image_size=request.param, dim=8, depths=(2, 2), heads=(1, 2), window=4, classes=3
    )
    return perturb(model).eval(), torch.randn(2, 3, *request.param)


def dense(layer):
    """(b, heads, tokens, tokens), by hand from the windows."""
    windows = layer.places.windows
    b = len(layer.weights) // len(windows)
    matrix = torch.zeros(b, layer.heads, layer.tokens, layer.tokens)
    for image in range(b):
        for number, window in enumerate(windows.tolist()):
            for i, query in enumerate(window):
                for j, key in enumerate(window):
                    if query >= 0 and key >= 0:
                        value = layer.weights[image * len(windows) + number, :, i, j]
                        matrix[image, :, query, key] = value
    return matrix


def test_windows_know_their_places(swin):
    """Tokens that see each other are near each other, and each token is in one window."""
    model, images = swin
    layers = []
    with torch.no_grad():
        look(model, images, layers.append)
    assert [layer.heads for layer in layers] == [1, 1, 2, 2]
    assert layers[0].places.grid == (images.shape[2] // 4, images.shape[3] // 4)
    assert layers[0].places.pixels == (4, 4)
    assert layers[2].places.pixels == (8, 8)
    for layer in layers:
        real = layer.places.windows[layer.places.windows >= 0]
        assert sorted(real.tolist()) == list(range(layer.tokens))
        matrix, width = dense(layer), layer.places.grid[1]
        seen = (matrix > 0).any(dim=0).any(dim=0).nonzero().tolist()
        for query, key in seen:
            assert abs(query // width - key // width) < 4
            assert abs(query % width - key % width) < 4
        values = torch.randn(2, layer.tokens, 5)
        mean = layer.weights.mean(1)
        torch.testing.assert_close(layer.gather(mean, values), dense(layer).mean(1) @ values)
        asking = torch.rand(2, layer.tokens)
        expected = (asking[:, None] @ dense(layer).mean(1))[:, 0]
        torch.testing.assert_close(layer.attended(mean, asking), expected)


def test_rollout_and_class_maps_through_windows_and_merging(swin):
    model, images = swin
    layers, rollout = [], Rollout()

    def see(layer):
        layers.append(layer)
        rollout.see(layer)

    image = images[:1].clone().requires_grad_()
    logits = look(model, image, see)
    (gh, gw), (mh, mw) = layers[0].places.grid, layers[2].places.grid
    merge = torch.zeros(mh * mw, gh * gw)
    for y in range(gh):
        for x in range(gw):
            merge[y // 2 * mw + x // 2, y * gw + x] = 1
    mean = merge / merge.sum(1, keepdim=True)
    flow = torch.eye(gh * gw)
    gradients = torch.autograd.grad(logits[0, 1], [layer.weights for layer in layers])
    relevance, eye = torch.eye(gh * gw), torch.eye(gh * gw)
    for number, (layer, gradient) in enumerate(zip(layers, gradients, strict=True)):
        if number == 2:
            flow, relevance, eye = mean @ flow, merge / 4 @ relevance, merge / 4 @ eye
        flow = (dense(layer).mean(1)[0] @ flow + flow) / 2
        product = Layer(0, "", (layer.weights * gradient).clamp(min=0), layer.places)
        relevance = relevance + dense(product).mean(1)[0] @ relevance
    start = torch.full((mh * mw,), 1 / (mh * mw))
    expected = (start @ flow).reshape(gh, gw).detach()
    torch.testing.assert_close(
        rollout.map(head_reader(model, images[:1]))[0],
        expected / expected.sum(),
        rtol=1e-4,
        atol=1e-7,
    )
    found = class_maps(model, images[:1], for_classes(model, images[:1], [1]))[0]
    expected = (start @ (relevance - eye)).reshape(gh, gw).detach()
    torch.testing.assert_close(found, expected / expected.sum(), rtol=1e-3, atol=1e-6)


def test_distances_inside_windows_by_brute_force(swin):
    model, images = swin
    layers = []
    with torch.no_grad():
        look(model, images, layers.append)
    found = mean_distances(model, [images]).result()
    for layer, distances in zip(layers, found, strict=True):
        matrix = dense(layer)
        matrix = matrix / matrix.sum(-1, keepdim=True)
        between = torch.cdist(*[coordinates(layer.places)] * 2)
        expected = (matrix * between).sum(-1).mean(-1).mean(0)
        torch.testing.assert_close(distances.float(), expected, rtol=1e-4, atol=1e-5)
