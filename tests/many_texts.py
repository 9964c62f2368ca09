"""Ten thousand texts as people, files and accidents make them."""

import random
import unicodedata

PARTS = [
    *("a photo of a cat", "Two DOGS", "café", "cafe\u0301", "naïve", "Zürich", "ΑΒΓ", "İstanbul"),
    *(
        "straße",
        "ﬁsh",
        "ＡＢＣ１２",
        "“quoted”",
        "it's",
        "IT'S",
        "don’t",
        "I'll",
        "you've",
        "we're",
    ),
    *("一只猫在草地上", "猫", "犬の写真", "고양이", "قطة", "חתול", "кошка", "बिल्ली", "แมว"),
    *("😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "schÃ¶n", "â€™", "&amp;", "&lt;b&gt;", "&amp;amp;"),
    *(
        "&#39;",
        "&eacute;",
        "&nbsp;",
        "<br>",
        "<|endoftext",
        "</s",
        "___",
        "snake_case",
        "CamelCase",
    ),
    *("3.14", "1234567890", "½", "①", "ⅷ", "²", "№", "€", "™", "...", "!!!", "?!", "-", "—", "/"),
    *("\\", "#tag", "@you", "{}", "{0}", "%s", "\t", "\n", "\r\n", "\x00", "\x07", "\x1b[31m"),
    *("\x7f", "\u200b", "\u00a0", "\u3000", "\u2028", "\ufeff", "\u00ad", "\u202e", "▁", "Ġ"),
    *("</w>", "ſ", "Å", "\ufffd", "𝒳", "𠮷", "ǅ", "ŉ", "  ", "   "),
]
SPECIAL = ["", " ", "\n\t ", "a", "A", "x" * 500, "word " * 200, "猫" * 200, "😀" * 100]


def many_texts(count=10_000, seed=0, *, parts=PARTS):
    """Half of them of parts, a third of characters, the rest of English letters; the same each
    time."""
    random_ = random.Random(seed)
    texts = [*SPECIAL]
    while len(texts) < count:
        kind = random_.random()
        if kind < 0.3:
            texts.append("".join(_character(random_) for _ in range(random_.randrange(1, 40))))
        elif kind < 0.8:
            between = random_.choice([" ", "", "  "])
            texts.append(between.join(random_.choices(parts, k=random_.randrange(1, 12))))
        else:
            texts.append(" ".join(_letters(random_) for _ in range(random_.randrange(1, 60))))
    return texts


def _letters(random_):
    return "".join(random_.choices("abcdefghijklmnopqrstuvwxyzABC'-", k=random_.randrange(1, 10)))


def _character(random_):
    """Assigned in the Unicode of this Python, which is older than that of the libraries."""
    first, last = random_.choices(
        [(32, 127), (0x80, 0x800), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF), (0, 32), (0, 0x110000)],
        [10, 4, 3, 1, 1, 1],
    )[0]
    while True:
        character = chr(random_.randrange(first, last))
        if unicodedata.category(character) not in ("Cn", "Cs", "Co"):
            return character
