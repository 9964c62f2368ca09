"""Convert weights from one library's format to another's. What was written is read back, and the
outputs of both are compared."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.options import ModelOptions


@dataclass(frozen=True)
class Arguments:
    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SRC")]
    """A file or folder, a hub reference (hf:owner/name[@revision]), or a name from the catalog."""
    target: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DST")]
    """A file (.safetensors .npz .pth .pdparams); for huggingface also a new folder."""
    from_format: Annotated[str | None, tyro.conf.arg(name="from", metavar="FORMAT")] = None
    """google, timm, huggingface, torchvision, vit_pytorch, deit, official, paddle, vitreous, or a
    path of a .toml file with rules of your own; left out, it is looked for."""
    to_format: Annotated[str, tyro.conf.arg(name="to", metavar="FORMAT")] = "vitreous"
    """The same words."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """The model's name, where the source does not say it. To change its size, channels or classes,
    give those, and --resample, --adapt-channels or --reinit 'head.*'."""
    options: ModelOptions = field(default_factory=ModelOptions)
    reinit: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="PATTERN")
    ] = ()
    """Our parameters that start afresh, like 'head.*'; may be repeated."""
    drop: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="PATTERN")
    ] = ()
    """Keys of the source that are not wanted, like 'decoder.*'; may be repeated."""
    resample: Annotated[str | None, tyro.conf.arg(metavar="MODE")] = None
    """bicubic or bilinear: let position embeddings change their grid."""
    source_grid: Annotated[tuple[int, ...], tyro.conf.arg(metavar="H [W]")] = ()
    """Height and width of the source's grid of patches, where it is not a square."""
    adapt_channels: bool = False
    """Let the first layer change its number of channels."""
    inside: Annotated[str | None, tyro.conf.arg(metavar="KEY")] = None
    """Which part of a training checkpoint to take, like model_ema."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON object."""


def run(arguments: Arguments) -> None:
    from vitreous.config import size_of, to_dict
    from vitreous.weights.convert import convert

    grid = arguments.source_grid
    done = convert(
        arguments.source,
        arguments.target,
        from_format=arguments.from_format,
        to_format=arguments.to_format,
        model=arguments.model,
        changes=arguments.options.changes(),
        reinit=arguments.reinit,
        drop=arguments.drop,
        resample=arguments.resample,
        source_grid=size_of("source_grid", grid) if grid else None,
        adapt_channels=arguments.adapt_channels,
        inside=arguments.inside,
    )
    if arguments.json:
        result = {**asdict(done), "config": to_dict(done.config), "written": str(done.written)}
        print(json.dumps(result, indent=2))
        return
    print(done.imported)
    agreement = "the same bits" if done.difference == 0 else f"relative {done.difference:.1e}"
    print(f"{done.written} ({done.format}): {done.tensors} tensors of {done.model} written")
    print(f"  read back, outputs agree: {agreement}")
    for note in done.notes:
        print(f"  note            {note}")
