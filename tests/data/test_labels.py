"""Labels: whatever ids the data has, a class keeps its name."""

import os
import pickle
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitreous.data.formats.names import mask_labels, with_names
from vitreous.data.label_sets import SETS, labels_for, labels_of
from vitreous.errors import DataError
from vitreous.labels import LabelMap, natural

ids = st.lists(st.integers(-5, 2000), min_size=1, unique=True)  # gapped, from 0 or 1, unsorted
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
names = st.lists(words, min_size=1, unique=True)


@given(ids)
def test_ids_become_0_to_n_in_their_order(given_ids):
    labels = LabelMap.of_ids(given_ids)
    assert labels.external == tuple(sorted(given_ids))
    assert [labels.internal(i) for i in sorted(given_ids)] == list(range(len(given_ids)))
    assert [labels.external[labels.internal(i)] for i in given_ids] == given_ids
    assert labels.names == tuple(map(str, sorted(given_ids)))


@pytest.mark.parametrize("start", [0, 1])
def test_names_belong_to_ids_wherever_counting_starts(start):
    given = {start + i: name for i, name in enumerate(("ant", "bee", "cat"))}
    labels = LabelMap.of_ids(reversed(list(given)), given)
    assert {labels.external[i]: labels.names[i] for i in range(3)} == given


@given(ids, st.randoms())
def test_the_order_in_which_ids_are_met_does_not_matter(given_ids, random):
    shuffled = given_ids + given_ids
    random.shuffle(shuffled)
    assert LabelMap.of_ids(shuffled) == LabelMap.of_ids(given_ids)


@given(names, st.randoms())
def test_the_order_in_which_names_are_met_does_not_matter(given_names, random):
    shuffled = given_names + given_names
    random.shuffle(shuffled)
    labels = LabelMap.of_names(shuffled)
    assert labels == LabelMap.of_names(given_names)
    assert sorted(labels.names) == sorted(given_names)
    assert [labels.internal(name) for name in labels.names] == list(range(len(given_names)))


@given(names)
def test_labels_survive_being_stored(given_names):
    labels = LabelMap.of_names(given_names)
    assert LabelMap.from_dict(labels.to_dict()) == labels
    assert pickle.loads(pickle.dumps(labels)) == labels


@given(names, st.data())
def test_other_data_is_matched_by_name(given_names, data):
    here = LabelMap.of_names(given_names)
    some = data.draw(st.lists(st.sampled_from(given_names), min_size=1, unique=True))
    other = LabelMap(tuple(some), tuple(range(1, len(some) + 1)))  # other ids, another order
    assert [here.names[i] for i in here.indices_of(other)] == some


def test_other_data_with_an_unknown_class_is_refused():
    here = LabelMap.of_names(["cat", "dog"])
    with pytest.raises(DataError, match=r"does not know: cow.*knows cat, dog"):
        here.indices_of(LabelMap.of_names(["cat", "cow"]))


