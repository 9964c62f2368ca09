"""What all tests share: their order, how workers share them, Ctrl-C, and a browser."""

import gc
import os
import shutil
import signal
import tempfile

import pytest
from shared import PLACE
from xdist.scheduler import LoadFileScheduling

LONG = (
    *("test_docs.py", "running/", "train/test_distributed.py", "test_examples.py"),
    *("train/test_resume.py", "train/", "tasks/", "serve/", "parity/"),
)
"""Where most of the time goes; the longest first."""
APART = ("test_docs.py", "test_examples.py")
"""Files whose tests make nothing for each other."""


def pytest_configure(config):
    """A shell that starts the suite in the background has it ignore SIGINT, and every process that
    a test starts and interrupts would inherit that."""
    if PLACE not in os.environ:  # workers have it from the process that starts them
        config.shared = tempfile.TemporaryDirectory()
        os.environ[PLACE] = config.shared.name
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The longest tests first, so that the processes that share them end together."""

    def place(item):
        path = item.path.as_posix()
        return next((i for i, part in enumerate(LONG) if f"tests/{part}" in path), len(LONG))

    items.sort(key=place)


def pytest_collection_finish():
    """Thousands of tests and their modules last as long as the process: the garbage collector need
    not look through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_living_page(request, monkeypatch):
    """The page that `explain` writes takes seconds: only tests that ask for `living` have it."""
    if "living" not in request.fixturenames:
        name = "vitreous.pages.explanation_files.write_living"
        monkeypatch.setattr(name, lambda *_: [])


@pytest.fixture
def living():
    """`explain` writes its living page in this test."""


class FileScheduling(LoadFileScheduling):
    """A file stays with one worker, which has what the file made; those in APART are divided."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return nodeid if file.endswith(APART) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="module")
def chromium():
    """Not for the whole session: while it is open, no other event loop runs in this thread."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
