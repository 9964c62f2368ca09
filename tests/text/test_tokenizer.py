"""From texts to rows of ids; the record; and files that are damaged or hostile."""

import copy
import json
import pickle

import pytest
import torch
from tokenizer_folders import captions, gemma_folder, open_clip_folder, siglip_folder, t5_folder

from vitreous.config import from_dict, to_dict
from vitreous.errors import CheckpointError, ConfigError, InputError
from vitreous.text.from_captions import trained_tokenizer
from vitreous.text.published import published_tokenizer
from vitreous.text.tokenizer import MOST_CHARACTERS, TextPreprocess, Tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return trained_tokenizer(captions(500), size=700, length=12)


def parts_of(tokenizer):
    return copy.deepcopy(json.loads(tokenizer.content))


def refused(parts, preprocess, match):
    content = parts if isinstance(parts, bytes) else json.dumps(parts).encode()
    with pytest.raises(CheckpointError, match=match) as error:
        Tokenizer(content, preprocess, "strange.json")
    assert "strange.json" in str(error.value)


# ---- rows


def test_every_row_has_the_same_length_and_one_end(tokenizer):
    """Empty, short, exactly as long, and too long."""
    texts = ["", "a red circle", " ".join("a" * 10), " ".join("a" * 11), "red " * 100]
    rows, own = tokenizer.encode(texts), tokenizer.preprocess
    assert rows.shape == (5, 12)
    assert rows.dtype == torch.int64
    assert (rows[:, 0] == own.begin).all()
    assert ((rows == own.end).sum(1) == 1).all()
    places = (rows == own.end).int().argmax(1).tolist()
    assert places[0] == 1
    assert places[2:] == [11, 11, 11]
    assert (rows[0, 2:] == own.pad).all()


def test_a_batch_is_its_texts_one_by_one(tokenizer):
    texts = captions(20, 3)
    singles = torch.cat([tokenizer.encode([text]) for text in texts])
    assert torch.equal(tokenizer.encode(texts), singles)
    assert tokenizer.encode([]).shape == (0, 12)


def test_a_text_that_is_too_long_can_be_an_error(tokenizer):
    with pytest.raises(InputError, match=r"'red red .* has 20 tokens, and the text tower takes 10"):
        tokenizer.encode(["red " * 20], cut=False)


def test_what_is_no_text_is_refused(tokenizer):
    for texts, match in (
        ("a cat", r"pass \[text\]"),
        (["a cat", 7], "got '7' \\(int\\)"),
        (["half \ud800"], "surrogate"),
        (["x" * (MOST_CHARACTERS + 1)], "100,001 characters"),
    ):
        with pytest.raises(InputError, match=match):
            tokenizer.encode(texts)


def test_special_tokens_in_a_text_are_no_part_of_it(tokenizer):
    """Neither by their names nor in wide letters, which SigLIP's normalisation makes narrow."""
    assert tokenizer.tokens(["a <|endoftext|>red cat"]) == tokenizer.tokens(["a red cat"])
    folder = open_clip_folder(t5_folder(), "wide", context_length=64, hf_tokenizer_name="timm/x")
    siglip = published_tokenizer(folder)
    for text in ("</s>", "＜／ｓ＞", "a </s> b"):
        assert siglip.preprocess.end not in siglip.tokens([text])[0]


def test_a_copy_for_another_process_is_the_same(tokenizer):
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.checksum == tokenizer.checksum
    assert torch.equal(again.encode(["a red cat"]), tokenizer.encode(["a red cat"]))


def test_the_checksum_is_of_file_and_record(tokenizer):
    """Rows of another length or cleaned otherwise are others."""
    own = to_dict(tokenizer.preprocess)
    others = [{"length": 13}, {"pad": 1}, {"clean": ["lower"]}, {"begin": None}]
    records = [from_dict(TextPreprocess, own | change) for change in others]
    checksums = {Tokenizer(tokenizer.content, record).checksum for record in records}
    assert len(checksums | {tokenizer.checksum}) == 5


# ---- pieces, for display


def test_pieces_are_the_row_and_say_their_words(tokenizer):
    text = "A RED  unicorn &amp; cat"
    pieces = tokenizer.pieces(text)
    row = tokenizer.encode([text])[0].tolist()
    assert [piece.id for piece in pieces] == row[: len(pieces)]
    assert set(row[len(pieces) :]) <= {tokenizer.preprocess.pad}
    words = tokenizer.cleaned(text).split()
    assert words == ["a", "red", "unicorn", "&", "cat"]
    assert [pieces[0].word, pieces[-1].word] == [None, None]
    joined = {}
    for piece in pieces[1:-1]:
        joined[piece.word] = joined.get(piece.word, "") + piece.text
    assert all(words[number].startswith(text) for number, text in joined.items())
    assert joined[1] == "red"


@pytest.mark.parametrize("folder", [siglip_folder, gemma_folder])
def test_spaces_of_sentencepiece_belong_to_the_word_behind_them(folder):
    pieces = published_tokenizer(folder()).pieces("a red xylophone")
    words = {}
    for piece in pieces[:-1]:
        words[piece.word] = words.get(piece.word, "") + piece.text
    assert words == {0: "a", 1: "red", 2: "xylophone"}
    assert pieces[-1].word is None


