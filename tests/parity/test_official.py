"""Swin by the names of its authors' release, with the weights and outputs of torchvision's."""

import re

import torch
import torchvision
from compare import TOLERANCE, perturb, picture, relative_error

import vitreous
from vitreous.weights.io.files import write_tensors

PARTS = {
    r"^features\.0\.0": "patch_embed.proj",
    r"^features\.0\.2": "patch_embed.norm",
    r"mlp\.0": "mlp.fc1",
    r"mlp\.3": "mlp.fc2",
}


def released(key):
    """What the release calls a key of torchvision's."""
    for theirs, official in PARTS.items():
        key = re.sub(theirs, official, key)
    found = re.match(r"features\.(\d+)\.(.*)", key)
    if found is None:
        return key
    number, rest = int(found[1]), found[2]
    if number % 2:
        return f"layers.{number // 2}.blocks.{rest}"
    return f"layers.{number // 2 - 1}.downsample.{rest}"


def neighbours(grid, window):
    """(windows, n, n): 0 for tokens of a shifted window that were neighbours before, else -100."""
    shift = window // 2
    region = torch.zeros(grid)
    for rows in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
        for columns in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
            region[rows, columns] = region.max() + 1
    windows = region.unfold(0, window, window).unfold(1, window, window).reshape(-1, window**2)
    return (windows[:, None] != windows[:, :, None]) * -100.0


@torch.no_grad()
def test_swin(tmp_path):
    """Its files keep the index of offsets and the shift's mask: not used, and written again."""
    theirs = perturb(
        torchvision.models.SwinTransformer([4, 4], 16, [2, 2, 1], [2, 4, 8], [4, 4], num_classes=7)
    )
    state = {
        released(key): value.reshape(16, 16) if key.endswith("index") else value
        for key, value in theirs.state_dict().items()
    }
    state["layers.0.blocks.1.attn_mask"] = neighbours((32, 64), 4)
    state["layers.1.blocks.1.attn_mask"] = neighbours((16, 32), 4)
    write_tensors(tmp_path / "swin.pth", state, "pth", wrap="model")

    fields = {"image_size": (128, 256), "dim": 16, "depths": (2, 2, 1), "heads": (2, 4, 8)}
    ours = vitreous.create("swin", **fields, window=4, classes=7).eval()
    report = vitreous.import_weights(ours, tmp_path / "swin.pth")
    assert report.format == "official"
    assert report.loaded == list(ours.state_dict())
    buffers = [key for key in state if key.endswith(("_index", "_mask"))]
    assert len(buffers) == 7
    assert sorted(report.dropped) == sorted(buffers)
    assert all(f"not used        {key}" in str(report) for key in buffers)
    images = picture(2, 3, 128, 256)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE

    exported = vitreous.export_weights(ours, "official")
    assert exported.keys() == state.keys()
    assert all(torch.equal(exported[key], state[key]) for key in state)
    without = {key: value for key, value in state.items() if key not in buffers}
    assert vitreous.import_weights(ours, without).dropped == []


def test_nothing_is_masked_where_nothing_is_shifted():
    """At 224, the last stage of a Swin-T is one window; the release keeps no mask for it."""
    with torch.device("meta"):
        model = vitreous.create("swin-t")
    masks = [key for key in vitreous.export_weights(model, "official") if key.endswith("mask")]
    places = [(0, 1), (1, 1), (2, 1), (2, 3), (2, 5)]
    assert masks == [f"layers.{s}.blocks.{i}.attn_mask" for s, i in places]
