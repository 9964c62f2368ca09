"""Convert weights from one library's format to another's. The written file is read back, and the
outputs of both models are compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from vitreous import api
from vitreous.cli.options import ConfigOptions, WeightOptions, options_besides
from vitreous.cli.printing import print_json
from vitreous.config import to_dict
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted


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
    force: Flag = False
    """Replace a DST that 'vitreous convert' did not write."""
    no_verify: Flag = False
    """Use weights and files also if they were changed after Vitreous wrote them."""
    json: Flag = False
    """Print one JSON object."""
    weights: Annotated[WeightOptions, option(name="weight")] = field(default_factory=WeightOptions)
    options: Annotated[ConfigOptions, option(name="model")] = field(default_factory=ConfigOptions)


def run(arguments: ConvertArguments) -> None:
    done = api.convert(
        **options_besides(arguments, "weights", "options", "json", "no_verify"),
        verify=not arguments.no_verify,
        **arguments.weights.given(),
        changes=arguments.options.changes(),
    )
    if arguments.json:
        result = {**asdict(done), "config": to_dict(done.config), "written": str(done.written)}
        print_json(result, indent=2)
        return
    print(done.imported)
    agreement = "the same bits" if done.difference == 0 else f"relative {done.difference:.1e}"
    print(
        f"{done.written} ({done.format}): {counted(done.tensors, 'tensor')} of {done.model} written"
    )
    print(f"  read back, outputs are those of the model that was read: {agreement}")
    for note in done.notes:
        print(f"  note            {note}")
