"""The classes and functions that a pickle of weights may name, each replaced by one of ours.

Ours only record what the pickle states, so nothing here can run code from the file. A tensor is
built after the pickle has ended, once its description was checked against the bytes in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.weights.io.limits import (
    DTYPES,
    STORAGE_DTYPES,
    WeightFileError,
    memory_limit,
    quoted,
)

MAX_ATTRIBUTES, MAX_NAME = 100_000, 1000
"""Of a TorchScript program's modules, and of the name of one."""


@dataclass(frozen=True, slots=True)
class SafeFunction:
    """Replaces a class or function that a pickle may call."""

    call: Callable[..., Any]


@dataclass(slots=True)
class ScriptModule:
    """A module of a TorchScript program: its attributes, and nothing of its code."""

    attributes: dict[Any, Any]

    def fill(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise WeightFileError("its pickle has a module without attributes: it is damaged")
        self.attributes = state

    def flatten(self) -> dict[str, Any]:
        """Its attributes and those of the modules inside, by dotted names."""
        found: dict[str, Any] = {}
        left: list[tuple[str, Any]] = [("", self)]
        while left:
            name, value = left.pop()
            if isinstance(value, ScriptModule):
                inside = [(f"{name}.{key}" if name else str(key), v) for key, v in value.items()]
                left += reversed(inside)
            else:
                found[name] = value
            if len(found) + len(left) > MAX_ATTRIBUTES or len(name) > MAX_NAME:
                raise WeightFileError("its modules contain each other: the file is hostile")
        return found

    def items(self) -> list[tuple[Any, Any]]:
        return list(self.attributes.items())


@dataclass(frozen=True, slots=True)
class UnknownClass:
    """A class or function that is not known here: a name, which nothing is done with."""

    name: str


@dataclass(slots=True, repr=False)
class PickledObject:
    """An object of such a class: what the pickle says about it, and nothing of the class."""

    kind: str
    attributes: dict[Any, Any]
    items: dict[Any, Any]
    """Of a subclass of dict."""

    @property
    def content(self) -> dict[Any, Any]:
        return {**self.attributes, **self.items}

    def fill(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):  # with and without slots
            if isinstance(part, dict):
                self.attributes = {**self.attributes, **part}

    @property
    def is_module(self) -> bool:
        return all(isinstance(self.attributes.get(part), dict) for part in MODULE_PARTS)

    def modules(self) -> dict[str, PickledObject]:
        """A torch module and those inside, by dotted names that end with a dot."""
        found: dict[str, PickledObject] = {}
        left = [("", self)]
        while left:
            name, module = left.pop()
            found[name] = module
            inside = module.attributes["_modules"].items()
            left += reversed(
                [
                    (f"{name}{key}.", each)
                    for key, each in inside
                    if isinstance(each, PickledObject) and each.is_module
                ]
            )
            if len(found) + len(left) > MAX_ATTRIBUTES or len(name) > MAX_NAME:
                raise WeightFileError("its modules contain each other: the file is hostile")
        return found

    def state_dict(self) -> dict[str, Any]:
        """The tensors that torch's `state_dict` of this module has."""
        found: dict[str, Any] = {}
        for name, module in self.modules().items():
            hidden = module.attributes.get("_non_persistent_buffers_set", ())
            tensors = {**module.attributes["_parameters"], **module.attributes["_buffers"]}
            found |= {
                f"{name}{key}": value
                for key, value in tensors.items()
                if isinstance(value, StoredTensor) and key not in hidden
            }
            if len(found) > MAX_ATTRIBUTES:
                raise WeightFileError(f"its modules have over {MAX_ATTRIBUTES:,} tensors")
        return found


MODULE_PARTS = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True)
class StorageType:
    """Replaces a class such as `torch.FloatStorage`."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that tensors share, read when the first of them is built."""

    dtype: torch.dtype
    size_bytes: int
    read: Callable[[], Tensor]  # () -> uint8 (size_bytes,)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A torch tensor that was checked to lie inside its storage."""

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
    """A numpy dtype; BUILD sets its byte order."""

    dtype: np.dtype[Any]

    def fill(self, state: Any) -> None:
        byte_order = state[1]
        if byte_order not in ("<", ">", "|", "="):
            raise WeightFileError(f"it has an array with the byte order {quoted(byte_order)}")
        self.dtype = self.dtype.newbyteorder(byte_order)


@dataclass(slots=True, repr=False)
class StoredArray:
    """A numpy array; BUILD sets its contents."""

    shape: Any = None
    array_type: Any = None
    is_fortran: Any = False
    data: Any = None

    def fill(self, state: Any) -> None:
        _version, self.shape, self.array_type, self.is_fortran, self.data = state

    def build(self) -> Tensor:
        # Python 2 had no bytes type: its arrays come as text, one character per byte.
        data = bytearray(self.data, "latin-1") if isinstance(self.data, str) else self.data
        if not isinstance(data, bytearray) or not isinstance(self.array_type, ArrayType):
            raise WeightFileError("it has an array that does not hold numbers")
        content = np.frombuffer(data, np.uint8)
        return tensor_from_bytes(content, self.array_type.dtype, self.shape, self.is_fortran)


