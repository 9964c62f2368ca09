"""Use an exported classifier without Vitreous and without torch: numpy, Pillow and onnxruntime.

All that it needs stands in the file: the note under the key "vitreous" has the classes' names and
the preprocessing. Pillow resizes as Vitreous does, up to one level of 255.

    vitreous export runs/digits digits.onnx
    python examples/onnx_client.py digits.onnx seven.png
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTERS["nearest"] = Image.Resampling.NEAREST


def fitted(image: Image.Image, preprocess: dict) -> Image.Image:
    """The image at the size of the graph's input."""
    height, width = preprocess["image_size"]
    how = FILTERS[preprocess["interpolation"]]
    if preprocess["resize"] == "square":
        return image.resize((width, height), how)
    shorter = int(min(height, width) / preprocess["crop"] + 1e-9)
    scale = shorter / min(image.size)
    large = (round(image.width * scale), round(image.height * scale))
    image = image if large == image.size else image.resize(large, how)
    left, top = round((large[0] - width) / 2), round((large[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


def main(file: str, *paths: str) -> None:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    note = json.loads(session.get_modelmeta().custom_metadata_map["vitreous"])
    run = json.loads(note["run"])
    names, preprocess = run["labels"]["names"], run["preprocess"]
    mode = {1: "L", 3: "RGB"}[preprocess["channels"]]
    for path in paths:
        image = fitted(Image.open(path).convert(mode), preprocess)
        pixels = np.asarray(image, np.uint8).reshape(image.height, image.width, -1)
        values = pixels.transpose(2, 0, 1)[None]  # (1, c, h, w)
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
