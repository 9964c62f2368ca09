"""Read a pickle as data: tensors and plain containers, and nothing that runs.

A pickle is a program for a stack machine, and Python's own machine calls whatever the program
names. To close its `find_class` is not enough for the files of strangers: ten bytes still make
`pickle.Unpickler` take gigabytes (a large memo index), and two megabytes crash the interpreter (the
hash of a deeply nested tuple). So the machine here is ours: `pickletools` decodes the instructions,
and we follow only those that writers of weights use. They make plain containers and stand-ins.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import Tensor

from vitreous.weights.io import stored
from vitreous.weights.io.stored import WeightFileError, quoted

# From a storage's key, element type and number of elements to a function that reads its bytes.
OpenStorage = Callable[[str, torch.dtype, int], Callable[[], Tensor]]

ITSELF = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
}
BYTES = {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


@dataclass(frozen=True, slots=True)
class Maker:
    """Stands for a class or function that a pickle may call."""

    make: Callable[..., Any]


def _globals() -> Iterator[tuple[str, Maker | stored.StorageType | torch.dtype]]:
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
        yield f"torch._utils {name}", Maker(stored.make_tensor)
    yield "torch._utils _rebuild_tensor_v3", Maker(stored.make_tensor_v3)
    yield "torch._utils _rebuild_parameter", Maker(stored.make_parameter)
    yield "torch Size", Maker(tuple)
    for name, dtype in stored.STORAGE_DTYPES.items():
        yield f"torch {name}", stored.StorageType(dtype)
    yield "torch.storage UntypedStorage", stored.StorageType(torch.uint8)
    for dtype in stored.DTYPES:
        yield str(dtype).replace(".", " "), dtype
    for core in ("numpy.core", "numpy._core"):  # before and since numpy 2
        yield f"{core}.multiarray _reconstruct", Maker(stored.make_empty_array)
        yield f"{core}.multiarray scalar", Maker(stored.make_number)
        yield f"{core}.numeric _frombuffer", Maker(stored.make_array_from_buffer)
    yield "numpy ndarray", Maker(stored.make_empty_array)
    yield "numpy dtype", Maker(stored.make_array_type)
    yield "collections OrderedDict", Maker(stored.make_dict)
    # Training scripts keep their arguments; nothing here needs them, so they become plain data.
    for name in ("argparse Namespace", "yacs.config CfgNode"):  # the second in Swin's releases
        yield name, Maker(stored.make_dict)
    yield "_codecs encode", Maker(stored.make_bytes)
    for builtins in ("builtins", "__builtin__"):  # Python 3 and 2; protocol 2 has the second
        for name in ("bytes", "bytearray"):
            yield f"{builtins} {name}", Maker(stored.make_bytes)
        for name in ("set", "frozenset"):
            yield f"{builtins} {name}", Maker(stored.make_set)
        yield f"{builtins} tuple", Maker(tuple)  # paddle writes a tensor as tuple((name, array))


# What a pickle may ask for, as "module name", and what it gets instead.
GLOBALS = dict(_globals())


def unpickle(stream: BinaryIO, open_storage: OpenStorage) -> Any:
    """The content of the pickle at the stream's position, with stand-ins in place of tensors."""
    machine = _Machine(open_storage)
    try:
        for opcode, argument, _position in pickletools.genops(stream):
            machine.follow(opcode.name, argument)
        return machine.stack.pop()
    except WeightFileError:
        raise
    except Exception as error:
        # Broad on purpose: damaged bytes are still instructions, and they can fail in every way
        # in which an operation on arbitrary plain data can.
        reason = f"{type(error).__name__} {error}"[:200].rstrip()
        raise WeightFileError(
            f"the file is damaged or incomplete ({reason}): get it again"
        ) from error


def no_storages(key: str, _dtype: torch.dtype, _count: int) -> Callable[[], Tensor]:
    """The `open_storage` of a pickle that holds all its data itself."""
    raise WeightFileError(f"it refers to a storage {quoted(key)}, but this kind of file has none")


