"""Names with placeholders: `blocks.{i}.norm`, `dense_{2i+1}`, `{all}`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from vitreous.errors import ConfigError

PLACEHOLDER = re.compile(r"\{(?P<times>\d+)?(?P<name>[A-Za-z_]\w*)(?P<plus>[+-]\d+)?\}")


def placeholders(template: str) -> list[str]:
    """The names in braces; anything else in braces is an error."""
    if re.search(r"[{}]", PLACEHOLDER.sub("", template)):
        raise ValueError(
            f"{template!r}: expected a name in braces, like {{i}}, {{i+1}} or {{2i+1}}"
        )
    return [found["name"] for found in PLACEHOLDER.finditer(template)]


@functools.cache
def regex(template: str) -> re.Pattern[str]:
    """`blocks.{i}.norm` as a regex: `{all}` matches anything, other names no dot or slash."""
    result, end, seen = "", 0, set()
    for found in PLACEHOLDER.finditer(template):
        name = found["name"]
        result += re.escape(template[end : found.start()])
        body = ".+" if name == "all" else "[^./]+?"
        result += f"(?P={name})" if name in seen else f"(?P<{name}>{body})"
        seen.add(name)
        end = found.end()
    return re.compile(result + re.escape(template[end:]))


def solve(template: str, values: dict[str, str]) -> dict[str, str] | None:
    """The values of `i` from those of `{2i+1}`; None if there is no integer solution."""
    for found in PLACEHOLDER.finditer(template):
        value = values[found["name"]]
        if (found["times"] or found["plus"]) and value.isdigit():
            rest = int(value) - int(found["plus"] or 0)
            if rest < 0 or rest % int(found["times"] or 1):
                return None
            values = {**values, found["name"]: str(rest // int(found["times"] or 1))}
    return values


def uses(template: str, name: str) -> bool:
    return name in placeholders(template)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its placeholders replaced; one without a value becomes `*`."""

    def piece(found: re.Match[str]) -> str:
        value = values.get(found["name"], "*")
        if not found["times"] and not found["plus"]:
            return value
        if not value.isdigit():
            return found.group(0)
        return str(int(found["times"] or 1) * int(value) + int(found["plus"] or 0))

    return PLACEHOLDER.sub(piece, template)


def expand(
    templates: Sequence[str], values: Mapping[str, str], axes: Mapping[str, int]
) -> list[str]:
    """Their keys; a template with `{head}` gives one key per attention head."""
    keys = []
    for template in templates:
        if uses(template, "head"):
            if "heads" not in axes:
                raise ConfigError(f"rule for {template!r}: this model has no attention heads")
            keys += [fill(template, {**values, "head": str(h)}) for h in range(axes["heads"])]
        else:
            keys.append(fill(template, values))
    return keys
