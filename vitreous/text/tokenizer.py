"""The one way from a text to what a text tower takes. It is stored in the run, and used everywhere.

A tokenizer is a file of the `tokenizers` library (its vocabulary, and how words are cut) and a
record of what that file does not say: how texts are cleaned, how long a row of ids is, what begins,
ends and fills it. Every row has the same length, and a text that is too long keeps its end token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.config import LARGEST_SIZE
from vitreous.errors import CheckpointError, ConfigError, InputError, did_you_mean
from vitreous.text.cleaning import STEPS, cleaned
from vitreous.text.tokenizer_file import (
    as_bytes,
    checked_parts,
    library_of,
    parsed_object,
    refusing,
)

MOST_CHARACTERS = 100_000
"""Of a text. No text tower reads a hundredth of them."""
LONGEST = 8192
"""Context length."""


@dataclass(frozen=True)
class TextPreprocess:
    """What a text tower was trained with, beside its vocabulary."""

    length: int
    """Of every row of ids: shorter texts are padded up to it, longer ones are cut."""
    begin: int | None
    """The id that every row begins with; none for SigLIP."""
    end: int | None
    """The id behind the text's last; where the text is cut, it takes the last place."""
    pad: int
    """The id that fills the rest of a row."""
    clean: tuple[str, ...] = ()
    """Steps of `cleaning.STEPS`, in their order."""

    def __post_init__(self) -> None:
        if not _is_id(self.length) or not 3 <= self.length <= LONGEST:
            raise ConfigError(
                f"length = {self.length!r}: expected the number of tokens in a row, 3 to {LONGEST}"
            )
        for name in ("begin", "end", "pad"):
            value = getattr(self, name)
            if not _is_id(value) and (value is not None or name == "pad"):
                raise ConfigError(f"{name} = {value!r}: expected the id of a token")
        object.__setattr__(self, "clean", tuple(self.clean))
        for step in self.clean:
            if step not in STEPS:
                hint = did_you_mean(str(step), STEPS) or f": known are {', '.join(STEPS)}"
                raise ConfigError(f"clean: {step!r} is no step of cleaning{hint}")

    @property
    def room(self) -> int:
        """For the tokens of the text itself."""
        return self.length - (self.begin is not None) - (self.end is not None)

    def described(self) -> str:
        """In one line of words."""
        ids = {name: getattr(self, name) for name in ("begin", "end", "pad")}
        said = ", ".join(f"{name} {id}" for name, id in ids.items() if id is not None)
        return f"{self.length} tokens, {said}; cleaned by {', '.join(self.clean) or 'nothing'}"


class Piece(NamedTuple):
    """One token of a row, for display."""

    text: str
    """What it stands for in the cleaned text. A character that is several tokens is the text of
    each of them."""
    id: int
    word: int | None
    """The number of the word that it belongs to, in `Tokenizer.cleaned(text).split()`; none for the
    tokens that begin and end a row."""


