"""How precisely a model is computed, and what this CPU is made for."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import torch

from vitreous.config import choice
from vitreous.errors import ConfigError

PRECISIONS = ("float32", "bfloat16", "float16", "int8")
SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Words that mean the same."""


def precision_named(word: str, known: Iterable[str] = PRECISIONS) -> str:
    """The one of `known` that is meant."""
    return choice("precision", SHORT.get(word, word), known)


@functools.cache
def has_bfloat16() -> bool:
    """Whether this CPU computes in bfloat16; without it, it is many times slower than float32."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:  # not Linux
        return bool(torch.backends.cpu.get_cpu_capability().startswith("AMX"))
    return "avx512_bf16" in flags or "amx_bf16" in flags


def check_bfloat16() -> None:
    if not has_bfloat16():
        raise ConfigError(
            "precision = 'bfloat16': this CPU does not compute in it (no avx512_bf16, no "
            "amx_bf16), and would be up to 100 times slower: use float32, or int8"
        )
