"""Both towers of CLIP, SigLIP and the Perception Encoder give open_clip's and transformers' vectors
and logits with their weights, and the other way."""

import functools

import open_clip
import pytest
import timm
import torch
import transformers as hf
from compare import TOLERANCE, assert_same_bits, perturb, picture, relative_error
from open_clip.model import CLIP, CustomTextCLIP

import vitreous
from vitreous.models import configure, has_words
from vitreous.models.names import translate
from vitreous.weights.adopt import find
from vitreous.weights.blank import without_values
from vitreous.weights.importing import load
from vitreous.weights.transformers_files import make_config

END = 98
"""The end token of the small vocabularies here."""
PUBLISHED = {  # what open_clip calls them
    "ViT-B-32": "clip-b/32",
    "ViT-B-16": "clip-b/16",
    "ViT-L-14": "clip-l/14",
    "ViT-H-14": "clip-h/14",
    "ViT-g-14": "clip-g/14",
    "ViT-bigG-14": "clip-G/14",
    "ViT-B-16-SigLIP": "siglip-b/16",
    "ViT-B-32-SigLIP2-256": "siglip-b/32",
    "ViT-L-16-SigLIP-256": "siglip-l/16",
    "ViT-SO400M-14-SigLIP": "siglip-so400m/14",
    "ViT-SO400M-16-SigLIP2-256": "siglip-so400m/16",
    "ViT-gopt-16-SigLIP2-256": "siglip-g/16",
    "PE-Core-T-16-384": "pe-ti/16",
    "PE-Core-S-16-384": "pe-s/16",
    "PE-Core-B-16": "pe-b/16",
    "PE-Core-L-14-336": "pe-l/14",
    "PE-Core-bigG-14-448": "pe-G/14",
}
NAMED = [
    name
    for name in open_clip.list_models()
    if translate(name) and has_words(name) and name not in PUBLISHED
]
"""Those whose names we know besides."""


def texts(length=12, count=5):
    """Token ids as a tokenizer of CLIP's gives them; the last text is as long as can be."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, END, (count, length), generator=generator)
    for row, ids_of_text in enumerate(ids):
        end = length - 1 if row == count - 1 else 1 + 2 * row
        ids_of_text[end], ids_of_text[end + 1 :] = END, 0
    return ids


def of_open_clip(name, monkeypatch=None):
    """A model of open_clip by its published config; with monkeypatch, a small one."""
    config = dict(open_clip.get_model_config(name))
    vision, text = dict(config.pop("vision_cfg")), dict(config.pop("text_cfg"))
    custom = config.pop("custom_text", False)
    if monkeypatch is not None:
        small = {"embed_dim": 48, "depth": 2, "num_heads": 4, "img_size": 2 * patch_of(name)}
        create = functools.partial(timm.create_model, **small)
        monkeypatch.setattr("open_clip.timm_model.timm.create_model", create)
        config["embed_dim"] = 48 if "SigLIP" in name else 24
        if "timm_model_name" not in vision:
            vision |= {"width": 48, "head_width": 12, "layers": 2, "image_size": 2 * patch_of(name)}
        text |= {"width": 32, "heads": 4, "layers": 3, "vocab_size": 99, "context_length": 12}
    kind = CustomTextCLIP if custom else CLIP
    return kind(**config, vision_cfg=vision, text_cfg=text).eval()


def patch_of(name):
    return next(int(part) for part in name.split("-") if part in ("14", "16", "32"))


def ours_like(theirs, name):
    """Our model of the same name, as small."""
    ours, both = name, {}
    if translate(name) is None:  # OpenAI's file has the same name, and another activation
        ours, both = PUBLISHED[name], {"activation": "gelu"}
    state = theirs.state_dict()
    mlp = [state[key] for key in state if key.endswith(("mlp.c_fc.weight", "mlp.fc1.weight"))]
    image = {"dim": 48, "depth": 2, "heads": 4, "mlp_dim": len(mlp[0])}
    end = {} if "SigLIP" in name else {"pool.token": END}
    words = {"dim": 32, "depth": 3, "heads": 4, "vocabulary": 99, "length": 12, **end}
    fc = [key for key in state if key.endswith("mlp.c_fc.weight") and "visual" not in key]
    words["mlp_dim"] = len(state[fc[0]])
    if name.startswith("PE-Core-bigG"):
        image["pool.mlp_dim"] = len(state["visual.trunk.attn_pool.mlp.fc1.weight"])
    sized = {"image_size": 2 * patch_of(name), "dim": 48 if "SigLIP" in name else 24}
    return vitreous.create(ours, **both, **sized, image_fields=image, text_fields=words).eval()


@torch.no_grad()
def assert_same_vectors(ours, theirs, images, ids):
    """Of images, of texts, and how alike these are."""
    want = theirs(images, ids)
    assert want[0].std() > 1e-3
    assert want[1].std() > 1e-3
    got = ours(images, ids)
    assert relative_error(ours.image_vectors(images), want[0]) < TOLERANCE
    assert relative_error(ours.text_vectors(ids), want[1]) < TOLERANCE
    assert relative_error(got.images, want[0]) < TOLERANCE
    logits = want[2] * want[0] @ want[1].T + (want[3] if len(want) > 3 else 0)
    assert relative_error(got.logits, logits) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("name", [*PUBLISHED, "ViT-B-32-quickgelu", "ViT-B-16-SigLIP2"])
def test_open_clip(name, monkeypatch):
    """Small models by the published configs, with random weights: both ways, and to the bit."""
    theirs = perturb(of_open_clip(name, monkeypatch))
    bias = [key for key in theirs.state_dict() if key == "visual.trunk.head.bias"]
    for key in bias:  # zeros, in the published files
        theirs.get_parameter(key).zero_()
    ours = ours_like(theirs, name)
    images, ids = picture(2, 3, *ours.own_size()), texts()
    report = vitreous.import_weights(ours, theirs.state_dict())
    assert report.format == "open_clip"
    assert sorted(report.loaded) == sorted(ours.state_dict())
    assert report.dropped == bias
    assert_same_vectors(ours, theirs, images, ids)
    assert_same_bits(vitreous.export_weights(ours, "open_clip"), theirs.state_dict())
    perturb(ours, seed=5)
    ours.similarity.log_scale.fill_(0.3)
    theirs.load_state_dict(vitreous.export_weights(ours, "open_clip"), strict=True)
    assert_same_vectors(ours, theirs, images, ids)


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_of_open_clip(name):
    """As published, in full; timm gives PE's projection a bias, of zeros."""
    ours = name if translate(name) else PUBLISHED[name]
    with without_values():
        theirs = sum(each.numel() for each in of_open_clip(name).state_dict().values())
        ours = vitreous.create(ours)
    theirs -= ours.config.dim if name.startswith("PE") else 0
    assert sum(each.numel() for each in ours.state_dict().values()) == theirs


