"""Names of files and classes from other people's data: where they lead, and how they are shown."""

import ast
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitreous
from vitreous import terminal
from vitreous.cli.main import main
from vitreous.cli.printing import TextTable
from vitreous.data.formats import open_source
from vitreous.errors import DataError
from vitreous.tasks.data_check import check

ESCAPE = "\x1b[2J\x1b]0;owned\x07red"


def picture(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (10, 12, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def album(folder, kinds=("cat", "dog")):
    for number, kind in enumerate(kinds):
        for each in range(4):
            picture(folder / kind / f"{each}.png", 10 * number + each)
    return folder


# ---- the terminal


def test_control_characters_are_shown_not_sent():
    assert terminal.printable("a\x1b[31mb\x9bc\x7f\r") == r"a\x1b[31mb\x9bc\x7f\r"
    assert terminal.printable("\u202egnp.exe \ud800") == r"\u202egnp.exe \ud800"
    assert terminal.printable("straße 猫\n\t[red]") == "straße 猫\n\t[red]"
    assert terminal.printable("a\nb\t", one_line=True) == r"a\nb\t"


def test_print_knows_the_encoding_of_its_stream():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.print("straße", file=stream, flush=True)
    assert stream.buffer.getvalue() == b"stra\\xdfe\n"


def test_everything_is_printed_through_one_function():
    """No module prints by itself."""
    root = Path(vitreous.__file__).parent
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prints = any(isinstance(n, ast.Name) and n.id == "print" for n in ast.walk(tree))
        safe = any(
            isinstance(n, ast.ImportFrom)
            and n.module == "vitreous.terminal"
            and any(alias.name == "print" for alias in n.names)
            for n in ast.walk(tree)
        )
        assert safe or not prints or path.name == "terminal.py", path


@pytest.mark.skipif(os.name == "nt", reason="such names cannot exist")
def test_names_with_escape_sequences(tmp_path, capsys):
    """In tables, notes, problems and errors; --json has them as JSON writes them."""
    folder = album(tmp_path / "photos", ("cat", ESCAPE))
    (folder / "cat" / f"{ESCAPE}.png").write_bytes(b"no image")
    assert main(["data", "check", str(folder)]) == 2
    assert main(["data", "check", str(tmp_path / ESCAPE)]) == 2
    out, err = capsys.readouterr()
    assert r"\x1b[2J\x1b]0;owned\x07red" in out
    assert r"\x1b[2J" in err
    assert not any(c in out + err for c in "\x1b\x07")
    assert main(["data", "check", str(folder), "--json"]) == 2
    assert ESCAPE in json.loads(capsys.readouterr().out)["ids"]


def test_cells_of_tables_are_one_line_also_on_a_terminal(capsys, monkeypatch):
    table = TextTable("class", "n>")
    table.row("a\nforged\x1b[1m", "1")
    table.print()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    table.print()
    out = capsys.readouterr().out
    assert out.count(r"a\nforged\x1b[1m") == 2
    assert "\x1b[1mforged" not in out


# ---- where names lead


def test_links_out_of_the_folder_are_followed_and_told(tmp_path):
    inside, elsewhere = album(tmp_path / "photos"), album(tmp_path / "disk", ("bird", "fish"))
    (inside / "bird").symlink_to(elsewhere / "bird")
    (inside / "cat" / "more").symlink_to(inside / "dog")
    source = open_source(inside)
    (note,) = [note for note in source.notes if "outside" in note]
    assert note == (f"outside the data's folder: 4 images: bird leads to {elsewhere / 'bird'}")
    assert source.labels.names == ("bird", "cat", "dog")
    (tmp_path / "link").symlink_to(elsewhere)
    assert not [note for note in open_source(tmp_path / "link").notes if "outside" in note]


def test_tables_with_paths_elsewhere_are_told(tmp_path):
    """A table that one has written oneself often has absolute paths."""
    elsewhere = album(tmp_path / "disk")
    table = tmp_path / "tables" / "a.csv"
    table.parent.mkdir()
    rows = [f"{path},{path.parent.name}" for path in sorted(elsewhere.rglob("*.png"))]
    table.write_text("\n".join(["path,label", *rows]))
    assert "outside the data's folder: 8 images" in " ".join(open_source(table).notes)


def coco(path, *names):
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [
        {"id": i, "file_name": str(n), "height": 10, "width": 12} for i, n in enumerate(names)
    ]
    kinds = [{"id": 1, "name": "cat"}]
    path.write_text(json.dumps({"images": images, "annotations": [], "categories": kinds}))
    return path


@pytest.mark.parametrize(
    "name", ["{0}/private/a.png", "../../private/a.png", "x/../../../private/a.png"]
)
def test_coco_names_that_lead_out_are_refused(tmp_path, name):
    """With what to do."""
    picture(tmp_path / "private" / "a.png")
    data = tmp_path / "data"
    picture(data / "images" / "b.png")
    outside = name.format(tmp_path)
    path = coco(data / "annotations" / "instances_train.json", "b.png", outside)
    for given in (data, path):
        with pytest.raises(DataError, match=r"of 1 image leads out of .* first that of image 1"):
            open_source(given)
    beside = coco(data / "images" / "a.json", "b.png", outside)
    with pytest.raises(DataError, match="Move or link the images into that folder"):
        open_source(beside)


def test_coco_names_that_stay_inside_are_read(tmp_path):
    """Absolute paths and .. are no harm as such."""
    one, two = picture(tmp_path / "images" / "a.png"), picture(tmp_path / "images" / "b.png", 1)
    path = coco(tmp_path / "annotations" / "train.json", one, "../images/b.png")
    for given in (tmp_path, path):
        source = open_source(given)
        assert sum(map(len, source.splits.values())) == 2
        assert all(
            source.image(s).shape == (3, 10, 12) for part in source.splits.values() for s in part
        )
    assert two.exists()


def test_csv_paths_with_a_zero_byte(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"path,label\na\0.png,x\nb.png,y\n")
    with pytest.raises(DataError, match=r"a\.csv, line 2: the path has a zero byte"):
        open_source(tmp_path / "a.csv")


def test_lists_of_images_with_a_zero_byte(tmp_path):
    """Pascal VOC's lists of splits."""
    for number in range(4):
        picture(tmp_path / "JPEGImages" / f"{number}.png", number)
        Image.new("L", (12, 10)).save(_made(tmp_path / "SegmentationClass") / f"{number}.png")
    lists = _made(tmp_path / "ImageSets" / "Segmentation")
    (lists / "train.txt").write_bytes(b"0\n1\n\0\n")
    (lists / "val.txt").write_text("2\n3\n")
    report = check(open_source(f"masks:{tmp_path}"), workers=1)
    assert any("null byte" in problem.what for problem in report.fatal)


def _made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder
