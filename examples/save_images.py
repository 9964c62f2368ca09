"""Write some test images of built-in data as files, to predict and to explain them.

    python examples/save_images.py handwriting pictures --count 10

The name of each file begins with its class.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from vitreous.data.formats import open_source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="digits, handwriting or shapes")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()
    source = open_source(arguments.data, truth="class")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(source.splits["test"][: arguments.count]):
        pixels = source.image(sample).permute(1, 2, 0).squeeze().numpy()
        name = f"{source.labels.names[sample.target]}-{number}.png"
        Image.fromarray(pixels).save(arguments.folder / name)
    print(f"{arguments.folder}: {arguments.count} images")


if __name__ == "__main__":
    main()
