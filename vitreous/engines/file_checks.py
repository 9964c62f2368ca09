"""What ONNX and OpenVINO files may hold: standard operations on tensors, weights of their own.

Both engines can be taught more: operators of other domains, functions, graphs inside of operations
that run in loops, tensors in any file. No export of ours has them, and so no file is opened that
does. This is looked up in the file before an engine sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import parse  # type: ignore[import-untyped,unused-ignore]

from vitreous.errors import ConfigError

ONNX_DOMAINS = ("", "ai.onnx")
OPENVINO_OPSETS = re.compile(r"opset\d+")
BODIES = ("body", "then_body", "else_body")
"""Of an OpenVINO operation that has a graph inside."""


def check_onnx(model: Any, path: Path) -> None:
    """Of an opened ONNX file."""
    if model.functions:
        raise _refused(path, f"defines the function {model.functions[0].name[:100]!r}")
    for node in model.graph.node:
        if node.domain not in ONNX_DOMAINS:
            raise _refused(path, f"calls {f'{node.domain}.{node.op_type}'[:100]!r}")
        if any(each.HasField("g") or each.graphs for each in node.attribute):
            raise _refused(path, f"has a graph inside of {node.op_type[:100]!r}")
    for place in external_files(model):
        inside = (path.parent / place).resolve()
        if not inside.is_relative_to(path.parent.resolve()):
            raise ConfigError(f"{path} refers to {place[:200]!r}, outside of its folder")


def external_files(model: Any) -> list[str]:
    """Where an ONNX file keeps tensors, beside itself."""
    found = {
        entry.value
        for tensor in _onnx_tensors(model)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return sorted(found)


def _onnx_tensors(message: Any) -> Iterator[Any]:
    """All tensors of an ONNX file, wherever they are: weights, constants, those of functions and of
    graphs inside of operations."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in value if isinstance(value, Sequence) else (value,):
            if each.DESCRIPTOR.name == "TensorProto":
                yield each
            else:
                yield from _onnx_tensors(each)


def read_openvino(path: Path) -> Element:
    """The XML of an OpenVINO file, checked; neither a DTD nor an entity is read."""
    net: Element = parse(path, forbid_dtd=True).getroot()
    for layer in net.iter("layer"):
        kind, version = layer.get("type", ""), layer.get("version", "")
        if not OPENVINO_OPSETS.fullmatch(version):
            raise _refused(path, f"calls {f'{version}.{kind}'[:100]!r}")
        if any(layer.find(name) is not None for name in BODIES):
            raise _refused(path, f"has a graph inside of {kind[:100]!r}")
    return net


def _refused(path: Path, what: str) -> ConfigError:
    return ConfigError(f"{path} {what}, which no export of Vitreous does: it is not opened")
