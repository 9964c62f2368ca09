"""Files that are there completely, or as they were: also after a crash, a full disk or a power cut.

All files that Vitreous makes are written here: under a temporary name in the folder where they
belong, flushed to the disk, and renamed. What cannot be written is a `WriteError` that names the
file, and leaves neither temporary files nor empty folders behind.

    with making_folder(path.parent), replacing(path) as temporary:
        picture.save(temporary, "PNG")
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from vitreous.errors import CheckpointError, WriteError

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
"""No space, over the quota, read-only, larger than a file may be: the user must do something."""
TEMPORARY = ".vitreous-*.tmp"


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """Inside, a temporary path to write to, whose file then takes the place of `path`.

    sync: wait until it is on the disk. Files that come in thousands and can be made again need not.
    """
    with naming_file(path), renaming(path, sync=sync) as temporary:
        yield temporary


@contextmanager
def renaming(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """As `replacing`, for a file that is written while other things are done: an OSError inside is
    not taken for one of this file."""
    temporary = path.parent / _temporary_name()
    try:
        yield temporary
        with naming_file(path):
            if sync:
                _sync(temporary)
            os.replace(temporary, path)
            if sync:
                sync_folder(path.parent)
    finally:
        with suppress(OSError, ValueError):  # renamed, or never made
            temporary.unlink()


@contextmanager
def renaming_files(
    folder: Path, named: Path, last: Callable[[Path], bool] = lambda file: False
) -> Iterator[Path]:
    """Inside, a temporary folder, whose files then take their places in `folder`; those that are to
    come last after the others. An error says that `named` cannot be written."""
    aside = folder / _temporary_name()
    try:
        with naming_file(named):
            aside.mkdir()
        with _naming_final(aside, folder):
            yield aside
        with naming_file(named):
            files = sorted(aside.iterdir(), key=lambda file: (last(file), file.name))
            for file in files:
                _sync(file)
            for file in files:
                os.replace(file, folder / file.name)
            sync_folder(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Inside, a temporary folder, which then takes the place of `folder`."""
    aside = folder.parent / _temporary_name()
    with naming_file(folder):
        try:
            aside.mkdir()
            with _naming_final(aside, folder):
                yield aside
            for file in aside.iterdir():
                _sync(file)
            sync_folder(aside)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(aside, folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def making_folder(folder: Path, named: str | Path | None = None) -> Iterator[None]:
    """Inside, the folder is there. If something is raised, those that were made are removed again,
    as far as they are empty. `named` is what an error calls it."""
    made = missing_folders(folder)
    try:
        with naming_file(named or folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        remove_empty(made)
        raise


def missing_folders(folder: Path) -> list[Path]:
    """Those that `mkdir(parents=True)` would make, the innermost first."""
    return [each for each in (folder, *folder.parents) if not each.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    for each in folders:
        with suppress(OSError):
            each.rmdir()


def check_writable(folder: Path, named: str | Path | None = None) -> None:
    """Before any work is done: whether files can be made in the folder, or it can be made. That the
    disk is full is seen later."""
    with naming_file(named or folder):
        there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
        if not there.is_dir():
            raise OSError(errno.ENOTDIR, f"{there} is no folder")
        if not os.access(there, os.W_OK | os.X_OK):
            read_only = os.name == "posix" and os.statvfs(there).f_flag & os.ST_RDONLY
            code = errno.EROFS if read_only else errno.EACCES
            raise OSError(code, os.strerror(code))


@contextmanager
def streaming(path: Path) -> Iterator[Any]:
    """Inside, a file for libraries that must not meet an error while they write (torch's writer of
    archives ends the process then): the first one is raised at the end."""
    with path.open("wb") as file:
        stream = Stream(file)
        yield stream
    if stream.error is not None:
        raise stream.error


@dataclass
class Stream:
    """A file that takes everything, and remembers the first error."""

    file: BinaryIO
    error: OSError | None = None

    def write(self, content: Any) -> int:
        if self.error is None:
            try:
                self.file.write(content)
            except OSError as error:
                self.error = error
        return memoryview(content).nbytes

    def flush(self) -> None:
        """Its file is flushed when it is closed."""


def append_line(path: Path, line: str) -> None:
    """A line at the end of a file: all of it, or nothing."""
    with naming_file(path), path.open("ab", buffering=0) as file:
        before, content = file.tell(), line.encode() + b"\n"
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except BaseException:
            with suppress(OSError):
                file.truncate(before)
            raise


@contextmanager
def naming_file(path: str | Path) -> Iterator[None]:
    """Inside, what cannot be written is an OSError; outside, an error that names the file."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def _naming_final(aside: Path, folder: Path) -> Iterator[None]:
    """Inside, errors name files of a temporary folder; outside, those that they are to become."""
    try:
        yield
    except (WriteError, CheckpointError) as error:
        raise type(error)(str(error).replace(str(aside), str(folder))) from error


def cannot_write(path: str | Path, error: OSError) -> WriteError:
    return WriteError(f"{path}: cannot be written: {error.strerror or error}")


def sync_folder(folder: Path) -> None:
    """Make renames survive a power cut. Windows does not need this, and some network disks, and
    folders that may not be read, cannot."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _temporary_name() -> str:
    return TEMPORARY.replace("*", secrets.token_hex(8))
