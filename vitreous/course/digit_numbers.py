"""What the digits model of the course does with the digits that it was not trained with. Texts ask
for it by `facts.py`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from vitreous.course import DIGITS
from vitreous.course.draws import bound
from vitreous.course.study_numbers import Language
from vitreous.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vitreous.models.vit import ViT
    from vitreous.predict import Predictor

SIZE = 8
Which = Literal["least", "most", "even"]


def digits_accuracy(probe: str = "", size: int = SIZE) -> str:
    """`98.9 %`: with a probe of `vitreous evaluate --probe`; of digits enlarged to some size."""
    return f"{100 * _accuracy(probe, size):.1f} %"


def digits_mistaken(mistake: str) -> str:
    """`85.0 %`: if the code has one of `MISTAKES`, with the same parameters."""
    if mistake not in MISTAKES:
        hint = did_you_mean(mistake, MISTAKES) or f": there are {', '.join(MISTAKES)}"
        raise ConfigError(f"unknown mistake {mistake!r}{hint}")
    return f"{100 * _right(_changed(mistake), *_digits()):.1f} %"


def digits_baseline(name: str = "k-NN on pixels") -> str:
    """`99.4 %`: what knows nothing of images, on the same digits."""
    return f"{100 * _verdict()['baselines'][name]['accuracy']:.1f} %"


def digits_count(split: Literal["train", "test"] = "train") -> str:
    """`1,295`: digits that it learned from, or those that it is tested with."""
    from vitreous.data.formats import open_source

    return f"{len(open_source('digits').splits[split]):,}"


@cache
def digits_certainty() -> str:
    """`89.4 %`: the largest probability that softmax gives, in the mean."""
    import torch

    with torch.no_grad():
        largest = _model()(_digits()[0]).softmax(dim=1).amax(dim=1)
    return f"{100 * largest.mean().item():.1f} %"


@cache
def tanh_difference() -> str:
    """`0.004`: how far the logits move at most, if GELU is computed by its formula with tanh."""
    import torch

    images, _ = _digits()
    with torch.no_grad():
        difference = _changed("tanh")(images) - _model()(images)
    return f"{difference.abs().max().item():.3f}"


def score_variance(which: Which) -> str:
    """`0.3`: of the scores behind the division by √e, in the head where it is the least, or the
    most."""
    return f"{_chosen([scores.var().item() for scores in _scores()], which, 1.0):.1f}"


def own_weight(which: Which) -> str:
    """`5 %`: how much of its attention a token gives to itself, in the mean, in the head where it
    is the least, or the most; or if attention were even."""
    found = [each.softmax(-1).diagonal(dim1=-2, dim2=-1).mean().item() for each in _scores()]
    return f"{100 * _chosen(found, which, 1 / _scores()[0].shape[-1]):.0f} %"


def exchanged_scores(which: Which = "most") -> str:
    """`0.2`: the correlation between the score of i for j and that of j for i, in the head where
    it is the least, or the most."""
    import torch

    found = [
        torch.corrcoef(torch.stack((each.flatten(), each.mT.flatten())))[0, 1].item()
        for each in _scores()
    ]
    return f"{_chosen(found, which, 0.0):.1f}"


@cache
def key_bias_difference(lang: Language = "en") -> str:
    """`below 1e-12`: how far the logits move, at most, without the bias of the keys."""
    import torch

    model = copy.deepcopy(_model()).double()
    images = _digits()[0].double()
    with torch.no_grad():
        before = model(images)
        for block in _blocks(model):
            block.attention.qkv.bias.unflatten(0, (3, -1))[1] = 0
        return bound((model(images) - before).abs().max().item(), lang)


@cache
def attention_distance(which: Which) -> str:
    """`3.5`: pixels, of the head that looks nearest, or furthest; or if attention were even."""
    import torch

    from vitreous.explain.distances import mean_distances

    model = _model()
    (height, width), (gh, gw) = model.config.pixels, model.config.grid
    places = torch.cartesian_prod(torch.arange(gh) * float(height), torch.arange(gw) * float(width))
    even = torch.cdist(places, places).mean().item()
    found = torch.cat(mean_distances(model, [_digits()[0]]).result())
    return f"{_chosen(found.tolist(), which, even):.1f}"


@cache
def norm_influence(norm: Literal["layer", "batch"]) -> str:
    """`0.12`: how far numbers behind the first norm move, in the mean, if a digit comes with seven
    others and not alone; as LayerNorm, or as a BatchNorm that trains."""
    import torch

    from vitreous.layers.uncommon import BatchNorm

    model, (images, _) = _model(), _digits()
    made = _blocks(model)[0].norm1 if norm == "layer" else BatchNorm(model.config.dim)
    with torch.no_grad():
        z, _ = model.embed(images[:8])
        alone, together = made(z[:1])[0], made(z)[0]
    return f"{(alone - together).abs().mean().item():.2f}"


@cache
def heaviest_adds_most() -> str:
    """`82 %`: of the digits for which the patch with the largest weight in the class token's last
    row is also the one that adds the longest vector to it."""
    import torch

    model = _model()
    block = _blocks(model)[-1]
    attention = block.attention
    with torch.no_grad():
        x = model.encode(*model.embed(_digits()[0]), 0, len(model.blocks) - 1)
        v = attention.split(attention.qkv(block.norm1(x)))[2][:, :, 1:]  # (b, h, patches, e)
        weights = torch.stack(_scores()[-attention.heads :], 1).softmax(-1)[:, :, 0, 1:]
        joined = attention.projection.weight.unflatten(1, (attention.heads, -1))  # (d, h, e)
        added = torch.einsum("bhn,bhne,dhe->bnd", weights, v, joined).norm(dim=-1)
    same = weights.mean(dim=1).argmax(dim=1) == added.argmax(dim=1)
    return f"{100 * same.double().mean().item():.0f} %"


# ---- mistakes that no count of parameters sees


def _unscaled(model: ViT) -> None:
    for block in _blocks(model):
        block.attention.scale = 1.0


def _tanh(model: ViT) -> None:
    from torch import nn

    for block in _blocks(model):
        block.mlp.activation = nn.GELU(approximate="tanh")


def _relu(model: ViT) -> None:
    from torch import nn

    for block in _blocks(model):
        block.mlp.activation = nn.ReLU()


def _one_head(model: ViT) -> None:
    for block in _blocks(model):
        attention = block.attention
        attention.heads, attention.head_dim = 1, attention.heads * attention.head_dim
        attention.scale = attention.head_dim**-0.5


MISTAKES: dict[str, Callable[[ViT], None]] = {
    "no scale": _unscaled,
    "tanh": _tanh,
    "ReLU": _relu,
    "one head": _one_head,
}


@cache
def _changed(mistake: str) -> ViT:
    """The model with a mistake; its parameters are the same."""
    model = copy.deepcopy(_model())
    MISTAKES[mistake](model)
    return model


# ---- reading


@cache
def _predictor(size: int) -> Predictor:
    """As `vitreous evaluate --image-size` has it."""
    from vitreous.import_run import open_run
    from vitreous.loading import predictor_of
    from vitreous.resized_run import at_size

    return predictor_of(at_size(open_run(DIGITS), size))


def _model(size: int = SIZE) -> ViT:
    from vitreous.models.vit import ViT

    model = _predictor(size).model
    assert isinstance(model, ViT)
    return model


def _blocks(model: ViT) -> list[Any]:
    """A module's parts have no types."""
    return list(model.blocks)


