"""RF-DETR and LW-DETR beside transformers: outputs, matching, every term of the loss, both ways."""

import json

import pytest
import torch
from compare import TOLERANCE, perturb, relative_error
from transformers import (
    LwDetrConfig,
    LwDetrForObjectDetection,
    LwDetrViTConfig,
    RfDetrConfig,
    RfDetrDinov2Config,
    RfDetrForInstanceSegmentation,
    RfDetrForObjectDetection,
)

import vitreous
from vitreous.tasks.instance.losses import instance_loss
from vitreous.tasks.objects.losses import by_focal_loss, by_group, match, quality_loss
from vitreous.weights.adopt import find
from vitreous.weights.importing import load
from vitreous.weights.transformers_files import make_config, read_config
from vitreous.weights.transformers_preprocessor import read_json

SIZE, CLASSES, QUERIES, GROUPS = 96, 7, 20, 3
DECODER = {
    "d_model": 32,
    "decoder_self_attention_heads": 4,
    "decoder_cross_attention_heads": 8,
    "decoder_n_points": 2,
    "decoder_layers": 2,
    "decoder_ffn_dim": 64,
    "num_queries": QUERIES,
    "group_detr": GROUPS,
    "num_labels": CLASSES,
    "dropout": 0.0,
}
OURS = {
    "classes": CLASSES,
    "dim": 32,
    "heads": 4,
    "cross_heads": 8,
    "points": 2,
    "decoder_depth": 2,
    "mlp_dim": 64,
    "queries": QUERIES,
    "groups": GROUPS,
    "projector_eps": 1e-5,
}
VIT = {"dim": 48, "depth": 6, "mlp_dim": 192, "patch": 8}


