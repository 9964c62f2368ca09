"""A folder that `convert` writes is opened by the real library and computes the same, or it is
refused by the name of the field that the library does not have."""

import json

import pytest
import timm
import torch
import transformers
from compare import TOLERANCE, perturb, picture, relative_error
from runs import own_file

import vitreous
from vitreous.errors import VitreousError
from vitreous.weights.adopt import find
from vitreous.weights.convert import convert
from vitreous.weights.importing import load
from vitreous.weights.io.files import write_tensors
from vitreous.weights.timm_files import argument_maps

VIT = {"image_size": 32, "patch": 8, "dim": 48, "depth": 2, "heads": 4, "mlp_dim": 96, "classes": 7}
SWIN = {"image_size": 32, "dim": 16, "depths": (2, 2), "heads": (2, 4), "window": 4, "classes": 7}
EXACT = [
    ("huggingface", "vit", {"norm_eps": 1e-3, "attention.qkv_bias": False, "channels": 1}),
    ("huggingface", "vit", {"image_size": (24, 40), "patch": (4, 8), "head_dim": 12}),
    ("huggingface", "beit", {"layer_scale": None}),
    ("huggingface", "dinov2", {"pool": "class+mean", "registers": 2}),
    ("huggingface", "swin", {"image_size": (36, 44)}),
    ("timm", "vit", {"norm_eps": 1e-5}),
    ("timm", "vit", {"norm_eps": 1e-5, "pool": "mean", "final_norm": "pooled"}),
    ("timm", "clip", {"norm_eps": 1e-6}),
    ("timm", "vit", {"channels": 5, "image_size": (24, 40), "patch": (4, 8)}),
    ("timm", "vit", {"embed_norm": True, "embedding.bias": False}),
    ("timm", "dinov2", {"activation": "silu-gated", "norm_eps": 1e-6}),
    ("timm", "pe", {}),
    ("timm", "beit", {"channels": 1}),
    ("timm", "swin", {"window": 2}),
]
REFUSED = [
    ("huggingface", "vit", {"head_dim": 8}, "head_dim = 8"),
    (
        "huggingface",
        "vit",
        {"attention.projection_bias": False},
        "attention.projection_bias = False",
    ),
    ("huggingface", "vit", {"final_norm": "none"}, "final_norm = 'none'"),
    ("huggingface", "vit", {"position.grid": 6}, "position.grid"),
    ("huggingface", "vit", {"pool": "none"}, "transformers has no model like vit"),
    ("huggingface", "beit", {"image_size": (24, 40)}, "only square images"),
    ("huggingface", "swin", {"image_size": (32, 64)}, "larger than a window both ways"),
    ("huggingface", "swin", {"image_size": 16, "window": 7}, "at least one window"),
    ("timm", "vit", {"norm_eps": 1e-3}, r"norm_eps = 0.001.*: --set norm_eps=1e-06 or --set"),
    ("timm", "swin", {"norm_eps": 1e-6}, "norm_eps = 1e-06"),
    ("timm", "eva", {"norm_eps": 1e-3}, "norm_eps = 0.001"),
    ("timm", "vit", {"head": "tanh"}, "head = 'tanh'"),
    ("timm", "vit", {"pool": "attention"}, "pool = 'attention' with tokens = 'class'"),
    ("timm", "vit", {"embed_norm": True}, "embedding.bias = True with embed_norm = True"),
    ("timm", "beit", {"image_size": (24, 40)}, "only square images"),
    ("timm", "swin", {"image_size": (36, 44)}, "maps of whole windows"),
    ("timm", "swin", {"head": "none"}, "head = 'none'"),
    ("timm", "swin", {"window": (2, 4)}, "only square windows"),
]


def written(tmp_path, family, changes):
    fields = {**(SWIN if family == "swin" else VIT), **changes}
    if fields.get("head") == "none":
        del fields["classes"]
    model = perturb(vitreous.create(family, **fields))
    return model, own_file(tmp_path / "own.safetensors", model)


@torch.no_grad()
@pytest.mark.parametrize(("format", "family", "changes"), EXACT, ids=str)
def test_the_library_computes_the_same(tmp_path, format, family, changes):
    model, path = written(tmp_path, family, changes)
    folder = convert(path, tmp_path / "folder", to_format=format).written.parent
    images = picture(2, model.config.channels, *model.own_size())
    if format == "timm":
        theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        got = theirs(images)
    else:
        name = json.loads((folder / "config.json").read_text())["architectures"][0]
        kind = getattr(transformers, name)
        theirs, info = kind.from_pretrained(folder, output_loading_info=True)
        assert [*info["missing_keys"], *info["unexpected_keys"]] == []
        got = theirs.eval()(images).logits
    assert relative_error(got, model(images)) < TOLERANCE


@pytest.mark.parametrize(("format", "family", "changes", "words"), REFUSED, ids=str)
def test_what_it_cannot_be_told_is_refused_by_name(tmp_path, format, family, changes, words):
    _, path = written(tmp_path, family, changes)
    with pytest.raises(VitreousError, match=words):
        convert(path, tmp_path / "folder", to_format=format)
    assert not (tmp_path / "folder").exists()


def test_the_eps_of_architectures_is_timms():
    """What `convert` writes relies on it."""
    for name in {name for row in argument_maps().values() for name in row.architectures}:
        with torch.device("meta"):
            theirs = timm.create_model(
                name, **({} if "swin" in name or "resnet" in name else {"depth": 1})
            )
        norms = [
            m for m in theirs.modules() if isinstance(m, torch.nn.LayerNorm | torch.nn.BatchNorm2d)
        ]
        assert {norm.eps for norm in norms} == {vitreous.models.configure(name)[1].norm_eps}, name


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("vit_base_patch32_clip_224.openai", "activation"),
        ("vit_base_patch32_clip_quickgelu_224.openai", "activation"),
        ("vit_base_patch16_siglip_224", "activation"),
        ("vit_base_patch32_siglip_256", "activation"),
        ("vit_small_patch16_dinov3", "pool"),
        ("eva02_tiny_patch14_224", None),
    ],
)
def test_a_raw_file_is_as_timm_computes_it_or_asks(tmp_path, name, field):
    theirs = perturb(timm.create_model(name, num_classes=0, depth=1))
    state = {key: value.contiguous() for key, value in theirs.state_dict().items()}
    for file in (f"{name}.safetensors", "w.safetensors"):
        write_tensors(tmp_path / file, state, "safetensors")
    ours, _ = load(find(tmp_path / f"{name}.safetensors"))
    images = picture(2, 3, *theirs.pretrained_cfg["input_size"][1:])
    assert relative_error(ours(images), theirs(images)) < TOLERANCE
    if field is not None:
        with pytest.raises(VitreousError, match=f"do not show its {field}: pass --set {field}="):
            find(tmp_path / "w.safetensors")
    else:
        again, _ = load(find(tmp_path / "w.safetensors"))
        assert relative_error(again(images), theirs(images)) < TOLERANCE
