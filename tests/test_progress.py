"""Progress where there is no terminal: a line now and then."""

import re

import pytest

from vitreous import progress
from vitreous.progress import CountProgress


@pytest.mark.parametrize(
    ("total", "words"),
    [
        (40, r"4 of 40 frames, [\d.]+ frames/s, \d+ s to go"),
        (None, r"4 frames, [\d.]+ frames/s"),
        (3, r"4 of 3 frames, [\d.]+ frames/s, 0 s to go"),  # a header that was wrong
    ],
)
def test_lines(monkeypatch, total, words):
    monkeypatch.setattr(progress, "LOG_SECONDS", -1)
    for visible in (True, False):
        lines = []
        with CountProgress(total, lines.append, "frames", visible=visible) as shown:
            shown.add(4)
        assert len(lines) == visible
        assert all(re.fullmatch(words, line) for line in lines)
    assert shown.rate > 0


def test_not_too_many():
    lines = []
    with CountProgress(None, lines.append, visible=True) as shown:
        for _ in range(100):
            shown.add(1)
    assert not lines
