"""Training beside a plain loop over timm's model, and our loader beside timm's and torchvision's.

Each loop has a process of its own, as it would have in real life, and all of them take their steps
in turns; the fastest step of each counts. The loop of timm's model is plain: AdamW, clipping, loss.
Memory is what the process grew by at its peak (resident set size). The loaders read JPEGs that are
cut out of scikit-learn's two photographs, with one worker: random resized crop, flip, normalised.

python examples/training_speed.py [--model vit-s/16] [--batch N] [--rounds N] [--images N]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

KINDS: dict[str, dict[str, object]] = {
    "float32": {"precision": "float32"},
    "bfloat16": {"precision": "bfloat16"},
    "recompute": {"precision": "float32", "recompute": True},
    "checkpoint": {"precision": "float32", "checkpoint": True},
    "compile": {"precision": "float32", "compile": True},
    "bfloat16+recompute": {"precision": "bfloat16", "recompute": True},
}
TIMM = {
    "vit-ti/16": "vit_tiny_patch16_224",
    "vit-s/16": "vit_small_patch16_224",
    "swin-t": "swin_tiny_patch4_window7_224",
}
CLASSES = 6
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = {"256x224": (256, 224), "640x427": (640, 427)}


def resident() -> float:
    """MB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def timm_step(model: str, batch: int) -> Callable[[int], object]:
    import timm

    made = timm.create_model(TIMM[model], num_classes=CLASSES)
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-3, weight_decay=0.05)
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(CLASSES, (batch,))

    def step(number: int) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(made(images), labels, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def our_step(kind: str, model: str, batch: int, folder: str) -> Callable[[int], object]:
    from vitreous.data.loader import train_batches
    from vitreous.engines.world import ALONE
    from vitreous.run_folder import Run
    from vitreous.train.recipe import Recipe
    from vitreous.train.run import prepare

    recipe = Recipe(
        data=f"shapes:{max(4 * batch, 100)}",
        model=model,
        image_size=(224, 224),
        channels=3,
        batch=batch,
        epochs=1,
        lr=1e-3,
        optimizer="adamw",
        ema=0.0,
        workers=0,
        crop="none",
        flip=False,
        mean=(0.5,),
        std=(0.5,),
        **KINDS[kind],  # type: ignore[arg-type]
    )
    trainer, _ = prepare(recipe, Run(folder), ALONE, lambda text: None, lambda event: None)
    trainer.order.start, trainer.order.stop = 0, 1
    given = next(iter(train_batches(trainer.train_set, trainer.order, 0)))
    return lambda number: trainer.step(number, given)


def answer(kind: str, model: str, batch: int, folder: Path) -> None:
    """Does something for each line that comes in; answers with a number and the growth in MB."""
    before = resident()
    with tempfile.TemporaryDirectory() as place:
        do = doing(kind, model, batch, folder, place)
        for number, _ in enumerate(sys.stdin):
            found = do(number)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
            print(f"{found} {peak - before}", flush=True)


def doing(kind: str, model: str, batch: int, folder: Path, place: str) -> Callable[[int], float]:
    """A step, in seconds; or a pass of a loader, in images per second."""
    if kind in LOADERS:
        return lambda number: images_per_second(LOADERS[kind](folder))
    step = timm_step(model, batch) if kind == "timm" else our_step(kind, model, batch, place)

    def seconds(number: int) -> float:
        began = time.perf_counter()
        step(number)
        return time.perf_counter() - began

    return seconds


def in_turns(
    kinds: Sequence[str], rounds: int, *words: str
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """What each kind has answered, and its growth in MB. Each has a process of its own."""
    pipe = subprocess.PIPE
    command = [sys.executable, __file__, *words, "--child"]
    started = {
        kind: subprocess.Popen([*command, kind], stdin=pipe, stdout=pipe, text=True)
        for kind in kinds
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    grown = dict.fromkeys(kinds, 0.0)
    for _ in range(1 + rounds):
        for kind, process in started.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            answered, grown[kind] = map(float, process.stdout.readline().split())
            found[kind].append(answered)
    for process in started.values():
        process.communicate()
    return found, grown


def steps(model: str, batch: int, rounds: int, kinds: tuple[str, ...]) -> None:
    names = ("timm", *kinds)
    taken, grown = in_turns(names, rounds, "--model", model, "--batch", str(batch))
    best = {name: min(each[1:]) for name, each in taken.items()}
    print(f"a step of {model}, {batch} images of 224 pixels, best of {rounds}; speed and memory of")
    print("each against a plain timm loop")
    for name in names:
        speed, memory = best["timm"] / best[name], grown[name] / grown["timm"]
        first = f", the first {taken[name][0]:.0f} s" if name == "compile" else ""
        print(
            f"{name:<18} {best[name]:6.3f} s   ratio {speed:.2f}   {grown[name]:6,.0f} MB   "
            f"ratio {memory:.2f}{first}"
        )


def write_jpegs(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Parts of two photographs as class folders; `size`: width and height."""
    from PIL import Image

    from vitreous.data.photographs import photographs

    photos = [Image.fromarray(photo.permute(1, 2, 0).numpy()) for photo in photographs()]
    for number in range(count):
        photo = photos[number % 2]
        part = 0.6 + 0.4 * number / count
        width, height = round(photo.width * part), round(photo.height * part)
        left, top = (photo.width - width) * (number % 7) // 7, (photo.height - height) // 2
        file = folder / "train" / f"class{number % 2}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        photo.crop((left, top, left + width, top + height)).resize(size).save(file, quality=90)
    held_out = folder / "val" / "class0" / "0.jpg"
    held_out.parent.mkdir(parents=True)
    photos[0].save(held_out)


def our_batches(folder: Path) -> Iterator[torch.Tensor]:
    from vitreous.data.augment import Augment
    from vitreous.data.formats import open_source
    from vitreous.data.loader import Order, TrainSet, train_batches
    from vitreous.data.preprocess import Preprocess
    from vitreous.data.truth import Truth
    from vitreous.train.memory import keep_memory

    keep_memory()  # as `vitreous train` does
    source = open_source(str(folder))
    preprocess = Preprocess(image_size=224, mean=MEAN, std=STD)
    samples = TrainSet(source, source.splits["train"], preprocess, Augment(), Truth(), seed=0)
    count = len(samples.samples)
    for batch in train_batches(samples, Order(count, 32, 0, 0, count // 32), workers=1):
        yield batch.images


def timm_batches(folder: Path, *, prefetch: bool) -> Iterator[torch.Tensor]:
    from timm.data import create_dataset, create_loader

    loader = create_loader(
        create_dataset("", str(folder), split="train"),
        (3, 224, 224),
        32,
        is_training=True,
        use_prefetcher=prefetch,
        scale=(0.35, 1.0),
        color_jitter=None,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
        num_workers=1,
        pin_memory=False,
        persistent_workers=False,
        device=torch.device("cpu"),
    )
    for images, _ in loader:
        yield images


def torchvision_batches(folder: Path) -> Iterator[torch.Tensor]:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    change = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(224, scale=(0.35, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    data = ImageFolder(str(folder / "train"), change)
    loader = torch.utils.data.DataLoader(data, 32, shuffle=True, num_workers=1, drop_last=True)
    for images, _ in loader:
        yield images


LOADERS: dict[str, Callable[[Path], Iterator[torch.Tensor]]] = {
    "vitreous loader": our_batches,
    "timm loader": lambda folder: timm_batches(folder, prefetch=False),
    "timm prefetcher": lambda folder: timm_batches(folder, prefetch=True),
    "torchvision": torchvision_batches,
}


def images_per_second(batches: Iterator[torch.Tensor]) -> float:
    """With the start of the worker."""
    began = time.perf_counter()
    seen = sum(len(images) for images in batches)
    return seen / (time.perf_counter() - began)


def loaders(count: int, rounds: int, sizes: tuple[str, ...]) -> None:
    for name in sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "images")
            write_jpegs(folder, count, SIZES[name])
            found, _ = in_turns(list(LOADERS), rounds, "--folder", str(folder))
        best = {kind: max(each[1:]) for kind, each in found.items()}
        print(f"JPEGs of {name}, one worker, images per second, and ours against each")
        for kind, speed in best.items():
            print(f"{kind:<18} {speed:6.0f}   ratio {best['vitreous loader'] / speed:.2f}")


def main(
    model: Literal["vit-ti/16", "vit-s/16", "swin-t"] = "vit-s/16",
    batch: int = 32,
    rounds: int = 4,
    images: int = 1024,
    sizes: tuple[str, ...] = tuple(SIZES),
    kinds: tuple[str, ...] = ("float32", "bfloat16", "recompute"),
    folder: Annotated[Path, tyro.conf.arg(help="JPEGs for --child.")] = Path(),
    child: Annotated[str, tyro.conf.arg(help="A loop that waits to be asked for steps.")] = "",
) -> None:
    """Args:
    model: What is trained.
    batch: Images per step.
    rounds: Steps of which the fastest counts, after one to warm up, and passes of the loaders.
    images: JPEGs for the loaders; 0 leaves them out.
    sizes: Of the JPEGs, width x height.
    kinds: Ways to train: float32, bfloat16, recompute, checkpoint, compile, bfloat16+recompute.
    """
    if child:
        answer(child, model, batch, folder)
        return
    if kinds:
        steps(model, batch, rounds, kinds)
    if images:
        loaders(images, rounds, sizes)


if __name__ == "__main__":
    tyro.cli(main)
