"""How feature vectors are printed and explained."""

from __future__ import annotations

from typing import Any

from vitreous.explain import query
from vitreous.explain.explanation import MapExplanation, Pixel
from vitreous.pages.words import Message
from vitreous.predict import Predictor
from vitreous.results import FeatureVector
from vitreous.tasks.show import Show


class FeaturesShow(Show):
    headings = ("features>", "norm>", "first of them")
    question = "what it attends to"

    def row(self, result: FeatureVector, top: int) -> tuple[str, ...]:
        first = " ".join(f"{value:.3f}" for value in result.values[:top])
        return str(len(result.values)), f"{result.norm:.3f}", first

    def explained(
        self, predictor: Predictor, image: Any, classes: Any, pixel: Pixel | None, layers: bool
    ) -> Any:
        """Attention and rollout; there are no classes to make maps for."""
        return query.explain(self.query(predictor, image, pixel), 0, layers=layers)

    def answer(self, found: MapExplanation) -> Message:
        return ["features", len(found.result.values)]


SHOW = FeaturesShow()
