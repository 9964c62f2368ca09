"""Weight files of every kind: tensors by name, read without running code and written atomically.

    read_tensors("deit_small.pth").tensors["cls_token"]
    write_tensors("deit_small.safetensors", tensors, "safetensors")

What a file is shows in its first bytes, never in its name. Whatever is wrong with it ends in a
`CheckpointError` that begins with its path.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from vitreous.errors import CheckpointError, did_you_mean
from vitreous.weights.io import readers
from vitreous.weights.io.state_dicts import without_wrapper_prefixes
from vitreous.weights.io.stored import WeightFileError, quoted
from vitreous.weights.io.writers import WRITERS, owned

SHARD_INDEX = "model.safetensors.index.json"
FOLDER_FILES = ("model.safetensors", SHARD_INDEX, "pytorch_model.bin")
SAFETENSORS_LARGEST_HEADER = 100_000_000
PICKLE_PROTOCOLS = tuple(bytes([0x80, version]) for version in (2, 3, 4, 5))

# What people have instead of weights, by its first bytes.
NOT_WEIGHTS = {
    b"version https://git-lfs": "a git-lfs pointer, a text that stands for the real file: run "
    "`git lfs pull`, or download the file itself",
    b"<!doctype": "an HTML page: the download ended at a login or error page, get the file again",
    b"<html": "an HTML page: the download ended at a login or error page, get the file again",
    b"<?xml": "an XML text, often the error message of a server: get the file again",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89png": "a PNG image",
    b"\x89hdf": "an HDF5 file of Keras or TensorFlow: convert it to safetensors or .npz",
    b"\x93numpy": "a single numpy array: save the arrays by name, with numpy.savez",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"{": "a JSON text",
}

Reader = Callable[[Path, str | None], readers.Content]


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, on the CPU, and the file they were read from."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    """Of a safetensors file; of any other, empty."""
    path: Path


def read_tensors(path: str | Path, inside: str | None = None) -> Checkpoint:
    """Read a weight file, or the weights in a folder.

    `inside` names the part to take of a training checkpoint that holds several models, such as
    'model_ema'. A prefix that DataParallel or torch.compile put before all the names is removed.
    """
    file = _weights_in(Path(path))
    read = _read_shards if file.name == SHARD_INDEX else _read_file
    tensors, metadata = read(file, inside)
    return Checkpoint(without_wrapper_prefixes(tensors), metadata, file)


def write_tensors(
    path: str | Path,
    tensors: dict[str, Tensor],
    kind: str,
    metadata: dict[str, str] | None = None,
    wrap: str | None = None,
) -> None:
    """Write tensors as 'safetensors', 'npz', 'pth' or 'pdparams': completely or not at all.

    `wrap` puts them under a key of a .pth file's outer dict, where some scripts look for them.
    """
    path = Path(path)
    if kind not in WRITERS:
        raise CheckpointError(
            f"{path}: {kind!r} is not among the kinds of weight file, {', '.join(WRITERS)}"
            f"{did_you_mean(kind, WRITERS)}"
        )
    if metadata and kind != "safetensors":
        raise CheckpointError(f"{path}: only safetensors keeps metadata, {kind} cannot")
    temporary = path.parent / f".vitreous-{secrets.token_hex(8)}.tmp"
    try:
        extra = {"wrap": wrap} if wrap is not None and kind == "pth" else {}
        WRITERS[kind](temporary, owned(tensors), metadata, **extra)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except WeightFileError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    finally:
        with suppress(OSError, ValueError):  # it is gone, or never was
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut; Windows can do without."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _weights_in(path: Path) -> Path:
    """The path itself, or of a folder the file in it that holds the weights."""
    with _errors_begin_with(path):
        if not path.is_dir():
            return path
        for name in FOLDER_FILES:
            if (path / name).is_file():
                return path / name
        there = sorted(quoted(entry.name) for entry in path.iterdir())
    listed = ", ".join(there[:20]) + (" ..." if len(there) > 20 else "")
    raise CheckpointError(
        f"{path}: this folder has none of {', '.join(FOLDER_FILES)}. It has: {listed or 'nothing'}"
    )


def _read_shards(index: Path, inside: str | None) -> readers.Content:
    """The tensors of all the files that a safetensors index names."""
    with _errors_begin_with(index):
        content = json.loads(index.read_bytes())
        places = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(places, dict) or not places:
            raise WeightFileError("this index has no weight_map: get it again")
        for shard in places.values():
            # The name of a file beside the index, and never a way out of the folder.
            if not isinstance(shard, str) or not shard or shard.startswith("."):
                raise WeightFileError(
                    f"its weight_map names {quoted(shard)}, which is not a file name"
                )
            if {"/", "\\", ":", "\0"} & set(shard) or ".." in shard:
                raise WeightFileError(f"its weight_map leads out of the folder: {quoted(shard)}")
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for shard in sorted(set(places.values())):
        shard_tensors, shard_metadata = _read_file(index.parent / shard, inside)
        twice = tensors.keys() & shard_tensors.keys()
        if twice:
            raise CheckpointError(f"{index}: tensor {quoted(min(twice))} is in two of its files")
        tensors |= shard_tensors
        metadata |= shard_metadata
    missing = places.keys() - tensors.keys()
    if missing:
        raise CheckpointError(
            f"{index}: {len(missing)} tensors are not in its files, such as {quoted(min(missing))}"
        )
    return tensors, metadata


def _read_file(path: Path, inside: str | None) -> readers.Content:
    with _errors_begin_with(path):
        return _recognise(path)(path, inside)


def _recognise(path: Path) -> Reader:
    if not path.exists():
        raise WeightFileError("there is no such file")
    if not path.is_file():
        raise WeightFileError("this is not a regular file")
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise WeightFileError("the file is empty (0 bytes): get it again")
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= SAFETENSORS_LARGEST_HEADER:
        return readers.read_safetensors
    if head.startswith(b"PK\x03\x04"):
        return readers.read_zip
    if readers.LEGACY_MAGIC.to_bytes(10, "little") in head:
        return readers.read_torch_legacy
    if head.startswith(PICKLE_PROTOCOLS):
        return readers.read_pickle
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for beginning, what in NOT_WEIGHTS.items():
        if text.startswith(beginning):
            raise WeightFileError(f"this is not weights but {what}")
    raise WeightFileError(
        f"this is no kind of weight file that is known here (it begins with {head[:16]!r}): "
        "safetensors, .npz, .pth or .bin of torch, .pdparams of paddle"
    )


@contextmanager
def _errors_begin_with(path: Path) -> Iterator[None]:
    try:
        yield
    except WeightFileError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except MemoryError as error:
        raise CheckpointError(f"{path}: there is not enough memory to read it") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (
        *(SafetensorError, zipfile.BadZipFile, zlib.error, EOFError, struct.error),
        *(ValueError, TypeError, OverflowError, RuntimeError, SyntaxError, tokenize.TokenError),
    ) as error:
        reason = str(error)[:200]
        raise CheckpointError(
            f"{path}: the file is damaged or incomplete ({reason}): get it again"
        ) from error
