"""The preprocessor_config.json that transformers saves beside its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitreous.config import pair
from vitreous.errors import CheckpointError
from vitreous.models.model import Model

PREPROCESSOR_FILE = "preprocessor_config.json"
PREPROCESSOR_FILES = (PREPROCESSOR_FILE, "processor_config.json")
"""The second is that of a model for images and text, in newer versions."""
INTERPOLATION = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""By Pillow's numbers, which preprocessor_config.json has."""
SQUASHED = (
    "transformers resizes both sides and then crops, which distorts; here the shorter side is "
    "resized, as it was for the published accuracy of such models"
)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a readable JSON file: {error}") from error
    return data if isinstance(data, dict) else {}


def read_preprocessor(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a `CatalogPreprocessing` that a preprocessor_config.json states; and notes on
    what is taken otherwise."""
    values = read_json(path)
    if isinstance(inner := values.get("image_processor"), dict):  # beside that of the text
        values = inner
    values = {name: value for name, value in values.items() if value is not None}  # not stated
    try:
        resized = "size" in values and values.get("do_resize") is not False
        found = _sizes(values) if resized else {}
        notes = [SQUASHED] if resized and _squashes_and_crops(values) else []
        # Theirs is (pixel * factor - mean) / std; ours has pixels from 0 to 1.
        factor = values.get("rescale_factor", 1 / 255)
        scale = 255 * (1.0 if values.get("do_rescale") is False else float(factor))
        if values.get("do_normalize") is False:
            found |= {"mean": (0.0,), "std": (1 / scale,)}
        elif {"image_mean", "image_std"} <= values.keys():
            found["mean"] = tuple(float(value) / scale for value in values["image_mean"])
            found["std"] = tuple(float(value) / scale for value in values["image_std"])
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        entries = ("size", "crop_size", "image_mean", "image_std", "resample", "rescale_factor")
        said = ", ".join(f"{name} = {str(values[name])[:40]}" for name in entries if name in values)
        raise CheckpointError(
            f"{path} cannot be understood ({said}): correct it, or remove it and state the "
            "preprocessing by options"
        ) from error
    return found, tuple(notes)


def _squashes_and_crops(values: Mapping[str, Any]) -> bool:
    size, crop = values["size"], values.get("crop_size", values["size"])
    sides = "height" in size if isinstance(size, dict) else "DeiT" in str(values)
    return bool(values.get("do_center_crop")) and sides and _sides(crop)[0] < _sides(size)[0]


def _sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    size, longest = _sides(values["size"])
    crop, part = size, None
    if values.get("do_center_crop", "crop_size" in values):
        crop, _ = _sides(values.get("crop_size", values["size"]))
    if isinstance(stated := values.get("crop_pct"), float) and int(crop / stated + 1e-9) == size:
        part = stated  # the part whose whole pixels `size` is
    # Both sides become the same length and nothing is cropped: the aspect ratio is lost.
    keeps_ratio = isinstance(values["size"], dict) and "shortest_edge" in values["size"]
    square = crop == size and longest is None and not keeps_ratio
    known = INTERPOLATION.get(values.get("resample", 2))  # others are asked for
    return {
        "image_size": _both(values["size"]) if square else crop,
        "crop": part or min(crop / size, 1.0),
        **({"interpolation": known} if known else {}),
        "resize": "square" if square else "shorter",
        "longest": int(values["max_size"]) if "max_size" in values else longest,
    }


def _both(size: Any) -> int | tuple[int, int]:
    """Height and width, where they differ."""
    if not isinstance(size, dict) or size["height"] == size["width"]:
        return _sides(size)[0]
    return int(size["height"]), int(size["width"])


def make_preprocessor(model: Model, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """The preprocessor_config.json for the preprocessing of a model; None if transformers has no
    such preprocessing.

    known: the fields of a `CatalogPreprocessing`.
    """
    channels, (height, width) = model.config.channels, model.own_size()
    if getattr(model.config, "dynamic_size", None):  # then the preprocessing decides
        height, width = pair("image_size", known["image_size"])
    resize, longest = known.get("resize", "shorter"), known.get("longest")
    values = {
        "do_resize": True,
        "resample": next(n for n, name in INTERPOLATION.items() if name == known["interpolation"]),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(known["mean"]) * (channels if len(known["mean"]) == 1 else 1),
        "image_std": list(known["std"]) * (channels if len(known["std"]) == 1 else 1),
    }
    if longest is not None:
        values["size"] = {"shortest_edge": min(height, width), "longest_edge": longest}
        return {"image_processor_type": "DetrImageProcessor", **values, "do_pad": True}
    if resize == "square":
        values["size"] = {"height": height, "width": width}
        return {"image_processor_type": "ViTImageProcessor", **values}
    if resize != "shorter" or height != width:
        return None
    return {
        "image_processor_type": "BitImageProcessor",
        **values,
        "size": {"shortest_edge": int(height / known["crop"] + 1e-9)},
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
        "crop_pct": known["crop"],
    }


def _sides(size: Any) -> tuple[int, int | None]:
    """Length of the shorter side, and the maximum of the longer one; one number in old files."""
    if isinstance(size, int):
        return size, None
    if "shortest_edge" in size:
        longest = size.get("longest_edge")
        return int(size["shortest_edge"]), None if longest is None else int(longest)
    return min(int(size["height"]), int(size["width"])), None
