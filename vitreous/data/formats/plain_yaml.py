"""YAML as far as data sets need it: mappings, lists and text."""

from __future__ import annotations

from typing import Any

import yaml

from vitreous.errors import DataError

_DEEPEST = 10


def plain_yaml(text: str) -> Any:
    """Every value is read as text, so that a class may be called `no` or `1e3`."""
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        raise DataError(f"is not YAML: {' '.join(str(error).split())}") from None


class _PlainLoader(yaml.BaseLoader):
    """Reads mappings, lists and text, as far as they are written out and not deeply nested: aliases
    of aliases can make a small file enormous."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise DataError(f"line {line}: has an alias (*{event.anchor}): write the value out")
        if self.depth > _DEEPEST:
            raise DataError(f"line {line}: has values nested more than {_DEEPEST} deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        seen = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise DataError(f"line {line}: expected a name before the colon")
            if key.value in seen:
                raise DataError(f"line {line}: {key.value!r} occurs twice")
            seen.add(key.value)
        values: dict[str, Any] = super().construct_mapping(node, deep)
        return values
