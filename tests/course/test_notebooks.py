"""Notebooks have the chapters' code; one is run as readers run it, in a kernel of its own."""

from __future__ import annotations

import nbclient
import nbformat
import pytest

from vitreous.course.notebooks import LAST, notebook, write_notebooks
from vitreous.course.text import LANGUAGES, chapters

by_chapter = pytest.mark.parametrize(
    "chapter",
    [chapter for language in LANGUAGES for chapter in chapters(language)[:LAST]],
    ids=lambda chapter: f"{chapter.stem}.{chapter.language}",
)


@by_chapter
def test_a_notebook_is_valid_and_has_the_chapters_code(chapter):
    made = nbformat.reads(notebook(chapter), as_version=4)
    nbformat.validate(made)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    for each in chapter.code().values():
        assert each.text.rstrip() in code
    for text in code:
        compile(text, chapter.stem, "exec")
    assert "{{" not in "".join(c.source for c in made.cells if c.cell_type == "markdown")


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs_and_shows_everything_inline(tmp_path):
    made = nbformat.reads(notebook(chapters("en")[0]), as_version=4)
    nbclient.NotebookClient(made, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [
        output.data["text/html"]
        for cell in made.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert any("<svg" in each for each in shown)
    assert any("<iframe srcdoc" in each for each in shown)


def test_notebooks_that_a_reader_has_stay(tmp_path):
    first = write_notebooks(tmp_path)
    first[0].write_text("mine")
    assert write_notebooks(tmp_path) == []
    assert first[0].read_text() == "mine"
