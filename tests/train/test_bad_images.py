"""A file that cannot be read: one message that names it, or left out and listed."""

import numpy as np
import pytest
from PIL import Image

from vitreous.cli.main import main

SMALL = [
    "--model=vit",
    *(f"--set={field}" for field in ("patch=8", "dim=16", "depth=1", "heads=2")),
    *("--image-size", "16", "--epochs=1", "--batch=4"),
]


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        folder = tmp_path / "photos" / kind
        folder.mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_file_is_named(photos, tmp_path, capsys, workers):
    bad = photos / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:100])
    out = tmp_path / "run"
    command = ["train", str(photos), *SMALL, f"--workers={workers}", f"--out={out}"]
    assert main([*command, "--set-recipe=mean=[0.5]", "--set-recipe=std=[0.5]"]) == 2
    said = capsys.readouterr().err
    assert str(bad) in said
    assert "Traceback" not in said


def test_bad_file_is_left_out_and_listed(photos, tmp_path, capsys):
    bad = photos / "cat" / "5.png"
    bad.write_bytes(b"<html>")
    assert main(["train", str(photos), *SMALL, f"--out={tmp_path / 'run'}", "--on-bad=skip"]) == 0
    assert "left out: cat/5.png: is an HTML page" in capsys.readouterr().err
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("measured", [False, True], ids=["in the loop", "before it"])
def test_a_bad_file_says_what_to_do(photos, tmp_path, capsys, measured):
    """The error names the file, how to see all bad ones, and how to go on without them."""
    for number in range(8):
        (photos / "dog" / f"{number}.png").write_bytes(b"no image")
    command = ["train", str(photos), *SMALL, f"--out={tmp_path / 'run'}", "--set-recipe=channels=3"]
    assert (
        main(
            [*command, *([] if measured else ["--set-recipe=mean=[0.5]", "--set-recipe=std=[0.5]"])]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert f"{photos}/dog/" in error
    assert f"'vitreous data check {photos}' lists every image that cannot be used" in error
    assert "--on-bad skip" in error
