"""The tokenizer of a published checkpoint, from the files beside its weights.

Which vocabulary it is, the files themselves say. How texts are cleaned they say only in part
(transformers has it in code), and some of what they say is wrong: the token ids in SigLIP's
config.json are CLIP's. So there is a row for each way in which weights were trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.errors import CheckpointError, ConfigError
from vitreous.text import cleaning
from vitreous.text.clip_vocabulary import (
    BEGIN,
    END,
    FIXED,
    SIZE,
    from_merges_file,
    from_parts,
    from_two_files,
)
from vitreous.text.sentencepiece import BPE, UNIGRAM, read_pieces, sentencepiece_parts
from vitreous.text.tokenizer import LONGEST, TextPreprocess, Tokenizer
from vitreous.text.tokenizer_file import (
    as_bytes,
    checked_parts,
    ids_of,
    read_object,
    without_extras,
)

TOKENIZER = "tokenizer.json"
OPENAI = "bpe_simple_vocab_16e6.txt.gz"
PIECES = ("spiece.model", "tokenizer.model", "sentencepiece.model")
DESCRIPTIONS = ("tokenizer_config.json", "special_tokens_map.json", "open_clip_config.json")
TOKENIZER_FILES = (TOKENIZER, "vocab.json", "merges.txt", OPENAI, *PIECES, *DESCRIPTIONS)
"""What is read, besides the config.json and the preprocessor's that come with the weights."""


class Style(NamedTuple):
    """How texts were prepared when weights were trained."""

    clean: tuple[str, ...]
    length: int
    """Where no file says it."""
    end: str = ""
    """The token, where no file says it."""


STYLES = {
    "clip": Style(cleaning.CLIP, 77, END),
    "siglip": Style(cleaning.SIGLIP, 64, "</s>"),
    "siglip2": Style(cleaning.SIGLIP2, 64, "<eos>"),
    "open_clip": Style(cleaning.OPEN_CLIP["whitespace"], 77),
}
"""open_clip: another library's tokenizer, cleaned as an open_clip_config.json says."""
CLASSES = {
    "CLIPTokenizer": "clip",
    "SiglipTokenizer": "siglip",
    "Siglip2Tokenizer": "siglip2",
    "GemmaTokenizer": "siglip2",
}
"""By transformers' class. Of models of images and texts, only SigLIP 2 has Gemma's."""
MODELS = {"clip": "clip", "owlvit": "clip", "owlv2": "clip", "siglip2": "siglip2"}
"""By the model_type of a config.json; siglip is both."""


@dataclass(frozen=True)
class _Files:
    """What the JSON files of a folder say."""

    folder: Path
    only: str = ""
    """The one vocabulary that may be read, where the caller names it."""
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    processor: str = ""
    open_clip: Mapping[str, Any] | None = None

    def first(self, names: Iterable[str]) -> Path | None:
        known = [name for name in names if self.only in ("", name)]
        return next((self.folder / n for n in known if (self.folder / n).is_file()), None)


class _Vocabulary(NamedTuple):
    parts: dict[str, Any]
    """Of a tokenizer.json."""
    path: Path
    ids: dict[str, int]
    begin: int | None
    end: int | None
    pad: int


