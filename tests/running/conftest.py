"""The run that most tests here are about."""

import pytest
from runs import vit_run


@pytest.fixture(scope="module")
def run():
    return vit_run()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of one's own."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
