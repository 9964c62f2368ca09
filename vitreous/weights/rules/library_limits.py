"""What several fields of a model must be together so that another library builds the same model.

Most of it does not show in the tensors: the library would load them, and compute something else, or
fail at its first image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vitreous.config import flat, pair
from vitreous.layers.resample import Grid


def _maps(config: Any) -> list[Grid]:
    """The maps of a Swin's stages, for images of its own size."""
    (h, w), (ph, pw) = pair("image_size", config.image_size), pair("patch", config.patch)
    maps = [(-(-h // ph), -(-w // pw))]
    for _ in config.depths[1:]:
        maps.append((-(-maps[-1][0] // 2), -(-maps[-1][1] // 2)))
    return maps


def _square_images(config: Any) -> bool:
    height, width = pair("image_size", config.image_size)
    return height == width


def _square_patches(config: Any) -> bool:
    height, width = pair("patch", config.patch)
    return height == width


def _square_windows(config: Any) -> bool:
    height, width = pair("window", config.window)
    return height == width


def _windows_fit(config: Any) -> bool:
    wh, ww = pair("window", config.window)
    return all(h >= wh and w >= ww for h, w in _maps(config))


def _whole_windows(config: Any) -> bool:
    wh, ww = pair("window", config.window)
    return all(h % wh == 0 and w % ww == 0 for h, w in _maps(config))


def _shifts_both_ways(config: Any) -> bool:
    wh, ww = pair("window", config.window)
    return all((h > wh) == (w > ww) for h, w in _maps(config))


def _bias_or_norm(config: Any) -> bool:
    return flat(config).get("embedding.bias") != config.embed_norm


def _pools_patches(config: Any) -> bool:
    return config.pool.kind != "attention" or config.prefix == 0


def _distils_both(config: Any) -> bool:
    return config.tokens != "class+distillation" or config.pool.kind == "both"


def _mean_of_patches(config: Any) -> bool:
    return config.pool.kind != "mean" or config.tokens == "none"


def _bias_unless_sines(config: Any) -> bool:
    return (config.position.kind == "sines-2d") != config.attention.projection_bias


LIMITS: dict[str, tuple[Callable[[Any], bool], tuple[str, ...], str]] = {
    "square-images": (_square_images, ("image_size",), "square images"),
    "square-patches": (_square_patches, ("patch",), "square patches"),
    "square-windows": (_square_windows, ("window",), "square windows"),
    "windows-fit": (
        *(_windows_fit, ("image_size", "patch", "window")),
        "maps of at least one window in every stage",
    ),
    "whole-windows": (
        *(_whole_windows, ("image_size", "patch", "window")),
        "maps of whole windows in every stage: it pads them elsewhere",
    ),
    "shifts-both-ways": (
        *(_shifts_both_ways, ("image_size", "patch", "window")),
        "maps that are larger than a window both ways or neither",
    ),
    "bias-or-norm": (
        *(_bias_or_norm, ("embedding.bias", "embed_norm")),
        "one of them",
    ),
    "pools-patches": (
        *(_pools_patches, ("pool", "tokens", "registers")),
        "patches are pooled by attention",
    ),
    "distils-both": (_distils_both, ("tokens", "pool"), "pool = 'both' for such tokens"),
    "mean-of-patches": (_mean_of_patches, ("pool", "tokens"), "tokens = 'none' for such a pool"),
    "bias-unless-sines": (
        *(_bias_unless_sines, ("position", "attention.projection_bias")),
        "sines-2d without that bias, or others with it",
    ),
}
"""By name: whether a config keeps it, the fields that it is about, and what it asks for."""


def broken_limits(names: Iterable[str], config: Any) -> list[str]:
    """The limits that a config does not keep: `patch = (4, 8) (only square patches)`."""
    found = []
    for name in names:
        keeps, fields, only = LIMITS[name]
        if not keeps(config):
            have = flat(config)
            values = " with ".join(f"{field} = {have.get(field)!r}" for field in fields)
            found.append(f"{values} (only {only})")
    return found
