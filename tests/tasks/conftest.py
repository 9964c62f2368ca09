"""A detector with random weights, data in which some of what it finds is true, and commands."""

import pytest
from tasks.detect_runs import make_run, write_coco, write_photos

from vitreous.cli.main import main


@pytest.fixture(scope="session")
def detector(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="session")
def coco(detector, tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp("data"), detector)


@pytest.fixture
def command(capsys):
    """Runs a command, given as words; what it has printed, and said on stderr."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main([*map(str, words)]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def printed(command):
    return lambda *words: command(*words).out


@pytest.fixture
def refused(command):
    """The error of a command that cannot be done."""
    return lambda *words: command(*words, code=2).err
