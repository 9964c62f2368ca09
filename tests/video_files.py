"""Small videos, written by PyAV itself and not by our writer."""

import io
import socket
import threading
from fractions import Fraction

import av
from bright import scene


def moving(number, height=48, width=96):
    """(h, w, 3): a red rectangle that moves to the right and a green one that moves to the left."""
    left, right = 4 + 2 * number, width - 24 - 2 * number
    return scene(height, width, (0, left, 4, left + 20, 20), (1, right, 28, right + 20, 44))


def write_video(path, frames, codec="mpeg4", rate=25, seconds=None, format=None, **options):
    """`seconds`: the time of each frame, where they are not evenly apart."""
    with av.open(path, "w", format=format, options=options) as container:
        stream = container.add_stream(codec, rate=rate, options={"qscale": "2"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        if seconds is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if seconds is not None:
                frame.pts, frame.time_base = round(1000 * seconds[number]), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def rotated(data):
    """An MP4 that players turn by 90 degrees to the right, as telephones write it."""
    as_it_is = b"".join(n.to_bytes(4, "big") for n in (1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30))
    turned = b"".join(
        (n % (1 << 32)).to_bytes(4, "big") for n in (0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    )
    head, whole, track, rest = *data.partition(as_it_is)[:2], *data.split(as_it_is)[1:3]
    return head + whole + track + turned + rest


def serve_stream(frames):
    """The address of a live stream that sends some frames, then ends."""
    buffer = io.BytesIO()
    write_video(buffer, frames, format="mpegts")
    server = socket.create_server(("127.0.0.1", 0))

    def send():
        with server, server.accept()[0] as connection:
            connection.sendall(buffer.getvalue())

    threading.Thread(target=send, daemon=True).start()
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"
