"""Read a pickle of tensors without running any code from it.

A pickle is a program for a stack machine, and Python's own machine calls whatever the program
names. Restricting `find_class` is not enough for untrusted files: ten bytes still make
`pickle.Unpickler` allocate gigabytes (a large memo index), and two megabytes crash the interpreter
(the hash of a deeply nested tuple). So this is a machine of our own. `pickletools` decodes the
opcodes, and we execute only those that weight files need, on containers and `safe_globals`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO

import torch
from torch import Tensor

from vitreous.weights.io import safe_globals as safe
from vitreous.weights.io.limits import WeightFileError, quoted

# (key, dtype, number of elements) of a storage -> a function that reads its bytes.
OpenStorage = Callable[[str, torch.dtype, int], Callable[[], Tensor]]

LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
}
BYTES = {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def unpickle(stream: BinaryIO, open_storage: OpenStorage) -> Any:
    """The content of the pickle at the stream's position; its tensors are not yet built."""
    machine = _Machine(open_storage)
    try:
        for opcode, argument, _position in pickletools.genops(stream):
            machine.execute(opcode.name, argument)
        return machine.stack.pop()
    except WeightFileError:
        raise
    except Exception as error:
        # Broad on purpose: damaged bytes are still opcodes, and these can fail in any way.
        reason = f"{type(error).__name__} {error}"[:200].rstrip()
        raise WeightFileError(
            f"the file is damaged or incomplete ({reason}): download it again"
        ) from error


def no_storages(key: str, _dtype: torch.dtype, _count: int) -> Callable[[], Tensor]:
    """The `open_storage` for a pickle that contains all its data."""
    raise WeightFileError(f"it refers to a storage {quoted(key)}, but this type of file has none")


class _Machine:
    """The state of the stack machine: the stack, its marks and the memo."""

    def __init__(self, open_storage: OpenStorage) -> None:
        self.open_storage = open_storage
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.literal_bytes, self.copied_bytes = 0, 0

    def count_copies(self, arguments: tuple[Any, ...]) -> None:
        """Calls copy their arguments: a file may not copy much more than it contains."""
        self.copied_bytes += sum(len(a) for a in arguments if hasattr(a, "__len__"))
        if self.copied_bytes > 2 * self.literal_bytes + 1_000_000:
            raise WeightFileError("its pickle copies the same data over and over: it is hostile")

    def execute(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case _ if opcode in LITERALS:
                self.literal_bytes += len(argument) if isinstance(argument, str) else 0
                stack.append(argument)
            case _ if opcode in BYTES:
                self.literal_bytes += len(argument)
                stack.append(bytearray(argument))  # writable, so that a tensor can use it
            case _ if opcode in CONSTANTS:
                stack.append(CONSTANTS[opcode])
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
                self.marks.append(len(stack) - int(opcode[-1]))
                stack.append(tuple(self.since_mark()))
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND":
                value = stack.pop()
                self.sequence().append(value)
            case "APPENDS":
                values = self.since_mark()
                self.sequence().extend(values)
            case "EMPTY_DICT":
                stack.append({})
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self.mapping().update(safe.make_dict([(key, value)]))
            case "SETITEMS":
                items = self.since_mark()
                self.mapping().update(safe.make_dict(zip(items[::2], items[1::2], strict=True)))
            case "EMPTY_SET":
                stack.append(set())
            case "ADDITEMS":
                items = self.since_mark()
                self.top(set).update(safe.make_set(items))
            case "FROZENSET":
                stack.append(safe.make_set(self.since_mark()))
            case "GLOBAL":
                stack.append(_global(argument))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(_global(f"{module} {name}"))
            case "BINPERSID":
                stack.append(self.storage(stack.pop()))
            case "REDUCE" | "NEWOBJ":
                arguments = stack.pop()
                if type(stack[-1]) is safe.UnknownClass:
                    # A call would be code; an object by its attributes alone is not.
                    if opcode == "REDUCE" and stack[-1].name not in safe.HARMLESS:
                        raise _refused(stack[-1].name)
                    stack[-1] = safe.PickledObject(stack[-1].name, {}, {})
                    return
                function = self.top(safe.SafeFunction)
                self.count_copies(arguments)
                stack[-1] = function.call(*arguments)
            case "BUILD":
                state = stack.pop()
                # Attributes of a dict, such as torch's `_metadata`, are skipped.
                if type(stack[-1]) is not dict:
                    objects = safe.ArrayType, safe.StoredArray, safe.ScriptModule
                    self.top(*objects, safe.PickledObject).fill(state)
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _:
                raise WeightFileError(
                    f"its pickle has the opcode {opcode}, which weights never need: "
                    "the file is damaged or hostile"
                )

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        if not 0 <= mark <= len(self.stack):
            raise IndexError("the stack of the pickle is too short")
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def top(self, *types: type) -> Any:
        """The top of the stack, which must be of one of these types."""
        if type(self.stack[-1]) not in types:
            found, wanted = type(self.stack[-1]).__name__, types[0].__name__
            raise WeightFileError(
                f"its pickle uses a {found} as a {wanted}: the file is damaged or hostile"
            )
        return self.stack[-1]

    def mapping(self) -> dict[Any, Any]:
        """The dict on top of the stack, or the entries of an object that is one."""
        top = self.stack[-1]
        return top.items if type(top) is safe.PickledObject else self.top(dict)

    def sequence(self) -> list[Any]:
        """The list on top of the stack; of an object that is one, nothing is kept."""
        return [] if type(self.stack[-1]) is safe.PickledObject else self.top(list)

    def storage(self, identifier: Any) -> safe.Storage | safe.UnknownClass:
        match identifier:
            case ("module", safe.UnknownClass() as kind, *_source):
                return kind  # torch before 1.6 has a class with its source text, which is not read
            case (
                "storage",
                safe.StorageType(dtype=dtype),
                str(key),
                _location,
                int(count),
                *view,
            ):
                # Torch before 0.4 could store a view of a storage; since then the last is None.
                if count >= 0 and view in ([], [None]):
                    read = self.open_storage(key, dtype, count)
                    return safe.Storage(dtype, count * dtype.itemsize, read)
        raise WeightFileError(f"it refers to {quoted(identifier)}, which is not a storage")


def _global(name: str) -> Any:
    if name.startswith(safe.SCRIPT):
        return safe.SCRIPT_CLASS
    return safe.SAFE_GLOBALS.get(name, safe.UnknownClass(name))


def _refused(name: str) -> WeightFileError:
    return WeightFileError(
        f"loading this file would run {quoted(name.replace(' ', '.'))}. Weights need no code, "
        "and code from a file can do anything to your machine, so it is refused. Ask its "
        "author for a safetensors file, or convert it on a machine that you can risk: "
        "torch.save(model.state_dict(), 'weights.pth')"
    )
