"""Image files that no library at hand writes: built byte by byte, so that the truth is known."""

import struct
import zlib

import numpy as np


def png(pixels: np.ndarray) -> bytes:
    """A PNG of 16 bits, (h, w, c): 1 gray, 2 gray + alpha, 3 colour, 4 colour + alpha."""
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    return png_of((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))


def png_of(*chunks: tuple[bytes, bytes]) -> bytes:
    result = b"\x89PNG\r\n\x1a\n"
    for name, data in chunks:
        check = struct.pack(">I", zlib.crc32(name + data))
        result += struct.pack(">I", len(data)) + name + data + check
    return result


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises far more than the file has."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return png_of((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))


def tiff(
    pixels: np.ndarray,
    *,
    planar: bool = False,
    colour: bool = False,
    extra: int = 0,
    orientation: int = 1,
) -> bytes:
    """A TIFF of any type with (h, w, c): channels side by side, or one plane after the other."""
    height, width, channels = pixels.shape
    planes = [pixels[..., c] for c in range(channels)] if planar else [pixels]
    strips = [np.ascontiguousarray(plane).tobytes() for plane in planes]
    data = b"".join(strips)
    data += b"\0" * (len(data) % 2)
    starts = np.cumsum([8] + [len(strip) for strip in strips[:-1]]).tolist()
    kind = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    base = 3 if colour else 1
    short, long = 3, 4
    entries = [
        (256, long, [width]),
        (257, long, [height]),
        (258, short, [8 * pixels.dtype.itemsize] * channels),
        (259, short, [1]),
        (262, short, [2 if colour else 1]),
        (273, long, starts),
        (274, short, [orientation]),
        (277, short, [channels]),
        (278, long, [height]),
        (279, long, [len(strip) for strip in strips]),
        (284, short, [2 if planar else 1]),
    ]
    if channels > base:
        entries.append((338, short, [extra] * (channels - base)))
    entries.append((339, short, [kind] * channels))
    directory = 8 + len(data)
    beyond = directory + 2 + 12 * len(entries) + 4
    table, rest = struct.pack("<H", len(entries)), b""
    for tag, code, values in entries:
        raw = struct.pack(f"<{len(values)}{'H' if code == short else 'I'}", *values)
        if len(raw) > 4:
            value = struct.pack("<I", beyond + len(rest))
            rest += raw
        else:
            value = raw.ljust(4, b"\0")
        table += struct.pack("<HHI", tag, code, len(values)) + value
    return b"II*\0" + struct.pack("<I", directory) + data + table + struct.pack("<I", 0) + rest
