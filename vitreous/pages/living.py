"""The living page: one HTML file in which the model itself runs, with every number visible.

`deploy/living.py` makes the graph; here it is put into a page, with the words, the equations and
the lines of source for each step. The page's programs are in living/.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import PIL.Image
import torch
from torch import Tensor

from vitreous.config import choice, pair, read_toml
from vitreous.data.preprocess import FULL_SCALE, Preprocess
from vitreous.deploy.browser import BrowserError, find_browser, opened_page
from vitreous.deploy.export import LEAST_AGREEMENT, Exported, ExportError
from vitreous.deploy.living import (
    EXACT,
    LARGEST,
    STORED,
    Arrays,
    LivingGraph,
    answers,
    living_graph,
    stored,
    stored_numbers,
)
from vitreous.deploy.web_runtime import WebRuntime, web_runtime
from vitreous.engines.interventions import encoder_layers, heads_of
from vitreous.engines.precision import precision_named
from vitreous.errors import ConfigError
from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.pages.mathml import mathml
from vitreous.pages.page_file import check_page_name, write_page
from vitreous.pages.pictures import as_picture
from vitreous.pages.template import program, render
from vitreous.pages.words import WORDS, words_for
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.tasks import show_of

HERE = Path(__file__).parent
STEPS = read_toml(HERE / "steps.toml", "the steps of a ViT")
PACKAGE = HERE.parent
SAFE = str.maketrans("<&", ",.")
"""Characters of base85 that HTML would take for its own, and others in their place."""
PROGRAMS = ("engine.js", "input.js", "steps.js", "app.js")
TOLERANCES = {"float32": 1e-4, "float16": 0.02, "int8": 0.3}
"""The largest difference from torch, relative to the largest output, by how weights are kept."""
SMALL_SIDE = 64
"""Pixels: smaller pictures are kept exactly."""


def as_text(content: bytes, *, compress: bool = True) -> str:
    """Bytes for a page: a quarter longer, where base64 is a third."""
    packed = zlib.compress(content, 9) if compress else content
    return base64.b85encode(packed).decode().translate(SAFE)


@cache
def runtime_texts(runtime: WebRuntime) -> dict[str, str]:
    return {"loader": as_text(runtime.loader), "program": as_text(runtime.program)}


def about(
    predictor: Predictor, graph: LivingGraph, weights: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the page must know of the model, its data and its task."""
    model, preprocess, task = predictor.model, shown_preprocess(predictor), predictor.task
    size = pair("image_size", preprocess.image_size)
    core = model.core
    prefix = int(core.prefix_length)
    layers = encoder_layers(model)
    return {
        "model": model.name,
        "task": task.name,
        "labels": list(task.labels.names),
        "thresholds": _plain(getattr(task, "thresholds", None)),
        "noObject": model.other_classes > 0,
        "threshold": _plain(getattr(task, "threshold", None)),
        "input": [preprocess.channels, *size],
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
        "preprocess": {
            "channels": preprocess.channels,
            "size": list(size),
            "resize": preprocess.resize,
            "whole": preprocess.whole,
            "crop": preprocess.crop,
            "interpolation": preprocess.interpolation,
            "antialias": preprocess.antialias,
        },
        "grid": list(graph.interventions.grid),
        "pixels": list(graph.interventions.pixels),
        "prefix": prefix,
        "tokens": token_names(core),
        "changes": {
            name: {"dims": list(value.shape), "whole": not value.is_floating_point()}
            for name, value in graph.interventions.items()
        },
        "heads": [heads_of(core, layer) for layer in layers],
        "blocks": _blocks(core, graph),
        "queries": [
            {
                "name": f"{layer.name}.weights",
                "grid": list(layer.columns.grid),
                "pixels": list(layer.columns.pixels),
                "heads": graph.outputs[f"{layer.name}.weights"][1],
            }
            for layer in model.attentions()
            if layer.part == "cross" and f"{layer.name}.weights" in graph.outputs
        ],
        "draw": preprocess.channels == 1 and max(size) <= 32,
        "layers": [
            name
            for name, layer in ((f"{each.name}.weights", each) for each in layers)
            if layer.columns.windows is None and name in graph.outputs
        ],
        "outputs": {name: list(shape) for name, shape in graph.outputs.items()},
        "same": graph.same,
        "answers": list(graph.answers),
        "weights": weights,
        "steps": steps_of(predictor, graph),
        "parameters": sum(each.numel() for each in model.parameters()),
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value


def _blocks(core: Any, graph: LivingGraph) -> list[str]:
    """The outputs of the blocks whose tokens lie on the grid that patches are chosen on."""
    count = int(core.prefix_length) + graph.interventions.grid[0] * graph.interventions.grid[1]
    names = [f"blocks.{number}" for number in range(getattr(core, "depth", 0))]
    return [name for name in names if graph.outputs.get(name, ())[1:2] == (count,)]


def token_names(core: Any) -> list[list[str]]:
    """Of the tokens before the patches, in English and Chinese."""
    said = WORDS["viewer"]
    tokens = getattr(core.config, "tokens", "none")
    named = [said[f"{each}Token"] for each in tokens.split("+") if f"{each}Token" in said]
    registers = range(1, getattr(core.config, "registers", 0) + 1)
    return [*named, *([text.format(i) for text in said["register"]] for i in registers)]


def steps_of(predictor: Predictor, graph: LivingGraph) -> list[dict[str, Any]]:
    """Every step in its order: which output it is, and what makes one cell of it."""
    model = predictor.model
    core = model.core
    inner = next(f"{name}." for name, part in model.named_modules() if part is core).lstrip(".")
    found = [_step("image", "", None)]
    if isinstance(core, ViT) and core.windows is None:
        found += _vit_steps(core, inner, graph)
    else:
        found += [_step("other", name, None) for name in core.steps() if name in graph.outputs]
    if show_of(predictor.task.name).excludes:
        found.append(_step("answer", "", None, how={"kind": "softmax", "of": "logits"}))
    return found


def _vit_steps(core: ViT, inner: str, graph: LivingGraph) -> list[dict[str, Any]]:
    def has(name: str) -> bool:
        return name in graph.outputs

    def linear(of: str, module: str, first: int = 0) -> dict[str, Any]:
        weight, bias = f"{inner}{module}.weight", f"{inner}{module}.bias"
        bias = bias if bias in graph.weights else ""
        return {"kind": "linear", "of": of, "weight": weight, "bias": bias, "first": first}

    def norm(of: str, module: str, eps: float) -> dict[str, Any]:
        return {
            "kind": "norm",
            "of": of,
            "weight": f"{inner}{module}.weight",
            "bias": f"{inner}{module}.bias",
            "eps": eps,
        }

    known = {"kind": "patch", "weight": f"{inner}patch.weight", "bias": f"{inner}patch.bias"}
    plain_patch = core.config.stem.kind == "none" and not core.config.embedding.norm
    steps = []
    if has("stem"):
        steps.append(_step("other", "stem", None))
    if has("tokens"):
        steps.append(_step("patch", "tokens", None, how=known if plain_patch else None))
    if has("prefix"):
        steps.append(_step("prefix", "prefix", None, how={"kind": "stack", "of": "tokens"}))
    before = "prefix" if has("prefix") else "tokens"
    if has("position.table"):
        steps.append(_step("table", "position.table", None))
    if has("position"):
        sum_of = (
            {"kind": "sum", "of": [before, "position.table"]} if has("position.table") else None
        )
        steps.append(_step("position", "position", None, how=sum_of))
    if has("embed_norm"):
        eps = core.config.norm_eps
        steps.append(
            _step("embed_norm", "embed_norm", None, how=norm("position", "embed_norm", eps))
        )
    before = next((each for each in ("embed_norm", "position", before) if has(each)), before)
    for number, block in enumerate(core.blocks):
        steps += _block_steps(core, number, block, before, graph, linear, norm)
        before = f"blocks.{number}"
        if number == 0 and has("position.conditional"):  # CPVT: behind the first block
            before = "position.conditional"
            steps.append(_step("conditional", before, None))
    eps = core.config.norm_eps
    if has("norm"):
        steps.append(_step("norm", "norm", None, how=norm(before, "norm", eps)))
        before = "norm"
    if has("pool"):
        kind = core.config.pool.kind
        read = {"class": "first", "first": "first", "mean": "mean"}.get(kind)
        how = {"kind": read, "of": before, "prefix": core.prefix_length} if read else None
        steps.append(_step("pool", "pool", None, how=how))
        before = "pool"
    if has("pooled_norm"):
        steps.append(_step("norm", "pooled_norm", None, how=norm(before, "pooled_norm", eps)))
        before = "pooled_norm"
    if has("head"):
        simple = f"{inner}head.out.weight" in graph.weights and core.config.head.kind == "linear"
        simple = simple and f"{inner}head.distillation.weight" not in graph.weights
        steps.append(
            _step("head", "head", None, how=linear(before, "head.out") if simple else None)
        )
    return steps


def _block_steps(
    core: ViT, number: int, block: Any, before: str, graph: LivingGraph, linear: Any, norm: Any
) -> list[dict[str, Any]]:
    name, attention = f"blocks.{number}", f"blocks.{number}.attention"
    width = block.attention.heads * block.attention.head_dim
    eps, scale = core.config.norm_eps, block.attention.scale
    pre = core.config.norm.place == "pre"
    by_layer = pre and core.config.norm.kind == "layer"
    norms = ("norm1", "norm2") if core.config.norm.kind == "layer" else ("batch_norm",) * 2
    # what else happens between the linear layer and the scores has no short form
    simple = not core.config.attention.qk_norm and block.attention.qv_bias is None
    simple = simple and "rotary" not in core.config.position.kind
    scaled = core.config.layer_scale is not None
    made = [linear(f"{name}.norm1", f"{attention}.qkv", i * width) for i in range(3)]
    act = core.config.activation
    mlp = f"blocks.{number}.mlp"
    gelu = (
        {"kind": "activation", "of": f"{name}.mlp.fc1", "name": act} if "gated" not in act else None
    )
    join = {**linear("", f"{attention}.projection"), "kind": "join", "of": f"{attention}.heads"}
    biased = core.config.position.kind == "relative"
    every: list[tuple[str, str, dict[str, Any] | None]] = [
        (norms[0], f"{name}.norm1", norm(before, f"{name}.norm1", eps) if by_layer else None),
        *(
            (part, f"{attention}.{part}", made[i] if simple or part == "v" else None)
            for i, part in enumerate("qkv")
        ),
        (
            "scores",
            f"{attention}.scores",
            {"kind": "scores", "of": [f"{attention}.q", f"{attention}.k"]},
        ),
        (
            "scaled",
            f"{attention}.scaled",
            None if biased else {"kind": "scale", "of": f"{attention}.scores", "by": scale},
        ),
        ("weights", f"{attention}.weights", {"kind": "softmax", "of": f"{attention}.scaled"}),
        (
            "heads",
            f"{attention}.heads",
            {"kind": "mix", "of": [f"{attention}.weights", f"{attention}.v"]},
        ),
        ("attention", attention, join),
        (
            "sum",
            f"{name}.sum",
            {"kind": "sum", "of": [attention, before]} if pre and not scaled else None,
        ),
        (
            norms[1],
            f"{name}.norm2",
            norm(f"{name}.sum", f"{name}.norm2", eps) if by_layer else None,
        ),
        ("fc1", f"{mlp}.fc1", linear(f"{name}.norm2", f"{mlp}.fc1")),
        ("activated", f"{mlp}.activated", gelu),
        (
            "mlp",
            mlp,
            linear(f"{mlp}.activated", f"{mlp}.fc2") if not core.config.mlp.norm else None,
        ),
        (
            "block",
            name,
            {"kind": "sum", "of": [mlp, f"{name}.sum"]} if pre and not scaled else None,
        ),
    ]
    return [
        _step(key, output, number, how=how) for key, output, how in every if output in graph.outputs
    ]


def _step(
    key: str, output: str, block: int | None, *, how: dict[str, Any] | None = None
) -> dict[str, Any]:
    words = STEPS[key]
    return {
        "key": key,
        "output": output,
        "block": block,
        "how": how,
        "title": [words["en"][0], words["zh"][0]],
        "why": [words["en"][1], words["zh"][1]],
        "equation": mathml(words["equation"]) if "equation" in words else "",
        "source": _source(*words["source"]) if "source" in words else None,
    }


@cache
def _source(file: str, function: str, part: str) -> dict[str, Any]:
    """The statement of our own source that has these words, and where it stands."""
    text = (PACKAGE / file).read_text()
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


@dataclass(frozen=True)
class Verified:
    """How well a page agrees with torch."""

    by: str
    """A browser that opened it, or ONNX Runtime, which ran the same graph."""
    difference: float
    agreement: float
    images: int


def living_page(
    predictor: Predictor,
    path: Path,
    images: Sequence[Tensor],
    *,
    precision: str | None = None,
    runtime: Path | None = None,
    title: str | None = None,
    browser: bool = True,
    log: Log = silent,
) -> Exported:
    """Write the page of a model, with some images (c, h, w) to begin with, verified on them.

    `precision` is how weights are kept: float32, float16 or int8; unless given, float32 for small
    models and float16 for others. `runtime` is a folder with onnxruntime-web. Without `browser`,
    ONNX Runtime verifies it, which is faster.
    """
    check_page_name(path)
    model = predictor.model
    if precision is not None:
        precision = choice("precision", precision_named(precision), tuple(STORED))
    size = 4 * sum(each.numel() for each in model.parameters())
    precision = precision or ("float32" if size <= EXACT else "float16")
    check_size(model, size, precision)
    web = web_runtime(runtime, log)
    log(f"tracing {model.name}, with every step inside")
    graph = living_graph(model, shown_preprocess(predictor))
    samples = [sample_of(each, predictor) for each in images]
    text = page(predictor, graph, web, precision, [url for url, _ in samples], title or model.name)
    seen = [image for _, image in samples]
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder, "page.html")  # a browser goes by the name
        aside.write_text(text, encoding="utf-8")
        program = find_browser() if browser else None
        found = verified(predictor, graph, precision, seen, aside, program, log)
    if not (found.difference <= TOLERANCES[precision] and found.agreement >= LEAST_AGREEMENT):
        raise ExportError(
            f"{path} was not written: {found.by} differs from torch by {found.difference:.1e} "
            f"of the largest output, and predictions agree to {found.agreement:.0%}: take "
            "another --precision"
        )
    write_page(path, text)
    return Exported(
        path,
        "living page",
        found.by,
        precision,
        path.stat().st_size,
        found.difference,
        found.images,
        found.agreement,
    )


