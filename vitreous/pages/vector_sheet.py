"""The pictures of what vectors have shown: near images, duplicates, doubtful labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.data.decode.images import shown
from vitreous.data.threads import in_threads
from vitreous.embed.embeddings import Duplicate, Embeddings, Near, Suspect
from vitreous.errors import VitreousError
from vitreous.pages.content import Picture, percent, picture
from vitreous.pages.page_file import write_page
from vitreous.pages.pictures import as_picture, thumbnail
from vitreous.pages.template import render
from vitreous.wording import counted

SIDE = 160
NEIGHBOURS = 5
"""Of a doubtful image that are shown beside it."""
MOST = 200
"""Rows of a section: each has pictures, and a page must open."""


class Shown(NamedTuple):
    """A picture with words below it."""

    picture: Picture | None
    """None where the image cannot be read any more."""
    path: str
    words: str
    mark: str = ""
    """alike: its label supports what the row says; different: it does not."""


class Row(NamedTuple):
    """What belongs together: the image in question, and others."""

    title: str
    note: str
    first: Shown
    others: Sequence[Shown]


class Group(NamedTuple):
    title: str
    note: str
    rows: Sequence[Row]


def write_sheet(
    found: Embeddings,
    path: Path,
    near: tuple[Any, Sequence[Near]] | None,
    duplicates: Sequence[Duplicate] | None,
    suspects: Sequence[Suspect] | None,
) -> Path:
    wanted = {each.index for each in (near[1] if near else ())}
    wanted |= {i for each in (duplicates or ())[:MOST] for i in each.indices}
    for suspect in (suspects or ())[:MOST]:
        wanted |= {suspect.index, *suspect.neighbours[:NEIGHBOURS]}
    pictures = _pictures(found, sorted(wanted))

    def show(i: int, words: str, mark: str = "") -> Shown:
        return Shown(pictures[i], found.paths[i], words, mark)

    groups = []
    if near is not None:
        groups.append(_near_group(found, *near, show))
    if duplicates is not None:
        groups.append(_duplicate_group(duplicates, show))
    if suspects is not None:
        groups.append(_suspect_group(found, suspects, show))
    lede = f"{counted(len(found), 'image')}, seen by {found.about.model} (pool {found.about.pool})"
    page = render("vector_sheet.html", title="Neighbours", lede=lede, groups=groups)
    return write_page(path, page)


def _near_group(found: Embeddings, image: Any, nearest: Sequence[Near], show: Any) -> Group:
    name = shown(image) if isinstance(image, str | Path) else "image"
    query, label = None, ""
    own = found.row(image)
    if own is not None:
        query, label = _pictures(found, [own])[own], found.labels[own]
    elif found.predictor is not None:
        query = picture(as_picture(thumbnail(found.predictor.read(image)[0], SIDE)), name)
    others = [show(each.index, _words(f"{each.similarity:.3f}", each.label)) for each in nearest]
    row = Row("", "", Shown(query, name, _words("asked about", label)), others)
    return Group("Nearest images", "Cosine similarity of the vectors; 1 is the same.", [row])


def _duplicate_group(pairs: Sequence[Duplicate], show: Any) -> Group:
    rows = []
    for pair in pairs[:MOST]:
        title = "identical" if pair.identical else f"similarity {pair.similarity:.3f}"
        splits = " and ".join(dict.fromkeys(filter(None, pair.splits)))
        one, other = (
            show(i, _words(label, split))
            for i, label, split in zip(pair.indices, pair.labels, pair.splits, strict=True)
        )
        odd = "labels differ" if pair.labels[0] != pair.labels[1] else ""
        rows.append(Row(title, ", ".join(filter(None, (splits, odd))), one, [other]))
    note = (
        "Images in different splits come first: a model is tested there on what it was trained on."
    )
    return Group("Duplicates and near-duplicates", note if rows else "None was found.", rows)


def _suspect_group(found: Embeddings, suspects: Sequence[Suspect], show: Any) -> Group:
    rows = []
    for each in suspects[:MOST]:
        others = [
            show(i, found.labels[i], "alike" if found.labels[i] == each.suggested else "different")
            for i in each.neighbours[:NEIGHBOURS]
        ]
        first = show(each.index, _words(each.label, each.split))
        note = f"{percent(each.support, 0)} of the votes, {percent(each.agreement, 0)} agree"
        rows.append(Row(f"{each.label} → {each.suggested}?", note, first, others))
    note = (
        "The label as given, and what most neighbours are. Beside each image are its nearest "
        "neighbours with their labels. A rare or unusual image may be right: look before you "
        "change a label."
    )
    return Group(
        "Doubtful labels", note if rows else "No label disagrees with its neighbours.", rows
    )


def _words(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _pictures(found: Embeddings, rows: Sequence[int]) -> dict[int, Picture | None]:
    def make(row: int) -> Picture | None:
        entry = found.images.entries[row]
        try:
            image, name = found.images.read(entry)
        except VitreousError:  # it was there when its vector was computed
            return None
        return picture(as_picture(thumbnail(image, SIDE)), name)

    return dict(zip(rows, in_threads(make, rows, "reading pictures"), strict=True))
