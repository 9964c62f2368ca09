"""Files are written completely or not at all; a disk that is full is one error that names the file,
in every command."""

import errno
import os
import resource
import subprocess
import sys
from contextlib import contextmanager

import pytest
from PIL import Image
from runs import NAMES, VIT, made

import vitreous
from vitreous.atomic_write import (
    append_line,
    check_writable,
    making_folder,
    renaming_files,
    replacing,
    replacing_folder,
    streaming,
    write_text,
)
from vitreous.cli.main import main
from vitreous.errors import WriteError
from vitreous.run_folder import Run


@contextmanager
def files_up_to(size):
    """The system refuses to let files grow beyond so many bytes, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def all_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_was_there_stays(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "before")
    with files_up_to(10), pytest.raises(WriteError) as e:
        write_text(file, "behind" * 10)
    assert str(e.value) == f"{file}: cannot be written: {os.strerror(errno.EFBIG)}"
    assert (file.read_text(), all_below(tmp_path)) == ("before", ["a.txt"])


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)

        def noted(*args, name=name, call=call):
            done.append(name)
            return call(*args)

        monkeypatch.setattr(os, name, noted)
    write_text(tmp_path / "a", "x")
    assert done == ["fsync", "replace", "fsync"]  # the file, and then its folder


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError, ValueError])
def test_nothing_is_left_of_what_is_interrupted(tmp_path, stop):
    def broken(folder):
        inner = folder / "new" / "inner"
        with making_folder(inner), replacing(inner / "a") as temporary:
            temporary.write_text("half")
            raise stop

    with pytest.raises(WriteError if stop is OSError else stop):
        broken(tmp_path)
    assert all_below(tmp_path) == []


def test_several_files_come_together_and_the_last_one_last(tmp_path, monkeypatch):
    moved, move = [], os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (moved.append(b.name), move(a, b)))
    with renaming_files(tmp_path, tmp_path / "a", lambda file: file.name == "a") as aside:
        for name in ("a", "b", "c"):
            (aside / name).write_text(name)
    assert moved == ["b", "c", "a"]
    assert all_below(tmp_path) == ["a", "b", "c"]


def test_an_error_names_the_file_that_was_to_be(tmp_path):
    with files_up_to(10), pytest.raises(WriteError) as e, replacing_folder(tmp_path / "f") as aside:
        write_text(aside / "a", "x" * 100)
    assert str(e.value).startswith(f"{tmp_path / 'f' / 'a'}: cannot be written")
    assert all_below(tmp_path) == []


def test_lines_are_added_wholly(tmp_path):
    file = tmp_path / "metrics.jsonl"
    append_line(file, "first")
    with files_up_to(10), pytest.raises(WriteError, match=r"metrics\.jsonl: cannot be written"):
        append_line(file, "second, too long")
    assert file.read_text() == "first\n"


def test_a_library_that_must_not_meet_errors(tmp_path):
    def write():
        with streaming(tmp_path / "a") as stream:
            taken.append(stream.write(memoryview(bytes(100_000))))
            taken.append(stream.write(b"more"))

    taken = []
    with files_up_to(10), pytest.raises(OSError, match="too large"):
        write()
    assert taken == [100_000, 4]


def test_what_cannot_be_written_is_known_before(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"--out x: cannot be written: .*file is no folder"):
        check_writable(tmp_path / "file" / "a" / "b", named="--out x")
    check_writable(tmp_path / "new" / "er")
    assert all_below(tmp_path) == ["file"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made(tmp_path_factory.mktemp("run") / "vit", "classify", "vit", **VIT)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """By class."""
    folder = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(NAMES):
        (folder / "val" / name).mkdir(parents=True)
        Image.new("RGB", (64, 64), (200, 30, 9 * number)).save(folder / "val" / name / "photo.png")
    return folder


COMMANDS = [
    ("export RUN OUT/m.onnx", "m.onnx"),
    ("export RUN OUT/m.pt2", "m.pt2"),
    ("embed RUN PHOTO --map OUT/map.html", "map.html"),
    ("explain RUN PHOTO --out OUT", "photo/"),
    ("evaluate RUN DATA --figures OUT", ".png"),
    ("convert RUN/model.safetensors OUT --to huggingface", "model.safetensors"),
    ("import RUN/model.safetensors --out OUT --labels numbers", "model.safetensors"),
]


@pytest.mark.parametrize(("words", "file"), COMMANDS)
def test_a_full_disk(words, file, run, photos, tmp_path, capfd):
    out = tmp_path / "new" / "out"
    places = {"RUN": str(run), "DATA": str(photos), "OUT": str(out)}
    places["PHOTO"] = str(photos / "val" / "red" / "photo.png")
    for name, place in places.items():
        words = words.replace(name, place)
    with files_up_to(5_000):
        code = main(words.split())
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert (code, error[:10]) == (2, "vitreous: ")
    assert str(out) in error
    assert file in error
    assert "cannot be written" in error
    assert all_below(tmp_path) == []


def test_a_full_disk_at_the_first_files_of_a_run(tmp_path, capfd, monkeypatch):
    words = (
        "train digits --epochs 1 --model vit --overfit 8 --set dim=16 --set depth=1 --set heads=1"
    )
    real = Run.write_config

    def full(*args):
        with files_up_to(100):
            real(*args)

    monkeypatch.setattr(Run, "write_config", full)  # behind recipe.toml
    assert main([*words.split(), "--out", str(tmp_path / "new" / "run")]) == 2
    assert "run/config.json: cannot be written" in capfd.readouterr().err
    assert all_below(tmp_path) == []


def test_a_full_disk_while_training_leaves_a_run_to_resume(tmp_path, capfd):
    words = (
        "train digits --epochs 1 --model vit --overfit 8 --set dim=16 --set depth=1 --set heads=1"
    )
    words = [*words.split(), "--out", str(tmp_path / "run")]
    with files_up_to(30_000):  # the weights fit, a checkpoint or the report does not
        assert main(words) == 2
    assert "cannot be written" in capfd.readouterr().err
    assert not [name for name in all_below(tmp_path) if name.endswith(".tmp")]
    assert main([*words, "--resume"]) == 0
    assert vitreous.load(tmp_path / "run") is not None


PRINTING = ["--version", "models --json", "train --help", "--help"]


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has it")
def test_output_to_a_full_disk(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "vitreous", *words.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    reason = os.strerror(errno.ENOSPC)
    assert done.stderr == f"vitreous: the output cannot be written: {reason}\n"
