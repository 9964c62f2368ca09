"""Pascal VOC: an XML file with boxes for each image, lists of the splits in `ImageSets/Main`.

    Annotations/1.xml  JPEGImages/1.jpg  ImageSets/Main/train.txt

Other usual names of the two folders are understood, as are `train/`, `val/` and `test/` above them,
and XML files beside their images. The classes are the names of the objects, in natural order.

VOC counts pixels from 1 and gives the first and the last that belong to an object, so a box from
xmin 1 to xmax 10 is 10 wide and begins at the left edge. Most programs that write VOC follow it.
"""

from __future__ import annotations

import os
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped,unused-ignore]
from defusedxml.ElementTree import DefusedXMLParser  # type: ignore[import-untyped,unused-ignore]

from vitreous.data.decode.images import shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import beginning, finite, read_bytes
from vitreous.data.formats.names import spelling_problems, with_names
from vitreous.data.formats.pairing import LabelFiles, Pairing, has_pairs
from vitreous.data.objects.source import ObjectSource
from vitreous.data.objects.table import AnnotatedObject, Annotation, ObjectTable
from vitreous.errors import DataError, naming
from vitreous.labels import LabelMap
from vitreous.wording import counted

XML = LabelFiles("annotation", (".xml",), ".xml")
MAX_BYTES = 10_000_000
_DEEPEST = 32
_LISTS = os.path.join("ImageSets", "Main")
_LAYOUTS = (
    "JPEGImages + Annotations, train/images + train/annotations (other usual names too), and XML "
    "files beside images"
)
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no", "", "unspecified")


def recognise(folder: str) -> bool:
    return has_pairs(folder, XML, lambda path: "<annotation" in beginning(path, 4000))


def read(builder: SourceBuilder) -> ObjectSource:
    pairing = Pairing(builder, XML)
    pairing.read_folders(_LISTS, _LAYOUTS)
    table = ObjectTable("object {number} ({category})")
    found = pairing.read_label_files(table, read_xml, "reading annotations")
    categories = set(map(str, table.categories))
    if not categories:
        errors = [error for annotation in table.images for error in annotation.errors]
        why = f": a file {errors[0]}" if errors else ""
        raise DataError(
            f"{builder.name}: no annotation has an object, so there are no classes{why}"
        )
    for sample in builder.samples():
        annotation = found[sample.id]
        if annotation.file not in ("", os.path.basename(sample.id)):
            used = f"by its own name it is used for {sample.id}"
            annotation.remarks.append(f"names the image {annotation.file}; {used}")
    builder.problems += spelling_problems(builder.name, categories)
    _add_notes(builder.notes, table)
    labels = with_names(LabelMap.of_names(categories), builder.names, partial=True)
    table.label(labels.by_external())
    return builder.build(ObjectSource, labels, table=table, annotations=found).checked()


def _add_notes(notes: list[str], table: ObjectTable) -> None:
    if difficult := int(table.crowd.sum()):
        notes.append(
            f"marked as difficult, and neither learned nor counted: {counted(difficult, 'object')}"
        )
    if from_0 := int((table.boxes[:, :2] == -1).any(axis=1).sum()):
        notes.append(
            f"beginning at 0, though VOC counts from 1: {counted(from_0, 'box')}: if the whole "
            "file counts from 0, its boxes lie one pixel too far to the left and to the top"
        )


# ---- one file


def read_xml(path: str, annotation: Annotation) -> list[AnnotatedObject]:
    """The objects of a file; what else it says is added to the annotation. A file that is not VOC's
    at all is a DataError that begins with the path."""
    data = read_bytes(path, MAX_BYTES)
    with naming(shown(path)):
        root = _parse(data)
        if root.tag != "annotation":
            what = f"expected <annotation>, not <{root.tag}>"
            raise DataError(f"is not an annotation of Pascal VOC: {what}")
    annotation.file = (root.findtext("filename") or "").strip()
    annotation.size, objects = _size(root, annotation.remarks), []
    for number, element in enumerate(root.findall("object"), 1):
        name = f"object {number}"
        try:
            category = _text(element, "name")
            name += f" ({category})" if category else ""
            objects.append(_object(number, category, element))
        except DataError as error:
            annotation.errors.append(f"{name} {error}")
    return objects


class _ShallowTree(TreeBuilder):
    """Refuses elements nested deeper than any annotation, which would take memory and time."""

    depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> Element:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise DataError(f"has elements nested more than {_DEEPEST} deep")
        return super().start(tag, attributes)

    def end(self, tag: str) -> Element:
        self.depth -= 1
        return super().end(tag)


def _parse(data: bytes) -> Element:
    """The root element. XML may come from anywhere, so nothing in it may grow or reach out."""
    parser = DefusedXMLParser(target=_ShallowTree(), forbid_dtd=True)
    try:
        parser.feed(data)
        root: Element = parser.close()
    except DefusedXmlException:
        what = "has a DOCTYPE or entities, which no annotation needs and which may hide an attack"
        raise DataError(what) from None
    except (ParseError, ValueError, LookupError) as error:  # also an unknown encoding
        raise DataError(f"is not XML: {error}") from None
    return root


def _size(root: Element, remarks: list[str]) -> tuple[int, int] | None:
    size = root.find("size")
    if size is None:
        return None
    try:
        height, width = (int(_text(size, side)) for side in ("height", "width"))
        if height > 0 and width > 0:
            return height, width
        remarks.append(f"gives {height}x{width} as the image's height and width: not used")
    except (DataError, ValueError):
        remarks.append("has a <size> without a whole number of <height> and <width>: not used")
    return None


def _object(number: int, category: str, element: Element) -> AnnotatedObject:
    if not category:
        raise DataError("has an empty <name>")
    box = _only(element, "bndbox")
    left, top, right, bottom = (_number(box, side) for side in _SIDES)
    (left, right), (top, bottom) = _from_0(left, right), _from_0(top, bottom)
    difficult = (element.findtext("difficult") or "").strip().lower()
    if difficult not in (*_YES, *_NO):
        raise DataError(f"<difficult> is {difficult[:40]!r}, expected 0 or 1")
    return AnnotatedObject(number, category, (left, top, right, bottom), difficult in _YES)


def _from_0(first: float, last: float) -> tuple[float, float]:
    """Where pixels `first` to `last`, counted from 1, begin and end. The same number twice would be
    one pixel, which nobody draws: it is a click that made no box."""
    return (first, last) if first == last else (first - 1, last)


def _number(box: Element, side: str) -> float:
    text = _text(box, side)
    if (value := finite(text)) is None:
        raise DataError(f"has a <{side}> that is not a number: {text[:40]!r}")
    return value


def _only(element: Element, tag: str) -> Element:
    """The only element of this tag directly inside: the parts of a person have boxes too."""
    found = element.findall(tag)
    if len(found) != 1:
        raise DataError(f"has {f'{len(found)} times' if found else 'no'} <{tag}>")
    return found[0]


def _text(element: Element, tag: str) -> str:
    return (_only(element, tag).text or "").strip()
