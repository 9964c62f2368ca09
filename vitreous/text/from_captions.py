"""A tokenizer of one's own: byte pairs that are learned from captions (Sennrich et al. 2016, 3.2).

It has CLIP's layout, so that a model that is trained with it can be given to other libraries. Every
text has tokens, for the bytes are there whatever the captions are.
"""

from __future__ import annotations

from collections.abc import Iterable

from vitreous.errors import ConfigError, DataError
from vitreous.text.cleaning import CLIP, cleaned
from vitreous.text.clip_vocabulary import (
    BEGIN,
    END,
    FIXED,
    WORD_END,
    byte_names,
    clip_parts,
    vocabulary_of,
)
from vitreous.text.tokenizer import TextPreprocess, Tokenizer
from vitreous.text.tokenizer_file import as_bytes, library_of, parsed_object

LARGEST = 2**20


def trained_tokenizer(
    captions: Iterable[str], *, size: int = 4096, length: int = 32, clean: tuple[str, ...] = CLIP
) -> Tokenizer:
    """A tokenizer with at most `size` tokens, for rows of `length` ids.

    Of them 514 are bytes and ends; with size = 514 there are no others. The rest are the pairs that
    stand together most often, twice at least. The same captions give the same tokenizer.
    """
    if not FIXED <= size <= LARGEST:
        raise ConfigError(
            f"size = {size}: expected the number of tokens, from {FIXED}, which are the bytes and "
            f"two ends, to {LARGEST:,}"
        )
    merges = _learned((cleaned(text, clean) for text in captions), size - FIXED)
    ids = vocabulary_of(merges)
    own = TextPreprocess(length, ids[BEGIN], ids[END], 0, clean)
    return Tokenizer(as_bytes(clip_parts(ids, merges)), own, "the trained tokenizer")


def _learned(texts: Iterable[str], count: int) -> list[tuple[str, str]]:
    from tokenizers.trainers import BpeTrainer

    library = library_of(as_bytes(clip_parts(vocabulary_of(()), ())), "the empty tokenizer")
    trainer = BpeTrainer(
        vocab_size=2 * 256 + count,  # at least; what comes last is left out
        min_frequency=2,
        initial_alphabet=byte_names(),
        end_of_word_suffix=WORD_END,
        show_progress=False,
    )
    seen = False

    def counted() -> Iterable[str]:
        nonlocal seen
        for text in texts:
            seen = seen or bool(text)
            yield text

    library.train_from_iterator(counted(), trainer)
    if not seen:
        raise DataError("there are no captions to learn tokens from")
    learned = parsed_object(library.to_str().encode(), "the trained tokenizer")["model"]["merges"]
    return [(first, second) for first, second in learned[:count]]
