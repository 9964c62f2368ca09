"""Vectors on disk: one file at the end, and parts beside it while they are computed.

A .npz holds `paths`, `vectors` (n, d) float32, not normalised, `labels` and `splits` (empty text
where there is none), `stamps` (which tell whether an image has changed), and as single texts
`model`, `model_hash`, `pool` and `truth_kind`. A .parquet has the same in columns and metadata.
Files appear complete or not at all.
"""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vitreous.atomic_write import check_writable, making_folder, replacing
from vitreous.errors import ConfigError, DataError

NPZ, PARQUET = ".npz", ".parquet"
TEXTS = ("paths", "labels", "splits")
PIECE = 1 << 24
"""Bytes of an array of text that are in memory at a time."""


@dataclass(frozen=True)
class About:
    """What vectors were made with."""

    model: str
    model_hash: str
    """Of the weights, the config and the preprocessing."""
    pool: str
    truth_kind: str = ""
    """Of what `labels` says: class, or labels where an image may have several."""

    @property
    def key(self) -> tuple[str, str]:
        """Vectors with the same can be compared."""
        return self.model_hash, self.pool


@dataclass(frozen=True)
class Stored:
    """The content of a file."""

    paths: list[str]
    vectors: NDArray[np.float32]
    """(n, d)"""
    stamps: NDArray[np.int64] = field(repr=False)
    labels: list[str]
    """Of each image; empty where nothing is known."""
    splits: list[str]
    about: About


def check_out(path: Path) -> None:
    """Before any work is done."""
    if path.suffix.lower() not in (NPZ, PARQUET):
        raise ConfigError(f"--out {path}: vectors are written to a file ending in .npz or .parquet")
    if path.suffix.lower() == PARQUET:
        _pyarrow(path)
    if path.is_dir():
        raise ConfigError(f"--out {path}: is a folder: give the name of a file")
    check_writable(path.parent, named=f"--out {path}")


def write(path: Path, stored: Stored) -> None:
    with making_folder(path.parent), replacing(path) as temporary:
        if path.suffix.lower() == PARQUET:
            _write_parquet(temporary, stored, path)
        else:
            _write_npz(temporary, stored)


def read(path: Path) -> Stored:
    """A file that `write` made; another one is a DataError."""
    if path.suffix.lower() == PARQUET:
        return _read_parquet(path)
    with _reading(path), path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        about = About(**{each.name: str(file[each.name]) for each in fields(About)})
        texts = {name: _read_texts(file, name) for name in TEXTS}
        return _checked(
            Stored(vectors=file["vectors"], stamps=file["stamps"], about=about, **texts)
        )


