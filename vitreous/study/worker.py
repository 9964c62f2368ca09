"""A process that trains and measures one run after the other: `python -m vitreous.study.worker`.

It reads a job per line, as JSON, and writes what happens, an object per line. To import torch takes
seconds, which small runs do not; and a run that takes the process with it (no memory, a fault of a
library) ends nothing but itself. When nobody holds the other end any more, it ends at once: a run
loses nothing by that.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, TextIO

TELL_SECONDS = 0.5
"""Between two messages about the steps of a run."""
Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    """What a run prints goes to stderr, a file: stdout is for the messages alone."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for job in _lines(sys.stdin):
        tell(answer(job, tell))


def _lines(file: TextIO) -> Iterator[dict[str, Any]]:
    """Jobs as they come; the end of the file ends the process, whatever it does."""
    waiting: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in file:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(waiting.get())


def answer(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The last message about a job: what was found, or why it failed."""
    from vitreous.errors import VitreousError
    from vitreous.train.stop import StoppedError

    _log(f"\n== {job['name']}")
    began = time.process_time()
    try:
        found = _rehearsed(job) if job["do"] == "rehearse" else _done(job, tell)
        return {"event": "done", "cpu_seconds": time.process_time() - began, **found}
    except StoppedError:
        return {"event": "stopped"}
    except VitreousError as error:
        _log(str(error))
        return {"event": "failed", "why": str(error)}
    except KeyboardInterrupt:
        return {"event": "stopped"}
    except Exception as error:
        traceback.print_exc()
        return {"event": "failed", "why": f"{type(error).__name__}: {error} (our fault)"}


def _log(text: str) -> None:
    """To the file in the study's logs/ that stderr is."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _rehearsed(job: dict[str, Any]) -> dict[str, Any]:
    from vitreous.train.recipe import parse_recipe
    from vitreous.train.rehearsal import pace

    return vars(pace(parse_recipe(job["recipe"], job["name"]), _log))


def _done(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    from dataclasses import replace
    from pathlib import Path

    from vitreous.run_folder import Run
    from vitreous.study.measures import measured
    from vitreous.train.open_data import stored_recipe
    from vitreous.train.progress import Event
    from vitreous.train.recipe import parse_recipe
    from vitreous.train.run import train

    told = 0.0

    def watch(event: Event) -> None:
        nonlocal told
        if event.evaluated is not None:
            values = [f"{event.primary} {event.evaluated[event.primary]:.4f}"]
            _log(f"epoch {event.epoch:g}: loss {event.loss:.4f}, {', '.join(values)}")
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            tell({"event": "step", "part": event.step / event.steps})

    folder, recipe = Path(job["run"]), parse_recipe(job["recipe"], job["name"])
    stored = stored_recipe(Run(folder))
    if stored is not None:
        recipe = replace(stored, threads=recipe.threads)
    train(recipe, folder, resume=stored is not None, log=_log, watch=watch)
    asked = (job["evaluations"], job["measures"])
    return measured(folder, *asked, _log, baselines=job["baselines"])


if __name__ == "__main__":
    main()