def rf_detr(*, masks=False, position=SIZE, queries=QUERIES):
    """Theirs and ours, with the same weights."""
    backbone = RfDetrDinov2Config(
        hidden_size=48,
        num_hidden_layers=6,
        num_attention_heads=3,
        image_size=position,
        patch_size=8,
        num_windows=2,
        out_features=["stage2", "stage4", "stage6"],
    )
    config = RfDetrConfig(
        backbone_config=backbone, intermediate_size=48, **DECODER | {"num_queries": queries}
    )
    torch.manual_seed(0)
    theirs = (RfDetrForInstanceSegmentation if masks else RfDetrForObjectDetection)(config)
    inside = {"heads": 3, "windows.side": 2, "windows.global_blocks": (2, 4), "layer_scale": 1.0}
    ours = vitreous.create(
        "rf-detr",
        image_size=SIZE,
        backbone="dinov2-s/14",
        backbone_fields={**VIT, **inside, "position.grid": position // 8},
        blocks=(1, 3, 5),
        masks=masks,
        mask_mlp_dim=48,
        **OURS | {"queries": queries},
    )
    return loaded(theirs, ours)


def lw_detr(*scales):
    backbone = LwDetrViTConfig(
        hidden_size=48,
        num_hidden_layers=6,
        num_attention_heads=4,
        image_size=128,
        pretrain_image_size=64,
        patch_size=8,
        num_windows=4,
        window_block_indices=[0, 2, 4],
        out_indices=[2, 4, 6],
    )
    config = LwDetrConfig(backbone_config=backbone, projector_scale_factors=scales, **DECODER)
    torch.manual_seed(0)
    theirs = LwDetrForObjectDetection(config)
    inside = {
        **{"heads": 4, "windows.side": 2, "windows.global_blocks": (1, 3, 5), "layer_scale": 0.1},
        **{"tokens": "none", "pool": "mean", "final_norm": "none", "attention.key_bias": False},
        **{"position.grid": 8, "position.antialias": False},
    }
    ours = vitreous.create(
        "lw-detr",
        image_size=128,
        backbone="vit-ti/16",
        backbone_fields={**VIT, **inside},
        blocks=(1, 3, 5),
        scales=scales,
        **OURS,
    )
    return loaded(theirs, ours)


def loaded(theirs, ours):
    perturb(theirs)
    vitreous.import_weights(ours, theirs.state_dict(), format="huggingface")
    return theirs.eval(), ours.eval()


MODELS = {
    "rf-detr": rf_detr,
    "rf-detr, positions for another size": lambda: rf_detr(position=64),
    "rf-detr, masks": lambda: rf_detr(masks=True),
    "lw-detr": lambda: lw_detr(1.0),
    "lw-detr, two scales": lambda: lw_detr(2.0, 0.5),
}


def assert_same(ours, theirs):
    assert relative_error(ours.logits[-1], theirs.logits) < 1e-5
    assert relative_error(ours.boxes[-1], theirs.pred_boxes) < 1e-5
    if ours.masks is not None:
        assert relative_error(ours.masks[-1], theirs.pred_masks) < 1e-5
    else:
        assert relative_error(ours.proposed_logits, theirs.enc_outputs_class) < 1e-5
        assert relative_error(ours.proposed_boxes, theirs.enc_outputs_coord_logits) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_outputs_both_ways(name):
    """In eval mode, and in training with all groups; our export loads strictly."""
    theirs, ours = MODELS[name]()
    images = torch.randn(2, 3, *ours.own_size())
    with torch.no_grad():
        assert_same(ours(images), theirs(images))
    written = vitreous.export_weights(ours, format="huggingface")
    before = theirs.state_dict()
    missing = {k for k in before if k.endswith("num_batches_tracked")}
    assert written.keys() | missing == before.keys()
    assert all(torch.equal(written[key], before[key]) for key in written)
    if "lw" not in name:  # whose batch norms would change
        theirs.train()
        ours.train()
        assert_same(ours(images), theirs(images))


@pytest.mark.parametrize("name", ["rf-detr", "rf-detr, masks", "lw-detr, two scales"])
def test_padded_images(name):
    theirs, ours = MODELS[name]()
    height, width = ours.own_size()
    sizes = [(height - 16, width), (height, width - 32)]
    images = [torch.randn(3, *size) for size in sizes]
    mask = torch.zeros(2, height, width, dtype=torch.long)
    pixels = torch.zeros(2, 3, height, width)
    for number, (image, size) in enumerate(zip(images, sizes, strict=True)):
        mask[number, : size[0], : size[1]] = 1
        pixels[number, :, : size[0], : size[1]] = image
    with torch.no_grad():
        assert_same(ours(images), theirs(pixels, pixel_mask=mask))


def targets(*counts):
    generator = torch.Generator().manual_seed(1)
    made = []
    for count in counts:
        centre = torch.rand(count, 2, generator=generator) * 0.6 + 0.2
        sides = torch.rand(count, 2, generator=generator) * 0.3 + 0.05
        labels = torch.randint(0, CLASSES, (count,), generator=generator)
        made.append({"labels": labels, "boxes": torch.cat((centre, sides), dim=1)})
    return made


@pytest.mark.parametrize("counts", [(3, 5), (0, 4), (0, 0)])
@pytest.mark.parametrize("name", ["rf-detr", "lw-detr"])
def test_every_term_of_the_loss_is_theirs(name, counts):
    theirs, ours = MODELS[name]()
    theirs.train()
    ours.train()
    images, objects = torch.randn(2, 3, *ours.own_size()), targets(*counts)
    labels = [{"class_labels": each["labels"], "boxes": each["boxes"]} for each in objects]
    expected = theirs(images, labels=labels)
    found = quality_loss(ours(images), objects, None)
    names = {"class": ("loss_ce", 1), "box": ("loss_bbox", 5), "giou": ("loss_giou", 2)}
    for ours_name, (key, weight) in names.items():
        for prefix, suffix in (("", ""), ("aux_", "_0"), ("proposed_", "_enc")):
            value = weight * expected.loss_dict[key + suffix].item()
            assert found[prefix + ours_name].item() == pytest.approx(value, rel=1e-5, abs=1e-7)
    assert sum(found.values()).item() == pytest.approx(expected.loss.item(), rel=1e-5)


@pytest.mark.parametrize("counts", [(3, 5), (0, 4), (30, 1), (0, 0)])
def test_every_term_of_the_loss_with_masks_is_theirs(counts):
    """With the same random points: both draw from torch's RNG in the same order, once per stage for
    matching and twice for the pairs. For matching, transformers takes b·groups·queries·4 / 16
    points, the sides of its list of boxes, where the rf-detr package takes h·w / 16 of the masks'
    map, as we do. With 24 queries in 3 groups, and 2 images of 96x96, both are 36.

    Of an image with 30 objects, 24 are matched. Where there is nothing in any image, transformers'
    loss is an empty tensor; our terms are then those of the loss without masks.
    """
    theirs, ours = rf_detr(masks=True, queries=24)
    theirs.train()
    ours.train()
    images, objects = torch.randn(2, 3, SIZE, SIZE), targets(*counts)
    generator = torch.Generator().manual_seed(2)
    for each in objects:
        blobs = torch.rand(len(each["labels"]), 1, 6, 6, generator=generator)
        each["masks"] = torch.nn.functional.interpolate(blobs, SIZE)[:, 0] > 0.4
    output = ours(images)
    torch.manual_seed(7)
    found = instance_loss(output, objects, None)
    assert all(value.isfinite() for value in found.values())
    if not sum(counts):
        plain = quality_loss(output, objects, None)
        assert {name: found[name].item() for name in plain} == pytest.approx(
            {name: value.item() for name, value in plain.items()}
        )
        assert not any(found[name].item() for name in found.keys() - plain.keys())
        sum(found.values()).backward()
        return
    labels = [{"class_labels": each["labels"], **each} for each in objects]
    torch.manual_seed(7)
    expected = theirs(images, labels=labels)
    names = {
        **{"class": ("loss_ce", 1), "box": ("loss_bbox", 5), "giou": ("loss_giou", 2)},
        **{"mask": ("loss_mask_ce", 5), "dice": ("loss_mask_dice", 5)},
    }
    for ours_name, (key, weight) in names.items():
        for prefix, suffix in (("", ""), ("aux_", "_0"), ("proposed_", "_enc")):
            value = weight * expected.loss_dict[key + suffix].item()
            assert found[prefix + ours_name].item() == pytest.approx(value, rel=1e-5, abs=1e-7)
    assert len(found) == 15
    assert sum(found.values()).item() == pytest.approx(expected.loss.item(), rel=1e-5)


def test_matching_is_theirs():
    """Group by group, in every layer and in the first stage."""
    from transformers.loss.loss_lw_detr import LwDetrHungarianMatcher

    _, ours = rf_detr()
    ours.train()
    output, objects = ours(torch.randn(2, 3, SIZE, SIZE)), targets(4, 2)
    found = match(
        by_group(output.logits, output.proposed_logits, GROUPS),
        by_group(output.boxes, output.proposed_boxes, GROUPS),
        objects,
        by_class=by_focal_loss,
    )
    labels = [{"class_labels": each["labels"], "boxes": each["boxes"]} for each in objects]
    matcher = LwDetrHungarianMatcher(class_cost=2, bbox_cost=5, giou_cost=2)
    layers = [
        *zip(output.logits, output.boxes, strict=True),
        (output.proposed_logits, output.proposed_boxes),
    ]
    for layer, (logits, boxes) in enumerate(layers):
        pairs = matcher({"logits": logits, "pred_boxes": boxes}, labels, GROUPS)
        for image, (queries, numbers) in enumerate(pairs):
            expected = set(zip(queries.tolist(), numbers.tolist(), strict=True))
            rows = (found.layer // GROUPS == layer) & (found.image == image)
            group = found.layer[rows] % GROUPS
            first = sum(len(each["labels"]) for each in objects[:image])
            query, number = found.query[rows] + QUERIES * group, found.target[rows] - first
            assert set(zip(query.tolist(), number.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", MODELS)
def test_config_files_both_ways(name, tmp_path):
    """Their config.json makes our model, and ours makes theirs."""
    theirs, ours = MODELS[name]()
    theirs.config.architectures = [type(theirs).__name__]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(theirs.config.to_dict()))
    family, fields = read_config(read_json(file), file)
    fields |= {"classes": CLASSES, "image_size": ours.own_size()}
    again = vitreous.create(family, **fields).eval()
    vitreous.import_weights(again, theirs.state_dict(), format="huggingface")
    images = torch.randn(1, 3, *ours.own_size())
    with torch.no_grad():
        assert torch.equal(again(images).logits, ours(images).logits)
    made = make_config(again)
    kind = {"rf_detr": RfDetrConfig, "lw_detr": LwDetrConfig}[made["model_type"]]
    config = kind.from_dict(made)
    back = type(theirs)(config).eval()
    back.load_state_dict(theirs.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(back(images).logits, theirs(images).logits)


@torch.no_grad()
def test_a_folder_of_save_pretrained_is_imported(tmp_path):
    """Its file has the names of the rf-detr package, and its config.json another eps."""
    theirs = perturb(MODELS["rf-detr"]()[0])
    assert theirs.config.layer_norm_eps == RfDetrConfig().layer_norm_eps == 1e-5
    theirs.save_pretrained(tmp_path)
    found = find(tmp_path)
    assert found.format == "official"
    ours, _ = load(found)
    assert ours.config.projector_eps == 1e-5
    images = torch.randn(1, 3, SIZE, SIZE)
    assert relative_error(ours(images).logits[-1], theirs(images).logits) < TOLERANCE
