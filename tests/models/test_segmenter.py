"""Segmenter: its equations computed another way, patches in their places, every encoder."""

import math

import numpy as np
import pytest
import torch

import vitreous
from vitreous.engines.summary import summarise
from vitreous.errors import ConfigError
from vitreous.layers.tap import tap
from vitreous.models.segmenter import VARIANTS, MaskTransformer, SegmenterConfig

TINY = {"patch": 8, "dim": 24, "depth": 2, "heads": 2}


def perturbed(model, seed=0):
    """Every parameter moved, so that no zero or one can hide an error."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tiny(classes=5, image_size=(32, 48), encoder="vit", encoder_fields=TINY, **fields):
    made = vitreous.create(
        "segmenter",
        classes=classes,
        image_size=image_size,
        encoder=encoder,
        encoder_fields=encoder_fields,
        **fields,
    )
    return perturbed(made)


def mask_transformer_by_hand(state, z, heads, depth, eps):
    """Section 3.2 in plain numpy: patches z (n, d) -> scores (n, classes)."""

    def norm(x, name):
        mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        return (x - mean) / np.sqrt(var + eps) * state[f"{name}.weight"] + state[f"{name}.bias"]

    def linear(x, name):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    x = np.concatenate([linear(z, "project"), state["classes"]])  # patches first, as in the paper
    count, dim = x.shape
    for i in range(depth):
        h = norm(x, f"blocks.{i}.norm1")
        q, k, v = np.split(linear(h, f"blocks.{i}.attention.qkv"), 3, axis=-1)
        out = np.zeros((count, dim))
        for head in range(heads):
            part = slice(head * dim // heads, (head + 1) * dim // heads)
            scores = q[:, part] @ k[:, part].T / math.sqrt(dim / heads)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, part] = weights / weights.sum(axis=1, keepdims=True) @ v[:, part]
        x = x + linear(out, f"blocks.{i}.attention.projection")
        h = linear(norm(x, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.fc1")
        gelu = h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
        x = x + linear(gelu, f"blocks.{i}.mlp.fc2")
    x = norm(x, "norm")
    patches = x[: len(z)] @ state["patch_out.weight"].T
    classes = x[len(z) :] @ state["class_out.weight"].T
    patches /= np.linalg.norm(patches, axis=1, keepdims=True)
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    return norm(patches @ classes.T, "mask_norm")


def test_mask_transformer_by_hand():
    config = SegmenterConfig(classes=5, dim=24, heads=3)
    decoder = perturbed(MaskTransformer(20, config)).double()
    x = torch.randn(1, 20, 3, 4, dtype=torch.float64)
    state = {name: value.numpy() for name, value in decoder.state_dict().items()}
    by_hand = mask_transformer_by_hand(state, x[0].flatten(1).T.numpy(), heads=3, depth=2, eps=1e-5)
    with torch.no_grad():
        ours = decoder([x])[0]  # (classes, 3, 4)
    np.testing.assert_allclose(ours.flatten(1).T.numpy(), by_hand, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("size", [(40, 16), (29, 51), (5, 7)])
def test_any_size_as_if_made_for_it(size):
    """Learned positions are resampled, and a part of a patch is padded and cut off again."""
    model = tiny()
    grid = (-(-size[0] // 8), -(-size[1] // 8))
    other = tiny(image_size=(8 * grid[0], 8 * grid[1]))
    vitreous.import_weights(
        other, model.state_dict(), "vitreous", resample="bicubic", source_grid=(4, 6)
    )
    images = torch.randn(2, 3, *size)
    whole = torch.zeros(2, 3, 8 * grid[0], 8 * grid[1])
    whole[:, :, : size[0], : size[1]] = images
    wanted = other(whole)[:, :, : size[0], : size[1]]
    assert wanted.shape == (2, 5, *size)
    assert torch.equal(model(images), wanted)
    assert {layer.columns.grid for layer in model.attentions(size)} == {grid}


def test_two_classes_have_scores_and_not_only_an_order():
    """A LayerNorm over two numbers would give the same two for every patch."""
    output = tiny(classes=2)(torch.randn(2, 3, 32, 48))
    apart = (output[:, 0] - output[:, 1]).abs().flatten()
    assert apart.std() > 0.1 * apart.mean()


@pytest.mark.parametrize("tokens", ["none", "class", "class+distillation"])
def test_patches_go_back_to_their_places(tokens):
    """One bright patch is found in its row and column, on a grid that is not square."""
    fields = {"patch": 8, "dim": 4, "depth": 1, "heads": 1, "position": "none", "tokens": tokens}
    pool = {"none": "mean", "class": "class", "class+distillation": "both"}[tokens]
    model = vitreous.create(
        "segmenter",
        classes=2,
        image_size=(32, 48),
        channels=1,
        encoder="vit",
        encoder_fields={**fields, "pool": pool, "registers": 1},
        decoder="linear",
    ).eval()
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.zero_()
        model.encoder.norm.weight.fill_(1)
        model.encoder.patch.weight[0] = 1 / 64  # the first channel of a token: its patch's mean
        model.decoder.out.weight.copy_(torch.tensor([[0.0] * 4, [1.0, 0, 0, 0]]))
        model.decoder.out.bias.zero_()
        for row in range(4):
            for column in range(6):
                image = torch.zeros(1, 1, 32, 48)
                image[:, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 1
                brightest = model(image)[0, 1].argmax().item()
                assert (brightest // 48 // 8, brightest % 48 // 8) == (row, column)


ENCODERS = {
    "vit": ("vit", TINY),
    "deit": ("vit", {**TINY, "tokens": "class+distillation", "pool": "both"}),
    "cpvt": ("vit", {**TINY, "position": "conditional", "tokens": "none", "pool": "mean"}),
    "clip": ("clip", TINY),
    "siglip": ("siglip", TINY),
    "dinov2": ("dinov2", {**TINY, "registers": 2}),
    "dinov3": ("dinov3", TINY),
    "eva": ("eva", {**TINY, "mlp.norm": True}),
    "beit": ("beit", TINY),
    "hybrid": ("hybrid", {**TINY, "patch": 1, "stages": (1,), "width": 32}),
    "swin": ("swin", {"dim": 8, "depths": (1, 2), "heads": (1, 2), "window": 4}),
    "resnet": ("resnet", {"block": "basic", "stages": (1, 1, 1), "width": 8}),
}


@pytest.mark.parametrize("decoder", ["mask", "linear", "progressive", "pyramid"])
@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_with_every_decoder(name, decoder):
    encoder, fields = ENCODERS[name]
    if decoder == "pyramid" and name not in ("swin", "resnet"):
        with pytest.raises(ConfigError, match="several sizes"):
            tiny(encoder=encoder, encoder_fields=fields, decoder=decoder)
        return
    model = tiny(encoder=encoder, encoder_fields=fields, decoder=decoder, dim=24, heads=2)
    images = torch.randn(3, 3, 32, 48)
    with torch.no_grad():
        output = model(images)
        assert output.shape == (3, 5, 32, 48)
        for i in range(3):  # a batch is its images
            torch.testing.assert_close(model(images[i : i + 1])[0], output[i], rtol=1e-3, atol=1e-4)
        with tap(
            dict(model.named_modules()), lambda name, tensor: None
        ):  # looked into, it says the same
            torch.testing.assert_close(model(images), output, rtol=1e-3, atol=1e-4)
    model.train()(images).square().mean().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


@pytest.mark.parametrize("name", ["swin", "resnet"])
def test_sizes_that_do_not_divide(name):
    encoder, fields = ENCODERS[name]
    model = tiny(encoder=encoder, encoder_fields=fields, decoder="pyramid", dim=8)
    for height, width in ((32, 48), (33, 47), (45, 30)):
        with torch.no_grad():
            assert model(torch.randn(1, 3, height, width)).shape == (1, 5, height, width)


def test_maps_are_the_encoders():
    model = tiny()
    images = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        found = model.maps(images, [0, 1])
        inner = model.encoder.maps(images, [0, 1], norm=True)
    assert [tuple(each.shape) for each in found] == [(2, 24, 4, 6)] * 2
    for ours, theirs in zip(found, inner, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_variants_are_the_papers():
    assert len(VARIANTS) == 14 + 2  # and ours
    large = VARIANTS["segmenter-l/16"]
    assert (large.image_size, large.depth, large.decoder) == ((640, 640), 2, "mask")
    with torch.device("meta"):
        small = vitreous.create("segmenter-s/16")
        assert small.config.classes == 150
        assert small.encoder.config.norm_eps == 1e-5
        assert small.decoder.blocks[0].attention.heads == 6
    # table 1 of the paper counts 22M for the encoder of Seg-S
    assert sum(p.numel() for p in small.encoder.parameters()) == pytest.approx(22e6, rel=0.02)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": "vit-x/16"}, "unknown model 'vit-x/16'"),
        ({"decoder": "masks"}, "did you mean 'mask'"),
        ({"encoder_fields": {"classes": 3}}, "give classes itself"),
        ({"encoder_fields": {"widht": 3}}, "unknown field 'widht'"),
        ({"heads": 7}, "does not divide into 7 heads"),
        ({"classes": 0}, "at least 1"),
        (
            {"image_size": 100, "encoder_fields": {"pad": False}},
            r"encoder '.*' \(its fields: encoder.…\): .* 16x16 patches",
        ),
        ({"encoder": "detr-small"}, "encoder = 'detr-small' is no model that classifies"),
    ],
)
def test_bad_configs(fields, message):
    with pytest.raises(ConfigError, match=message):
        vitreous.create("segmenter", **{"image_size": 64, **fields})


@pytest.mark.parametrize("encoder", ["swin-t", "resnet-18"])
def test_the_summary_counts_an_encoder_with_several_maps(encoder):
    with torch.device("meta"):
        model = vitreous.create("segmenter", image_size=64, encoder=encoder, decoder="pyramid")
    counted = sum(stage.parameters for stage in summarise(model))
    assert counted == sum(parameter.numel() for parameter in model.parameters())


def test_fields_of_the_encoder_are_added_to_the_variants():
    model = vitreous.create("segmenter-ti/16", image_size=32, encoder_fields={"depth": 2})
    assert model.encoder.config.depth == 2
    assert model.encoder.config.norm_eps == 1e-5