class _Machine:
    """The state of one run: a stack, the heights marked on it, and the memo."""

    def __init__(self, open_storage: OpenStorage) -> None:
        self.open_storage = open_storage
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.literal, self.copied = 0, 0

    def charge(self, arguments: tuple[Any, ...]) -> None:
        """Calls copy what they are given: no file may copy much more than it holds."""
        self.copied += sum(len(a) for a in arguments if hasattr(a, "__len__"))
        if self.copied > 2 * self.literal + 1_000_000:
            raise WeightFileError("its pickle copies the same data again and again: it is hostile")

    def follow(self, instruction: str, argument: Any) -> None:
        stack = self.stack
        match instruction:
            case _ if instruction in ITSELF:
                self.literal += len(argument) if isinstance(argument, str) else 0
                stack.append(argument)
            case _ if instruction in BYTES:
                self.literal += len(argument)
                stack.append(bytearray(argument))  # memory that a tensor can keep and write to
            case _ if instruction in CONSTANTS:
                stack.append(CONSTANTS[instruction])
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "MARK":
                self.marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(self.since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.marks.append(len(stack) - int(instruction[-1]))
                stack.append(tuple(self.since_mark()))
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND":
                value = stack.pop()
                self.top(list).append(value)
            case "APPENDS":
                values = self.since_mark()
                self.top(list).extend(values)
            case "EMPTY_DICT":
                stack.append({})
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self.top(dict).update(stored.make_dict([(key, value)]))
            case "SETITEMS":
                items = self.since_mark()
                self.top(dict).update(stored.make_dict(zip(items[::2], items[1::2], strict=True)))
            case "EMPTY_SET":
                stack.append(set())
            case "ADDITEMS":
                items = self.since_mark()
                self.top(set).update(stored.make_set(items))
            case "FROZENSET":
                stack.append(stored.make_set(self.since_mark()))
            case "GLOBAL":
                stack.append(_stand_in(argument))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(_stand_in(f"{module} {name}"))
            case "BINPERSID":
                stack.append(self.storage(stack.pop()))
            case "REDUCE" | "NEWOBJ":
                arguments = stack.pop()
                maker = self.top(Maker)
                self.charge(arguments)
                stack[-1] = maker.make(*arguments)
            case "BUILD":
                state = stack.pop()
                # A dictionary's attributes, such as the `_metadata` of torch, are left out.
                if type(stack[-1]) is not dict:
                    self.top(stored.ArrayType, stored.StoredArray).fill(state)
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _:
                raise WeightFileError(
                    f"its pickle has the instruction {instruction}, which no weights need: "
                    "the file is damaged or hostile"
                )

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        if not 0 <= mark <= len(self.stack):
            raise IndexError("the stack of the pickle is too short")
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def top(self, *kinds: type) -> Any:
        """The top of the stack, which an instruction is about to fill or call."""
        if type(self.stack[-1]) not in kinds:
            found, wanted = type(self.stack[-1]).__name__, kinds[0].__name__
            raise WeightFileError(
                f"its pickle uses a {found} as a {wanted}: the file is damaged or hostile"
            )
        return self.stack[-1]

    def storage(self, identifier: Any) -> stored.Storage:
        match identifier:
            case (
                "storage",
                stored.StorageType(dtype=dtype),
                str(key),
                _location,
                int(count),
                *view,
            ):
                # Torch before 0.4 could store a view of a storage; since then the sixth is None.
                if count >= 0 and view in ([], [None]):
                    read = self.open_storage(key, dtype, count)
                    return stored.Storage(dtype, count * dtype.itemsize, read)
        raise WeightFileError(
            f"it refers to {quoted(identifier)}, which is not a storage of numbers"
        )


def _stand_in(name: str) -> Any:
    if name not in GLOBALS:
        raise WeightFileError(
            f"opening this file would run {quoted(name.replace(' ', '.'))}. Weights need no code, "
            "and code from a file can do anything to this machine, so it is refused. Ask its "
            "author for a safetensors file, or convert it yourself in a place you trust: "
            "torch.save(model.state_dict(), 'weights.pth')"
        )
    return GLOBALS[name]
