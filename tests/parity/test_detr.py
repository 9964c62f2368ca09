"""DETR: transformers' outputs, matching and losses, both ways; its authors' names."""

import re

import pytest
import torch
import torchvision
from compare import TOLERANCE, perturb, picture, relative_error
from runs import own_file
from transformers import DetrConfig, DetrForObjectDetection
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss, HungarianMatcher

import vitreous
from vitreous.engines.torch import TorchEngine
from vitreous.errors import CheckpointError
from vitreous.labels import LabelMap
from vitreous.models.detr import DETROutput
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.objects.losses import match
from vitreous.weights.convert import convert
from vitreous.weights.io.files import read_tensors, write_tensors

CLASSES = 4


@torch.no_grad()
def shaken(model, seed=0):
    """Random values everywhere, and attention that looks at something: else random layers smooth
    everything out, and the queries all find the same."""
    for name, value in perturb(model, seed).state_dict().items():
        if name.endswith("q_proj.weight"):
            value *= 4
        elif name.endswith("qkv.weight"):
            value[: len(value) // 3] *= 4
        elif name.startswith(("queries", "model.query")):
            value *= value.shape[1] ** 0.5
    return model


def small_detrs(dilated=False, **options):
    theirs = DetrForObjectDetection(
        DetrConfig(
            backbone="resnet18",
            dilation=dilated,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            num_queries=6,
            num_labels=CLASSES,
            **options,
        )
    )
    ours = vitreous.create(
        "detr",
        classes=CLASSES,
        backbone="resnet-18",
        backbone_fields={"norm": "frozen", **({"dilated": True} if dilated else {})},
        dim=32,
        heads=4,
        encoder_depth=2,
        decoder_depth=2,
        mlp_dim=48,
        queries=6,
        activation=options.get("activation_function", "relu"),
    )
    return shaken(theirs), ours.eval()


def padded(images):
    """What transformers takes: one tensor, and a mask of what is image."""
    height, width = (max(image.shape[i] for image in images) for i in (1, 2))
    batch = torch.zeros(len(images), 3, height, width)
    mask = torch.zeros(len(images), height, width)
    for number, image in enumerate(images):
        batch[number, :, : image.shape[1], : image.shape[2]] = image
        mask[number, : image.shape[1], : image.shape[2]] = 1
    return {"pixel_values": batch, "pixel_mask": mask}


def images_of(*sizes):
    return [picture(2, 3, *size, seed=seed)[seed % 2] for seed, size in enumerate(sizes)]


@torch.no_grad()
def agree(ours, theirs, images):
    wanted, got = theirs(**padded(images)), ours(images)
    assert wanted.logits.std() > 1e-3, "the reference is constant: nothing is compared"
    assert wanted.logits.std(dim=1).min() > 100 * TOLERANCE, "and its queries differ"
    assert wanted.pred_boxes.std(dim=1).min() > 10 * TOLERANCE
    assert relative_error(got.logits[-1], wanted.logits) < TOLERANCE
    assert relative_error(got.boxes[-1], wanted.pred_boxes) < TOLERANCE


SIZES = [[(96, 128), (96, 128)], [(96, 80), (64, 128)], [(65, 99), (130, 33), (31, 64)]]


@torch.no_grad()
@pytest.mark.parametrize("dilated", [False, True])
def test_outputs_both_ways(dilated):
    theirs, ours = small_detrs(dilated)
    report = vitreous.import_weights(ours, theirs.state_dict())
    assert report.format == "huggingface"
    assert report.loaded == list(ours.state_dict())
    assert not report.dropped
    for sizes in SIZES:
        agree(ours, theirs, images_of(*sizes))
    shaken(ours, seed=5)
    theirs.load_state_dict(vitreous.export_weights(ours, "huggingface"), strict=True)
    agree(ours, theirs, images_of(*SIZES[2]))


@torch.no_grad()
def test_the_position_of_padding_does_not_matter():
    """transformers counts on in the padding otherwise than we do; nobody looks there."""
    theirs, ours = small_detrs(activation_function="gelu")
    vitreous.import_weights(ours, theirs.state_dict())
    agree(ours, theirs, images_of((40, 40), (200, 96)))


@torch.no_grad()
def test_every_decoder_layer():
    """As the paper's code has it: the norm is for the heads alone, and layers are handed what was
    before it. (With auxiliary_loss=True transformers hands the normed on, which is another model.)
    """
    theirs, ours = small_detrs()
    vitreous.import_weights(ours, theirs.state_dict())
    images = images_of((96, 80), (64, 128))
    layers = []
    for layer in theirs.model.decoder.layers:
        layer.register_forward_hook(lambda module, given, hidden: layers.append(hidden))
    theirs(**padded(images))
    got = ours(images, every_layer=True)
    assert len(layers) == len(got.logits) == 2
    for i, hidden in enumerate(layers):
        normed = theirs.model.decoder.layernorm(hidden)
        logits = theirs.class_labels_classifier(normed)
        assert relative_error(got.logits[i], logits) < TOLERANCE
        assert relative_error(got.boxes[i], theirs.bbox_predictor(normed).sigmoid()) < TOLERANCE


@torch.no_grad()
def test_r50_at_full_size():
    theirs = shaken(DetrForObjectDetection(DetrConfig(num_labels=91)))
    ours = vitreous.create("facebook/detr-resnet-50").eval()
    vitreous.import_weights(ours, theirs.state_dict(), "huggingface")
    agree(ours, theirs, images_of((480, 640), (640, 427)))
    shaken(ours, seed=5)
    theirs.load_state_dict(vitreous.export_weights(ours, "huggingface"), strict=True)
    agree(ours, theirs, images_of((320, 320)))


@torch.no_grad()
@pytest.mark.parametrize("format", ["huggingface", "huggingface-v4"])
def test_files_of_save_pretrained_and_for_from_pretrained(tmp_path, format):
    """Files keep the names of transformers 4; both spellings are read, by us and by them."""
    theirs, ours = small_detrs()
    theirs.save_pretrained(tmp_path)
    stored = read_tensors(tmp_path).tensors
    assert "model.backbone.conv_encoder.model.layer1.0.conv1.weight" in stored
    assert "model.encoder.layers.0.fc1.weight" in stored
    # some of those on the hub count batches, which frozen norms do not
    stored["model.backbone.conv_encoder.model.layer2.0.downsample.1.num_batches_tracked"] = (
        torch.tensor(1)
    )
    write_tensors(tmp_path / "model.safetensors", stored, "safetensors", {"format": "pt"})
    assert len(vitreous.import_weights(ours, tmp_path).dropped) == 1
    images = images_of((64, 96))
    agree(ours, theirs, images)

    shaken(ours, seed=9)
    exported = vitreous.export_weights(ours, format)
    assert ("model.encoder.layers.0.fc1.weight" in exported) == (format == "huggingface-v4")
    write_tensors(tmp_path / "model.safetensors", exported, "safetensors", {"format": "pt"})
    again, info = DetrForObjectDetection.from_pretrained(tmp_path, output_loading_info=True)
    assert [*info["missing_keys"], *info["unexpected_keys"]] == []
    agree(ours, again.eval(), images)


@torch.no_grad()
@pytest.mark.parametrize("dilated", [False, True])
def test_a_folder_says_what_it_is_and_a_folder_of_ours_too(tmp_path, dilated):
    theirs, _ = small_detrs(dilated, activation_function="gelu")
    theirs.save_pretrained(tmp_path / "theirs")
    changes = {"image_size": 64}
    done = convert(tmp_path / "theirs", tmp_path / "own.safetensors", changes=changes)
    config = done.config
    assert (config.dim, config.heads, config.queries, config.mlp_dim) == (32, 4, 6, 48)
    assert (config.encoder_depth, config.decoder_depth, config.classes) == (2, 2, CLASSES)
    assert (config.backbone, config.activation) == ("resnet-18", "gelu")
    assert config.backbone_fields.get("dilated", False) == dilated
    convert(tmp_path / "own.safetensors", tmp_path / "again", to_format="huggingface")
    again = DetrForObjectDetection.from_pretrained(tmp_path / "again").eval()
    inputs = padded(images_of((96, 64), (64, 96)))
    assert relative_error(again(**inputs).logits, theirs(**inputs).logits) < TOLERANCE


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"decoder_ffn_dim": 64}, "decoder_ffn_dim = 64 and encoder_ffn_dim = 48"),
        ({"position_embedding_type": "learned"}, "position_embedding_type = 'learned'"),
    ],
)
def test_what_ours_cannot_be_is_refused(tmp_path, fields, says):
    theirs, _ = small_detrs()
    for name, value in fields.items():
        setattr(theirs.config, name, value)
    theirs.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=says):
        convert(tmp_path, tmp_path / "own.safetensors")


