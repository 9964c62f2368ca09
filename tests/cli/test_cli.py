"""The command line as a user meets it."""

import json
import subprocess
import sys
import time
import tomllib

import pytest

import vitreous
from vitreous.cli.main import COMMANDS, main


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "vitreous", *arguments], capture_output=True, text=True, check=False
    )


def test_help_answers_at_once_and_without_torch():
    code = (
        "import sys, vitreous.cli.main as m; m.main(['--help']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = run("--help")
        times.append(time.perf_counter() - start)
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert min(times) < 0.5


@pytest.mark.parametrize("options", [["models"], ["models", "--weights"], ["summary", "--help"]])
def test_listing_needs_no_torch(options):
    code = (
        "import sys, vitreous.cli.main as m\n"
        f"try: m.main({options})\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_models_lists_every_model_with_its_counts(capsys):
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == vitreous.models()
    assert rows["vit-b/16"]["parameters"] == 86_567_656
    assert main(["models", "cpvt*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "parameters", "GFLOPs"]
    assert all(line.startswith("cpvt-") for line in lines[1:])


def test_weights_are_listed_with_what_one_must_know(capsys):
    assert main(["models", "--weights", "deit*", "--json"]) == 0
    for entry in json.loads(capsys.readouterr().out).values():
        keys = {"model", "format", "address", "preprocessing", "licence", "classes"}
        assert keys <= entry.keys()
    assert main(["models", "--weights"]) == 0
    assert "hf:google/vit-base-patch16-224" in capsys.readouterr().out


def test_summary_shows_the_walk(capsys):
    assert main(["summary", "vit-b/16"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shapes = [line[1] for line in lines if line[0] in ("image", "patch", "tokens", "prefix")]
    assert shapes == ["224x224x3", "14x14x768", "196x768", "197x768"]
    assert lines[-1] == ["total", "86,567,656", "32,696.9"]


def test_summary_takes_sizes_and_fields(capsys):
    options = ["--image-size", "160", "224", "--channels", "1", "--set", "position=none"]
    assert main(["summary", "vit_tiny_patch16_224", *options, "--json"]) == 0
    walk = json.loads(capsys.readouterr().out)
    assert walk["stages"][0]["shape"] == [160, 224, 1]
    assert walk["stages"][1]["shape"] == [10, 14, 192]
    assert walk["parameters"] == sum(stage["parameters"] for stage in walk["stages"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["modles"], "did you mean 'models'"),
        (["summary", "vti-b/16"], "did you mean 'vit-b/16'"),
        (["summary", "vit-b/16", "--imagesize", "224"], "--image-size"),
        (["summary", "vit-b/16", "--image-size", "200"], "does not divide into 16x16 patches"),
        (["summary", "vit-b/16", "--image-size", "2", "2", "2"], "height and width"),
        (["summary", "vit-b/16", "--classes", "0"], "classes = 0"),
        (["summary", "vit-b/16", "--set", "dimm=3"], "did you mean 'dim'"),
        (["summary", "vit-b/16", "--set", "dim"], "name=value"),
        (["summary", "vit-b/16", "--classes", "many"], "classes"),
        (["summary"], "MODEL"),
        (["models", "nothing*"], "'nothing*'"),
    ],
)
def test_bad_input_is_exit_2_with_a_way_out(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2, done
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m vitreous models --weights --json | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "{"
    assert done.stderr == ""


def test_version_is_the_package_s():
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert run("--version").stdout.strip() == f"vitreous {project['version']}"
