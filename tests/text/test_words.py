"""Classes and templates: files, lists, and everything that people mistype."""

import json
import re

import pytest

from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap
from vitreous.text.prompts import USUAL, templates
from vitreous.text.words import MOST_CLASSES, class_words, words_of


def refused(given, match):
    with pytest.raises(DataError, match=match):
        class_words(given)


# ---- classes


def test_each_value_is_a_class_and_its_words():
    words = class_words(["tabby cat", "dog | hound | puppy", "Star Wars: a film"])
    assert words.labels.names == ("tabby cat", "dog", "Star Wars: a film")
    assert words.labels.external == (0, 1, 2)
    assert words.words == (("tabby cat",), ("dog", "hound", "puppy"), ("Star Wars: a film",))
    assert (len(words), words.count) == (3, 5)
    assert class_words("a cat").words == (("a cat",),)


def test_ids_of_the_data_come_first():
    words = class_words(["n01440764: tench | Tinca tinca", "n02012849: crane", "n03126707: crane"])
    assert words.labels.external == ("n01440764", "n02012849", "n03126707")
    assert words.labels.names == ("tench", "crane (n02012849)", "crane (n03126707)")
    assert words.words[0] == ("tench", "Tinca tinca")
    assert class_words(["7: cat", "9: dog"]).labels.external == (7, 9)


def test_a_file_says_the_same_as_a_list(tmp_path):
    lines = ["a: one | two", "b: three"]
    text, object_, list_ = (tmp_path / n for n in ("c.txt", "object.json", "list.json"))
    text.write_text("\ufeff" + "\n\n".join(lines) + "\r\n", encoding="utf-8")
    object_.write_text(json.dumps({"a": ["one", "two"], "b": "three"}))
    list_.write_text(json.dumps([["one", "two"], "three"]))
    for given in (text, str(text), [str(text)], object_):
        assert class_words(given) == class_words(lines)
    assert class_words(list_) == class_words(["one | two", "three"])
    assert class_words({"a": ["one", "two"], "b": "three"}) == class_words(lines)


def test_names_of_the_data_are_taken_as_they_are():
    """What is a separator in a list is part of a name; underscores are spaces."""
    labels = LabelMap(("golden_retriever", "a: b | c"), (3, 5))
    words = words_of(labels)
    assert words.labels == labels
    assert words.words == (("golden retriever",), ("a: b | c",))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([], "there are no classes"),
        (["cat", " "], "has an empty word"),
        (["cat", "dog ||"], "class 'dog' has an empty word"),
        (["cat", "dog", "cat"], "two classes have the same name: cat"),
        (["a: cat", "a: dog"], "two classes have the same id: a"),
        (["dog | Dog"], "class 'dog' has dog twice"),
        (["a: cat", "dog"], "'a: cat' has an id before its colon, and 'dog' has none"),
        (["cat", 3], "class '3': expected words"),
        ({"a": 3}, "class 'a': expected a word or a list of words"),
        ({"a": []}, "class 'a' has an empty word"),
        (["|".join(map(str, range(101)))], "has 101 words; at most 100"),
        ([f"class {i}" for i in range(100_000)], f"100,000 classes: at most {MOST_CLASSES:,}"),
        ("nowhere.txt", "nowhere.txt: not a readable list of classes"),
    ],
)
def test_classes_that_cannot_be_are_one_error(given, match):
    refused(given, match)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("c.txt", b"", "there are no classes"),
        ("c.txt", b"\xff\xfe\x00", "not a readable list"),
        ("c.json", b"{", "not a readable JSON file"),
        ("c.json", b"3", "expected an object from ids to words, or a list"),
        ("c.json", b"[" * 100_000, "not a readable JSON file"),
        ("c.json", b'["cat", null]', "class '1': expected a word"),
    ],
)
def test_damaged_files_are_named(name, content, match, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    refused(str(path), re.escape(str(path)) + ".*" + match)


# ---- templates


def test_a_template_a_name_or_a_file(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("a {} here\n\n{}\n", encoding="utf-8")
    assert templates().texts == (USUAL,)
    assert templates("{}").filled("a cat") == ["a cat"]
    assert templates([str(path)]).texts == templates(path).texts == ("a {} here", "{}")
    assert templates(["a {}", "one {}"]).filled("cat") == ["a cat", "one cat"]


def test_our_own_set_is_ours_and_imagenet_says_so():
    own = templates("photo")
    assert 20 <= len(own) <= 30
    assert own.note == ""
    assert len({text.casefold() for text in own.texts}) == len(own)
    named = templates("imagenet")
    assert named.texts == own.texts
    assert re.search("our own 24, called 'photo', not the 80", named.note)


def test_a_word_is_put_in_as_it_is():
    """Nothing in it is a field of a format."""
    assert templates("a {}!").filled("{0.__class__} %s {}") == ["a {0.__class__} %s {}!"]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("a photo of a cat", r"'a photo of a cat' has no \{\}: expected a sentence with \{\}"),
        ("foto", "did you mean 'photo'"),
        (["a {}", "a cat"], r"template 'a cat' has no \{\}: expected one"),
        ("a {} and a {}", r"has more than one \{\}"),
        (["a {}", "a {}"], "is there twice"),
        ([], "templates: 0 of them; expected 1 to 1,000"),
        (["a {}", 3], "expected texts"),
        ("a {}" * 1 + "x" * 2000, "2,004 characters"),
        ("nowhere.txt", "nowhere.txt: not a readable file of templates"),
    ],
)
def test_templates_that_cannot_be_are_one_error(given, match):
    with pytest.raises(ConfigError, match=match):
        templates(given)
