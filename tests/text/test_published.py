"""What is read from the folders and files of published checkpoints; SentencePiece's format."""

import contextlib
import gzip
import json
import random
import shutil

import pytest
from tokenizer_folders import (
    captions,
    clip,
    clip_folder,
    clip_two_files,
    gemma_folder,
    merges_file,
    open_clip_folder,
    siglip2_folder,
    siglip_folder,
    t5_folder,
    write,
)

from vitreous.errors import CheckpointError
from vitreous.text.cleaning import CLIP, OPEN_CLIP, SIGLIP, SIGLIP2
from vitreous.text.published import OPENAI, has_tokenizer, published_tokenizer
from vitreous.text.sentencepiece import read_pieces
from vitreous.text.tokenizer import TextPreprocess
from vitreous.text.tokenizer_file import MOST_BYTES


def copied(source, folder, **files):
    """A copy with other JSON files; None removes one."""
    shutil.copytree(source, folder)
    for name, values in files.items():
        path = folder / f"{name}.json"
        if values is None:
            path.unlink()
        else:
            there = json.loads(path.read_text()) if path.is_file() else {}
            write(path, there | values)
    return folder


def refused(source, match, **options):
    with pytest.raises(CheckpointError, match=match):
        published_tokenizer(source, **options)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (clip_folder, TextPreprocess(77, 49406, 49407, 49407, CLIP)),
        (clip_two_files, TextPreprocess(77, 49406, 49407, 0, CLIP)),
        (siglip_folder, TextPreprocess(64, None, 1, 1, SIGLIP)),
        (gemma_folder, TextPreprocess(64, None, 1, 0, SIGLIP2)),
        (siglip2_folder, TextPreprocess(64, None, 1, 0, SIGLIP2)),
    ],
)
def test_the_record_of_each_layout(folder, expected):
    assert published_tokenizer(folder()).preprocess == expected
    assert has_tokenizer(folder())


def test_a_vocabulary_alone_says_what_it_is():
    """OpenAI's list is CLIP's; pieces with likelihoods are SigLIP's, with merges SigLIP 2's."""
    assert published_tokenizer(merges_file()).preprocess.clean == CLIP
    assert published_tokenizer(siglip_folder() / "spiece.model").preprocess.clean == SIGLIP
    assert published_tokenizer(gemma_folder() / "tokenizer.model").preprocess.clean == SIGLIP2


def test_the_length_is_that_of_the_tower_then_of_the_files(tmp_path):
    text = {"model_type": "owlvit", "text_config": {"max_position_embeddings": 16}}
    folder = copied(clip_folder(), tmp_path / "owl", config=text)
    assert published_tokenizer(folder).preprocess.length == 16
    assert published_tokenizer(folder, length=12).preprocess.length == 12
    write(folder / "config.json", {"model_type": "clip"})
    assert published_tokenizer(folder).preprocess.length == 77  # model_max_length


def test_extra_ids_beyond_the_embeddings_are_left_out(tmp_path):
    """The multilingual SigLIP has 250,100 pieces and 250,000 embeddings."""
    folder = copied(t5_folder(), tmp_path / "extra", tokenizer_config={"tokenizer_class": "x"})
    write(folder / "config.json", {"model_type": "siglip"})
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["model"]["vocab"] += [[f"▁<extra_id_{i}>", 0.0] for i in range(100)]
    write(path, values)
    assert published_tokenizer(folder).size == 1000
    known = published_tokenizer(folder, vocabulary=900)
    assert known.size == 900
    texts = ["a red cat <extra_id_7>", *captions(50)]
    assert known.encode(texts).max() < 900
    refused(folder, "embeddings for 800: it is the tokenizer of another model", vocabulary=800)


def test_token_ids_of_a_config_are_not_believed(tmp_path):
    """SigLIP's text_config has the ids of CLIP by default: 49406, 49407, and 1 to pad with."""
    ids = {"bos_token_id": 49406, "eos_token_id": 49407, "pad_token_id": 7}
    config = {"model_type": "siglip", "text_config": ids}
    folder = copied(siglip_folder(), tmp_path / "siglip", config=config)
    own = published_tokenizer(folder).preprocess
    assert (own.begin, own.end, own.pad) == (None, 1, 1)


def test_transformers_5_names_siglip2s_own_class(tmp_path):
    named = {"tokenizer_class": "Siglip2Tokenizer"}
    folder = copied(siglip2_folder(), tmp_path / "2", tokenizer_config=named)
    assert published_tokenizer(folder).preprocess.clean == SIGLIP2


@pytest.mark.parametrize("clean", OPEN_CLIP)
def test_open_clip_says_how_it_cleans(clean):
    folder = open_clip_folder(
        siglip2_folder(),
        f"clean-{clean}",
        context_length=32,
        hf_tokenizer_name="timm/x",
        tokenizer_kwargs={"clean": clean},
    )
    own = published_tokenizer(folder).preprocess
    assert own == TextPreprocess(32, None, 1, 0, OPEN_CLIP[clean])


def test_open_clips_own_tokenizer_pads_with_0(tmp_path):
    """Whatever the files of transformers beside it say."""
    folder = open_clip_folder(clip_folder(), "own", context_length=32, vocab_size=49408)
    assert published_tokenizer(folder).preprocess == TextPreprocess(32, 49406, 49407, 0, CLIP)


