"""Find the state dict in what a training script saved, and undo what wrappers did to its names."""

from __future__ import annotations

from typing import Any, TypeVar

from vitreous.weights.io.stored import StoredArray, StoredTensor, WeightFileError, quoted

# Where training scripts put the weights, beside the optimiser, the epoch and the like.
CONTAINERS = (
    *("model_ema", "state_dict_ema", "state_dict", "model", "model_state_dict", "module"),
    "params",
)
PADDLE_NAME_TABLE = "StructuredToParameterName@@"
WRAPPER_PREFIXES = ("module.", "_orig_mod.")  # of DataParallel, of torch.compile

Stored = StoredTensor | StoredArray
Value = TypeVar("Value")


def find_state(content: Any, inside: str | None) -> dict[str, Stored]:
    """The tensors by name in an unpickled file; `inside` chooses where there are several."""
    if not isinstance(content, dict):
        raise WeightFileError(f"it holds a {type(content).__name__}, not tensors by name")
    if inside is not None:
        if not isinstance(content.get(inside), dict):
            raise WeightFileError(f"there is nothing inside={inside!r}; it has {_listed(content)}")
        return _only_tensors(content[inside])
    held = [key for key in CONTAINERS if _tensors(content.get(key))]
    if len(held) > 1:
        raise WeightFileError(
            f"it holds several models ({', '.join(held)}): choose one, as in inside={held[0]!r}"
        )
    if held:
        return _only_tensors(content[held[0]])
    if not _tensors(content):
        raise WeightFileError(
            f"no tensors by name were found; it has {_listed(content)}: "
            "if they lie inside one of these, pass inside=..."
        )
    return _only_tensors(content)


def without_wrapper_prefixes(tensors: dict[str, Value]) -> dict[str, Value]:
    """The same without a prefix of DataParallel or torch.compile that all the names begin with."""
    for prefix in WRAPPER_PREFIXES * 2:  # compiled inside parallel, or the other way round
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
            case (str(), StoredArray() as array):  # paddle, with its own name for the tensor
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
        raise WeightFileError(f"beside tensors by name, its state dict has {_listed(others)}")
    return tensors


def _listed(content: dict[Any, Any]) -> str:
    first = [f"{quoted(key)} ({type(value).__name__})" for key, value in content.items()][:8]
    return ", ".join(first) + (f" and {len(content) - 8} more" if len(content) > 8 else "")
