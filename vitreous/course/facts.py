"""Numbers that texts ask for, so that none is typed by hand which the package can compute.

A text says `parameters("vit-b/16")`, and `fact` gives "86,567,656". What a text may say is one call
of one function of `FACTS` with literal arguments; it is read as a syntax tree and never evaluated.
Every function returns text, as people read it. Where the words depend on the reader's language, the
function has an argument `lang`.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitreous.course import dense_numbers, digit_numbers, draws, model_numbers, study_numbers
from vitreous.course.own_run import own
from vitreous.course.study_numbers import Language, NotMeasuredError
from vitreous.errors import ConfigError, did_you_mean

__all__ = ["FACTS", "Language", "NotMeasuredError", "fact"]

FUNCTIONS: tuple[Callable[..., str], ...] = (
    model_numbers.parameters,
    model_numbers.more_parameters,
    model_numbers.shape,
    model_numbers.stage,
    model_numbers.flops,
    model_numbers.macs,
    model_numbers.attention_share,
    model_numbers.attention_weights,
    model_numbers.tokens,
    model_numbers.patches,
    model_numbers.grid,
    model_numbers.patch_values,
    model_numbers.dense_weights,
    model_numbers.field,
    model_numbers.megabytes,
    draws.attention_variance,
    draws.largest_weight,
    draws.saturated,
    draws.reordered,
    draws.answers_reordered,
    draws.convolution_difference,
    draws.alike,
    draws.skipped,
    draws.window_reach,
    digit_numbers.digits_accuracy,
    digit_numbers.digits_mistaken,
    digit_numbers.digits_baseline,
    digit_numbers.digits_count,
    digit_numbers.digits_certainty,
    digit_numbers.tanh_difference,
    digit_numbers.score_variance,
    digit_numbers.own_weight,
    digit_numbers.exchanged_scores,
    digit_numbers.key_bias_difference,
    digit_numbers.attention_distance,
    digit_numbers.norm_influence,
    digit_numbers.heaviest_adds_most,
    dense_numbers.scene_boxes,
    dense_numbers.scene_objects,
    dense_numbers.empty_mask,
    study_numbers.study,
    study_numbers.difference,
    study_numbers.verdict,
    study_numbers.rule,
    study_numbers.lr,
    study_numbers.baseline,
    study_numbers.paper,
    study_numbers.seeds,
    study_numbers.cpu_minutes,
    study_numbers.command,
    own,
)
FACTS: Mapping[str, Callable[..., str]] = {each.__name__: each for each in FUNCTIONS}
"""By the name that texts use."""


def fact(text: str, lang: Language = "en", run: str | Path | None = None) -> str:
    """What one call gives: `fact('tokens("vit-b/16", 384)')` is "577". `run` is the reader's run
    folder, which `own("score")` and its like read.

    A `ConfigError` for everything else; a `NotMeasuredError`, which is one, where the number is not
    known.
    """
    name, arguments, keywords = _call(text)
    if name not in FACTS:
        hint = did_you_mean(name, FACTS) or f": there are {', '.join(sorted(FACTS))}"
        raise ConfigError(f"{text}: unknown fact {name!r}{hint}")
    function = FACTS[name]
    signature = inspect.signature(function, eval_str=True)
    try:
        bound = signature.bind(*arguments, **keywords)
        if "run" in bound.arguments:
            raise TypeError("a text cannot choose the run")
    except TypeError as error:
        raise ConfigError(f"{text}: {error}; it is {name}{_spelled(signature)}") from None
    for key, value in {"lang": lang, "run": run}.items():
        if key in signature.parameters:
            bound.arguments.setdefault(key, value)
    hints = typing.get_type_hints(function)
    for key, value in bound.arguments.items():
        if key in hints and key not in ("run", "fields") and not _fits(value, hints[key]):
            expected = inspect.formatannotation(signature.parameters[key].annotation)
            raise ConfigError(f"{text}: {key} = {value!r}: expected {expected}")
    try:
        found = function(*bound.args, **bound.kwargs)
        return found.replace(" %", "%") if lang == "zh" else found  # as Chinese writes it
    except NotMeasuredError as error:
        raise NotMeasuredError(f"{text}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{text}: {error}") from None


def _call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The name and the arguments of one call with literals."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise ValueError
        arguments = [_literal(each) for each in tree.args]
        keywords = {str(each.arg): _literal(each.value) for each in tree.keywords if each.arg}
        if len(keywords) != len(tree.keywords):  # **
            raise ValueError
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ConfigError(
            f"{text!r} is no fact: expected one call with numbers and words, like "
            'parameters("vit-b/16")'
        ) from None
    return tree.func.id, arguments, keywords


def _literal(node: ast.expr) -> Any:
    """A number, a word, True, False, None, or a tuple of them."""
    if isinstance(node, ast.Tuple):
        return tuple(_literal(each) for each in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if type(value) in (int, float):
            return -value
    elif isinstance(node, ast.Constant) and isinstance(
        node.value, str | int | float | types.NoneType
    ):
        return node.value
    raise ValueError


def _fits(value: Any, hint: Any) -> bool:
    """Whether a literal is of a type, as far as the facts have them."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        return (
            isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
        )
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


def _spelled(signature: inspect.Signature) -> str:
    """Without what texts do not give."""
    kept = [each for name, each in signature.parameters.items() if name != "run"]
    return str(signature.replace(parameters=kept)).partition(" ->")[0]
