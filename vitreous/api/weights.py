"""`vitreous import`, `convert` and `weights`: other libraries' checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder, to_stderr
from vitreous.errors import ConfigError

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
    classes: Any = None,
    templates: Any = None,
    **options: Any,
) -> Imported:
    """Make a run folder, `out` (runs/NAME), of weights from elsewhere, verified: it is taken like a
    trained one.

    `source` is a file, a folder of transformers or timm, hf:OWNER/NAME[@REVISION], or a name from
    the catalog. `model`, `changes` (fields of its config) and the preprocessing override what the
    source states; what it does not state must be given. `options` are those of
    `vitreous.import_run.import_into`: labels, task, reinit, drop, resample, source_grid,
    adapt_channels, force.

    classes: words, which are folded in: the text vectors become the head of an ordinary classifier.
    `source` is then a model with a text tower, also a run folder of one; `templates` are those of
    `load`, and only `force` is used besides.
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
    if templates is not None and classes is None:
        raise ConfigError("templates are for the words of classes: give classes, too")
    if classes is not None:
        others = {"from": from_format, "model": model, "set": changes, "inside": inside}
        used = [name for name, value in {**others, **known, **options}.items() if value]
        if wrong := [name for name in used if name != "force"]:
            raise ConfigError(
                f"{wrong[0]} is about weights from elsewhere, and classes are folded into a run "
                "that is imported: import it first, without classes"
            )
        return _folded(source, out, classes, templates, force="force" in used)
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


def _folded(
    source: Folder, out: Folder | None, classes: Any, templates: Any, *, force: bool
) -> Imported:
    from vitreous.deploy.fold import fold
    from vitreous.engines.world import ALONE
    from vitreous.import_run import open_run
    from vitreous.train.claim import claimed
    from vitreous.worded_run import WordedRun, with_words

    run = with_words(open_run(source), classes, templates, log=to_stderr)
    assert isinstance(run, WordedRun)
    name = f"{Path(source).name}-words"
    with claimed(None if out is None else Path(out), name, ALONE) as claim:
        return fold(run, claim.run.path, force=force)


def list_weights(source: Folder, **options: Any) -> WeightListing:
    """What a weight file holds: tensors, metadata, the entries of a training checkpoint, and which
    model it is for. options: inside, format, model, as in `import_weights`."""
    from vitreous.weights.listing import list_weights

    return list_weights(os.fspath(source), **options)
