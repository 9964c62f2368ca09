"""The steps of the model that looks at the image: a ViT in full, others stage by stage."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.pages.steps import Group, How, Makers, attention_steps, mlp_steps, step

STAGES = {
    **{"stem": "stem", "root": "stem", "patch": "first_patches", "patch_norm": "norm"},
    **{"grid_stem": "grid_stem", "stages": "stage", "blocks": "windowed", "norm": "norm"},
    **{"pool": "pool", "head": "head"},
}
"""The words for what is inside an encoder that is not taken apart, by its first name."""
IN_RASTER = ("layers/sines.py", "Sines1d.forward", "table = _sines(")
ANGLES = ("position.angles", "position.rotary.angles")


def encoder_steps(core: Model, makers: Makers) -> list[dict[str, Any]]:
    if isinstance(core, ViT) and core.windows is None:
        return vit_steps(core, makers)
    found = []
    for name in (*core.steps(), "pool"):
        kind, _, number = name.partition(".")
        if name and makers.has(name):
            key = STAGES.get(kind, "other")
            drawn = None if len(makers.graph.outputs[name]) == 2 else "colours"
            count = int(number) if number.isdecimal() else None
            found.append(step(key, name, picture=drawn, number=count))
    return makers.in_order(found)


def vit_steps(core: ViT, makers: Makers) -> list[dict[str, Any]]:
    has, norm, inner = makers.has, makers.norm, makers.inner
    config = core.config
    known = {"kind": "patch", "weight": f"{inner}patch.weight", "bias": f"{inner}patch.bias"}
    plain_patch = config.stem.kind == "none" and not config.embedding.norm
    stems = [name for name in ("stem", "grid_stem") if has(name)]
    steps = [step(name, name, picture="colours") for name in stems]
    if has("tokens"):
        how = known if plain_patch else None
        steps.append(step("patch", "tokens", how=how, picture="colours"))
    if has("prefix"):
        steps.append(step("prefix", "prefix", how={"kind": "stack", "of": "tokens"}))
    before = "prefix" if has("prefix") else "tokens"
    if has("position.table"):
        learned = config.position.kind.startswith("learned-1d")
        how = {"kind": "learned"} if learned else None
        key = "sines" if config.position.kind.startswith("sines") else "table"
        source = IN_RASTER if config.position.kind == "sines-1d" else None
        steps.append(step(key, "position.table", how=how, picture="alike", source=source))
    if has("position"):
        of = [before, "position.table"]
        sum_of = {"kind": "sum", "of": of} if has("position.table") else None
        steps.append(step("position", "position", how=sum_of))
        before = "position"
    if has("embed_norm"):
        how = norm(before, "embed_norm", config.norm_eps)
        steps.append(step("embed_norm", "embed_norm", how=how))
        before = "embed_norm"
    angles = next((name for name in ANGLES if has(name)), None)
    if angles is not None:
        steps.append(step("angles", angles))
    turned = {"angles": angles, "layout": getattr(config.position, "layout", None)}
    block: Any
    for number, block in enumerate(core.blocks):
        name = f"blocks.{number}"
        steps += block_steps(
            makers,
            name,
            name,
            block,
            before,
            ("block", number),
            # what else happens between the linear layer and the scores has no short form
            simple=not config.attention.qk_norm and block.attention.qv_bias is None,
            turned=turned if angles else None,
            bias=f"position.blocks.{number}.bias",
            order=config.norm.place,
            plain_sums=config.layer_scale is None,
            activation=config.activation,
            normed=config.mlp.norm,
            eps=config.norm_eps,
        )
        before = name
        if number == 0 and has("position.conditional"):  # CPVT: behind the first block
            steps += conditional_steps(makers, before)
            before = "position.conditional"
    return steps + _head_steps(core, makers, before)


def conditional_steps(makers: Makers, before: str) -> list[dict[str, Any]]:
    """What is generated from the tokens `before`, and the sum."""
    names = ("position.generator.weight", "position.generator.bias")
    weight, bias = (f"{makers.inner}{name}" for name in names)
    around = {"kind": "neighbours", "of": "position.placed", "weight": weight, "bias": bias}
    sum_of = {"kind": "sum", "of": [before, "position.generated"]}
    return [
        step("generated", "position.generated", how=around),
        step("conditional", "position.conditional", how=sum_of, picture="colours"),
    ]


def _head_steps(core: ViT, makers: Makers, before: str) -> list[dict[str, Any]]:
    has, config, steps = makers.has, core.config, []
    if has("norm"):
        steps.append(step("norm", "norm", how=makers.norm(before, "norm", config.norm_eps)))
        before = "norm"
    if has("pooling.attention.weights"):
        softmax = {"kind": "softmax", "of": "pooling.attention.scaled"}
        at = "pooling.attention.weights"
        steps.append(step("probe", at, how=softmax, columns="tokens", picture="attention"))
    if has("pool"):
        kind = config.pool.kind
        read = {"class": "first", "first": "first", "mean": "mean"}.get(kind)
        how = {"kind": read, "of": before, "prefix": core.prefix_length} if read else None
        steps.append(step("pool", "pool", how=how))
        before = "pool"
    if has("pooled_norm"):
        how = makers.norm(before, "pooled_norm", config.norm_eps)
        steps.append(step("norm", "pooled_norm", how=how))
        before = "pooled_norm"
    if has("head"):
        weights = makers.graph.weights
        simple = f"{makers.inner}head.out.weight" in weights and config.head.kind == "linear"
        simple = simple and f"{makers.inner}head.distillation.weight" not in weights
        steps.append(
            step("head", "head", how=makers.linear(before, "head.out") if simple else None)
        )
    return steps


def block_steps(
    makers: Makers,
    name: str,
    weights: str,
    block: Any,
    before: str | None,
    group: Group,
    *,
    activation: str,
    eps: float,
    simple: bool = True,
    turned: dict[str, Any] | None = None,
    bias: str = "",
    order: str = "pre",
    plain_sums: bool = True,
    normed: bool = False,
    rows: str | None = None,
) -> list[dict[str, Any]]:
    """A block. Its outputs are called `name`, its parameters `weights`; `before` is the output that
    it reads, if there is one; `turned` says how queries and keys are turned, `bias` is the output
    that is added to the scores, where there is one; `order` is that of its norms."""
    attention, mlp, pre = f"{name}.attention", f"{name}.mlp", order == "pre"
    read, into_mlp = (before, "norm1") if order == "post" else (f"{name}.norm1", "norm2")
    width = block.attention.heads * block.attention.head_dim
    by_layer = isinstance(block.norm1, nn.LayerNorm)
    words = {part: part if by_layer else "batch_norm" for part in ("norm1", "norm2")}

    def norm(of: str | None, part: str) -> How:
        return makers.norm(of, f"{weights}.{part}", eps) if pre and by_layer and of else None

    def sum_of(*of: str | None) -> How:
        return {"kind": "sum", "of": list(of)} if pre and plain_sums and all(of) else None

    qkv: list[tuple[str, How]] = []
    for i, part in enumerate("qkv"):
        made = makers.linear(read, f"{weights}.attention.qkv", i * width) if read else None
        if part != "v" and made and turned:
            made = {"kind": "turn", "linear": made, **turned}
        qkv.append((part, made if simple or part == "v" else None))
    found = [
        step("bias", bias, group, columns="tokens", picture="row"),
        step(words["norm1"], f"{name}.norm1", group, how=norm(before, "norm1"), rows=rows),
        *attention_steps(
            makers,
            attention,
            f"{weights}.attention",
            block.attention,
            group,
            qkv=qkv,
            bias=bias if makers.has(bias) else None,
            rows=rows,
            columns=rows,
            picture="attention",
        ),
        step("sum", f"{name}.sum", group, how=sum_of(attention, before), rows=rows),
        step(words["norm2"], f"{name}.norm2", group, how=norm(f"{name}.sum", "norm2"), rows=rows),
        *mlp_steps(
            makers,
            mlp,
            f"{weights}.mlp",
            f"{name}.{into_mlp}",
            group,
            activation=activation,
            normed=normed,
            rows=rows,
        ),
        step(
            "block",
            name,
            group,
            how=sum_of(mlp, f"{name}.sum"),
            rows=rows,
            picture="colours",
        ),
    ]
    return makers.in_order(found)
