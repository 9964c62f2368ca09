"""Every script in examples/ runs, at a small size, through its own options."""

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image
from runs import OLD_RUNS
from sklearn.datasets import load_sample_images
from train.tiny import garment_folder
from train.undrawn import undrawn

import vitreous
from vitreous.cli.main import main
from vitreous.data.decode.images import read_image
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {
    "cifar10.py": ["--train=1", "--test=1"],
    "class_maps.py": ["--images=60", "--tested=4", "--epochs=1"],
    "few_images.py": ["--options=--epochs=1", "--options=--batch=40", "--seconds=1"],
    "few_labels.py": ["--count=2", "--epochs=1", "--arms", "random", "--candidates", "Muon 2e-3"],
    "onnx_client.py": [],
    "parity.py": ["resnet50"],
    "save_images.py": ["handwriting:20", "pictures", "--count=3"],
    "serve_load.py": ["--seconds=1", "--requests=40", "--rounds=1", "--images=16"],
    "training_speed.py": [
        *("--model=vit-ti/16", "--rounds=1", "--batch=2", "--kinds", "recompute"),
        *("--images=64", "--sizes", "256x224"),
    ],
}
PRINTED = {
    "cifar10.py": "test: 2 images of 2 classes",
    "class_maps.py": "class map: 0.",
    "few_images.py": "mean of 1: vitreous 0.",
    "few_labels.py": "random         0.",
    "onnx_client.py": "digit.png: ",
    "parity.py": "resnet50",
    "save_images.py": "pictures: 3 images",
    "serve_load.py": "exit code after SIGTERM               0",
    "training_speed.py": "ratio",
}


def cifar_package():
    """Files of the npm package: a row of pixels for each image."""
    Path("package").mkdir()
    for name, labels in (("data_batch_1", "train_lables"), ("test_batch", "test_lables")):
        Image.new("RGB", (32 * 32, 3)).save(f"package/{name}.png")
        Path(f"package/{labels}.json").write_text("[3, 0, 3]")
    return ["package", "folder"]


def pretrained():
    """Images with labels, and a run that was pre-trained on them."""
    words = [f"--set=encoder.{field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")]
    words += ["--model=vit", "--epochs=1", "--out=pre", "--image-size", "28"]
    with undrawn():
        assert main(["pretrain", str(garment_folder()), *words]) == 0
    return [str(garment_folder()), "pre"]


def exported():
    """A classifier as a file, and two images: one of its size, one that must be resized."""
    words = [f"--set={field}" for field in ("patch=4", "dim=16", "depth=1", "heads=2")]
    with undrawn():
        assert main(["train", "digits", "--model=vit", "--epochs=1", "--out=run", *words]) == 0
    assert main(["export", "run", "digits.onnx"]) == 0
    source = open_source("digits")
    digit = Image.fromarray(source.image(source.splits["test"][0])[0].numpy())
    digit.save("digit.png")
    digit.resize((20, 17), Image.Resampling.BICUBIC).save("large.png")
    return ["digits.onnx", "digit.png", "large.png"]


def test_the_client_predicts_what_vitreous_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["onnx_client.py", *exported()])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLES / "onnx_client.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    predictor = vitreous.load("run")
    for name, line, near in zip(("digit.png", "large.png"), lines, (1e-4, 0.01), strict=True):
        label, score = line.removeprefix(f"{name}: ").split()
        wanted = predictor(name)
        assert label == wanted.label
        assert float(score) == pytest.approx(wanted.score, abs=near)


def photographs(folder):
    """Of odd sizes, and of every kind that files commonly have."""
    china, flower = (Image.fromarray(array) for array in load_sample_images().images)
    flower.resize((317, 211)).save(folder / "wide.jpg")
    china.resize((149, 333)).save(folder / "tall.png")
    china.resize((20, 17)).save(folder / "tiny.png")
    flower.resize((97, 101)).convert("L").save(folder / "gray.png")
    flower.resize((130, 75)).convert("P").save(folder / "palette.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by the camera
    china.resize((203, 111)).save(folder / "turned.jpg", exif=exif)
    alpha = china.resize((151, 90)).convert("RGBA")
    alpha.putalpha(flower.convert("L").resize(alpha.size))
    alpha.save(folder / "alpha.png")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("resize", ["shorter", "square"])
@pytest.mark.parametrize("size", [(32, 32), (28, 45)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_client_sees_the_pixels_that_vitreous_sees(tmp_path, resize, size, channels):
    crop = 1.0 if resize == "square" else 0.875
    options = {"resize": resize, "crop": crop, "channels": channels, "interpolation": "bicubic"}
    preprocess = Preprocess(size, **options)
    client = runpy.run_path(str(EXAMPLES / "onnx_client.py"))
    for path in photographs(tmp_path):
        wanted = preprocess.fit(read_image(path)).numpy().astype(int)
        found = client["pixels_of"](str(path), vars(preprocess))[0]
        assert found.shape == wanted.shape, path
        assert abs(found - wanted).max() <= 1, path


GARMENTS = {name: lambda: [str(garment_folder())] for name in ("class_maps.py", "few_images.py")}
FOLDERS = {
    **GARMENTS,
    "cifar10.py": cifar_package,
    "few_labels.py": pretrained,
    "onnx_client.py": exported,
    "serve_load.py": lambda: [str(OLD_RUNS / "classify")],
}


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = FOLDERS[script]() if script in FOLDERS else []
    monkeypatch.setattr(sys, "argv", [script, *folder, *SMALL[script]])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert PRINTED[script] in capsys.readouterr().out
