"""What pre-training without labels is worth where labels are few.

RUN is a folder of `vitreous pretrain` on the same images, with none of their labels. For each seed,
a few images of each class are drawn. Four models learn from them, one after the other:

- RUN, fine-tuned by `vitreous train --weights RUN`;
- the same model with random weights in the same fine-tuning: RUN with its weights drawn anew;
- the same model from scratch, with what `vitreous train --model` chooses for that;
- what `vitreous train` chooses by itself.

All are measured on the test images. The fine-tuning of the first two is chosen before, from
CANDIDATES, by the mean of both on another draw and on training images that nothing else uses: no
test image has a say, and neither of the two.

    vitreous pretrain /usr/share/datasets/fashion-mnist --epochs 2 --out runs/pre
    python examples/few_labels.py /usr/share/datasets/fashion-mnist runs/pre --seeds 0 1 2
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image

from vitreous.cli.main import main as vitreous
from vitreous.data.formats import open_source
from vitreous.data.source import Source
from vitreous.run_folder import Run

CANDIDATES = {
    "AdamW 1e-3, layer decay 0.75": ["--lr", "1e-3", "--layer-decay", "0.75"],
    "AdamW 1e-3": ["--lr", "1e-3", "--layer-decay", "1"],
    "Muon 2e-3": ["--optimizer", "muon", "--lr", "2e-3", "--layer-decay", "1"],
    "Muon 6e-3": ["--optimizer", "muon", "--lr", "6e-3", "--layer-decay", "1"],
}
"""Options of fine-tuning."""
CHOSEN_BY = 2000
"""Training images that choose among them,"""
CHOSEN_WITH = 1000
"""and the seed of that draw."""


def write(source: Source, split: str, numbers: Sequence[int], folder: Path, called: str) -> None:
    """Some images of a split as class folders, as the split `called`."""
    samples = source.splits[split]
    for number in numbers:
        sample = samples[number]
        file = folder / called / source.labels.names[sample.target] / f"{number:05d}.png"
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
    Run(out).write_weights(model, model.state_dict())
    return out


def accuracy(folder: Path, out: Path, seed: int, options: list[str]) -> float:
    words = ["train", str(folder), "--out", str(out), "--seed", str(seed), "--json", *options]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert vitreous(words) == 0
    found: float = json.loads(printed.getvalue())["accuracy"]
    return found


def tried(
    source: Source,
    weights: Path,
    candidates: Sequence[str],
    count: int,
    options: list[str],
    kept: Path,
) -> dict[str, float]:
    """How well `weights` learn with each candidate."""
    few = kept / "to-choose-by"
    if not few.exists():
        learnt = drawn(source, count, CHOSEN_WITH)
        others = sorted(set(range(len(source.splits["train"]))) - set(learnt))
        asked = np.random.default_rng(CHOSEN_WITH).permutation(others)[:CHOSEN_BY]
        write(source, "train", learnt, few, "train")
        write(source, "train", asked.tolist(), few, "test")
    found = {}
    for name in candidates:
        words = ["--weights", str(weights), *CANDIDATES[name], *options]
        found[name] = accuracy(few, kept / f"{weights.name} {name}", CHOSEN_WITH, words)
        print(f"  {name}: {found[name]:.4f} on other training images", flush=True)
    return found


def main(
    data: tyro.conf.Positional[str],
    run: tyro.conf.Positional[Path],
    seeds: tuple[int, ...] = (0,),
    count: int = 60,
    epochs: int = 40,
    arms: tuple[str, ...] = ("pre-trained", "random", "from scratch", "default"),
    candidates: tuple[str, ...] = tuple(CANDIDATES),
) -> None:
    """Args:
    data: The images that RUN was pre-trained on, with their labels and a test split.
    run: A pre-trained run folder.
    seeds: One comparison for each.
    count: Images of each class to learn from.
    epochs: For every model.
    arms: Which of the four models.
    candidates: Ways of fine-tuning to choose from.
    """
    source = open_source(data, val_fraction=0)
    inside = Run(run).read_config().config
    fields = [f"--set={name}={json.dumps(v)}" for name, v in inside["encoder_fields"].items()]
    common = ["--epochs", str(epochs), "--flip", "True", "--crop", "shift"]
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    with tempfile.TemporaryDirectory() as folder:
        kept, few = Path(folder), Path(folder, "few")
        write(source, "test", range(len(source.splits["test"])), few, "test")
        untrained = {seed: with_random_weights(run, seed, kept / f"{seed}") for seed in seeds}
        starts = {"pre-trained": run, "random": untrained[seeds[0]]}
        scores = []
        for arm in sorted(set(arms) & set(starts)):
            print(f"how to fine-tune, {arm}:", flush=True)
            scores.append(tried(source, starts[arm], candidates, count, common, kept))
        best = max(candidates, key=lambda name: sum(score[name] for score in scores))
        if scores:
            print(f"chosen: {best}", flush=True)
        for seed in seeds:
            shutil.rmtree(few / "train", ignore_errors=True)
            write(source, "train", drawn(source, count, seed), few, "train")
            words = {
                "pre-trained": ["--weights", str(run), *CANDIDATES[best]],
                "random": ["--weights", str(untrained[seed]), *CANDIDATES[best]],
                "from scratch": ["--model", inside["encoder"], *fields],
                "default": [],
            }
            for arm in arms:
                out = kept / f"{arm}-{seed}"
                found[arm].append(accuracy(few, out, seed, [*words[arm], *common]))
                print(f"seed {seed}, {arm}: {found[arm][-1]:.4f} on test", flush=True)
    for arm, values in found.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{arm:<14} {statistics.mean(values):.4f} ± {spread:.4f}")


if __name__ == "__main__":
    tyro.cli(main)
