"""From the words of a command line to the command's arguments, by tyro; errors are one line."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from vitreous.config import FOREIGN_FIELDS, choice, marks
from vitreous.errors import ConfigError, Spelling, Word, did_you_mean
from vitreous.terminal import reaching
from vitreous.train.recipe import HINTS, KEYS

STYLE = (
    tyro.conf.FlagConversionOff,
    tyro.conf.OmitArgPrefixes,
    tyro.conf.HelptextFromCommentsOff,
    tyro.conf.PositionalMetavarFromFieldName,
    tyro.conf.SuppressFixed,
)


def parse(command: str, module: Any, words: Sequence[str]) -> Any:
    """The arguments of a command. Words that cannot be used are a ConfigError; --help exits."""
    arguments = arguments_of(module)
    options = options_of(arguments)
    _check_names(command, options, words, getattr(module, "REFUSED", {}))
    _check_choices(arguments, words)
    words = _with_values(words, arguments)
    # Some options have defaults that depend on others, like those of a recipe file.
    defaults = {"default": module.defaults(words)} if hasattr(module, "defaults") else {}
    registry = ConstructorRegistry()
    registry.primitive_rule(_single_value)
    # Without the hook, which is not part of tyro's public API, it reports errors in large frames.
    hook = getattr(getattr(tyro, "_errors", None), "on_parse_error", None)
    with reaching(sys.stdout), contextlib.nullcontext() if hook is None else hook(_refuse):
        return tyro.cli(
            arguments,
            prog=f"vitreous {command}",
            description=module.__doc__,
            args=words,
            config=STYLE,
            registry=registry,
            **defaults,
        )


def arguments_of(module: Any) -> type:
    """The dataclass that a command's `run` takes."""
    return typing.get_type_hints(module.run)["arguments"]


def _refuse(event: Any) -> None:
    """An error that tyro has found, as one line."""

    def name(argument: Any) -> str:
        return argument.lowered.metavar if argument.is_positional() else argument.display_name()

    match type(event).__name__:
        case "MissingArgs":
            names = " and ".join(name(each.arg) for each in event.missing_arguments)
            raise ConfigError(f"{names} missing: see {event.prog} --help")
        case "BadValue":
            expected = event.argument.lowered.metavar
            raise ConfigError(f"{name(event.argument)}: expected {expected}, got too few values")
        case "UnrecognizedArgs":
            raise ConfigError(f"too many arguments: {' '.join(event.tokens)}")
        case "InstantiationFailure" if event.argument is not None:
            raise ConfigError(f"{name(event.argument)}: {event.message}")


def options_of(arguments: type) -> dict[str, bool]:
    """The options by name, also those in groups (image-size, set …): whether each is a flag."""
    return {name: kind is bool for name, kind, _ in _options(arguments)}


def _options(arguments: type) -> Iterator[tuple[str, Any, list[Any]]]:
    """The name of each option, its type and what is noted about it."""
    for field, hint in typing.get_type_hints(arguments, include_extras=True).items():
        kind, *notes = typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        if is_dataclass(kind):
            yield from _options(typing.cast(type, kind))
        elif not {tyro.conf.Positional, tyro.conf.Fixed} & {*notes}:
            own = [note.name for note in notes if getattr(note, "name", None)]
            yield (own or [field])[0].replace("_", "-"), kind, notes


def _given(words: Sequence[str]) -> Iterator[tuple[str, bool, str]]:
    """Of each word before `--`: the option that it may be, whether its value is a part of it, and
    the value, which is else the next word."""
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if word == "--":
            return
        start, equals, value = word.partition("=")
        yield start.replace("_", "-"), bool(equals), value if equals else following


def values_of(words: Sequence[str], option: str) -> list[str]:
    """Of an option that may be repeated."""
    return [value for name, _, value in _given(words) if name == option and value]


def _with_values(words: Sequence[str], arguments: type) -> list[str]:
    """Flags with the value that tyro wants. Without one they mean True. A value is an error, unless
    the flag can take back what a recipe sets: then the help shows one."""
    flags = {
        f"--{name}": any(getattr(note, "metavar", None) for note in notes)
        for name, kind, notes in _options(arguments)
        if kind is bool
    }
    full: list[str] = []
    given = list(_given(words))
    for word, (flag, inside, value) in zip(words, given, strict=False):
        full.append(word)
        if flag in flags and not (inside or value.lower() in _TRUTHS):
            full.append("True")
        elif flag in flags and not flags[flag]:
            raise ConfigError(f"{flag} takes no value, got {value!r}: {_without(flag, value)}")
    return [*full, *words[len(given) :]]


_TRUTHS = ("true", "false", "yes", "no", "on", "off")
"""Words behind a flag that are meant as its value."""


def _without(flag: str, value: str) -> str:
    """How a flag that was given a value is written."""
    meant = {"true": True, "yes": True, "on": True, "1": True}.get(value.lower(), False)
    return f"write {flag} alone" if meant else f"leave {flag} out to turn it off"