def test_what_theirs_cannot_be_is_refused(tmp_path):
    small = {"block": "basic", "stages": (1, 1), "width": 8, "norm": "frozen"}
    model = vitreous.create("detr", image_size=64, backbone="resnet", backbone_fields=small)
    own = own_file(tmp_path / "own.safetensors", model)
    with pytest.raises(CheckpointError, match="has a resnet-18, 34, 50 or 101"):
        convert(own, tmp_path / "folder", to_format="huggingface")
    for field, value in {"add_position": True, "temperature": 20.0}.items():
        changed = {"image_size": 64, "backbone_fields": small, field: value}
        ours = vitreous.create("detr", backbone="resnet", **changed)
        for format in ("huggingface", "official"):
            with pytest.raises(CheckpointError, match=f"{field} = {value}"):
                vitreous.export_weights(ours, format)


# Matching and losses


def outputs_and_targets(counts, layers=3, queries=7, seed=0):
    random = torch.Generator().manual_seed(seed)
    batch = len(counts)
    logits = torch.randn(layers, batch, queries, CLASSES + 1, generator=random)
    boxes = 0.2 + 0.5 * torch.rand(layers, batch, queries, 4, generator=random)
    targets = [
        {
            "labels": torch.randint(0, CLASSES, (count,), generator=random),
            "boxes": 0.2 + 0.4 * torch.rand(count, 4, generator=random),
        }
        for count in counts
    ]
    return DETROutput(logits, boxes), targets


