"""`vitreous import`, `convert` and `weights`: other libraries' checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder

if TYPE_CHECKING:
    from vitreous.import_run import Imported
    from vitreous.weights.convert import Conversion
    from vitreous.weights.listing import WeightListing


def convert(source: Folder, target: Folder, *, verify: bool = True, **options: Any) -> Conversion:
    """Convert weights between formats, verified: `vitreous.weights.convert.convert`, whose options
    these are. The source may also be RUN@last or RUN/checkpoints/step-N. `verify`: the weights of a
    run must be those that it has written."""
    from vitreous.run_folder import Run
    from vitreous.weights.convert import convert

    run = Run(os.fspath(source), verify=verify)
    if run.exists and not run.is_foreign:
        run.check_weights()
    given = os.fspath(source) if run.checkpoint is None else run.as_checkpoint()
    return convert(given, Path(target), **options)


def import_run(
    source: Folder,
    out: Folder | None = None,
    *,
    from_format: Folder | None = None,
    model: str | None = None,
    changes: dict[str, Any] | None = None,
    inside: str | None = None,
    resize: str | None = None,
    crop: float | None = None,
    interpolation: str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    **options: Any,
) -> Imported:
    """Make a run folder, `out` (runs/NAME), of weights from elsewhere, verified: it is taken like a
    trained one.

    `source` is a file, a folder of transformers or timm, hf:OWNER/NAME[@REVISION], or a name from
    the catalog. `model`, `changes` (fields of its config) and the preprocessing override what the
    source states; what it does not state must be given. `options` are those of
    `vitreous.import_run.import_into`: labels, task, reinit, drop, resample, source_grid,
    adapt_channels, force.
    """
    from vitreous.engines.world import ALONE
    from vitreous.import_run import import_into
    from vitreous.train.claim import claimed
    from vitreous.weights.adopt import find

    given: dict[str, Any] = {"resize": resize, "crop": crop, "interpolation": interpolation}
    for name, value in (("mean", mean), ("std", std)):
        if value is not None:
            given[name] = (value,) if isinstance(value, int | float) else tuple(value)
    known = {name: value for name, value in given.items() if value not in (None, ())}
    found = find(
        os.fspath(source),
        format=None if from_format is None else os.fspath(from_format),
        model=model,
        changes=changes,
        inside=inside,
    )
    name = Path(source).stem if Path(source).is_file() else os.fspath(source)
    with claimed(None if out is None else Path(out), name, ALONE) as claim:
        return import_into(claim.run.path, found, preprocessing=known, **options)


def list_weights(source: Folder, **options: Any) -> WeightListing:
    """What a weight file holds: tensors, metadata, the entries of a training checkpoint, and which
    model it is for. options: inside, format, model, as in `import_weights`."""
    from vitreous.weights.listing import list_weights

    return list_weights(os.fspath(source), **options)
