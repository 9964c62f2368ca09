"""Lower precision in a graph: int8 by calibration, and weights that are stored in sixteen bits.

int8: weights and activations of linear layers and convolutions become integers. Their scales come
from calibration images (NNCF: SmoothQuant, then bias correction). Norms, softmax, GELU and the
products of attention stay as they are: as integers these are no faster (ViT-Ti, OpenVINO), and the
outputs are further off. So do the first layer and the last ones: they are a few percent of the
work, and their errors go to the outputs unweakened.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.engines.graph import INPUT, not_installed
from vitreous.engines.openvino import keep_signal_stack

LEAST = 1024
"""Values of a tensor from which on it is worth storing otherwise."""
LARGEST_PROTO = (1 << 31) - (1 << 20)
"""Bytes of an ONNX file; beyond, tensors are stored beside it."""
NNCF = ("nncf", "torch.utils.cpp_extension")
"""What logs while NNCF works: it imports the part of torch that looks for compilers when it first
needs it, which may be in the middle of its work."""
LAYERS = ("MatMul", "Gemm", "Convolution", "Conv", "GroupConvolution")
"""What int8 is computed in, as OpenVINO and ONNX call it."""


def nncf_library() -> Any:
    """NNCF; inside of Vitreous it reports its use to nobody."""
    name = "NNCF_CI"  # what NNCF asks before it opens a connection
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        with quiet(*NNCF):
            import nncf
    except ImportError:
        raise not_installed("NNCF", "int8") from None
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return nncf


def quantised(model: Any, images: Iterable[NDArray[Any]], kept: list[str]) -> Any:
    """The graph, of OpenVINO or ONNX, in int8; `images` are batches as it takes them, and `kept`
    the names of operations that stay as they are."""
    nncf = nncf_library()
    batches = [{INPUT: each} for each in images]
    with quiet(*NNCF), keep_signal_stack():
        return nncf.quantize(
            model,
            nncf.Dataset(batches),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(names=kept),
        )


@contextlib.contextmanager
def quiet(*libraries: str) -> Iterator[None]:
    """Inside, libraries print, log and warn of nothing that nobody can act on: NNCF tells of every
    pass over the images, onnxscript of every operation that it leaves as it is."""
    levels = {logger: logger.level for logger in map(logging.getLogger, libraries)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, before in levels.items():
            logger.setLevel(before)


def kept_of_openvino(model: Any) -> list[str]:
    """The names of operations of an OpenVINO graph that stay as they are: the layers nearest to the
    input and to each output, and products of attention, which multiply no weight."""

    def before(node: Any) -> list[Any]:
        return [each.get_source_output().get_node() for each in node.inputs()]

    def behind(node: Any) -> list[Any]:
        return [each.get_node() for out in node.outputs() for each in out.get_target_inputs()]

    def is_layer(node: Any) -> bool:
        return node.get_type_name() in LAYERS

    name = operator.methodcaller("get_friendly_name")
    first = nearest(model.input(0).get_node(), behind, is_layer, name)
    last = (nearest(each.get_node(), before, is_layer, name) for each in model.outputs)
    constant, products = set[str](), set[str]()
    for node in model.get_ordered_ops():
        given = [name(each) in constant for each in before(node)]
        if node.get_type_name() == "Constant" or (given and all(given)):
            constant.add(name(node))
        elif node.get_type_name() == "MatMul" and not any(given):
            products.add(name(node))
    return sorted({*first, *products, *(each for found in last for each in found)})


def kept_of_onnx(model: Any) -> list[str]:
    """The same of an ONNX graph."""
    makers = {name: node for node in model.graph.node for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)

    def before(node: Any) -> list[Any]:
        return [makers[name] for name in node.input if name in makers]

    def behind(node: Any) -> list[Any]:
        return [user for name in node.output for user in users.get(name, [])]

    def is_layer(node: Any) -> bool:
        return node.op_type in LAYERS

    name = operator.attrgetter("name")
    found = set()
    for node in users.get(model.graph.input[0].name, []):
        found |= nearest(node, behind, is_layer, name)
    for output in model.graph.output:
        found |= nearest(makers[output.name], before, is_layer, name)
    constant = {each.name for each in model.graph.initializer}
    for node in model.graph.node:
        given = [each in constant for each in node.input]
        if all(given):  # also that of an operation without inputs
            constant |= {*node.output}
        elif node.op_type == "MatMul" and not any(given):
            found.add(node.name)
    return sorted(found)


def nearest(
    begin: Any,
    following: Callable[[Any], list[Any]],
    is_layer: Callable[[Any], bool],
    name: Callable[[Any], str],
) -> set[str]:
    """The layers that are the fewest steps away from an operation. Not all that can be reached
    without passing another: over the residual stream these are most of a transformer's."""
    now: dict[str, Any] = {name(begin): begin}
    seen: set[str] = set()
    while now:
        if found := {each for each, node in now.items() if is_layer(node)}:
            return found
        seen |= now.keys()
        steps = {name(node): node for each in now.values() for node in following(each)}
        now = {each: node for each, node in steps.items() if each not in seen}
    return set()


def halve_weights(model: Any) -> None:
    """The weights of an ONNX graph in float16, each with a cast behind it: half the file, computed
    in float32 as before. Tensors with values that float16 does not reach stay as they are."""
    import onnx
    from onnx import numpy_helper

    graph, casts = model.graph, []
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) < LEAST:
            continue
        with np.errstate(over="ignore"):
            half = numpy_helper.to_array(tensor).astype(np.float16)
        if not np.isfinite(half).all():
            continue
        name, stored = tensor.name, f"{tensor.name}.float16"
        tensor.CopyFrom(numpy_helper.from_array(half, stored))
        casts.append(onnx.helper.make_node("Cast", [stored], [name], to=onnx.TensorProto.FLOAT))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*casts, *nodes])


def save_onnx(model: Any, file: Path) -> None:
    import onnx

    large = model.ByteSize() > LARGEST_PROTO
    onnx.save_model(
        model,
        file,
        save_as_external_data=large,
        location=f"{file.name}.data" if large else None,
    )
