"""A val and a test that are held out from data that has none, whatever its layout."""

import csv
from collections import Counter

import numpy as np
import pytest
from annotated_scene import NAMES as CLASSES
from annotated_scene import WRITERS, Thing
from PIL import Image
from source_facts import sizes

from vitreous.data.formats import open_source
from vitreous.data.formats.python_data import from_python
from vitreous.data.source import Sample
from vitreous.data.split import HoldOut, complete, part_of
from vitreous.errors import ConfigError

COUNT = 50
TEST, VAL = 10, 4
"""Of fifty images a fifth, and of the rest a tenth."""


def save(path, value=90):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((12, 16, 3), value, np.uint8)).save(path)
    return path


def class_folders(root):
    for number in range(COUNT):
        save(root / CLASSES[number % 2] / f"{number}.png")
    return root


def table(root):
    with open(root / "table.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "label"))
        for number in range(COUNT):
            save(root / f"{number}.png")
            rows.writerow((f"{number}.png", CLASSES[number % 2]))
    return root / "table.csv"


def annotated(kind):
    scene = {str(number): [Thing((2, 2, 7, 7), CLASSES[number % 2])] for number in range(COUNT)}
    return lambda root: WRITERS[kind](root).write(scene)


LAYOUTS = {"folders": class_folders, "table": table} | {kind: annotated(kind) for kind in WRITERS}


def check(source, again):
    assert sizes(source) == {"train": COUNT - TEST - VAL, "val": VAL, "test": TEST}
    ids = [sample.id for samples in source.splits.values() for sample in samples]
    assert len(set(ids)) == COUNT  # none is in two splits
    assert again.splits == source.splits
    notes = [note for note in source.notes if "held out from train (" in note]
    assert [note.split(":")[0] for note in notes] == ["test", "val"]
    assert f"{TEST} images held out from train (20%" in notes[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_on_disk(tmp_path, layout):
    path = str(LAYOUTS[layout](tmp_path))
    source, again = (open_source(path, test_fraction=0.2, seed=3) for _ in range(2))
    check(source, again)
    assert "test" not in open_source(path).splits  # unless it is asked for


def test_pairs_of_a_program():
    pairs = [(np.full((4, 4), number, np.uint8), CLASSES[number % 2]) for number in range(COUNT)]
    source, again = (from_python(pairs, test_fraction=0.2, seed=3) for _ in range(2))
    check(source, again)
    classes = {split: Counter(s.target for s in each) for split, each in source.splits.items()}
    assert classes["test"] == {0: 5, 1: 5}  # each class gives its share


@pytest.mark.parametrize("name", ["digits", "shapes:100", "handwriting:100"])
def test_built_in_data_has_a_test_of_its_own(name):
    source = open_source(name, test_fraction=0.2)
    assert "test_fraction = 0.2 is not used: the data has a test of its own" in source.notes
    plain = open_source(name)
    assert {k: list(v) for k, v in source.splits.items()} == {
        k: list(v) for k, v in plain.splits.items()
    }
    assert not any("is not used" in note for note in plain.notes)


def test_a_part_is_below_one():
    with pytest.raises(ConfigError, match="test_fraction = 1: expected a part"):
        complete({}, HoldOut(test=1), [])


def test_a_val_that_shares_images_with_train_does_not_see_the_test():
    samples = [Sample(str(number), number % 2) for number in range(COUNT)]
    splits = complete({"train": samples, "val": samples}, HoldOut(test=0.2), [])
    held = {sample.id for sample in splits["test"]}
    assert len(held) == TEST
    assert not any(sample.id in held for sample in (*splits["train"], *splits["val"]))


UNEQUAL = {0: 60, 1: 30, 2: 9, 3: 1}
"""Images by class."""


def samples_of(counts):
    return [Sample(f"{target}/{n}", target) for target, many in counts.items() for n in range(many)]


@pytest.mark.parametrize("seed", range(3))
def test_a_smaller_fraction_is_a_part_of_a_larger_one(seed):
    """Each class gives its share, to within one image, and at least one."""
    samples, before = samples_of(UNEQUAL), set()
    for fraction in (0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 1.0):
        part = part_of(samples, fraction, seed)
        assert part == [sample for sample in samples if sample in part]  # in the order given
        assert len(part) == max(round(100 * fraction), len(UNEQUAL))
        assert before <= {sample.id for sample in part}
        before = {sample.id for sample in part}
        classes = Counter(sample.target for sample in part)
        for target, count in UNEQUAL.items():
            assert classes[target] >= 1
            assert abs(classes[target] - fraction * count) <= 1.5
    assert part == samples


def test_a_fraction_does_not_depend_on_the_order_of_files():
    samples = samples_of(UNEQUAL)
    part = {sample.id for sample in part_of(samples, 0.3, 0)}
    assert part == {sample.id for sample in part_of(samples[::-1], 0.3, 0)}
    assert part != {sample.id for sample in part_of(samples, 0.3, 1)}


def test_of_many_rare_sets_of_labels_a_fraction_takes_some():
    """All of them would be too many, and a class that is only in rare sets would be lost."""
    common = [Sample(f"common/{n}", (0,)) for n in range(100)]
    rare = [Sample(f"rare/{n}", (1, 2 + n)) for n in range(100)]
    part = part_of([*common, *rare], 0.1, 0, truth_kind="labels")
    kinds = Counter(len(sample.target) for sample in part)
    assert len(part) == 20
    assert 5 <= kinds[1] <= 15


def test_of_images_that_are_of_no_class_a_fraction_takes_any():
    samples = [Sample(str(n), n % 5) for n in range(100)]
    parts = [part_of(samples, part, 0, truth_kind="boxes") for part in (0.07, 0.21)]
    assert list(map(len, parts)) == [7, 21]
    assert {sample.id for sample in parts[0]} < {sample.id for sample in parts[1]}
    assert len(part_of(samples, 1e-6, 0, truth_kind="boxes")) == 1
