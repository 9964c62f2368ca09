"""How fast a model is on this machine: by torch, ONNX Runtime and OpenVINO, and beside timm and
transformers with the same weights. All take turns; each is compared with torch in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from vitreous import api
from vitreous.cli.print_json import print_json
from vitreous.cli.text_table import TextTable
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option


@dataclass(frozen=True)
class BenchmarkArguments:
    run: Annotated[tyro.conf.Positional[str], option("RUN|MODEL")]
    """Run folder, or the name of a model that classifies, which gets random weights."""
    batch: Annotated[tuple[int, ...], option("N ...")] = (1, 8)
    """Images per forward pass, one or several numbers."""
    engines: Annotated[tuple[str, ...], option("ENGINE ...")] = ("torch", "onnxruntime", "openvino")
    """Engines to time."""
    against: Annotated[tuple[str, ...], option("LIBRARY ...", "none")] = ()
    """Libraries to compare with: timm, transformers."""
    rounds: Annotated[int, option("N")] = 10
    """Rounds, in which all take turns."""
    threads: Annotated[int | None, option("N", "all cores")] = None
    """Threads that compute."""
    json: Flag = False
    """Print one line of JSON."""


def run(arguments: BenchmarkArguments) -> None:
    found = api.benchmark(
        arguments.run,
        batches=arguments.batch,
        engines=arguments.engines,
        against=arguments.against,
        rounds=arguments.rounds,
        threads=arguments.threads,
    )
    if arguments.json:
        print_json(found.to_dict())
        return
    height, width = found.image_size
    print(f"{found.model}, {height}x{width}, {found.flops / 1e9:.1f} GFLOP per image")
    print(
        f"{found.threads} threads; large matrices reach {found.peak / 1e9:.0f} GFLOP/s; "
        f"preprocessing takes {found.preprocessing:.1f} ms per image"
    )
    table = TextTable(
        "batch>", "by", "best ms>", "median>", "p95>", "images/s>", "of peak>", "differs>"
    )
    for each in found.timings:
        numbers = (each.best, each.median, each.p95, each.images_per_second)
        cells = [f"{number:.1f}" for number in numbers]
        table.row(
            str(each.batch), each.way, *cells, f"{each.peak_part:.0%}", f"{each.difference:.0e}"
        )
    table.print()
