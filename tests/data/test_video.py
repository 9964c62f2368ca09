"""Videos, frame by frame: numbers, times and pictures; and what is no video."""

import os
import shutil
import sys
import time

import av
import numpy as np
import pytest
from PIL import Image
from video_files import moving, rotated, serve_stream, write_video

from vitreous.data import video as video_module
from vitreous.data.image_paths import paths_of
from vitreous.data.video import IN_FOLDERS, Video, is_video, video_name
from vitreous.data.video_writer import ENCODERS, VideoWriter
from vitreous.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A clip of 30 frames."""
    path = tmp_path_factory.mktemp("videos")
    write_video(str(path / "clip.mp4"), [moving(number) for number in range(30)])
    return path


def frames_of(path, *options):
    with Video(path, *options) as video:
        return list(video), video


def near(frame, pixels):
    """Compressed colours are not exact."""
    return np.abs(frame.image.permute(1, 2, 0).numpy().astype(int) - pixels).mean() < 8


def test_frames_have_numbers_times_and_pictures(folder):
    frames, video = frames_of(folder / "clip.mp4")
    assert [frame.number for frame in frames] == list(range(30))
    assert [frame.seconds for frame in frames] == pytest.approx([n / 25 for n in range(30)])
    assert all(near(frame, moving(number)) for number, frame in enumerate(frames))
    assert frames[7].name == f"{folder / 'clip.mp4'}, frame 7"
    assert video.total == 30
    assert video.rate == 25
    assert video.problem is None
    assert not video.live


@pytest.mark.parametrize("every", [2, 7, 29, 100])
def test_every(folder, every):
    frames, video = frames_of(folder / "clip.mp4", every)
    assert [frame.number for frame in frames] == list(range(0, 30, every))
    assert video.total == len(frames)
    assert near(frames[-1], moving(frames[-1].number))


@pytest.mark.parametrize("name", ["a.mkv", "a.avi", "a.mov", "a.ts", "a.webm"])
def test_other_formats(tmp_path, name):
    codec = "libvpx" if name == "a.webm" else "mpeg4"
    path = write_video(str(tmp_path / name), [moving(n) for n in range(12)], codec)
    frames, video = frames_of(path)
    assert [frame.seconds for frame in frames] == pytest.approx(
        [n / 25 for n in range(12)], abs=2e-3
    )
    assert video.problem is None


def test_a_variable_frame_rate(tmp_path):
    times = [0.0, 0.04, 0.5, 0.54, 2.0]
    path = write_video(str(tmp_path / "a.mp4"), [moving(n) for n in range(5)], seconds=times)
    assert [frame.seconds for frame in frames_of(path)[0]] == pytest.approx(times)


def test_rotation_is_applied(folder, tmp_path):
    (tmp_path / "turned.mp4").write_bytes(rotated((folder / "clip.mp4").read_bytes()))
    frames, _ = frames_of(tmp_path / "turned.mp4")
    assert near(frames[3], np.rot90(moving(3), -1))


@pytest.mark.parametrize("size", [(33, 65), (34, 64), (1, 1)])
def test_what_is_written_is_read_back(tmp_path, size):
    """Odd sizes become even, since colours are stored for two by two pixels."""
    path = tmp_path / "new" / "out.mp4"
    times = [0, 0.04, 0.2, 0.2, 1.0]  # a clock that stands still does not stop the video
    with VideoWriter(path) as writer:
        for number, seconds in enumerate(times):
            writer.add(np.full((*size, 3), 40 * number, np.uint8), seconds)
        assert not path.exists()
    frames, _ = frames_of(path)
    assert [frame.seconds for frame in frames] == pytest.approx(times, abs=1e-4)
    assert frames[0].image.shape == (3, size[0] + size[0] % 2, size[1] + size[1] % 2)
    assert [round(frame.image.float().mean().item() / 40) for frame in frames] == [0, 1, 2, 3, 4]
    assert os.listdir(path.parent) == ["out.mp4"]


def test_pictures_are_sharp_enough(tmp_path):
    with VideoWriter(tmp_path / "out.mp4") as writer:
        for number in range(10):
            writer.add(moving(number), number / 25)
    frames, _ = frames_of(tmp_path / "out.mp4")
    assert all(near(frame, moving(frame.number)) for frame in frames)


def test_no_encoder_under_the_gpl_is_used():
    assert not any("264" in name or "265" in name for name in ENCODERS)
    assert next(iter(ENCODERS)) in av.codecs_available


def test_without_libvpx_ffmpeg_s_own_encoder_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(av, "codecs_available", {"mpeg4"})
    with VideoWriter(tmp_path / "out.mp4") as writer:
        for number in range(5):
            writer.add(moving(number), number / 25)
    frames, _ = frames_of(tmp_path / "out.mp4")
    assert [frame.seconds for frame in frames] == pytest.approx([n / 25 for n in range(5)])


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError])
def test_what_was_written_before_an_end_is_a_video(tmp_path, error):
    def interrupted():
        with VideoWriter(tmp_path / "out.mp4") as writer:
            for number in range(9):
                writer.add(moving(number), number / 25)
            raise error

    with pytest.raises(error):
        interrupted()
    assert len(frames_of(tmp_path / "out.mp4")[0]) == 9


def test_nothing_is_written_without_frames(tmp_path):
    with VideoWriter(tmp_path / "out.mp4"):
        pass
    assert not os.listdir(tmp_path)


def test_frames_of_another_size_are_brought_to_the_first_one_s(tmp_path):
    with VideoWriter(tmp_path / "out.mp4") as writer:
        writer.add(moving(0), 0)
        writer.add(moving(1, 96, 192), 1)
    assert {frame.image.shape for frame in frames_of(tmp_path / "out.mp4")[0]} == {(3, 48, 96)}


# ---- live


def test_a_live_stream_never_lags_behind():
    address = serve_stream([moving(n) for n in range(60)])
    with Video(address) as video:
        assert video.live
        assert video.total is None
        numbers = []
        for frame in video:
            numbers.append(frame.number)
            time.sleep(0.15)
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 59
    assert len(numbers) < 60


def test_a_live_stream_can_be_left():
    with Video(serve_stream([moving(n) for n in range(60)])) as video:
        next(iter(video))
    assert not video._reader.is_alive()


# ---- what is no video


def cut(folder, to, part, **options):
    path = folder / f"whole{to.suffix}"
    write_video(str(path), [moving(n) for n in range(50)], **options)
    to.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])


def test_a_video_that_is_cut_short(tmp_path):
    """What is there is read; then it is told."""
    cut(tmp_path, tmp_path / "a.mp4", 0.6, movflags="faststart")
    cut(tmp_path, tmp_path / "b.mkv", 0.2)
    cut(tmp_path, tmp_path / "c.mp4", 0.6)
    frames, video = frames_of(tmp_path / "a.mp4")
    assert 5 < len(frames) < 40
    assert f"{tmp_path / 'a.mp4'}: is cut short: " in str(video.problem)
    assert "of 2.0 seconds could be read" in str(video.problem)
    assert len(frames_of(tmp_path / "b.mkv")[0]) < 30  # its length is too inexact to tell
    with pytest.raises(DataError, match="damaged or cut short: its index is missing"):
        Video(tmp_path / "c.mp4")


def test_damaged_packets_are_left_out(folder, tmp_path):
    data = bytearray((folder / "clip.mp4").read_bytes())
    middle = data.find(b"mdat") + 800
    data[middle : middle + 1500] = np.random.default_rng(0).bytes(1500)
    (tmp_path / "a.mp4").write_bytes(data)
    frames, _ = frames_of(tmp_path / "a.mp4")
    assert len(frames) > 10


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"hello" * 99, "is not a video that can be read"),
        (b"#EXTM3U\n#EXTINF:2,\nclip.mp4\n#EXT-X-ENDLIST\n", "is not a video that can be read"),
        (b"ffconcat version 1.0\nfile clip.mp4\n", "is not a video that can be read"),
        (b"\0\0\0\x18ftypmp42" + bytes(50), "damaged or cut short"),
        ("jpeg", "is not a video that can be read"),
        ("sound", "has no pictures"),
        (None, "there is no such file"),
        ("folder", "is a folder, not a video"),
    ],
)
def test_no_video(folder, tmp_path, content, words):
    """Playlists name other files, and are not followed."""
    shutil.copy(folder / "clip.mp4", tmp_path)
    path = tmp_path / "a.mp4"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "jpeg":
        Image.new("RGB", (64, 64)).save(path, "JPEG")
    elif content == "folder":
        path.mkdir()
    elif content == "sound":
        with av.open(str(path), "w") as container:
            stream = container.add_stream("aac", rate=8000, layout="mono")
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate = 8000
            container.mux(stream.encode(frame))
            container.mux(stream.encode())
    with pytest.raises(DataError, match=rf"a\.mp4: .*{words}"):
        Video(path)


def test_frames_have_limits_like_images(folder):
    with Video(folder / "clip.mp4", max_pixels=1000) as video:
        assert not list(video)
    assert "frame 0: too many pixels: 96x48" in str(video.problem)


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_bad_steps(folder, every):
    with pytest.raises(ConfigError, match=f"every = {every}: expected a whole number"):
        Video(folder / "clip.mp4", every)


def test_streams_and_cameras_that_are_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(video_module, "PATIENCE", 0.3)
    with pytest.raises(DataError, match=r"rtsp://127\.0\.0\.1:9/x: cannot be opened: Connection"):
        Video("rtsp://me:secret@127.0.0.1:9/x")
    with pytest.raises(DataError, match=r"does not answer: nothing has come for 0\.3 seconds"):
        Video("udp://127.0.0.1:50999")
    with pytest.raises(DataError, match="camera 99: there is no /dev/video99: "):
        Video("99")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="camera 99: cameras can be read on Linux alone"):
        Video("99")


def test_without_pyav_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    for make in (lambda: Video(folder / "clip.mp4"), lambda: VideoWriter("x.mp4")):
        with pytest.raises(ConfigError, match=r"pip install 'vitreous\[video\]'"):
            make()


# ---- names


def test_what_is_a_video(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.mp4", "B.MOV", "0", "12", "rtsp://host/x?a=[1]", "https://host/a"):
        assert is_video(name), name
    for name in ("a.jpg", "a", "a.gif", "-1", "1234", "0.5", "file:///a", "a.mp4.png"):
        assert not is_video(name), name
    for name in ("https://host/a.png", "http://host/A.JPG?size=2#x"):  # pictures
        assert not is_video(name), name
    (tmp_path / "0").touch()
    assert not is_video("0"), "a file of that name is meant"
    assert video_name("rtsp://me:secret@host:1/x") == "rtsp://host:1/x"
    assert video_name("1") == "camera 1"


def test_names_stand_for_videos_where_they_are_wanted(tmp_path):
    for name in ("b.mp4", "a.png", "c.txt", "typescript.ts"):
        (tmp_path / name).touch()
    told = []
    found = [str(tmp_path / "a.png"), str(tmp_path / "b.mp4")]
    assert list(paths_of([str(tmp_path)], told.append, IN_FOLDERS)) == found
    assert list(paths_of([str(tmp_path)], told.append)) == found[:1]
    address = "rtsp://host/x?a=[1]"
    assert list(paths_of([address, "0"], told.append, IN_FOLDERS)) == [address, "0"]
