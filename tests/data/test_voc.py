"""Pascal VOC's XML: what boxes mean, layouts, files that are written badly or with intent."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from source_facts import assert_problems, assert_spoiled, ids

from vitreous.cli.main import main
from vitreous.data.formats import open_source, same_source
from vitreous.data.objects.table import Annotation
from vitreous.data.objects.voc import read_xml
from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples, check

HEIGHT, WIDTH = 20, 30


def image(path, size=(WIDTH, HEIGHT), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "gray").save(path, **options)


def thing(name="cat", box=(3, 4, 12, 10), **more):
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    corners = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    others = "".join(f"<{tag}>{value}</{tag}>" for tag, value in more.items())
    return f"<object><name>{name}</name>{others}<bndbox>{corners}</bndbox></object>"


def xml(*objects, file="a.jpg", size=(HEIGHT, WIDTH)):
    said = f"<size><width>{size[1]}</width><height>{size[0]}</height></size>" if size else ""
    return f"<annotation><filename>{file}</filename>{said}{''.join(objects)}</annotation>"


def put(root, name, text, images="JPEGImages", annotations="Annotations"):
    image(root / images / f"{name}.jpg")
    path = root / annotations / f"{name}.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def opened(path, **options):
    return open_source(path, **{"val_fraction": 0, **options})


def only(source, split="train"):
    (sample,) = source.splits[split]
    return sample


# ---- what is read


def test_pixels_are_counted_from_1_and_the_last_belongs_to_the_box(tmp_path):
    put(
        tmp_path,
        "a",
        xml(
            thing("dog", (1, 1, 30, 20)),
            thing("cat", (3, 4, 12, 10)),
            thing("cat", ("4.5", "5.25", "10.5", "9")),
        ),
    )
    put(tmp_path, "b", xml(file="b.jpg"))
    source = opened(tmp_path)
    assert (source.kind, source.truth_kind, source.problems) == ("voc", "boxes", [])
    assert source.labels.names == source.labels.external == ("cat", "dog")
    sample = source.splits["train"][0]
    truth = source.truth(sample)
    assert truth["boxes"].tolist() == [[0, 0, 30, 20], [2, 3, 12, 10], [3.5, 4.25, 10.5, 9]]
    assert truth["labels"].tolist() == [1, 0, 0]
    assert (sample.id, sample.target) == ("JPEGImages/a.jpg", "Annotations/a.xml")
    assert set(source.files(sample)) == {"JPEGImages/a.jpg", "Annotations/a.xml"}
    assert same_source(f"voc:{tmp_path}", str(tmp_path))


def test_classes_are_in_natural_order(tmp_path):
    put(tmp_path, "a", xml(thing("class10"), thing("class2"), thing("class1", (2, 2, 9, 9))))
    assert opened(tmp_path).labels.names == ("class1", "class2", "class10")


def test_the_parts_of_a_person_are_not_objects(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    put(tmp_path, "a", xml(thing("person").replace("</object>", f"{part}</object>")))
    source = opened(tmp_path)
    assert source.labels.names == ("person",)
    assert source.truth(only(source))["boxes"].tolist() == [[2, 3, 12, 10]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_encodings(tmp_path, encoding):
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    put(tmp_path, "a", (head + xml(thing("Käse &amp; Brot"))).encode(encoding))
    assert opened(f"voc:{tmp_path}").labels.names == ("Käse & Brot",)


# ---- layouts


def test_lists_of_splits(tmp_path):
    """As for masks; lists of single classes are none."""
    for name in "abcde":
        put(tmp_path, name, xml(thing(), file=f"{name}.jpg"))
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    for name, lines in {"train": "a\nc\n", "val": "b\n", "cat_train": "a -1\nc 1\n"}.items():
        (lists / f"{name}.txt").write_text(lines)
    folder = "JPEGImages"
    expected = {"train": [f"{folder}/a.jpg", f"{folder}/c.jpg"], "val": [f"{folder}/b.jpg"]}
    assert ids(opened(tmp_path)) == expected


def test_boxes_and_masks_in_one_folder(tmp_path):
    put(tmp_path, "a", xml(thing()))
    (tmp_path / "SegmentationClass").mkdir()
    Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "SegmentationClass" / "a.png")
    source = opened(tmp_path)
    assert (source.kind, source.truth_kind) == ("voc", "boxes")
    assert "was read as voc; masks:PATH reads it as masks" in source.notes
    source = opened(tmp_path, truth="mask")
    assert (source.kind, source.truth_kind) == ("masks", "mask")
    assert "was read as masks; voc:PATH reads it as voc" in source.notes
    with pytest.raises(DataError, match="voc or masks, whose ground truth is boxes or mask"):
        opened(tmp_path, truth="class")


# ---- files that are written badly


LAUGHS = """<!DOCTYPE lolz [<!ENTITY lol "lol">
<!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
<!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">]>"""
REACHING = '<!DOCTYPE a [<!ENTITY secret SYSTEM "file:///etc/passwd">]>'
NO_ANNOTATION = {
    "empty": (b"", "is not XML: no element found"),
    "cut short": (b"<annotation><object>", "is not XML"),
    "not XML": (b"cat 1 2 3 4", "is not XML"),
    "bytes": (bytes(range(256)), "is not XML"),
    "an unknown encoding": (b'<?xml version="1.0" encoding="klingon"?><annotation/>', "is not XML"),
    "another tag": (b"<html></html>", "is not an .* expected <annotation>, not <html>"),
    "deep": (b"<annotation>" + b"<a>" * 50_000, ".*nested more than 32 deep"),
    "deep and closed": (
        b"<annotation>" + b"<a>" * 50_000 + b"</a>" * 50_000 + b"</annotation>",
        ".*nested more than 32 deep",
    ),
    "large": (b"<annotation>" + b" " * 10_000_001, "is larger than 10,000,000 bytes"),
    "laughs": (f"{LAUGHS}{xml(thing('&lol3;'))}".encode(), "has a DOCTYPE"),
    "reaching out": (f"{REACHING}{xml(thing('&secret;'))}".encode(), "has a DOCTYPE"),
    "a DTD elsewhere": (b'<!DOCTYPE a SYSTEM "http://a.b/c.dtd"><annotation/>', "has a DOCTYPE"),
    "an undeclared entity": (xml(thing("&secret;")).encode(), "is not XML: undefined entity"),
}


@pytest.mark.parametrize("case", NO_ANNOTATION)
def test_a_file_that_is_no_annotation_spoils_its_image(tmp_path, case):
    text, message = NO_ANNOTATION[case]
    put(tmp_path, "a", xml(thing()))
    put(tmp_path, "b", text)
    source = opened(tmp_path)
    assert source.labels.names == ("cat",)
    assert_spoiled(source, "JPEGImages/b.jpg", "Annotations/b.xml", message)
    (tmp_path / "Annotations" / "a.xml").write_text("<annotation/>")
    with pytest.raises(DataError, match="no annotation has an object"):
        opened(f"voc:{tmp_path}")


def test_entities_are_refused_before_they_are_looked_at(tmp_path, monkeypatch):
    path = tmp_path / "a.xml"
    nine = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))
    path.write_text(f'<!DOCTYPE l [<!ENTITY l0 "lol">{nine}]><annotation>&l9;</annotation>')
    with pytest.raises(DataError, match=r"a\.xml: has a DOCTYPE"):
        read_xml(str(path), Annotation())


