"""How images are prepared for a checkpoint, as far as somebody says so: the catalog, or the file
`preprocessor_config.json` that transformers saves beside the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitreous.errors import CheckpointError
from vitreous.weights.catalog import CatalogPreprocessing, catalog

FILE = "preprocessor_config.json"
RESAMPLE = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers, which the file has."""


def stated_preprocessing(source: str, path: Path) -> CatalogPreprocessing | None:
    """Of the checkpoint that a user called `source` and that lies at `path`; None: nobody says."""
    if source in catalog():
        return catalog()[source].preprocessing
    file = (path if path.is_dir() else path.parent) / FILE
    if not file.is_file():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return _read(values)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{file}: it cannot be used: {error!r}") from error


def _read(values: Mapping[str, Any]) -> CatalogPreprocessing:
    plain = values.get("do_normalize") is False
    mean = (0.0,) if plain else tuple(map(float, values["image_mean"]))
    std = (1.0,) if plain else tuple(map(float, values["image_std"]))
    size, longest = _sides(values["size"])
    crop = size
    if values.get("do_center_crop") or "crop_size" in values:
        crop, _ = _sides(values.get("crop_size", values["size"]))
    # Both sides to one length and nothing cut off: the proportions go.
    square = crop == size and longest is None and "shortest_edge" not in _table(values["size"])
    return CatalogPreprocessing(
        image_size=crop,
        crop=min(crop / size, 1.0),
        interpolation=RESAMPLE.get(values.get("resample", 2), "bilinear"),
        mean=mean,
        std=std,
        resize="square" if square else "shorter",
        longest=values.get("max_size", longest),
    )


def _table(size: Any) -> Mapping[str, Any]:
    return size if isinstance(size, dict) else {}


def _sides(size: Any) -> tuple[int, int | None]:
    """The shorter side and the longest that the longer one may have; a number in old files."""
    if isinstance(size, int):
        return size, None
    if "shortest_edge" in size:
        longest = size.get("longest_edge")
        return int(size["shortest_edge"]), None if longest is None else int(longest)
    return min(int(size["height"]), int(size["width"])), None
