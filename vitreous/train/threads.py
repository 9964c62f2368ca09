"""How many threads compute, and how they wait.

Between two pieces of work, OpenMP's threads wait by spinning, so that they are there at once. Where
other programs need the cores, a thread that spins keeps them from the one that it waits for: two
trainings side by side on two cores took seven times as long as where threads sleep after a moment
(`cli/main.py` sets that). To sleep at once costs an idle machine half as much time again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

CGROUPS = Path("/sys/fs/cgroup")
V1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
"""What older kernels call the two numbers of cpu.max; a quota of -1 is none."""


def available_cores() -> int:
    """Cores that this process may use: by its affinity, and the quota of its container."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(min([cores, *_quotas()]), 1)


def _quotas() -> Iterator[int]:
    """The limits of the control groups that this process is in, in cores, rounded up."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    groups = {"", *(line.rpartition(":")[2].strip("/") for line in lines)}
    for group in groups:
        for limit in (_numbers(CGROUPS / group, "cpu.max"), _numbers(CGROUPS / "cpu" / group, *V1)):
            if len(limit) == 2 and limit[0] > 0:
                yield math.ceil(limit[0] / limit[1])


def _numbers(folder: Path, *names: str) -> list[int]:
    """What these files hold, together; nothing where there is no limit, or no file."""
    try:
        words = " ".join((folder / name).read_text(encoding="utf-8") for name in names).split()
        return [int(word) for word in words]
    except (OSError, ValueError):  # the limit is "max"
        return []


@contextmanager
def computing_threads(asked: int | None) -> Iterator[int]:
    """Inside, torch computes with as many threads as are asked for; else with those that
    OMP_NUM_THREADS names, or one for each core."""
    before = torch.get_num_threads()
    usual = before if "OMP_NUM_THREADS" in os.environ else min(before, available_cores())
    torch.set_num_threads(asked or usual)
    try:
        yield asked or usual
    finally:
        torch.set_num_threads(before)
