"""Convolutions before and behind the patch embedding: config, sizes, and strangers' checkpoints."""

import json

import pytest
import torch
from compare import perturb, picture, relative_error
from PIL import Image
from runs import made
from torch import nn

import vitreous
from vitreous.cli.main import main
from vitreous.config import config_fields, from_dict, to_dict
from vitreous.engines.summary import summarise
from vitreous.errors import ConfigError
from vitreous.layers.conv_stem import ConvLayer
from vitreous.models.vit import ViTConfig
from vitreous.train.optimizer import batch_norms, freeze
from vitreous.weights.fields import GivenFields
from vitreous.weights.infer import infer

SMALL = {"dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "classes": 5}
SIZE = (32, 48)
BEFORE = {
    "image_size": SIZE,
    "patch": 2,
    "stem": "conv",
    "stem.layers": [
        {"width": 8, "stride": 2, "bias": False, "norm": "batch", "activation": "relu"},
        {"width": 16, "kernel": 5, "stride": 2, "norm": "group", "norm_groups": 4},
    ],
}
BEHIND = {
    "image_size": SIZE,
    "patch": 4,
    "stem": "conv",
    "stem.patch_dim": 16,
    "stem.grid_layers": [
        {"width": 32, "kernel": 2, "stride": 2, "padding": 0, "activation": "gelu"},
        {"groups": 32, "norm": "layer", "residual": True},
    ],
}
PLACES = pytest.mark.parametrize("fields", [BEFORE, BEHIND], ids=["before", "behind"])


class Stranger(nn.Module):
    """Somebody's model: convolutions, patches, perhaps more convolutions, torch's encoder."""

    def __init__(self, before, cut, behind, places):
        super().__init__()
        self.early, self.cut, self.late = before, cut, behind
        self.where = nn.Parameter(torch.randn(places, 32))
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(
            layer, 2, norm=nn.LayerNorm(32), enable_nested_tensor=False
        )
        self.answer = nn.Linear(32, 5)

    def forward(self, images):
        x = self.late(self.cut(self.early(images))).flatten(2).transpose(1, 2) + self.where
        return self.answer(self.body(x).mean(1))


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.dw = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.bn = nn.BatchNorm2d(32, eps=1e-3)

    def forward(self, x):
        return x + self.bn(self.dw(x)).relu()


RULES = """
numbers = { norm_eps = 1e-5 }
[rules]
"patch.{p}" = "cut.{p}"
"position.table" = "where"
"blocks.{i}.norm{k}.{p}" = "body.layers.{i}.norm{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = "body.layers.{i}.self_attn.in_proj_{p}"
"blocks.{i}.attention.projection.{p}" = "body.layers.{i}.self_attn.out_proj.{p}"
"blocks.{i}.mlp.fc{k}.{p}" = "body.layers.{i}.linear{k}.{p}"
"norm.{p}" = "body.norm.{p}"
"head.out.{p}" = "answer.{p}"
"""
STRANGERS = {
    "before": (
        lambda: Stranger(
            nn.Sequential(
                *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.GELU()),
                *(nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.GELU()),
            ),
            nn.Conv2d(16, 32, 2, 2),
            nn.Identity(),
            24,
        ),
        '"stem.layers.{i}.conv.{p}" = "early.{3i}.{p}"\n'
        '"stem.layers.{i}.norm.{p}" = "early.{3i+1}.{p}"\n',
        {
            "patch": 2,
            "stem": "conv",
            "stem.layers": [
                {"width": w, "stride": 2, "bias": False, "norm": "batch", "activation": "gelu"}
                for w in (8, 16)
            ],
        },
    ),
    "behind": (
        lambda: Stranger(nn.Identity(), nn.Conv2d(3, 32, 8, 8), Depthwise(), 24),
        '"grid_stem.layers.0.conv.{p}" = "late.dw.{p}"\n'
        '"grid_stem.layers.0.norm.{p}" = "late.bn.{p}"\n',
        {
            "patch": 8,
            "stem": "conv",
            "stem.grid_layers": [
                {
                    **{"kernel": 3, "groups": 32, "norm": "batch", "norm_eps": 1e-3},
                    **{"activation": "relu", "residual": True},
                }
            ],
        },
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", STRANGERS)
def test_a_strangers_checkpoint_needs_rules_and_no_code(name, tmp_path):
    make, more, fields = STRANGERS[name]
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES + more)
    assert len((RULES + more).strip().splitlines()) <= 15
    theirs = perturb(make())
    ours = vitreous.create(
        "vit", **{**SMALL, **fields, "image_size": SIZE}, tokens="none", pool="mean"
    ).eval()
    state = theirs.state_dict()
    vitreous.import_weights(ours, state, format=rules)
    images = picture(2, 3, *SIZE)
    wanted = theirs(images)
    assert wanted.std() > 1e-3
    assert relative_error(ours(images), wanted) < 1e-5
    back = vitreous.export_weights(ours, format=rules)
    assert back.keys() == state.keys()
    for key, value in state.items():
        assert torch.equal(back[key], value), key
        assert back[key].shape == value.shape, key
    theirs.load_state_dict(back, strict=True)


@PLACES
def test_grid_and_pixels_follow_from_the_strides(fields):
    model = perturb(vitreous.create("vit", **SMALL, **fields, dynamic_size=True))
    assert model.config.grid == (4, 6)
    for size in (SIZE, (64, 32)):
        level = model.levels(size)[-1]
        assert level.grid == (size[0] // 8, size[1] // 8)
        assert level.pixels == (8, 8)
        assert model.maps(picture(1, 3, *size))[0].shape == (1, 32, *level.grid)
        assert {layer.columns.grid for layer in model.attentions(size)} == {level.grid}
    names = [name for name in model.state_dict() if "stem" in name]
    stem = "stem" if "stem.layers" in fields else "grid_stem"
    assert f"{stem}.layers.0.conv.weight" in names
    assert f"{stem}.layers.1.norm.weight" in names
    rows = {row.name: row for row in summarise(model)}
    assert sum(row.parameters for row in rows.values()) == sum(
        p.numel() for p in model.parameters()
    )
    assert rows[stem].shape == ((8, 12, 16) if stem == "stem" else (4, 6, 32))


@PLACES
def test_every_parameter_learns_and_torch_exports_it(fields):
    model = perturb(vitreous.create("vit", **SMALL, **fields)).train()
    model(picture(2, 3, *SIZE)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    learning = {p for layer in model.layers() for part in layer for p in part.parameters()}
    assert learning == set(model.parameters())
    model.eval()
    images = picture(3, 3, *SIZE)
    with torch.no_grad():
        program = torch.export.export(
            model, (picture(2, 3, *SIZE),), dynamic_shapes=({0: torch.export.Dim("b")},)
        )
        assert relative_error(program.module()(images), model(images)) < 1e-6


@torch.no_grad()
def test_by_torch_itself():
    model, images = perturb(vitreous.create("vit", **SMALL, **BEFORE)), picture(2, 3, *SIZE)
    first, second = model.stem.layers
    x = nn.functional.conv2d(images, first.conv.weight, None, 2, 1)
    x = nn.functional.batch_norm(
        x, *(getattr(first.norm, n) for n in ("running_mean", "running_var", "weight", "bias"))
    ).relu()
    x = nn.functional.conv2d(x, second.conv.weight, second.conv.bias, 2, 2)
    x = nn.functional.group_norm(x, 4, second.norm.weight, second.norm.bias)
    torch.testing.assert_close(model.stem(images), x)
    model, patches = perturb(vitreous.create("vit", **SMALL, **BEHIND)), picture(2, 16, 8, 12)
    first, second = model.grid_stem.layers
    x = nn.functional.gelu(nn.functional.conv2d(patches, first.conv.weight, first.conv.bias, 2))
    y = nn.functional.conv2d(x, second.conv.weight, second.conv.bias, padding=1, groups=32)
    y = nn.functional.layer_norm(y.mT.transpose(1, 3), (32,), second.norm.weight, second.norm.bias)
    wanted = x.mT.transpose(1, 3) + y
    torch.testing.assert_close(model.grid_stem(patches.permute(0, 2, 3, 1)), wanted)


@torch.no_grad()
@pytest.mark.parametrize(("family", "part"), [("segmenter", "encoder"), ("detr", "backbone")])
def test_inside_other_models(family, part):
    small = {} if family == "segmenter" else {"encoder_depth": 1, "decoder_depth": 1, "queries": 3}
    inner = {k: v for k, v in {**SMALL, **BEFORE}.items() if k not in ("classes", "image_size")}
    fields = {part: "vit", f"{part}_fields": inner}
    model = perturb(vitreous.create(family, image_size=SIZE, classes=5, **small, **fields))
    images = picture(1, 3, 29, 51)
    output = model(images)
    if family == "segmenter":
        assert output.shape == (1, 5, 29, 51)
    else:
        both = model([images[0], picture(1, 3, 40, 20)[0]])
        assert relative_error(both.logits[:, :1], output.logits) < 1e-5


def test_frozen_batch_norms_stay_as_they_are():
    model = vitreous.create("vit", **SMALL, **BEFORE)
    freeze(model, ("stem.*",))
    assert batch_norms(model, trained=False) == [model.stem.layers[0].norm]


@PLACES
def test_config_as_json_and_as_text(fields):
    config = from_dict(ViTConfig, {**SMALL, **fields})
    assert from_dict(ViTConfig, json.loads(json.dumps(to_dict(config)))) == config
    assert hash(config) is not None
    for name in ("layers", "grid_layers"):  # as it is printed, it can be given
        text = f"stem.{name}={list(getattr(config.stem, name))}"
        assert from_dict(ViTConfig, {**SMALL, **fields, **config_fields([text])}) == config
    text = 'stem.layers=[{width = 8, stride = 2, norm = "Batch"}, {kernel = [3, 5]}]'
    given = config_fields(["stem=conv", text])
    model = vitreous.create("vit", **SMALL, image_size=32, patch=4, **given)
    assert model.config.stem.layers == (
        ConvLayer(width=8, stride=(2, 2), norm="batch"),
        ConvLayer(kernel=(3, 5)),
    )


@pytest.mark.parametrize(
    ("stem", "message"),
    [
        ({"layers": [{"kernal": 3}]}, "stem.layers.*row 0: unknown field 'kernal': did you"),
        ({"layers": [{}, {"kernel_size": 3}]}, "row 1: .*did you mean 'kernel'"),
        ({"layers": {"kernel": 3}}, "stem.layers.*: expected a list of tables"),
        ({"layers": [3]}, "row 0: .*expected names and values, got 3"),
        ({"layers": [{"norm": "bach"}]}, "row 0: norm = 'bach' .*did you mean 'batch'"),
        ({"layers": [{}] * 100}, "stem.layers = .*fewer than 100 layers"),
        ({"layers": [{"width": 0}]}, "row 0: width = 0"),
        ({"layers": [{"padding": -1}]}, "row 0: padding = -1"),
        ({"layers": [{"padding": "haf"}]}, "row 0: padding = 'haf' .*did you mean 'half'"),
        ({"layers": [{"kernel": "3"}]}, "row 0: kernel = '3'"),
        ({"layers": [{"width": 6, "groups": 3}]}, r"stem.layers\[0\]: groups = 1 is needed"),
        ({"layers": [{"width": 8}, {"groups": 3}]}, r"\[1\]: groups = 3 does not divide 8"),
        ({"layers": [{"norm": "group", "width": 8}]}, "norm_groups = 32 does not divide"),
        ({"layers": [{"width": 8, "residual": True}]}, "residual = True needs"),
        ({"layers": [{"stride": 3, "padding": 0}]}, "the stem's map of 10x16 .*multiple of 24"),
        ({"layers": [{"kernel": 50, "padding": 0}]}, "a map of 32x48 is smaller than"),
        ({"grid_layers": [{"width": 16}]}, "the last with width = 32"),
        ({"patch_dim": 16}, "stem.patch_dim = 16, dim = 32: stem.grid_layers must lead"),
    ],
)
def test_bad_layers(stem, message):
    fields = {**SMALL, "image_size": SIZE, "patch": 8, "stem": {"kind": "conv", **stem}}
    with pytest.raises(ConfigError, match=message):
        vitreous.create("vit", **fields)


def test_a_hybrid_has_its_own_stem():
    with pytest.raises(ConfigError, match="a hybrid's stem is its ResNet"):
        vitreous.create("r+vit-ti/16", stem={"kind": "conv", "layers": [{}]})


@PLACES
def test_a_stem_shows_in_the_tensors(fields):
    """But for strides, padding, activations and residual branches, which are guessed."""
    model = vitreous.create("vit", **SMALL, **fields)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = infer(shapes, {}, GivenFields(model="vit", fields={"image_size": SIZE}))[0]
    name = "layers" if "stem.layers" in fields else "grid_layers"
    assert f"stem.{name}" in found.guessed
    ours, theirs = getattr(model.config.stem, name), getattr(found.config.stem, name)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.width or 32, one.kernel, one.groups, one.bias) == (
            *(other.width, other.kernel, other.groups, other.bias),
        )
    assert found.config.channels == 3
    assert found.config.stem.patch_width(32) == model.config.stem.patch_width(32)


@pytest.mark.parametrize("name", vitreous.models("vit-c*"))
def test_the_papers_models_are_known_by_their_tensors(name):
    with torch.device("meta"):
        model = vitreous.create(name, classes=7)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = infer(shapes, {}, GivenFields(search=False))
    assert (found[0].model, found[0].changes, found[0].misfits) == (name, {"classes": 7}, ())


def test_a_config_that_lacks_a_field_is_one_message(tmp_path, capsys):
    """What would have to be changed has tables of layers among it."""
    run = made(tmp_path / "run", "classify", "vit-c-mini/8", depth=1)
    config = json.loads((run / "config.json").read_text())
    del config["config"]["embedding"]
    (run / "config.json").write_text(json.dumps(config))
    photo = tmp_path / "a.png"
    Image.new("RGB", (64, 64)).save(photo)
    assert main(["predict", str(run), str(photo)]) == 2
    error = capsys.readouterr().err
    assert "embedding=none" in error or "patch.weight" in error
    assert error.startswith("vitreous: ")
