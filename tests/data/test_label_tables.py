"""Tables with several labels per image: lists in a cell, or a column of 0 and 1 for each label."""

import csv
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from source_facts import assert_problems, ids

from vitreous.data.formats import open_source
from vitreous.data.source import Sample
from vitreous.data.split import hold_out
from vitreous.errors import DataError


def table(folder, *rows, name="t.csv"):
    path = folder / name
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def opened(path, **options):
    return open_source(path, **{"val_fraction": 0, **options})


def label_sets(source, split="train"):
    names = source.labels.names
    return {
        sample.id: {names[i] for i in source.truth(sample).nonzero().flatten().tolist()}
        for sample in source.splits[split]
    }


EXPECTED = {"1.png": {"cat", "dog"}, "2.png": {"dog"}, "3.png": set(), "4.png": {"cat", "hen"}}
CELLS = {
    "semicolons": ("cat;dog", "dog", "", "hen; cat"),
    "bars": ("dog|cat", "dog", "", " hen | cat "),
    "commas": ("cat,dog", "dog", "", "hen, cat"),
    "JSON": ('["cat", "dog"]', '["dog"]', "[]", '["hen","cat"]'),
    "Python": ("['cat', 'dog']", "['dog']", "[]", "['hen', 'cat']"),
    "bare lists": ("[cat, dog]", "[dog]", "[]", "[hen,cat]"),
    "lists and names": ("[cat, dog]", "dog", "", "cat;hen"),
}


@pytest.mark.parametrize("column", ["labels", "Tags", "label"])
@pytest.mark.parametrize("form", CELLS)
def test_labels_in_one_cell(tmp_path, column, form):
    rows = [(f"{i}.png", cell) for i, cell in enumerate(CELLS[form], 1)]
    path = table(tmp_path, ("path", column), *rows)
    truth = None if column != "label" or form in ("semicolons", "bars") else "labels"
    source = opened(path, truth=truth)
    assert (source.kind, source.truth_kind, source.problems) == ("csv", "labels", [])
    assert source.labels.names == source.labels.external == ("cat", "dog", "hen")
    assert label_sets(source) == EXPECTED
    for one in (source, pickle.loads(pickle.dumps(source))):
        truth = one.truth(one.splits["train"][0])
        assert torch.equal(truth, torch.tensor([1.0, 1.0, 0.0]))
    assert "without a label: 1 image" in source.notes
    separator = {"semicolons": "';'", "bars": "'|'", "commas": "','"}.get(form, "")
    assert any(column.lower() in note and separator in note for note in source.notes)


def test_images_are_read_from_the_tables_folder(tmp_path):
    Image.new("L", (4, 3)).save(tmp_path / "1.png")
    source = opened(table(tmp_path, ("path", "labels"), ("1.png", "a;b")))
    assert source.image(source.splits["train"][0]).shape == (1, 3, 4)


@pytest.mark.parametrize("values", [("0", "1"), ("False", "true"), ("0.0", "1.0")])
def test_a_column_for_each_label(tmp_path, values):
    no, yes = values
    path = table(
        tmp_path,
        ("", "path", "Dog", "width", "cat", "class10", "class2"),
        (0, "1.png", yes, 640, yes, no, no),
        (1, "2.png", no, 640, no, no, yes),
        (2, "3.png", no, 480, no, no, no),
    )
    source = opened(path)
    assert (source.truth_kind, source.problems) == ("labels", [])
    assert source.labels.names == ("cat", "class2", "class10", "Dog"), "also what no image has"
    assert label_sets(source) == {"1.png": {"Dog", "cat"}, "2.png": {"class2"}, "3.png": set()}
    assert any("not used: width" in note for note in source.notes)


def test_what_is_read_as_labels_and_what_as_classes(tmp_path):
    rows = [("path", "label", "tags", "night", "wet")]
    rows += [(f"{i}.png", "cat", "a;b", i % 2, 1) for i in range(4)] + [("5.png", "dog", "", 0, 0)]
    source = opened(table(tmp_path, *rows))
    assert (source.truth_kind, source.labels.names) == ("class", ("cat", "dog"))
    assert any("--task can read several" in note and "tags" in note for note in source.notes)
    assert opened(table(tmp_path, *rows), truth="labels").labels.names == ("a", "b")
    flags = [(path, label, night, wet) for path, label, _, night, wet in rows]
    assert opened(table(tmp_path, *flags), truth="labels").labels.names == ("night", "wet")
    one = [(path, label) for path, label, *_ in rows]
    assert label_sets(opened(table(tmp_path, *one), truth="labels"))["5.png"] == {"dog"}
    both = table(tmp_path, ("path", "label"), ("1.png", "a|b"), ("2.png", "c"))
    source = opened(both)
    assert (source.truth_kind, source.labels.names) == ("labels", ("a", "b", "c"))
    assert any("--task can read a cell as one class" in note for note in source.notes)
    source = opened(both, truth="class")
    assert (source.truth_kind, source.labels.names) == ("class", ("a|b", "c"))
    with pytest.raises(DataError, match="no column 'label'"):
        opened(table(tmp_path, ("path", "labels"), ("1.png", "a;b")), truth="class")
    with pytest.raises(DataError, match="ground truth is class or labels, not mask"):
        opened(both, truth="mask")