def _check_names(
    command: str, options: Mapping[str, bool], words: Sequence[str], refused: Mapping[str, str]
) -> None:
    """An option that does not exist is refused before its value is taken for something else.

    refused: options that people expect, and why the command has none."""
    keys = KEYS if "set-recipe" in options else ()
    spelled = {name.replace("_", "-"): f"--set-recipe {name}=VALUE" for name in keys}
    spelled |= {name: f"--{name}" for name in ("help", *options)}
    foreign = {"fields": "set", **FOREIGN_FIELDS}.items()
    ours = {name.replace("_", "-"): own.replace("_", "-") for name, own in foreign}
    ours = {name: own for name, own in ours.items() if own in spelled} | {n: n for n in spelled}
    end = words.index("--") if "--" in words else len(words)
    for place, word in enumerate(words[:end]):
        option = re.match(r"--?([A-Za-z][\w-]*)", word)
        if option is None or word == "-h":
            continue
        name = option[1].replace("_", "-")
        if name in ("help", *options) and word.startswith("--"):
            continue
        if name in refused:
            raise ConfigError(f"{command} has no option --{name}: {refused[name]}")
        if (key := ours.get(name, "").replace("-", "_")) in keys:
            meant = _assignment(key, words[place:end])
            raise ConfigError(f"--{name} is a key of the recipe: --set-recipe {meant}")
        near = difflib.get_close_matches(name, ours, n=1)
        hint = f"did you mean {spelled[ours[near[0]]]}?" if near else ""
        raise ConfigError(
            f"unknown option {word.partition('=')[0]}: {hint or f'see vitreous {command} --help'}"
        )


def _assignment(key: str, words: Sequence[str]) -> str:
    """What was meant by an option, and the values behind it, as `--set-recipe` takes it."""
    _, equals, value = words[0].partition("=")
    behind = [value] if equals else list(itertools.takewhile(lambda w: w[:2] != "--", words[1:]))
    numbers = [word for word in behind if re.fullmatch(r"-?[\d.]+(e-?\d+)?", word)]
    kind = typing.get_args(HINTS[key])[0]
    if kind is bool:
        return f"{key}={'false' if behind[:1] in (['False'], ['false']) else 'true'}"
    if typing.get_origin(kind) is tuple:
        return shlex.quote(f"{key}=[{', '.join(numbers)}]")
    return shlex.quote(f"{key}={(behind or ['VALUE'])[0]}")


def _check_choices(arguments: type, words: Sequence[str]) -> None:
    """Options whose choices the help lists, like {classify,segment}, take no other value.

    Those whose type lists them are checked by `_single_value`."""
    known = {
        f"--{name}": note.metavar[1:-1].split(",")
        for name, kind, notes in _options(arguments)
        for note in notes
        if (getattr(note, "metavar", None) or "").startswith("{") and kind is not bool
    }
    for option, _, value in _given(words):
        if option in known and value:
            try:
                choice(option, value, known[option])
            except ConfigError:
                raise ConfigError(f"{option}: {_expected(value, known[option])}") from None


def _expected(value: str, choices: Sequence[str]) -> str:
    one_of = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    return f"expected {one_of}, got {value!r}{did_you_mean(value, choices)}"


def _single_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How one value is read: choices in any case, and an error says what is expected."""
    union = typing.get_origin(info.type) in (types.UnionType, typing.Union)
    parts = typing.get_args(info.type) if union else (info.type,)
    kind, *others = [part for part in parts if part is not types.NoneType] or [None]
    if others:
        return None
    choices: tuple[str, ...] = ()
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        metavar, expected = "{" + ",".join(choices) + "}", ""
        read: Callable[[str], Any] = partial(choice, "", known=choices)
    elif kind in KINDS:
        read, metavar, expected = KINDS[kind]
    else:
        return None

    def value(words: list[str]) -> Any:
        if union and words == ["None"]:
            return None
        try:
            return read(words[0])
        except ValueError:
            text = f"expected {expected}, got {words[0]!r}"
            raise ValueError(_expected(words[0], choices) if choices else text) from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=value,
        is_instance=lambda value: isinstance(value, str if choices else kind),
        str_from_instance=lambda value: [str(value)],
    )


def _truth(text: str) -> bool:
    return choice("", text, ("True", "False")) == "True"


KINDS: dict[Any, tuple[Callable[[str], Any], str, str]] = {
    int: (int, "INT", "a whole number"),
    float: (float, "FLOAT", "a number"),
    bool: (_truth, "{True,False}", "True or False"),
    str: (str, "TEXT", "text"),
    Path: (Path, "PATH", "a path"),
}
"""For each type: how a word is read, its name in the help, and what an error expects."""


def advice_in_shell(options: Mapping[str, bool]) -> Spelling:
    """Advice in errors (see `vitreous.errors.advice`) as options of a command that has these, by
    name; and whether each is a flag."""
    from vitreous.cli import convert

    def spelled(name: str, value: Any) -> str:
        option, words = name.replace("_", "-"), _words(value)
        if option in options:
            return f"--{option}" if options[option] else f"--{option} {words}"
        if "set-recipe" in options and name in KEYS:
            return f"--set-recipe {name}={words}"
        if "set" in options and name in config_names():
            return f"--set {name}={words}"
        # Weights that do not fit can be changed by `convert` first.
        if "weights" in options and option in options_of(arguments_of(convert)):
            return f"--{option} {words} to 'vitreous convert'"
        return ""

    return spelled


def _words(value: Any) -> str:
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(each if isinstance(each, Word) else shlex.quote(str(each)) for each in values)


def config_names() -> set[str]:
    """The fields of all models, which --set changes."""
    from vitreous.models import FAMILIES

    return {name for family in FAMILIES.values() for name in marks(family.config)}
