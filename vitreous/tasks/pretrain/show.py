"""How what was learned without labels is reported and explained: by its encoder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.inference import InferenceOptions
from vitreous.labels import NoLabels
from vitreous.neighbours import nearest, standardised
from vitreous.pages.content import CaptionedImage, Number, Picture, Section, percent, picture
from vitreous.predict import Predictor
from vitreous.results import FeatureVector
from vitreous.tasks import HEADLESS, task_class
from vitreous.tasks.show import Show, TaskReport

if TYPE_CHECKING:
    from PIL.Image import Image

MOST, QUERIES, NEAREST = 1000, 12, 5
"""Images that are compared, those that are shown, and neighbours of each."""
SIDE = 96
"""Of their pictures."""
NEIGHBOURS = """Some of {count} images, each with the {nearest} others whose features are most
similar to its own, as in k-NN: each feature with mean 0 and standard deviation 1."""


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
            found["effective rank on val"] = Number(f"{last['effective_rank']:.1f}")
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


class NeighbourReport(PretrainReport):
    """Images and those whose features are nearest."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.seen: list[tuple[str, Tensor, Image]] = []
        """Id, features and picture of some images, evenly picked."""
        self.step, self.next = 1, 0

    @torch.inference_mode()
    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        count = len(batch.ids)
        chosen = list(range(self.next, count, self.step))
        self.next = (chosen[-1] + self.step if chosen else self.next) - count
        if not chosen:
            return
        images = batch.images[chosen].to(self.predictor.device)
        vectors = self.predictor.model.core.vectors(images).float().cpu()
        for i, vector in zip(chosen, vectors, strict=True):
            self.seen.append((batch.ids[i], vector, self.picture(batch, i, SIDE)))
        while len(self.seen) > MOST:  # how many will come is not known: from here on half of them
            self.next += self.step * (len(self.seen) % 2)
            self.seen, self.step = self.seen[::2], 2 * self.step

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        if len(self.seen) < 2:
            return []
        ids, rows, pictures = zip(*self.seen, strict=True)
        vectors = torch.stack(rows).numpy()
        found = nearest(*standardised(vectors, vectors), NEAREST, same=True)

        def drawn(i: int, name: str) -> Picture:
            return picture(pictures[i], name, exact=max(pictures[i].size) < SIDE)

        examples = []
        for i in range(0, len(vectors), -(-len(vectors) // QUERIES)):
            row = [drawn(i, "image"), *(drawn(j, "neighbour") for j in found.indices[i])]
            similar = " ".join(f"{value:.2f}" for value in found.similarities[i])
            examples.append(CaptionedImage(row, ids[i], f"cosine {similar}"))
        note = NEIGHBOURS.format(count=len(vectors), nearest=NEAREST)
        return [Section("Nearest neighbours", note, examples=examples)]


class PretrainShow(Show):
    """Explanations are those of the encoder, which sees the whole image."""

    def subject(self, predictor: Predictor) -> Predictor:
        features = task_class(HEADLESS)(NoLabels())
        options = InferenceOptions(device=predictor.device, max_pixels=predictor.max_pixels)
        return Predictor(predictor.model.core, predictor.preprocess, features, options)


class VectorShow(PretrainShow):
    """Of a method whose output is a vector for each image."""

    headings = ("values>", "norm>", "first of them")
    report = NeighbourReport

    def row(self, result: FeatureVector, top: int) -> tuple[str, ...]:
        first = " ".join(f"{value:.3f}" for value in result.values[:top])
        return str(len(result.values)), f"{result.norm:.3f}", first

    def images(self, batch: Batch) -> Sequence[Tensor]:
        """The views of an image, where there are several, stand one after the other."""
        return batch.images.flatten(0, 1) if batch.images.ndim == 5 else batch.images

    def targets(self, batch: Batch) -> Sequence[Any]:
        return [0] * len(self.images(batch))
