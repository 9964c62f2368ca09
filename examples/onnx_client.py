"""Use an exported classifier without Vitreous and without torch: numpy, Pillow and onnxruntime.

All that it needs stands in the file: the note under the key "vitreous" has the classes' names and
the preprocessing. Pixels are those that Vitreous sees, to a level of 255.

    vitreous export runs/digits digits.onnx
    python examples/onnx_client.py digits.onnx seven.png
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTERS["nearest"] = Image.Resampling.NEAREST


def fitted(image: Image.Image, preprocess: dict) -> Image.Image:
    """The image at the size of the graph's input."""
    height, width = preprocess["image_size"]
    how = FILTERS[preprocess["interpolation"]]
    if preprocess["resize"] == "square":
        return image.resize((width, height), how)
    # Parts of a pixel are left away: of what is to be covered, and then of the longer side.
    tall, wide = (int(side / preprocess["crop"] + 1e-9) for side in (height, width))
    factor = max(tall / image.height, wide / image.width)
    large = (
        max(wide, int(image.width * factor + 1e-9)),
        max(tall, int(image.height * factor + 1e-9)),
    )
    image = image if large == image.size else image.resize(large, how)
    left, top = round((large[0] - width) / 2), round((large[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


def pixels_of(path: str, preprocess: dict) -> np.ndarray:
    """(1, c, h, w), uint8: an image file as the model sees it, turned as its camera says."""
    image = ImageOps.exif_transpose(Image.open(path))
    if image.has_transparency_data:  # as seen on white
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    mode = {1: "L", 3: "RGB"}[preprocess["channels"]]
    image = fitted(image.convert("RGB").convert(mode), preprocess)
    pixels = np.asarray(image, np.uint8).reshape(image.height, image.width, -1)
    return pixels.transpose(2, 0, 1)[None]


def main(file: str, *paths: str) -> None:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    note = json.loads(session.get_modelmeta().custom_metadata_map["vitreous"])
    run = json.loads(note["run"])
    names, preprocess = run["labels"]["names"], run["preprocess"]
    for path in paths:
        values = pixels_of(path, preprocess)
        if note["input"] == "float32":
            mean, std = (
                np.array(preprocess[name], np.float32).reshape(-1, 1, 1) for name in ("mean", "std")
            )
            values = (values.astype(np.float32) / 255 - mean) / std
        (logits,) = session.run(["logits"], {"images": values})
        scores = np.exp(logits[0] - logits[0].max())
        scores /= scores.sum()
        best = int(scores.argmax())
        print(f"{path}: {names[best]} {scores[best]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
