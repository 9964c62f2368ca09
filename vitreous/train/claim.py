"""A run folder belongs to one job at a time, from before the first file to the end.

The first process of a job holds a lock on `RUN/.claim`, which the system takes back when it dies.
The file names the job, so that a job without `--out` that torchrun has started again finds its
folder. It is removed when the run is finished.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vitreous.atomic_write import missing_folders, remove_empty
from vitreous.engines.world import World
from vitreous.errors import ConfigError
from vitreous.run_folder import Run
from vitreous.train.distributed import restarts

CLAIM = ".claim"
_HELD: set[IO[str]] = set()
"""Locked by this process. A fork of it has them open, too, and would keep the lock for seconds when
this process is killed: processes that load data notice that late."""


def _leave_to_parent() -> None:
    for file in _HELD:
        file.close()
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def folder_names(data: str) -> Iterator[Path]:
    """runs/NAME for this data, then runs/NAME-2 …"""
    name = re.sub(r"[^\w.-]+", "-", Path(data).name).strip("-.") or "run"
    yield Path("runs", name)
    number = 2
    while True:
        yield Path("runs", f"{name}-{number}")
        number += 1


@dataclass
class ClaimedRun:
    """This job's own run folder."""

    run: Run
    begun: bool = False
    """Whether training has begun: from then on an error leaves the claim, for a restart."""


@contextmanager
def claimed(out: Path | None, data: str, world: World) -> Iterator[ClaimedRun]:
    """The folder `out`, or a new one for this data. An error before training has begun leaves
    everything as it was."""
    held, made, problem = None, list[Path](), ""
    path = out or Path()
    if world.is_first:
        try:
            path, made = _find(out, data)
            held = _lock(path)
        except (OSError, ConfigError) as error:
            reason = error.strerror or error if isinstance(error, OSError) else ""
            problem = f"--out {path}: cannot be written: {reason}" if reason else str(error)
            remove_empty(made)
    path, problem = world.broadcast((path, problem))
    if problem:
        raise ConfigError(problem)
    claim, ended = ClaimedRun(Run(path)), False
    try:
        yield claim
        ended = True
    finally:
        if held is not None:
            if ended or not claim.begun:
                (path / CLAIM).unlink(missing_ok=True)
            remove_empty(made)
            _HELD.discard(held)
            held.close()


def _find(out: Path | None, data: str) -> tuple[Path, list[Path]]:
    """The folder, which is there now, and those that were made for it."""
    if out is not None:
        made = missing_folders(out)
        out.mkdir(parents=True, exist_ok=True)
        return out, made
    if restarts():
        for claim in Path("runs").glob(f"*/{CLAIM}"):
            if claim.read_text(encoding="utf-8", errors="replace") == _job():
                return claim.parent, []
    for path in folder_names(data):
        made = missing_folders(path)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path, made
    raise AssertionError


def _lock(path: Path) -> IO[str]:
    """The claim, locked; closing it gives the folder free."""
    file = (path / CLAIM).open("a+", encoding="utf-8")
    try:
        import fcntl
    except ImportError:  # Windows: only new folders are apart
        pass
    else:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise ConfigError(
                f"{path} is being trained by another process: wait for it, or choose another --out"
            ) from None
        try:
            same = os.path.samestat(os.fstat(file.fileno()), (path / CLAIM).stat())
        except FileNotFoundError:
            same = False
        if not same:  # the one before has just finished and removed its claim
            file.close()
            return _lock(path)
    try:
        file.truncate(0)
        file.write(_job())
        file.flush()
    except OSError:  # a full disk
        (path / CLAIM).unlink(missing_ok=True)
        with suppress(OSError):
            file.close()
        raise
    _HELD.add(file)
    return file


def _job() -> str:
    """The same for all attempts of one torchrun, which stays alive while it restarts processes;
    else of this process alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return secrets.token_hex(8)
    return f"{os.environ['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {os.getppid()}"
