"""OpenVINO at its fastest, for batches of any length.

A graph for any batch is compiled first. A length that comes again gets a graph of its own, whose
shapes are all known; and if it can be divided evenly among the cores, each core computes its own
part of the images, which saves waiting for each other after every layer. Both together are worth
five to ten percent.
"""

from __future__ import annotations

import ctypes
import math
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

OWN_GRAPHS = 2
"""Lengths of batches that get graphs of their own: each holds the weights once more."""
LEAST_PART = 2
"""Images of a part: with fewer, weights are read too often."""


class Requests:
    """A compiled graph that computes batches in so many parts at once. Whoever calls gets requests
    of his own, as one serves one caller at a time."""

    def __init__(self, compiled: Any, parts: int = 1) -> None:
        self.compiled, self.parts = compiled, parts
        self.names = [output.any_name for output in compiled.outputs]
        self._free: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()

    def __call__(self, images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        try:
            requests = self._free.get_nowait()
        except queue.Empty:
            requests = [self.compiled.create_infer_request() for _ in range(self.parts)]
        parts = np.split(images, self.parts)
        for request, part in zip(requests, parts, strict=True):
            request.start_async(part, share_inputs=True)
        for request in requests:
            request.wait()
        found = {
            name: np.concatenate([each.get_output_tensor(number).data for each in requests])
            for number, name in enumerate(self.names)
        }
        self._free.put(requests)  # not after an error: it may be of the request
        return found


class OpenVINO:
    """(b, c, h, w) -> outputs by name."""

    def __init__(
        self, core: Any, model: Any, options: Mapping[str, Any], threads: int, *, tuned: bool = True
    ) -> None:
        """`tuned`: whether lengths that come again get graphs of their own."""
        self.core, self.model = core, model
        self.options = {**options, "INFERENCE_NUM_THREADS": threads}
        self.threads = threads
        self.any_batch = Requests(core.compile_model(model, "CPU", self.options))
        _, *shape = model.input(0).partial_shape
        self.tuned = tuned and all(axis.is_static for axis in shape)
        self._own: dict[int, Requests] = {}
        self._seen: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, images: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        return (self._of(len(images)) if self.tuned else self.any_batch)(images)

    def _of(self, count: int) -> Requests:
        """The graph for batches of this length."""
        with self._lock:
            if count in self._seen and count not in self._own and len(self._own) < OWN_GRAPHS:
                self._own[count] = self._compiled(count)
            self._seen.add(count)
            return self._own.get(count, self.any_batch)

    def _compiled(self, count: int) -> Requests:
        parts = math.gcd(count, self.threads)
        parts = parts if count // parts >= LEAST_PART else 1
        model = self.model.clone()
        _, *shape = model.input(0).partial_shape
        model.reshape([count // parts, *shape])
        options = {**self.options, "NUM_STREAMS": parts}
        return Requests(self.core.compile_model(model, "CPU", options), parts)


class _Stack(ctypes.Structure):
    """stack_t of <signal.h>, on Linux."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def keep_signal_stack() -> Iterator[None]:
    """Behind it, this thread handles signals on the memory that it had before.

    When OpenVINO loads what computes on CPUs, it gives the calling thread another stack for signal
    handlers, and frees that memory when the last user of it goes: also if that is in another
    thread, or if a second one, which remembers the first one's, goes later. Then the next signal
    that Python handles (Ctrl-C, SIGTERM, the end of a process that loaded data) ends the process
    with a segmentation fault, without a word.
    """
    if sys.platform != "linux":
        yield
        return
    library, before = ctypes.CDLL(None), _Stack()
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)
