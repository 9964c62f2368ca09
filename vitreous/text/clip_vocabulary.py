"""CLIP's tokens: pairs of bytes that are merged, in the order in which they were learned.

The same vocabulary is published as OpenAI's list of merges (bpe_simple_vocab_16e6.txt.gz), as
vocab.json with merges.txt, and inside a tokenizer.json. All of them become the same tokenizer. It
does not clean texts: that is in the record. A tokenizer that is trained on captions has this layout
too, so that other libraries can read it.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitreous.errors import CheckpointError
from vitreous.text.tokenizer_file import MOST_BYTES, WORDS, read_bytes

Merge = tuple[str, str]

BEGIN, END = "<|startoftext|>", "<|endoftext|>"
WORD_END = "</w>"
"""What the last piece of a word has at its end."""
SIZE = 49_408
"""Of the published vocabulary; OpenAI's file has more merges than it uses."""
FIXED = 2 * 256 + 2
"""Tokens that are no merges: the bytes, the bytes at the end of a word, begin and end."""


def byte_names() -> list[str]:
    """The 256 bytes as characters that can be seen, as GPT-2 writes them and in CLIP's order: those
    of Latin-1 that can be seen stand for themselves, the others follow from U+0100 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [*map(chr, seen), *(chr(256 + i) for i in range(256 - len(seen)))]


def vocabulary_of(merges: Sequence[Merge]) -> dict[str, int]:
    """The id of each token, as CLIP numbers them: bytes, bytes that end a word, merges, begin,
    end."""
    alone = byte_names()
    names = [*alone, *(name + WORD_END for name in alone), *map("".join, merges), BEGIN, END]
    return {name: number for number, name in enumerate(names)}


def clip_parts(vocabulary: Mapping[str, int], merges: Iterable[Merge]) -> dict[str, Any]:
    """The parts of a tokenizer.json."""
    special = [
        {"id": vocabulary[name], "content": name, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for name in (BEGIN, END)
    ]
    words = {
        "type": "Split",
        "pattern": {"Regex": WORDS},
        "behavior": "Removed",  # what is between the words
        "invert": True,
    }
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                words,
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": WORD_END,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(vocabulary),
            "merges": [list(merge) for merge in merges],
        },
    }


def from_merges_file(path: Path, size: int = SIZE) -> dict[str, Any]:
    """OpenAI's file: a line on its version, then a merge per line, of which as many count as a
    vocabulary of `size` has."""
    content = read_bytes(path)
    if content[:2] == b"\x1f\x8b":
        content = _unzipped(content, path)
    lines = _lines(content, path)[1:]
    if len(lines) < size - FIXED:
        raise CheckpointError(
            f"{path} has {len(lines):,} merges, and a vocabulary of {size:,} tokens needs "
            f"{size - FIXED:,}"
        )
    merges = _merges(lines[: size - FIXED], path)
    return clip_parts(vocabulary_of(merges), merges)


def from_two_files(vocabulary: Path, merges: Path) -> dict[str, Any]:
    """vocab.json and merges.txt."""
    try:
        values = json.loads(read_bytes(vocabulary))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{vocabulary}: not a readable JSON file: {error}") from None
    lines = _lines(read_bytes(merges), merges)
    if lines and lines[0].startswith("#"):
        lines = lines[1:]
    return _of_vocabulary(values, _merges(lines, merges), vocabulary)


def from_parts(parts: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """A tokenizer.json that transformers has written: only its vocabulary and merges are taken."""
    model = parts["model"]
    found = model.get("merges")
    if model["type"] != "BPE" or not isinstance(found, list):
        raise CheckpointError(f"{where}: CLIP's tokenizer has merges; this one is {model['type']}")
    lines = [" ".join(each) if _is_pair(each) else str(each) for each in found]
    return _of_vocabulary(model["vocab"], _merges(lines, where), where)


def _of_vocabulary(values: Any, merges: Sequence[Merge], where: Path) -> dict[str, Any]:
    if not isinstance(values, dict) or not all(type(id) is int for id in values.values()):
        raise CheckpointError(f"{where}: expected an object from tokens to their ids")
    needed = itertools.chain(vocabulary_of(()), map("".join, merges))
    if missing := [name for name in needed if name not in values]:
        raise CheckpointError(
            f"{where}: its vocabulary lacks {missing[0]!r}"
            + (f" and {len(missing) - 1:,} more tokens" if len(missing) > 1 else "")
            + " of CLIP's layout: is it the vocabulary of another model?"
        )
    return clip_parts(values, merges)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is str for v in value)


def _merges(lines: Iterable[str], where: Path) -> list[Merge]:
    found = []
    for number, line in enumerate(lines, 1):
        first, space, second = line.partition(" ")
        if not (first and space and second) or " " in second:
            raise CheckpointError(f"{where}: merge {number} is {line[:40]!r}; expected two tokens")
        found.append((first, second))
    return found


def _lines(content: bytes, path: Path) -> list[str]:
    try:
        lines = content.decode().split("\n")  # other line ends are tokens
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not a text file: {error}") from None
    lines = [line.removesuffix("\r") for line in lines]
    return lines[:-1] if lines[-1] == "" else lines


def _unzipped(content: bytes, path: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{path}: not a readable gzip file: {error}") from None
    if len(found) > MOST_BYTES:
        raise CheckpointError(f"{path}: unpacks to more than {MOST_BYTES:,} bytes")
    return found