def test_labels_that_are_numbers(tmp_path):
    path = table(tmp_path, ("path", "labels"), ("1.png", "10;2"), ("2.png", "0"))
    source = opened(path, names={0: "sky", 2: "sea", 10: "sun"})
    assert (source.labels.external, source.labels.names) == ((0, 2, 10), ("sky", "sea", "sun"))
    assert label_sets(source) == {"1.png": {"sea", "sun"}, "2.png": {"sky"}}


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([("path", "labels"), ("1.png", ""), ("2.png", "[]")], "no image has a label"),
        ([("path", "labels"), ("", "a;b")], "line 2: has no path"),
        (
            [("path", "labels"), ("1.png", "a;b"), ("2.png", "c|d")],
            r"line 3: .*'\|'.* line 2 .*';'",
        ),
        ([("path", "labels"), ("1.png", "a"), ("1.png", "a;b")], "line 3: 1.png .*line 2"),
        ([("path", "labels"), ("1.png", "a"), ("1.png", "")], "line 3: 1.png is no label .*line 2"),
        ([("path", "labels", "split"), ("1.png", "a", "dev")], "line 2: split 'dev'"),
        (
            [("path", "labels", "split"), ("1.png", "cat;hen", ""), ("2.png", "hne", "val")],
            "line 3: class 'hne' is in val but not in train: did you mean 'hen'",
        ),
        (
            [("path", "a", "b"), ("1.png", 1, 0), ("2.png", 0, 2), ("3.png", 0, 1)],
            "line 3: .*'b' is 2",
        ),
        ([("path", "a", "b"), ("1.png", 1, 0), ("2.png", "", 1)], "line 3: .*'a' is empty"),
        ([("path", "a", "a"), ("1.png", 1, 0)], "two columns .*'a'"),
        ([("path", "width"), ("1.png", 640)], "no column 'label"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, rows, facts):
    path = table(tmp_path, *rows)
    for truth in (None, "labels"):
        with pytest.raises(DataError, match=facts) as error:
            opened(path, truth=truth)
        assert str(error.value).startswith(str(path))


def test_what_is_odd_is_named_with_its_line(tmp_path):
    path = table(
        tmp_path,
        ("path", "labels"),
        ("1.png", "cat;;dog"),
        ("2.png", "cat;dog;cat"),
        ("3.png", "cat dog;traffic light"),
        ("4.png", "cat dog;Traffic light;"),
        ("1.png", "dog;cat"),
    )
    source = opened(path)
    assert_problems(
        source.problems,
        [
            (f"{path}, line 2", "empty label: 'cat;;dog'"),
            (f"{path}, line 3", "twice"),
            (f"{path}, line 4", "'cat dog'"),
            (f"{path}, line 5", "empty label"),
            (str(path), "'Traffic light' and 'traffic light'"),
            ("1.png", "line 6 .*line 2"),
        ],
    )
    assert not any(problem.fatal for problem in source.problems)
    assert label_sets(source)["2.png"] == {"cat", "dog"}


def test_labels_that_are_perhaps_separated_by_spaces(tmp_path):
    rows = [("1.png", "haze primary"), ("2.png", "clear"), ("3.png", "haze primary")]
    path = table(tmp_path, ("path", "tags"), *rows)
    source = opened(path)
    assert source.labels.names == ("clear", "haze primary")
    assert_problems(source.problems, [(f"{path}, line 2", "'haze primary'")])


def test_splits_of_a_table(tmp_path):
    rows = [("1.png", "a;b", "train"), ("2.png", "b", "valid"), ("3.png", "", "TEST")]
    source = opened(table(tmp_path, ("path", "labels", "split"), *rows), val_fraction=0.1)
    assert ids(source) == {"train": ["1.png"], "val": ["2.png"], "test": ["3.png"]}
    rows = [(f"{i}.png", "a;b" if i % 2 else "b") for i in range(40)]
    source = opened(table(tmp_path, ("path", "labels"), *rows), val_fraction=0.1, seed=3)
    held = [label for found in label_sets(source, "val").values() for label in found]
    assert (held.count("a"), held.count("b")) == (2, 4), "each set of labels gives its share"
    again = opened(table(tmp_path, ("path", "labels"), *rows[::-1]), val_fraction=0.1, seed=3)
    assert again.splits == source.splits


@given(st.lists(st.frozensets(st.integers(0, 6)), min_size=20, max_size=80), st.integers(0, 9))
def test_about_the_right_part_is_held_out_however_rare_the_sets_are(sets, seed):
    samples = [Sample(str(i), tuple(sorted(labels))) for i, labels in enumerate(sets)]
    kept, held = hold_out(samples, 0.2, seed, truth_kind="labels")
    assert sorted(kept + held, key=lambda s: int(s.id)) == samples
    assert abs(len(held) - 0.2 * len(samples)) <= 0.5 * len(set(sets)) + 1
    frequent = [
        labels for labels in {s.target for s in samples} if sets.count(frozenset(labels)) >= 5
    ]
    for labels in frequent:
        assert any(sample.target == labels for sample in held)
