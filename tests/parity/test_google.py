"""Google's .npz files, through timm's own loader for them."""

import numpy as np
import pytest
import timm
import torch
from compare import TOLERANCE, assert_same_bits, perturb, picture, relative_error

import vitreous
from vitreous.errors import CheckpointError
from vitreous.weights.catalog import catalog


def write_npz(path, model):
    state = vitreous.export_weights(model, "google")
    np.savez(path, **{key: value.numpy() for key, value in state.items()})


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "theirs", "size"),
    [
        ("vit-ti/16", "vit_tiny_patch16_224", (96, 96)),
        ("r26+vit-s/32", "vit_small_r26_s32_224", (96, 96)),
        ("r50+vit-b/16", "vit_base_r50_s16_224", (64, 64)),
        ("r+vit-ti/16", "vit_tiny_r_s16_p8_224", (96, 96)),
    ],
)
def test_npz_both_ways(tmp_path, name, theirs, size):
    """What we write, timm's loader reads; what we read back is what we wrote."""
    fields = {"image_size": size, "depth": 2, "classes": 11}
    ours = perturb(vitreous.create(name, **fields))
    write_npz(tmp_path / "weights.npz", ours)
    reference = timm.create_model(theirs, img_size=size, depth=2, num_classes=11).eval()
    reference.load_pretrained(str(tmp_path / "weights.npz"))
    images = picture(2, 3, *size)
    assert relative_error(ours(images), reference(images)) < TOLERANCE

    again = vitreous.create(name, **fields).eval()
    report = vitreous.import_weights(again, tmp_path / "weights.npz", format="google")
    assert torch.equal(again(images), ours(images))
    assert any("tanh" in note for note in report.notes), "what Google computes differently is said"


@torch.no_grad()
def test_layouts_of_the_released_files(tmp_path):
    """AugReg files put `opt/target/` before each key; hybrids keep norms as (1, 1, 1, c)."""
    ours = perturb(vitreous.create("r26+vit-s/32", image_size=64, depth=1, classes=5))
    state = vitreous.export_weights(ours, "google")
    odd = {
        f"opt/target/{key}": value.reshape(1, 1, 1, -1) if "/gn" in f"/{key}" else value
        for key, value in state.items()
    }
    np.savez(tmp_path / "odd.npz", **{key: value.numpy() for key, value in odd.items()})
    again = vitreous.create("r26+vit-s/32", image_size=64, depth=1, classes=5).eval()
    vitreous.import_weights(again, tmp_path / "odd.npz")
    plain = {key.removeprefix("opt/target/"): value for key, value in odd.items()}
    assert_same_bits(vitreous.export_weights(again, "google"), plain)
    images = picture(1, 3, 64, 64)
    assert torch.equal(again(images), ours(images))


@torch.no_grad()
def test_pretraining_head(tmp_path):
    fields = {"image_size": 32, "patch": 16, "dim": 32, "depth": 1, "heads": 2, "head": "tanh"}
    ours = perturb(vitreous.create("vit", classes=21, **fields))
    state = vitreous.export_weights(ours, "google")
    assert state["pre_logits/kernel"].shape == (32, 32)
    again = vitreous.create("vit", classes=21, **fields).eval()
    vitreous.import_weights(again, state, "google")
    images = picture(1, 3, 32, 32)
    assert torch.equal(again(images), ours(images))
    tuned = vitreous.create("vit", classes=4, **{**fields, "head": "linear"})
    report = vitreous.import_weights(tuned, state, "google", reinit=["head.*"])
    assert report.reinitialised == ["head.out.weight", "head.out.bias"]
    assert "pre_logits/kernel" in report.dropped


def test_vit_b16_at_full_width(tmp_path):
    ours = perturb(vitreous.create("ViT-B_16", depth=2))
    write_npz(tmp_path / "B_16.npz", ours)
    reference = timm.create_model("vit_base_patch16_224", depth=2).eval()
    reference.load_pretrained(str(tmp_path / "B_16.npz"))
    images = picture(1, 3, 224, 224)
    with torch.no_grad():
        assert relative_error(ours(images), reference(images)) < TOLERANCE


