"""What a pickle of weights may make: stand-ins that hold checked descriptions of tensors.

A stand-in only collects what the pickle says. Nothing here can run code from the file, and a tensor
is built after the pickle has ended, from a description that was compared with the bytes there are.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
DTYPES = {*STORAGE_DTYPES.values(), torch.uint16, torch.uint32, torch.uint64}

# Names and values from a stranger's file, cut to a length that suits a message.
_clip = reprlib.Repr()
_clip.maxstring = _clip.maxother = 120
quoted = _clip.repr


class WeightFileError(Exception):
    """Why a file is not read or written; whoever knows its path puts it in front."""


def allowed_bytes(bytes_on_disk: int) -> int:
    """How much memory so many bytes of a file may ask for before it looks like a bomb."""
    return 100 * bytes_on_disk + 64 * 2**20


@dataclass(frozen=True, slots=True)
class StorageType:
    """Stands for a class such as `torch.FloatStorage`."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that tensors share; read when the first of them is built."""

    dtype: torch.dtype
    size_bytes: int
    read: Callable[[], Tensor]  # () -> uint8 (size_bytes,)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A torch tensor whose place inside its storage has been checked."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def build(self) -> Tensor:
        whole_elements = self.storage.size_bytes // self.dtype.itemsize * self.dtype.itemsize
        flat = self.storage.read()[:whole_elements].view(self.dtype)
        return flat.as_strided(self.size, self.stride, self.offset)


@dataclass(slots=True)
class ArrayType:
    """A numpy dtype; the pickle gives its byte order in a second step."""

    dtype: np.dtype[Any]

    def fill(self, state: Any) -> None:
        byte_order = state[1]
        if byte_order not in ("<", ">", "|", "="):
            raise WeightFileError(f"it has an array with the byte order {quoted(byte_order)}")
        self.dtype = self.dtype.newbyteorder(byte_order)


@dataclass(slots=True, repr=False)
class StoredArray:
    """A numpy array; the pickle gives its contents in a second step."""

    shape: Any = None
    array_type: Any = None
    is_fortran: Any = False
    data: Any = None

    def fill(self, state: Any) -> None:
        _version, self.shape, self.array_type, self.is_fortran, self.data = state

    def build(self) -> Tensor:
        # Python 2 had no bytes: what it wrote comes as text, one character for each byte.
        data = bytearray(self.data, "latin-1") if isinstance(self.data, str) else self.data
        if not isinstance(data, bytearray) or not isinstance(self.array_type, ArrayType):
            raise WeightFileError("it has an array that does not hold plain numbers")
        content = np.frombuffer(data, np.uint8)
        return tensor_from_bytes(content, self.array_type.dtype, self.shape, self.is_fortran)


def tensor_from_bytes(
    content: np.ndarray, dtype: np.dtype[Any], shape: Any, is_fortran: Any
) -> Tensor:
    """Numpy's layout as a tensor over the same memory (copied only to swap the byte order)."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise WeightFileError(f"it has an array of type {dtype}, and only plain numbers are read")
    needed = math.prod(_lengths(shape)) * dtype.itemsize
    if needed != content.nbytes:
        raise WeightFileError(
            f"an array of shape {shape} needs {needed} bytes and has {content.nbytes}: "
            "the file is damaged, get it again"
        )
    array = content.view(dtype).reshape(shape, order="F" if is_fortran else "C")
    return torch.from_numpy(array.astype(dtype.newbyteorder("="), copy=False))


def _lengths(numbers: Any) -> tuple[int, ...]:
    """A shape, or strides. Neither torch nor numpy goes beyond 64 dimensions of 63 bits."""
    is_short = isinstance(numbers, tuple) and len(numbers) <= 64
    if not is_short or any(type(n) is not int or not 0 <= n < 2**63 for n in numbers):
        raise WeightFileError(f"it has a tensor with the impossible shape {quoted(numbers)}")
    return tuple(numbers)


def make_tensor(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    _requires_grad: Any = False,
    _hooks: Any = None,
    metadata: Any = None,
    dtype: torch.dtype | None = None,
) -> StoredTensor:
    if not isinstance(storage, Storage) or metadata:
        raise WeightFileError("it has a tensor that is not a plain view of a storage")
    dtype = dtype or storage.dtype
    size, stride, (offset,) = _lengths(size), _lengths(stride), _lengths((offset,))
    elements = math.prod(size)
    reach = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    end = offset + (reach + 1 if elements else 0)
    fits = end * dtype.itemsize <= storage.size_bytes
    # A stride of 0 repeats an element without needing bytes, so the size has its own limit.
    if not fits or elements * dtype.itemsize > allowed_bytes(storage.size_bytes):
        raise WeightFileError(
            f"a tensor of size {size}, strides {stride} and offset {offset} does not fit into its "
            f"storage of {storage.size_bytes} bytes: the file is damaged or hostile"
        )
    return StoredTensor(storage, dtype, offset, size, stride)


def make_tensor_v3(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> StoredTensor:
    if not isinstance(dtype, torch.dtype):
        raise WeightFileError("it has a tensor without an element type")
    return make_tensor(storage, offset, size, stride, requires_grad, hooks, metadata, dtype)


def make_parameter(tensor: Any, _requires_grad: Any, _hooks: Any) -> StoredTensor:
    if not isinstance(tensor, StoredTensor):
        raise WeightFileError("it has a parameter that is not a tensor")
    return tensor


def make_array_type(code: Any, *_align_and_copy: Any) -> ArrayType:
    # Only numbers: an array of objects is a second pickle.
    if not isinstance(code, str) or not re.fullmatch(r"[biuf][1248]", code):
        raise WeightFileError(
            f"it has an array of type {quoted(code)}, and only plain numbers are read"
        )
    return ArrayType(np.dtype(code))


def make_empty_array(*_arguments: Any) -> StoredArray:
    return StoredArray()


def make_array_from_buffer(data: Any, array_type: Any, shape: Any, order: Any) -> StoredArray:
    if order not in ("C", "F"):
        raise WeightFileError(f"it has an array in the memory order {quoted(order)}")
    return StoredArray(shape, array_type, order == "F", data)


def make_number(array_type: Any, data: Any) -> Any:
    return StoredArray((), array_type, False, data).build().item()


def make_bytes(data: Any = "", encoding: Any = "latin1") -> bytearray:
    # Protocol 2 knows no bytes: Python 3 writes them as text, one character for each byte.
    if isinstance(data, str) and encoding in ("latin1", "latin-1"):
        return bytearray(data, "latin-1")
    if isinstance(data, bytearray):
        return bytearray(data)
    raise WeightFileError(f"it has bytes made from {quoted(data)}")


def make_set(items: Iterable[Any] = ()) -> set[Any]:
    return set(make_dict((item, None) for item in items))


def make_dict(pairs: Iterable[Any] = ()) -> dict[Any, Any]:
    content = {}
    for key, value in pairs:
        # Only scalars: the hash of a nested tuple can take for ever, or crash the interpreter.
        if not isinstance(key, (str, int, float, type(None))):
            raise WeightFileError(
                f"it has a dictionary key or set item of type {type(key).__name__}"
            )
        content[key] = value
    return content
