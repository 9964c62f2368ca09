"""The command line as a user meets it."""

import json
import re
import subprocess
import sys
import time
import tomllib
import typing
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from shared import printed

import vitreous
from vitreous.cli import parse as parsing
from vitreous.cli import pretrain, train
from vitreous.cli.main import COMMANDS, main, module_of
from vitreous.cli.parse import arguments_of, options_of, parse
from vitreous.errors import ConfigError
from vitreous.tasks import PRETRAINING, TASKS, task_class
from vitreous.train.recipe import Recipe

GROUPS = ("data", "model", "optimisation", "augmentation", "preprocessing", "run")


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "vitreous", *arguments], capture_output=True, text=True, check=False
    )


def help_of(command, capsys):
    """The lines of a command's help without their frame, and the text of each of its options."""
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert not end.value.code
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    texts, option = {}, ""
    for line in lines:
        if found := re.match(r"--([a-z-]+)", line):
            option = found[1]
        if line.startswith(("╭", "╰", "──", "---")) or not line:
            option = ""
        if option:
            texts[option] = " ".join([texts.get(option, ""), *line.split()]).strip()
    return lines, texts


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained_in_a_sentence(command, capsys):
    arguments = arguments_of(module_of(command))
    _, texts = help_of(command, capsys)
    assert set(options_of(arguments)) == texts.keys()
    for option, text in texts.items():
        assert re.search(r"[A-Z][a-z].*\.( \((default: .+|repeatable.*)\))?$", text), text
        assert not re.match(rf"--{option} (STR|TEXT|INT|FLOAT|PATH)\b", text), text
        assert "None" not in text, text


def test_training_options_are_grouped_and_the_common_ones_come_first(capsys):
    lines, texts = help_of("train", capsys)
    groups = ["options", *(f"{g} options" for g in GROUPS)]
    titles = [re.sub(r"[^a-z ]", "", line).strip() for line in lines]
    places = [titles.index(group) for group in groups]
    assert places == sorted(places)
    options = list(texts)
    common = options[: options.index("names")]
    assert {"model", "weights", "epochs", "batch", "lr", "image-size"} <= set(common)
    assert {"recipe", "out", "resume", "task", "seed"} <= set(common)
    assert len(common) <= 17
    choices = {"precision": "{auto,float32,bfloat16}", "crop": "{resized,window,shift,none}"}
    choices["task"] = "{" + ",".join(TASKS) + "}"
    assert all(values in texts[option] for option, values in choices.items())


def test_training_shows_what_people_set_often():
    """The rest is a key of the recipe; pre-training has no option that could only fail."""
    options = {command: options_of(arguments_of(module_of(command))) for command in COMMANDS}
    assert len(options["train"]) <= 45
    unused = {name for each in map(task_class, TASKS) for name in each.options}
    unused -= {name for each in map(task_class, PRETRAINING) for name in each.options}
    unused |= frozenset.intersection(*(task_class(name).refused for name in PRETRAINING))
    hidden = {name for name in options["train"] if name.replace("-", "_") in unused}
    assert hidden == set(pretrain.UNUSED)
    assert options["pretrain"].keys() == options["train"].keys() - hidden | {"method"}


