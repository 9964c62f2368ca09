"""What other libraries call our models: the rows of `names.toml`."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from vitreous.config import read_toml

SIZES = {"tiny": "ti", "small": "s", "base": "b", "large": "l", "huge": "h"}
SIZES |= {"medium": "m", "giant": "g", "gigantic": "G"}
PIECES = {
    "size": f"(?P<size>{'|'.join(SIZES)})",
    "patch": r"patch(?P<patch>\d+)",
    "image": r"(_(?P<image>\d+))?",
    "release": r"(\.[\w.]+)?",
}


@functools.cache
def foreign_names() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """A pattern over a foreign name, and our name (`ours`) with the fields that differ."""
    rows = read_toml(Path(__file__).with_name("names.toml"), "names of models")
    return [
        (
            re.compile(pattern.format(**PIECES), re.IGNORECASE),
            {"ours": row} if isinstance(row, str) else row,
        )
        for pattern, row in rows.items()
    ]


def translate(name: str) -> tuple[str, dict[str, Any]] | None:
    """Our name and the changes for a foreign one; None when no row fits.

    >>> translate("deit_base_distilled_patch16_384")
    ('deit-b/16-distilled', {'image_size': 384})
    """
    for pattern, row in foreign_names():
        found = pattern.fullmatch(name)
        if found is None:
            continue
        groups = {group: text.lower() for group, text in found.groupdict().items() if text}
        if "size" in groups:  # a tiny ViT is "ti", a tiny Swin is "t"
            size = groups["size"]
            groups |= {"initial": size[0], "size": SIZES.get(size, size)}
        changes = {field: value for field, value in row.items() if field != "ours"}
        if "image" in groups:
            changes["image_size"] = int(groups["image"])
        return row["ours"].format(**groups), changes
    return None
