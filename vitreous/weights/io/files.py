"""Weight files of every type: tensors by name, read without running code, written atomically.

    read_tensors("deit_small.pth").tensors["cls_token"]
    write_tensors("deit_small.safetensors", tensors, "safetensors")

The first bytes of a file decide its type, never its name. Every problem is raised as a
`CheckpointError` that begins with the path.
"""

from __future__ import annotations

import json
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from vitreous.atomic_write import replacing
from vitreous.errors import CheckpointError, WriteError
from vitreous.weights.io import readers
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.io.limits import WeightFileError, quoted
from vitreous.weights.io.state_dicts import strip_wrapper_prefixes
from vitreous.weights.io.writers import WRITERS, separate
from vitreous.wording import counted

SHARD_INDEX = "model.safetensors.index.json"
FOLDER_FILES = ("model.safetensors", SHARD_INDEX, "pytorch_model.bin")
SAFETENSORS_MAX_HEADER = 100_000_000
PICKLE_PROTOCOLS = tuple(bytes([0x80, version]) for version in (2, 3, 4, 5))

HTML = "an HTML page, such as a login or error page: download it again"
# Files that are often mistaken for weights, by their first bytes.
NOT_WEIGHTS = {
    b"version https://git-lfs": "a git-lfs pointer: run `git lfs pull`, or download the file",
    b"<!doctype": HTML,
    b"<html": HTML,
    b"<?xml": "an XML file, often a server's error message: download it again",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89png": "a PNG image",
    b"\x89hdf": "an HDF5 file of Keras or TensorFlow: convert it to safetensors or .npz",
    b"\x93numpy": "a single numpy array: save the arrays by name with numpy.savez",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"{": "a JSON file",
}

Reader = Callable[[Path, str | None], Checkpoint]


def read_tensors(path: str | Path, inside: str | None = None) -> Checkpoint:
    """Read a weight file, or the weights in a folder.

    inside: the entry to take from a training checkpoint with several models, such as 'model_ema';
    an empty one takes the first.
    A prefix that DataParallel or torch.compile added to all names is removed.
    """
    file = _weights_in(Path(path))
    read = _read_shards if file.name == SHARD_INDEX else _read_file
    found = read(file, inside)
    for name, tensor in found.tensors.items():
        # A tensor without elements may claim any shape; torch cannot compute with all of them.
        if math.prod(max(length, 1) for length in tensor.shape) >= 2**48:
            raise CheckpointError(
                f"{file}: tensor {quoted(name)} has the impossible shape {tuple(tensor.shape)}"
            )
    return replace(found, tensors=strip_wrapper_prefixes(found.tensors), path=file)


def write_tensors(
    path: str | Path,
    tensors: dict[str, Tensor],
    kind: str,
    metadata: dict[str, str] | None = None,
    wrap: str | None = None,
    before_rename: Callable[[Path], None] = lambda temporary: None,
) -> None:
    """Write tensors as 'safetensors', 'npz', 'pth' or 'pdparams': completely or not at all.

    wrap: the key for the tensors in the outer dict of a .pth file, which some scripts expect.
    before_rename: is given the complete file before it takes its name.
    """
    path = Path(path)
    if kind not in WRITERS:
        raise CheckpointError(f"{path}: unknown file type {kind!r}: use {', '.join(WRITERS)}")
    if metadata and kind != "safetensors":
        raise CheckpointError(f"{path}: only safetensors files have metadata, {kind} files cannot")
    options: dict[str, Any] = {"wrap": wrap} if kind == "pth" else {}
    if kind == "safetensors":
        options = {"metadata": metadata}
    try:
        with replacing(path) as temporary:
            WRITERS[kind](temporary, separate(tensors), **options)
            before_rename(temporary)
    except (WeightFileError, WriteError) as error:
        text = str(error) if isinstance(error, WriteError) else f"{path}: {error}"
        raise CheckpointError(text) from error
    except (ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error


def _weights_in(path: Path) -> Path:
    """The path itself, or the weight file in a folder."""
    with _errors_begin_with(path):
        if not path.is_dir():
            return path
        for name in FOLDER_FILES:
            if (path / name).is_file():
                return path / name
        found = sorted(quoted(entry.name) for entry in path.iterdir())
    listed = ", ".join(found[:20]) + (" ..." if len(found) > 20 else "")
    raise CheckpointError(
        f"{path}: this folder has none of {', '.join(FOLDER_FILES)}. It has: "
        f"{listed or 'nothing'}. If a file in it has the weights, pass that file's path"
    )


def config_of(source: Path) -> Path:
    """Where the config.json is that describes these weights."""
    folder = source.parent
    if folder.parent.name == "checkpoints":  # of a run
        folder = folder.parent.parent
    return folder / "config.json"


def _read_shards(index: Path, inside: str | None) -> Checkpoint:
    """The tensors of all files that a safetensors index lists."""
    with _errors_begin_with(index):
        content = json.loads(index.read_bytes())
        weight_map = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise WeightFileError("this index has no weight_map: download it again")
        for shard in weight_map.values():
            # Only files beside the index are read, never outside of the folder.
            if not isinstance(shard, str) or not shard or shard.startswith("."):
                raise WeightFileError(
                    f"its weight_map lists {quoted(shard)}, which is not a file name"
                )
            if {"/", "\\", ":", "\0"} & set(shard) or ".." in shard:
                raise WeightFileError(
                    f"its weight_map points outside of the folder: {quoted(shard)}"
                )
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for name in sorted(set(weight_map.values())):
        shard = _read_file(index.parent / name, inside)
        twice = tensors.keys() & shard.tensors.keys()
        if twice:
            raise CheckpointError(f"{index}: tensor {quoted(min(twice))} is in two of its files")
        tensors |= shard.tensors
        metadata |= shard.metadata
    missing = weight_map.keys() - tensors.keys()
    if missing:
        raise CheckpointError(
            f"{index}: its files lack {counted(len(missing), 'tensor')}, such as "
            f"{quoted(min(missing))}"
        )
    return Checkpoint(tensors, metadata)


def _read_file(path: Path, inside: str | None) -> Checkpoint:
    with _errors_begin_with(path):
        return _recognise(path)(path, inside)


def _recognise(path: Path) -> Reader:
    if not path.exists():
        raise WeightFileError("no such file")
    if not path.is_file():
        raise WeightFileError("not a regular file")
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise WeightFileError("the file is empty (0 bytes): download it again")
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= SAFETENSORS_MAX_HEADER:
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
            raise WeightFileError(f"this is not a weight file but {what}")
    raise WeightFileError(
        f"unknown type of weight file (it begins with {head[:16]!r}): expected safetensors, .npz, "
        "a .pth or .bin of torch, or a .pdparams of paddle"
    )


@contextmanager
def _errors_begin_with(path: Path) -> Iterator[None]:
    try:
        yield
    except WeightFileError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except MemoryError as error:
        raise CheckpointError(f"{path}: not enough memory to read it") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (
        *(SafetensorError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
        *(struct.error, NotImplementedError),
        *(ValueError, TypeError, OverflowError, RuntimeError, SyntaxError, tokenize.TokenError),
    ) as error:
        reason = str(error)[:200]
        raise CheckpointError(
            f"{path}: the file is damaged or incomplete ({reason}): download it again"
        ) from error
