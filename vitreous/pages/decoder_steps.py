"""The steps behind the encoder: how a segmenter and a detector decode its maps."""

from __future__ import annotations

from typing import Any, NamedTuple

from vitreous.deploy.living import AFTER
from vitreous.layers.deformable import DeformableAttention
from vitreous.models.detector import Detector
from vitreous.models.detr import DETR
from vitreous.models.model import Model
from vitreous.models.segmenter import MaskTransformer, Segmenter
from vitreous.models.vit import ViT
from vitreous.pages.encoder_steps import block_steps
from vitreous.pages.steps import Group, How, Makers, attention_steps, mlp_steps, step

Steps = list[dict[str, Any]]
ENCODER = ("models/detr.py", "EncoderLayer.forward")
DECODER = ("layers/decoder.py", "DecoderLayer.forward")


def decoder_steps(model: Model, makers: Makers) -> Steps:
    """`makers` are those of the whole model, not of the one inside."""
    if isinstance(model, Segmenter):
        found = _segmenter_steps(model, makers)
    elif isinstance(model, Detector):
        found = _detector_steps(model, makers)
    else:
        names = [f"{AFTER}.{name}" for name in model.steps() if name]
        found = [] if model.core is model else [step("other", name) for name in names]
    return makers.in_order(found)


def sets(model: Model, size: tuple[int, int]) -> dict[str, Any]:
    """What the rows and columns of those steps are: positions of a map, queries, and classes before
    the patches."""
    found: dict[str, Any] = {}
    labels = [{"label": number} for number in range(getattr(model.config, "classes", 0) or 0)]
    if isinstance(model, Detector):
        grid = next(each for each in model.attentions(size) if each.part == "cross").columns.grid
        found["map"] = {"grid": list(grid), "before": []}
        found["queries"] = {"count": model.config.queries}
        if model.other_classes:
            labels.append({"label": -1})
    if isinstance(model, Segmenter) and isinstance(model.decoder, MaskTransformer):
        grid = model.decoded_levels(size)[-1].grid
        found["classes and patches"] = {"grid": list(grid), "before": labels}
        found["classes"] = {"grid": [0, 0], "before": labels}
    found["labels"] = {"grid": [0, 0], "before": labels}
    return found


def _segmenter_steps(model: Segmenter, makers: Makers) -> Steps:
    name = f"{AFTER}.decoder"
    classes: dict[str, Any] = {"columns": "labels", "picture": "classes"}
    placed: How = None
    if isinstance(model.core, ViT) and makers.has("norm"):
        placed = {"kind": "placed", "of": "norm", "skip": model.core.prefix_length}
    found = [
        step("encoder_map", f"{AFTER}.encoder", how=placed, picture="colours"),
        *(
            step("pyramid_map", f"{AFTER}.encoder.{i}", picture="colours", number=i)
            for i in range(len(model.decoded))
        ),
    ]
    if isinstance(model.decoder, MaskTransformer):
        found += _mask_steps(model.decoder, makers)
        return [
            *found,
            step("masks", name, **classes),
            step("upsample", f"{AFTER}.upsample", **classes),
        ]
    how: How = None
    if model.config.decoder == "linear":
        how = makers.linear(f"{AFTER}.encoder", "decoder.out")
    found.append(step("decoded", name, how=how, **classes))
    return [*found, step("upsample", f"{AFTER}.upsample", **classes)]


def _mask_steps(decoder: MaskTransformer, makers: Makers) -> Steps:
    name, both = f"{AFTER}.decoder", "classes and patches"
    project = makers.linear(f"{AFTER}.encoder", "decoder.project")
    found = [step("project", f"{name}.project", how=project, rows="patches")]
    before = None
    block: Any
    for number, block in enumerate(decoder.blocks):
        found += block_steps(
            makers,
            f"{name}.blocks.{number}",
            f"decoder.blocks.{number}",
            block,
            before,
            ("maskBlock", number),
            activation="gelu",
            eps=block.norm1.eps,
            rows=both,
        )
        before = f"{name}.blocks.{number}"
    if before is not None:
        norm = makers.norm(before, "decoder.norm", decoder.norm.eps)
        found.append(step("norm", f"{name}.norm", how=norm, rows=both))
    of, count = f"{name}.norm", len(decoder.classes)
    out = makers.linear(of, "decoder.class_out")
    found.append(step("class_out", f"{name}.class_out", how=out, rows="classes"))
    out = makers.linear(of, "decoder.patch_out", skip=count)
    found.append(step("patch_out", f"{name}.patch_out", how=out, rows="patches"))
    return found


def _detector_steps(model: Any, makers: Makers) -> Steps:
    first = _detr_steps(model, makers) if isinstance(model, DETR) else _proposal_steps(model)
    before = f"{AFTER}.queries"
    for number, layer in enumerate(model.decoder):
        first += _decoder_layer_steps(model, number, layer, before, makers)
        before = f"{AFTER}.decoder.{number}"
    norm = makers.norm(before, "norm", model.norm.eps)
    classes = makers.linear(f"{AFTER}.norm", "class_head")
    exclusive = model.other_classes > 0
    return [
        *first,
        step("query_norm", f"{AFTER}.norm", how=norm, rows="queries"),
        step(
            "class_head" if exclusive else "independent_head",
            f"{AFTER}.class_head",
            how=classes,
            rows="queries",
            columns="labels",
        ),
        step(
            "box_head" if exclusive else "box_change",
            f"{AFTER}.box_head" if exclusive else "boxes",
            rows="queries",
            columns="edges",
            picture="boxes",
        ),
        step("mask_head", f"{AFTER}.mask_head", rows="queries", picture="mask"),
    ]