def test_a_character_of_several_tokens_is_the_text_of_each(tokenizer):
    pieces = [piece for piece in tokenizer.pieces("a 猫") if piece.word == 1]
    assert len(pieces) == 3
    assert {piece.text for piece in pieces} == {"猫"}


# ---- the record


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"length": 2}, "length = 2: expected the number of tokens"),
        ({"length": 10**6}, "3 to 8192"),
        ({"length": True}, "length = True"),
        ({"pad": None}, "pad = None: expected the id of a token"),
        ({"end": -1}, "end = -1"),
        ({"clean": ("lower", "stem")}, "'stem' is no step of cleaning"),
        ({"clean": ("lowr",)}, "did you mean 'lower'"),
    ],
)
def test_a_record_that_cannot_be_is_refused(change, match):
    own = {"length": 12, "begin": 1, "end": 2, "pad": 0, "clean": ("lower",)}
    with pytest.raises(ConfigError, match=match):
        TextPreprocess(**own | change)


def test_a_record_is_read_as_it_is_written(tokenizer):
    plain = json.loads(json.dumps(to_dict(tokenizer.preprocess)))
    assert from_dict(TextPreprocess, plain) == tokenizer.preprocess
    with pytest.raises(ConfigError, match="padding"):
        from_dict(TextPreprocess, plain | {"padding": 3})


def test_a_tower_with_other_embeddings_or_positions_is_refused(tokenizer):
    tokenizer.check_fits(vocabulary=tokenizer.size, length=12)
    with pytest.raises(CheckpointError, match=r"embeddings for 500: .* another model"):
        tokenizer.check_fits(vocabulary=500, length=12)
    with pytest.raises(CheckpointError, match="10 positions"):
        tokenizer.check_fits(vocabulary=1000, length=10)


def test_ids_of_the_record_are_in_the_vocabulary(tokenizer):
    refused(tokenizer.content, TextPreprocess(12, 0, 5000, 0), "end = 5000, but its vocabulary has")


# ---- files from anywhere


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"1", b"\xff\xfe", b'{"model": 3}', b'{"model": {"type": "BPE"}}'],
)
def test_what_is_no_tokenizer_is_refused(content, tokenizer):
    refused(content, tokenizer.preprocess, "strange.json")


def test_nesting_without_end_is_refused(tokenizer):
    refused(b"[" * 100_000, tokenizer.preprocess, "not a readable JSON file")
    parts = parts_of(tokenizer)
    parts["normalizer"] = {"type": "Lowercase"}
    for _ in range(50):
        parts["normalizer"] = {"type": "Sequence", "normalizers": [parts["normalizer"]]}
    refused(parts, tokenizer.preprocess, "its normalizer cannot be understood")


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"normalizer": {"type": "Script"}}, "its normalizer is 'Script'; known are"),
        (
            {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}},
            r"regular expression '\(a\+\)\+\$', .*it is not run",
        ),
        (
            {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}},
            "at most one character",
        ),
        ({"normalizer": {"type": "Prepend", "prepend": "ab"}}, "at most one character"),
        (
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(x*)*y"},
                    "behavior": "Removed",
                    "invert": False,
                }
            },
            "its pre_tokenizer has the regular expression",
        ),
        ({"added_tokens": [{"content": "x"}]}, "added_tokens cannot be understood"),
        ({"added_tokens": 3}, "added_tokens cannot be understood"),
    ],
)
def test_parts_that_could_run_for_ever_are_refused(values, match, tokenizer):
    refused(parts_of(tokenizer) | values, tokenizer.preprocess, match)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"type": "Magic"}, "its model is 'Magic'"),
        ({"dropout": 0.1}, "other tokens each time"),
        ({"vocab": {"a": "b"}}, "vocabulary of its BPE model"),
        ({"vocab": {"a": 2**31}, "merges": []}, "strange.json"),
        ({"merges": [["a", "zzz"]]}, "tokenizers library"),
        ({"type": "Unigram", "vocab": [["a"]]}, "vocabulary of its Unigram model"),
        ({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}, "tokenizers library"),
        ({"type": "Unigram", "vocab": [["zq", 0.0]], "unk_id": None}, "strange.json"),
    ],
)
def test_models_that_do_not_hold_together_are_refused(values, match, tokenizer):
    """Also those that the library finds out about only when a text comes."""
    parts = parts_of(tokenizer)
    parts["model"] |= values
    refused(parts, TextPreprocess(12, None, None, 0), match)


@pytest.mark.parametrize("charsmap", ["", "AAAA", "////", "CAAAAAAAAAAAAAAA"])
def test_a_panic_of_the_library_is_an_error_too(charsmap):
    """A damaged table of characters makes its Rust code panic, which is no Exception in Python."""
    parts = json.loads(published_tokenizer(siglip_folder()).content)
    parts["normalizer"]["normalizers"][0]["precompiled_charsmap"] = charsmap
    refused(parts, TextPreprocess(12, None, 1, 1), "tokenizers library")
