"""Ten thousand texts have the ids that open_clip, transformers and SentencePiece give them. Where
those differ from each other, each difference has a test that says who has which."""

import functools
import html
import itertools
import unicodedata

import ftfy
import open_clip
import pytest
import sentencepiece
import torch
from many_texts import many_texts
from tokenizer_folders import (
    clip,
    clip_folder,
    clip_of_transformers,
    clip_two_files,
    gemma_folder,
    merges_file,
    open_clip_folder,
    siglip2_folder,
    siglip_folder,
    t5_folder,
)
from transformers import AutoTokenizer, GemmaTokenizer, Siglip2Tokenizer, SiglipTokenizer

from vitreous.text.published import published_tokenizer
from vitreous.text.sentencepiece import read_pieces

TEXTS = many_texts()
SOME = TEXTS[:2500]
"""Where both run the same library on the same file."""
CANONICAL = {"tokenizer_kwargs": {"clean": "canonicalize"}}

transformers_clip = functools.cache(clip_of_transformers)


def padded(tokenizer, texts, length):
    """transformers' ids, as SigLIP's processors ask for them."""
    options = {"padding": "max_length", "truncation": True, "max_length": length}
    return tokenizer(texts, return_tensors="pt", **options).input_ids


def differing(ours, theirs):
    return [TEXTS[i] for i in (ours != theirs).any(1).nonzero()[:, 0].tolist()]


# ---- CLIP


def test_clip_is_that_of_open_clip():
    """Which is OpenAI's; every id of every text."""
    assert differing(clip().encode(TEXTS), open_clip.tokenizer._tokenizer(TEXTS)) == []


def test_pe_has_shorter_rows():
    """32 tokens; the end token is kept."""
    shorter = published_tokenizer(merges_file(), length=32).encode(SOME)
    assert torch.equal(shorter, open_clip.get_tokenizer("PE-Core-B-16")(SOME))


def test_clip_is_that_of_transformers_where_it_cleans_alike():
    """transformers' CLIP composes accents and lowers; it neither mends encodings nor knows HTML."""

    def cleaned_alike(text):
        mended = ftfy.fix_text(text)
        plain = unicodedata.normalize("NFC", text) == mended and html.unescape(mended) == mended
        return plain and not {"Σ", "\u0345"} & {*text}

    ours = published_tokenizer(clip_folder()).encode(TEXTS)
    different = differing(ours, padded(transformers_clip(), TEXTS, 77))
    assert [text for text in different if cleaned_alike(text)] == []
    assert sum(map(cleaned_alike, TEXTS)) > 4000


@pytest.mark.parametrize(
    ("what", "text", "same"),
    [
        ("curly quotes", "a dog’s “bone”", 'a dog\'s "bone"'),
        ("wide letters", "ＣＬＩＰ", "clip"),
        ("ligatures", "ﬁsh and ﬂower", "fish and flower"),
        ("damaged encodings", "schÃ¶n", "schön"),
        ("control characters", "a\x07cat\x1b[31m", "acat"),
        ("HTML", "cat &amp;amp; dog &lt;3", "cat & dog <3"),
        ("the last sigma of a word", "ΟΔΟΣ", "οδος"),
        ("the one accent that OpenAI's pattern skips", "b\u0345", "b"),
    ],
)
def test_clip_of_transformers_leaves_what_openai_cleans(what, text, same):
    """So do the weights' own tokenizer (OpenAI's, open_clip's) and ours."""
    own, theirs = open_clip.tokenizer._tokenizer, transformers_clip()
    assert torch.equal(clip().encode([text]), clip().encode([same]))
    assert torch.equal(own([text]), clip().encode([text]))
    assert theirs(text).input_ids != theirs(same).input_ids, what


def test_libraries_take_names_of_special_tokens_for_them():
    """Each its own; for us they are no part of a text."""
    texts = {"transformers": "a <|endoftext|> cat", "open_clip": "a <end_of_text> cat"}
    assert transformers_clip()(texts["transformers"]).input_ids.count(49407) == 2
    assert open_clip.tokenizer._tokenizer(texts["open_clip"])[0].tolist().count(49407) == 2
    assert clip().tokens([texts["transformers"]]) == clip().tokens(["a cat"])
    assert clip().encode([texts["open_clip"]]).flatten().tolist().count(49407) == 1


def test_padding_of_clip_is_what_the_files_say():
    """0 is "!" and open_clip's padding; transformers pads with the end token, some files with "!".
    The tower reads what stands at the first end token, and what comes behind does not reach it."""
    pads = [
        clip().encode(["cat"])[0, -1],
        published_tokenizer(clip_folder()).encode(["cat"])[0, -1],
    ]
    pads.append(published_tokenizer(clip_two_files()).encode(["cat"])[0, -1])
    assert [int(pad) for pad in pads] == [0, 49407, 0]


def test_every_layout_of_clip_is_the_same_file():
    """OpenAI's list, vocab.json with merges.txt, tokenizer.json: in a run folder the same bytes."""
    for source in (clip_folder(), clip_two_files()):
        assert published_tokenizer(source).content == clip().content


# ---- SigLIP


def explained(text, ours, theirs, pieces):
    """Two ways of cutting a text that have the same score; or an accent behind a letter that stands
    for another one, which the tokenizers library loses."""
    if abs(sum(pieces.scores[i] for i in ours) - sum(pieces.scores[i] for i in theirs)) < 1e-4:
        return True
    return any(
        unicodedata.category(mark)[0] == "M" and unicodedata.normalize("NFKC", letter) != letter
        for letter, mark in itertools.pairwise(text)
    )


