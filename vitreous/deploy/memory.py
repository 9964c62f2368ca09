"""How much memory a way to compute a model takes: `python -m vitreous.deploy.memory`, which
`vitreous benchmark` starts and asks, a line of JSON for each way.

Each is built and run in a process of its own, forked from one in which nothing has been computed.
Its memory is the most that the process holds while it predicts, over what it held before the model
was loaded: weights, what an engine makes of them, and activations; not the libraries themselves.
What was needed for a moment to load or compile the model does not count.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from vitreous.deploy.candidates import Candidate, build
from vitreous.deploy.peers import peer
from vitreous.engines.table import GRAPHS
from vitreous.import_run import open_run
from vitreous.run_folder import OpenedRun
from vitreous.weights.blank import without_values

PASSES = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
IMPORTS = {"compile": "torch._inductor.compile_fx", **{name: name for name in GRAPHS}}
"""Before the model is: they are the library's memory and not its."""


def peak_memory(
    ways: Iterable[Candidate], run: OpenedRun, batches: Sequence[int], graphs: dict[str, Path]
) -> dict[tuple[str, int], int]:
    """Bytes of each way with each batch; without those that cannot be measured (not Linux, or the
    process ended)."""
    if not RESET.exists():
        return {}
    asked = [
        {
            **vars(way),
            "run": str(run.reference),
            "verify": run.verify,
            "batch": batch,
            "graph": str(graphs[way.library]) if way.library and way.engine in GRAPHS else "",
            "threads": torch.get_num_threads(),
        }
        for way in ways
        for batch in batches
    ]
    lines = "\n".join(json.dumps(each) for each in asked)
    child = [sys.executable, "-m", "vitreous.deploy.memory"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no processes of a process that was forked
    }
    done = subprocess.run(
        child, input=lines, capture_output=True, text=True, check=False, env=environment
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(way, batch): size for way, batch, size in found}


def _measured(way: Candidate, run: str, batch: int, graph: str, verify: bool) -> int:
    """In a process of its own."""
    for name in (way.library, IMPORTS.get(way.engine)):
        if name:
            importlib.import_module(name)
    opened = open_run(run, verify=verify)
    with without_values():
        model = opened.config.create()
        if way.library:  # what a library imports when it builds a model is its memory, too
            peer(way.library, model, weights=False)
    images = torch.randn(batch, opened.config.preprocess.channels, *model.own_size())
    before = _of_process("VmRSS")
    file = Path(graph) if graph else None
    compute = build(way, opened, model, weights=False, graph=file)
    with torch.inference_mode():
        compute(images)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is free goes back
        RESET.write_text("5")  # VmHWM begins again
        for _ in range(PASSES):
            compute(images)
    return _of_process("VmHWM") - before


def _of_process(name: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print
    for line in sys.stdin.read().splitlines():
        asked: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            _answer(asked, answers)
        os.waitpid(child, 0)


def _answer(asked: dict[str, Any], answers: int) -> None:
    """Never returns. Nothing is written for what fails: its time was measured elsewhere."""
    try:
        torch.set_num_threads(asked.pop("threads"))
        run, batch, graph, verify = map(asked.pop, ("run", "batch", "graph", "verify"))
        way = Candidate(**asked)
        answer = json.dumps([str(way), batch, _measured(way, run, batch, graph, verify)])
        os.write(answers, f"{answer}\n".encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
