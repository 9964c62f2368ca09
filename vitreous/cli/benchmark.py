"""How fast a model is on this machine, how much memory it takes, and whether its answers stay: by
torch, ONNX Runtime and OpenVINO, and beside timm, transformers and torchvision with the same
weights. All take turns; each is compared with torch in float32."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitreous import api
from vitreous.cli.options import ConfigOptions
from vitreous.cli.printing import TextTable, print_json
from vitreous.errors import ConfigError
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.deploy.benchmark import Benchmark


@dataclass(frozen=True)
class BenchmarkArguments:
    run: Annotated[tyro.conf.Positional[str], option("RUN|MODEL|FILE")]
    """Run folder, exported file, or the name of a model, which gets random weights."""
    batch: Annotated[tuple[str, ...], option("N ...")] = ("1", "8")
    """Images per forward pass, one or several numbers."""
    engines: Annotated[tuple[str, ...], option("ENGINE ...", "torch onnxruntime openvino")] = ()
    """Engines to time; of an exported file, those that can run it."""
    precision: Annotated[tuple[str, ...], option("PRECISION ...")] = ("float32",)
    """Precisions of each of them."""
    against: Annotated[tuple[str, ...], option("LIBRARY ...", "none")] = ()
    """Compare with timm, transformers or torchvision; with +compile, +onnxruntime or +openvino, and
    +bfloat16, behind the name for torch.compile, or that engine on the library's own export.
    onnxruntime or openvino alone: on timm's."""
    data: Annotated[str | None, option("DATA", "digits or shapes")] = None
    """Images on which answers are compared."""
    rounds: Annotated[int, option("N")] = 10
    """Rounds, in which all take turns."""
    threads: Annotated[int | None, option("N", "all cores")] = None
    """Threads that compute."""
    no_memory: Flag = False
    """Do not measure memory, for which each way is loaded once more, in a process of its own."""
    options: Annotated[ConfigOptions, option(name="model")] = field(default_factory=ConfigOptions)
    figure: Annotated[Path | None, option("FILE.png", "none")] = None
    """Draw the result."""
    no_verify: Flag = False
    """Use weights and files also if they were changed after Vitreous wrote them."""
    json: Flag = False
    """Print one line of JSON."""


def run(arguments: BenchmarkArguments) -> None:
    if arguments.figure is not None and arguments.figure.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"figure = {str(arguments.figure)!r}: expected a file that ends in .png")
    found = api.benchmark(
        **{
            name: getattr(arguments, name)
            for name in ("run", "data", "rounds", "threads", "figure")
        },
        batches=_numbers("batch", arguments.batch),
        engines=_words(arguments.engines) or None,
        precisions=_words(arguments.precision),
        against=_words(arguments.against),
        memory=not arguments.no_memory,
        verify=not arguments.no_verify,
        changes=arguments.options.changes(),
    )
    if arguments.json:
        print_json(found.to_dict())
    else:
        _print(found)


def _print(found: Benchmark) -> None:
    height, width = found.image_size
    print(f"{found.model}, {height}x{width}, {found.flops / 1e9:.1f} GFLOP per image")
    print(
        f"{found.threads} threads; large matrices reach {found.peak / 1e9:.0f} GFLOP/s; "
        f"preprocessing takes {found.preprocessing:.1f} ms per image"
    )
    table = TextTable(
        *("batch>", "by", "best ms>", "median>", "p95>", "images/s>", "memory>", "of peak>"),
        *("differs>", "same answers>"),
    )
    for each in found.timings:
        numbers = (each.best, each.median, each.p95, each.images_per_second)
        cells = [f"{number:.1f}" for number in numbers]
        memory = "" if each.memory is None else f"{each.memory / 1e6:.0f} MB"
        close = (f"{each.difference:.0e}", f"{each.agreement:.1%}")
        table.row(str(each.batch), each.way, *cells, memory, f"{each.peak_part:.0%}", *close)
    table.print()
    print(
        f"times are per image; answers are compared with those of {found.reference} on "
        f"{counted(found.images, 'image')}"
    )


def _words(given: Iterable[str]) -> tuple[str, ...]:
    """`a,b c` is a, b and c."""
    return tuple(word for each in given for word in each.split(",") if word)


def _numbers(name: str, given: Iterable[str]) -> tuple[int, ...]:
    words = _words(given)
    if not words or not all(word.isdecimal() for word in words):
        raise ConfigError(f"{name} = {' '.join(given)}: expected whole numbers, like 1,8")
    return tuple(map(int, words))
