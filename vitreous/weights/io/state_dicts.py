"""Find the state dict in a training checkpoint, and strip the prefixes that wrappers add."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

from vitreous.errors import Word, advice
from vitreous.weights.io.limits import WeightFileError, quoted
from vitreous.weights.io.safe_globals import (
    MAX_ATTRIBUTES,
    MODULE_PARTS,
    PickledObject,
    ScriptModule,
    StoredArray,
    StoredTensor,
)
from vitreous.wording import counted

# Keys under which training scripts save the weights.
CONTAINERS = (
    *("model_ema", "state_dict_ema", "state_dict", "model", "model_state_dict", "module"),
    "params",
)
PADDLE_NAME_TABLE = "StructuredToParameterName@@"
COUNTER = "n_averaged"
WRAPPER_PREFIXES = ("module.", "_orig_mod.")  # of DataParallel, of torch.compile

TELLING = re.compile(
    r"head|patch|im(age|g)|dim|depth|layer|block|class|channel|eps|hidden|emb|mlp|activ|pool|size|"
    r"(^|_)(mean|std|norm|width|d_model|ffn?)(_|$)",
    re.IGNORECASE,
)
"""Names of settings that may be about a model, rather than about its training."""
MAX_LENGTH = 40
"""Of the name and the text of a setting."""

Stored = StoredTensor | StoredArray
Value = TypeVar("Value")


def find_state(content: Any, inside: str | None) -> dict[str, Stored]:
    """The state dict in an unpickled file; `inside` chooses one if there are several, the first if
    it is empty."""
    content = _opened(content)
    if isinstance(content, ScriptModule):
        return _tensors(content.flatten())
    if not isinstance(content, dict):
        raise WeightFileError(f"it has a {type(content).__name__}, not a dict of tensors")
    if inside:
        if not isinstance(content.get(inside), dict):
            raise WeightFileError(f"it has no dict {inside!r} inside, only {_listed(content)}")
        inner = content[inside]
        return _only_tensors(inner) if _tensors(inner) else find_state(inner, None)
    found = [key for key in CONTAINERS if _tensors(content.get(key))]
    if not found and not _tensors(content):  # by any other name
        found = [key for key, value in content.items() if isinstance(key, str) and _tensors(value)]
    if len(found) > 1 and inside is None:
        chosen = advice(": pass ", ", for example", inside=found[0])
        raise WeightFileError(f"it has several models ({', '.join(found)}){chosen}")
    if found:
        return _only_tensors(content[found[0]])
    if not _tensors(content):
        deeper = [key for key, value in content.items() if _holds_states(value)]
        if len(deeper) == 1:
            return find_state(content[deeper[0]], None)
        if not content:
            raise WeightFileError("it has no tensors: what was saved is empty")
        raise WeightFileError(
            f"it has no tensors by name, only {_listed(content)}"
            f"{advice(': if one of these holds them, pass ', inside=Word('KEY'))}"
        )
    return _only_tensors(content)


def _opened(content: Any) -> Any:
    """With models that were pickled as a whole as their state dicts, here or as entries, and other
    objects as dicts of what they have."""
    content = _as_dict(content)
    if not isinstance(content, dict):
        return content
    return {key: _as_dict(value) for key, value in content.items()}


def _as_dict(value: Any) -> Any:
    if not isinstance(value, PickledObject):
        return value
    return value.state_dict() if value.is_module else value.content


def _holds_states(value: Any) -> bool:
    """Whether it is a dict with a state dict in it."""
    return isinstance(value, dict) and any(
        isinstance(key, str) and _tensors(each) for key, each in _opened(value).items()
    )


def entries_of(content: Any) -> dict[str, str]:
    """What stands in the outer dict of an unpickled file (`{"model": "152 tensors"}`); empty where
    it is a state dict itself."""
    if isinstance(content, PickledObject) and content.is_module:
        return {"pickled model": _described(content)}
    if not isinstance(content, dict):
        return {}
    if _tensors(content) and not any(_tensors(_opened(content).get(key)) for key in CONTAINERS):
        return {}
    return {str(key): _described(value) for key, value in content.items()}


def settings_of(content: Any) -> dict[str, Any]:
    """What a file says besides its tensors about numbers that they do not show (heads, patches,
    epsilons): arguments of a training script, or attributes of a pickled model. Names and values
    are the author's own."""
    found: dict[str, Any] = {}
    for name, value in itertools.islice(_named_values(content), MAX_ATTRIBUTES):
        telling = isinstance(name, str) and TELLING.search(name[:MAX_LENGTH])
        if telling and not name.startswith("_") and _is_short(value):
            found.setdefault(name, value)
    return found


