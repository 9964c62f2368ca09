"""Cards: their answers, and what Anki gets."""

import json
import sqlite3
import sys
import zipfile

import pytest
import torch

import vitreous
from vitreous.course import cards as module
from vitreous.course.cards import (
    ANSWER,
    QUESTION,
    answer_cards,
    as_html,
    cards_markdown,
    read_cards,
    write_anki,
    write_cards,
)
from vitreous.course.contents import CHAPTERS
from vitreous.course.entries import PLACE, CourseEntry, read_entries
from vitreous.course.facts import NotMeasuredError
from vitreous.errors import ConfigError
from vitreous.study.find import find_result, find_study

CARDS = read_cards()


def test_every_chapter_has_its_cards():
    for number in CHAPTERS:
        assert 8 <= sum(card.chapter == number for card in CARDS) <= 13
    assert [card.chapter for card in CARDS] == sorted(card.chapter for card in CARDS)


def waits_for(card):
    """The study, or the run, that a card needs and that is not there."""
    for value in card.values:
        name, _, rest = value.partition("(")
        if name == "own":
            return "a run"
        study = rest.split('"')[1] if name in ("study", "difference", "lr", "verdict") else None
        if study and find_result(study) is None:
            return study
    return None


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)
def test_a_card_is_answered_in_both_languages(card):
    """All but those that wait for a study, which is named, or for a run of the reader."""
    missing = waits_for(card)
    for lang in ("en", "zh"):
        if missing:
            expected = "run folder of yours" if missing == "a run" else f"{missing!r} is not meas"
            with pytest.raises(NotMeasuredError, match=expected):
                [card.text(part, lang) for part in (QUESTION, ANSWER)]
            continue
        for part in (QUESTION, ANSWER):
            text = card.text(part, lang)
            assert text.strip() == text != ""
            assert not PLACE.search(text)
            assert text.count("`") % 2 == text.count("$") % 2 == 0
            if lang == "zh":
                assert text[-1] in "。？"
            else:
                assert text[-1] in ".?"
                assert not any("\u3000" <= each <= "\u9fff" for each in text)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)
def test_what_a_card_asks_of_a_study_is_in_it(card):
    """Also of those that have not been measured yet."""
    for value in card.values:
        name, _, rest = value.partition("(")
        if name in ("study", "difference", "lr"):
            words = rest.split('"')[1::2]
            known = {each.name for each in find_study(words[0]).variant}
            variants = words[1:3] if name == "difference" else words[1:2]
            assert {each.partition("@")[0] for each in variants} <= known, value


def test_some_answers():
    """By hand."""
    answers = {each.card.id: each.answers[0] for each in answer_cards().cards}
    assert answers["tokens-at-384"].startswith("577: 24 × 24 patches")
    assert answers["embedding-parameters"] == (
        "590,592: 768 numbers in a patch times 768, and 768 biases."
    )
    sizes = "5,717,416, 22,050,664, 86,567,656, 304,326,632 and 632,045,800."
    assert answers["parameters-of-sizes"] == sizes
    assert answers["block-formula"].endswith(f"{12 * 768**2 + 13 * 768:,}.")
    assert "17.6 GMACs" in answers["flops-or-macs"]
    assert answers["swin-table-4"] == "81.3 % with shifts against 80.2 % without."


@pytest.mark.parametrize(
    "asked",
    [
        # the questions of note 002, in its order
        *("vit-in-short", "stages-and-shapes", "patch-embedding", "position-in-vit"),
        *("class-token-what", "encoder-structure", "mlp-layer", "inductive-bias"),
        "results-of-the-paper",
    ],
)
def test_what_the_note_asks_is_asked(asked):
    assert asked in {card.id for card in CARDS}


# ---- the reader's own model


