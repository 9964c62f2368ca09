"""A writer for each of the four types of weight file that we write."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from vitreous.atomic_write import streaming
from vitreous.weights.io.limits import DTYPES, WeightFileError, quoted

Tensors = dict[str, Tensor]


def separate(tensors: Tensors) -> Tensors:
    """The tensors on the CPU, contiguous, each with its own storage."""
    if not tensors:
        raise WeightFileError("there are no tensors to write")
    result: Tensors = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise WeightFileError(
                f"{quoted(name)} is a {type(tensor).__name__}: expected tensors by name"
            )
        if tensor.dtype not in DTYPES or tensor.is_meta or tensor.layout is not torch.strided:
            raise WeightFileError(
                f"tensor {quoted(name)} ({tensor.dtype}, {tensor.layout}, {tensor.device}) "
                "cannot be written: make it dense and of a standard type first"
            )
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != plain.nbytes:
            plain = plain.clone()
        storages.add(plain.untyped_storage().data_ptr())
        result[name] = plain
    return result


def write_safetensors(path: Path, tensors: Tensors, metadata: dict[str, str] | None) -> None:
    path.touch()
    default_mode = path.stat().st_mode
    save_file(tensors, path, metadata)
    _order_metadata(path)
    path.chmod(default_mode)  # safetensors makes its files readable by the owner only


def _order_metadata(path: Path) -> None:
    """Sort the metadata, which safetensors writes in random order: same weights, same bytes."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        if "__metadata__" not in header:
            return
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= length
        file.seek(8)
        file.write(text.ljust(length))


def write_npz(path: Path, tensors: Tensors) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in _arrays(tensors):
            # A ZipInfo has a fixed date: same tensors, same bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def write_pth(path: Path, tensors: Tensors, wrap: str | None) -> None:
    with streaming(path) as file:
        torch.save(tensors if wrap is None else {wrap: tensors}, file)


def write_pdparams(path: Path, tensors: Tensors) -> None:
    """Write the pickle by hand: arrays that numpy 2 pickles cannot be loaded with the older numpy
    that most paddle installations have."""
    with path.open("wb") as file:
        file.write(pickle.PROTO + b"\4" + pickle.EMPTY_DICT)
        for name, array in _arrays(tensors):
            shape = b"".join(pickle.LONG1 + struct.pack("<Bq", 8, length) for length in array.shape)
            file.writelines(
                [
                    _text(name),
                    pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n",
                    pickle.GLOBAL + b"numpy\nndarray\n" + _number(0) + pickle.TUPLE1,
                    pickle.SHORT_BINBYTES + b"\1b" + pickle.TUPLE3 + pickle.REDUCE,
                    pickle.MARK + _number(1) + pickle.MARK + shape + pickle.TUPLE,
                    pickle.GLOBAL + b"numpy\ndtype\n" + _text(array.dtype.str[1:]),
                    pickle.NEWFALSE + pickle.NEWTRUE + pickle.TUPLE3 + pickle.REDUCE,
                    pickle.MARK + _number(3) + _text(array.dtype.str[0]) + pickle.NONE * 3,
                    _number(-1) + _number(-1) + _number(0) + pickle.TUPLE + pickle.BUILD,
                    pickle.NEWFALSE + pickle.BINBYTES8 + struct.pack("<Q", array.nbytes),
                    array.reshape(-1).data,
                    pickle.TUPLE + pickle.BUILD + pickle.SETITEM,
                ]
            )
        file.write(pickle.STOP)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def _number(number: int) -> bytes:
    return pickle.BININT + struct.pack("<i", number)


def _arrays(tensors: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in tensors.items():
        if tensor.dtype is torch.bfloat16:
            raise WeightFileError(
                f"tensor {quoted(name)} is bfloat16, which numpy lacks: convert it first with "
                "tensor.float(), or write safetensors"
            )
        yield name, tensor.numpy()


WRITERS: dict[str, Callable[..., None]] = {
    "safetensors": write_safetensors,
    "npz": write_npz,
    "pth": write_pth,
    "pdparams": write_pdparams,
}