def test_names_of_open_clip():
    assert len(NAMED) >= 25, NAMED
    for name in NAMED:
        config = open_clip.get_model_config(name)
        pair = configure(name)[1]
        size = config["vision_cfg"]["image_size"]
        assert pair.image_size == (
            (378, 378) if "SO400M-14" in name and size == 384 else (size,) * 2
        )
        text = configure(pair.text, **pair.inner_fields("text", None))[1]
        image = configure(pair.image, **pair.inner_fields("image", None))[1]
        tanh = "tanh" in str(config["text_cfg"].get("act_kwargs"))
        quick = "quick-gelu" if config.get("quick_gelu") else "gelu"
        assert text.activation == ("gelu-tanh" if tanh else quick), name
        timms = config["vision_cfg"].get("timm_model_name")
        theirs = configure(timms)[1].activation if timms else quick
        assert image.activation == theirs, name
        words = config["text_cfg"]
        assert text.vocabulary == words["vocab_size"]
        assert (text.length, text.dim) == (words["context_length"], words["width"])


SMALL = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 96}
VISION = {**SMALL, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8}
TEXT = {**SMALL, "num_hidden_layers": 3, "vocab_size": 99, "max_position_embeddings": 12}
TEXT |= {"bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0}


def of_transformers(kind):
    text, vision, both = dict(TEXT), dict(VISION), {}
    if kind == "clip, old end":
        text["eos_token_id"] = 2
    if kind == "clip, gelu":
        text["hidden_act"] = vision["hidden_act"] = "gelu"
    if kind == "siglip, wider":
        text |= {"hidden_size": 32, "projection_size": 48}
    if kind.startswith("clip"):
        both = {"projection_dim": 24}
        config = hf.CLIPConfig(text_config=text, vision_config=vision, **both)
        return perturb(hf.CLIPModel(config))
    return perturb(hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=vision)))


@torch.no_grad()
def outputs(theirs, images, ids):
    found = theirs(input_ids=ids, pixel_values=images)
    bias = [theirs.logit_bias] if hasattr(theirs, "logit_bias") else []
    vectors = found.image_embeds, found.text_embeds
    return lambda images, ids: (*vectors, theirs.logit_scale.exp(), *bias), found.logits_per_image


