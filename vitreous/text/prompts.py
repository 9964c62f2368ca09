"""Templates: a class's word stands in a sentence, as captions have it (Radford et al. 2021, 3.1.4).

`photo` is our own set of short sentences, for photographs of all kinds. It is not the list of 80
that was tuned for CLIP on ImageNet, which anybody can pass as a file: published numbers were made
with that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitreous.errors import ConfigError, did_you_mean

PLACE = "{}"
"""Where the word goes."""
USUAL = "a photo of a {}."
MOST = 1000
"""Templates in a set."""
MOST_CHARACTERS = 1000
_FOLDER = Path(__file__).with_name("templates")
_SETS = {"photo": "photo", "imagenet": "photo"}
"""Names of sets and their files. "imagenet" is what others call such a set."""


@dataclass(frozen=True)
class Templates:
    """Sentences, each with one place for a word."""

    texts: tuple[str, ...]
    note: str = ""
    """What the user should know about them."""

    def __post_init__(self) -> None:
        if not 0 < len(self.texts) <= MOST:
            raise ConfigError(f"templates: {len(self.texts):,} of them; expected 1 to {MOST:,}")
        for text in self.texts:
            if text.count(PLACE) != 1:
                what = "more than one {}" if PLACE in text else "no {}"
                raise ConfigError(
                    f"template {text[:80]!r} has {what}: expected one, where the word goes, as in "
                    f"{USUAL!r}"
                )
            if len(text) > MOST_CHARACTERS:
                raise ConfigError(f"template {text[:80]!r} … has {len(text):,} characters")
        twice = next((text for text in self.texts if self.texts.count(text) > 1), None)
        if twice is not None:
            raise ConfigError(f"template {twice!r} is there twice")

    def __len__(self) -> int:
        return len(self.texts)

    def filled(self, word: str) -> list[str]:
        """One prompt per template."""
        return [text.replace(PLACE, word) for text in self.texts]


def templates(given: str | Path | Sequence[str] = USUAL) -> Templates:
    """A template, several of them, the name of a set (photo), "{}" for the words alone, or a .txt
    file with one template per line."""
    if isinstance(given, str | Path):
        return _one(given)
    values = [*given]
    if not all(isinstance(each, str) for each in values):
        raise ConfigError(f"templates = {values!r}: expected texts")
    return _one(values[0]) if len(values) == 1 else Templates(tuple(values))


def _one(given: str | Path) -> Templates:
    if isinstance(given, str) and PLACE in given:
        return Templates((given,))
    if isinstance(given, str) and given in _SETS:
        texts = _lines(_FOLDER / f"{_SETS[given]}.txt")
        note = ""
        if given == "imagenet":
            note = (
                f"templates = 'imagenet' are our own {len(texts)}, called 'photo', not the 80 of "
                "CLIP's authors: for numbers as published, pass theirs as a file"
            )
        return Templates(texts, note)
    if isinstance(given, Path) or given.endswith(".txt"):
        return Templates(_lines(Path(given)))
    hint = did_you_mean(given, _SETS) or f": or a set ({', '.join(_SETS)}), or a .txt file"
    raise ConfigError(
        f"template {given[:80]!r} has no {{}}: expected a sentence with {{}} where the word goes, "
        f"as in {USUAL!r}{hint}"
    )


def _lines(path: Path) -> tuple[str, ...]:
    """Those of a file that are not empty."""
    try:
        if path.stat().st_size > MOST * MOST_CHARACTERS:
            raise ConfigError(f"{path}: too large for a file of templates, one per line")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a readable file of templates: {error}") from None
    return tuple(line.strip() for line in text.splitlines() if line.strip())
