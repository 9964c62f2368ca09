"""The work that an image causes is bounded before it is done, in every command."""

import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from picture_files import png_of
from PIL import Image

import vitreous
from vitreous.cli.main import main
from vitreous.data.decode.images import read_image
from vitreous.data.decode.pixels import over_white
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess
from vitreous.errors import DataError
from vitreous.inference import InferenceOptions
from vitreous.labels import LabelMap
from vitreous.predict import Predictor
from vitreous.tasks import task_class
from vitreous.tasks.data_check import bad_samples, check

LABELS = LabelMap.of_names(["a", "b"])
SMALL = {"patch": 8, "dim": 16, "depth": 1, "heads": 2, "classes": 2}

FIELDS = [f"--set={field}={value}" for field, value in SMALL.items() if field != "classes"]


def album(folder, width):
    """Six images of two classes, and one that is so wide and a pixel high."""
    for kind in "ab":
        (folder / kind).mkdir()
        for number in range(3):
            Image.new("L", (20, 20), 40 * number).save(folder / kind / f"{number}.png")
    png(folder / "a" / "strip.png", width, 1)


def png(path, width, height, depth=8, kind=0, values=1):
    """A PNG of one value, of few bytes however large it is."""
    packer = zlib.compressobj(9)
    row = b"\0" + b"\x7f" * (width * values)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    path.write_bytes(png_of((b"IHDR", header), (b"IDAT", data), (b"IEND", b"")))
    return path


def classifier(**limits):
    model = vitreous.create("vit", image_size=224, **SMALL)
    task, options = task_class("classify")(LABELS), InferenceOptions(**limits)
    return Predictor(model, Preprocess(image_size=224), task, options)


def segmenter(**limits):
    model = vitreous.create("segmenter-mini/8", image_size=192, classes=2)
    preprocess = Preprocess(image_size=192, whole=True)
    task = task_class("segment")(LABELS)
    return Predictor(model, preprocess, task, InferenceOptions(**limits))


@pytest.mark.parametrize(
    ("make", "width", "height"),
    [
        (classifier, 65500, 1),
        (classifier, 1, 65500),
        (classifier, 49_999_999, 1),
        (segmenter, 3000, 3),
        (segmenter, 3, 3000),
    ],
)
def test_long_and_narrow_images_are_refused_at_once(tmp_path, make, width, height):
    """Files of a few hundred bytes asked for gigabytes, or for minutes."""
    file = png(tmp_path / "strip.png", width, height)
    predictor = make()
    began = time.process_time()
    for use in (predictor, predictor.explain):
        with pytest.raises(DataError, match=r"strip\.png: is .* would be enlarged .*--max-pixels"):
            use(file)
    assert time.process_time() - began < 10


def test_the_limit_can_be_raised_and_lowered(tmp_path):
    """The message has the number that would do, and it does."""
    file = png(tmp_path / "a.png", 100, 10)  # 192x1920 pixels for the model
    with pytest.raises(DataError, match="from 1,000,000 to 2,949,120"):
        segmenter(max_pixels=1_000_000)(file)
    assert segmenter(max_pixels=2_949_120)(file).mask.shape == (10, 100)
    with pytest.raises(DataError, match=r"a\.png: too many pixels: 100x10.*--max-pixels"):
        classifier(max_pixels=999)(file)


def test_usual_images_are_not_refused():
    """Whatever the limit, an image of common proportions may be enlarged."""
    for h, w in ((1, 1), (8, 6), (50, 300), (7000, 7000)):
        Preprocess(image_size=224).check_size(h, w, max_pixels=48)
    Preprocess(image_size=(1, 784)).check_size(1, 784, max_pixels=48)
    Preprocess(image_size=224, resize="square").check_size(1, 65500)
    Preprocess(image_size=224, whole=True, longest=400).check_size(1, 65500)


def test_the_data_check_and_skip_find_them(tmp_path):
    """What training would refuse is fatal in the check, and `--on-bad skip` leaves it out."""
    album(tmp_path, 65500)
    source = open_source(tmp_path)
    (problem,) = check(source, max_pixels=1_000_000).fatal
    assert problem.file == "a/strip.png"
    assert "would be enlarged to 20x1310000" in problem.what  # by the model that train would choose
    assert not check(source).fatal
    assert list(bad_samples(source, max_pixels=1_000_000)) == ["a/strip.png"]
    run = tmp_path.parent / f"{tmp_path.name}-run"
    command = ["train", str(tmp_path), "--model=vit", *FIELDS, "--image-size=16", "--epochs=1"]
    command += ["--batch=2", "--crop=none", f"--out={run}", "--max-pixels=1000000"]
    assert main(command) == 2
    assert main([*command, "--on-bad=skip"]) == 0
    assert main(["evaluate", str(run), str(tmp_path), "--max-pixels=300"]) == 2


def test_skip_leaves_out_what_this_run_would_refuse(tmp_path, capsys):
    """Not what another model would: at 512 pixels a strip is refused that is none at 16, and a
    square of both sides is never too long."""
    album(tmp_path, 4000)
    command = ["train", str(tmp_path), "--model=vit", *FIELDS, "--epochs=1", "--batch=2"]
    command += ["--crop=none", "--max-pixels=2000000", "--dry-run", f"--out={tmp_path}-run"]
    for words, left_out in (
        (["--image-size=16"], False),
        (["--image-size=64"], True),
        (["--image-size=64", "--resize=square"], False),
    ):
        assert main([*command, *words, "--on-bad=skip"]) == 0
        said = "".join(capsys.readouterr())
        assert ("strip.png: is 1x4000" in said) == left_out
        assert ("would be enlarged to 64x256000" in said) == left_out


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_commands_have_the_option(tmp_path, capsys, command, digits_run):
    file = png(tmp_path / "a.png", 20, 20)
    assert main([command, str(digits_run), str(file), "--max-pixels=399"]) == 2
    assert "a.png: too many pixels: 20x20" in capsys.readouterr().err


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("limits") / "run"
    fields = ("patch=4", "dim=8", "depth=1", "heads=2")
    command = ["train", "--model=vit", *(f"--set={f}" for f in fields), "--image-size=8"]
    assert main([*command, "--epochs=1", "--batch=256", "--overfit=8", f"--out={run}"]) == 0
    return run


def test_sixteen_bits_with_alpha_take_little_memory(tmp_path):
    """381 kB of PNG took 6.3 GB; each pixel is 8 bytes as stored, and 6 as read."""
    file = png(tmp_path / "deep.png", 2000, 1500, depth=16, kind=6, values=8)
    tracemalloc.start()
    try:
        read_image(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2000 * 1500 * 32


def test_alpha_in_strips_is_the_same():
    """Rows are put on white a few at a time."""
    random = np.random.default_rng(0)
    for dtype in (np.uint8, np.uint16):
        pixels = random.integers(0, np.iinfo(dtype).max + 1, (3, 200_000, 4)).astype(dtype)
        alpha = pixels[..., 3:] / np.iinfo(dtype).max
        white = np.iinfo(dtype).max * (1 - alpha)
        assert np.abs(over_white(pixels) - (pixels[..., :3] * alpha + white)).max() <= 1


def test_pillows_own_limit_is_not_taken_for_ours(tmp_path, monkeypatch):
    """Raising --max-pixels does not help there, so the message does not say so."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"has 900 pixels, more than Pillow opens"):
        read_image(png(tmp_path / "a.png", 30, 30))
