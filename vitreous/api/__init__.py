"""What the commands do, as functions: `vitreous.train(...)` is `vitreous train`, and so on.

The command line calls these functions, and the public names of `vitreous` come from here. Modules
are imported when a function needs them: `vitreous --help` must not wait for torch.
"""

# ruff: noqa: F401
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vitreous.api.comparison import compare
from vitreous.api.course import (
    check_exercise,
    exercise_numbers,
    start_course,
    write_cards,
    write_course,
)
from vitreous.api.deployment import benchmark, export, load
from vitreous.api.embedding import embed, write_map, write_sheet
from vitreous.api.evaluation import check_data, evaluate
from vitreous.api.experiments import studies, study, study_cost, study_folder
from vitreous.api.listings import model_counts, models, public_weights, summary
from vitreous.api.prediction import (
    explain,
    explanation_folder,
    predict,
    predict_files,
    predict_video,
    score_maps,
    write_explanations,
)
from vitreous.api.serving import serve
from vitreous.api.training import (
    TrainedRun,
    check_method,
    dry_run,
    find_lr,
    pretrain,
    stored_values,
    train,
)
from vitreous.api.weights import convert, import_run, list_weights

if TYPE_CHECKING:
    from vitreous.models import create
    from vitreous.weights.importing import import_weights
    from vitreous.weights.rules.exporting import export_weights

_ELSEWHERE = {
    "create": "vitreous.models",
    "export_weights": "vitreous.weights.rules.exporting",
    "import_weights": "vitreous.weights.importing",
}
"""Public functions that lower modules define as they are."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'vitreous.api' has no attribute {name!r}")
