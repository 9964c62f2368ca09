"""What all tests share: their order, and Ctrl-C."""

import signal

LONG = ("train/test_resume.py", "train/test_distributed.py", "test_docs.py", "train/")


def pytest_configure():
    """A shell that starts the suite in the background has it ignore SIGINT, and every process that
    a test starts and interrupts would inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The longest tests first, so that the processes that share them end together."""

    def place(item):
        path = item.path.as_posix()
        return next((i for i, part in enumerate(LONG) if f"tests/{part}" in path), len(LONG))

    items.sort(key=place)