@torch.no_grad()
@pytest.mark.parametrize("kind", ["clip", "clip, old end", "clip, gelu", "siglip", "siglip, wider"])
def test_transformers(kind, tmp_path):
    """Folders: read with their numbers, written, read by them; the vectors and logits are equal."""
    theirs = of_transformers(kind)
    theirs.save_pretrained(tmp_path / "theirs")
    images, ids = picture(2, 3, 32, 32), texts()
    ours, report = load(find(tmp_path / "theirs"))
    assert (report.format, report.dropped) == ("huggingface", [])
    assert ours.config.text_fields.get("pool") == ("largest" if "old" in kind else None)
    called, logits = outputs(theirs, images, ids)
    assert_same_vectors(ours, called, images, ids)
    assert relative_error(ours(images, ids).logits, logits) < TOLERANCE
    for format in ("huggingface", "huggingface-v4"):
        exported = vitreous.export_weights(ours, format)
        assert_same_bits(exported, theirs.state_dict())
        done = vitreous.convert(tmp_path / "theirs", tmp_path / format, to_format=format)
        assert done.difference == 0
        again, info = type(theirs).from_pretrained(tmp_path / format, output_loading_info=True)
        assert [*info["missing_keys"], *info["unexpected_keys"]] == []
        got = again.eval()(input_ids=ids, pixel_values=images)
        assert relative_error(got.logits_per_image, logits) < TOLERANCE
    perturb(ours, seed=7)
    ours.similarity.log_scale.fill_(0.5)
    theirs.load_state_dict(vitreous.export_weights(ours, "huggingface"), strict=True)
    assert_same_vectors(ours, outputs(theirs, images, ids)[0], images, ids)


@torch.no_grad()
@pytest.mark.parametrize("projects", [True, False])
def test_text_tower_of_transformers_alone(projects):
    kind = hf.CLIPTextModelWithProjection if projects else hf.CLIPTextModel
    theirs = perturb(kind(hf.CLIPTextConfig(**TEXT, projection_dim=24)))
    small = {"dim": 48, "depth": 3, "heads": 4, "mlp_dim": 96, "vocabulary": 99, "length": 12}
    head = {"head": "projection", "classes": 24} if projects else {"head": "none"}
    ours = vitreous.create("clip-b/32", part="text", **small, **head, **{"pool.token": END}).eval()
    report = vitreous.import_weights(ours, theirs.state_dict())
    assert report.format == "huggingface"
    assert not report.dropped
    assert_same_bits(vitreous.export_weights(ours, "huggingface"), theirs.state_dict())
    want = theirs(texts())
    want = want.text_embeds if projects else want.pooler_output
    assert relative_error(ours(texts()), want) < TOLERANCE


@pytest.mark.parametrize(
    "name",
    ["clip-b/32", "clip-l/14", "clip-G/14", "siglip-b/16", "siglip-so400m/14", "siglip-g/16"],
)
def test_configs_for_transformers(name):
    """What we write makes a model of the same size there, as published."""
    with without_values():
        ours = vitreous.create(name)
        config = make_config(ours)
        kind = {"clip": hf.CLIPModel, "siglip": hf.SiglipModel}[config["model_type"]]
        theirs = kind(kind.config_class(**config))
    count = sum(each.numel() for each in theirs.parameters())
    assert count == sum(each.numel() for each in ours.parameters())
    assert theirs.config.text_config.max_position_embeddings == ours.text.config.length


@torch.no_grad()
def test_perception_encoder_in_its_own_names(monkeypatch):
    """Its own files have the text tower as open_clip's CLIP has it, beside `visual.`"""
    theirs = perturb(of_open_clip("PE-Core-B-16", monkeypatch))
    theirs.visual.trunk.head.bias.zero_()
    ours = ours_like(theirs, "PE-Core-B-16")
    vitreous.import_weights(ours, theirs.state_dict())
    own = vitreous.export_weights(ours, "official")
    text = {f"text.{name}": v for name, v in own.items() if not name.startswith("visual.")}
    scale = text.pop("text.logit_scale")
    assert {f"text.{name}" for name in theirs.text.state_dict()} == text.keys()
    assert torch.equal(scale, theirs.logit_scale)
    again = perturb(ours_like(theirs, "PE-Core-B-16"))
    assert vitreous.import_weights(again, own).format == "official"
    images, ids = picture(2, 3, *ours.own_size()), texts()
    assert_same_vectors(again, theirs, images, ids)


@torch.no_grad()
def test_the_original_clip(monkeypatch):
    """OpenAI's own files are half precision, and have three numbers besides."""
    theirs = perturb(of_open_clip("ViT-B-32-quickgelu", monkeypatch))
    ours = ours_like(theirs, "ViT-B-32-quickgelu")
    state = {name: value.half() for name, value in theirs.state_dict().items()}
    sizes = {"input_resolution": 64, "context_length": 12, "vocab_size": 99}
    report = vitreous.import_weights(ours, {**state, **sizes})
    assert sorted(report.dropped) == sorted(sizes)
    theirs.load_state_dict(state)
    assert_same_vectors(ours, theirs, picture(2, 3, 64, 64), texts())
