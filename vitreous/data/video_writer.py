"""A video that is written frame by frame, by PyAV.

It is an MP4 with VP9, which browsers and most players show, encoded by libvpx (BSD). PyAV's wheels
also have x264 and x265, which are under the GPL; they are not used here.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.atomic_write import making_folder, renaming
from vitreous.data.video import pyav

Pixels = NDArray[np.uint8]
"""(h, w, 3)"""
ENCODERS = {
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "crf": "30", "b": "0"},
    "mpeg4": {"qscale": "3"},
}
"""With their options: the first that this PyAV has; FFmpeg's own MPEG-4 is always there."""
TICK = Fraction(1, 60_000)
"""Of a second: frames may have any times."""


class VideoWriter:
    """`with VideoWriter("clip.mp4") as video: video.add(pixels, seconds)`, frame by frame.

    The file is there when this ends, however it ends: what was written until then is a video. An
    OSError says that it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.frames = 0
        self._av = pyav()
        self._whole = ExitStack()
        self._container: Any = None
        self._last = -1

    def __enter__(self) -> VideoWriter:
        return self

    def add(self, pixels: Pixels, seconds: float) -> None:
        """pixels (h, w, 3); those of all frames are brought to the size of the first."""
        pixels = _even(pixels)
        if self._container is None:
            self._open(*pixels.shape[:2])
        stream = self._stream
        if pixels.shape[:2] != (stream.height, stream.width):
            pixels = _resized(pixels, (stream.height, stream.width))
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
        # times grow, also those of a camera whose clock was set
        self._last = frame.pts = max(round(seconds / TICK), self._last + 1)
        frame.time_base = TICK
        self._container.mux(stream.encode(frame))
        self.frames += 1

    def _open(self, height: int, width: int) -> None:
        self._whole.enter_context(making_folder(self.path.parent))
        part = self._whole.enter_context(renaming(self.path))
        available = self._av.codecs_available
        encoder = next(name for name in ENCODERS if name in available)
        self._container = self._av.open(str(part), "w", format="mp4")
        self._stream = self._container.add_stream(encoder, rate=25, options=ENCODERS[encoder])
        self._stream.height, self._stream.width = height, width
        self._stream.pix_fmt = "yuv420p"
        self._stream.codec_context.time_base = TICK

    def __exit__(self, *error: object) -> None:
        if self._container is None:
            return
        try:
            self._container.mux(self._stream.encode())
            self._container.close()
        except BaseException:
            self._whole.__exit__(*sys.exc_info())  # without the file
            raise
        self._whole.close()


def _even(pixels: Pixels) -> Pixels:
    """With the last row or column twice where there is an odd number: colours are stored for two by
    two pixels."""
    odd = [(0, side % 2) for side in pixels.shape[:2]]
    return np.pad(pixels, (*odd, (0, 0)), mode="edge") if any(map(any, odd)) else pixels


def _resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize(size[::-1]))
