"""What a living page says of the steps of a model: each with its words, its equation, the line of
our source that computes it, and what makes one cell of it.

The words are in steps.toml, the programs that draw steps in living/.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from vitreous.config import read_toml
from vitreous.deploy.living import LivingGraph
from vitreous.pages.mathml import mathml

STEPS = read_toml(Path(__file__).with_name("steps.toml"), "the steps of a living page")
PACKAGE = Path(__file__).parents[1]
How = dict[str, Any] | None
"""What makes one cell: a kind of cells.js, and what it needs."""
Group = tuple[str, int] | None
"""The layer that a step is inside: a key of [living] in words.toml, and its number from 0."""
EQUATIONS = {"relu": "ReLU(x) = max(0, x)", "gelu": "GELU(x) = x Φ(x)"}
"""Of activations; others are named without one."""
TURNED = "{0} = R_θ ( LN(z) W_{0} + b_{0} )"
"""Of queries and keys with rotary positions."""


def step(
    key: str,
    output: str,
    group: Group = None,
    *,
    how: How = None,
    rows: str | None = None,
    columns: str | None = None,
    picture: str | None = None,
    equation: str | None = None,
    source: tuple[str, str, str] | None = None,
    number: int | None = None,
) -> dict[str, Any]:
    """One step for the page. `rows`, `columns`: what stands there, a set of `about["sets"]`.
    `picture`: what is drawn beside its matrix. `number` is filled into its words; `equation` and
    `source` are those of steps.toml unless given."""
    words = STEPS[key]
    equation = words.get("equation", "") if equation is None else equation
    source = source or words.get("source")

    def said(place: int) -> list[str]:
        texts = (words[language][place] for language in ("en", "zh"))
        return [text if number is None else text.format(number + 1) for text in texts]

    return {
        "key": key,
        "output": output,
        "group": None if group is None else list(group),
        "how": how,
        "rows": rows,
        "columns": columns,
        "picture": picture,
        "title": said(0),
        "why": said(1),
        "equation": mathml(equation) if equation else "",
        "source": source_of(*source) if source else None,
    }


class Makers(NamedTuple):
    """Writes what makes a cell of the layers of a model, by the names of their weights."""

    graph: LivingGraph
    inner: str
    """The model inside is called so, with a dot behind it, or nothing."""

    def has(self, name: str) -> bool:
        return name in self.graph.outputs

    def in_order(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that this model has, as they are computed one behind the other."""
        places = {name: place for place, name in enumerate(self.graph.outputs)}
        kept = [each for each in steps if each["output"] in places]
        return sorted(kept, key=lambda each: places[each["output"]])

    def linear(self, of: str, module: str, first: int = 0, **more: Any) -> dict[str, Any]:
        """A row of `of` times a column of the weight, of which `first` come before."""
        weight, bias = f"{self.inner}{module}.weight", f"{self.inner}{module}.bias"
        bias = bias if bias in self.graph.weights else ""
        made = {"kind": "linear", "of": of, "weight": weight, "bias": bias, "first": first}
        return {**made, **more}

    def norm(self, of: str | list[str], module: str, eps: float) -> dict[str, Any]:
        """LayerNorm of an output, or of the sum of several."""
        weight, bias = f"{self.inner}{module}.weight", f"{self.inner}{module}.bias"
        several = [of] if isinstance(of, str) else of
        return {"kind": "norm", "of": several, "weight": weight, "bias": bias, "eps": eps}


def attention_steps(
    makers: Makers,
    name: str,
    weights: str,
    module: Any,
    group: Group,
    *,
    qkv: list[tuple[str, How]],
    bias: str | None = None,
    rows: str | None = None,
    columns: str | None = None,
    picture: str | None = None,
) -> list[dict[str, Any]]:
    """The steps of an attention, whose outputs are called `name` and whose parameters `weights`,
    from queries, keys and values (their words, and what makes them) to W_O; `bias` is an output
    that is added to the scores."""
    plus = {} if bias is None else {"plus": bias}
    with_bias = ("frac(q k^T)(sqrt(d)) + B", "A = softmax ( frac(q k^T)(sqrt(d)) + B )")
    equations = (None, None) if bias is None else with_bias
    scale = {"kind": "scale", "of": f"{name}.scores", "by": module.scale}
    join = {**makers.linear("", f"{weights}.projection"), "kind": "join", "of": f"{name}.heads"}
    sides = {"q": rows, "k": columns, "v": columns}
    found = [
        step(
            key,
            f"{name}.{part}",
            group,
            how=how,
            rows=sides[part],
            equation=TURNED.format(part) if how and how["kind"] == "turn" else None,
        )
        for part, (key, how) in zip("qkv", qkv, strict=True)
    ]
    on: dict[str, Any] = {"rows": rows, "columns": columns}
    found += [
        step(
            "scores",
            f"{name}.scores",
            group,
            how={"kind": "scores", "of": [f"{name}.q", f"{name}.k"]},
            **on,
        ),
        step("scaled", f"{name}.scaled", group, how=scale | plus, equation=equations[0], **on),
        step(
            "weights",
            f"{name}.weights",
            group,
            how={"kind": "softmax", "of": f"{name}.scaled"},
            picture=picture,
            equation=equations[1],
            **on,
        ),
        step(
            "heads",
            f"{name}.heads",
            group,
            how={"kind": "mix", "of": [f"{name}.weights", f"{name}.v"], "columns": columns},
            rows=rows,
        ),
        step("attention", name, group, how=join, rows=rows),
    ]
    return found


def mlp_steps(
    makers: Makers,
    name: str,
    weights: str,
    before: str,
    group: Group,
    *,
    activation: str,
    normed: bool = False,
    rows: str | None = None,
    equation: str | None = None,
) -> list[dict[str, Any]]:
    """The steps of an MLP that reads the output `before`."""
    act = {"kind": "activation", "of": f"{name}.fc1", "name": activation}
    second = None if normed else makers.linear(f"{name}.activated", f"{weights}.fc2")
    return [
        step(
            "fc1",
            f"{name}.fc1",
            group,
            how=makers.linear(before, f"{weights}.fc1"),
            rows=rows,
            equation=equation,
        ),
        step(
            "activated",
            f"{name}.activated",
            group,
            how=None if "gated" in activation else act,
            rows=rows,
            equation=EQUATIONS.get(activation, ""),
        ),
        step(
            "mlp",
            name,
            group,
            how=second,
            rows=rows,
            equation=None if activation == "gelu" else "",
        ),
    ]


def name_of(model: nn.Module, part: nn.Module) -> str:
    """With a dot behind it; nothing if it is the model itself."""
    return next(f"{name}." for name, each in model.named_modules() if each is part).lstrip(".")


@cache
def source_of(file: str, function: str, part: str) -> dict[str, Any]:
    """The statement of our own source that has these words, and where it stands."""
    text = (PACKAGE / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    owner: ast.AST = ast.parse(text)
    for name in function.split(".") if function else []:
        owner = next(
            node
            for node in ast.walk(owner)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        )
    statements = [
        node
        for node in ast.walk(owner)
        if isinstance(node, ast.stmt)
        and not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.If | ast.For | ast.With)
        and part in "\n".join(lines[node.lineno - 1 : node.end_lineno])
    ]
    if not statements:
        raise LookupError(f"{file}: {function} has no line with {part!r}: see steps.toml")
    best = min(statements, key=lambda node: (node.end_lineno or 0) - node.lineno)
    code = [line.strip() for line in lines[best.lineno - 1 : best.end_lineno]]
    return {"file": f"vitreous/{file}", "line": best.lineno, "code": " ".join(code)}
