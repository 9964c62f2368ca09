"""The longest tests first, so that the processes that share them end together."""

LONG = ("train/test_resume.py", "train/test_distributed.py", "test_docs.py", "train/")


def pytest_collection_modifyitems(items):
    def place(item):
        path = item.path.as_posix()
        return next((i for i, part in enumerate(LONG) if f"tests/{part}" in path), len(LONG))

    items.sort(key=place)