def test_an_unknown_id_is_refused_with_a_hint():
    with pytest.raises(DataError, match="unknown class 'dgo': did you mean 'dog'"):
        LabelMap.of_names(["cat", "dog"]).internal("dgo")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (((), ()), "no classes"),
        ((("a", "b"), (1,)), "2 names of classes for 1 ids"),
        ((("a", "a"), (1, 2)), "same name: a"),
        ((("a", "b"), (1, 1)), "same id: 1"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(labels, message):
    with pytest.raises(DataError, match=message):
        LabelMap(*labels)


def test_natural_order():
    given = ["class10", "class2", "Class3", "b", "10", "9", "1", "01", "x²", "a"]
    expected = ["01", "1", "9", "10", "a", "b", "class2", "Class3", "class10", "x²"]
    assert sorted(given, key=natural) == expected
    assert natural("9" * 5000) != natural("9" * 5001)


@given(st.lists(words, min_size=2, max_size=2, unique=True))
def test_no_two_names_have_the_same_place(two):
    assert natural(two[0]) != natural(two[1])


def test_names_that_differ_in_case_have_the_same_order_in_every_process():
    code = "from vitreous.labels import LabelMap; print(LabelMap.of_names(['a','A','b','B']).names)"
    orders = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert orders == {"('A', 'a', 'B', 'b')\n"}


def test_a_list_of_names_is_for_ids_from_0_without_gaps():
    assert with_names(LabelMap.of_ids([0, 1]), ["cat", "dog"]).names == ("cat", "dog")
    for wrong in ([1, 2], [0, 2], [0], [0, 1, 2]):
        with pytest.raises(DataError, match="a list of 2 names is for classes 0 to 1"):
            with_names(LabelMap.of_ids(wrong), ["cat", "dog"])


def test_names_from_files(tmp_path):
    text, json_file = tmp_path / "names.txt", tmp_path / "names.json"
    text.write_text("T-shirt\nNähmaschine\n", encoding="utf-8")
    assert with_names(LabelMap.of_ids([0, 1]), text).names == ("T-shirt", "Nähmaschine")
    json_file.write_text('{"1": "one", "7": "seven", "9": "not here"}')
    assert with_names(LabelMap.of_ids([7, 1]), json_file).names == ("one", "seven")
    with pytest.raises(DataError, match=r"names\.json: no name for class 2"):
        with_names(LabelMap.of_ids([1, 2]), json_file)
    codes = with_names(LabelMap.of_names(["n02", "n01"]), {"n01": "tench", "n02": "goldfish"})
    assert codes == LabelMap(("tench", "goldfish"), ("n01", "n02"))
    json_file.write_text("[1, 2")
    with pytest.raises(DataError, match=r"names\.json: cannot be understood"):
        with_names(LabelMap.of_ids([1, 2]), json_file)
    with pytest.raises(DataError, match=r"nothing\.txt: cannot be read"):
        with_names(LabelMap.of_ids([1, 2]), tmp_path / "nothing.txt")


def test_twenty_thousand_classes_take_no_time():
    count = 20_000
    began = time.process_time()
    labels = LabelMap.of_names(f"class {number}" for number in range(count))
    other = LabelMap(tuple(reversed(labels.names)), tuple(range(count)))
    found = labels.indices_of(other)
    assert found == tuple(reversed(range(count)))
    assert [other.internal(number) for number in range(count)] == list(range(count))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "path: ../coco\ntrain: images\nnames: [cat, dog]\nnc: 2\n",
        "names:\n  0: cat\n  1: dog\n",
        "# classes\n- cat\n- dog\n",
        "1: dog\n0: cat\n",
    ],
)
@pytest.mark.parametrize("end", [".yaml", ".YML"])
def test_names_from_yaml(tmp_path, text, end):
    """A YAML file is not a text with one name per line."""
    path = tmp_path / f"config{end}"
    path.write_text(text)
    assert with_names(LabelMap.of_ids([0, 1]), path).names == ("cat", "dog")
    assert mask_labels(path).names == ("cat", "dog")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.yaml", "lr: 1\nepochs: 3\n", "no name for class 0|'lr' is neither"),
        ("c.yaml", "names: cat\n", "expected names: with a list of names"),
        ("c.yaml", "names:\n- cat\n- [dog]\n", "expected names: with a list of names"),
        ("c.yaml", "model: {names: [cat, dog]}\n", "expected names: with a list of names"),
        ("c.yaml", "cat\n", "expected names: with a list of names"),
        ("c.yaml", "", "expected names: with a list of names"),
        ("c.yaml", "names: [cat\n", "is not YAML"),
        ("c.toml", 'names = ["cat", "dog"]\n', r"\.toml is not the extension of a names file"),
    ],
)
def test_other_structures_are_refused(tmp_path, name, text, message):
    """No line of a file becomes a name by accident."""
    path = tmp_path / name
    path.write_text(text)
    for read in (lambda: with_names(LabelMap.of_ids([0, 1]), path), lambda: mask_labels(path)):
        with pytest.raises(DataError, match=message) as error:
            read()
        assert str(error.value).startswith(str(path))


def test_yaml_ignores_by_null(tmp_path):
    path = tmp_path / "names.yaml"
    path.write_text("0: sky\n255: null\n254: ~\n'1': 'no'\n")
    assert mask_labels(path) == LabelMap(("sky", "no"), (0, 1), (254, 255))


def test_imagenets_folders_are_found_by_their_wordnet_ids():
    """Its classes are in the order of these ids; names come from torchvision."""
    labels = labels_for(1000, "imagenet-1k")
    assert labels.external[:2] == ("n01440764", "n01443537")
    assert list(labels.external) == sorted(labels.external)
    assert labels.numbers == tuple(range(1000))
    folders = LabelMap.of_names(["n15075141", "goldfish", "n01440764"])
    found = dict(zip(folders.names, labels.indices_of(folders), strict=True))
    assert found == {"n15075141": 999, "goldfish": 1, "n01440764": 0}
    with pytest.raises(DataError, match=r"not know: cow; it knows tench.* and 980 more"):
        labels.indices_of(LabelMap.of_names(["cow"]))


def test_imagenets_names_are_known_whoever_states_them():
    """transformers lists all synonyms, and calls two classes "crane"."""
    names = [f"{name}, a synonym" for name in SETS["imagenet-1k"]()]
    names[134] = names[517] = "crane"
    labels = labels_of(names)
    assert labels.named("n01440764") == 0 == labels.named("tench, a synonym")
    assert labels.names[134] == "crane (134)"
    assert labels_of(names[::-1]).named("n01440764") is None, "in another order, it is another set"
    assert labels_of(["a"] * 1000).named("n01440764") is None
