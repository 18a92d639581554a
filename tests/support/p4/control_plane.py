"""What the control plane does to a random program, and how a switch of either kind gets it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, get_args

from p4lite.api.control import Backend
from p4lite.switch.program.entry import ActionCall
from support.p4.oracle import match_value


@dataclass(frozen=True)
class RuntimeEntry:
    """An entry of a table of the ingress control: keys as (value, 0), (value, prefix), (value, mask) or (low, high)."""

    table: str
    keys: tuple[tuple[int, int], ...]
    action: str
    data: tuple[int, ...]
    priority: int

    def insert(self, switch: Backend) -> None:
        """Add the entry to the table, unless the program has lost the table."""
        control = switch.control
        table = control.program.tables.get(f"Ig.{self.table}")
        if table is None:
            return
        key = tuple(match_value(k, *v) for k, v in zip(table.key, self.keys, strict=True))
        priority = self.priority if table.needs_priority else 0
        control.table_add(table.name, key, ActionCall(f"Ig.{self.action}", self.data), priority=priority)


@dataclass(frozen=True)
class SetMember:
    """A member of a value set of the parser P: the parts of the key, concatenated."""

    value_set: str
    value: int

    def insert(self, switch: Backend) -> None:
        """Add the member, unless the program has lost the value set."""
        name = f"P.{self.value_set}"
        if name in switch.control.program.value_sets:
            switch.control.value_set_add(name, self.value)


ControlItem = RuntimeEntry | SetMember
KINDS: dict[str, type[ControlItem]] = {kind.__name__: kind for kind in get_args(ControlItem)}


def written(item: ControlItem) -> list[Any]:
    """Return an item as JSON holds it: its kind, then its fields."""
    return [type(item).__name__, *astuple(item)]


def read(item: list[Any]) -> ControlItem:
    """Return the item that `written` gave."""
    kind, *fields = item
    return KINDS[kind](*(_frozen(f) for f in fields))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value
