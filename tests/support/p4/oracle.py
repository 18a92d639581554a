"""The interpreter as the tests of the compiler use it: a document, entries in few words, and nothing undefined."""

from __future__ import annotations

from typing import Any

from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.facts import KeyFacts
from p4lite.switch.program.load import load_facts
from p4lite_tools.interpreter.machine import Interpreter


def match_value(key: KeyFacts, first: int, second: int) -> MatchValue:
    """Return the match of (value, 0), (value, prefix), (value, mask) or (low, high), by the key's match type.

    An optional key whose second number is 0 matches everything.
    """
    if key.match == "lpm":
        return Lpm(first, second)
    if key.match == "ternary":
        return Ternary(first & second, second)
    if key.match == "range":
        return Range(first, second)
    if key.match == "optional":
        return Optional(first if second else None)
    return Exact(first)


class Switch(Interpreter):
    """One switch that runs a document; what P4 leaves undefined raises AssertionFailed unless it is not `strict`."""

    def __init__(self, document: dict[str, Any], *, seed: int = 1, strict: bool = True) -> None:
        super().__init__(load_facts(document, source="<test>", name="test"), seed=seed, strict=strict)
        self.doc = document
        self.tables: dict[str, dict[str, Any]] = {t.name: t.node.value for t in self.program.tables.values()}

    def _call(self, table: str, action: str, data: list[int]) -> ActionCall:
        known = self.program.tables[table].actions
        name = next(name for name in known if name == action or name.endswith("." + action))
        return ActionCall(name, tuple(data))

    def add(self, table: str, keys: list[tuple[int, int]], action: str, data: list[int], priority: int = 0) -> int:
        """Add an entry, return its handle; an action by its name or the end of its name."""
        matches = tuple(match_value(k, *pair) for k, pair in zip(self.program.tables[table].key, keys, strict=True))
        return self.table_add(table, matches, self._call(table, action, data), priority=priority)

    def set_default(self, table: str, action: str, data: list[int]) -> None:
        """Set the default action of a table."""
        self.table_set_default(table, self._call(table, action, data))
