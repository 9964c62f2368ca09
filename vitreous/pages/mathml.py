"""Short formulas as MathML, which browsers draw: `z_0 = frac(a)(b) + E_pos`."""

from __future__ import annotations

import re
from html import escape

TOKEN = re.compile(r"[A-Za-zΑ-ωℝ]+'?|\d+|[^\sA-Za-z\d]")


def mathml(formula: str) -> str:
    """Words, numbers and signs; `_` and `^` lower and raise what follows, one word or {several};
    `frac(a)(b)` is a fraction, `sqrt(a)` a root."""
    tokens = TOKEN.findall(formula)
    made = "".join(_sequence(tokens, ()))
    return f'<math display="block"><mrow>{made}</mrow></math>'


def _sequence(tokens: list[str], ends: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    while tokens and tokens[0] not in ends:
        found.append(_scripted(tokens))
    if tokens and ends:
        tokens.pop(0)
    return found


def _scripted(tokens: list[str]) -> str:
    base, below, above = _atom(tokens), "", ""
    while tokens and tokens[0] in "_^":
        sign, part = tokens.pop(0), _atom(tokens)
        below, above = (part, above) if sign == "_" else (below, part)
    if below and above:
        return f"<msubsup>{base}{below}{above}</msubsup>"
    if below:
        return f"<msub>{base}{below}</msub>"
    return f"<msup>{base}{above}</msup>" if above else base


def _atom(tokens: list[str]) -> str:
    token = tokens.pop(0)
    if token == "{":
        return f"<mrow>{''.join(_sequence(tokens, ('}',)))}</mrow>"
    if token in ("frac", "sqrt"):
        parts = []
        for _ in range(2 if token == "frac" else 1):
            tokens.pop(0)  # the bracket
            parts.append(f"<mrow>{''.join(_balanced(tokens))}</mrow>")
        return f"<m{token}>{''.join(parts)}</m{token}>"
    if token[0].isalpha():
        upright = ' mathvariant="normal"' if len(token.rstrip("'")) > 1 else ""
        return f"<mi{upright}>{escape(token.replace(chr(39), chr(8242)))}</mi>"
    return f"<mn>{token}</mn>" if token.isdigit() else f"<mo>{escape(token)}</mo>"


def _balanced(tokens: list[str]) -> list[str]:
    """Up to the bracket that closes; brackets inside stay."""
    found: list[str] = []
    while tokens[0] != ")":
        if tokens[0] == "(":
            tokens.pop(0)
            found += ["<mo>(</mo>", *_balanced(tokens), "<mo>)</mo>"]
        else:
            found.append(_scripted(tokens))
    tokens.pop(0)
    return found
