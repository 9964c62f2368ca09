"""One training step of ViT-Ti/16: ours against a plain loop over timm's model with the same batch,
interleaved. Timings are noisy, the ratio is less so.

python examples/training_speed.py [--batch N] [--rounds N]
"""

from __future__ import annotations

import tempfile
import time

import timm
import torch
import tyro

from vitreous.data.loader import train_batches
from vitreous.run_folder import Run
from vitreous.train.distributed import joined
from vitreous.train.recipe import Recipe
from vitreous.train.run import prepare


def main(batch: int = 16, rounds: int = 8) -> None:
    """Args:
    batch: Images per step.
    rounds: Steps of which the fastest counts, after one to warm up.
    """
    recipe = Recipe(
        data="shapes",
        model="vit-ti/16",
        image_size=(224, 224),
        channels=3,
        batch=batch,
        epochs=1,
        lr=1e-3,
        ema=0.0,
        workers=0,
        crop="none",
        flip=False,
        mean=(0.5,),
        std=(0.5,),
    )
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder, joined("cpu") as world:
        trainer, _ = prepare(recipe, Run(folder), world, lambda text: None, lambda event: None)
        trainer.order.start, trainer.order.stop = 0, 1
        given = next(iter(train_batches(trainer.train_set, trainer.order, 0)))
        labels, classes = given.targets.first, len(trainer.task.labels)
        model = timm.create_model("vit_tiny_patch16_224", num_classes=classes)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
        for step in range(1 + rounds):
            began = time.perf_counter()
            trainer.step(step, given)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            optimizer.zero_grad()
            outputs = model(given.images)
            loss = torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            theirs.append(time.perf_counter() - began)
    best = min(ours[1:]), min(theirs[1:])
    print(f"ours {best[0]:.3f} s, timm {best[1]:.3f} s, ratio {best[0] / best[1]:.2f}")


if __name__ == "__main__":
    tyro.cli(main)
