"""SentencePiece's files, spiece.model and tokenizer.model: a protocol buffer of pieces and scores.

Kudo and Richardson 2018. A unigram model (SigLIP's) takes the most likely pieces of a text, a BPE
model (Gemma's, SigLIP 2's) merges the pair with the best score until none is left. The reader below
knows the few fields of the format that matter, and runs nothing.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitreous.errors import CheckpointError
from vitreous.text.tokenizer_file import read_bytes

SPACE = "▁"
"""How pieces write it."""
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
"""Kinds of pieces."""
LONGEST_PIECE = 256
"""Characters. SentencePiece's own limit is 16 unless said."""

Field = tuple[int, int | bytes]


@dataclass(frozen=True)
class Pieces:
    """The content of a file."""

    names: list[str]
    scores: list[float]
    kinds: list[int]
    trainer: Mapping[int, int | bytes]
    """Fields of TrainerSpec by number."""
    normaliser: Mapping[int, int | bytes]
    """Of NormalizerSpec."""

    @property
    def end(self) -> int | None:
        """The id of </s> or <eos>."""
        return self._id(42, 2)

    @property
    def pad(self) -> int | None:
        return self._id(43, -1)

    @property
    def unknown(self) -> int:
        return self.kinds.index(UNKNOWN)

    def _id(self, field: int, usual: int) -> int | None:
        value = _signed(self.trainer.get(field, usual))
        return value if 0 <= value < len(self.names) else None


def read_pieces(path: Path) -> Pieces:
    content = read_bytes(path)
    try:
        return _checked(_pieces(content))
    except (ValueError, IndexError, struct.error) as error:
        raise CheckpointError(f"{path} is no SentencePiece model: {error}") from None


def sentencepiece_parts(pieces: Pieces) -> dict[str, Any]:
    """The parts of a tokenizer.json."""
    special = [
        {"id": id, "content": name, "special": kind != USER, "normalized": kind == USER}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for id, (name, kind) in enumerate(zip(pieces.names, pieces.kinds, strict=True))
        if kind in (CONTROL, USER, UNKNOWN)
    ]
    spec = pieces.normaliser
    prefix = bool(spec.get(3, True))  # add_dummy_prefix
    steps: list[dict[str, Any]] = []
    if charsmap := spec.get(2):
        assert isinstance(charsmap, bytes)
        encoded = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if spec.get(4, True):  # remove_extra_whitespaces
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    unigram = pieces.trainer.get(3, UNIGRAM) == UNIGRAM
    if unigram:
        scheme = "always" if prefix else "never"
        cut = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    else:
        cut = None
        if prefix:
            steps.append({"type": "Prepend", "prepend": SPACE})
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": cut,
        "decoder": None,
        "model": _unigram(pieces) if unigram else _byte_pairs(pieces),
    }


def _unigram(pieces: Pieces) -> dict[str, Any]:
    return {
        "type": "Unigram",
        "unk_id": pieces.unknown,
        "vocab": [list(each) for each in zip(pieces.names, pieces.scores, strict=True)],
        "byte_fallback": bool(pieces.trainer.get(35)),
    }


def _byte_pairs(pieces: Pieces) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": pieces.names[pieces.unknown],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": bool(pieces.trainer.get(35)),
        "ignore_merges": False,
        "vocab": {name: id for id, name in enumerate(pieces.names)},
        "merges": _merges(pieces),
    }


def _merges(pieces: Pieces) -> list[list[str]]:
    """Every pair that makes a piece, the best piece first: the file has only scores."""
    ids = {
        name: id
        for id, (name, kind) in enumerate(zip(pieces.names, pieces.kinds, strict=True))
        if kind == NORMAL
    }
    found = []
    for name, id in ids.items():
        for place in range(1, len(name)):
            first, second = name[:place], name[place:]
            if first in ids and second in ids:
                found.append((-pieces.scores[id], ids[first], ids[second], first, second))
    return [[first, second] for *_, first, second in sorted(found)]


# ---- the file


def _checked(pieces: Pieces) -> Pieces:
    kind = pieces.trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE):
        raise ValueError("its model splits words or characters; unigram and BPE are known")
    if pieces.trainer.get(24) or not pieces.normaliser.get(5, True):
        raise ValueError("it writes spaces behind words, or not at all, which is not known")
    if pieces.kinds.count(UNKNOWN) != 1:
        raise ValueError(f"{pieces.kinds.count(UNKNOWN)} unknown pieces; expected 1")
    if len({*pieces.names}) < len(pieces.names):
        raise ValueError("a piece is there twice")
    if not all(map(math.isfinite, pieces.scores)):
        raise ValueError("a score is no number")
    return pieces


def _pieces(content: bytes) -> Pieces:
    names: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    specs: dict[int, dict[int, int | bytes]] = {2: {}, 3: {}}
    for number, value in _fields(content):
        if number == 1:
            fields = dict(_fields(_bytes(value)))
            name = _bytes(fields.get(1, b"")).decode()
            if not 0 < len(name) <= LONGEST_PIECE:
                raise ValueError(f"piece {len(names)} has {len(name)} characters")
            names.append(name)
            (score,) = struct.unpack("<f", _bytes(fields.get(2, bytes(4))))
            scores.append(score)
            kinds.append(_signed(fields.get(3, NORMAL)))
        elif number in specs:
            specs[number] = dict(_fields(_bytes(value)))
    if not names:
        raise ValueError("it has no pieces")
    return Pieces(names, scores, kinds, specs[2], specs[3])


def _fields(content: bytes) -> Iterator[Field]:
    """Number and value of each field of a message: whole numbers, or bytes for the rest."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(content, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(content, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"byte {place} is of no known type")
        if place + size > len(content):
            raise ValueError("it ends too early")
        yield number, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError(f"byte {place} is in no number")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field has another type than in SentencePiece")
    return value


def _signed(value: int | bytes) -> int:
    """Of 64 bits."""
    if isinstance(value, bytes):
        raise ValueError("a field has another type than in SentencePiece")
    return value - 2**64 if value >= 2**63 else value
