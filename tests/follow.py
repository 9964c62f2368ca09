"""Follow a page as its reader would: run its code and its commands, from top to bottom."""

import contextlib
import re
import shlex
from pathlib import Path

from living_pages import has_runtime
from train.tiny import digit_folder, garment_folder
from train.undrawn import undrawn

from vitreous.cli.main import main, module_of
from vitreous.cli.parse import parse

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```|^((?: {4}[^\n]*\n)+)", flags=re.MULTILINE | re.DOTALL)
SHELL = ("sh", "bash", "indented")
# What takes longer than a test needs, or what this machine may not have, is replaced: data,
SMALLER = {
    r"shapes(:\d+)?": lambda: "shapes:20",
    r"handwriting(:\d+)?": lambda: "handwriting:20",
    r"digits": digit_folder,
    r".*/fashion-mnist": garment_folder,
}
# depths of models that are exported, and what other tests measure.
FASTER = {
    ("README.md", "train shapes:300 --task detect"): ["--set=decoder_depth=1"],
    ("token-merging.md", "train digits"): ["--set=depth=2"],
    ("export.md", "train digits"): ["--set=depth=2"],
    ("benchmark.md", "train digits"): ["--set=depth=2"],
    ("benchmark.md", "benchmark"): ["--no-memory"],
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of code; what is only indented is a block as well."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language or "indented", text or indented) for language, text, indented in found]


def commands(text: str) -> list[list[str]]:
    """The words of each `vitreous` command in a block, without `vitreous`."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    wanted = [line for line in lines if line.startswith("vitreous ")]
    return [shlex.split(line, comments=True)[1:] for line in wanted]


def shorten(words: list[str], page: str = "") -> list[str]:
    """The same command with little data, training for one epoch; of a benchmark, torch alone, but
    for the page about it."""
    line = " ".join(words)
    faster = (more for (at, begin), more in FASTER.items() if at == page and line.startswith(begin))
    more = next(faster, [])
    if words[0] == "benchmark" and page != "benchmark.md":
        more = ["--engines=torch", "--no-memory"]
    if words[0] in ("train", "pretrain"):
        data = parse(words[0], module_of(words[0]), words[1:]).to_recipe().data
        words = [words[0], data, *(word for word in words[1:] if word != data)]
        more = ["--epochs=1", *more]
        if any(word.startswith("--overfit") for word in words):
            more += ["--overfit=2", "--batch=20"]
    return [*map(smaller, words), *more]


def smaller(word: str) -> str:
    makers = (make for name, make in SMALLER.items() if re.fullmatch(name, word))
    return str(next(makers, lambda: word)())


def follow(page: Path, capsys) -> int:
    """How many blocks were run. Files are made and looked for in the working folder. Of several
    trainings, the first draws the figures of its report. Where a browser's runtime cannot be had,
    pages are not written."""
    ran, names, trained = 0, {}, False
    for language, text in blocks(page):
        if file := re.match(r"# (\S+\.(?:py|toml))\n", text):
            Path(file[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
            ran += 1
        elif language in SHELL and commands(text):
            for words in commands(text):
                if words[0] == "export" and words[2].endswith(".html") and not has_runtime():
                    continue
                trains = words[0] in ("train", "pretrain")
                again, trained = trains and trained, trains or trained
                with undrawn() if again else contextlib.nullcontext():
                    code = main(shorten(words, page.name))
                assert code == 0, f"vitreous {shlex.join(words)}\n{capsys.readouterr().err}"
            ran += 1
    return ran
