"""Pascal VOC's XML: the objects of one image, as plain records.

XML may come from anywhere, so it is read without anything that can grow or reach out: a file with a
DOCTYPE, in which entities would be declared, is refused before any of them is looked at.

VOC counts pixels from 1 and names the first and the last that belong to an object, so a box from
xmin 1 to xmax 10 is 10 wide and begins at the left edge. Most programs that write VOC follow it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from vitreous.data.decode.images import shown
from vitreous.data.formats.box_records import Corners
from vitreous.errors import DataError

MAX_BYTES = 10_000_000
_DEEPEST = 32
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no", "", "unspecified")


@dataclass(frozen=True, slots=True)
class VocObject:
    name: str
    """What errors call it: `object 3 (cat)`."""
    category: str
    corners: Corners
    """left, top, right, bottom, from 0; right and bottom are just outside."""
    difficult: bool
    """Hard to see: VOC does not count whether it is found."""


@dataclass
class Voc:
    """What a file has."""

    file: str = ""
    """The image's name, as the XML has it."""
    size: tuple[int, int] | None = None
    """Height and width, where they are said."""
    objects: list[VocObject] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Objects of which it is not known what or where they are."""
    odd: list[str] = field(default_factory=list)
    """What does not keep the rest from being used."""


@dataclass
class _Element:
    tag: str
    text: str = ""
    inner: list[_Element] = field(default_factory=list)

    def all(self, tag: str) -> list[_Element]:
        """Only those directly inside: the parts of a person have boxes too."""
        return [element for element in self.inner if element.tag == tag]

    def said(self, tag: str) -> str:
        """The text of the only element of this tag; an error where there is another number."""
        found = self.all(tag)
        if len(found) != 1:
            raise DataError(f"has {f'{len(found)} times' if found else 'no'} <{tag}>")
        return found[0].text.strip()


def read_voc(path: str) -> Voc:
    """A file that is not VOC's at all is a DataError that begins with the path."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be read: {error.strerror}") from None
    try:
        if len(data) > MAX_BYTES:
            raise DataError(f"is larger than {MAX_BYTES:,} bytes")
        return _understood(_parsed(data))
    except DataError as error:
        raise DataError(f"{shown(path)}: {error}") from None


def _parsed(data: bytes) -> _Element:
    root = _Element("")
    stack = [root]

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > _DEEPEST:
            raise DataError(f"has elements in elements, more than {_DEEPEST} deep")
        element = _Element(tag)
        stack[-1].inner.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    def characters(text: str) -> None:
        stack[-1].text += text

    def refuse(*declared: object) -> NoReturn:
        raise DataError("has a DOCTYPE, which no annotation needs and which may hide an attack")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = parser.UnparsedEntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # an encoding that is not known
        raise DataError(f"is not XML: {error}") from None
    return root.inner[0]


def _understood(root: _Element) -> Voc:
    if root.tag != "annotation":
        raise DataError(
            f"is not an annotation of Pascal VOC: expected <annotation>, not <{root.tag}>"
        )
    voc = Voc()
    names = root.all("filename")
    voc.file = names[0].text.strip() if names else ""
    voc.size = _size(root, voc.odd)
    for number, element in enumerate(root.all("object"), 1):
        category = ""
        try:
            category = element.said("name")
            voc.objects.append(_object(f"object {number} ({category})", category, element))
        except DataError as error:
            voc.wrong.append(f"object {number}{f' ({category})' if category else ''} {error}")
    return voc


def _size(root: _Element, odd: list[str]) -> tuple[int, int] | None:
    if not root.all("size"):
        return None
    size = root.all("size")[0]
    try:
        height, width = (int(size.said(side)) for side in ("height", "width"))
        if height > 0 and width > 0:
            return height, width
        odd.append(f"says that the image is {height}x{width} (height x width): not used")
    except (DataError, ValueError):
        odd.append("has a <size> without a whole number of <height> and <width>: not used")
    return None


def _object(name: str, category: str, element: _Element) -> VocObject:
    if not category:
        raise DataError("has an empty <name>")
    boxes = element.all("bndbox")
    if len(boxes) != 1:
        raise DataError(f"has {f'{len(boxes)} times' if boxes else 'no'} <bndbox>")
    left, top, right, bottom = (_number(boxes[0], side) for side in _SIDES)
    (left, right), (top, bottom) = _from_0(left, right), _from_0(top, bottom)
    difficult = [flag.text.strip().lower() for flag in element.all("difficult")]
    if any(flag not in (*_YES, *_NO) for flag in difficult):
        raise DataError(f"<difficult> is {difficult[0][:40]!r}, where 0 or 1 is expected")
    corners = (left, top, right, bottom)
    return VocObject(name, category, corners, bool(difficult) and difficult[0] in _YES)


def _from_0(first: float, last: float) -> tuple[float, float]:
    """Where pixels `first` to `last`, counted from 1, begin and end.

    The same number twice would be one pixel. Nobody draws that: it is a click that made no box.
    """
    return (first, last) if first == last else (first - 1, last)


def _number(box: _Element, side: str) -> float:
    text = box.said(side)
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"has a <{side}> that is no number: {text[:40]!r}") from None
    if not math.isfinite(value):
        raise DataError(f"has a <{side}> that is no number: {text[:40]!r}")
    return value
