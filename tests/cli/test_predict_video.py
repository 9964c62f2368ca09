"""`vitreous predict` on videos: every frame once, on stdout, in JSON and drawn."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from bright import predictor
from PIL import Image
from runs import OLD_RUNS
from tasks import segment_runs
from tasks.detect_runs import make_run
from video_files import moving, rotated, serve_stream, write_video

from vitreous import api
from vitreous.cli.main import main
from vitreous.data.video import Video
from vitreous.results import Detection


@pytest.fixture
def videos(tmp_path, monkeypatch):
    """Two clips in the working folder, and a detector that finds the two rectangles in them."""
    monkeypatch.chdir(tmp_path)

    monkeypatch.setattr(api, "load", lambda run, log, **options: predictor(96, **options))
    write_video("clip.mp4", [moving(number) for number in range(20)])
    return tmp_path


def predict(capsys, *words, code=0):
    assert main(["predict", "run", *words]) == code
    return capsys.readouterr()


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def frames_of(path):
    with Video(path) as video:
        return list(video)


@pytest.mark.parametrize("options", ["", "--batch 1", "--batch 7", "--tile 40", "--every 3"])
def test_a_line_for_each_frame(videos, capsys, options):
    every = 3 if "every" in options else 1
    out, err = predict(capsys, "clip.mp4", "--json", *options.split())
    lines = lines_of(out)
    assert [line["frame"] for line in lines] == list(range(0, 20, every))
    assert [line["time"] for line in lines] == [line["frame"] / 25 for line in lines]
    for line in lines:
        assert line["video"] == "clip.mp4"
        assert line["size"] == [48, 96]
        assert "image" not in line
        found = {each["label"]: each["box"] for each in line["objects"]}
        left = 4 + 2 * line["frame"]
        assert found["red"] == pytest.approx([left, 4, left + 20, 20], abs=2)
        assert len(line["objects"]) == 2
    assert re.fullmatch(rf"clip.mp4: {len(lines)} frames, [\d.]+ frames/s\n", err)


def test_rows_are_printed_as_they_come(videos, capsys):
    out, _ = predict(capsys, "clip.mp4", "--every", "8")
    rows = out.splitlines()
    assert rows[0] == "clip.mp4"
    assert rows[1].split() == ["frame", "seconds", "size", "objects", "detections"]
    assert [row.split()[:4] for row in rows[2:]] == [
        [str(number), f"{number / 25:.3f}", "48x96", "2"] for number in (0, 8, 16)
    ]
    assert rows[2].index("48x96") == rows[1].index("size")


def test_the_annotated_video_and_its_lines(videos, capsys):
    out, err = predict(capsys, "clip.mp4", "--track", "--out", "drawn", "--json")
    assert "written: drawn/clip-annotated.mp4 and clip.jsonl, 20 frames" in err
    assert sorted(os.listdir("drawn")) == ["clip-annotated.mp4", "clip.jsonl"]
    assert (videos / "drawn" / "clip.jsonl").read_text() == out
    for line in lines_of(out):
        assert {each["track"]: each["label"] for each in line["objects"]} == {1: "red", 2: "green"}
    frames = frames_of("drawn/clip-annotated.mp4")
    assert [frame.seconds for frame in frames] == pytest.approx(
        [n / 25 for n in range(20)], abs=1e-4
    )
    times = 6  # small frames are enlarged
    assert {frame.image.shape for frame in frames} == {(3, 48 * times, 96 * times)}
    changed = np.abs(
        frames[0].image.permute(1, 2, 0).numpy().astype(int)
        - moving(0).repeat(times, 0).repeat(times, 1)
    )
    assert changed.max() > 100, "boxes are drawn"


def test_images_and_videos_together_and_a_folder_of_both(videos, capsys):
    Image.fromarray(moving(3)).save("a.png")
    shutil.copy("clip.mp4", "b.mp4")
    for names in (["a.png", "clip.mp4", "b.mp4"], ["."], ["*.[mp]*"]):
        out, _ = predict(capsys, *names, "--json", "--every", "10", "--out", "drawn")
        lines = lines_of(out)
        assert [os.path.basename(line.get("image", "")) for line in lines] == ["a.png", *[""] * 4]
        clips = {os.path.basename(line["video"]) for line in lines[1:]}
        assert clips == {"b.mp4", "clip.mp4"}
        drawn = {"a-boxes.jpg", "a.json", "results.json"}
        drawn |= {f"{stem}{end}" for stem in ("b", "clip") for end in ("-annotated.mp4", ".jsonl")}
        assert set(os.listdir("drawn")) == drawn
        shutil.rmtree("drawn")


def test_videos_of_one_name_have_files_of_their_own(videos, capsys):
    for name in ("one", "two"):
        (videos / name).mkdir()
        shutil.copy("clip.mp4", name)
    predict(capsys, "one/clip.mp4", "two/clip.mp4", "--every", "9", "--out", "drawn")
    assert {name for name in os.listdir("drawn") if name.endswith("mp4")} == {
        "clip-annotated.mp4",
        "two-clip-annotated.mp4",
    }
    shutil.copy("clip.mp4", "clip-annotated.mp4")
    _, err = predict(capsys, "clip.mp4", "clip-annotated.mp4", "--out", ".", code=2)
    assert "clip-annotated.mp4 would be written over, which is one of the inputs" in err


def test_odd_turned_and_uneven_videos_are_drawn(videos, capsys):
    (videos / "turned.mp4").write_bytes(rotated((videos / "clip.mp4").read_bytes()))
    times = [0, 0.1, 1.0, 1.1]
    write_video("uneven.mp4", [moving(number, 701, 513) for number in range(4)], seconds=times)
    predict(capsys, "turned.mp4", "uneven.mp4", "--out", "drawn")
    assert frames_of("drawn/turned-annotated.mp4")[0].image.shape == (3, 96 * 6, 48 * 6)
    uneven = frames_of("drawn/uneven-annotated.mp4")
    assert [frame.seconds for frame in uneven] == pytest.approx(times, abs=1e-3)
    assert uneven[0].image.shape == (3, 702, 514)


def test_a_stream(videos, capsys):
    address = serve_stream([moving(number) for number in range(20)])
    out, _ = predict(capsys, address, "--json", "--out", "drawn")
    lines = lines_of(out)
    assert lines
    assert {line["video"] for line in lines} == {address}
    (drawn,) = (videos / "drawn").glob("*-annotated.mp4")
    assert len(frames_of(drawn)) == len(lines)


def test_what_is_cut_short_is_used_as_far_as_it_goes(videos, capsys):
    write_video("whole.mp4", [moving(n % 20) for n in range(60)], movflags="faststart")
    data = (videos / "whole.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(data[: len(data) // 2])
    out, err = predict(capsys, "cut.mp4", "clip.mp4", "--json", "--out", "drawn", code=2)
    lines = lines_of(out)
    count = len([line for line in lines if line["video"] == "cut.mp4"])
    assert 5 < count < 50
    assert len(lines) == count + 20
    assert len(frames_of("drawn/cut-annotated.mp4")) == count
    assert "vitreous: cut.mp4: is cut short: " in err
    assert err.splitlines()[-1] == "vitreous: 1 of 2 videos could not be used: see above"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("none.mp4", "none.mp4: there is no such file"),
        ("99", "camera 99: there is no /dev/video99"),
        ("clip.mp4 --every 0", "every = 0: expected an integer of at least 1"),
        ("still.png --every 2", "--every 2 is about the frames of a video, and no video is given"),
        ("still.png --track", "--track is about the frames of a video, and no video is given"),
        ("clip.mp4 --save-labels yolo --out x", "--save-labels is about image files, and clip.mp4"),
        ("clip.mp4 --data x.json --out x", "--data is about image files, and clip.mp4 is a video"),
        ("clip.mp4 --threshold 2", "threshold = 2.0: expected a number from 0 to 1"),
        ("clip.mp4 --batch 0", "batch = 0: expected"),
        ("clip.mp4 --max-pixels 100", "frame 0: too many pixels: 96x48"),
        ("clip.mp4 --out clip.mp4", "--out clip.mp4: cannot be written"),
    ],
)
def test_bad_input(videos, capsys, words, told):
    Image.fromarray(moving(0)).save("still.png")
    out, err = predict(capsys, *words.split(), code=2)
    assert told in err
    assert "Traceback" not in err
    assert out == ""


def test_a_file_that_is_called_like_a_camera_is_meant(videos, capsys):
    Image.fromarray(moving(0)).save("0", "PNG")
    out, _ = predict(capsys, "0", "--json")
    assert lines_of(out)[0]["image"] == "0"


def test_without_pyav(videos, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    _, err = predict(capsys, "clip.mp4", code=2)
    assert "pip install 'vitreous[video]'" in err


def test_in_python(videos):
    model = predictor(96)
    track = model.task.tracker()
    seen = []
    for frame, result in model.video("clip.mp4", every=5):
        assert isinstance(result, Detection)
        assert result.image == frame.name
        seen.append((frame.number, len(track(result).objects)))
    assert seen == [(number, 2) for number in (0, 5, 10, 15)]


# ---- other tasks


def test_segmentation(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = segment_runs.make_run(tmp_path / "run")
    write_video("clip.mp4", [moving(number) for number in range(6)])
    assert main(["predict", "run", "clip.mp4", "--out", "drawn", "--json"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert [line["frame"] for line in lines] == list(range(6))
    assert sum(each["pixels"] for each in lines[0]["classes"]) == 48 * 96
    assert len({frame.image.shape for frame in frames_of("drawn/clip-annotated.mp4")}) == 1
    assert main(["predict", str(run.path), "clip.mp4", "--track"]) == 2
    assert "a model for the task segment finds no objects to follow" in capsys.readouterr().err


def test_classification(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD_RUNS / "classify", "run")
    write_video("clip.mp4", [moving(number) for number in range(6)])
    assert main(["predict", "run", "clip.mp4", "--json", "--top", "2"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert [len(line["top"]) for line in lines] == [2] * 6
    assert main(["predict", "run", "clip.mp4"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert main(["predict", "run", "clip.mp4", "--out", "drawn"]) == 2
    assert "nothing is drawn into videos for the task classify" in capsys.readouterr().err


def test_ctrl_c_leaves_a_video(tmp_path):
    make_run(tmp_path / "run")
    write_video(str(tmp_path / "long.mp4"), [moving(number % 20) for number in range(1500)])
    command = [sys.executable, "-m", "vitreous", "predict", "run", "long.mp4", "--out", "drawn"]
    process = subprocess.Popen(
        [*command, "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "vitreous: stopped" in err
    count = len(frames_of(tmp_path / "drawn" / "long-annotated.mp4"))
    assert 20 <= count < 1500
    assert f"long.jsonl, {count} frames" in err
    assert len((tmp_path / "drawn" / "long.jsonl").read_text().splitlines()) == count