def as_theirs(targets):
    return [{"class_labels": one["labels"], "boxes": one["boxes"]} for one in targets]


COUNTS = [(3, 0, 5, 1), (0, 0), (7,), (9, 2), (1, 1, 1)]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_matching_is_theirs(counts):
    (logits, boxes), targets = outputs_and_targets(counts)
    matcher = HungarianMatcher(class_cost=1, bbox_cost=5, giou_cost=2)
    ours = match(logits, boxes, targets)
    for layer in range(len(logits)):
        theirs = matcher({"logits": logits[layer], "pred_boxes": boxes[layer]}, as_theirs(targets))
        first = 0
        for image, (queries, things) in enumerate(theirs):
            mine = (ours.layer == layer) & (ours.image == image)
            assert torch.equal(ours.query[mine], queries)
            assert torch.equal(ours.target[mine] - first, things)
            first += counts[image]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_every_term_of_the_loss_is_theirs(counts):
    output, targets = outputs_and_targets(counts)
    config = DetrConfig(num_labels=CLASSES, decoder_layers=3, auxiliary_loss=True)
    total, theirs, _ = ForObjectDetectionLoss(
        output.logits[-1], as_theirs(targets), "cpu", output.boxes[-1], config, *output
    )
    ours = Detect(LabelMap.of_names("abcd")).loss(output, targets)
    weights = {"class": ("loss_ce", 1), "box": ("loss_bbox", 5), "giou": ("loss_giou", 2)}
    for name, (theirs_name, weight) in weights.items():
        aux = weight * (theirs[f"{theirs_name}_0"] + theirs[f"{theirs_name}_1"])
        for got, wanted in ((ours[name], weight * theirs[theirs_name]), (ours[f"aux_{name}"], aux)):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(sum(ours.values()), total, rtol=1e-5, atol=1e-7)


@torch.no_grad()
def test_answers_are_theirs():
    """Scores, classes and boxes in pixels, as its processor gives them."""
    from transformers import DetrImageProcessor

    theirs, ours = small_detrs()
    vitreous.import_weights(ours, theirs.state_dict())
    images, sizes = images_of((96, 80), (64, 128)), [(480, 400), (77, 154)]
    wanted = [  # each by itself: that is how images of different sizes are answered here
        DetrImageProcessor().post_process_object_detection(
            theirs(pixel_values=image[None]), threshold=0.0, target_sizes=torch.tensor([size])
        )[0]
        for image, size in zip(images, sizes, strict=True)
    ]
    for got, one in zip(
        Detect(LabelMap.of_names("abcd")).infer(TorchEngine(ours), images, sizes),
        wanted,
        strict=True,
    ):
        assert relative_error(got.scores, one["scores"][got.queries]) < TOLERANCE
        assert torch.equal(got.labels, one["labels"][got.queries])
        assert relative_error(got.boxes, one["boxes"][got.queries]) < TOLERANCE


# The authors' release


def released(key):
    """What the release calls a key of transformers'."""
    key = key.removeprefix("model.")
    for theirs, official in {
        r"^backbone\.model": "backbone.0.body",
        r"^input_projection": "input_proj",
        r"^query_position_embeddings": "query_embed",
        r"^class_labels_classifier": "class_embed",
        r"^bbox_predictor": "bbox_embed",
        r"^(en|de)coder": r"transformer.\1coder",
        r"encoder_attn_layer_norm": "norm2",
        r"self_attn_layer_norm": "norm1",
        r"(encoder\.layers\.\d+\.)final_layer_norm": r"\1norm2",
        r"(decoder\.layers\.\d+\.)final_layer_norm": r"\1norm3",
        r"encoder_attn": "multihead_attn",
        r"o_proj": "out_proj",
        r"mlp\.fc": "linear",
        r"decoder\.layernorm": "decoder.norm",
    }.items():
        key = re.sub(theirs, official, key)
    return key


