"""A reader for each of the five types of weight file.

Only the requested tensors are read: the optimiser state of a training checkpoint stays on disk.
"""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import torch
from torch import Tensor

from vitreous.errors import advice
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.io.limits import DTYPES, WeightFileError, memory_limit, quoted
from vitreous.weights.io.safe_globals import tensor_from_bytes
from vitreous.weights.io.state_dicts import entries_of, find_state, settings_of
from vitreous.weights.io.unpickle import no_storages, unpickle

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001
MAX_TENSORS = 100_000
CHUNK_BYTES = 2**20
INCOMPLETE = "the file ends inside a tensor: it is incomplete, download it again"
BIG_ENDIAN = "it was written on a big-endian machine: save it again on a little-endian one"
HEADER_READERS = {  # version 3 is for structured arrays, which are not weights
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


Entries = dict[str, zipfile.ZipInfo]


def read_safetensors(path: Path, inside: str | None) -> Checkpoint:
    _check_no_inside("a safetensors file", inside)
    with safetensors.safe_open(path, framework="pt", device="cpu") as file:
        names = list(file.keys())
        _check_count(len(names))
        tensors = {name: file.get_tensor(name) for name in names}
        metadata = dict(file.metadata() or {})
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise WeightFileError(f"tensor {quoted(name)} has the unsupported type {tensor.dtype}")
    return Checkpoint(tensors, metadata)


def read_zip(path: Path, inside: str | None) -> Checkpoint:
    """Torch since version 1.6 and numpy both write zip archives."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if len(entries) < len(archive.infolist()):
            raise WeightFileError("the archive has two entries of the same name")
        if any(entry.header_offset < 0 for entry in entries.values()):
            raise WeightFileError("bytes are missing from the archive: download it again")
        if any(entry.flag_bits & 1 for entry in entries.values()):
            raise WeightFileError("the archive is encrypted")
        pickles = [name for name in entries if name.endswith("/data.pkl")]
        if len(pickles) == 1:
            return _read_torch(archive, entries, pickles[0].removesuffix("data.pkl"), inside)
        if any(name.endswith(".npy") for name in entries):
            _check_no_inside("an .npz file", inside)
            return Checkpoint(_read_arrays(archive, entries))
    listed = ", ".join(quoted(name) for name in sorted(entries)[:5])
    raise WeightFileError(
        f"a zip archive with neither numpy nor torch weights: {listed or 'empty'}"
    )


def _read_arrays(archive: zipfile.ZipFile, entries: Entries) -> dict[str, Tensor]:
    _check_count(len(entries))
    declared = sum(entry.file_size for entry in entries.values())
    if declared > memory_limit(_file_size(archive.fp)):
        raise WeightFileError(f"it would unpack to {declared:,} bytes: this looks like a zip bomb")
    tensors = {}
    for filename, entry in entries.items():
        if not filename.endswith(".npy"):
            raise WeightFileError(f"{quoted(filename)} is not an array")
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in HEADER_READERS:
                raise WeightFileError(f"{quoted(filename)} is not an array of numbers")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # e.g. about headers written by Python 2
                shape, is_fortran, dtype = HEADER_READERS[version](stream)
            content = read_bytes(stream, entry.file_size - stream.tell()).numpy()
        name = filename.removesuffix(".npy")
        tensors[name] = tensor_from_bytes(content, dtype, shape, is_fortran)
    return tensors


def _read_torch(
    archive: zipfile.ZipFile, entries: Entries, root: str, inside: str | None
) -> Checkpoint:
    # A TorchScript program has its code beside the tensors, which nobody reads here.
    entries = {
        name: entry
        for name, entry in entries.items()
        if not name.startswith((f"{root}code/", f"{root}constants", f"{root}traced_inputs"))
    }
    for entry in entries.values():
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise WeightFileError(
                f"{quoted(entry.filename)} is compressed; torch never compresses weights. Load it "
                "with torch on a machine that you can risk, and save its state_dict()"
            )
    if sum(entry.file_size for entry in entries.values()) > _file_size(archive.fp):
        raise WeightFileError("entries of the archive overlap: this looks like a zip bomb")
    if f"{root}byteorder" in entries and archive.read(f"{root}byteorder") != b"little":
        raise WeightFileError(BIG_ENDIAN)

    @cache
    def read_storage(name: str) -> Tensor:
        with archive.open(entries[name]) as stream:
            return read_bytes(stream, entries[name].file_size)

    def open_storage(key: str, dtype: torch.dtype, count: int) -> Callable[[], Tensor]:
        name = f"{root}data/{key}"
        if name not in entries or entries[name].file_size != count * dtype.itemsize:
            raise WeightFileError(f"its storage {quoted(key)} is missing or has the wrong size")
        return partial(read_storage, name)

    content = unpickle(io.BytesIO(archive.read(f"{root}data.pkl")), open_storage)
    return _build(content, inside)


def read_torch_legacy(path: Path, inside: str | None) -> Checkpoint:
    """Torch before 1.6: five pickles, then each storage as its length (8 bytes) and its bytes."""
    with path.open("rb") as file:
        preamble = [unpickle(file, no_storages) for _ in range(3)]
        system = preamble.pop()
        if preamble != [LEGACY_MAGIC, LEGACY_PROTOCOL]:
            raise WeightFileError("a torch file of an unknown version")
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise WeightFileError(BIG_ENDIAN)

        declared: dict[str, tuple[int, int]] = {}  # key -> elements, bytes
        starts: dict[str, int] = {}

        @cache
        def read_storage(key: str) -> Tensor:
            file.seek(starts[key])
            return read_bytes(file, declared[key][1])

        def open_storage(key: str, dtype: torch.dtype, count: int) -> Callable[[], Tensor]:
            size = (count, count * dtype.itemsize)
            if declared.setdefault(key, size) != size:
                raise WeightFileError(f"its storage {quoted(key)} has two sizes")
            return partial(read_storage, key)

        content = unpickle(file, open_storage)
        order = unpickle(file, no_storages)
        if not isinstance(order, list) or not all(type(key) is str for key in order):
            raise WeightFileError("its list of storages is damaged: download it again")
        if sorted(order) != sorted(declared):
            raise WeightFileError("its list of storages does not agree with its tensors")
        for key in order:
            elements, size_bytes = declared[key]
            if int.from_bytes(file.read(8), "little") != elements:
                raise WeightFileError(f"its storage {quoted(key)} is missing or has the wrong size")
            starts[key] = file.tell()
            if starts[key] + size_bytes > _file_size(file):
                raise WeightFileError(INCOMPLETE)
            file.seek(size_bytes, os.SEEK_CUR)
        return _build(content, inside)


def read_pickle(path: Path, inside: str | None) -> Checkpoint:
    """Paddle's `.pdparams`: one pickle of numpy arrays by name."""
    with path.open("rb") as file:
        content = unpickle(file, no_storages)
    return _build(content, inside)


def read_bytes(stream: IO[bytes], count: int) -> Tensor:
    """`count` bytes as a uint8 tensor."""
    content = torch.empty(count, dtype=torch.uint8)
    memory, filled = content.numpy(), 0
    while filled < count:
        part = stream.read(min(CHUNK_BYTES, count - filled))
        if not part:
            raise WeightFileError(INCOMPLETE)
        memory[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
        filled += len(part)
    return content


def _build(content: Any, inside: str | None) -> Checkpoint:
    stored = find_state(content, inside)
    _check_count(len(stored))
    tensors = {name: tensor.build() for name, tensor in stored.items()}
    return Checkpoint(tensors, settings=settings_of(content), entries=entries_of(content))


def _check_no_inside(kind: str, inside: str | None) -> None:
    if inside:
        without = advice(": leave out ", inside=inside)
        raise WeightFileError(f"{kind} has only one set of tensors{without}")


def _check_count(count: int) -> None:
    if count > MAX_TENSORS:
        raise WeightFileError(f"it has {count:,} tensors; at most {MAX_TENSORS:,} are read")
    if count == 0:
        raise WeightFileError("it has no tensors")


def _file_size(file: IO[bytes] | None) -> int:
    return os.fstat(file.fileno()).st_size if file else 0
