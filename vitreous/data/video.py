"""The frames of videos, cameras and network streams, one after the other, by PyAV.

Frames are upright RGB, (3, h, w), uint8, whatever the video's colours, depth and rotation are. They
keep their number and time, so that nothing depends on a constant frame rate.

Files may come from anywhere, so only some formats are tried, and none that names other files or
addresses (playlists). Frames are limited in size like images.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from vitreous.data.decode.images import EXTENSIONS as IMAGES
from vitreous.data.decode.images import shown
from vitreous.data.decode.pixels import MAX_PIXELS, check_pixels
from vitreous.errors import ConfigError, DataError

EXTENSIONS = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts"),
    *(".wmv", ".flv", ".3gp", ".3g2", ".ogv", ".mxf"),
)
IN_FOLDERS = tuple(ending for ending in EXTENSIONS if ending not in (".ts", ".mts"))
"""Those of which files in a folder are videos; files of TypeScript are called like the others."""
FORMATS = "mov,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,asf,ogg,mxf"
"""What FFmpeg calls those formats."""
FILES = ("http", "https")
LIVE = ("rtsp", "rtsps", "rtmp", "rtmps", "udp", "rtp", "tcp")
"""Schemes of addresses; what comes over the latter does not wait for its reader."""
PATIENCE = 10
"""Seconds until a stream that sends nothing is given up."""
USUAL_RATE = 25.0
"""Frames per second where nothing tells."""


class Frame(NamedTuple):
    """One picture of a video."""

    image: Tensor
    """(3, h, w), uint8"""
    number: int
    """Its place in the video, from 0."""
    seconds: float
    """Its time, from that of the first frame."""
    name: str
    """What errors about it begin with."""


def pyav() -> Any:
    """PyAV, imported where it is needed."""
    try:
        import av
    except ImportError:
        raise ConfigError(
            "videos are read and written by PyAV, which is not installed: pip install "
            "'vitreous[video]'"
        ) from None
    return av


def is_video(name: str) -> bool:
    """Whether a name is that of a video file, a stream's address, or the number of a camera. The
    address of a picture (https://…/a.png) is none."""
    if is_address(name):
        file = urlsplit(name).path.lower()
        return urlsplit(name).scheme.lower() not in FILES or not file.endswith(IMAGES)
    return is_camera(name) or name.lower().endswith(EXTENSIONS)


def is_address(name: str) -> bool:
    return name.partition("://")[0].lower() in (*FILES, *LIVE)


def is_camera(name: str) -> bool:
    """A file of that name is meant if there is one."""
    return re.fullmatch(r"\d{1,3}", name) is not None and not os.path.lexists(name)


def video_name(source: str | Path) -> str:
    """What a video is called in messages and results."""
    text = os.fspath(source)
    if is_address(text):
        return re.sub(r"(?<=://)[^/@]*@", "", text)  # without a password
    return f"camera {text}" if is_camera(text) else shown(text)


class Video:
    """A video file, a camera (`"0"`) or a stream (`"rtsp://…"`), open for one reading:
    `with Video("clip.mp4") as video: for frame in video: …`

    `every` gives only each so many-th frame, from the first. Of a camera or a live stream, the
    reader is always given the newest frame; what has come while it was busy is left out.
    """

    def __init__(self, source: str | Path, every: int = 1, *, max_pixels: int = MAX_PIXELS) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"every = {every!r}: expected a whole number of at least 1")
        self.source, self.every, self.max_pixels = source, every, max_pixels
        text = os.fspath(source)
        camera, address = is_camera(text), is_address(text)
        self.live = camera or (address and urlsplit(text).scheme.lower() in LIVE)
        self.name = video_name(source)
        self.problem: DataError | None = None
        """Why the video has ended before its end, if it has; known behind its last frame."""
        self._av = pyav()
        self._stopped = threading.Event()
        self._reader: threading.Thread | None = None
        self._container = self._open(text, camera=camera, address=address)
        if not self._container.streams.video:
            self._container.close()
            raise DataError(f"{self.name}: has no pictures, only sound or data")
        self._stream = self._container.streams.video[0]
        if not self.live:
            self._stream.thread_type = "AUTO"
        self.rate = float(self._stream.average_rate or 0) or None
        """Frames per second, in the mean, if known."""

    @property
    def total(self) -> int | None:
        """How many frames there will be, as far as the header tells."""
        frames = self._stream.frames
        if not frames and self.rate and (length := self._length()):
            frames = round(length[0] * self.rate)
        return -(-frames // self.every) if frames and not self.live else None

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        if self._reader is None:
            self._container.close()
        else:  # which closes it, when it is done with the packet that it waits for
            self._reader.join(1.0)

    def __iter__(self) -> Iterator[Frame]:
        return self._newest() if self.live else self._frames()

    def _open(self, text: str, *, camera: bool, address: bool) -> Any:
        av = self._av
        options: dict[str, Any] = {}
        if camera:
            if not sys.platform.startswith("linux"):
                raise ConfigError(f"{self.name}: cameras can be read on Linux alone: give a video")
            text, options = f"/dev/video{int(text)}", {"format": "v4l2"}
        elif not address:
            if os.path.isdir(text) or not os.path.exists(text):
                what = (
                    "is a folder, not a video" if os.path.isdir(text) else "there is no such file"
                )
                raise DataError(f"{self.name}: {what}")
            safe = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
            # a name like `a:b.mp4` is not to be taken for an address
            text, options = os.path.abspath(text), {"container_options": safe}
        try:
            return av.open(text, timeout=(PATIENCE, PATIENCE), **options)
        except av.FFmpegError as error:
            raise DataError(f"{self.name}: {self._why(error, text, camera, address)}") from None

    def _why(self, error: Any, text: str, camera: bool, address: bool) -> str:
        """What is wrong with something that cannot be opened."""
        if camera and isinstance(error, FileNotFoundError):
            others = sorted(path.name for path in Path("/dev").glob("video[0-9]*"))
            there = f"there is {', '.join(others)}" if others else "no camera is connected"
            return f"there is no {text}: {there}"
        if isinstance(error, self._av.error.ExitError):
            return f"does not answer: nothing has come for {PATIENCE} seconds"
        if camera or address or isinstance(error, OSError):
            return f"cannot be opened: {error.strerror}"
        with open(text, "rb") as file:
            head = file.read(12)
        if not head:
            return "the file is empty"
        if head[4:8] == b"ftyp":
            return "is damaged or cut short: its index is missing, as if recording was interrupted"
        return "is not a video that can be read (MP4, MOV, MKV, WebM, AVI, MPEG, WMV, FLV, OGV)"

    def _frames(self) -> Iterator[Frame]:
        """Frames in their order. What is damaged ends the video or is left out: see `problem`."""
        number, first, end = 0, None, 0.0
        for frame in self._decoded():
            seconds = frame.time
            if seconds is None:  # in a stream without times
                seconds = number / (self.rate or USUAL_RATE)
            first = seconds if first is None else first
            if number % self.every == 0:
                name = f"{self.name}, frame {number}"
                try:
                    check_pixels(name, frame.width, frame.height, self.max_pixels)
                except DataError as error:
                    self.problem = error
                    return
                yield Frame(_upright(frame), number, seconds - first, name)
            number += 1
            end = seconds - first + 1 / (self.rate or USUAL_RATE)
            if self._stopped.is_set():
                return
        if self.problem is None and not self.live:
            self.problem = self._cut_short(number, end)

    def _decoded(self) -> Iterator[Any]:
        damaged = 0
        try:
            for packet in self._container.demux(self._stream):
                try:
                    yield from packet.decode()
                except self._av.error.InvalidDataError:
                    damaged += 1
        except self._av.error.ExitError:
            self.problem = DataError(
                f"{self.name}: has stopped: nothing has come for {PATIENCE} seconds"
            )
        except self._av.FFmpegError as error:
            self.problem = DataError(f"{self.name}: cannot be read further: {error.strerror}")
        if damaged and self.problem is None:
            self.problem = DataError(
                f"{self.name}: is damaged: {damaged} of its parts could not be decoded and were "
                "left out"
            )

    def _length(self) -> tuple[float, float] | None:
        """How long it is by its header, and how exact that is, in seconds."""
        if self._stream.duration:
            length = float(self._stream.duration * self._stream.time_base)
            return length, max(0.5, 0.02 * length)
        if self._container.duration:  # of sound, too
            length = self._container.duration / self._av.time_base
            return length, max(2.0, 0.05 * length)
        return None

    def _cut_short(self, frames: int, end: float) -> DataError | None:
        """FFmpeg takes the end of a file that was cut off for the end of the video."""
        if not frames:
            return DataError(f"{self.name}: has no frame that can be decoded")
        length = self._length()
        if length is None or end >= length[0] - length[1]:
            return None
        return DataError(
            f"{self.name}: is cut short: {end:.1f} of {length[0]:.1f} seconds could be read"
        )

    def _newest(self) -> Iterator[Frame]:
        """The newest frame, whenever one is asked for; each at most once."""
        arrived = threading.Condition()
        newest: list[Frame] = []
        ended = threading.Event()

        def read() -> None:
            try:
                for frame in self._frames():
                    with arrived:
                        newest[:] = [frame]
                        arrived.notify()
            finally:
                self._container.close()
                ended.set()
                with arrived:
                    arrived.notify()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        while True:
            with arrived:
                # short waits, between which Ctrl-C is noticed
                while not newest and not ended.is_set():
                    arrived.wait(0.2)
                if not newest:
                    return
                frame = newest.pop()
            yield frame


def as_video(source: str | Path | Video, every: int = 1, max_pixels: int = MAX_PIXELS) -> Video:
    """A video by its name, or the one that is given."""
    return source if isinstance(source, Video) else Video(source, every, max_pixels=max_pixels)


def _upright(frame: Any) -> Tensor:
    """A frame of PyAV as (3, h, w), uint8."""
    pixels = frame.to_ndarray(format="rgb24")
    turned = np.rot90(pixels, round(frame.rotation / 90)).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(turned))
