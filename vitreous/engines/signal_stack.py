"""OpenVINO takes away the memory that signal handlers run on; here a thread gets it back.

When OpenVINO loads what computes on CPUs, it gives the calling thread another stack for signal
handlers, and frees that memory when the last user of it goes: also if that is in another thread, or
if a second one, which remembers the first one's, goes later. Then the next signal that Python
handles (Ctrl-C, SIGTERM, the end of a process that loaded data) ends the process with a
segmentation fault, without a word.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _Stack(ctypes.Structure):
    """stack_t of <signal.h>, on Linux."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def keep_signal_stack() -> Iterator[None]:
    """Behind it, this thread handles signals on the memory that it had before."""
    if sys.platform != "linux":
        yield
        return
    library, before = ctypes.CDLL(None), _Stack()
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)