def published_tokenizer(
    source: str | Path, *, length: int | None = None, vocabulary: int | None = None
) -> Tokenizer:
    """The tokenizer of a folder as transformers, open_clip or Google publish it, or of one file of
    a vocabulary.

    length, vocabulary: of the text tower, where it is known: its positions and its embeddings. Else
    what the files say.
    """
    files = _opened(Path(source))
    style = _style(files)
    if style is None:
        raise CheckpointError(
            f"{files.folder} has a tokenizer, but nothing says how its texts are cleaned: "
            "expected a tokenizer_config.json with the tokenizer_class of CLIP or SigLIP, or an "
            "open_clip_config.json"
        )
    known = STYLES[style]
    found = _clip(files, vocabulary) if style == "clip" else _other(files, style)
    pad = found.pad
    if not (
        style == "clip" and files.open_clip is not None
    ):  # open_clip pads with 0 whatever is said
        pad = found.ids.get(_named(files.tokenizer.get("pad_token")), pad)
    own = TextPreprocess(
        length=length or _length(files, known.length),
        begin=found.begin,
        end=found.end,
        pad=pad,
        clean=_cleaning(files, known),
    )
    parts = found.parts if vocabulary is None else without_extras(found.parts, vocabulary)
    tokenizer = Tokenizer(as_bytes(parts), own, found.path)
    if vocabulary is not None:
        tokenizer.check_fits(vocabulary=vocabulary, length=own.length)
    return tokenizer


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has the files of one."""
    files = _Files(folder)
    return files.first((TOKENIZER, OPENAI, *PIECES)) is not None or _two_files(files) is not None


def _opened(source: Path) -> _Files:
    if source.is_file():
        if source.name == OPENAI or source.suffix in (".gz", ".txt"):  # describes itself
            return _Files(source.parent, source.name, {"tokenizer_class": "CLIPTokenizer"})
        return _read(source.parent, source.name)
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such file or folder")
    if not has_tokenizer(source):
        raise CheckpointError(
            f"{source} has no tokenizer: there is no {TOKENIZER}, no vocab.json with merges.txt, "
            f"no {OPENAI} and no {PIECES[0]}. Copy them there from where the weights are published"
        )
    return _read(source)


def _read(folder: Path, only: str = "") -> _Files:
    def values(*names: str) -> dict[str, Any]:
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        return {} if path is None else read_object(path)

    special = values("special_tokens_map.json")
    processor = values("preprocessor_config.json", "processor_config.json")
    own = {**special, **values("tokenizer_config.json")}
    stated = values("open_clip_config.json")
    text = stated.get("model_cfg", stated).get("text_cfg") if stated else None
    if stated and not isinstance(text, dict):
        raise CheckpointError(f"{folder / 'open_clip_config.json'}: it has no text_cfg")
    name = str(processor.get("processor_class") or own.get("processor_class") or "")
    return _Files(folder, only, own, values("config.json"), name, text)


def _style(files: _Files) -> str | None:
    if files.open_clip is not None:
        return "open_clip" if files.open_clip.get("hf_tokenizer_name") else "clip"
    name = str(files.tokenizer.get("tokenizer_class", "")).removesuffix("Fast")
    kind = str(files.model.get("model_type", ""))
    by_name = CLASSES.get(name) or MODELS.get(kind)
    if by_name is not None:
        return by_name
    if files.processor.startswith(("CLIP", "OwlViT", "Owlv2")) or _two_files(files) is not None:
        return "clip"
    pieces = files.first(PIECES)
    if pieces is not None:
        model = read_pieces(pieces).trainer.get(3, UNIGRAM)
        return "siglip2" if model == BPE else "siglip"
    return "siglip" if kind == "siglip" or files.processor.startswith("Siglip") else None


def _two_files(files: _Files) -> tuple[Path, Path] | None:
    vocabulary, merges = (files.folder / name for name in ("vocab.json", "merges.txt"))
    wanted = files.only in ("", vocabulary.name, merges.name)
    return (vocabulary, merges) if wanted and vocabulary.is_file() and merges.is_file() else None


def _clip(files: _Files, size: int | None) -> _Vocabulary:
    parts, path = _clip_parts(files, size)
    ids = ids_of(parts)
    return _Vocabulary(parts, path, ids, ids[BEGIN], ids[END], 0)


def _clip_parts(files: _Files, size: int | None) -> tuple[dict[str, Any], Path]:
    path = files.first((TOKENIZER,))
    if path is not None:
        return from_parts(checked_parts(read_object(path), path), path), path
    both = _two_files(files)
    if both is not None:
        return from_two_files(*both), both[0]
    path = files.first((files.only or OPENAI,))
    if path is None:
        raise CheckpointError(
            f"{files.folder}: its tokenizer is CLIP's, and there is no {TOKENIZER}, no vocab.json "
            f"with merges.txt and no {OPENAI}"
        )
    text = files.open_clip or files.model.get("text_config") or {}
    size = text.get("vocab_size", SIZE) if size is None else size
    if not isinstance(size, int) or not FIXED <= size <= 2**20:
        raise CheckpointError(
            f"{files.folder}: vocab_size = {size!r}: expected a number from {FIXED} to {2**20:,}"
        )
    return from_merges_file(path, size), path


def _other(files: _Files, style: str) -> _Vocabulary:
    names = (*PIECES, TOKENIZER) if style == "siglip" else (TOKENIZER, *PIECES)
    path = files.first(names)
    if path is None:
        raise CheckpointError(f"{files.folder}: expected {' or '.join(names)} there")
    if path.suffix == ".model":
        pieces = read_pieces(path)
        parts, begin, end, pad = sentencepiece_parts(pieces), None, pieces.end, pieces.pad
    else:
        values = read_object(path)
        parts, pad = checked_parts(values, path), None
        begin, end = _ends(files, style, ids_of(parts), values.get("post_processor"), path)
    if style == "siglip":  # as big_vision pads: SigLIP with its end token, SigLIP 2 with 0
        pad = end
    return _Vocabulary(parts, path, ids_of(parts), begin, end, 0 if pad is None else pad)


def _ends(
    files: _Files, style: str, ids: Mapping[str, int], processor: Any, path: Path
) -> tuple[int | None, int | None]:
    """The ids that begin and end a row."""
    stated = files.tokenizer
    if style == "open_clip" and "add_eos_token" not in stated:
        return _framing(processor, path)
    end = _named(stated.get("eos_token")) or STYLES[style].end
    if end not in ids:
        raise CheckpointError(f"{path}: its vocabulary has no end token {end!r}")
    if style != "open_clip":
        return None, ids[end]
    begin = ids.get(_named(stated.get("bos_token"))) if stated.get("add_bos_token") else None
    return begin, ids[end] if stated["add_eos_token"] else None


def _framing(processor: Any, path: Path) -> tuple[int | None, int | None]:
    """What a post_processor puts before and behind a text."""
    kind = processor.get("type") if isinstance(processor, dict) else None
    try:
        if kind is None or kind == "ByteLevel":
            return None, None
        if kind == "Sequence":
            inner = [each for each in processor["processors"] if each["type"] != "ByteLevel"]
            return _framing(inner[0] if inner else None, path)
        if kind in ("RobertaProcessing", "BertProcessing"):
            return int(processor["cls"][1]), int(processor["sep"][1])
        if kind == "TemplateProcessing":
            ids = [_template_id(each, processor["special_tokens"]) for each in processor["single"]]
            text = ids.index(None)
            if text <= 1 and len(ids) - text <= 2:
                return (ids[0] if text else None), (ids[-1] if text + 1 < len(ids) else None)
    except (KeyError, TypeError, ValueError, IndexError):
        pass
    raise CheckpointError(
        f"{path}: its post_processor ({kind}) is not known: expected one token at most before and "
        "behind a text"
    )


def _template_id(part: Mapping[str, Any], tokens: Mapping[str, Any]) -> int | None:
    """None for the text."""
    if "Sequence" in part:
        return None
    (id,) = tokens[part["SpecialToken"]["id"]]["ids"]
    return int(id)


def _cleaning(files: _Files, known: Style) -> tuple[str, ...]:
    options = dict((files.open_clip or {}).get("tokenizer_kwargs") or {})
    clean = options.pop("clean", None)
    if (files.open_clip or {}).get("tokenizer_mode"):
        options["tokenizer_mode"] = files.open_clip["tokenizer_mode"]  # type: ignore[index]
    if used := [name for name, value in options.items() if value]:
        raise CheckpointError(
            f"{files.folder / 'open_clip_config.json'}: {', '.join(used)}: such tokenizers are not "
            "known here"
        )
    if clean is not None and clean not in cleaning.OPEN_CLIP:
        raise CheckpointError(
            f"{files.folder / 'open_clip_config.json'}: clean = {clean!r}: known are "
            f"{', '.join(cleaning.OPEN_CLIP)}"
        )
    return known.clean if clean is None else cleaning.OPEN_CLIP[clean]


def _length(files: _Files, usual: int) -> int:
    if files.open_clip is not None:
        stated = files.open_clip.get("context_length", 77)
    else:
        text = files.model.get("text_config")
        stated = text.get("max_position_embeddings") if isinstance(text, dict) else None
        if stated is None:
            most = files.tokenizer.get("model_max_length", usual)
            stated = most if isinstance(most, int) and most <= LONGEST else usual
    if not isinstance(stated, int):
        raise ConfigError(f"{files.folder}: context length {stated!r}: expected a whole number")
    return stated


def _named(token: Any) -> str:
    """Of a token, which may stand there with how it is matched."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