BAD_OBJECTS = {
    "no name": (thing().replace("<name>cat</name>", ""), " has no <name>"),
    "an empty name": (thing(" "), " has an empty <name>"),
    "two names": (thing("cat</name><name>dog"), " has 2 times <name>"),
    "no box": ("<object><name>cat</name></object>", r" has no <bndbox>"),
    "no side": (thing().replace("<xmax>12</xmax>", ""), r" has no <xmax>"),
    "words": (thing(box=("a", 2, 3, 4)), r" has a <xmin> that is not a number: 'a'"),
    "nothing": (thing(box=(1, 2, "", 4)), r" has a <xmax> that is not a number: ''"),
    "not a number": (thing(box=(1, 2, "nan", 4)), " has a <xmax> that is not a number: 'nan'"),
    "infinite": (thing(box=(1, 2, "1e999", 4)), " has a <xmax> that is not a number: '1e999'"),
    "turned round": (
        thing(box=(12, 4, 3, 10)),
        r": its box ends before it begins: left 11, top 3, right 3, bottom 10",
    ),
    "outside": (thing(box=(31, 1, 40, 10)), r": its box is outside the image of 20x30"),
    "below zero": (thing(box=(-9, -9, -2, -2)), r": its box is outside the"),
}


@pytest.mark.parametrize("case", BAD_OBJECTS)
def test_an_object_that_tells_nothing_spoils_its_image(tmp_path, case):
    text, message = BAD_OBJECTS[case]
    put(tmp_path, "a", xml(thing(), text))
    put(tmp_path, "b", xml(thing(), file="b.jpg"))
    message = rf"object 2( \(cat\))?{message}"
    assert_spoiled(opened(tmp_path), "JPEGImages/a.jpg", "Annotations/a.xml", message)


