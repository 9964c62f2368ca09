"""SHA-256 of files: written where files are, and compared where they are read.

A file that has the size and the time of change that it had is not read again. The same bytes that
are hashed are then in the memory of the system, so that loading them after that takes less.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

Buffer = bytes | mmap.mmap

State = tuple[tuple[object, ...], ...]

_known: dict[State, str] = {}
_KNOWN = 1000
"""Files to remember at most."""
_RECENT = 2_000_000_000
"""Nanoseconds: a file that changed so lately can change again without a new time."""


def file_sha256(path: Path) -> str:
    """The hash of a file's content, in hex digits."""
    state = state_of(path)
    if state in _known:
        return _known[state]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if state and state == state_of(path):
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[state] = digest
    return digest


def state_of(*paths: Path) -> State:
    """What is the same again only if files were not changed; empty if that cannot be told."""
    states = [each.stat() for each in paths]
    if any(time.time_ns() - each.st_mtime_ns < _RECENT for each in states):
        return ()
    return tuple(
        (os.fspath(path.resolve()), each.st_ino, each.st_size, each.st_mtime_ns)
        for path, each in zip(paths, states, strict=True)
    )


def sha256_without(parts: Iterable[Buffer], mark: str) -> str:
    """The hash of parts one after the other, with zeros wherever the hex digits `mark` stand: so a
    file can hold its own."""
    digest, wanted = hashlib.sha256(), mark.encode("ascii")
    for part in parts:
        whole, begin = memoryview(part), 0
        while (found := part.find(wanted, begin)) >= 0:
            digest.update(whole[begin:found])
            digest.update(b"0" * len(wanted))
            begin = found + len(wanted)
        digest.update(whole[begin:])
        whole.release()
    return digest.hexdigest()
