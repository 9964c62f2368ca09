"""Every concept of the study notes has a place in the course."""

import re

import pytest

from vitreous.course.contents import CHAPTERS
from vitreous.course.glossary import SENTENCE, TERM, glossary_table, read_glossary

NOTES = {"000", "001", "002", "003", "004"}
TERMS = read_glossary()


def test_it_covers_all_chapters_and_notes():
    assert {each.chapter for each in TERMS} == set(CHAPTERS) == set(range(1, 14))
    assert {note for each in TERMS for note in each.notes} == NOTES
    assert [each.chapter for each in TERMS] == sorted(each.chapter for each in TERMS)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.id)
def test_an_entry_is_a_term_and_a_sentence_in_both_languages(term):
    assert set(term.notes) <= NOTES
    assert list(term.notes) == sorted(set(term.notes))
    assert bool(term.formula) <= (term.kind == "formula")
    english, chinese = (term.text(SENTENCE, lang) for lang in ("en", "zh"))
    assert english.endswith(".")
    assert chinese.endswith("。")
    assert term.text(TERM, "en")
    assert re.search(r"[\u4e00-\u9fff]", chinese)
    assert not re.search(r"[\u4e00-\u9fff]", english + term.en[TERM])


def test_a_term_has_one_name():
    for lang in ("en", "zh"):
        names = [term.text(TERM, lang) for term in TERMS]
        assert len(names) == len(set(names)), lang


@pytest.mark.parametrize(
    ("note", "terms"),
    [
        # what readers of each note would look for first
        ("000", "patch-embedding position-ablation interpolation hybrid drop-path sizes-table"),
        ("000", "attention-distance attention-map data-figure results-table equation-4 mlp-head"),
        ("001", "einops einsum residual-add mean-pooling summary attention-shapes"),
        ("002", "inductive-bias patch-embedding class-token mlp flash-cards"),
        ("003", "distillation-token pre-logits swin patch-merging matching nms no-object"),
        ("004", "layer-or-batch weighted-sum segmentation projections score-variance"),
    ],
)
def test_what_a_note_teaches_is_there(note, terms):
    known = {each.id: each for each in TERMS}
    for term in terms.split():
        assert note in known[term].notes, term


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_table_has_a_row_for_each(lang):
    rows = glossary_table(lang).splitlines()
    assert len(rows) == len(TERMS) + 2
    assert all(row.count("|") == 5 for row in rows)
