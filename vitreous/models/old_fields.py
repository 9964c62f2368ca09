"""Config fields as older versions have called them: in run folders, exported files, recipes and
rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vitreous.config import flat_fields, kind_of, marks
from vitreous.layers.block import PLACES


class Renamed(NamedTuple):
    """What a field has become."""

    now: str
    kinds: tuple[str, ...] = ()
    """It was for such kinds of its part alone."""


LEARNED, ROTARY = ("learned-1d", "learned-1d+rotary"), ("rotary", "learned-1d+rotary")
OLD_FIELDS = {
    "stem_layers": Renamed("stem.layers"),
    "grid_layers": Renamed("stem.grid_layers"),
    "patch_dim": Renamed("stem.patch_dim"),
    "sines_layout": Renamed("position.layout", ("sines-1d",)),
    "sines_prefix": Renamed("position.prefixed", ("sines-1d",)),
    "position_grid": Renamed("position.grid", ("learned-1d",)),
    "position_antialias": Renamed("position.antialias", LEARNED),
    "prefix_positions": Renamed("position.prefix", LEARNED),
    "rotary_base": Renamed("position.base", ROTARY),
    "rotary_coordinates": Renamed("position.coordinates", ROTARY),
    "rotary_offset": Renamed("position.offset", ROTARY),
    "rotary_grid": Renamed("position.reference", ROTARY),
    "rotary_order": Renamed("position.order", ROTARY),
    "rotary_layout": Renamed("position.layout", ROTARY),
    "windows": Renamed("windows.side"),
    "global_blocks": Renamed("windows.global_blocks"),
    "pool_heads": Renamed("pool.heads", ("attention",)),
    "pool_mlp_dim": Renamed("pool.mlp_dim", ("attention",)),
    "head_hidden": Renamed("head.hidden", ("tanh", "mlp")),
    "head_norm": Renamed("head.norm", ("mlp",)),
    "head_activation": Renamed("head.activation", ("mlp",)),
    "patch_norm": Renamed("embedding.norm", ("linear",)),
    "patch_bias": Renamed("embedding.bias", ("linear",)),
    "patch_embedding": Renamed("embedding"),
    "mlp_norm": Renamed("mlp.norm"),
    "mlp_out_activation": Renamed("mlp.out_activation"),
    "qkv_bias": Renamed("attention.qkv_bias"),
    "key_bias": Renamed("attention.key_bias"),
    "projection_bias": Renamed("attention.projection_bias"),
    "qk_scale": Renamed("attention.scale"),
    "qk_norm": Renamed("attention.qk_norm"),
    "attention_dropout": Renamed("attention.dropout"),
    "placed": Renamed("add_position"),
}
HYBRID_FIELDS = {
    "stages": Renamed("stem.stages"),
    "width": Renamed("stem.width"),
    "stem_norm_eps": Renamed("stem.norm_eps"),
    "standardise": Renamed("stem.standardise"),
}


def _renamed(name: str, config: type) -> Renamed | None:
    table = OLD_FIELDS | HYBRID_FIELDS if kind_of(config, "stem") == "resnet" else OLD_FIELDS
    return table.get(name)


def upgraded_fields(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a config of this class by today's names. Older files name every field: those of
    a part that they do not have are left out."""
    values, known = flat_fields(values), marks(config)
    if "embedding" in known and isinstance(values.get("patch_embedding"), bool):
        values["embedding"] = "linear" if values.pop("patch_embedding") else "none"
    if any(values.get(name) for name in ("stem_layers", "grid_layers", "patch_dim")):
        values.setdefault("stem", "conv")
    if values.get("stem") == "none" and kind_of(config, "stem") == "resnet":
        del values["stem"]  # a hybrid's ResNet was no stem then
    if "norm.place" in known and "norm" in values and _are_places(values["norm"]):
        values["norm.place"] = values.pop("norm")
    found: dict[str, Any] = {}
    for name, value in values.items():
        renamed = _renamed(name, config)
        if renamed is None or renamed.now not in known:
            found[name] = value
            continue
        part = renamed.now.partition(".")[0]
        if part == "stem" and not value and "stem" not in values and name != "stages":
            continue
        given = values.get(part)
        kinds = (
            given if isinstance(given, list | tuple) else [given]
        )  # of rules, all that they know
        if not renamed.kinds or given is None or {*kinds} & {*renamed.kinds}:
            found[renamed.now] = value
    return found


def _are_places(norm: Any) -> bool:
    """Whether it says where a norm stands, as `norm` did; of rules, all that they know."""
    given = norm if isinstance(norm, list | tuple) else [norm]
    return bool(given) and all(each in PLACES for each in given)


def today(name: str, config: type) -> str:
    """The name of a field today."""
    renamed = _renamed(name, config)
    return renamed.now if renamed and renamed.now in marks(config) else name
