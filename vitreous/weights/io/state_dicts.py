"""Find the state dict in a training checkpoint, and strip the prefixes that wrappers add."""

from __future__ import annotations

from typing import Any, TypeVar

from vitreous.weights.io.limits import WeightFileError, quoted
from vitreous.weights.io.safe_globals import ScriptModule, StoredArray, StoredTensor

# Keys under which training scripts save the weights.
CONTAINERS = (
    *("model_ema", "state_dict_ema", "state_dict", "model", "model_state_dict", "module"),
    "params",
)
PADDLE_NAME_TABLE = "StructuredToParameterName@@"
COUNTER = "n_averaged"
WRAPPER_PREFIXES = ("module.", "_orig_mod.")  # of DataParallel, of torch.compile

Stored = StoredTensor | StoredArray
Value = TypeVar("Value")


def find_state(content: Any, inside: str | None) -> dict[str, Stored]:
    """The state dict in an unpickled file; `inside` chooses one if there are several."""
    if isinstance(content, ScriptModule):
        return _tensors(content.flatten())
    if not isinstance(content, dict):
        raise WeightFileError(f"it has a {type(content).__name__}, not a dict of tensors")
    if inside is not None:
        if not isinstance(content.get(inside), dict):
            raise WeightFileError(f"it has no dict {inside!r} inside, only {_listed(content)}")
        return _only_tensors(content[inside])
    found = [key for key in CONTAINERS if _tensors(content.get(key))]
    if not found and not _tensors(content):  # by any other name
        found = [key for key, value in content.items() if isinstance(key, str) and _tensors(value)]
    if len(found) > 1:
        raise WeightFileError(
            f"it has several models ({', '.join(found)}): pass inside={found[0]!r}, for example"
        )
    if found:
        return _only_tensors(content[found[0]])
    if not _tensors(content):
        raise WeightFileError(
            f"it has no tensors by name, only {_listed(content)}: if one of these holds them, "
            "pass inside=KEY"
        )
    return _only_tensors(content)


def entries_of(content: Any) -> dict[str, str]:
    """What stands in the outer dict of an unpickled file (`{"model": "152 tensors"}`); empty where
    it is a state dict itself."""
    if not isinstance(content, dict) or _tensors(content):
        return {}
    return {str(key): _described(value) for key, value in content.items()}


def _described(value: Any) -> str:
    if tensors := _tensors(value):
        return f"{len(tensors):,} tensors"
    if isinstance(value, str | int | float | None):
        return quoted(value)
    if isinstance(value, dict | list | tuple | set):
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