def test_every_key_of_a_recipe_is_explained(capsys):
    assert main(["train", "--help-recipe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.partition(" = ")[0] for line in lines if re.match(r"[a-z_]+ = ", line)]
    assert shown == [field.name for field in fields(Recipe) if field.name in shown]
    assert {field.name for field in fields(Recipe)} - set(shown) == {"augment", "method"}
    assert all(below.startswith("    ") for line, below in pairwise(lines) if " = " in line)


def test_a_key_is_set_as_in_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text("warmup = 0.3\nmixup = 0.5\n")
    words = ["--recipe=r.toml", "--set-recipe", "mixup=0", "--set-recipe=betas=[0.8, 0.9]"]
    words += ["--set_recipe", "sampler=balanced", "--set-recipe=shard=true", "--lr=1"]
    recipe = parse("train", train, [*words, "--set-recipe=lr=2"]).to_recipe()
    assert (recipe.warmup, recipe.mixup, recipe.betas) == (0.3, 0.0, (0.8, 0.9))
    assert (recipe.sampler, recipe.shard, recipe.lr) == ("balanced", True, 1.0)
    recipe = parse("train", train, ["--set-recipe=weights=hf:a/b"]).to_recipe()
    assert recipe.layer_decay == 0.75  # of the recipe to fine-tune


def test_help_shows_the_values_of_a_recipe(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--recipe", "fine-tune", "--help"])
    assert "(default: 0.75)" in capsys.readouterr().out  # its layer_decay


def test_help_and_lists_need_no_torch():
    code = (
        "import sys, vitreous, vitreous.cli.main as m\n"
        "helps = [[], *([command] for command in m.COMMANDS)]\n"
        "for words in [*([*h, '--help'] for h in helps), ['models'], ['models', '--weights']]:\n"
        "    try: m.main(words)\n"
        "    except SystemExit as end: assert not end.code\n"
        "    assert 'torch' not in sys.modules, words"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_help_answers_at_once():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = run("--help")
        times.append(time.perf_counter() - start)
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert min(times) < 0.5


def test_models_lists_every_model_with_its_counts(capsys):
    rows = json.loads(printed("models", "--json"))
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
    assert "hf:google/vit-base-patch16-224" in printed("models", "--weights")


def test_summary_shows_the_walk(capsys):
    assert main(["summary", "vit-b/16"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shapes = [line[1] for line in lines if line[0] in ("image", "patch", "tokens", "prefix")]
    assert shapes == ["224x224x3", "14x14x768", "196x768", "197x768"]
    assert lines[-1] == ["total", "86,567,656", "32,696.9"]


def test_summary_takes_sizes_and_fields():
    options = ["--image-size", "160", "224", "--channels", "1", "--set", "position=none"]
    walk = json.loads(printed("summary", "vit_tiny_patch16_224", *options, "--json"))
    assert walk["stages"][0]["shape"] == [160, 224, 1]
    assert walk["stages"][1]["shape"] == [10, 14, 192]
    assert walk["parameters"] == sum(stage["parameters"] for stage in walk["stages"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["modles"], ["'models'"]),
        (["summary", "vti-b/16"], ["'vit-b/16'"]),
        (["summary", "vit-b/16", "--imagesize", "224"], ["--imagesize", "--image-size"]),
        (["summary", "vit-b/16", "--image-size", "200"], ["200", "16x16"]),
        (["summary", "vit-b/16", "--image-size", "2", "2", "2"], ["image_size"]),
        (["summary", "vit-b/16", "--image-size", "a"], ["--image-size", "'a'"]),
        (["summary", "vit-b/16", "--classes", "0"], ["classes = 0"]),
        (["summary", "vit-b/16", "--set", "dimm=3"], ["'dim'"]),
        (["summary", "vit-b/16", "--set", "dim"], ["name=value"]),
        (["summary", "vit-b/16", "--classes", "many"], ["--classes", "'many'"]),
        (["summary", "vit-b/16", "--classes"], ["--classes"]),
        (["summary", "vit-b/16", "twice"], ["twice"]),
        (["summary"], ["MODEL"]),
        (["convert"], ["SRC", "DST"]),
        (["models", "nothing*"], ["'nothing*'"]),
        (
            ["predict", "runs/clip", "a.jpg", "--labels", "a cat, a dog"],
            ["--labels", "--classes WORDS"],
        ),
        (["train", "--learning-rate", "1"], ["--learning-rate", "--lr?"]),
        (["train", "--lerning_rate=1"], ["--lerning_rate", "--lr?"]),
        (["train", "--fields", "dim=3"], ["--fields", "--set?"]),
        (["train", "-lr", "1"], ["-lr", "--lr?"]),
        (["train", "--crop", "windo"], ["--crop", "'windo'", "'window'", "shift"]),
        (["train", "--flip", "maybe"], ["--flip", "True", "'maybe'"]),
        (["train", "--warmup", "2"], ["--set-recipe warmup=2"]),
        (["train", "--betas", "0.9", "0.95"], ["--set-recipe 'betas=[0.9, 0.95]'"]),
        (["train", "--compile", "digits"], ["--set-recipe compile=true"]),
        (["train", "--shard", "False"], ["--set-recipe shard=false"]),
        (["train", "--label-smoothing=0.1"], ["--set-recipe smoothing=0.1"]),
        (["train", "--warmpu", "2"], ["--set-recipe warmup=VALUE?"]),
        (["train", "--set-recipe", "warmup=2"], ["warmup = 2"]),
        (["train", "--set-recipe", "warmpu=2"], ["'warmup'", "--set-recipe"]),
        (["train", "--set-recipe", "warmup=a"], ["warmup = 'a'", "float"]),
        (["pretrain", "--lora", "8"], ["--lora", "no meaning"]),
        (["train", "--resume"], ["--out RUN"]),
        (["train", "--resume", "--out", "nowhere"], ["nowhere"]),
        (["train", "--resume", "--out", "nowhere", "--recipe", "detect"], ["--recipe"]),
        (["train", "--recipe", "fine-tun"], ["'fine-tune'"]),
    ],
)
def test_bad_input_is_one_line_with_a_way_out(arguments, words, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("vitreous: ")
    assert printed.err.count("\n") == 1
    assert all(word in printed.err for word in words), printed.err
    assert printed.out == ""


@pytest.mark.parametrize("spelled", ["False", "false"])
def test_options_take_both_spellings_of_false(spelled, capsys):
    assert main(["summary", "vit-ti/16", "--set", f"qkv_bias={spelled}", "--json"]) == 0
    less = json.loads(capsys.readouterr().out)["parameters"]
    assert less == 5_717_416 - 12 * 3 * 192
    assert parse("train", train, ["--flip", spelled]).to_recipe().flip is False


def _each_option(matches):
    """(command, option, what its help shows as its value) of every command."""
    found = []
    for command in COMMANDS:
        module = module_of(command)
        found += [
            (command, f"--{name}", value)
            for name, kind, notes in parsing._options(arguments_of(module))
            if (value := matches(kind, [getattr(note, "metavar", None) for note in notes]))
        ]
    return found


def _flag(kind, metavars):
    return kind is bool and ("recipe" if any(metavars) else "alone")


def _choices(kind, metavars):
    """Those that a type lists, and those that only the help does."""
    for part in (kind, *typing.get_args(kind)):
        if typing.get_origin(part) is typing.Literal:
            return typing.get_args(part)
    return next((each[1:-1].split(",") for each in metavars if str(each).startswith("{")), None)


@pytest.mark.parametrize(("command", "option", "form"), _each_option(_flag))
def test_a_flag_obeys_its_value_or_refuses_it(command, option, form):
    module = module_of(command)
    if form == "alone":
        underscored = "--" + option[2:].replace("-", "_")
        for words in ([option, "False"], [f"{option}=False"], [underscored, "no"]):
            with pytest.raises(ConfigError, match=f"{option} takes no value.* leave {option} out"):
                parse(command, module, words)
        with pytest.raises(ConfigError, match=f"write {option} alone"):
            parse(command, module, [option, "true"])
        return
    name = option[2:].replace("-", "_")
    for words, value in (
        ([option, "False"], False),
        ([f"{option}=false"], False),
        ([option], True),
    ):
        assert getattr(parse(command, module, words).to_recipe(), name) is value
    with pytest.raises(ConfigError, match="True or False, got 'no'"):
        parse(command, module, [option, "no"])


@pytest.mark.parametrize(("command", "option", "choices"), _each_option(_choices))
def test_a_misspelt_choice_is_answered_with_the_right_one(command, option, choices):
    wrong = f"{choices[0]}x"
    words = [*POSITIONAL.get(command, []), option, wrong]
    with pytest.raises(ConfigError, match=f"{option}: expected .*{re.escape(repr(wrong))}") as got:
        parse(command, module_of(command), words)
    assert repr(choices[0]) in str(got.value)


POSITIONAL = {
    "data": ["check", "digits"],
    "evaluate": ["run"],
    "predict": ["run", "image"],
    "embed": ["run", "image"],
    "export": ["run", "a.onnx"],
    "serve": ["run"],
    "import": ["file", "--out", "run"],
    "convert": ["file", "other", "--to", "timm"],
}
"""What the commands with such options must be given besides."""


def test_a_misspelt_task_is_answered_from_python_too():
    with pytest.raises(ConfigError, match="did you mean 'classify'"):
        vitreous.check_data("digits", task="clasify")


def test_a_closed_pipe_ends_it_silently():
    """As SIGPIPE ends other programs."""
    command = f"{sys.executable} -m vitreous models --weights --json"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("{", "", 141)


def test_version_is_the_package_s():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert run("--version").stdout.strip() == f"vitreous {project['version']}"
