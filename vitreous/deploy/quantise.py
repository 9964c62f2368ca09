"""Lower precision in a graph: int8 by calibration, and weights that are stored in sixteen bits.

int8: weights and activations of linear layers, convolutions and the products of attention become
integers. Their scales come from calibration images (NNCF: SmoothQuant, then bias correction).
Norms, softmax and GELU stay as they are, and so do the first layer and the last ones: they are a
few percent of the work, and their errors go to the outputs unweakened.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.engines.graph import not_installed

LEAST = 1024
"""Values of a tensor from which on it is worth storing otherwise."""
LARGEST_PROTO = (1 << 31) - (1 << 20)
"""Bytes of an ONNX file; beyond, tensors are stored beside it."""
WEIGHED = ("MatMul", "Gemm", "Convolution", "Conv", "GroupConvolution")
"""Operations with weights."""


def nncf_library() -> Any:
    """NNCF; inside of Vitreous it reports its use to nobody."""
    name = "NNCF_CI"  # what NNCF asks before it opens a connection
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    batches = list(images)
    with _quiet():
        return nncf.quantize(
            model,
            nncf.Dataset(batches),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(names=kept),
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """NNCF prints every pass over the images."""
    logger = logging.getLogger("nncf")
    before = logger.level
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
        logger.setLevel(before)


def ends_of_openvino(model: Any) -> list[str]:
    """The names of the first layer and the last ones of an OpenVINO graph."""
    first = _nearest(
        [model.input(0).get_node()],
        lambda node: [
            each.get_node() for out in node.outputs() for each in out.get_target_inputs()
        ],
    )
    last = _nearest(
        [output.get_node() for output in model.outputs],
        lambda node: [each.get_source_output().get_node() for each in node.inputs()],
    )
    return [node.get_friendly_name() for node in (*first, *last)]


def _nearest(begin: list[Any], following: Any) -> list[Any]:
    """Operations with weights that are reached from `begin` without passing another."""
    found, seen, waiting = [], set(), list(begin)
    while waiting:
        node = waiting.pop()
        if node.get_friendly_name() in seen:
            continue
        seen.add(node.get_friendly_name())
        if node.get_type_name() in WEIGHED:
            found.append(node)
        else:
            waiting += following(node)
    return found


def ends_of_onnx(model: Any) -> list[str]:
    """The same of an ONNX graph."""
    makers = {name: node for node in model.graph.node for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)

    def search(names: list[str], following: Any) -> Iterator[str]:
        seen, waiting = set(), list(names)
        while waiting:
            for node in following(waiting.pop()):
                if node.name in seen:
                    continue
                seen.add(node.name)
                if node.op_type in WEIGHED:
                    yield node.name
                else:
                    waiting.extend(node.output if following is forward else node.input)

    def forward(name: str) -> list[Any]:
        return users.get(name, [])

    def backward(name: str) -> list[Any]:
        return [makers[name]] if name in makers else []

    first = search([model.graph.input[0].name], forward)
    last = search([output.name for output in model.graph.output], backward)
    return [*first, *last]


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
    beside = {"save_as_external_data": True, "location": f"{file.name}.data"} if large else {}
    onnx.save_model(model, file, **beside)
