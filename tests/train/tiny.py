"""The smallest trainings that have every kind of randomness in them: half a second an epoch."""

import functools
import gzip
import json
import struct

import numpy as np
from PIL import Image
from shared import made_once, once, run_command
from sklearn.datasets import load_digits
from train.undrawn import undrawn

from vitreous.run_folder import Run, newest_checkpoint
from vitreous.tasks import PRETRAINING
from vitreous.train import checkpoint
from vitreous.train.distributed import joined
from vitreous.train.run import prepare


def set_recipe(*changes):
    return [f"--set-recipe={change}" for change in changes]


COMMON = ["--epochs=5", "--ema=0.9"]
CLASSIFY = [
    "--model=vit",
    *(f"--set={field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")),
    *(f"--set={field}" for field in ("drop_path=0.1", "dropout=0.1")),
    *("--image-size", "8", "--batch=16", "--crop=shift", *set_recipe("save_every=3", "mixup=0.2")),
]
SEGMENT = [
    *("--model=segmenter", "--set=encoder=vit", "--set=dropout=0.1", "--set=heads=2"),
    *(f"--set=encoder.{field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")),
    *("--image-size", "16", "--batch=8", "--crop=window"),
    *set_recipe("save_every=3", "jitter=0.2"),
]
DETECT = [
    *("--model=detr-small", "--set=dropout=0.1", "--set=backbone=resnet"),
    *(f"--set=backbone.{field}" for field in ("block=basic", "stages=[1]", "width=8")),
    "--set=backbone.norm=group",
    *(f"--set={field}" for field in ("dim=16", "heads=2", "mlp_dim=16")),
    *(f"--set={field}" for field in ("encoder_depth=1", "decoder_depth=2", "queries=4")),
    *("--image-size", "16", "--batch=8", "--crop=window"),
    *set_recipe("save_every=3", "jitter=0.2"),
]
INSTANCE = [
    *("--task=instance", "--model=rf-detr", "--set=masks=true", "--set=dropout=0.1"),
    *("--set=backbone=resnet", "--set=decoder_depth=2", "--set=projector_depth=1"),
    *(f"--set=backbone.{field}" for field in ("block=basic", "stages=[1]", "width=8")),
    *("--set=backbone.norm=group", "--set=groups=2"),
    *(f"--set={field}" for field in ("dim=16", "heads=2", "cross_heads=2", "mlp_dim=16")),
    *(f"--set={field}" for field in ("points=1", "queries=4", "mask_mlp_dim=16")),
    *("--image-size", "16", "--batch=8", "--crop=window"),
    *set_recipe("save_every=3", "jitter=0.2", "multi_scale=[0.5,1.5]"),
]
PRETRAIN = [
    *("--model=vit", "--set=encoder.dropout=0.1"),
    *(f"--set=encoder.{field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")),
    *("--image-size", "16", "--batch=16", "--set-recipe=save_every=3"),
]
PRETRAIN_OF = {
    "mae": lambda: ["--set=decoder_dim=16"],
    "lejepa": lambda: ["--set=projector_mlp_dim=16", "--set-recipe=jitter=0.2"],
    "distil": lambda: [f"--teacher={teacher()}"],
}
SPLITS = {"train": 64, "val": 8, "test": 8}
TALL, WIDE = 6, 5


def pictures(count):
    """Little images of different sizes, a bright box on dark ground, and where that begins."""
    random = np.random.default_rng(count)
    for _ in range(count):
        size = random.integers(12, 28, 2)
        image = random.integers(0, 90, (*size, 3))
        top, left = random.integers(0, size - TALL)
        image[top : top + TALL, left : left + WIDE] += 120
        yield image.astype(np.uint8), int(top), int(left)


@made_once("classes")
def class_folder(root):
    """Two hundred gray pictures of 8x8 in four folders, by where the bright corner is; as many
    steps as a long run has, and so few images that most of the time is not theirs."""
    random = np.random.default_rng(0)
    for split, count in (("train", 160), ("val", 20), ("test", 20)):
        for number in range(count):
            image = random.integers(0, 90, (8, 8))
            row, column = divmod(number % 4, 2)
            image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 120
            path = root / split / f"corner{number % 4}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.astype(np.uint8)).save(path)


