"""How what was learned without labels is reported and explained: by its encoder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitreous.labels import NoLabels
from vitreous.pages.content import Number, percent
from vitreous.predict import Predictor
from vitreous.tasks import HEADLESS, task_class
from vitreous.tasks.show import Show, TaskReport


class PretrainReport(TaskReport):
    """The loss, and how good the features are."""

    curves = {  # noqa: RUF012
        "knn_accuracy": "k-NN accuracy",
        "knn_pixels": "k-NN accuracy of pixels",
    }
    more_curves = {"effective rank": {"effective_rank": "of the features"}}  # noqa: RUF012

    def headline(self, result: Mapping[str, Any]) -> dict[str, Number]:
        last = self.evaluations[-1] if self.evaluations else {}
        found = {"loss": Number(f"{result['loss']:.4f}")}
        for key, name in (("knn", "k-NN accuracy on val"), ("linear", "linear probe on val")):
            if f"{key}_accuracy" in last:
                pixels = f"pixels: {percent(last[f'{key}_pixels'])}"
                found[name] = Number(percent(last[f"{key}_accuracy"]), pixels)
        if "effective_rank" in last:
            found["effective rank"] = Number(f"{last['effective_rank']:.1f}")
        return found

    def commands(self, path: Path) -> dict[str, str]:
        run, recipe = (shlex.quote(str(each)) for each in (path, path / "recipe.toml"))
        return {
            "Fine-tune it on labelled images": f"vitreous train DATA --weights {run}",
            "Compare images by its features": f"vitreous embed {run} IMAGES",
            "See what the encoder looks at": f"vitreous explain {run} IMAGES",
            "Pre-train it longer": f"vitreous pretrain --resume --out {run} --epochs MORE",
            "Repeat it": f"vitreous pretrain --recipe {recipe}",
        }


class PretrainShow(Show):
    """Explanations are those of the encoder, which sees the whole image."""

    def subject(self, predictor: Predictor) -> Predictor:
        features = task_class(HEADLESS)(NoLabels())
        core, limit = predictor.model.core, predictor.max_pixels
        return Predictor(core, predictor.preprocess, features, predictor.device, limit)
