"""State dicts of models around others: what is inside belongs to the core's own family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vitreous.layers.resample import Grid, Resampling, State
from vitreous.models.mae import MaskedAutoencoder
from vitreous.models.model import Model
from vitreous.models.segmenter import MaskTransformer
from vitreous.weights.families.positions import resample_positions
from vitreous.weights.families.state_dict import Shapes, StateDict, numbered


class CompositeStateDict(StateDict):
    """core: the `StateDict` of a model inside."""

    def __init__(self, core: Callable[[Model], StateDict]) -> None:
        self.core = core

    def input_weight(self, model: Model) -> str:
        return f"{model.config.part}.{self.core(model.core).input_weight(model.core)}"

    def input_norms(self, model: Model) -> tuple[str, ...]:
        names = self.core(model.core).input_norms(model.core)
        return tuple(f"{model.config.part}.{name}" for name in names)

    def resample(
        self, model: Model, state: State, mode: str | None, source: Grid | None
    ) -> Resampling:
        inner = _inside(model, state)
        done = self.core(model.core).resample(model.core, inner, mode, source)
        state |= _owned(model, inner)
        return done.inside(f"{model.config.part}.")

    def upgraded(self, model: Model, state: State) -> State:
        inner = _inside(model, state)
        others = {k: v for k, v in state.items() if k not in _owned(model, inner)}
        return {**others, **_owned(model, self.core(model.core).upgraded(model.core, inner))}

    def with_rows(self, model: Model, state: State, rows: str) -> State:
        inner = self.core(model.core).with_rows(model.core, _inside(model, state), rows)
        return {**state, **_owned(model, inner)}


def _inside(model: Model, state: State) -> State:
    owner = f"{model.config.part}."
    return {k.removeprefix(owner): v for k, v in state.items() if k.startswith(owner)}


def _owned(model: Model, state: State) -> State:
    return {f"{model.config.part}.{name}": value for name, value in state.items()}


class PretrainedStateDict(CompositeStateDict):
    """Of what is pre-trained without classes."""

    def classwise(self, model: Model) -> tuple[str, ...]:
        return ()


class TwoTowersStateDict(PretrainedStateDict):
    """A file of another library is read as two, one for each tower (`weights/towers.py`)."""

    found_if_asked = True


class MaskedAutoencoderStateDict(PretrainedStateDict):
    found_if_asked = True

    def resample(
        self, model: Model, state: State, mode: str | None, source: Grid | None
    ) -> Resampling:
        assert isinstance(model, MaskedAutoencoder)
        done, key = super().resample(model, state, mode, source), "position.table"
        own = {key: state[f"decoder.{key}"]} if f"decoder.{key}" in state else {}
        position = model.decoder.position
        also = resample_positions(position, model.core.config, own, mode, source)
        also = also.inside("decoder.")
        state |= {f"decoder.{name}": value for name, value in own.items()}
        done.changed |= also.changed
        done.refused |= also.refused
        return done

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        embed = shapes.get("decoder.embed.weight")
        if not embed or "decoder.mask_token" not in shapes:
            return []
        found = {"decoder_dim": embed[0], "decoder_depth": numbered(shapes, "decoder.blocks")}
        if mlp := shapes.get("decoder.blocks.0.mlp.fc1.weight"):
            found["decoder_mlp_dim"] = mlp[0]
        return [found]


class SegmenterStateDict(CompositeStateDict):
    def classwise(self, model: Model) -> tuple[str, ...]:
        if isinstance(model.decoder, MaskTransformer):
            return ("decoder.classes", "decoder.mask_norm.*")
        return ("decoder.out.*",)

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        if embeddings := shapes.get("decoder.classes"):
            classes, dim = embeddings
            depth = numbered(shapes, "decoder.blocks")
            return [{"decoder": "mask", "classes": classes, "dim": dim, "depth": depth}]
        out = shapes.get("decoder.out.weight")
        if not out or not any(name.startswith("encoder.") for name in shapes):
            return []
        if len(out) == 2:
            return [{"decoder": "linear", "classes": out[0]}]
        decoder = "progressive" if numbered(shapes, "decoder.steps") else "pyramid"
        return [{"decoder": decoder, "classes": out[0], "dim": out[1]}]


class DETRStateDict(CompositeStateDict):
    def classwise(self, model: Model) -> tuple[str, ...]:
        return ("class_head.*",)

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        classes, mlp = shapes.get("class_head.weight"), shapes.get("decoder.0.mlp.fc1.weight")
        queries = shapes.get("queries.weight")
        if not (classes and mlp and queries):
            return []
        return [
            {
                "classes": classes[0] - 1,  # the last is "no object"
                "queries": queries[0],
                "dim": queries[1],
                "mlp_dim": mlp[0],
                "encoder_depth": numbered(shapes, "encoder"),
                "decoder_depth": numbered(shapes, "decoder"),
                **({"heads": axes["heads"]} if "heads" in axes else {}),
            }
        ]


class RFDETRStateDict(CompositeStateDict):
    found_if_asked = True  # windows, and which blocks are used, do not show: it must be named

    def classwise(self, model: Model) -> tuple[str, ...]:
        return ("class_head.*", "proposals.*.class_head.*")

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        classes, mlp = shapes.get("class_head.weight"), shapes.get("decoder.0.mlp.fc1.weight")
        queries = shapes.get("queries.weight")
        if not (classes and mlp and queries and "query_boxes.weight" in shapes):
            return []
        groups, levels = numbered(shapes, "proposals"), numbered(shapes, "projectors")
        points = shapes.get("decoder.0.cross_attention.weights.weight", (0,))[0]
        inside = shapes.get("mask_head.query_mlp.fc1.weight")
        cross_heads = max(classes[1] // 16, 1)  # as in all that are published
        return [
            {
                "classes": classes[0],
                "dim": classes[1],
                "mlp_dim": mlp[0],
                "groups": groups,
                "queries": queries[0] // max(groups, 1),
                "decoder_depth": numbered(shapes, "decoder"),
                "projector_depth": numbered(shapes, "projectors.0.bottlenecks"),
                "scales": tuple(
                    _scale_of(shapes, f"projectors.{s}.resize.0.") for s in range(levels)
                ),
                "cross_heads": cross_heads,
                "points": max(points // max(cross_heads * levels, 1), 1),
                "masks": inside is not None,
                **({} if inside is None else {"mask_mlp_dim": inside[0]}),
                "guessed": ["cross_heads", "points"],
            }
        ]


def _scale_of(shapes: Shapes, resize: str) -> float:
    """Of the projector with these layers: none, a transposed convolution (behind one of 1x1 or
    not), or a convolution of 3x3 in steps of two."""
    convolution = shapes.get(f"{resize}0.conv.weight")
    if f"{resize}0.weight" in shapes or (convolution and convolution[-1] == 1):
        return 2.0
    return 0.5 if convolution else 1.0
