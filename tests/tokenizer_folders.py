"""Tokenizers in the layouts that are published: CLIP's vocabulary, which open_clip brings, and
small ones of SentencePiece, trained here with the options of SigLIP's (c4_en) and Gemma's."""

import functools
import json
import random
import shutil
from pathlib import Path

from many_texts import many_texts
from shared import made_once, once

COLOURS = ["red", "green", "blue", "yellow", "black", "white", "pink", "grey"]
SHAPES = ["circle", "square", "triangle", "star", "cat", "dog", "car", "house", "tree", "helmet"]
SMALL = {  # what both are trained with
    "minloglevel": 2,
    "num_threads": 1,
    "character_coverage": 0.98,
    "pad_id": 0,
    "eos_id": 1,
}


def captions(count=3000, seed=0):
    random_ = random.Random(seed)

    def thing():
        return f"{random_.choice(COLOURS)} {random_.choice(SHAPES)}"

    return [
        f"A {thing()} left of a {thing()}, photo no. {random_.randrange(1000)}"
        for _ in range(count)
    ]


def merges_file():
    """OpenAI's list, which open_clip has inside."""
    from open_clip.tokenizer import default_bpe

    return Path(default_bpe())


@functools.cache
def clip():
    """CLIP's tokenizer as ours."""
    from vitreous.text.published import published_tokenizer

    return published_tokenizer(merges_file())


def clip_of_transformers(**options):
    """CLIP's tokenizer as transformers', with the same vocabulary."""
    from transformers import CLIPTokenizer

    model = json.loads(clip().content)["model"]
    merges = [tuple(each) for each in model["merges"]]
    return CLIPTokenizer(vocab=model["vocab"], merges=merges, **options)


@made_once("tokenizer-clip")
def clip_folder(folder):
    """As transformers 5 saves it."""
    clip_of_transformers(model_max_length=77).save_pretrained(folder)


@made_once("tokenizer-clip-two-files")
def clip_two_files(folder):
    """As transformers 4 saved it: vocab.json and merges.txt."""
    folder.mkdir(parents=True)
    model = json.loads(clip().content)["model"]
    write(folder / "vocab.json", model["vocab"])
    lines = ["#version: 0.2", *map(" ".join, model["merges"]), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    stated = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "pad_token": "!"}
    write(folder / "tokenizer_config.json", stated)


@made_once("tokenizer-siglip")
def siglip_folder(folder):
    """spiece.model: a unigram model with T5's normalisation."""
    options = {"unk_id": 2, "bos_id": -1, "normalization_rule_name": "nmt_nfkc"}
    _train(folder / "spiece.model", model_type="unigram", vocab_size=900, **options)
    write(folder / "tokenizer_config.json", {"tokenizer_class": "SiglipTokenizer"} | ENDS_OF_T5)
    write(folder / "config.json", {"model_type": "siglip"})


@made_once("tokenizer-gemma")
def gemma_folder(folder):
    """tokenizer.model: byte pairs with Gemma's options."""
    options = {
        **{"bos_id": 2, "unk_id": 3, "bos_piece": "<bos>", "eos_piece": "<eos>"},
        **{"normalization_rule_name": "identity", "byte_fallback": True, "split_digits": True},
        **{"add_dummy_prefix": False, "remove_extra_whitespaces": False},
        "allow_whitespace_only_pieces": True,
        "user_defined_symbols": ["<mask>", "\n\n", "▁▁", "▁▁▁", "<h1>"],
    }
    _train(folder / "tokenizer.model", model_type="bpe", vocab_size=1100, **options)
    write(folder / "tokenizer_config.json", {"tokenizer_class": "GemmaTokenizer"} | ENDS_OF_GEMMA)
    write(folder / "config.json", {"model_type": "siglip"})


@made_once("tokenizer-siglip2")
def siglip2_folder(folder):
    """As SigLIP 2's are published: tokenizer.json by transformers, of Gemma's class."""
    from transformers import GemmaTokenizer

    GemmaTokenizer.from_pretrained(gemma_folder()).save_pretrained(folder)
    write(folder / "tokenizer_config.json", {"tokenizer_class": "GemmaTokenizer"} | ENDS_OF_GEMMA)
    write(folder / "config.json", {"model_type": "siglip"})


@made_once("tokenizer-t5")
def t5_folder(folder):
    """SigLIP's pieces as transformers' T5 saves them, in tokenizer.json; as timm publishes them."""
    from transformers import T5Tokenizer

    T5Tokenizer.from_pretrained(siglip_folder(), extra_ids=0).save_pretrained(folder)
    write(folder / "tokenizer_config.json", {"tokenizer_class": "T5Tokenizer"} | ENDS_OF_T5)


ENDS_OF_T5 = {
    **{"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"},
    **{"model_max_length": 64, "do_lower_case": True},
}
ENDS_OF_GEMMA = {
    **{"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
    **{"add_bos_token": False, "add_eos_token": True, "padding_side": "right"},
    **{"do_lower_case": True, "model_max_length": 10**30},
}


def open_clip_folder(source, name, **text):
    """The same files with what an open_clip_config.json says."""

    def make(folder):
        shutil.copytree(source, folder)
        (folder / "config.json").unlink(missing_ok=True)
        write(folder / "open_clip_config.json", {"model_cfg": {"text_cfg": text}})

    return once(f"tokenizer-open-clip-{name}", make)


def _train(path, **options):
    import sentencepiece

    path.parent.mkdir(parents=True)
    corpus = path.with_name("corpus.txt")
    odd = [" ".join(text.split()) for text in many_texts(600, 3)]
    lines = captions() + [line.replace("\0", "") for line in odd if len(line) < 300]
    corpus.write_text("\n".join(filter(None, lines)), encoding="utf-8")
    prefix = path.with_suffix("")
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(prefix), **SMALL, **options
    )
    corpus.unlink()
    prefix.with_suffix(".vocab").unlink()


def write(path, values):
    path.write_text(json.dumps(values), encoding="utf-8")