def _proposal_steps(model: Detector) -> Steps:
    maps = range(len(model.decoded))
    scales = range(len(getattr(model.config, "scales", ())))
    return [
        *(step("block_map", f"{AFTER}.backbone.{i}", picture="colours", number=i) for i in maps),
        *(step("projector", f"{AFTER}.projectors.{i}", picture="colours") for i in scales),
        step("proposals", f"{AFTER}.proposals", rows="queries"),
        step(
            "query_boxes",
            f"{AFTER}.query_boxes",
            rows="queries",
            columns="edges",
            picture="boxes",
        ),
        step("box_position", f"{AFTER}.box_position", rows="queries"),
        step("query_start", f"{AFTER}.queries", rows="queries"),
    ]


def _detr_steps(model: DETR, makers: Makers) -> Steps:
    projection = makers.linear(f"{AFTER}.backbone", "projection")
    flat: How = {"kind": "flat", "of": f"{AFTER}.projection"}
    placed = model.config.add_position
    found = [
        step("backbone_map", f"{AFTER}.backbone", picture="colours"),
        step("projection", f"{AFTER}.projection", how=projection, picture="colours"),
        step("placed_tokens" if placed else "map_tokens", f"{AFTER}.tokens", how=flat, rows="map"),
    ]
    before: str | None = None if placed else f"{AFTER}.tokens"  # the sum has no output of its own
    for number, module in enumerate(model.encoder):
        name = f"encoder.{number}"
        layer = _Layer(makers, name, module, ("encoderLayer", number), "map", ENCODER)
        found += layer.attention("attention", before, "map")
        found += layer.sum_norm(1, before, "attention")
        found += layer.mlp(2, model.config.activation)
        before = f"{AFTER}.{name}"
    return [*found, step("queries", f"{AFTER}.queries", rows="queries")]


def _decoder_layer_steps(
    model: Detector, number: int, module: Any, before: str, makers: Makers
) -> Steps:
    """Queries attend to each other, then to the image; then each goes through an MLP."""
    layer = _Layer(
        makers, f"decoder.{number}", module, ("decoderLayer", number), "queries", DECODER
    )
    found = layer.attention("self_attention", before, "queries")
    found += layer.sum_norm(1, before, "self_attention")
    cross = f"{layer.output}.cross_attention"
    if isinstance(module.cross_attention, DeformableAttention):
        on: dict[str, Any] = {"rows": "queries", "columns": "map", "picture": "attention"}
        found += [
            step("points", f"{cross}.weights", layer.group, **on),
            step("sampled", cross, layer.group, rows="queries"),
        ]
    else:
        encoder = getattr(model, "encoder", ())
        memory = f"{AFTER}.encoder.{len(encoder) - 1}" if len(encoder) else None
        found += layer.attention("cross_attention", memory, "map")
    found += layer.sum_norm(2, f"{layer.output}.norm1", "cross_attention")
    return found + layer.mlp(3, model.config.activation)


class _Layer(NamedTuple):
    """A layer of DETR's transformer: its norms stand behind the sums."""

    makers: Makers
    weights: str
    """What its parameters are called."""
    module: Any
    group: Group
    rows: str
    source: tuple[str, str]
    """Where its forward is written."""

    @property
    def output(self) -> str:
        return f"{AFTER}.{self.weights}"

    def attention(self, part: str, values: str | None, columns: str) -> Steps:
        """Queries and keys get positions; `values` is the output that v is made of."""
        attention, weights = getattr(self.module, part), f"{self.weights}.{part}"
        first = 2 * attention.heads * attention.head_dim
        v = self.makers.linear(values, f"{weights}.qkv", first) if values else None
        return attention_steps(
            self.makers,
            f"{self.output}.{part}",
            weights,
            attention,
            self.group,
            qkv=[("placed_q", None), ("placed_k", None), ("placed_v", v)],
            rows=self.rows,
            columns=columns,
            picture="attention" if columns == "map" else None,
        )

    def sum_norm(self, number: int, before: str | None, part: str) -> Steps:
        """What was there is added, and the sum normalised."""
        norm = f"norm{number}"
        how, eps = None, getattr(self.module, norm).eps
        if before is not None:
            of = [before, f"{self.output}.{part}"]
            how = self.makers.norm(of, f"{self.weights}.{norm}", eps)
        source = (*self.source, f"self.{norm}(")
        return [
            step(
                "sum_norm",
                f"{self.output}.{norm}",
                self.group,
                how=how,
                rows=self.rows,
                source=source,
            )
        ]

    def mlp(self, number: int, activation: str) -> Steps:
        """The MLP between the norm before and the norm of this number."""
        before = f"{self.output}.norm{number - 1}"
        made = mlp_steps(
            self.makers,
            f"{self.output}.mlp",
            f"{self.weights}.mlp",
            before,
            self.group,
            activation=activation,
            rows=self.rows,
            equation="x W_1 + b_1",
        )
        return made + self.sum_norm(number, before, "mlp")
