"""The backbones of transformers' detectors, in their config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.config import pair
from vitreous.errors import CheckpointError
from vitreous.models import configure
from vitreous.models.names import translate


class Backbone(NamedTuple):
    """How a kind of backbone is read and written."""

    read: Callable[[Mapping[str, Any], Path], dict[str, Any]]
    """The fields `backbone`, `backbone_fields` and what else its table decides;"""
    make: Callable[[Any], dict[str, Any]]
    """and the entries of a config.json for a config of ours."""


def _read_resnet(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The backbone of a DETR: a top-level field in older files, a table in newer ones."""
    table = data.get("backbone_config") or {}
    name = str(table.get("backbone") or data.get("backbone") or table.get("model_type"))
    known = translate(name)
    if known is None or not known[0].startswith("resnet-"):
        raise CheckpointError(
            f"{path}: backbone = {name!r} is not supported: only timm's resnet18, 34, 50 and 101"
        )
    dilated = bool(data.get("dilation")) or table.get("output_stride") == 16
    fields = {"norm": "frozen", **({"dilated": True} if dilated else {})}
    return {"backbone": known[0], "backbone_fields": fields}


def _make_resnet(config: Any) -> dict[str, Any]:
    """The entries that `_read_resnet` reads."""
    fields = {**config.backbone_fields}
    dilated = fields.pop("dilated", False)
    layers = config.backbone.removeprefix("resnet-")
    if not layers.isdigit() or fields != {"norm": "frozen"}:
        raise CheckpointError(
            f"backbone = {config.backbone!r} with {config.backbone_fields}: transformers' DETR has "
            "a resnet-18, 34, 50 or 101 with norm = 'frozen'"
        )
    return {
        "dilation": dilated,
        "backbone_config": {
            "model_type": "timm_backbone",
            "backbone": f"resnet{layers}",
            "num_channels": config.channels,
            "features_only": True,
            "use_pretrained_backbone": False,
            "out_indices": [1, 2, 3, 4],
            **({"output_stride": 16} if dilated else {}),
        },
    }


VIT = {
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "patch_size": "patch",
    "layer_norm_eps": "norm_eps",
}
"""Fields that the tables of both ViTs have, and ours."""


