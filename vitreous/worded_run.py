"""A run with a text tower whose classes are words (CLIP, section 3.1.2).

The model is the image tower with a similarity head, whose rows are the vectors of the words. CLIP
was trained to choose one of several texts (classify), SigLIP to judge each of them alone (tag).
Everything else that opens a run opens this one as well, and knows nothing of words.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.checksums import file_sha256
from vitreous.errors import ConfigError
from vitreous.models import TWO_TOWERS, configure, stored_fields
from vitreous.models.model import Model
from vitreous.models.two_towers import TwoTowers, tower_of
from vitreous.progress import Log, silent
from vitreous.run_folder import STATE, WEIGHTS, OpenedRun, RunConfig
from vitreous.tasks import task_for
from vitreous.text.class_vectors import kept_class_vectors
from vitreous.text.prompts import USUAL, Templates, templates
from vitreous.text.tokenizer import Tokenizer
from vitreous.text.words import ClassWords, Given, class_words
from vitreous.weights.blank import without_values
from vitreous.weights.hub import cache_folder
from vitreous.weights.importing import import_weights

PROJECTION, WORDS = "head.out.weight", "head.projection.weight"
"""What a projection is called in an image tower by itself, and in a similarity head."""


class WordedRun(OpenedRun):
    """The same weights, for classes that are words."""

    def __init__(
        self,
        run: OpenedRun,
        words: ClassWords,
        sentences: Templates,
        truth_kind: str | None = None,
        log: Log = silent,
    ) -> None:
        vars(self).update(vars(run))
        self.run, self.words, self.sentences, self.told = run, words, sentences, log
        self.tokenizer = tokenizer_of(run)
        towers = configure(run.config.family, **run.config.config)[1]
        name, fields = tower_of(towers, "image")
        head = {"kind": "similarity", "dim": towers.dim if towers.projection else None}
        fields |= {"classes": len(words), "head": head}
        try:
            family, config = configure(name, **fields)
        except ConfigError as error:
            raise ConfigError(f"{run.reference}: its image tower takes no words: {error}") from None
        usual = "class" if towers.logit_bias is None else "labels"
        self.config = replace(
            run.config,
            model=name,
            family=family,
            config=stored_fields(config),
            task=task_for(truth_kind or usual).name,
            labels=words.labels,
            data="",
            origin={**run.config.origin, "words": self.about},
            text=None,
            checksums={},
        )
        _ = self.vectors  # what is wrong with the words is said now

    @property
    def about(self) -> dict[str, Any]:
        """What the classes are made of."""
        return {
            "classes": [list(each) for each in self.words.words],
            "templates": list(self.sentences.texts),
            "tokenizer": self.tokenizer.checksum,
        }

    @property
    def fit(self) -> dict[str, Any]:
        """What has to be fitted is fitted already."""
        return {}

    def recipe_text(self) -> str | None:
        """Of a classifier for these classes there is none."""
        return None

    def blank_model(self, config: RunConfig | None = None) -> Model:
        """Of many classes it may be larger than the file that it is made of."""
        with without_values():
            return (config or self.config).create()

    def stored_weights(self) -> Path | dict[str, Tensor]:
        return self.tensors

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Of the image tower, with the similarity head."""
        model, vectors = self.towers, self.vectors
        state = dict(model.core.state_dict())
        if PROJECTION in state:
            state[WORDS] = state.pop(PROJECTION)
        bias = 0.0 if model.logit_bias is None else model.logit_bias.detach()
        state["head.words.weight"] = model.logit_scale.detach() * vectors
        state["head.words.bias"] = torch.zeros(len(vectors)) + bias
        return state

    @cached_property
    def vectors(self) -> Tensor:
        """(classes, d), each of length one; from the cache if they were computed before."""
        return kept_class_vectors(
            cache_folder() / "words",
            self._checksum,
            self.words,
            self.sentences,
            self.tokenizer,
            lambda: self.towers.text_vectors,
            log=self.told,
            visible=True,
        )

    @cached_property
    def towers(self) -> TwoTowers:
        """The model with both, which the folder has."""
        model = self.run.create_model()
        import_weights(model, self.run.stored_weights(), "vitreous", **self.run.fit)
        assert isinstance(model, TwoTowers)
        return model.eval()

    @property
    def _checksum(self) -> str:
        """Of the file with the weights, as far as it is known and sure."""
        if self.checkpoint is not None:
            return file_sha256(self.checkpoint / STATE)
        known = self.run.config.checksums.get(WEIGHTS, [])
        return known[0] if self.verify and len(known) == 1 else file_sha256(self.run.weights)


def with_words(
    run: OpenedRun,
    classes: Given | ClassWords | None,
    sentences: Any = None,
    *,
    truth_kind: str | None = None,
    log: Log = silent,
) -> OpenedRun:
    """The run for these classes; without any, as it is.

    classes: words, a file with them, or classes that the data names. sentences: the templates.
    truth_kind: of the data that it is for, where that decides between one class and several labels.
    """
    if classes is None:
        return run
    if run.config.family != TWO_TOWERS:
        raise ConfigError(
            f"classes: {run.reference} takes no words: it is a {run.config.model}, without a tower "
            f"for texts{_known(run)}. Models with words are CLIP, SigLIP and PE, imported from a "
            "folder with both towers and a tokenizer"
        )
    given = classes if isinstance(classes, ClassWords) else class_words(classes)
    return WordedRun(
        run, given, templates(USUAL if sentences is None else sentences), truth_kind, log
    )


def tokenizer_of(run: OpenedRun) -> Tokenizer:
    """That of a run with a text tower, for which it must be."""
    tokenizer, text = run.read_tokenizer(), _text_config(run)
    tokenizer.check_fits(vocabulary=text.vocabulary, length=text.length)
    return tokenizer


def _text_config(run: OpenedRun) -> Any:
    name, fields = tower_of(configure(run.config.family, **run.config.config)[1], "text")
    return configure(name, **fields)[1]


def _known(run: OpenedRun) -> str:
    names = run.config.labels.names
    if not names:
        return ""
    some = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    return f", that knows {some}"