FIELDS = {"patch": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    fields = [f"{name}={value}" for name, value in FIELDS.items()]
    options = {"model": "vit", "image_size": (8, 8), "fields": fields, "epochs": 1}
    vitreous.train("digits", out=folder, progress=False, **options)
    return folder


def test_a_run_answers_for_itself(run):
    answers = {each.card.id: each for each in answer_cards("en", run).cards}
    model = vitreous.create("vit", **FIELDS, image_size=8, channels=1, classes=10)
    count = sum(each.numel() for each in model.parameters())
    assert answers["own-parameters"].answers[0].startswith(f"{count:,} parameters")
    assert answers["own-grid"].answers[0].startswith("2 × 2; 5 tokens")
    verdict = json.loads((run / "verdict.json").read_text())
    score = answers["own-score"]
    assert score.questions[0].startswith("How good is your own model on its test images (accuracy)")
    assert score.answers[0].startswith(f"{100 * verdict['accuracy']:.1f} % (")
    best = verdict["baselines"]["k-NN on pixels"]["accuracy"]
    assert score.answers[0].endswith(f"k-NN on pixels: {100 * best:.1f} %.")


def test_a_run_without_a_verdict_leaves_those_cards_out(run, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    found = answer_cards("zh", tmp_path, chapters=[6, 7])
    assert "own-parameters" in {each.card.id for each in found.cards}
    assert "has no verdict.json" in found.left_out["own-score"]


def test_what_is_no_run_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="is no run folder"):
        answer_cards("en", tmp_path, chapters=[6])


# ---- files


def opened(path, folder):
    """The notes of a package: {id: (guid, question, answer, deck)}, its decks and forms."""
    with zipfile.ZipFile(path) as package:
        assert package.testzip() is None
        assert json.loads(package.read("media")) == {}
        (folder / "collection").write_bytes(package.read("collection.anki2"))
    connection = sqlite3.connect(folder / "collection")
    try:
        rows = connection.execute(
            "select n.guid, n.flds, c.did, n.mid from notes n join cards c on c.nid = n.id"
        ).fetchall()
        decks, models = (
            json.loads(connection.execute(f"select {name} from col").fetchone()[0])
            for name in ("decks", "models")
        )
    finally:
        connection.close()
    notes = {}
    for guid, fields, deck, _ in rows:
        question, answer, name = fields.split("\x1f")
        notes[name] = (guid, question, answer, deck)
    return notes, decks, {str(row[3]) for row in rows} & set(models)


def test_the_package_has_a_note_for_each_card(tmp_path):
    found = write_cards(tmp_path / "cards.apkg", "en")
    notes, decks, models = opened(tmp_path / "cards.apkg", tmp_path)
    assert set(notes) == {each.card.id for each in found.cards}
    assert len(notes) == len(CARDS) - len(found.left_out)
    assert len(models) == 1
    by_id = {card.id: card for card in CARDS}
    for name, (_, question, _, deck) in notes.items():
        number = by_id[name].chapter
        assert decks[str(deck)]["name"] == f"Vitreous::{number:02d} {CHAPTERS[number].en}"
        assert question
    answer = notes["attention-formula"][2]
    assert answer.startswith(r"\(\mathrm{softmax}(QK^T/\sqrt{d})\,V\): Q, K, V")
    assert "<code>x = x + attention(norm1(x))</code>" in notes["block-equations"][2]


def test_importing_again_updates_notes_whatever_the_language(tmp_path):
    """Anki knows notes by their guid, decks and forms by their ids."""
    found = {}
    for lang in ("en", "zh", "both"):
        path = tmp_path / f"{lang}.apkg"
        write_anki(path, answer_cards(lang, chapters=[1, 3]), when=1e9)
        notes, _, models = opened(path, tmp_path)
        found[lang] = {name: (guid, deck) for name, (guid, _, _, deck) in notes.items()}, models
        text = notes["softmax-axis"][1]
        assert ("Along which axis" in text) == (lang != "zh")
        assert ("沿哪个轴" in text) == (lang != "en")
    assert found["en"] == found["zh"] == found["both"]
    assert len({guid for guid, _ in found["en"][0].values()}) == len(found["en"][0])


def test_the_same_cards_make_the_same_file(tmp_path):
    for name in ("a", "b"):
        write_anki(tmp_path / name, answer_cards("both", chapters=[2]), when=1.7e9)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(place))
    write_cards(tmp_path / "cards.apkg", chapters=[1])
    assert list(place.iterdir()) == []


def test_markdown_has_sections_questions_and_answers(tmp_path):
    found = write_cards(tmp_path / "new" / "cards.md", "both", chapters=[1, 2])
    text = (tmp_path / "new" / "cards.md").read_text(encoding="utf-8")
    assert text == cards_markdown(found)
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == [f"## {n} {CHAPTERS[n].en} · {CHAPTERS[n].zh}" for n in (1, 2)]
    assert text.count("\n**") == 2 * len(found.cards)


def test_text_for_anki_is_safe_html():
    assert as_html("a < b & `x < y` and $p < q$") == (
        r"a &lt; b &amp; <code>x &lt; y</code> and \(p &lt; q\)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "cards.txt"}, "FILE.apkg .for Anki. or FILE.md"),
        ({"path": "cards.md", "lang": "de"}, "lang = 'de': expected one of en, zh, both"),
        ({"path": "cards.md", "chapters": [14]}, "there is no chapter 14"),
    ],
)
def test_what_cannot_be_written_is_said(arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        write_cards(tmp_path / arguments.pop("path"), **arguments)
    assert list(tmp_path.iterdir()) == []


def test_without_genanki_markdown_is_offered(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "genanki", None)
    with pytest.raises(ConfigError, match=r"vitreous\[course\]"):
        write_cards(tmp_path / "cards.apkg", chapters=[1])
    assert list(tmp_path.iterdir()) == []


# ---- entries of any kind


def entry(**changes):
    usual = {
        "id": "a",
        "chapter": 1,
        "en": ("q {0}", "a"),
        "zh": ("问 {0}", "答"),
        "values": ("x",),
    }
    return CourseEntry(**{**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": ""}, "no id"),
        ({"chapter": 14}, "there are 1 to 13"),
        ({"zh": ("问 {0}",)}, "2 English and 1 Chinese"),
        ({"en": ("q {0}", "a", "b"), "zh": ("问 {0}", "答", "b")}, "3 English and 3 Chinese"),
        ({"zh": ("问", "答")}, r"places \[0\] in English and \[\] in Chinese"),
        ({"values": ()}, r"0 values for the places \[0\]"),
        ({"values": ("x", "y")}, r"2 values for the places \[0\]"),
        (
            {"en": ("q {0}", "2^{2}"), "zh": ("问 {0}", "2^{2}")},
            r"1 values for the places \[0, 2\]",
        ),
    ],
)
def test_an_entry_that_cannot_be_shown_is_an_error(changes, message):
    with pytest.raises(ConfigError, match=message):
        entry(**changes).check(range(2, 3))
    entry().check(range(2, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[cart]]\nid = 'a'", "unknown key 'cart'"),
        ("[[card]]\nid = 'a'\nquestion = 'b'", "unknown field 'question'"),
        ("[[card]]\nid = 'a'\nchapter = 1\nen = ['b', 'c']\nzh = ['b', 'c']\n" * 2, "two of this"),
    ],
)
def test_a_file_of_entries_is_checked(text, message, tmp_path):
    path = tmp_path / "cards.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as error:
        read_entries(path, "card", CourseEntry, range(2, 3))
    assert str(path) in str(error.value)


def test_answers_leave_random_numbers_alone():
    before = torch.random.get_rng_state()
    answer_cards(chapters=[1, 2, 3])
    assert torch.equal(before, torch.random.get_rng_state())
