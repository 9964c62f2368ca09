"""A tokenizer that is learned from captions, and its way into a run folder and other libraries."""

import json

import pytest
import torch
from many_texts import many_texts
from runs import VIT, made
from tokenizer_folders import captions, write

from vitreous.errors import CheckpointError, ConfigError, DataError
from vitreous.run_folder import Run
from vitreous.text.clip_vocabulary import FIXED
from vitreous.text.from_captions import trained_tokenizer
from vitreous.text.published import published_tokenizer

CAPTIONS = captions(2000)


@pytest.fixture(scope="module")
def tokenizer():
    return trained_tokenizer(CAPTIONS, size=640, length=24)


def test_the_same_captions_give_the_same_tokenizer(tokenizer):
    again = trained_tokenizer(iter(CAPTIONS), size=640, length=24)
    assert again.checksum == tokenizer.checksum
    assert again.content == tokenizer.content


def test_frequent_words_become_one_token(tokenizer):
    assert FIXED < tokenizer.size <= 640
    assert len(tokenizer.tokens(["circle"])[0]) == 1
    assert len(trained_tokenizer(CAPTIONS, size=FIXED).tokens(["circle"])[0]) == len("circle")
    assert max(map(len, tokenizer.tokens(CAPTIONS))) <= 22


def test_every_text_has_tokens(tokenizer):
    """Characters that no caption had are their bytes."""
    texts = [text for text in many_texts(1000) if tokenizer.cleaned(text)]
    assert all(tokenizer.tokens(texts))
    assert len(tokenizer.tokens(["猫"])[0]) == 3


def test_transformers_and_open_clip_read_it(tokenizer, tmp_path):
    """It has CLIP's layout, only smaller."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    model = json.loads(tokenizer.content)["model"]
    merges = [tuple(each) for each in model["merges"]]
    theirs = CLIPTokenizer(vocab=model["vocab"], merges=merges)
    ids = theirs(CAPTIONS[:200], padding="max_length", max_length=24, return_tensors="pt").input_ids
    ids[ids == theirs.pad_token_id] = 0
    ours = tokenizer.encode(CAPTIONS[:200])
    ours[ours == tokenizer.preprocess.end] = 0
    assert torch.equal(ids, ours)
    theirs.save_pretrained(tmp_path)
    assert published_tokenizer(tmp_path, length=24).content == tokenizer.content
    own = SimpleTokenizer(context_length=24)
    own.encoder, own.bpe_ranks = model["vocab"], {pair: i for i, pair in enumerate(merges)}
    own.cache = {}
    assert [own.encode(text) for text in CAPTIONS[:200]] == tokenizer.tokens(CAPTIONS[:200])


def test_captions_that_teach_nothing_are_an_error():
    for texts in ([], ["", " "]):
        with pytest.raises(DataError, match="there are no captions"):
            trained_tokenizer(texts)
    with pytest.raises(ConfigError, match="size = 500: expected the number of tokens, from 514"):
        trained_tokenizer(CAPTIONS, size=500)


# ---- the run folder


@pytest.fixture
def run(tmp_path):
    """One that knows no words yet."""
    return Run(made(tmp_path / "run", "classify", "vit", **VIT))


def test_a_run_keeps_its_tokenizer(run, tokenizer):
    """One file and one record; nothing but them is needed to read it again."""
    run.write_tokenizer(tokenizer)
    again = run.read_tokenizer()
    assert again.preprocess == tokenizer.preprocess == run.read_config().text
    assert again.content == (run.path / "tokenizer.json").read_bytes()
    assert torch.equal(again.encode(CAPTIONS[:9]), tokenizer.encode(CAPTIONS[:9]))


def test_weights_and_tokenizer_keep_each_others_checksums(run, tokenizer):
    """Whichever is written last, and when something else in config.json is written."""
    run.write_tokenizer(tokenizer)
    model = run.create_model()
    run.write_weights(model, model.state_dict())
    run.write_decoding({"threshold": 0.5})
    run.check_weights()
    assert run.read_tokenizer().checksum == tokenizer.checksum
    assert run.read_config().checksums.keys() == {"model.safetensors", "tokenizer.json"}
    run.write_tokenizer(trained_tokenizer(CAPTIONS[:50]))
    run.check_weights()
    assert run.read_tokenizer().preprocess.length == 32


def test_an_exchanged_tokenizer_is_found(run, tokenizer):
    run.write_tokenizer(tokenizer)
    path = run.path / "tokenizer.json"
    path.write_bytes(trained_tokenizer(CAPTIONS[:50], length=24).content)
    with pytest.raises(CheckpointError, match="is not the file that this run has written"):
        run.read_tokenizer()
    path.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer.json is missing: copy it"):
        run.read_tokenizer()


def test_a_run_without_words_says_so(run):
    with pytest.raises(CheckpointError, match="has no tokenizer, and so takes no words"):
        run.read_tokenizer()


def test_a_damaged_record_is_named(run, tokenizer):
    run.write_tokenizer(tokenizer)
    path = run.path / "config.json"
    values = json.loads(path.read_text())
    for text, match in (
        ({"length": 5}, "'begin', 'end', and 'pad'"),
        (values["text"] | {"clean": ["x"]}, "no step of cleaning"),
        (values["text"] | {"padding": 0}, "padding"),
        (3, "expected names and values"),
    ):
        write(path, values | {"text": text})
        with pytest.raises(ConfigError, match=match) as error:
            run.read_config()
        assert str(path) in str(error.value)