def stem_in_numpy(state, images, stages):
    """Google's ResNet stem (vit_jax's models_resnet.py and models_vit.py), computed from the names
    and layouts of its files, in float64, by nothing of ours: (b, h, w, c) -> (b, h', w', c')."""

    def padded(x, kernel, stride, value):
        pads = []
        for size in x.shape[1:3]:
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads.append((missing // 2, missing - missing // 2))
        x = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=value)
        windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
        return windows[:, ::stride, ::stride]  # (b, h', w', c, kernel, kernel)

    def conv(x, name, stride=1):
        kernel = np.asarray(state[f"{name}/kernel"], np.float64)  # (kh, kw, in, out)
        kernel = kernel - kernel.mean(axis=(0, 1, 2))
        kernel = kernel / (kernel.std(axis=(0, 1, 2)) + 1e-5)
        return np.einsum("bhwckl,klco->bhwo", padded(x, kernel.shape[0], stride, 0.0), kernel)

    def norm(x, name):
        b, h, w, c = x.shape
        groups = x.reshape(b, h, w, 32, c // 32)
        centred = groups - groups.mean(axis=(1, 2, 4), keepdims=True)
        variance = groups.var(axis=(1, 2, 4), keepdims=True)
        x = (centred / np.sqrt(variance + 1e-6)).reshape(x.shape)
        scale, bias = (
            np.asarray(state[f"{name}/{part}"]).reshape(-1) for part in ("scale", "bias")
        )
        return x * scale + bias

    x = np.maximum(norm(conv(images, "conv_root", 2), "gn_root"), 0)
    x = padded(x, 3, 2, -np.inf).max(axis=(4, 5))
    for stage, units in enumerate(stages, 1):
        for unit in range(1, units + 1):
            name, stride = f"block{stage}/unit{unit}", 2 if stage > 1 and unit == 1 else 1
            kept = x
            if f"{name}/conv_proj/kernel" in state:
                kept = norm(conv(x, f"{name}/conv_proj", stride), f"{name}/gn_proj")
            y = np.maximum(norm(conv(x, f"{name}/conv1"), f"{name}/gn1"), 0)
            y = np.maximum(norm(conv(y, f"{name}/conv2", stride), f"{name}/gn2"), 0)
            x = np.maximum(kept + norm(conv(y, f"{name}/conv3"), f"{name}/gn3"), 0)
    return x


@torch.no_grad()
def test_the_stem_as_google_computes_it(tmp_path):
    """With the catalog's config; timm's numbers give something else."""
    entry = catalog()["r26+vit-s/32.augreg-in21k"]
    sizes = {"stages": (1, 2), "width": 32, "dim": 32, "heads": 2, "depth": 1, "image_size": 40}
    images = picture(2, 3, 40, 40)
    changes = {**entry.config, **sizes, "classes": 5}
    ours = perturb(vitreous.create(entry.model, **changes)).double()
    for module in ours.modules():  # so small that the epsilons matter
        if isinstance(module, torch.nn.Conv2d):
            module.weight.mul_(1e-3)
    state = {k: v.numpy() for k, v in vitreous.export_weights(ours, "google").items()}
    expected = stem_in_numpy(state, images.permute(0, 2, 3, 1).double().numpy(), (1, 2))
    got = ours.stem(images.double()).permute(0, 2, 3, 1)
    assert relative_error(got, torch.from_numpy(expected)) < 1e-10
    timm_s = {**changes, "stem_norm_eps": 1e-5, "standardise": "variance"}
    other = vitreous.create(entry.model, **timm_s).double()
    report = vitreous.import_weights(other, state, "google")
    assert any("standardise='deviation'" in note for note in report.notes)
    other = other.stem(images.double()).permute(0, 2, 3, 1)
    assert relative_error(other, torch.from_numpy(expected)) > 1e-4


def test_every_hybrid_of_google_in_the_catalog_has_its_numbers():
    """And timm cannot compute with them."""
    found = [
        entry
        for entry in catalog().values()
        if entry.format == "google" and "+" in entry.model.split("/")[0]
    ]
    assert len(found) == 8
    for entry in found:
        assert entry.config["stem_norm_eps"] == 1e-6
        assert entry.config["standardise"] == "deviation"
    model = vitreous.create("r26+vit-s/32", depth=1, image_size=64, standardise="deviation")
    with pytest.raises(CheckpointError, match=r"standardise = 'deviation' \(only 'variance'\)"):
        vitreous.export_weights(model, "timm")