def test_the_ends_of_other_tokenizers_are_those_of_their_file(tmp_path):
    """XLM-R's begin with <s>; here T5's, which end with </s>."""
    text = {"hf_tokenizer_name": "x", "context_length": 20}
    folder = open_clip_folder(t5_folder(), "ends", **text)
    assert published_tokenizer(folder).preprocess == TextPreprocess(
        20, None, 1, 1, OPEN_CLIP["whitespace"]
    )
    values = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    roberta = {"type": "RobertaProcessing", "cls": ["<pad>", 0], "sep": ["</s>", 1]}
    other = copied(folder, tmp_path / "roberta")
    write(other / "tokenizer.json", values | {"post_processor": roberta})
    own = published_tokenizer(other).preprocess
    assert (own.begin, own.end) == (0, 1)
    write(other / "tokenizer.json", values | {"post_processor": {"type": "TemplateProcessing"}})
    refused(other, r"its post_processor \(TemplateProcessing\) is not known")


def test_an_openai_list_of_another_size(tmp_path):
    """OpenAI's file has more merges than CLIP uses; a small tower takes fewer."""
    shutil.copy(merges_file(), tmp_path / OPENAI)
    write(tmp_path / "open_clip_config.json", {"model_cfg": {"text_cfg": {"vocab_size": 1000}}})
    small = published_tokenizer(tmp_path)
    assert small.size == 1000
    assert (small.preprocess.begin, small.preprocess.end) == (998, 999)
    assert published_tokenizer(merges_file(), vocabulary=1000).content == small.content
    plain = tmp_path / "merges.txt"
    plain.write_bytes(gzip.decompress(merges_file().read_bytes()))
    assert published_tokenizer(plain).content == clip().content


# ---- what cannot be used


def test_a_folder_without_a_tokenizer_is_said_to_have_none(tmp_path):
    write(tmp_path / "config.json", {"model_type": "clip"})
    assert not has_tokenizer(tmp_path)
    refused(tmp_path, r"has no tokenizer: there is no tokenizer.json.* Copy them there")
    refused(tmp_path / "nowhere", "no such file or folder")


def test_a_tokenizer_of_nobody_knows_what_is_asked_for(tmp_path):
    folder = copied(t5_folder(), tmp_path / "t5")
    refused(folder, "nothing says how its texts are cleaned: expected a tokenizer_config.json")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ({"tokenizer_kwargs": {"clean": "stem"}}, "clean = 'stem': known are lower, whitespace"),
        ({"tokenizer_kwargs": {"strip_sep_token": True}}, "strip_sep_token: such tokenizers"),
        ({"tokenizer_mode": "clips"}, "tokenizer_mode: such tokenizers"),
        ({"vocab_size": 12}, "vocab_size = 12: expected a number from 514"),
    ],
)
def test_ways_of_open_clip_that_are_not_known(text, match, tmp_path):
    shutil.copy(merges_file(), tmp_path / OPENAI)
    write(tmp_path / "open_clip_config.json", {"model_cfg": {"text_cfg": text}})
    refused(tmp_path, match)


def test_damaged_files_are_named(tmp_path):
    short = tmp_path / OPENAI
    short.write_bytes(merges_file().read_bytes()[:5000])
    refused(short, "not a readable gzip file")
    short.write_bytes(gzip.compress(b"#version\na b\n"))
    refused(short, r"has 1 merges, and a vocabulary of 49,408 tokens needs 48,894")
    short.write_bytes(gzip.compress(b"#version\n" + b"a b c\n" * 50_000))
    refused(short, "merge 1 is 'a b c'; expected two tokens")
    short.write_bytes(gzip.compress(bytes(MOST_BYTES + 1)))
    refused(short, "unpacks to more than")
    folder = copied(clip_two_files(), tmp_path / "two")
    write(folder / "vocab.json", {"a": 0})
    refused(folder, "its vocabulary lacks .* tokens of CLIP's layout")
    (folder / "merges.txt").write_bytes(b"\xff\xff")
    refused(folder, "not a text file")
    (folder / "vocab.json").write_bytes(b"{")
    refused(folder, "vocab.json: not a readable JSON file")


def test_files_that_are_too_large_are_not_read(tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # a hole
    write(tmp_path / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer"})
    refused(tmp_path, "more than a tokenizer's file may have")


def test_pieces_are_those_that_sentencepiece_reads():
    import sentencepiece

    for path in (siglip_folder() / "spiece.model", gemma_folder() / "tokenizer.model"):
        ours = read_pieces(path)
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        ids = range(theirs.get_piece_size())
        assert ours.names == [theirs.id_to_piece(id) for id in ids]
        assert ours.scores == [theirs.get_score(id) for id in ids]
        assert (ours.end, ours.pad, ours.unknown) == (1, 0, theirs.unk_id())


def test_damaged_pieces_are_one_error(tmp_path):
    """Cut off anywhere, and with any byte changed: an error, or another vocabulary; never more."""
    content, random_ = (gemma_folder() / "tokenizer.model").read_bytes(), random.Random(0)
    path = tmp_path / "tokenizer.model"
    for size in (0, 1, 2, 7, 100, len(content) - 1):
        path.write_bytes(content[:size])
        refused(path, "is no SentencePiece model")
    for _ in range(300):
        damaged = bytearray(content)
        damaged[random_.randrange(len(content))] = random_.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(CheckpointError):
            read_pieces(path)
