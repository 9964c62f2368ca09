"""Words on the command line: predict, evaluate, and what a user must change."""

import json

import pytest
from shared import printed, refused, run_command
from worded_runs import clip_run, clip_weights, photographs, siglip_run

import vitreous


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return photographs(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def photo(photos):
    return photos / "red" / "0.png"


def test_predict_with_words_in_a_row_or_in_a_file(photo, tmp_path):
    (tmp_path / "words.txt").write_text("a cat\na dog | a hound\n")
    for words in (["a cat", "a dog"], [tmp_path / "words.txt"]):
        found = json.loads(printed("predict", clip_run(), photo, "--classes", *words, "--json"))
        assert {each["label"] for each in found["top"]} == {"a cat", "a dog"}


@pytest.mark.parametrize(
    "templates", [["photo"], ["a {}", "the {}"], ["t.txt"]], ids=["set", "sentences", "file"]
)
def test_predict_with_templates(templates, photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("a {}\nthe {}\n")
    words = ["--classes", "cat", "dog", "--json", "--templates", *templates]
    found = json.loads(printed("predict", clip_run(), photo, *words))
    given = templates[0] if len(templates) == 1 else templates
    expected = vitreous.load(clip_run(), classes=["cat", "dog"], templates=given)(photo)
    assert found["top"][0]["score"] == pytest.approx(expected.scores[expected.label], abs=1e-6)


def test_siglip_answers_with_labels(photo):
    words = ["--classes", "cat", "dog", "--json"]
    found = json.loads(printed("predict", siglip_run(), photo, *words))
    assert {each["label"] for each in found["top"]} == {"cat", "dog"}
    assert sum(each["score"] for each in found["top"]) != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("run", [clip_run, siglip_run], ids=["clip", "siglip"])
def test_evaluate_by_the_names_of_the_data(run, photos):
    """Whichever was trained with sigmoids: images have one class each, and one is chosen."""
    done = run_command("evaluate", run(), photos, "--classes", "names", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [*found["classes"]] == ["blue", "green", "red"]
    assert {"accuracy", "confusion", "intervals"} <= found.keys()
    assert found["templates"] == ["a photo of a {}."]
    assert "classes are the words 'blue', 'green', 'red' in 'a photo of a {}.'" in done.stderr
    options = {"classes": ["blue", "green", "red"]}
    predictor = vitreous.load(run(), **options)
    paths = sorted(photos.rglob("*.png"))
    best = [max(each.scores, key=each.scores.get) for each in predictor(paths)]
    right = sum(name == path.parent.name for name, path in zip(best, paths, strict=True))
    assert found["accuracy"] == pytest.approx(right / len(paths))


def test_evaluate_by_words_for_the_names_of_the_data(photos, tmp_path):
    (tmp_path / "words.txt").write_text("red: crimson\ngreen: grass | leaf\nblue: the sky\n")
    words = ["--classes", tmp_path / "words.txt", "--json"]
    found = json.loads(printed("evaluate", clip_run(), photos, *words))
    assert [*found["classes"]] == ["crimson", "grass", "the sky"]
    assert found["samples"] == 6


# ---- one message each


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--classes"], "there are no classes"),
        (["--classes", "cat", "--templates", "a photo"], "has no {}"),
        (["--classes", "cat", "--templates", "{} or {}"], "more than one {}"),
        (["--classes", "cat " * 90], "more than the 75 tokens"),
        (["--classes", "cat", "cat"], "two classes have the same name: cat"),
        (["--classes", "missing.txt"], "not a readable list of classes"),
        (["--templates", "a {}"], "give classes, too"),
        (["--labels", "cat"], "--classes WORDS"),
    ],
)
def test_what_cannot_be_said(words, told, photo):
    message = refused("predict", clip_run(), photo, *words)
    assert told in message
    assert "Traceback" not in message


def test_a_hundred_thousand_classes(photo, tmp_path):
    (tmp_path / "many.txt").write_text("".join(f"thing {i}\n" for i in range(100_000)))
    told = refused("predict", clip_run(), photo, "--classes", tmp_path / "many.txt")
    assert "100,000 classes: at most 50,000" in told


def test_runs_that_take_no_words(photo, photos, tmp_path):
    from runs import vit_run

    told = refused("predict", vit_run(), photo, "--classes", "cat")
    assert "takes no words" in told
    folder = tmp_path / "hf"
    folder.mkdir()
    for path in clip_weights().iterdir():
        if not path.name.startswith("token"):
            (folder / path.name).write_bytes(path.read_bytes())
    assert "no tokenizer beside the weights" in printed(
        "import", folder, "--out", tmp_path / "silent"
    )
    told = refused("predict", tmp_path / "silent", photo, "--classes", "cat")
    assert "has no tokenizer, and so takes no words" in told


def test_evaluate_without_words_says_how(photos):
    assert "--classes names" in refused("evaluate", clip_run(), photos)


def test_words_for_other_classes_than_the_data_has(photos):
    told = refused("evaluate", clip_run(), photos, "--classes", "red", "green")
    assert "classes that the model does not know: blue" in told


def test_import_folds_words_in(photo, tmp_path):
    (tmp_path / "words.txt").write_text("cat | kitten\ndog\n")
    out = tmp_path / "folded"
    words = ["--classes", tmp_path / "words.txt", "--templates", "a {}"]
    told = printed("import", clip_run(), *words, "--out", out)
    assert "classify, 2 classes" in told
    assert "its scores are those of both towers" in told
    one = json.loads(printed("predict", out, photo, "--json"))
    other = json.loads(printed("predict", clip_run(), photo, *words, "--json"))
    assert one["top"] == other["top"]
    file = tmp_path / "m.onnx"
    printed("export", clip_run(), file, *words)
    third = json.loads(printed("predict", file, photo, "--json"))
    assert third["top"][0]["label"] == one["top"][0]["label"]


def test_what_cannot_be_folded(tmp_path):
    told = refused("import", clip_run(), "--templates", "a {}", "--out", tmp_path / "folded")
    assert "give classes, too" in told
    told = refused("export", clip_run(), tmp_path / "m.onnx", "--classes")
    assert "there are no classes" in told
