"""What this machine's processor is made for. Machines differ: it is asked at run time."""

from __future__ import annotations

import functools
from pathlib import Path

import torch


@functools.cache
def has_bfloat16() -> bool:
    """Whether this CPU computes in bfloat16; without it, it is many times slower than float32."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:  # not Linux
        return bool(torch.backends.cpu.get_cpu_capability().startswith("AMX"))
    return "avx512_bf16" in flags or "amx_bf16" in flags
