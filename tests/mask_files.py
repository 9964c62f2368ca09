"""Images with masks for tests, good ones and every kind of bad one."""

import numpy as np
import picture_files
import tifffile
from PIL import Image

RANDOM = np.random.default_rng(0)
NAMES = {"0": "sky", "3": "road", "255": None}


def image(path, size=(6, 8), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path, **options)


def mask(path, values=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    if values is None:
        values = RANDOM.choice(np.array([0, 3, 255], np.uint8), (6, 8))
    Image.fromarray(values).save(path, **options)
    return values


def pairs(root, *both):
    """Images and masks by their paths; gives what the last mask has."""
    for image_path, mask_path in both:
        image(root / image_path)
        values = mask(root / mask_path)
    return values


def bad_masks(folder):
    """Each bad mask, as val/masks/NAME.png, and what must be said of it."""
    good = mask(folder / "good.png")
    colour = np.stack([good, good // 2, good], -1)
    gray = np.stack([good] * 3, -1)
    clear = np.dstack([colour, np.full((6, 8), 254, np.uint8)])
    writers = {
        "size.png": (lambda p: mask(p, good[:, 1:]), r"is 6x7 \(height x width\), but its image "),
        "turned.png": (lambda p: mask(p, good.T.copy()), r"is 8x6 \(.*\), but .*turned.* is 6x8"),
        "values.png": (
            lambda p: mask(p, np.full((6, 8), 9, np.uint8)),
            r"neither a class nor ignored: 9 \(48 pixels\).*\{\"9\": null\}",
        ),
        "many.png": (
            lambda p: mask(p, np.arange(48, dtype=np.uint16).reshape(6, 8) + 300),
            r"300 \(1 pixels\), .* and 42 more",
        ),
        "colour.png": (lambda p: mask(p, colour), r"is in colour, where the number .* is expected"),
        "gray.png": (lambda p: mask(p, gray), "is in colour .of which all are gray: one channel"),
        "clear.png": (lambda p: mask(p, clear), "is transparent in places"),
        "lossy.png": (lambda p: mask(p, good, format="JPEG"), "is a JPEG, which changes"),
        "webp.png": (lambda p: mask(p, good, format="WEBP"), "is a WEBP, which changes"),
        "lossy-tiff.png": (
            lambda p: mask(p, colour, format="TIFF", compression="jpeg"),
            "is a TIFF with lossy compression",
        ),
        "part.png": (
            lambda p: tifffile.imwrite(p, np.full((6, 8), 0.5, np.float32)),
            "has values that are not whole numbers from 0 to 65535",
        ),
        "nan.png": (lambda p: tifffile.imwrite(p, np.full((6, 8), np.nan)), "not whole numbers"),
        "minus.png": (
            lambda p: tifffile.imwrite(p, np.full((6, 8), -1, np.int32)),
            "not whole num",
        ),
        "channels.png": (
            lambda p: tifffile.imwrite(p, np.zeros((5, 6, 8), np.uint8)),
            "has 5 channels of uint8: a mask has one channel",
        ),
        "deep.png": (
            lambda p: p.write_bytes(picture_files.png(np.zeros((6, 8, 3)))),
            "has 16 bits for each colour",
        ),
        "cut.png": (
            lambda p: p.write_bytes((folder / "good.png").read_bytes()[:-30]),
            "is cut short|is damaged",
        ),
        "empty.png": (lambda p: p.write_bytes(b""), "the file is empty"),
        "page.png": (lambda p: p.write_text("<html>"), "is an HTML page"),
        "bomb.png": (lambda p: p.write_bytes(picture_files.bomb(9000, 9000)), "too many pixels"),
        "gone.png": (lambda p: p.symlink_to(p.with_name("nowhere.png")), "is a link to a file"),
    }
    for name, (write, _) in writers.items():
        write(folder / name)
    (folder / "good.png").unlink()
    return {name: what for name, (_, what) in writers.items()}
