"""Write a trained model as one file that other engines run: .onnx, .xml (OpenVINO) or .pt2
(torch.export). It carries labels, preprocessing and thresholds, and is verified on images before it
is written; 'vitreous predict', 'evaluate' and 'embed' take it like a run folder. Or write it as
.html: one page in which the model runs, without network or server, with every number inside."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitreous import api
from vitreous.cli.options import Merge, WordOptions, options_besides
from vitreous.cli.printing import print_json
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted


@dataclass(frozen=True)
class ExportArguments:
    run: Annotated[tyro.conf.Positional[str], option("RUN")]
    """Run folder with the model, or RUN@last; hf:OWNER/NAME, or a name from the catalog."""
    file: Annotated[tyro.conf.Positional[Path], option("FILE")]
    """File to write; its suffix says what: .onnx, .xml, .pt2 or .html."""
    data: Annotated[str | None, option("DATA", "generated images; for int8 the run's own")] = None
    """Images to verify it on, and for int8 to calibrate with: a path as for 'vitreous train'."""
    precision: Annotated[
        Literal["float32", "bfloat16", "bf16", "float16", "fp16", "int8"] | None,
        option("PRECISION", "float32; for large pages float16"),
    ] = None
    """Precision of the file (float32, bfloat16, float16, int8): bfloat16 (.xml, .pt2) is computed
    in sixteen bits where the CPU is made for it; float16 (.onnx, .xml, .html) halves the file and
    is computed in float32; int8 (.xml, .onnx) is computed in integers, calibrated with images of
    yours (--data); pages store weights in it."""
    max_loss: Annotated[float | None, option("POINTS", "0.5")] = None
    """Points of the metric (or, without labels, percent of the predictions) that a lower precision
    may lose on --data; nothing is written if it loses more by more than chance (95 % interval)."""
    images: Annotated[int | None, option("N", "1000")] = None
    """Images of --data to measure the loss on, at most."""
    input: Literal["float32", "uint8"] = "float32"
    """What the file takes: normalised values, or pixels from 0 to 255, which it normalises."""
    merge: Merge = None
    """Merge R patches in each block of a ViT with others like them: faster, and less exact."""
    runtime: Annotated[Path | None, option("FOLDER", "fetched by npm, once")] = None
    """For .html: a folder with the npm package onnxruntime-web."""
    webgpu: Flag = False
    """For .html: a page 3.7 MB larger that computes on the graphics chip (WebGPU) where the browser
    has one and its answers agree with torch's, else by WebAssembly like other pages."""
    force: Flag = False
    """Replace a file that exists."""
    no_verify: Flag = False
    """Use weights and files also if they were changed after Vitreous wrote them."""
    json: Flag = False
    """Print one JSON object."""
    words: WordOptions = field(default_factory=WordOptions)


def run(arguments: ExportArguments) -> None:
    options = options_besides(arguments, "json", "no_verify", "merge", "words")
    options |= arguments.words.given()
    done = api.export(**options, merge=arguments.merge or 0, verify=not arguments.no_verify)
    if arguments.json:
        print_json({**asdict(done), "path": str(done.path)})
        return
    lower = f" in {done.precision}" if done.precision != "float32" else ""
    print(f"written  {done.path} ({done.format}{lower}, {done.bytes / 1e6:.1f} MB)")
    print(
        f"verified with {done.engine} on {counted(done.images, 'image')}: outputs differ by "
        f"{done.difference:.1e} at most, predictions agree to {done.agreement:.2%}"
    )
    if done.loss is not None:
        print(f"measured {done.loss.text}")
    if done.merging is not None:
        print(
            f"merging {done.merging['merge']} patches in each block: predictions agree with those "
            f"without merging to {done.merging['agreement']:.2%}, and torch is "
            f"{done.merging['speed']:.2f} times as fast"
        )
