"""What the control plane does to a random program, and how a switch of either kind gets it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, get_args

from p4lite.api.values import Backend
from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.program.entry import ActionCall, EntryAction, GroupRef, MemberRef
from p4lite.switch.runtime.arrays import MeterConfig
from support.p4.oracle import match_value

RATE = 1
"""Tokens per second of every meter: none arrive, as the clock stands still."""


@dataclass(frozen=True)
class RuntimeEntry:
    """An entry of a table of the ingress control: keys as (value, 0), (value, prefix), (value, mask) or (low, high)."""

    table: str
    keys: tuple[tuple[int, int], ...]
    action: str
    data: tuple[int, ...]
    priority: int
    member: int = -1
    group: int = -1
    """Of the table's action profile, instead of an action."""
    bursts: tuple[int, ...] = ()
    """Committed and peak burst of the table's direct meter, in packets; () for none."""

    def insert(self, switch: Backend) -> None:
        """Add the entry to the table, unless the program has lost the table."""
        control = switch.control
        table = control.program.tables.get(f"Ig.{self.table}")
        if table is None:
            return
        key = tuple(match_value(k, *v) for k, v in zip(table.key, self.keys, strict=True))
        priority = self.priority if table.needs_priority else 0
        action: EntryAction = ActionCall(f"Ig.{self.action}", self.data)
        if self.member >= 0:
            action = MemberRef(self.member)
        elif self.group >= 0:
            action = GroupRef(self.group)
        handle = control.table_add(table.name, key, action, priority=priority)
        if self.bursts:
            committed, peak = self.bursts
            control.direct_meter_set(table.name, handle, MeterConfig(RATE, committed, RATE, peak))


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


@dataclass(frozen=True)
class Group:
    """A multicast group: replicas as (port, rid)."""

    number: int
    replicas: tuple[tuple[int, int], ...]

    def insert(self, switch: Backend) -> None:
        """Make the group."""
        switch.replication.set_multicast_group(self.number, [Replica(*r) for r in self.replicas])


@dataclass(frozen=True)
class Session:
    """A clone session: copies to a port (-1: none), to a multicast group (0: none), and to replicas."""

    number: int
    port: int
    group: int
    replicas: tuple[tuple[int, int], ...]

    def insert(self, switch: Backend) -> None:
        """Make the session."""
        port, group = (None if self.port < 0 else self.port), self.group or None
        made = CloneSession(port, group, tuple(Replica(*r) for r in self.replicas))
        switch.replication.set_clone_session(self.number, made)


@dataclass(frozen=True)
class Rate:
    """The bursts of a cell of a meter of the ingress control, in packets or bytes."""

    meter: str
    index: int
    committed: int
    peak: int

    def insert(self, switch: Backend) -> None:
        """Configure the cell, unless the program has lost the meter."""
        name = f"Ig.{self.meter}"
        if name in switch.control.program.meters:
            switch.control.meter_set(name, self.index, MeterConfig(RATE, self.committed, RATE, self.peak))


def _used(switch: Backend, profile: str) -> bool:
    """Return whether a profile has tables left."""
    known = switch.control.program.action_profiles.get(profile)
    return known is not None and bool(known.tables)


@dataclass(frozen=True)
class Member:
    """A member of the action profile or selector of the ingress control."""

    profile: str
    number: int
    action: str
    data: tuple[int, ...]

    def insert(self, switch: Backend) -> None:
        """Add the member, unless the program has lost the profile."""
        name = f"Ig.{self.profile}"
        if _used(switch, name):
            switch.control.member_add(name, ActionCall(f"Ig.{self.action}", self.data), self.number)


@dataclass(frozen=True)
class MemberGroup:
    """A group of members of a selector."""

    profile: str
    number: int
    members: tuple[int, ...]

    def insert(self, switch: Backend) -> None:
        """Add the group, unless the program has lost the selector."""
        name = f"Ig.{self.profile}"
        if _used(switch, name):
            switch.control.group_add(name, self.members, self.number)


ControlItem = RuntimeEntry | SetMember | Group | Session | Rate | Member | MemberGroup
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
