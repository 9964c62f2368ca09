"""Words folded in: the text vectors become the head of an ordinary classifier, in a run folder.

It needs neither text tower nor tokenizer any more, and is trained, exported and served like any
other. Its answers are compared with those of both towers before it is kept.
"""

from __future__ import annotations

from pathlib import Path

import torch

from vitreous.data.photographs import photographs
from vitreous.deploy.export import ExportError
from vitreous.import_run import Imported, check_folder, verify_written
from vitreous.run_folder import Run
from vitreous.weights.convert import written_aside
from vitreous.weights.importing import import_weights
from vitreous.worded_run import WordedRun

TOLERANCE = 1e-4
"""Between the scores of the folded model and those of both towers, of the largest score."""


def fold(run: WordedRun, folder: Path, *, force: bool = False) -> Imported:
    """Write the run folder of a model with its words. `force` replaces weights that were not
    imported."""
    check_folder(folder, run.weights, force)
    model, config = run.create_model(), run.config
    report = import_weights(model, run.stored_weights(), "vitreous", **run.fit)
    report.source = str(run.reference)
    model.eval()
    difference = _difference(run, model)
    if not difference <= TOLERANCE:
        raise ExportError(
            f"{folder} was not written: its scores differ from those of both towers by "
            f"{difference:.1e} of the largest, more than {TOLERANCE:g}"
        )
    with written_aside(folder, folder=True) as aside:
        new = Run(aside)
        new.write_weights(model, model.state_dict())
        new.write_config(config)
        verify_written(new, model, config, folder)
    note = f"its scores are those of both towers: they differ by {difference:.1e} at most"
    return Imported(folder, config, report, {}, (note,))


@torch.inference_mode()
def _difference(run: WordedRun, model: torch.nn.Module) -> float:
    """Largest difference of scores on photographs, as a part of the largest score."""
    prepare = run.config.preprocess
    batch = torch.stack([prepare(image) for image in photographs(prepare.channels)])
    expected = run.towers.similarity(run.towers.image_vectors(batch), run.vectors)
    apart = (model(batch) - expected).abs().max() / expected.abs().max().clamp(min=1)
    return float(apart)