def official_state(theirs):
    """Queries, keys and values are one matrix there, as torch's own attention keeps them."""
    state, apart = {}, {}
    for key, value in theirs.state_dict().items():
        found = re.match(r"(.*)\.([qkv])_proj\.(weight|bias)", released(key))
        if found is None:
            state[released(key)] = value
        else:
            apart.setdefault(f"{found[1]}.in_proj_{found[3]}", {})[found[2]] = value
    return state | {key: torch.cat([part[n] for n in "qkv"]) for key, part in apart.items()}


@torch.no_grad()
def test_official(tmp_path):
    theirs, ours = small_detrs()
    state = official_state(theirs)
    for key in (
        "transformer.encoder.layers.1.self_attn.in_proj_weight",
        "transformer.decoder.layers.0.multihead_attn.out_proj.bias",
        "transformer.decoder.layers.1.norm3.weight",
        "transformer.decoder.norm.bias",
        "backbone.0.body.layer2.0.downsample.1.running_var",
        "class_embed.weight",
        "bbox_embed.layers.2.bias",
        "query_embed.weight",
        "input_proj.weight",
    ):
        assert key in state
    write_tensors(tmp_path / "detr.pth", state, "pth", wrap="model")
    report = vitreous.import_weights(ours, tmp_path / "detr.pth")
    assert report.format == "official"
    assert report.loaded == list(ours.state_dict())
    assert not report.dropped
    agree(ours, theirs, images_of((96, 80), (64, 128)))
    exported = vitreous.export_weights(ours, "official")
    assert exported.keys() == state.keys()
    assert all(torch.equal(exported[key], state[key]) for key in state)
    write_tensors(tmp_path / "again.pth", exported, "pth", wrap="model")
    fields = {"backbone_fields": {"norm": "frozen"}, "dim": 32, "heads": 4, "mlp_dim": 48}
    depths = {"encoder_depth": 2, "decoder_depth": 2, "queries": 6, "image_size": 64}
    done = convert(
        tmp_path / "again.pth",
        tmp_path / "own.safetensors",
        model="detr",
        changes={"backbone": "resnet-18", **fields, **depths},
    )
    assert done.config.classes == CLASSES


@torch.no_grad()
def test_other_classes_start_afresh():
    theirs, _ = small_detrs()
    ours = small_detrs()[1]
    other = vitreous.create("detr", **{**vars(ours.config), "classes": 2}).eval()
    with pytest.raises(CheckpointError, match="as many classes, or let the head start afresh"):
        vitreous.import_weights(other, theirs.state_dict())
    report = vitreous.import_weights(other, theirs.state_dict(), reinit=["class_head.*"])
    assert report.reinitialised == ["class_head.weight", "class_head.bias"]


@torch.no_grad()
def test_a_dilated_backbone_is_torchvisions():
    bottleneck = torchvision.models.resnet.Bottleneck
    theirs = perturb(
        torchvision.models.ResNet(
            bottleneck, [1, 1, 1, 2], 7, replace_stride_with_dilation=[False, False, True]
        )
    )
    ours = vitreous.create("resnet", stages=(1, 1, 1, 2), dilated=True, classes=7).eval()
    vitreous.import_weights(ours, theirs.state_dict(), "torchvision")
    images = picture(2, 3, 64, 96)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE


@torch.no_grad()
def test_a_backbone_from_imagenet():
    """As the paper begins: a classifier's weights, its norms as they are from now on."""
    theirs = perturb(torchvision.models.resnet18())
    ours = small_detrs()[1]
    report = vitreous.import_weights(ours.backbone, theirs.state_dict(), reinit=["head.*"])
    assert report.loaded == list(ours.backbone.state_dict())
    counters = [key for key in report.dropped if key.endswith("num_batches_tracked")]
    assert sorted(report.dropped) == sorted([*counters, "fc.weight", "fc.bias"])
    images = picture(2, 3, 64, 96)
    for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        images = getattr(theirs, part)(images)
    (found,) = ours.maps(picture(2, 3, 64, 96))
    assert relative_error(found, images) < TOLERANCE
    again = vitreous.export_weights(ours.backbone, "torchvision")
    missing, left = torchvision.models.resnet18().load_state_dict(again, strict=False)
    assert (missing, left) == (["fc.weight", "fc.bias"], [])