def tensor_from_bytes(
    content: np.ndarray, dtype: np.dtype[Any], shape: Any, is_fortran: Any
) -> Tensor:
    """A numpy array as a tensor over the same memory; other byte orders are copied."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise WeightFileError(f"it has an array of type {dtype}: only numbers are read")
    needed = math.prod(_lengths(shape)) * dtype.itemsize
    if needed != content.nbytes:
        raise WeightFileError(
            f"an array of shape {shape} needs {needed} bytes, the file has {content.nbytes}: "
            "it is damaged, download it again"
        )
    array = content.view(dtype).reshape(shape, order="F" if is_fortran else "C")
    return torch.from_numpy(array.astype(dtype.newbyteorder("="), copy=False))


def _lengths(numbers: Any) -> tuple[int, ...]:
    """A shape or strides. Torch and numpy allow at most 64 dimensions of 63 bits."""
    is_short = isinstance(numbers, tuple) and len(numbers) <= 64
    if not is_short or any(type(n) is not int or not 0 <= n < 2**63 for n in numbers):
        raise WeightFileError(f"it has a tensor with the impossible shape {quoted(numbers)}")
    return tuple(numbers)


def make_tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> StoredTensor:
    """`rest` is whether it needs gradients and hooks; the type, in version 3; and metadata."""
    types = [value for value in rest[2:] if isinstance(value, torch.dtype)]
    metadata = [value for value in rest[2:] if not isinstance(value, torch.dtype)]
    if not isinstance(storage, Storage) or any(metadata):
        raise WeightFileError("it has a tensor that is not a plain view of a storage")
    dtype = types[0] if types else storage.dtype
    size, stride, (offset,) = _lengths(size), _lengths(stride), _lengths((offset,))
    elements = math.prod(size)
    reach = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    end = offset + (reach + 1 if elements else 0)
    fits = end * dtype.itemsize <= storage.size_bytes
    # With a stride of 0 a tensor needs no bytes, so its size has a limit of its own.
    if not fits or elements * dtype.itemsize > memory_limit(storage.size_bytes):
        raise WeightFileError(
            f"a tensor of size {size}, strides {stride} and offset {offset} does not fit into its "
            f"storage of {storage.size_bytes} bytes: the file is damaged or hostile"
        )
    return StoredTensor(storage, dtype, offset, size, stride)


def make_parameter(tensor: Any, *_requires_grad_hooks_and_state: Any) -> StoredTensor:
    if not isinstance(tensor, StoredTensor):
        raise WeightFileError("it has a parameter that is not a tensor")
    return tensor


def make_array_type(code: Any, *_align_and_copy: Any) -> ArrayType:
    # Only numbers: an array of Python objects would be a second pickle.
    if not isinstance(code, str) or not re.fullmatch(r"[biuf][1248]", code):
        raise WeightFileError(f"it has an array of type {quoted(code)}: only numbers are read")
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
    # Protocol 2 has no bytes type: Python 3 writes them as text, one character per byte.
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
        # Scalars only: hashing a deeply nested tuple can take forever or crash the interpreter.
        if not isinstance(key, (str, int, float, type(None))):
            raise WeightFileError(
                f"it has a dictionary key or set item of type {type(key).__name__}"
            )
        # Two integers of this size have two hashes; of larger ones any number can share one, and
        # a dict of those takes quadratic time.
        if isinstance(key, int) and not -(2**60) < key < 2**60:
            raise WeightFileError("it has a dictionary key or set item of more than 60 bits")
        content[key] = value
    return content


BUILTINS: dict[str, Callable[..., Any]] = {  # paddle writes a tensor as tuple((name, array))
    **{"bytes": make_bytes, "bytearray": make_bytes, "set": make_set, "frozenset": make_set},
    "tuple": tuple,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._utils _rebuild_tensor": make_tensor,
    "torch._utils _rebuild_tensor_v2": make_tensor,
    "torch._utils _rebuild_tensor_v3": make_tensor,
    "torch._utils _rebuild_parameter": make_parameter,
    "torch._utils _rebuild_parameter_with_state": make_parameter,
    "torch Size": tuple,
    "numpy ndarray": make_empty_array,
    "numpy dtype": make_array_type,
    "collections OrderedDict": make_dict,
    "_codecs encode": make_bytes,
    **{f"builtins {name}": make for name, make in BUILTINS.items()},
    **{f"__builtin__ {name}": make for name, make in BUILTINS.items()},  # Python 2's name
}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    FUNCTIONS[f"{_core}.multiarray _reconstruct"] = make_empty_array
    FUNCTIONS[f"{_core}.multiarray scalar"] = make_number
    FUNCTIONS[f"{_core}.numeric _frombuffer"] = make_array_from_buffer


HARMLESS = {
    *("argparse Namespace", "yacs.config CfgNode"),
    *("pathlib PosixPath", "pathlib PurePosixPath", "pathlib WindowsPath", "torch device"),
    *("collections defaultdict", "collections Counter", "collections deque"),
    *("datetime datetime", "datetime timedelta", "types SimpleNamespace", "functools partial"),
}
"""What training scripts keep beside the weights, and what a pickled model may have: objects that a
pickle makes by a call. They are not made: see `PickledObject`."""


def _unchanged(value: Any, *_type: Any) -> Any:
    return value


for _kind in ("int", "double", "bool", "tensor"):  # lists in TorchScript programs
    FUNCTIONS[f"torch.jit._pickle build_{_kind}list"] = _unchanged
FUNCTIONS["torch.jit._pickle restore_type_tag"] = _unchanged
SCRIPT = "__torch__."
"""The names of a TorchScript program's own classes begin with this."""
SCRIPT_CLASS = SafeFunction(lambda: ScriptModule({}))

SAFE_GLOBALS: dict[str, SafeFunction | StorageType | torch.dtype] = {
    **{name: SafeFunction(function) for name, function in FUNCTIONS.items()},
    **{f"torch {name}": StorageType(dtype) for name, dtype in STORAGE_DTYPES.items()},
    "torch.storage UntypedStorage": StorageType(torch.uint8),
    **{str(dtype).replace(".", " "): dtype for dtype in DTYPES},
}
"""By "module name", as pickle writes it."""