def stored_page(predictor: Predictor, path: Path, image: Tensor, title: str | None = None) -> Path:
    """The same page with the numbers of one image (c, h, w), where nothing can run."""
    url, seen = sample_of(image, predictor)
    preprocess = shown_preprocess(predictor)
    graph, numbers = stored_numbers(predictor.model, preprocess, preprocess.fit(seen))
    precision = "float32" if sum(4 * each.size for each in numbers.values()) <= EXACT else "float16"
    text = page(predictor, graph, None, precision, [url], title or predictor.model.name, numbers)
    return write_page(path, text)


def check_size(model: Model, size: int, precision: str) -> None:
    """A page is opened from a mail, on a phone: there is a limit to what that can be."""
    bytes_each = {"float32": 4, "float16": 2, "int8": 1}
    expected = size // 4 * bytes_each[precision] * 1.25
    if expected > LARGEST:
        lower = [name for name in bytes_each if size // 4 * bytes_each[name] * 1.25 <= LARGEST]
        remedy = f"pass --precision {lower[0]}, or take" if lower else "take"
        raise ConfigError(
            f"the page of {model.name} would have about {expected / 1e6:.0f} MB, and browsers open "
            f"at most {LARGEST / 1e6:.0f} MB well: {remedy} a smaller model"
        )


def sample_of(image: Tensor, predictor: Predictor) -> tuple[str, Tensor]:
    """An image for the page, not larger than it needs to be, and what a reader of it gets."""
    most = 2 * max(pair("image_size", predictor.preprocess.image_size))
    picture = as_picture(image.float() / FULL_SCALE.get(image.dtype, 1.0))
    picture.thumbnail((most, most))
    stream = io.BytesIO()
    small = max(picture.size) <= SMALL_SIDE
    picture.save(stream, "png" if small else "jpeg", **({} if small else {"quality": 88}))
    kind = "image/png" if small else "image/jpeg"
    url = f"data:{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
    return url, predictor.read(PIL.Image.open(stream))[0]


def verified(
    predictor: Predictor,
    graph: LivingGraph,
    precision: str,
    images: Sequence[Tensor],
    file: Path,
    browser: str | None,
    log: Log,
) -> Verified:
    """In a browser if there is one, else by ONNX Runtime on the same graph and weights."""
    preprocess = shown_preprocess(predictor)
    fitted = [preprocess.fit(image).float() for image in images]
    found: list[dict[str, Tensor]] = []
    by = "ONNX Runtime, on the same graph (not opened in a browser)"
    if browser is not None:
        log(f"opening the page in {Path(browser).name}")
        try:
            found, by = _seen_in(browser, file, fitted, graph), Path(browser).name
        except BrowserError as error:
            log(f"{Path(browser).name} cannot open it here ({error}): ONNX Runtime verifies it")
            by = f"ONNX Runtime, on the same graph ({Path(browser).name} did not open it)"
    if not found:
        kept = {key: STORED[precision](value) for key, value in graph.weights.items()}
        runs = answers(graph, graph.session(kept), [each.numpy() for each in fitted])
        found = [{name: torch.from_numpy(value) for name, value in each.items()} for each in runs]
    worst, same = 0.0, []
    with torch.inference_mode():
        for image, seen in zip(images, found, strict=True):
            wanted = predictor.model.outputs(preprocess(image)[None], like=seen)
            for name, value in wanted.items():
                if name == "places" and precision != "float32":
                    continue  # rounded weights choose between nearly equal proposals otherwise
                apart = (seen[name] - value).abs().max() / value.abs().max().clamp(min=1e-6)
                worst = max(worst, float(apart))
            first = next(iter(wanted))
            axis = -1 if seen[first].ndim == 3 else 1  # of queries, or of images and maps
            alike = seen[first].argmax(axis) == wanted[first].argmax(axis)
            same.append(float(alike.float().mean()))
    return Verified(by, worst, sum(same) / len(same), len(images))


def shown_preprocess(predictor: Predictor) -> Preprocess:
    """How a page makes an image fit. A model that goes over an image in windows shows its middle,
    cut out as one window."""
    if predictor.preprocess.whole and predictor.task.windows:
        return replace(predictor.preprocess, resize="shorter", whole=False, longest=None)
    return predictor.preprocess


def _seen_in(
    browser: str, file: Path, fitted: Sequence[Tensor], graph: LivingGraph
) -> list[dict[str, Tensor]]:
    """What the page itself computes for pixels as the model takes them."""
    with opened_page(browser, file) as evaluate:
        until = time.monotonic() + 60
        while not evaluate("document.documentElement?.dataset.ready ?? ''"):
            if failed := evaluate("document.getElementById('notice')?.textContent ?? ''"):
                raise BrowserError(failed)
            if time.monotonic() > until:
                raise BrowserError("the page was not ready within a minute")
            time.sleep(0.05)
        found = []
        for each in fitted:
            pixels, names = each.flatten().tolist(), list(graph.answers)
            seen = evaluate(f"page.ask({json.dumps(pixels)}, {json.dumps(names)})")
            shapes = {name: graph.outputs[first] for name, first in graph.answers.items()}
            found.append(
                {name: torch.tensor(seen[name]).reshape(shape) for name, shape in shapes.items()}
            )
        return found


def page(
    predictor: Predictor,
    graph: LivingGraph,
    runtime: WebRuntime | None,
    precision: str,
    samples: Sequence[str],
    title: str,
    numbers: Arrays | None = None,
) -> str:
    """The page itself; samples are data URLs. Without a runtime it has stored numbers."""
    raw, index = stored(graph.weights, precision)
    kept, kept_index = stored(numbers or {}, precision)
    told = about(predictor, graph, index) | {
        "precision": precision,
        "samples": list(samples),
        "numbers": kept_index if numbers else None,
    }
    return render(
        "living.html",
        title=title,
        about=told,
        words=words_for("living", "viewer"),
        program=program(*(HERE / "living" / name for name in PROGRAMS)),
        style=(HERE / "living" / "living.css").read_text(),
        packed={
            **({} if runtime is None else runtime_texts(runtime)),
            **({} if runtime is None else {"graph": as_text(graph.onnx)}),
            **({"numbers": as_text(kept, compress=False)} if numbers else {}),
            "weights": as_text(raw, compress=False),
        },
    )