def _named_values(content: Any) -> Iterator[tuple[Any, Any]]:
    """All entries and attributes, those of the outer objects first."""
    left = deque([content])
    while left:
        value = left.popleft()
        tables = [value] if isinstance(value, dict) else []
        if isinstance(value, PickledObject):
            modules = value.modules().values() if value.is_module else (value,)
            tables = [module.content for module in modules]
        for name, each in (item for table in tables for item in table.items()):
            yield name, each
            inside = isinstance(each, dict | PickledObject) and name not in MODULE_PARTS
            if inside and not str(name).startswith("optim"):  # which has numbers of its own
                left.append(each)


def _is_short(value: Any) -> bool:
    parts = value if isinstance(value, list | tuple) else (value,)
    return 0 < len(parts) <= 4 and all(
        (isinstance(part, str) and len(part) <= MAX_LENGTH)
        or (isinstance(part, int | float) and abs(part) < 2**60)
        for part in parts
    )


def _described(value: Any) -> str:
    if tensors := _tensors(value):
        return counted(len(tensors), "tensor")
    said = ", ".join(f"{name}={quoted(each)}" for name, each in settings_of(value).items())
    said = said and f": {said}"
    if isinstance(value, PickledObject):
        kind = value.kind.replace(" ", ".")
        inside = f", {counted(len(value.state_dict()), 'tensor')}" if value.is_module else ""
        return f"{kind}{inside}{said}"
    if isinstance(value, dict):
        return f"dict of {len(value):,}{said}"
    if isinstance(value, str | int | float | None):
        return quoted(value)
    if isinstance(value, list | tuple | set):
        return f"{type(value).__name__} of {len(value):,}"
    return type(value).__name__


def strip_wrapper_prefixes(tensors: dict[str, Value]) -> dict[str, Value]:
    """Remove prefixes of DataParallel and torch.compile that all names share, and the counter that
    torch's averaged model has beside them."""
    if COUNTER in tensors and all(name.startswith(("module.", COUNTER)) for name in tensors):
        tensors = {name: value for name, value in tensors.items() if name != COUNTER}
    for prefix in WRAPPER_PREFIXES * 2:  # compile inside DataParallel, or the other way round
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def _tensors(state: Any) -> dict[Any, Stored]:
    if not isinstance(state, dict):
        return {}
    found: dict[Any, Stored] = {}
    for key, value in state.items():
        match value:
            case StoredTensor() | StoredArray():
                found[key] = value
            case (str(), StoredArray() as array):  # paddle: (internal name, array)
                found[key] = array
    return found


def _only_tensors(state: dict[Any, Any]) -> dict[str, Stored]:
    tensors = _tensors(state)
    others = {
        key: value
        for key, value in state.items()
        if key != PADDLE_NAME_TABLE and not (isinstance(key, str) and key in tensors)
    }
    if others:
        raise WeightFileError(f"its state dict has other entries than tensors: {_listed(others)}")
    return tensors


def _listed(content: dict[Any, Any]) -> str:
    first = [f"{quoted(key)} ({type(value).__name__})" for key, value in content.items()][:8]
    return ", ".join(first) + (f" and {len(content) - 8} more" if len(content) > 8 else "")
