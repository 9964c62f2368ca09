"""Pascal VOC's folders: an XML file for each image, lists of the splits in `ImageSets/Main`.

    Annotations/1.xml  JPEGImages/1.jpg  ImageSets/Main/train.txt

Other usual names of the two folders are understood, as are `train/`, `val/` and `test/` above them,
and XML files beside their images. The classes are the names that objects have, in natural order.
"""

from __future__ import annotations

import os
from collections import defaultdict

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.box_records import Box
from vitreous.data.formats.box_source import BoxSource
from vitreous.data.formats.folder import Scan
from vitreous.data.formats.names import Names, changed_names
from vitreous.data.formats.pairing import Pairing, Partner, below, find_pairs, has_pairs, listed
from vitreous.data.formats.voc_xml import Voc, read_voc
from vitreous.data.source import Problem, Sample
from vitreous.data.split import VAL_FRACTION, with_val
from vitreous.data.threads import in_threads
from vitreous.errors import DataError
from vitreous.labels import LabelMap

XML = Partner("annotation", "annotations", (".xml",), ".xml", apart=False)

_LISTS = os.path.join("ImageSets", "Main")


def find_voc(folder: str) -> bool:
    """Whether a folder is laid out as VOC's, or nearly so."""
    return has_pairs(folder, XML, _is_annotation)


def _is_annotation(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"<annotation" in file.read(4000)
    except OSError:
        return False


def open_voc(
    path: str,
    *,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> BoxSource:
    root = os.path.normpath(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise DataError(f"{shown(path)}: there is no such folder")
    notes: list[str] = []
    pairs = find_pairs(root, notes, XML)
    if not pairs:
        raise DataError(
            f"{shown(path)}: no images with annotations: looked for JPEGImages + Annotations, "
            "train/images + train/annotations (other usual names too), and XML files beside images"
        )
    scan, pairing = Scan(), Pairing(root, XML)
    splits: dict[str, list[Sample]] = {}
    for split, (images, files) in pairs.items():
        both = f"{below(images, root)} with {below(files, root)}"
        notes.append(f"{split}: {both}" if split else both)
        splits[split or "train"] = pairing.pair(images, files, scan)
    if not any(splits.values()):
        raise DataError(f"{shown(path)}: no images in its folders ({' '.join(EXTENSIONS)})")
    lists = os.path.join(root, _LISTS)
    if os.path.isdir(lists) and "" in pairs:
        splits = listed(lists, splits["train"], pairing, notes)
    scan.skipped.pop(".xml", None)  # beside the images
    samples = [sample for part in splits.values() for sample in part]
    targets = [sample.target and pairing.file(sample.target) for sample in samples]
    read = in_threads(_try, targets, "reading annotations")
    found = {sample.id: voc for sample, voc in zip(samples, read, strict=True)}
    problems = scan.problems + pairing.problems
    source = BoxSource(
        name=shown(path),
        kind="voc",
        truth_kind="boxes",
        labels=changed_names(_labels(shown(path), list(found.values()), problems), names),
        splits=with_val(splits, val_fraction, seed, notes, by_class=False),
        notes=notes + scan.notes(),
        problems=problems,
        root=root,
        odd_names=pairing.odd_names,
    )
    for sample in samples:
        _put(source, sample, pairing.unmasked.get(sample.id) or found[sample.id])
    _count_flags(source, [voc for voc in found.values() if isinstance(voc, Voc)])
    source.count()
    return source


def _try(path: str) -> Voc | str:
    """What a file has, or what is wrong with it; nothing where there is none."""
    if not path:
        return ""
    try:
        return read_voc(path)
    except DataError as error:
        return str(error).removeprefix(f"{shown(path)}: ")


def _labels(name: str, found: list[Voc | str], problems: list[Problem]) -> LabelMap:
    categories = {thing.category for voc in found if isinstance(voc, Voc) for thing in voc.objects}
    if not categories:
        bad = next((voc for voc in found if isinstance(voc, str) and voc), "")
        why = f": a file {bad}" if bad else ""
        raise DataError(f"{name}: no annotation has an object, so there are no classes{why}")
    alike: dict[str, list[str]] = defaultdict(list)
    for category in sorted(categories):
        alike[" ".join(category.casefold().split())].append(category)
    for group in alike.values():
        if len(group) > 1:
            what = (
                f"the classes {' and '.join(map(repr, group))} differ only in how they are written"
            )
            problems.append(Problem(name, what, fatal=False))
    return LabelMap.of_names(categories)


def _put(source: BoxSource, sample: Sample, voc: Voc | str) -> None:
    """What the file of a sample says, or why there is nothing to be known from it."""
    if isinstance(voc, str):
        source.put(sample, (), [voc])
        return
    if voc.size is not None:
        source.sizes[sample.id] = voc.size
    odd = list(voc.odd)
    if voc.file and voc.file != os.path.basename(sample.id):
        odd.append(f"says that it is for {voc.file}; by its name it is used for {sample.id}")
    source.problems += [Problem(sample.target, what, fatal=False) for what in odd]
    boxes = []
    for thing in voc.objects:
        if thing.category in source.labels.ignored:
            source.unused[thing.category] += 1
        else:
            label = source.labels.internal(thing.category)
            boxes.append(Box(thing.name, label, thing.corners, crowd=thing.difficult))
    source.put(sample, boxes, voc.wrong)


def _count_flags(source: BoxSource, found: list[Voc]) -> None:
    """What holds for many objects is said once."""
    things = [thing for voc in found for thing in voc.objects]
    difficult = sum(thing.difficult for thing in things)
    if difficult:
        source.notes.append(
            f"{difficult} objects are marked as difficult: they are neither learned nor counted"
        )
    from_0 = sum(-1 in thing.corners[:2] for thing in things)
    if from_0:
        source.notes.append(
            f"{from_0} boxes begin at 0, though VOC counts from 1: perhaps all were written with "
            "counting from 0, and lie one pixel too far to the left and to the top"
        )
