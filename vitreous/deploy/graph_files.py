"""A traced graph as a file: ONNX, OpenVINO or torch's own, in the precision that its note says."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.atomic_write import streaming
from vitreous.deploy.quantise import (
    halve_weights,
    kept_of_onnx,
    kept_of_openvino,
    quantised,
    quiet,
    save_onnx,
)
from vitreous.engines.graph import INPUT, KEY, NOTE_FILE, Note, not_installed, openvino_core
from vitreous.engines.seal import add_sealed, write_seal
from vitreous.layers.attention import attention_weights

ANY_SIZE = 1 << 40
ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
Images = Iterable[NDArray[Any]]
"""To calibrate int8 with: batches as the graph takes them."""
Writer = Callable[[torch.export.ExportedProgram, Note, Path, Images], None]


def _write_onnx(
    program: torch.export.ExportedProgram, note: Note, file: Path, images: Images
) -> None:
    found = _onnx_program(program, note)
    if note.precision == "float32":
        found.save(file)
        return
    model = found.model_proto
    if note.precision == "int8":
        facts = {each.key: each.value for each in model.metadata_props}
        model = quantised(model, images, kept_of_onnx(model))
        del model.metadata_props[:]
        for key, value in facts.items():
            model.metadata_props.add(key=key, value=value)
    else:
        halve_weights(model)
    save_onnx(model, file)


def _onnx_program(program: torch.export.ExportedProgram, note: Note) -> Any:
    try:
        from onnxscript.optimizer import fold_constants
    except ImportError:
        raise not_installed("ONNX", "onnx") from None
    with quiet("onnxscript"):
        found = torch.onnx.export(
            program.run_decompositions({ATTENTION: attention_in_steps}),
            (),
            dynamo=True,
            input_names=[INPUT],
            output_names=list(note.outputs),
            verbose=False,
        )
        assert found is not None
        # Parts of weights (those of queries alone in a last block) become weights, whatever their
        # size: int8 knows no others.
        fold_constants(found.model, input_size_limit=ANY_SIZE, output_size_limit=ANY_SIZE)
    for node in found.model.graph:
        node.metadata_props.clear()  # lines of code, with the paths of this machine
    found.model.metadata_props[KEY] = note.text()
    return found


def attention_in_steps(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch's fused attention as a graph should have it: engines know this pattern, and make one
    operation of it. The exporter's own reshapes and transposes the keys, which OpenVINO then copies
    in every block: 7 % of the time of a ViT-Ti in int8."""
    assert dropout_p == 0.0
    assert not is_causal
    assert not enable_gqa
    assert scale is not None
    return attention_weights(q, k, attn_mask, scale) @ v


def _write_openvino(
    program: torch.export.ExportedProgram, note: Note, file: Path, images: Images
) -> None:
    """In sixteen bits, weights are float16 in the file, also where bfloat16 is computed: it has
    more digits, and values that it does not reach stay in float32."""
    core = openvino_core()
    import openvino

    through = file.with_suffix(".onnx")
    _onnx_program(program, note).save(through)
    model = core.read_model(through)
    if note.precision == "int8":
        model = quantised(model, images, kept_of_openvino(model))
    model.set_rt_info(note.text(), [KEY])
    halves = note.precision in ("bfloat16", "float16")
    try:
        openvino.save_model(model, file, compress_to_fp16=halves)
    except RuntimeError as error:  # it does not say why
        why = f"OpenVINO has failed ({error}): is the disk full?"
        raise OSError(errno.EIO, why) from error
    del model  # it holds the file
    through.unlink()


def _write_torch(
    program: torch.export.ExportedProgram, note: Note, file: Path, images: Images
) -> None:
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # lines of code, with the paths of this machine
    with streaming(file) as stream:
        torch.export.save(program, stream)
    add_sealed(file, f"extra/{NOTE_FILE}", note.text(), note.sha256)


WRITERS: dict[str, Writer] = {".onnx": _write_onnx, ".xml": _write_openvino, ".pt2": _write_torch}


def write_graph(
    program: torch.export.ExportedProgram, note: Note, file: Path, images: Images
) -> None:
    """In the format that the file's suffix says, with a checksum of all of it."""
    note = replace(note, sha256=secrets.token_hex(32))  # stands where the checksum will be
    WRITERS[file.suffix](program, note, file, images)
    if file.suffix != ".pt2":  # whose parts have checksums of their own
        others = sorted(each for each in file.parent.iterdir() if each != file)
        write_seal(file, others, note.sha256)
