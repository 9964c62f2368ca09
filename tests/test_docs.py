"""What the documentation shows is run: code, rules and commands, in their order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vitreous.cli.main import main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def test_formats_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ran = 0
    names: dict[str, object] = {}
    for language, text in blocks("docs/formats.md"):
        named = re.match(r"# (\S+\.(py|toml))\n", text)
        if named:
            Path(named.group(1)).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, "docs/formats.md", "exec"), names)
            ran += 1
    assert ran >= 2
    sys.modules.pop("colleague", None)


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (ROOT / "docs" / target).exists(), f"{page} links to {target}"


def test_readme_commands(tmp_path, monkeypatch, capsys):
    """Every `vitreous` command of the README works as it stands."""
    monkeypatch.chdir(tmp_path)
    commands = [
        line
        for language, text in blocks("README.md")
        if language in ("sh", "bash")
        for line in text.splitlines()
        if line.startswith("vitreous ")
    ]
    assert len(commands) >= 4
    made = ROOT / "tests" / "make_readme_files.py"
    subprocess.run([sys.executable, made, tmp_path], check=True)
    for command in commands:
        arguments = shlex.split(command, comments=True)[1:]
        if arguments[0] == "train":
            arguments.append("--epochs=1")  # the command as it stands, but for its length
        assert main(arguments) == 0, f"{command}\n{capsys.readouterr().err}"


def test_readme_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, ROOT / "tests" / "make_readme_files.py", tmp_path], check=True)
    assert main(["train", "digits", "--out", "runs/digits", "--epochs", "1"]) == 0
    names: dict[str, object] = {}
    pieces = [text for language, text in blocks("README.md") if language == "python"]
    assert pieces
    for text in pieces:
        exec(compile(text, "README.md", "exec"), names)