class Tokenizer:
    """Texts -> rows of ids, (n, length)."""

    def __init__(
        self, content: bytes, preprocess: TextPreprocess, where: str | Path = "tokenizer.json"
    ) -> None:
        """content: of a tokenizer.json, which may come from anywhere. `where` is what errors call
        it."""
        self.preprocess, self.where = preprocess, where
        parts = checked_parts(parsed_object(content, where), where)
        self.content = as_bytes(parts)
        """The file as it is kept."""
        self.library = library_of(self.content, where)
        vocabulary = self.library.get_vocab()
        self.size = max(vocabulary.values(), default=-1) + 1
        """How many ids there are: of so many rows is the table of embeddings, at least."""
        if self.size > LARGEST_SIZE:
            raise CheckpointError(f"{where}: a token has the id {self.size - 1:,}")
        self.unknown = _unknown(parts["model"], vocabulary)
        """The id of what the vocabulary does not have, if it has one."""
        for name in ("begin", "end", "pad"):
            id = getattr(preprocess, name)
            if id is not None and id >= self.size:
                raise CheckpointError(
                    f"{where}: {name} = {id}, but its vocabulary has {self.size:,} tokens"
                )
        self._special = _special(self.library, preprocess, self.unknown)
        self.pieces("a photo of 1 猫")  # some files fail only when they are used

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.content, self.preprocess, self.where)

    def __repr__(self) -> str:
        return f"Tokenizer({self.size:,} tokens; {self.preprocess.described()})"

    @cached_property
    def checksum(self) -> str:
        """Of the file and the record: the same texts have the same ids."""
        record = json.dumps(asdict(self.preprocess), sort_keys=True).encode()
        return hashlib.sha256(self.content + b"\n" + record).hexdigest()

    def cleaned(self, text: str) -> str:
        """What is cut into tokens."""
        return cleaned(text, self.preprocess.clean)

    def encode(self, texts: Sequence[str], *, cut: bool = True) -> Tensor:
        """The ids of each text, (n, length) int64.

        cut: a text that is too long is cut, and its end token kept; else it is an error.
        """
        own = self.preprocess
        rows = self.tokens(texts)
        ids = torch.full((len(rows), own.length), own.pad, dtype=torch.int64)
        for row, text, tokens in zip(ids, texts, rows, strict=True):
            if len(tokens) > own.room and not cut:
                raise InputError(
                    f"{text[:200]!r} has {len(tokens)} tokens, and the text tower takes "
                    f"{own.room}: shorten it"
                )
            whole = self._framed(tokens[: own.room])
            row[: len(whole)] = torch.tensor(whole)
        return ids

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """All ids of each text, without those that begin and end a row; more than `preprocess.room`
        do not fit. Names of special tokens that stand in a text are left out: an end token in the
        middle would hide the rest from the text tower."""
        clean = [self.cleaned(text) for text in _checked_texts(texts)]
        with refusing(self.where):
            encodings = self.library.encode_batch_fast(clean, add_special_tokens=False)
        return [[id for id in each.ids if id not in self._special] for each in encodings]

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text's row one by one, without padding."""
        clean = self.cleaned(_checked_texts([text])[0])
        with refusing(self.where):
            encoding = self.library.encode(clean, add_special_tokens=False)
        ends = _ends(clean)
        found = []
        for id, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if id not in self._special:
                word = next((i for i, end in enumerate(ends) if end > start), None)
                found.append(Piece(clean[start:stop].strip(), id, word))
        own = self.preprocess
        frame = [
            None if id is None else Piece(self.name_of(id), id, None) for id in (own.begin, own.end)
        ]
        whole = [frame[0], *found[: own.room], frame[1]]
        return [piece for piece in whole if piece is not None]

    def name_of(self, id: int) -> str:
        """What the vocabulary calls a token."""
        return self.library.id_to_token(id) or ""

    def says_nothing(self, id: int) -> bool:
        """Whether a token is a space, or stands for what the vocabulary does not have."""
        return id == self.unknown or not self.name_of(id).strip("▁ ")

    def check_fits(self, *, vocabulary: int, length: int) -> None:
        """An error if a text tower with so many embeddings and positions cannot take its rows."""
        if self.size > vocabulary:
            raise CheckpointError(
                f"{self.where} has {self.size:,} tokens, and the text tower has embeddings for "
                f"{vocabulary:,}: it is the tokenizer of another model"
            )
        if self.preprocess.length > length:
            raise CheckpointError(
                f"{self.where}: its rows have {self.preprocess.length} tokens, and the text tower "
                f"has {length} positions"
            )

    def _framed(self, tokens: list[int]) -> list[int]:
        own = self.preprocess
        first = [] if own.begin is None else [own.begin]
        return [*first, *tokens, *([] if own.end is None else [own.end])]


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_SIZE


def _checked_texts(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise InputError(f"expected a list of texts, got the text {texts[:80]!r}: pass [text]")
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"expected texts, got {str(text)[:80]!r} ({type(text).__name__})")
        if len(text) > MOST_CHARACTERS:
            raise InputError(
                f"a text of {len(text):,} characters ({text[:40]!r} …): at most "
                f"{MOST_CHARACTERS:,} are taken"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{text[:80]!r} is no Unicode text: it has half a character (a surrogate)"
            ) from None
    return texts


def _ends(text: str) -> list[int]:
    """Where each word ends."""
    ends, place = [], 0
    for word in text.split():
        place = text.index(word, place) + len(word)
        ends.append(place)
    return ends


def _unknown(model: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    if model["type"] == "Unigram":
        return model.get("unk_id")
    return vocabulary.get(model.get("unk_token") or "")


def _special(library: Any, own: TextPreprocess, unknown: int | None) -> frozenset[int]:
    """The ids that no text may have."""
    added = library.get_added_tokens_decoder().items()
    marked = {id for id, token in added if token.special} | {own.begin, own.end}
    return frozenset(id for id in marked if id is not None and id != unknown)
