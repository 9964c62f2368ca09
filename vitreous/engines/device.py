"""The devices of this machine."""

from __future__ import annotations

import torch

from vitreous.errors import ConfigError


def find_device(name: str | torch.device | None = None) -> torch.device:
    """The device of this name, which must be here; without one a GPU, or else the CPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        return torch.device("cuda" if count else "cpu")
    here = ["cpu", *(["cuda"] if count else []), *(f"cuda:{number}" for number in range(count))]
    if torch.backends.mps.is_available():
        here.append("mps")
    text = str(name)
    if text not in here:
        no_gpu = text.startswith("cuda") and not count
        why = ": there is no GPU that torch can use" if no_gpu else ""
        raise ConfigError(f"device = {text!r} is not here{why}; use {' or '.join(here)}")
    return torch.device(text)
