"""The checksum of an exported file, which its note holds: of the graph, the weights and the note.

While it is computed, zeros stand for its own digits.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from vitreous.checksums import Buffer, State, sha256_without, state_of
from vitreous.engines.torch_graph import entries_of
from vitreous.errors import ConfigError

_verified: set[tuple[str, State]] = set()
"""Seals that were right, with the state of the files that have them."""


def seal_of(path: Path, others: list[Path], mark: str) -> str:
    """What the seal of a file must be; `mark` are the digits that it has. `others` are the files
    with its weights."""
    if path.suffix == ".pt2":
        return sha256_without(_archive_parts(path), mark)
    with ExitStack() as stack:
        return sha256_without([_mapped(each, stack) for each in (path, *others)], mark)


def check_seal(path: Path, others: list[Path], seal: str) -> None:
    """Any change of a file after it was written is an error."""
    state = state_of(path, *others)
    if (seal, state) in _verified:
        return
    found = seal_of(path, others, seal)
    if found != seal:
        files = " and ".join(map(str, (path, *others)))
        raise ConfigError(
            f"{files}: not as written by 'vitreous export': the SHA-256 of the content begins with "
            f"{found[:8]}, not with {seal[:8]}. The file is damaged, or somebody has changed it: "
            "copy or export it again, or use it as it is with --no-verify (verify in Python)"
        )
    if state:
        _verified.add((seal, state))


def _mapped(path: Path, stack: ExitStack) -> Buffer:
    if path.stat().st_size == 0:
        return b""
    file = stack.enter_context(path.open("rb"))
    return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _archive_parts(path: Path, more: Mapping[str, bytes] = MappingProxyType({})) -> Iterator[bytes]:
    """Names and contents; how an archive lays them out does not matter."""
    with zipfile.ZipFile(path) as archive:
        entries = entries_of(archive, path)
        for name in sorted({*entries, *more}):
            content = more[name] if name in more else archive.read(entries[name])
            yield f"{name} {len(content)}\n".encode()
            yield content


def write_seal(path: Path, others: list[Path], mark: str) -> None:
    """Into a file that has the digits `mark` where its seal belongs."""
    seal = seal_of(path, others, mark).encode("ascii")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        while (place := content.find(mark.encode("ascii"))) >= 0:
            content[place : place + len(seal)] = seal


def add_sealed(path: Path, name: str, text: str, mark: str) -> None:
    """Add a text, which has the digits `mark` where the seal belongs, to an archive."""
    seal = sha256_without(_archive_parts(path, {name: text.encode()}), mark)
    with zipfile.ZipFile(path, "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/{name}", text.replace(mark, seal))
