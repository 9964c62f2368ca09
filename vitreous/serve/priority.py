"""Threads that compute give way to the one that answers.

A server must refuse at once what it cannot do, and it does so on one thread. If all cores compute,
the system lets that thread wait for its turn, tens of milliseconds; with a lower priority of the
others it does not.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

NICE = 5
"""Of 19; a thread with it gets a third of the time of one without, if both want the same core."""


def give_way() -> None:
    """Lowers the priority of this thread, and of those that it will start (torch's, OpenVINO's).
    Only Linux has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def computing_threads(count: int, name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=give_way)