def test_siglip_is_that_of_transformers():
    """And of SentencePiece; but for a handful of texts, each for a known reason."""
    ours, pieces = (
        published_tokenizer(siglip_folder()),
        read_pieces(siglip_folder() / "spiece.model"),
    )
    theirs = padded(SiglipTokenizer.from_pretrained(siglip_folder()), TEXTS, 64)
    encoder = sentencepiece.SentencePieceProcessor(model_file=str(siglip_folder() / "spiece.model"))
    different = differing(ours.encode(TEXTS), theirs)
    assert len(different) < 20
    for text in different:
        clean = ours.cleaned(text)
        assert explained(clean, ours.tokens([text])[0], encoder.encode(clean), pieces), text
    clean = [ours.cleaned(text) for text in TEXTS]
    both = zip(clean, ours.tokens(TEXTS), encoder.encode(clean), strict=True)
    others = [each for each in both if each[1] != each[2]]
    assert len(others) < 20
    assert all(explained(*each, pieces) for each in others)


def test_siglip_of_open_clip_is_cleaned_by_its_own_rules():
    """Underscores are spaces there, encodings are mended; the pieces are in a tokenizer.json."""
    folder = open_clip_folder(
        t5_folder(), "siglip", context_length=64, hf_tokenizer_name="timm/x", **CANONICAL
    )
    ours, pieces = published_tokenizer(folder), read_pieces(siglip_folder() / "spiece.model")
    theirs = open_clip.get_tokenizer(f"local-dir:{folder}")(SOME)
    assert torch.equal(ours.encode(SOME), theirs)
    assert len(pieces.names) == ours.size
    in_transformers = published_tokenizer(siglip_folder())
    assert in_transformers.tokens(["red_cat"]) == in_transformers.tokens(["redcat"])
    assert ours.tokens(["red_cat"]) == ours.tokens(["red cat"])


# ---- SigLIP 2


def test_pieces_of_gemma_are_those_of_sentencepiece():
    """From tokenizer.model, which has scores and no merges; every text, bytes of unknown characters
    and runs of spaces included."""
    ours = published_tokenizer(gemma_folder())
    path = gemma_folder() / "tokenizer.model"
    encoder = sentencepiece.SentencePieceProcessor(model_file=str(path))
    expected = encoder.encode([ours.cleaned(text) for text in TEXTS])
    both = zip(TEXTS, ours.tokens(TEXTS), expected, strict=True)
    assert [text for text, own, other in both if own != other] == []


def test_siglip2_is_that_of_transformers():
    """Of its class Siglip2Tokenizer, which lowers the last sigma of a word like the others."""
    ours = published_tokenizer(siglip2_folder()).encode(TEXTS)
    theirs = padded(Siglip2Tokenizer.from_pretrained(siglip2_folder()), TEXTS, 64)
    assert [text for text in differing(ours, theirs) if "Σ" not in text] == []


def test_siglip2_by_its_name_in_transformers_is_not_lowered():
    """The files name Gemma's tokenizer, which ignores do_lower_case: AutoTokenizer gives other ids
    than the weights were trained with."""
    theirs = AutoTokenizer.from_pretrained(siglip2_folder())
    assert isinstance(theirs, GemmaTokenizer)
    ours = published_tokenizer(siglip2_folder())
    raised, lower = (padded(theirs, [text], 64) for text in ("A Red Cat", "a red cat"))
    assert not torch.equal(raised, lower)
    assert torch.equal(ours.encode(["A Red Cat"]), lower)


def test_siglip2_of_open_clip_has_no_punctuation():
    """transformers' has: a full stop is a token there."""
    folder = open_clip_folder(
        siglip2_folder(), "siglip2", context_length=64, hf_tokenizer_name="timm/x", **CANONICAL
    )
    ours = published_tokenizer(folder)
    theirs = open_clip.get_tokenizer(f"local-dir:{folder}")(SOME)
    assert torch.equal(ours.encode(SOME), theirs)
    assert ours.tokens(["a cat."]) == ours.tokens(["A cat"])
    other = published_tokenizer(siglip2_folder())
    assert other.tokens(["a cat."]) != other.tokens(["a cat"])


def test_runs_of_spaces_are_cut_by_the_file_that_is_read():
    """Gemma's pieces of several spaces are looked for first by SentencePiece, and merged by
    transformers, which writes a tokenizer.json so."""
    five = "a" + 5 * " " + "b"
    by_pieces, by_merges = (
        [each.name_of(id) for id in each.tokens([five])[0]]
        for each in map(published_tokenizer, (gemma_folder(), siglip2_folder()))
    )
    assert "▁▁▁" in by_pieces
    assert by_pieces != by_merges
    theirs = Siglip2Tokenizer.from_pretrained(siglip2_folder())
    assert by_merges == theirs.tokenize(five)


@pytest.mark.parametrize("folder", [siglip_folder, siglip2_folder])
def test_short_texts_of_siglip_are_padded_to_the_whole_length(folder):
    """The tower reads the last place: padded only to the longest of a batch, as transformers'
    tokenizers do unless they are told, it reads another one."""
    ours = published_tokenizer(folder()).encode(["a cat"])
    theirs = AutoTokenizer.from_pretrained(folder())(["a cat"], padding=True, return_tensors="pt")
    assert ours.shape[1] == 64 > theirs.input_ids.shape[1]
