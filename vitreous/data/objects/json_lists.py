"""A JSON object with long lists, read record by record.

COCO's files have millions of records. As Python objects they take many times the file's size, so
each is decoded when it is needed, used, and forgotten. Only the file's text is held.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitreous.data.decode.images import shown
from vitreous.data.formats.files import read_text
from vitreous.errors import DataError

_SPACE = re.compile(r"[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


class JsonLists:
    """The keys of the file's object, and the records of each list. Not JSON is a DataError."""

    def __init__(self, path: str | Path) -> None:
        self._name, self._text = shown(path), read_text(path)
        self._decode = json.JSONDecoder().raw_decode
        self._places: dict[str, int] = {}
        """Where the value of each key begins; as with json, the last one of a key counts."""
        try:
            self._find_places()
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self._name}: is not JSON: {error}") from None

    @property
    def keys(self) -> list[str] | None:
        """None where the file is not an object."""
        return list(self._places) if self._text[self._after_space(0)] == "{" else None

    def has_list(self, key: str) -> bool:
        return key in self._places and self._text[self._places[key]] == "["

    def records(self, key: str) -> Iterator[Any]:
        """The values of a list, one after the other."""
        return (value for value, _ in self._items(self._places[key]))

    def _find_places(self) -> None:
        at = self._after_space(0)
        if self._text[at : at + 1] != "{":
            at = self._decode(self._text, at)[1]
        else:
            at = self._skip_object(at)
        if (end := self._after_space(at)) != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)

    def _skip_object(self, at: int) -> int:
        """Notes where values begin; returns where the object ends."""
        at = self._after_space(at + 1)
        if self._text[at : at + 1] == "}":
            return at + 1
        while True:
            if self._text[at : at + 1] != '"':
                expected = "Expecting property name enclosed in double quotes"
                raise json.JSONDecodeError(expected, self._text, at)
            key, at = self._decode(self._text, at)
            at = self._after_space(at)
            if self._text[at : at + 1] != ":":
                raise json.JSONDecodeError("Expecting ':' delimiter", self._text, at)
            at = self._places[key] = self._after_space(at + 1)
            at = self._after_space(self._skip(at))
            if self._text[at : at + 1] == "}":
                return at + 1
            at = self._after_comma(at)

    def _skip(self, at: int) -> int:
        """Where a value ends; of a list only one record is held at a time."""
        if self._text[at : at + 1] != "[":
            return self._decode(self._text, at)[1]
        last = deque(self._items(at), maxlen=1)
        return self._after_space(last[0][1] if last else at + 1) + 1

    def _items(self, at: int) -> Iterator[tuple[Any, int]]:
        """Each value of the list that begins here, and where it ends."""
        text, decode = self._text, self._decode
        at = self._after_space(at + 1)
        if text[at : at + 1] == "]":
            return
        while True:
            value, at = decode(text, at)
            yield value, at
            if comma := _COMMA.match(text, at):
                at = comma.end()
                continue
            if text[self._after_space(at) : self._after_space(at) + 1] == "]":
                return
            self._after_comma(at)

    def _after_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def _after_comma(self, at: int) -> int:
        found = _COMMA.match(self._text, at)
        if found is None:
            place = self._after_space(at)
            raise json.JSONDecodeError("Expecting ',' delimiter", self._text, place)
        return found.end()
