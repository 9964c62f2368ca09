"""Convert weights from one library's format to another's. The written file is read back, and the
outputs of both models are compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitreous import api
from vitreous.cli.options import ConfigOptions, options_besides
from vitreous.cli.print_json import print_json
from vitreous.config import size_of, to_dict
from vitreous.terminal import print
from vitreous.train.recipe import Flag, Repeated, option


@dataclass(frozen=True)
class ConvertArguments:
    source: Annotated[tyro.conf.Positional[str], option("SRC")]
    """Weights to read: a file, folder or run (RUN, RUN@last), hf:OWNER/NAME[@REVISION], or a
    name from the catalog."""
    target: Annotated[tyro.conf.Positional[Path], option("DST")]
    """File to write (.safetensors, .npz, .pth, .pdparams); for huggingface and timm also a new
    folder, with class names and preprocessing."""
    from_format: Annotated[str | None, option("FORMAT", "recognised", name="from")] = None
    """Format of SRC: google, timm, huggingface, torchvision, vit_pytorch, deit, official or paddle;
    vitreous for our own; or a .toml file with your own rules."""
    to_format: Annotated[str, option("FORMAT", name="to")] = "vitreous"
    """Format of DST, one of the same."""
    model: Annotated[str | None, option("MODEL", "stated by SRC")] = None
    """Name of the model, if SRC does not state it."""
    reinit: Annotated[Repeated, option("PATTERN")] = ()
    """Parameters of the model to initialise anew, like 'head.*'."""
    drop: Annotated[Repeated, option("PATTERN")] = ()
    """Keys of SRC to leave out, like 'decoder.*'."""
    resample: Annotated[Literal["bicubic", "bilinear"] | None, option(None, "none: refused")] = None
    """Resample position embeddings if --image-size changes the grid of patches."""
    source_grid: Annotated[tuple[int, ...], option("H [W]", "a square")] = ()
    """Height and width of the grid of patches in SRC."""
    adapt_channels: Flag = False
    """Adapt the first layer if --channels changes the number of channels."""
    inside: Annotated[str | None, option("KEY", "recognised")] = None
    """Part of a training checkpoint to read, like model_ema."""
    force: Flag = False
    """Replace a DST that 'vitreous convert' did not write."""
    json: Flag = False
    """Print one JSON object."""
    options: Annotated[ConfigOptions, option(name="model")] = field(default_factory=ConfigOptions)


def run(arguments: ConvertArguments) -> None:
    grid = arguments.source_grid
    done = api.convert(
        **options_besides(arguments, "options", "source_grid", "json"),
        changes=arguments.options.changes(),
        source_grid=size_of("source_grid", grid) if grid else None,
    )
    if arguments.json:
        result = {**asdict(done), "config": to_dict(done.config), "written": str(done.written)}
        print_json(result, indent=2)
        return
    print(done.imported)
    agreement = "the same bits" if done.difference == 0 else f"relative {done.difference:.1e}"
    print(f"{done.written} ({done.format}): {done.tensors} tensors of {done.model} written")
    print(f"  read back, outputs agree: {agreement}")
    for note in done.notes:
        print(f"  note            {note}")
