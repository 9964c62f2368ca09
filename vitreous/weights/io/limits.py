"""What is accepted in a weight file, and the error for the rest."""

from __future__ import annotations

import reprlib

import torch

STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
DTYPES = {*STORAGE_DTYPES.values(), torch.uint16, torch.uint32, torch.uint64}

# `repr` of a name or value from an untrusted file, shortened for a message.
_clip = reprlib.Repr()
_clip.maxstring = _clip.maxother = 120
quoted = _clip.repr


class WeightFileError(Exception):
    """Why a file cannot be read or written; `files.py` adds its path."""


def memory_limit(bytes_on_disk: int) -> int:
    """How much memory this many bytes of a file may occupy; more looks like a zip bomb."""
    return 100 * bytes_on_disk + 64 * 2**20
