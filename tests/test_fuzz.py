"""A small part of `tests/fuzz.py`: damaged files end in an answer or in a VitreousError."""

import pytest
from fuzz import Fuzz


@pytest.mark.parametrize(
    ("kind", "cases"),
    [("checkpoints", 60), ("images", 40), ("annotations", 40), ("exports", 40), ("hostile", 40)],
)
def test_damaged_files(tmp_path, monkeypatch, kind, cases):
    """`python tests/fuzz.py --only KIND NUMBER` repeats one."""
    monkeypatch.chdir(tmp_path)
    fuzz = Fuzz(kind, tmp_path / kind)
    failures = [failure for number in range(cases) if (failure := fuzz.run(number))]
    assert not failures, "\n".join(failures)
    assert fuzz.refused
