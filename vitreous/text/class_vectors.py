"""One vector per class: the mean of its prompts (Radford et al. 2021, 3.1.4).

For a class with words w and templates t, and the text tower's vector v of each prompt,

    c = mean over w, t of v / |v|          and the class is c / |c|.

Computed once: the same weights, tokenizer, words and templates find it in a folder again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.atomic_write import making_folder, replacing
from vitreous.errors import DataError
from vitreous.progress import CountProgress, Log, silent
from vitreous.text.prompts import PLACE, Templates
from vitreous.text.tokenizer import Tokenizer
from vitreous.text.words import ClassWords, alike
from vitreous.wording import counted, listed

TextVectors = Callable[[Tensor], Tensor]
"""The text tower: ids (n, length) -> vectors (n, d)."""
KEPT_FILES = 200
"""In a folder of class vectors; those that were not used for longest are removed."""


def class_vectors(
    words: ClassWords,
    templates: Templates,
    tokenizer: Tokenizer,
    text_vectors: TextVectors,
    *,
    batch: int = 256,
    log: Log = silent,
    visible: bool = False,
) -> Tensor:
    """(classes, d) float32 of length 1, on the CPU. No more than a batch of prompts is in memory.

    visible: whether progress is shown.
    """
    check_words(words, templates, tokenizer, log)
    total = words.count * len(templates)
    sums: Tensor | None = None
    with (
        torch.inference_mode(),
        CountProgress(total, log, "prompts", title="words", visible=visible) as progress,
    ):
        prompts = _prompts(words, templates)
        while group := [*itertools.islice(prompts, batch)]:
            numbers, texts = zip(*group, strict=True)
            vectors = text_vectors(tokenizer.encode(texts, cut=False)).float().cpu()
            if not bool(vectors.isfinite().all()):
                raise DataError(
                    f"the text tower's vector of {texts[0]!r} or its like is not finite"
                )
            if sums is None:
                sums = vectors.new_zeros(len(words), vectors.shape[1])
            sums.index_add_(0, torch.tensor(numbers), F.normalize(vectors, dim=-1))
            progress.add(len(group))
    assert sums is not None
    return F.normalize(sums, dim=-1).clone()  # the sum points where the mean does


def kept_class_vectors(
    folder: Path,
    weights: str,
    words: ClassWords,
    templates: Templates,
    tokenizer: Tokenizer,
    text_vectors: Callable[[], TextVectors],
    *,
    batch: int = 256,
    log: Log = silent,
    visible: bool = False,
) -> Tensor:
    """The same, from a file in `folder` if they were computed before.

    weights: what stands for the text tower, like the checksum of its file. text_vectors is called
    only if there is something to compute.
    """
    from safetensors.torch import save_file

    facts = [weights, tokenizer.checksum, words.words, templates.texts]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    path = folder / f"{key}.safetensors"
    found = _read(path, len(words))
    if found is not None:
        check_words(words, templates, tokenizer, log)
        with suppress(OSError):
            os.utime(path)
        return found
    made = class_vectors(
        words, templates, tokenizer, text_vectors(), batch=batch, log=log, visible=visible
    )
    with making_folder(folder), replacing(path, sync=False) as temporary:
        save_file({"vectors": made}, temporary)
    _forget_old(folder)
    return made


def check_words(
    words: ClassWords, templates: Templates, tokenizer: Tokenizer, log: Log = silent
) -> None:
    """Before anything is computed: words that the tokenizer cannot read, or that do not fit, are an
    error; classes that it cannot tell apart are logged, and what is said of the templates."""
    if templates.note:
        log(templates.note)
    flat = [(name, word) for name, own in _named(words) for word in own]
    rows = tokenizer.tokens([word for _, word in flat])
    for (name, word), row in zip(flat, rows, strict=True):
        if not row:
            raise DataError(
                f"class {name!r}: nothing is left of {word!r} when it is cleaned "
                f"({', '.join(tokenizer.preprocess.clean)})"
            )
        if all(map(tokenizer.says_nothing, row)):
            raise DataError(
                f"class {name!r}: the tokenizer knows no part of {word!r}: its vocabulary is for "
                "other languages"
            )
    _check_length(flat, templates, tokenizer)
    each = iter(rows)
    keys = [tuple(sorted(tuple(next(each)) for _ in own)) for own in words.words]
    if same := alike(words, keys):
        log(
            f"classes with the same tokens have the same score: {listed(same)}; describe them by "
            "other words"
        )


def _named(words: ClassWords) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from zip(words.labels.names, words.words, strict=True)


def _check_length(flat: list[tuple[str, str]], templates: Templates, tokenizer: Tokenizer) -> None:
    sizes = [len(tokens) for tokens in tokenizer.tokens(templates.filled(""))]
    longest = templates.texts[sizes.index(max(sizes))]
    room = tokenizer.preprocess.room
    prompts = tokenizer.tokens([longest.replace(PLACE, word) for _, word in flat])
    long = [(w, len(row)) for (_, w), row in zip(flat, prompts, strict=True) if len(row) > room]
    if long:
        raise DataError(
            f"{counted(len(long), 'word')} of {len(flat):,} with the template {longest!r}: more "
            f"than the {room} tokens that the text tower takes: "
            f"{listed([f'{word[:60]!r} ({count})' for word, count in long])}. Shorten them, or the "
            "template"
        )


def _prompts(words: ClassWords, templates: Templates) -> Iterator[tuple[int, str]]:
    """The number of a class, and a prompt."""
    for number, own in enumerate(words.words):
        for word in own:
            for prompt in templates.filled(word):
                yield number, prompt


def _read(path: Path, classes: int) -> Tensor | None:
    """What a file holds; a damaged one is as if it were not there."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)["vectors"]
    except (OSError, SafetensorError, KeyError):
        return None
    good = found.ndim == 2 and len(found) == classes and bool(found.isfinite().all())
    return found if good and found.dtype == torch.float32 else None


def _forget_old(folder: Path) -> None:
    def used(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:  # another process was faster
            return 0.0

    files = sorted(folder.glob("*.safetensors"), key=used, reverse=True)
    for path in files[KEPT_FILES:]:
        path.unlink(missing_ok=True)