@made_once("digits")
def digit_folder(root):
    """Sixty of scikit-learn's digits, in class folders."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        split = "train" if number < 40 else "val" if number < 50 else "test"
        path = root / split / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(path)
        if number == 59:
            return


@made_once("fashion-mnist")
def garment_folder(root):
    """Bright rectangles in the files of Fashion-MNIST; the height is the class."""
    root.mkdir()
    for name, count in (("train", 80), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 : 8 + 2 * label, 6:20] = 200
        for kind, header, array in (
            ("images-idx3", struct.pack(">IIII", 0x803, count, 28, 28), images),
            ("labels-idx1", struct.pack(">II", 0x801, count), labels),
        ):
            path = root / f"{name}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))


@made_once("masks")
def mask_folder(root):
    """Eighty pictures whose first row is ignored."""
    for split, count in SPLITS.items():
        for kind in ("images", "masks"):
            (root / split / kind).mkdir(parents=True)
        for number, (image, top, left) in enumerate(pictures(count)):
            mask = np.zeros(image.shape[:2], np.uint8)
            mask[top : top + TALL, left : left + WIDE] = 3
            mask[0] = 255
            Image.fromarray(image).save(root / split / "images" / f"{number}.png")
            Image.fromarray(mask).save(root / split / "masks" / f"{number}.png")
    names = {"0": "ground", "3": "box", "255": None}
    (root / "classes.json").write_text(json.dumps(names))


@made_once("boxes")
def box_folder(root):
    """Eighty pictures in COCO's form, with boxes and outlines; every eighth one says that nothing
    is there, and has no box in it; ids that neither begin at 0 nor follow each other."""
    for split, count in SPLITS.items():
        (root / split).mkdir(parents=True)
        images, objects = [], []
        for number, (image, top, left) in enumerate(pictures(count)):
            name, (height, width) = f"{number}.png", image.shape[:2]
            entry = {"id": 1000 + 7 * number, "file_name": name, "height": height, "width": width}
            images.append(entry)
            if number % 8 == 7:
                image = image[::2, ::2] // 4
                entry["height"], entry["width"] = image.shape[:2]
            else:
                here = {"id": number, "image_id": entry["id"], "category_id": 31, "iscrowd": 0}
                right, bottom = left + WIDE, top + TALL
                outline = [[left, top, right, top, right, bottom, left, bottom]]
                box = {"bbox": [left, top, WIDE, TALL], "area": WIDE * TALL}
                objects.append({**here, **box, "segmentation": outline})
            Image.fromarray(image).save(root / split / name)
        kinds = [{"id": 31, "name": "box"}, {"id": 77, "name": "never seen"}]
        whole = {"images": images, "annotations": objects, "categories": kinds}
        (root / split / "_annotations.coco.json").write_text(json.dumps(whole))


@functools.cache
def trained(task="classify", *more, drawn=False):
    """The run of a task, trained as `command` says: the same one for all tests."""
    name = "-".join([task, *(word.lstrip("-") for word in more), *["drawn"] * drawn])
    return once(name, lambda out: train(out, *more, task=task, drawn=drawn))


def teacher():
    """A classifier of `class_folder`, trained for a moment."""
    return trained("classify", "--epochs=2")


def arguments(task="classify"):
    """Of `vitreous train`."""
    if task == "classify":
        return [str(class_folder()), *CLASSIFY, *COMMON]
    if task == "tag":
        return ["shapes:40", "--task=tag", *CLASSIFY, "--set-recipe=mixup=0", *COMMON]
    if task == "segment":
        return [str(mask_folder()), *SEGMENT, *COMMON]
    if task in PRETRAINING:
        own = [f"--method={task}", *PRETRAIN_OF[task]()]
        return [str(class_folder()), *PRETRAIN, *own, *COMMON]
    own = INSTANCE if task == "instance" else DETECT
    return [str(box_folder()), *own, *COMMON]


def command(out, *more, task="classify"):
    """Of `vitreous`."""
    verb = "pretrain" if task in PRETRAINING else "train"
    return [verb, *arguments(task), f"--out={out}", *more]


def train(out, *more, task="classify", check=True, drawn=False):
    run = vitreous_command if drawn else quick
    return run(*command(out, *more, task=task), check=check)


def vitreous_command(*words, check=True):
    done = run_command(*words)
    assert not check or done.returncode == 0, done.stderr
    return done


def quick(*words, check=True):
    """The same without the report's figures."""
    with undrawn():
        return vitreous_command(*words, check=check)


def evaluations(out):
    """As the run's log has them."""
    return [line for line in Run(out).metrics() if line["kind"] == "evaluation"]


def final(out):
    """All tensors of a finished run."""
    tensors, progress = checkpoint.load(newest_checkpoint(out / "checkpoints"))
    assert progress.finished
    return tensors


def progress_of(out):
    return json.loads((newest_checkpoint(out / "checkpoints") / "progress.json").read_text())


def prepared(recipe, folder):
    """The trainer of a recipe before its first step, its config, and what was logged."""
    said = []
    with joined("cpu") as world:
        trainer, config = prepare(recipe, Run(folder), world, said.append)
    return trainer, config, "\n".join(said)
