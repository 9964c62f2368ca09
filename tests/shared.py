"""Commands in this process; and folders that are made once for the whole suite, by the first worker
that asks for them.

Nobody changes them: a test that must takes a copy.
"""

import contextlib
import functools
import io
import os
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock

PLACE = "VITREOUS_TESTS_SHARED"
"""The environment variable that `conftest.py` sets for all workers."""


@functools.cache
def place():
    if PLACE not in os.environ:  # not by pytest
        place.folder = tempfile.TemporaryDirectory()
        os.environ[PLACE] = place.folder.name
    return Path(os.environ[PLACE])


def once(name, make):
    """The folder `name`, which make(folder) fills."""
    path = place() / name
    with FileLock(f"{path}.lock"):
        if not path.exists():
            part = place() / "part" / name
            part.parent.mkdir(exist_ok=True)
            make(part)
            part.rename(path)
    return path


def made_once(name):
    """Of a function that fills a folder: one that returns the folder."""
    return lambda make: functools.cache(lambda: once(name, make))


def run_command(*words):
    """A command as a user gives it, in this process: another one takes seconds to start."""
    from vitreous.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, words)])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def printed(*words):
    """What a command prints."""
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*words):
    """What a command says to a user who must change something."""
    done = run_command(*words)
    assert done.returncode == 2, done.stderr
    return done.stderr
