"""A tokenizer.json: what it may have, and the `tokenizers` library that runs it.

Such a file comes from anywhere, and it is a small program: regular expressions that may take for
ever, replacements that make a text a million times longer. Only the parts that published tokenizers
of images' texts have are accepted, and what the library says of a file is one error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

MOST_BYTES = 128 * 2**20
"""Of any file of a tokenizer. Gemma's, one of the largest, has 34 MB."""
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}\x{345}]+"
"""Where CLIP cuts a text before its byte pairs (Radford et al. 2021; the pattern is GPT-2's, with
single digits and without spaces)."""
PATTERNS = (
    *(WORDS, " {2,}", r"\s+"),
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
)
"""The regular expressions that a file may have: none of them can be made slow by a text."""
MODELS = ("BPE", "Unigram", "WordPiece")
NORMALIZERS = (
    *("Sequence", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "Strip", "StripAccents"),
    *("Replace", "Prepend", "Precompiled", "BertNormalizer"),
)
PRE_TOKENIZERS = (
    *("Sequence", "Split", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"),
    *("Punctuation", "Digits", "BertPreTokenizer"),
)
PARTS = ("version", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "model")
"""What is kept. Truncation, padding and special tokens are in the record instead."""


def read_bytes(path: Path) -> bytes:
    """The content of a file of a tokenizer."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CheckpointError(
                f"{path} has {path.stat().st_size:,} bytes, more than a tokenizer's file may have "
                f"({MOST_BYTES:,}): is it the right file?"
            )
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error


def parsed_object(content: bytes, where: str | Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not a readable JSON file: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{where}: expected a JSON object with names and values")
    return values


def read_object(path: Path) -> dict[str, Any]:
    return parsed_object(read_bytes(path), path)


def checked_parts(values: dict[str, Any], where: str | Path) -> dict[str, Any]:
    """The parts of a tokenizer.json that are kept, if they are all of a kind that is accepted."""
    model = values.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise CheckpointError(f"{where} is no tokenizer of the tokenizers library: it has no model")
    kind = str(model.get("type", "BPE" if "merges" in model else None))  # older files do not say
    _known("model", kind, MODELS, where)
    _check_vocabulary(model["vocab"], values.get("added_tokens") or [], kind, where)
    _check_part("normalizer", values.get("normalizer"), NORMALIZERS, where)
    _check_part("pre_tokenizer", values.get("pre_tokenizer"), PRE_TOKENIZERS, where)
    if model.get("dropout"):
        raise CheckpointError(
            f"{where}: dropout = {model['dropout']}: the same text would have other tokens each "
            "time; set it to null"
        )
    return {name: values.get(name) for name in PARTS} | {"model": {**model, "type": kind}}


def ids_of(parts: dict[str, Any]) -> dict[str, int]:
    """Each token's id, by its name."""
    found, added = parts["model"]["vocab"], parts["added_tokens"] or []
    numbered = found if isinstance(found, dict) else {each[0]: i for i, each in enumerate(found)}
    return {**numbered, **{each["content"]: each["id"] for each in added}}


def without_extras(parts: dict[str, Any], size: int) -> dict[str, Any]:
    """Only the first `size` tokens, if the others are none that texts are made of: of the 250,100
    pieces of the multilingual SigLIP, the last are T5's extra ids, and have no embeddings."""
    added = parts["added_tokens"] or []
    names = {each["content"] for each in added}
    beyond = [name for name, id in ids_of(parts).items() if id >= size]
    if not beyond or not all(name in names or "<extra_id_" in name for name in beyond):
        return parts
    model, found = parts["model"], parts["model"]["vocab"]
    if isinstance(found, dict):
        kept: Any = {name: id for name, id in found.items() if id < size}
    else:
        kept = found[:size]
    first = [each for each in added if each["id"] < size]
    return {**parts, "added_tokens": first, "model": {**model, "vocab": kept}}


def _check_vocabulary(vocabulary: Any, added: Any, kind: str, where: str | Path) -> None:
    if kind == "Unigram":
        good = isinstance(vocabulary, list) and all(
            isinstance(each, list) and len(each) == 2 and isinstance(each[0], str)
            for each in vocabulary
        )
    else:
        good = isinstance(vocabulary, dict) and all(type(id) is int for id in vocabulary.values())
    if not good:
        raise CheckpointError(f"{where}: the vocabulary of its {kind} model cannot be understood")
    if not isinstance(added, list) or not all(
        isinstance(each, dict)
        and isinstance(each.get("content"), str)
        and type(each.get("id")) is int
        for each in added
    ):
        raise CheckpointError(f"{where}: its added_tokens cannot be understood")


def _known(what: str, kind: Any, known: tuple[str, ...], where: str | Path) -> None:
    if kind not in known:
        raise CheckpointError(
            f"{where}: its {what} is {str(kind)[:40]!r}; known are {', '.join(known)}"
        )


def _check_part(
    what: str, part: Any, known: tuple[str, ...], where: str | Path, depth: int = 0
) -> None:
    if part is None:
        return
    if not isinstance(part, dict) or depth > 2:
        raise CheckpointError(f"{where}: its {what} cannot be understood")
    _known(what, part.get("type"), known, where)
    inner = part.get("normalizers", part.get("pretokenizers", []))
    if not isinstance(inner, list) or len(inner) > 16:
        raise CheckpointError(f"{where}: its {what} cannot be understood")
    for each in inner:
        _check_part(what, each, known, where, depth + 1)
    pattern = part.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    if regex is not None and regex not in PATTERNS:
        raise CheckpointError(
            f"{where}: its {what} has the regular expression {str(regex)[:80]!r}, which is none of "
            "those that published tokenizers of images' texts have; it is not run"
        )
    for name in ("content", "prepend"):
        if len(str(part.get(name, ""))) > 1:
            raise CheckpointError(
                f"{where}: its {what} puts {str(part[name])[:40]!r} into texts; at most one "
                "character is expected"
            )


def as_bytes(parts: dict[str, Any]) -> bytes:
    """As it is kept in a run folder: the same parts are the same bytes."""
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()


def library_of(content: bytes, where: str | Path) -> Library:
    """What runs a tokenizer.json that is checked."""
    from tokenizers import Tokenizer as Library

    with refusing(where):
        return Library.from_str(content.decode())


@contextmanager
def refusing(where: str | Path) -> Iterator[None]:
    """Inside, the library may refuse a file in any way; outside, it is one error that names it."""
    try:
        yield
    except BaseException as error:
        # it raises nothing more special than Exception, and where its Rust code panics, what is not
        # even that
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(
            f"{where} is no tokenizer that the tokenizers library can use: {str(error)[:200]}"
        ) from None
