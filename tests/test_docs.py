"""What the documentation shows is run: code, rules and commands, in their order."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from follow import blocks, commands, follow
from markdown_pages import dead_links
from study.small_study import PoolHere

from vitreous.cli.main import COMMANDS, module_of
from vitreous.cli.parse import parse

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# docs/zh and README.zh.md have the same code, by test_docs_chinese.py, and are not run again.
# Each group is followed in one empty folder; the page on explanations uses the runs of the others.
GROUPS = {
    "README": ["README.md"],
    "formats": ["docs/formats.md", "docs/importing.md", "docs/vit.md"],
    "tagging": ["docs/tagging.md"],
    "instances": ["docs/instances.md"],
    "pretraining": ["docs/pretraining.md"],
    "export": ["docs/export.md"],
    "living page": ["docs/living-page.md"],
    "benchmark": ["docs/benchmark.md"],
    "merging": ["docs/token-merging.md"],
    "studies": ["docs/studies.md"],
    "words": ["docs/words.md"],
    "guide": [
        f"docs/{name}.md"
        for name in ("training", "compare", "segmentation", "detection", "explain", "embed")
    ],
}


@pytest.mark.parametrize("group", GROUPS)
def test_pages_run_from_top_to_bottom(group, tmp_path, monkeypatch, capsys):
    """Every command and every piece of code, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("vitreous.study.run.Pool", PoolHere)
    modules = set(sys.modules)
    for page in GROUPS[group]:
        assert follow(ROOT / page, capsys), page
    for name in sys.modules.keys() - modules:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]


def test_every_page_with_code_is_followed():
    followed = {ROOT / page for pages in GROUPS.values() for page in pages}
    followed.add(ROOT / "docs" / "serving.md")  # with servers, by tests/serve/test_documents.py
    for page in PAGES:
        languages = {language for language, _ in blocks(page)} - {"indented", "json", "toml"}
        shown = any(commands(text) for _, text in blocks(page))
        assert page in followed or not (languages or shown), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_sentences_have_their_options(page):
    """They name files that nobody has, but no option that there is not."""
    for text in re.findall(r"`vitreous ([^`]+)`", page.read_text(encoding="utf-8")):
        words = shlex.split(text.replace("\n", " ").replace("…", ""))
        command = words[0]
        assert command in COMMANDS, text
        if len(words) > 1 and "--help" not in words and "--resume" not in words:
            parse(command, module_of(command), words[1:])


def test_the_traps_of_words_name_tests_that_there_are():
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    files = [*ROOT.glob("tests/text/*.py"), ROOT / "tests" / "parity" / "test_tokenizers.py"]
    files.append(ROOT / "tests" / "running" / "test_words.py")
    there = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert len(named) > 10
    assert named <= there


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    assert not dead_links(page)