@cache
def _digits(size: int = SIZE) -> tuple[Tensor, Tensor]:
    """Images (n, 1, size, size) as the model gets them, and classes (n,)."""
    import torch

    from vitreous.data.formats import open_source

    source = open_source("digits")
    samples = source.splits["test"]
    images = [_predictor(size).prepare(source.image(each)) for each in samples]
    return torch.stack(images), torch.tensor([each.target for each in samples])


def _right(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    import torch

    with torch.no_grad():
        return (model(images).argmax(dim=1) == classes).double().mean().item()


@cache
def _accuracy(probe: str, size: int) -> float:
    from vitreous.engines.probes import Probes

    model, (images, classes) = _model(size), _digits(size)
    probes = Probes.of(model, [probe] if probe else [])
    if probes is None:
        return _right(model, images, classes)
    with probes.changing(images) as changed:
        return _right(model, changed, classes)


@cache
def _scores() -> list[Tensor]:
    """(n, tokens, tokens) of each head of each block, divided by √e."""
    import torch

    model = _model()
    found: list[Tensor] = []
    with torch.no_grad():
        x, _ = model.embed(_digits()[0])
        for block in _blocks(model):
            attention = block.attention
            q, k, _ = attention.split(attention.qkv(block.norm1(x)))
            found += (q @ k.mT * attention.scale).unbind(dim=1)
            x = block(x)
    return found


@cache
def _verdict() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((DIGITS / "verdict.json").read_text(encoding="utf-8"))


def _chosen(found: list[float], which: Which, even: float) -> float:
    return {"least": min(found), "most": max(found), "even": even}[which]
