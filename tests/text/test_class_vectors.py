"""The mean of prompts as an equation, and the file in which it is kept."""

import os

import pytest
import torch
import torch.nn.functional as F
from tokenizer_folders import captions, siglip_folder

from vitreous.errors import DataError
from vitreous.text.class_vectors import KEPT_FILES, class_vectors, kept_class_vectors
from vitreous.text.from_captions import trained_tokenizer
from vitreous.text.prompts import templates
from vitreous.text.published import published_tokenizer
from vitreous.text.words import class_words

WORDS = class_words(["red cat", "blue dog | hound | puppy", "green house", "star"])
SET = templates("photo")


@pytest.fixture(scope="module")
def tokenizer():
    return trained_tokenizer(captions(500), length=60)


class Tower:
    """Any text tower: a vector that depends on every id and its place."""

    def __init__(self, tokenizer, width=8):
        generator = torch.Generator().manual_seed(0)
        shape = (tokenizer.preprocess.length, tokenizer.size, width)
        self.table, self.batches = torch.randn(shape, generator=generator), []

    def __call__(self, ids):
        self.batches.append(len(ids))
        places = torch.arange(ids.shape[1])
        return self.table[places, ids].sum(1)


def test_a_class_is_the_mean_of_its_normalised_prompts(tokenizer):
    """By the equation, a prompt at a time."""
    tower = Tower(tokenizer)
    expected = []
    for words in WORDS.words:
        vectors = [
            F.normalize(tower(tokenizer.encode([text.replace("{}", word)]))[0], dim=0)
            for word in words
            for text in SET.texts
        ]
        expected.append(F.normalize(torch.stack(vectors).mean(0), dim=0))
    found = class_vectors(WORDS, SET, tokenizer, tower)
    assert torch.allclose(found, torch.stack(expected), atol=1e-6)
    assert torch.allclose(found.norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("batch", [1, 7, 24, 1000])
def test_batches_change_nothing(batch, tokenizer):
    """No more than a batch is given to the tower, whatever the classes are."""
    tower, other = Tower(tokenizer), Tower(tokenizer)
    found = class_vectors(WORDS, SET, tokenizer, tower, batch=batch)
    assert torch.allclose(found, class_vectors(WORDS, SET, tokenizer, other), atol=1e-6)
    assert max(tower.batches) <= batch
    assert sum(tower.batches) == WORDS.count * len(SET)


def test_one_template_is_that_prompt(tokenizer):
    tower = Tower(tokenizer)
    (found,) = class_vectors(class_words("red cat"), templates("a {}"), tokenizer, tower)
    assert torch.allclose(found, F.normalize(tower(tokenizer.encode(["a red cat"]))[0], dim=0))


def test_a_tower_that_gives_no_numbers_is_an_error(tokenizer):
    with pytest.raises(DataError, match="is not finite"):
        class_vectors(WORDS, SET, tokenizer, lambda ids: torch.full((len(ids), 3), torch.nan))


# ---- words that a tokenizer cannot take


def test_words_that_do_not_fit_are_named(tokenizer):
    long = class_words(["red cat", "blue dog " * 30, "star " * 80])
    with pytest.raises(DataError) as error:
        class_vectors(long, templates(), tokenizer, Tower(tokenizer))
    said = str(error.value)
    assert said.startswith("2 words of 3 with the template 'a photo of a {}.'")
    assert "more than the 58 tokens that the text tower takes: 'blue dog blue" in said


def test_words_of_which_nothing_is_left_are_named():
    siglip = published_tokenizer(siglip_folder())
    with pytest.raises(DataError, match=r"nothing is left of '\?!' .*\(lower, punctuation, white"):
        class_vectors(class_words(["cat", "?!"]), SET, siglip, Tower(siglip))


def test_words_of_a_language_that_the_tokenizer_does_not_know_are_named():
    """All of them would be the same unknown token, and the same class."""
    siglip = published_tokenizer(siglip_folder())
    with pytest.raises(DataError, match="knows no part of '龘': its vocabulary is for other lang"):
        class_vectors(class_words(["cat", "龘"]), SET, siglip, Tower(siglip))


def test_classes_that_cannot_be_told_apart_are_logged(tokenizer):
    """Capitals and spaces are not in the tokens."""
    said = []
    words = class_words(["Red Cat", "red  cat", "dog"])
    found = class_vectors(words, templates("{}"), tokenizer, Tower(tokenizer), log=said.append)
    assert torch.equal(found[0], found[1])
    assert len(said) == 1
    assert "have the same score: 'Red Cat' = 'red  cat'; describe them" in said[0]


def test_what_the_name_of_a_set_means_is_logged(tokenizer):
    said = []
    class_vectors(WORDS, templates("imagenet"), tokenizer, Tower(tokenizer), log=said.append)
    assert [line for line in said if "not the 80" in line]


# ---- kept


def kept(folder, tower, tokenizer, words=WORDS, sentences=SET, weights="abc"):
    made = []

    def opened():
        made.append(1)
        return tower

    found = kept_class_vectors(folder, weights, words, sentences, tokenizer, opened)
    return found, len(made)


def test_vectors_are_computed_once(tokenizer, tmp_path):
    folder, tower = tmp_path / "words", Tower(tokenizer)
    first, times = kept(folder, tower, tokenizer)
    assert times == 1
    again, times = kept(folder, tower, tokenizer)
    assert times == 0
    assert torch.equal(first, again)
    assert len(os.listdir(folder)) == 1


def test_whatever_they_depend_on_makes_them_new(tokenizer, tmp_path):
    other = trained_tokenizer(captions(500), length=61)
    cases = [
        {},
        {"weights": "abd"},
        {"words": class_words(["red cat", "blue dog | hound", "green house", "star"])},
        {"sentences": templates("a {}")},
    ]
    times = [kept(tmp_path, Tower(tokenizer), tokenizer, **case)[1] for case in cases]
    times.append(kept(tmp_path, Tower(other), other)[1])
    assert times == [1] * 5
    assert len(os.listdir(tmp_path)) == 5


def test_a_damaged_file_is_made_again(tokenizer, tmp_path):
    first, _ = kept(tmp_path, Tower(tokenizer), tokenizer)
    (path,) = tmp_path.iterdir()
    for content in (b"", path.read_bytes()[:-4], b"{}"):
        path.write_bytes(content)
        again, times = kept(tmp_path, Tower(tokenizer), tokenizer)
        assert times == 1
        assert torch.equal(first, again)


def test_the_folder_does_not_grow_without_end(tokenizer, tmp_path):
    for number in range(KEPT_FILES + 5):
        path = tmp_path / f"{number}.safetensors"
        path.touch()
        os.utime(path, (number, number))
    kept(tmp_path, Tower(tokenizer), tokenizer)
    assert len(os.listdir(tmp_path)) == KEPT_FILES
    assert not (tmp_path / "0.safetensors").exists()
