"""What several fields of a model must be together so that another library builds the same model.

Most of it does not show in the tensors: the library would load them, and compute something else, or
fail at its first image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vitreous.config import flat, pair
from vitreous.layers.resample import Grid


def _is_square(name: str) -> Callable[[Any], bool]:
    return lambda config: len({*pair(name, getattr(config, name))}) == 1


def _in_all_maps(keeps: Callable[[int, int, int, int], bool]) -> Callable[[Any], bool]:
    """Whether the maps of a Swin's stages (h, w), for images of its own size, and its windows
    (wh, ww) are so."""

    def all_keep(config: Any) -> bool:
        (h, w), (ph, pw) = pair("image_size", config.image_size), pair("patch", config.patch)
        maps: list[Grid] = [(-(-h // ph), -(-w // pw))]
        for _ in config.depths[1:]:
            maps.append((-(-maps[-1][0] // 2), -(-maps[-1][1] // 2)))
        return all(keeps(*each, *pair("window", config.window)) for each in maps)

    return all_keep


WINDOWS = ("image_size", "patch", "window")
LIMITS: dict[str, tuple[Callable[[Any], bool], tuple[str, ...], str]] = {
    "square-images": (_is_square("image_size"), ("image_size",), "square images"),
    "square-patches": (_is_square("patch"), ("patch",), "square patches"),
    "square-windows": (_is_square("window"), ("window",), "square windows"),
    "windows-fit": (
        _in_all_maps(lambda h, w, wh, ww: h >= wh and w >= ww),
        WINDOWS,
        "maps of at least one window in every stage",
    ),
    "whole-windows": (
        _in_all_maps(lambda h, w, wh, ww: h % wh == 0 and w % ww == 0),
        WINDOWS,
        "maps of whole windows in every stage: it pads them elsewhere",
    ),
    "shifts-both-ways": (
        _in_all_maps(lambda h, w, wh, ww: (h > wh) == (w > ww)),
        WINDOWS,
        "maps that are larger than a window both ways or neither",
    ),
    "bias-or-norm": (
        lambda config: flat(config).get("embedding.bias") != config.embed_norm,
        ("embedding.bias", "embed_norm"),
        "one of them",
    ),
    "end-is-not-2": (
        lambda config: config.pool.kind != "end" or config.end != 2,
        ("pool.token",),
        "another end token: it takes this for an old config, and reads the largest id",
    ),
    "pools-patches": (
        lambda config: config.pool.kind != "attention" or config.prefix == 0,
        ("pool", "tokens", "registers"),
        "patches are pooled by attention",
    ),
    "distils-both": (
        lambda config: config.tokens != "class+distillation" or config.pool.kind == "both",
        ("tokens", "pool"),
        "pool = 'both' for such tokens",
    ),
    "mean-of-patches": (
        lambda config: config.pool.kind != "mean" or config.tokens == "none",
        ("pool", "tokens"),
        "tokens = 'none' for such a pool",
    ),
    "bias-unless-sines": (
        lambda config: (config.position.kind == "sines-2d") != config.attention.projection_bias,
        ("position", "attention.projection_bias"),
        "sines-2d without that bias, or others with it",
    ),
}
"""By name: whether a config keeps it, the fields that it is about, and what it asks for."""


def broken_limits(names: Iterable[str], config: Any) -> list[str]:
    """The limits that a config does not keep: `patch = (4, 8) (only square patches)`."""
    found, have = [], flat(config)
    for keeps, fields, only in (LIMITS[name] for name in names):
        if not keeps(config):
            values = " with ".join(f"{field} = {have.get(field)!r}" for field in fields)
            found.append(f"{values} (only {only})")
    return found
