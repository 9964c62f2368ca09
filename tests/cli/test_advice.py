"""Advice in messages: what it names exists, in the words of whoever reads it."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from shared import refused

from vitreous.cli.main import COMMANDS, main, module_of
from vitreous.cli.parse import advice_in_shell, arguments_of, config_names, options_of, parse
from vitreous.errors import Word, advice, spelled_by
from vitreous.train.recipe import KEYS

ROOT = Path(__file__).parents[2]
OPTIONS = {command: options_of(arguments_of(module_of(command))) for command in COMMANDS}
# The commands that can show what a module says: every one of them must have its options.
READERS = {
    "vitreous/data": ("data", "train"),
    "vitreous/train": ("train",),
    "vitreous/tasks": ("train",),
    "vitreous/tasks/objects/show.py": ("predict",),
    "vitreous/pages": ("predict",),
    "vitreous/pages/vector_map.py": ("embed",),
    "vitreous/weights/convert.py": ("convert",),
    "vitreous/weights": (),
    "vitreous/models": (),
    "vitreous/layers": (),
    "vitreous/cli/main.py": (),
    "vitreous/cli/parse.py": (),
    **{f"vitreous/cli/{command}.py": (command,) for command in COMMANDS},
}
OF_EVALUATE = {"results", "from", "figures"}
# Python keywords that the command line has other ways for, or does not need.
PYTHON_ONLY = {"keep"}


def literals():
    """(file, text) of every string of the package that is not a docstring; {} is what is filled
    in."""
    for path in sorted((ROOT / "vitreous").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        inner = {
            id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = [
                    each.value if isinstance(each, ast.Constant) else "{}" for each in node.values
                ]
                yield path.relative_to(ROOT).as_posix(), "".join(parts)
            elif isinstance(node, ast.Constant) and id(node) not in docs | inner:
                yield path.relative_to(ROOT).as_posix(), str(node.value)


def readers(file):
    """Of the longest entry that the file lies below."""
    fitting = [name for name in READERS if file == name or file.startswith(f"{name}/")]
    return READERS[max(fitting, key=len)] if fitting else None


def test_every_option_in_a_message_is_one_of_the_command_that_shows_it():
    seen = set()
    for file, text in literals():
        for command, rest in re.findall(r"vitreous ([a-z]+)((?: [^ '\"]+)* --[^'\"]*)", text):
            for option in re.findall(r"--([a-z][a-z-]+)", rest):
                assert option in {**OPTIONS[command], "help": True}, f"{file}: {text}"
        alone = re.sub(r"vitreous [a-z]+(?: [^ '\"]+)* --[^'\"]*", "", text)
        for option in re.findall(r"(?<![\w-])--([a-z][a-z-]+)", alone):
            seen.add(option)
            assert any(option in known for known in OPTIONS.values()) or option in (
                "help",
                "version",
            ), f"{file}: --{option} does not exist: {text}"
            for command in readers(file) or ():
                known = {*OPTIONS[command], *(OF_EVALUATE if "tasks" in file else ())}
                assert option in known, f"{file}: {command} has no --{option}: {text}"
    assert {"out", "set", "lr", "names"} <= seen


def advised():
    """(file, names) of every `advice(…)` in the package."""
    for path in sorted((ROOT / "vitreous").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "advice":
                yield path, {keyword.arg for keyword in node.keywords if keyword.arg}


def test_advice_names_an_option_of_some_command():
    known = {name.replace("-", "_") for each in OPTIONS.values() for name in each}
    for file, names in advised():
        assert names <= known | config_names() | KEYS | PYTHON_ONLY, file
    seen = set().union(*(names for _, names in advised()))
    assert {"pad", "reinit", "drop", "resample", "download"} <= seen


@pytest.mark.parametrize(
    ("command", "ways", "shown"),
    [
        ("summary", {"pad": True}, "pass --set pad=True to go on"),
        ("predict", {"pad": True}, ""),
        ("convert", {"resample": "bicubic"}, "pass --resample bicubic to go on"),
        ("convert", {"reinit": ["head.*"]}, "pass --reinit 'head.*' to go on"),
        ("convert", {"source_grid": (Word("H"), Word("W"))}, "pass --source-grid H W to go on"),
        ("train", {"drop": ["key.*"]}, "pass --drop 'key.*' to 'vitreous convert' to go on"),
        ("train", {"download": True}, "pass --download to go on"),
        ("train", {"mixup": 0.2}, "pass --set-recipe mixup=0.2 to go on"),
        ("evaluate", {"download": True}, ""),
        ("train", {"crop": "window", "resize": "square"}, "pass --crop window or --resize square"),
    ],
)
def test_advice_is_spelled_for_the_shell(command, ways, shown):
    with spelled_by(advice_in_shell(OPTIONS[command])):
        assert advice("pass ", " to go on", **ways).startswith(shown)
        assert bool(advice("pass ", **ways)) == bool(shown)
    python = " or ".join(f"{name}={value!r}" for name, value in ways.items())
    assert advice("pass ", **ways) == f"pass {python}"


def test_messages_of_the_shell_have_no_python(capsys):
    assert main(["summary", "vit-b/16", "--image-size", "100"]) == 2
    err = capsys.readouterr().err
    assert "pass --set pad=True" in err
    assert main(["summary", "vit-b/16", "--image-size", "100", "--set", "pad=True"]) == 0


def parsed(*words):
    module = importlib.import_module("vitreous.cli.train")
    return parse("train", module, words).to_recipe()


def test_true_and_false_in_any_case(tmp_path, monkeypatch):
    """Also of flags, which take back what a recipe sets."""
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text("recompute = true\nflip = true\n")
    for text in ("False", "false", "FALSE"):
        recipe = parsed("--recipe", "r.toml", "--recompute", text, f"--flip={text}")
        assert (recipe.recompute, recipe.flip) == (False, False)
        assert parsed("--recipe", "r.toml", f"--recompute={text}", "a").recompute is False
    for words in (["--download"], ["--download", "true"], ["--download=True"], ["--download", "a"]):
        assert parsed(*words).download is True
    assert parsed("--download", "a").data == "a"
    assert parsed("--recipe", "r.toml", "--recompute").recompute is True
    assert parsed("--", "true").data == "true"


ELSEWHERE = {
    "lr": "learning-rate learning_rate base-lr",
    "batch": "batch-size bs",
    "epochs": "num-epochs",
    "image-size": "img-size imgsz input-size",
    "workers": "num-workers dataloader-num-workers",
    "weights": "pretrained ckpt",
    "out": "output output-dir save-dir",
    "device": "device-ids gpus",
    "set": "fields",
    "precision": "amp",
    "seed": "random-seed",
    "model": "arch",
}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [(each, ours) for ours, names in ELSEWHERE.items() for each in names.split()],
)
def test_names_of_other_programs_suggest_ours(theirs, ours):
    assert f"did you mean --{ours}?" in refused("train", f"--{theirs}", "3")