class PartFiles:
    """Vectors that were computed for a file that is not there yet, in a folder beside it. A part is
    written every few seconds; the rest can be lost."""

    SECONDS = 20.0

    def __init__(self, path: Path, about: About) -> None:
        self.folder = path.with_name(f"{path.name}.parts")
        self.about = about
        self.pending: list[tuple[list[str], NDArray[np.int64], NDArray[np.float32]]] = []
        self.written = time.monotonic()

    def read(self) -> Iterator[Stored]:
        """What is left of an interrupted run; a damaged part is as if it were not there."""
        for path in sorted(self.folder.glob("*.npz")):
            try:
                yield read(path)
            except DataError:
                continue

    def add(self, names: list[str], stamps: Any, vectors: NDArray[np.float32]) -> None:
        self.pending.append((names, np.array(stamps, np.int64).reshape(-1, 2), vectors))
        if time.monotonic() - self.written > self.SECONDS:
            self.flush()

    def flush(self) -> None:
        if self.pending:
            names = [name for part, _, _ in self.pending for name in part]
            stamps, vectors = (np.concatenate([each[i] for each in self.pending]) for i in (1, 2))
            none = [""] * len(names)
            stored = Stored(names, vectors, stamps, none, none, self.about)
            write(self.folder / f"{time.time_ns()}.npz", stored)
            self.pending = []
        self.written = time.monotonic()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Inside, whatever is wrong with a file is a DataError that names it."""
    try:
        yield
    except Exception as error:  # a damaged file fails in many ways: zipfile's, zlib's, EOFError …
        raise DataError(
            f"{path}: is no file of vectors that 'vitreous embed' wrote ({error}): give another "
            "name, or remove it"
        ) from None


def _checked(stored: Stored) -> Stored:
    count = len(stored.paths)
    lengths = (len(stored.labels), len(stored.splits), len(stored.stamps), len(stored.vectors))
    if any(length != count for length in lengths) or stored.vectors.ndim != 2:
        raise ValueError("its arrays do not belong together")
    return stored


def _write_npz(path: Path, stored: Stored) -> None:
    """As numpy.savez does. In numpy's arrays of text all rows are as long as the longest one, so
    these are compressed, and neither written nor read at once."""
    arrays: dict[str, NDArray[Any]] = {"vectors": stored.vectors, "stamps": stored.stamps}
    arrays |= {name: np.array(value) for name, value in asdict(stored.about).items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in TEXTS:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write_texts(member, getattr(stored, name))
        for name, values in arrays.items():  # by a ZipInfo, which says nothing of compression
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _write_texts(member: IO[bytes], values: list[str]) -> None:
    """What numpy.save writes of an array of text."""
    dtype = np.dtype(f"<U{max(map(len, values), default=1) or 1}")
    header = {"descr": dtype.str, "fortran_order": False, "shape": (len(values),)}
    np.lib.format.write_array_header_1_0(member, header)
    rows = max(PIECE // dtype.itemsize, 1)
    for start in range(0, len(values), rows):
        member.write(np.array(values[start : start + rows], dtype).tobytes())


def _read_texts(file: Any, name: str) -> list[str]:
    """Of an open .npz."""
    with file.zip.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        if dtype.kind != "U" or len(shape) != 1:
            raise ValueError(f"{name} is no list of texts")
        rows = max(PIECE // max(dtype.itemsize, 1), 1)
        found: list[str] = []
        while len(found) < shape[0]:
            count = min(rows, shape[0] - len(found))
            found += np.frombuffer(member.read(count * dtype.itemsize), dtype, count).tolist()
        return found


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"{path}: .parquet needs pyarrow, which is not installed: pip install pyarrow (or "
            "'vitreous[parquet]'), or write to a .npz"
        ) from None
    return pyarrow


def _write_parquet(temporary: Path, stored: Stored, path: Path) -> None:
    arrow = _pyarrow(path)
    columns = {
        "path": arrow.array(stored.paths, arrow.string()),
        "label": arrow.array([label or None for label in stored.labels], arrow.string()),
        "split": arrow.array([split or None for split in stored.splits], arrow.string()),
        "stamp_1": arrow.array(stored.stamps[:, 0]),
        "stamp_2": arrow.array(stored.stamps[:, 1]),
        "vector": arrow.FixedSizeListArray.from_arrays(
            arrow.array(stored.vectors.reshape(-1)), stored.vectors.shape[1]
        ),
    }
    table = arrow.table(columns).replace_schema_metadata(asdict(stored.about))
    arrow.parquet.write_table(table, temporary)


def _read_parquet(path: Path) -> Stored:
    arrow = _pyarrow(path)
    with _reading(path):
        table = arrow.parquet.read_table(path)
        metadata = table.schema.metadata
        length = table.schema.field("vector").type.list_size
        parts = [chunk.flatten().to_numpy() for chunk in table["vector"].chunks]
        vectors = np.concatenate([*parts, np.zeros(0, np.float32)]).reshape(-1, length)
        stamps = [table[name].to_numpy() for name in ("stamp_1", "stamp_2")]
        return _checked(
            Stored(
                table["path"].to_pylist(),
                vectors,
                np.stack(stamps, axis=1),
                [label or "" for label in table["label"].to_pylist()],
                [split or "" for split in table["split"].to_pylist()],
                About(**{f.name: metadata[f.name.encode()].decode() for f in fields(About)}),
            )
        )
