"""The graph of a living page: one model with every step inside as an output, and what can be
changed inside it as an input (`engines/interventions.py`).

It is the model as the paper has it, not rewritten for speed: what a page shows is what the
equations say. Weights lie beside the graph, so that the page can show them, too.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.config import pair
from vitreous.data.preprocess import Preprocess
from vitreous.deploy.graph_files import quiet
from vitreous.engines.accelerate import plain
from vitreous.engines.graph import not_installed
from vitreous.engines.interventions import MOST, Interventions, changing, watched
from vitreous.errors import ConfigError
from vitreous.layers.attention import Heads
from vitreous.layers.block import Block
from vitreous.layers.deformable import DeformableAttention
from vitreous.layers.mlp import Mlp
from vitreous.layers.tap import tap
from vitreous.models.model import Model

WEIGHTS = "weights"
"""The name of the file beside the graph that holds them; in a page it is memory."""
CHANGE = "change."
"""Before the names of interventions, among the inputs."""
AFTER = "after"
"""Before the names of steps behind the model inside, with a dot."""
LARGEST = 100_000_000
"""Bytes of a page."""
OPEN_LAYERS = ("mlp.fc1", "decoder.project", "decoder.class_out", "decoder.patch_out")
"""Linear layers behind the core that are steps of their own."""
NUMBERS = 4_000_000
"""How many are stored in a page that has no runtime."""
EXACT = 1_500_000
"""Bytes of weights in float32 below which a page keeps them as they are."""
Arrays = dict[str, NDArray[Any]]


class Steps(nn.Module):
    """(1, c, h, w), pixels from 0 to 255, and interventions -> every step, and the outputs."""

    def __init__(self, model: Model, preprocess: Preprocess) -> None:
        super().__init__()
        self.model = plain(copy.deepcopy(model)).eval()
        self.neutral = Interventions.of(model)
        self.size = model.own_size()
        self.names: dict[str, str] = {}
        """What each step is called among the outputs: an empty step is the one before it."""
        for name in ("mean", "std"):
            values = torch.tensor(getattr(preprocess, name)).view(-1, 1, 1)
            self.register_buffer(f"pixel_{name}", values)  # "mean" is an operation

    def for_size(self, size: tuple[int, int]) -> Steps:
        """The same for images of another size, whose patches stay where they are."""
        if size != self.size:
            core, known = self.model.core, self.neutral
            levels = core.levels(size)
            few = (each for each in levels if math.prod(each.grid) <= MOST)
            level = next(few, levels[-1])
            of_places = ("patch_order", "patch_keep", "position", "position_order")
            self.neutral = Interventions({k: v for k, v in known.items() if k not in of_places})
            self.neutral.grid, self.neutral.pixels = level.grid, level.pixels
            self.size = size
        return self

    def forward(self, images: Tensor, changes: dict[str, Tensor]) -> tuple[Tensor, ...]:
        given = self.neutral.with_values(changes)
        values = (images / 255 - self.get_buffer("pixel_mean")) / self.get_buffer("pixel_std")
        seen: dict[str, Tensor] = {}
        see = changing(self.model, lambda: given, seen.__setitem__)
        with tap(watched(self.model) | behind_core(self.model), see, inside=True):
            seen |= self.model.outputs(given.rearranged(values))
        first: dict[int, str] = {}
        self.names.update({name: first.setdefault(id(each), name) for name, each in seen.items()})
        return tuple(seen[name] for name in first.values())


def behind_core(model: Model) -> dict[str, nn.Module]:
    """The modules that are looked at behind the blocks: of a model around another one its steps,
    and in each layer the norms, the attentions and the MLP; and attention that pools."""
    pools = [layer.name for layer in model.core.attentions() if layer.part == "pool"]
    found = {name: model.core.get_submodule(name) for name in pools}
    if model.core is model:
        return found
    steps = model.steps()
    found |= {f"{AFTER}.{name}".rstrip("."): part for name, part in steps.items()}
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear):
            looked_at = name.endswith(OPEN_LAYERS)
        else:
            looked_at = isinstance(part, nn.LayerNorm | Block | Heads | DeformableAttention | Mlp)
        if looked_at and any(name.startswith(f"{step}.") for step in steps if step):
            found.setdefault(f"{AFTER}.{name}", part)
    return found


@dataclass(frozen=True)
class LivingGraph:
    """A graph and its weights, in float32."""

    onnx: bytes
    """Empty where there is none, and the numbers of one image are stored instead."""
    weights: Arrays
    """By the name of the parameter."""
    outputs: dict[str, tuple[int, ...]]
    """Shapes by name, the model's own outputs last."""
    answers: dict[str, str]
    """Which of them are the model's own."""
    same: dict[str, str]
    """Steps that change nothing, and the output that they have."""
    interventions: Interventions
    size: tuple[int, int]
    """Height and width of the images that it takes."""

    def session(self, weights: Arrays | None = None) -> Any:
        """ONNX Runtime's, as the page opens it."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        names = [WEIGHTS]
        raw = packed(weights or self.weights).tobytes()
        options.add_external_initializers_from_files_in_memory(names, [raw], [len(raw)])
        return onnxruntime.InferenceSession(self.onnx, options, providers=["CPUExecutionProvider"])


def packed(weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """All weights behind each other."""
    return np.concatenate([each.astype(np.float32).ravel() for each in weights.values()])


@torch.no_grad()
def living_graph(model: Model, preprocess: Preprocess) -> LivingGraph:
    """The graph of a model, for one image at a time."""
    try:
        import onnx
        from onnx.external_data_helper import set_external_data
    except ImportError:
        raise not_installed("A living page", "onnx") from None
    if preprocess.whole and preprocess.resize != "square":
        raise ConfigError(
            f"{model.name}: a page shows models that take images of one size; this one takes any: "
            "train it with --resize square"
        )
    module = Steps(model, preprocess).eval()
    images = torch.zeros(1, preprocess.channels, *pair("image_size", preprocess.image_size))
    changes = dict(module.neutral)
    module(images, changes)  # export forgets what is noted in it
    called = dict(module.names)
    names = list(dict.fromkeys(called.values()))
    program = torch.export.export(module, (images, changes))
    with quiet("onnxscript"):
        found = torch.onnx.export(
            program,
            (),
            dynamo=True,
            optimize=False,
            verbose=False,
            input_names=["images", *(f"{CHANGE}{name}" for name in changes)],
            output_names=names,
        )
    assert found is not None
    for node in found.model.graph:
        node.metadata_props.clear()  # lines of code, with the paths of this machine
    proto = found.model_proto
    del proto.metadata_props[:]
    weights: Arrays = {}
    learned, offset = module.state_dict().keys(), 0
    for tensor in proto.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or tensor.name not in learned:
            continue
        set_external_data(tensor, WEIGHTS, offset, values.nbytes)
        tensor.ClearField("raw_data")
        weights[tensor.name.removeprefix("model.")] = values
        offset += values.nbytes
    shapes = {
        each.name: tuple(d.dim_value for d in each.type.tensor_type.shape.dim)
        for each in proto.graph.output
    }
    own = {name: called[name] for name in module.model.outputs(images)}
    same = {name: first for name, first in called.items() if name != first}
    return LivingGraph(
        proto.SerializeToString(), weights, shapes, own, same, module.neutral, module.size
    )


@torch.no_grad()
def stored_numbers(
    model: Model, preprocess: Preprocess, pixels: Tensor
) -> tuple[LivingGraph, Arrays]:
    """In place of a graph: what torch computes in every step for pixels (c, h, w) from 0 to 255, as
    far as a page can hold it: the first, the middle and the last block go before the others."""
    module = Steps(model, preprocess).eval().for_size((pixels.shape[1], pixels.shape[2]))
    values = module(pixels[None].float(), dict(module.neutral))
    called = dict(module.names)
    found = dict(zip(dict.fromkeys(called.values()), values, strict=True))
    last = len(getattr(model.core, "blocks", ())) - 1

    def rank(name: str) -> int:
        """0: always; then the blocks that show most; then what is inside a decoder's layers."""
        parts = name.split(".")
        if parts[0] == AFTER:
            return 0 if len(parts) <= 3 or name.endswith("cross_attention.weights") else 3
        if parts[0] != "blocks" or len(parts) == 2:
            return 0
        return 1 if int(parts[1]) in (0, last // 2, last) else 2

    left, kept = NUMBERS, set()
    for name in sorted(found, key=rank):
        left -= found[name].numel()
        if left < 0:
            break
        kept.add(name)
    numbers = {name: each.float().numpy() for name, each in found.items() if name in kept}
    weights = {name: each.float().numpy() for name, each in model.state_dict().items()}
    if sum(each.size for each in weights.values()) > NUMBERS:
        weights = {}
    own = {name: called[name] for name in module.model.outputs(pixels[None].float())}
    same = {name: first for name, first in called.items() if name != first}
    shapes = {name: each.shape for name, each in numbers.items()}
    return LivingGraph(b"", weights, shapes, own, same, module.neutral, module.size), numbers


def in_halves(values: NDArray[Any]) -> NDArray[Any]:
    """As float16 keeps them."""
    return values.astype(np.float16).astype(np.float32)


def in_bytes(values: NDArray[Any]) -> NDArray[Any]:
    """As int8 keeps them: whole numbers, and a factor for each row of a matrix."""
    if values.ndim < 2:
        return in_halves(values)
    whole, factor = quantised_rows(values)
    return (whole * factor).reshape(values.shape).astype(np.float32)


def quantised_rows(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = values.reshape(len(values), -1)
    factor = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12) / 127
    factor = factor.astype(np.float32)
    return np.clip(np.round(rows / factor), -127, 127).astype(np.int8), factor


STORED = {"float32": lambda values: values, "float16": in_halves, "int8": in_bytes}


def stored(weights: Arrays, precision: str) -> tuple[bytes, list[dict[str, Any]]]:
    """Weights as a page keeps them: compressed bytes, and for each where it is and how."""
    parts: list[bytes] = []
    index = []
    for name, values in weights.items():
        kind = precision if values.ndim > 1 or precision != "int8" else "float16"
        made: list[NDArray[Any]] = []
        if kind == "int8":
            whole, factor = quantised_rows(values)
            made = [whole.view(np.uint8).ravel(), factor.view(np.uint8).ravel()]
        else:
            raw = values.astype(np.float16 if kind == "float16" else np.float32)
            # the bytes of a number apart: the first ones, with the exponent, compress
            made = [np.ascontiguousarray(raw.ravel().view(np.uint8).reshape(values.size, -1).T)]
        parts += [each.tobytes() for each in made]
        index.append({"name": name, "shape": list(values.shape), "kind": kind})
    return zlib.compress(b"".join(parts), 9), index


def answers(
    graph: LivingGraph, session: Any, images: Sequence[NDArray[Any]]
) -> list[dict[str, NDArray[Any]]]:
    """What the graph gives for pixels (c, h, w) each, nothing changed."""
    names = {each.name for each in session.get_inputs()}
    changes = {f"{CHANGE}{name}": value for name, value in graph.interventions.items()}
    given = {name: value.numpy() for name, value in changes.items() if name in names}
    found = []
    for pixels in images:
        feeds = {"images": pixels[None].astype(np.float32), **given}
        outputs = session.run(list(graph.answers.values()), feeds)
        found.append(dict(zip(graph.answers, outputs, strict=True)))
    return found
