"""What pre-training without labels is worth where labels are few.

RUN is a folder of `vitreous pretrain` on the same images, with none of their labels. For each seed,
a few images of each class are drawn. Four models learn from them, one after the other:

- RUN, fine-tuned by `vitreous train --weights RUN`, with the options in OPTIONS;
- the same model with random weights in the same fine-tuning: RUN with its weights drawn anew;
- the same model from scratch, with what `vitreous train --model` chooses for that;
- what `vitreous train` chooses by itself.

All are measured on the test images.

    vitreous pretrain /usr/share/datasets/fashion-mnist --epochs 2 --out runs/pre
    python examples/few_labels.py /usr/share/datasets/fashion-mnist runs/pre --seeds 0 1 2
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image
from safetensors.torch import save_file

from vitreous.data.formats import open_source
from vitreous.data.source import Source
from vitreous.run_folder import Run

OPTIONS = ["--optimizer", "muon", "--lr", "2e-3", "--layer-decay", "1", "--crop", "shift"]
"""Of fine-tuning: a small ViT, pre-trained for minutes, is to change in all of its layers."""


def write(source: Source, numbers: list[int], split: str, folder: Path) -> None:
    """Some images of a split as class folders."""
    samples = source.splits[split]
    for number in numbers:
        sample = samples[number]
        file = folder / split / source.labels.names[sample.target] / f"{number:05d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = source.image(sample)
        Image.fromarray(np.asarray(pixels).squeeze()).save(file)


def drawn(source: Source, count: int, seed: int) -> list[int]:
    """Training images, `count` of each class."""
    of_class = defaultdict(list)
    for number in np.random.default_rng(seed).permutation(len(source.splits["train"])).tolist():
        of_class[source.splits["train"][number].target].append(number)
    return [number for numbers in of_class.values() for number in numbers[:count]]


def with_random_weights(run: Path, seed: int, out: Path) -> Path:
    """The same run folder; its weights as if it had never been trained."""
    shutil.copytree(run, out, ignore=shutil.ignore_patterns("checkpoints"))
    config = Run(run).read_config()
    torch.manual_seed(seed)
    model = config.create()
    save_file(model.state_dict(), out / "model.safetensors")
    return out


def accuracy(folder: Path, out: Path, seed: int, options: list[str]) -> float:
    words = ["train", str(folder), "--out", str(out), "--seed", str(seed), "--json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "vitreous", *words],
        env=os.environ,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: float = json.loads(done.stdout)["accuracy"]
    return found


def main(
    data: tyro.conf.Positional[str],
    run: tyro.conf.Positional[Path],
    seeds: tuple[int, ...] = (0,),
    count: int = 60,
    epochs: int = 40,
    arms: tuple[str, ...] = ("pre-trained", "random", "from scratch", "default"),
) -> None:
    """Args:
    data: The images that RUN was pre-trained on, with their labels and a test split.
    run: A pre-trained run folder.
    seeds: One comparison for each.
    count: Images of each class to learn from.
    epochs: For every model.
    arms: Which of the four models.
    """
    source = open_source(data, val_fraction=0)
    inside = Run(run).read_config().config
    fields = [f"--set={name}={json.dumps(v)}" for name, v in inside["encoder_fields"].items()]
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    with tempfile.TemporaryDirectory() as kept:
        few = Path(kept, "few")
        write(source, list(range(len(source.splits["test"]))), "test", few)
        for seed in seeds:
            shutil.rmtree(few / "train", ignore_errors=True)
            write(source, drawn(source, count, seed), "train", few)
            random = with_random_weights(run, seed, Path(kept, f"untrained-{seed}"))
            options = {
                "pre-trained": ["--weights", str(run), *OPTIONS],
                "random": ["--weights", str(random), *OPTIONS],
                "from scratch": ["--model", inside["encoder"], *fields],
                "default": [],
            }
            for arm in arms:
                out = Path(kept, f"{arm}-{seed}")
                more = [*options[arm], "--epochs", str(epochs), "--flip", "True"]
                found[arm].append(accuracy(few, out, seed, more))
                print(f"seed {seed}, {arm}: {found[arm][-1]:.4f} on test", flush=True)
    for arm, values in found.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{arm:<14} {statistics.mean(values):.4f} ± {spread:.4f}")


if __name__ == "__main__":
    tyro.cli(main)