def test_what_is_odd_is_told_and_the_rest_is_used(tmp_path):
    put(
        tmp_path,
        "a",
        xml(thing(), thing(box=(0, 0, 9, 9)), thing("Cat", (1, 1, 2, 2)), file="elsewhere.png"),
    )
    put(tmp_path, "b", xml(file="b.jpg", size=(0, 0)))
    put(tmp_path, "c", xml(file="c.jpg", size=("?", 3)))
    put(tmp_path, "d", xml(file="", size=None))
    source = opened(tmp_path)
    report = check(source)
    assert_problems(
        report.problems,
        [
            ("Annotations/a.xml", r"elsewhere\.png.*JPEGImages/a\.jpg"),
            (str(tmp_path), "'Cat' and 'cat'"),
            ("Annotations/b.xml", "0x0"),
            ("Annotations/c.xml", "<height> and <width>"),
        ],
        more=True,
    )
    assert report.unusable == []
    assert report.truth.cut == {"train": 1}
    assert any(
        "beginning at 0, though VOC counts from 1: 1 box: if" in note for note in source.notes
    )
    truth = source.truth(source.splits["train"][0])
    assert truth["boxes"].tolist() == [[2, 3, 12, 10], [0, 0, 9, 9], [0, 0, 2, 2]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_in_a_file_makes_the_reading_crash(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "fuzz-voc"
    text = xml(thing(difficult=1), thing("dog", (1, 1, 9, 9)))
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 12))
    text = text[:start] + data.draw(st.text("<>/&;ab19.-", max_size=6)) + text[start + length :]
    put(folder, "a", text)
    put(folder, "b", xml(thing(), file="b.jpg"))
    with contextlib.suppress(DataError):
        source = opened(f"voc:{folder}")
        report = check(source, workers=1)
        assert len(report.unusable) == len(bad_samples(source, workers=1))
        good = source.truth(source.splits["train"][-1])
        assert source.labels.names[int(good["labels"][0])] == "cat"


# ---- the command line


def test_command(tmp_path, capsys):
    put(
        tmp_path,
        "a",
        xml(thing(), thing(box=(5, 6, 5, 6)), thing("dog", (1, 1, 40, 8), difficult=1)),
    )
    put(tmp_path, "b", xml(file="b.jpg"))
    assert main(["data", "check", str(tmp_path), "--val-fraction", "0"]) == 2, "there is no val"
    out = capsys.readouterr().out
    for line in (
        f"{tmp_path}: detect, read as voc",
        "objects     train 1; in an image 0.5 (median), at most 1; 1 image without objects",
        "boxes       train small 1, medium 0, large 0   (below 32x32, below 96x96, and above)",
        "cut off     boxes at the edge of the image: train 1",
        "crowd       boxes that are neither learned nor counted (crowds, difficult): train 1",
        " 0  cat        1        1",
        " 1  dog        0        0",
        "  note   Annotations/a.xml, object 2 (cat): its box has no area (left 5, top 6, ri",
        "  note   Annotations/a.xml, object 3 (dog): its box reaches 10 pixels over the edge",
    ):
        assert line in out
    put(tmp_path, "c", b"<annotation>")
    assert main(["data", "check", str(tmp_path), "--task", "detect"]) == 2
    assert "  fatal  Annotations/c.xml: is not XML" in capsys.readouterr().out


def test_difficult_is_yes_or_no(tmp_path):
    put(tmp_path, "a", xml(thing(difficult="maybe")))
    put(tmp_path, "b", xml(thing(difficult="Unspecified")))
    source = open_source(tmp_path, val_fraction=0)
    bad, good = source.splits["train"]
    with pytest.raises(DataError, match="<difficult> is 'maybe', expected 0 or 1"):
        source.truth(bad)
    assert not source.truth(good)["crowd"].any()
