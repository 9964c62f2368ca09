"""A detector with random weights, and data in which some of what it finds is true."""

import pytest
from tasks.detect_runs import make_run, write_coco, write_photos


@pytest.fixture(scope="session")
def detector(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="session")
def coco(detector, tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp("data"), detector)
