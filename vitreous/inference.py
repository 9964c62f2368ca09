"""How a model is run: what a user may say about it, as one record.

It goes whole from the command line, from Python or from a server to whoever needs a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any

from vitreous.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class InferenceOptions:
    """None means: as usual for the run, the file or the machine."""

    engine: str | None = None
    """torch, onnxruntime, openvino, or auto, the fastest of them here (`engines/table.py`)."""
    precision: str | None = None
    """float32, bfloat16, int8 or auto."""
    threads: int | None = None
    """Threads that compute."""
    merge: int | None = None
    """Patches that every block of a ViT merges with others that are like them."""
    image_size: int | Sequence[int] | None = None
    """Height and width of what the model sees, other than in training (`resized_run.py`)."""
    classes: str | Path | Sequence[str] | Mapping[Any, str | Sequence[str]] | None = None
    """Words for the classes, of a model that takes words (`worded_run.py`, `text/words.py`),"""
    templates: str | Path | Sequence[str] | None = None
    """and the sentences that they stand in (`text/prompts.py`)."""
    probe: Sequence[str] | str | None = None
    """What is changed inside the model while it runs, such as no-head=3.1 (`engines/probes.py`),"""
    probe_seed: int = 0
    """and what random probes are drawn from."""
    tile: int | None = None
    """Pixels of the tiles into which images are cut,"""
    overlap: float | None = None
    """and the part of a tile that it shares with the next one."""
    nms: float | None = None
    """Largest IoU of two boxes of a class."""
    max_pixels: int | None = None
    """An image with more pixels is refused, as is one that would be enlarged to more."""
    device: Any = None
    """Name of the device; without one a GPU if there is one."""
    verify: bool = True
    """Whether weights and files must be as Vitreous wrote them."""

    def __post_init__(self) -> None:
        if self.image_size == ():  # as the command line has it
            object.__setattr__(self, "image_size", None)
        object.__setattr__(self, "probe", _texts("probe", self.probe))
        if self.templates is not None and self.classes is None:
            raise ConfigError("templates are for the words of classes: give classes, too")
        at_least("probe_seed", self.probe_seed, 0)
        if self.probe_seed and self.probe is None:
            raise ConfigError(f"probe_seed = {self.probe_seed} is that of a probe: give probe, too")
        for name in ("max_pixels", "threads"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> InferenceOptions:
        """From keyword arguments."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known) or f": the options are {', '.join(known)}"
                raise ConfigError(f"unknown option {name!r}{hint}")
        return cls(**given)

    def given(self, *names: str) -> list[str]:
        """Those of the named options that are set."""
        return [name for name in names if getattr(self, name) is not None]


def _texts(name: str, given: Any) -> tuple[str, ...] | None:
    """Several words, or a text with them; None where there are none."""
    words = given.split() if isinstance(given, str) else given or ()
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{name} = {given!r}: expected a text, or a list of texts")
    return tuple(words) or None


def at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name} = {value!r}: expected a whole number of at least {least}")


USUAL = InferenceOptions()
