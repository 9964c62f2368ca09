"""One training step: ours against a plain loop over timm's model, same batch, interleaved.

Run it with `.venv/bin/python examples/training_speed.py`; timings are noisy, the ratio is less so.
"""

import tempfile
import time

import timm
import torch

from vitreous.data.loader import Batch, Mixed
from vitreous.run_folder import Run
from vitreous.train.distributed import joined
from vitreous.train.recipe import Recipe
from vitreous.train.run import prepare

BATCH, ROUNDS = 16, 9
recipe = Recipe(
    data="shapes",
    model="vit-ti/16",
    image_size=(224, 224),
    channels=3,
    batch=BATCH,
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
    classes = len(trainer.task.labels)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    images, labels = torch.randn(BATCH, 3, 224, 224), torch.randint(classes, (BATCH,))
    batch = Batch(images, Mixed(labels, labels, torch.ones(BATCH)), ["noise"] * BATCH)
    for step in range(ROUNDS):
        began = time.perf_counter()
        trainer.step(step, batch)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        theirs.append(time.perf_counter() - began)
best = min(ours[1:]), min(theirs[1:])
print(f"ours {best[0]:.3f} s, timm {best[1]:.3f} s, ratio {best[0] / best[1]:.2f}")