def _read_dinov2(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Of RF-DETR: blocks whose tokens see all of the image stand behind those whose maps are used,
    and the table of positions is for the table's own image_size."""
    table = _table(data, path, "rf_detr_dinov2")
    fields = _vit_fields(table)
    used = _used(table, fields["depth"])
    windows = int(table.get("num_windows", 4))
    fields |= {"layer_scale": 1.0, "windows.side": windows}
    if windows > 1:
        fields["windows.global_blocks"] = tuple(block for block in used if block < fields["depth"])
    if table.get("use_swiglu_ffn"):
        raise CheckpointError(f"{path}: use_swiglu_ffn is not supported in a backbone")
    return _around("dinov2-s/14", fields, used, int(table.get("image_size", 224)))


def _make_dinov2(config: Any) -> dict[str, Any]:
    core = _core(config)
    grid = _stored_grid(core)
    global_blocks = tuple(core.windows.global_blocks)
    used = [block + 1 for block in config.blocks or ()]
    if core.windows.side > 1 and global_blocks != tuple(
        block for block in used if block < core.depth
    ):
        raise CheckpointError(
            f"windows.global_blocks = {list(global_blocks)}: transformers' RF-DETR has them "
            f"behind the blocks whose maps are used, {used}"
        )
    table = {
        "model_type": "rf_detr_dinov2",
        **_vit_table(core, grid[0] * _patch(core)),
        "num_windows": core.windows.side,
        "out_features": [f"stage{stage}" for stage in used],
    }
    return {"backbone_config": table, "num_feature_levels": len(config.scales)}


def _read_lw_vit(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Of LW-DETR: without class token and last norm, its positions for pretrain_image_size."""
    table = _table(data, path, "lw_detr_vit")
    fields = _vit_fields(table)
    within = {int(block) for block in table.get("window_block_indices", ())}
    side = round(int(table.get("num_windows", 16)) ** 0.5)
    fields |= {
        **{"tokens": "none", "pool": "mean", "final_norm": "none", "attention.key_bias": False},
        **{"layer_scale": 0.1, "windows.side": side, "position.antialias": False},
        "windows.global_blocks": tuple(b for b in range(fields["depth"]) if b not in within),
    }
    used = _used(table, fields["depth"])
    found = _around("vit-ti/16", fields, used, int(table.get("pretrain_image_size", 224)))
    found["image_size"] = int(table.get("image_size", 256))
    scales = data.get("projector_scale_factors")
    return found | ({"scales": tuple(float(scale) for scale in scales)} if scales else {})


def _make_lw_vit(config: Any) -> dict[str, Any]:
    core = _core(config)
    table = {
        "model_type": "lw_detr_vit",
        **_vit_table(core, pair("image_size", config.image_size)[0]),
        "pretrain_image_size": _stored_grid(core)[0] * _patch(core),
        "num_windows": core.windows.side**2,
        "window_block_indices": [
            b for b in range(core.depth) if b not in core.windows.global_blocks
        ],
        "out_indices": [block + 1 for block in config.blocks or ()],
    }
    return {"backbone_config": table, "projector_scale_factors": list(config.scales)}


def _stored_grid(core: Any) -> tuple[int, int]:
    """That of its table of positions."""
    grid = core.position.grid
    return core.grid if grid is None else pair("grid", grid)


def _table(data: Mapping[str, Any], path: Path, kind: str) -> dict[str, Any]:
    table = {k: v for k, v in (data.get("backbone_config") or {}).items() if v is not None}
    if table.get("model_type", kind) != kind:
        raise CheckpointError(
            f"{path}: backbone_config of {table['model_type']!r} is not supported: only {kind}"
        )
    return table


def _vit_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    usual = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    usual |= {"patch_size": 14 if "dinov2" in str(table.get("model_type")) else 16}
    values = {**usual, "layer_norm_eps": 1e-6, **table}
    fields = {ours: values[theirs] for theirs, ours in VIT.items()}
    return fields | {"mlp_dim": int(fields["dim"] * values.get("mlp_ratio", 4))}


def _vit_table(core: Any, size: int) -> dict[str, Any]:
    found = {theirs: getattr(core, ours) for theirs, ours in VIT.items()}
    if core.mlp_width % core.dim:
        raise CheckpointError(f"mlp_dim = {core.mlp_width}: transformers has a multiple of dim")
    ratio = core.mlp_width // core.dim
    return {**found, "patch_size": _patch(core), "mlp_ratio": ratio, "image_size": size}


def _patch(core: Any) -> int:
    height, width = pair("patch", core.patch)
    if height != width:
        raise CheckpointError(f"patch = {core.patch}: transformers supports only square patches")
    return height


def _core(config: Any) -> Any:
    """The config of the model inside."""
    fields = {"image_size": config.image_size, "channels": config.channels}
    return configure(config.backbone, pad=True, **fields, **config.backbone_fields)[1]


def _used(table: Mapping[str, Any], depth: int) -> list[int]:
    """How many blocks are before each map that is used."""
    stages = [str(name).removeprefix("stage") for name in table.get("out_features") or ()]
    numbers = table.get("out_indices") or [int(name) for name in stages if name.isdigit()]
    return [int(number) for number in numbers] or [depth]


def _around(backbone: str, fields: dict[str, Any], used: list[int], stored: int) -> dict[str, Any]:
    """Our fields; `stored`: the size in pixels that the table of positions is for."""
    fields["position.grid"] = stored // fields["patch"]
    return {
        "backbone": backbone,
        "backbone_fields": fields,
        "blocks": tuple(number - 1 for number in used),
        "image_size": stored,
    }


BACKBONES = {
    "detr": Backbone(_read_resnet, _make_resnet),
    "rf-detr": Backbone(_read_dinov2, _make_dinov2),
    "lw-detr": Backbone(_read_lw_vit, _make_lw_vit),
}
