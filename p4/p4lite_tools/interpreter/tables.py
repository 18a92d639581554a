"""Tables and action profiles: their control operations, and the lookup of a packet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from p4lite.switch.program.entry import (
    ActionCall,
    EntryAction,
    Exact,
    GroupRef,
    Lpm,
    MatchValue,
    MemberRef,
    Optional,
    Range,
    Ternary,
)
from p4lite.switch.program.facts import Facts, Profile, TableFacts
from p4lite.switch.program.load import entry_action
from p4lite.switch.runtime.abi import check64
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig, check_meter
from p4lite.switch.runtime.profiles import Group, ProfileMember
from p4lite.switch.runtime.tables import Entry, check_timeout, key_to_words
from p4lite_tools.interpreter.state import CounterCell, InterpreterState, MeterCell


@dataclass(slots=True)
class Row:
    """An entry as the interpreter holds it; of a default `key` is empty and `action` may be None."""

    key: tuple[MatchValue, ...]
    action: EntryAction | None
    priority: int = 0
    is_const: bool = False
    timeout_ns: int = 0
    hit_ns: int = 0
    counter: CounterCell = field(default_factory=CounterCell)
    meter: MeterCell = field(default_factory=MeterCell)


@dataclass(slots=True)
class _Contents:
    rows: dict[int, Row]
    default: Row


@dataclass(slots=True)
class _Profile:
    members: dict[int, ActionCall] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)


def matches(value: int, match: MatchValue, width: int) -> bool:
    """Return whether a key's value is what an entry asks for."""
    if isinstance(match, Exact):
        return value == match.value
    if isinstance(match, Lpm):
        return value >> (width - match.prefix_len) == match.value >> (width - match.prefix_len)
    if isinstance(match, Ternary):
        return value & match.mask == match.value & match.mask
    if isinstance(match, Range):
        return match.low <= value <= match.high
    return match.value is None or value == match.value


def initial_key(node: JsonNode, table: TableFacts) -> tuple[MatchValue, ...]:
    """Return the match values of an entry of the document."""
    out: list[MatchValue] = []
    for item, key in zip(node["match_key"].items(), table.key, strict=True):
        kind = item["match_type"].str()
        if kind == "valid":
            out.append(Exact(int(item["key"].bool())))
        elif kind == "exact":
            out.append(Exact(item["key"].hex()))
        elif kind == "lpm":
            out.append(Lpm(item["key"].hex(), item["prefix_length"].int()))
        elif kind == "range":
            out.append(Range(item["start"].hex(), item["end"].hex()))
        else:
            mask = item["mask"].hex() & ((1 << key.width) - 1)
            out.append(Ternary(item["key"].hex() & mask, mask))
    return tuple(out)


class InterpreterTables(InterpreterState):
    """The part of the switch that concerns tables; see `InterpreterState` for the names of its operations."""

    def __init__(self, program: Facts, *, seed: int = 1, strict: bool = False) -> None:
        super().__init__(program, seed=seed, strict=strict)
        self._profiles = {name: _Profile() for name in program.action_profiles}
        self._contents = {name: self._initial(table) for name, table in program.tables.items()}

    def _initial(self, table: TableFacts) -> _Contents:
        rows: dict[int, Row] = {}
        for number, node in enumerate(table.node.items("entries")):
            _, call = entry_action(node["action_entry"], self.program.actions, table.name, table.actions)
            priority = node.get("priority")
            rows[number] = Row(
                initial_key(node, table), call, priority.int() if priority and table.needs_priority else 0, True
            )
        default = table.default_entry if table.action_profile is None else None
        return _Contents(rows, Row((), default, is_const=table.const_default))

    # --- tables ---

    def _check_action(self, table: TableFacts, action: EntryAction) -> None:
        self._check_kind(table, action)
        if isinstance(action, ActionCall):
            self._check_call(table.actions, action, f"table '{table.name}'")
            return
        assert table.action_profile is not None
        if isinstance(action, MemberRef):
            self._member(table.action_profile, action.member)
        else:
            self._group(table.action_profile, action.group)

    def table_add(
        self,
        table: str,
        key: tuple[MatchValue, ...],
        action: EntryAction,
        *,
        priority: int = 0,
        idle_timeout_ns: int = 0,
    ) -> int:
        """Add an entry and return its handle. Keys in the order of the table's key; lower priority wins."""
        t = self._writable(table)
        if not t.key:
            raise InvalidArgument(f"table '{table}' has no key, so it cannot have entries")
        check_timeout(t, idle_timeout_ns)
        key_to_words(t, key, priority)
        self._check_action(t, action)
        rows = self._contents[table].rows
        if any(row.key == key and row.priority == priority for row in rows.values()):
            raise AlreadyExists(f"table '{table}' has an entry with this key")
        if len(rows) >= t.max_size:
            raise ResourceExhausted(f"table '{table}' is full ({t.max_size} entries)")
        handle = next(n for n in range(len(rows) + 1) if n not in rows)
        rows[handle] = Row(key, action, priority, timeout_ns=idle_timeout_ns, hit_ns=self.now_ns)
        return handle

    def row(self, table: str, handle: int | None) -> Row:
        """Return an entry as it is held; None: the default. Raises NotFound."""
        self._table(table)
        contents = self._contents[table]
        if handle is None:
            return contents.default
        if handle not in contents.rows:
            raise NotFound(f"table '{table}' has no entry {handle}")
        return contents.rows[handle]

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        """Give an entry another action, with its counter and idle time kept."""
        self._check_action(self._writable(table), action)
        self.row(table, handle).action = action

    def table_delete(self, table: str, handle: int) -> None:
        """Delete an entry."""
        self._writable(table)
        self.row(table, handle)
        del self._contents[table].rows[handle]

    def table_find(self, table: str, key: tuple[MatchValue, ...], *, priority: int = 0) -> int:
        """Return the handle of the entry with exactly this match key (and priority). Raises NotFound."""
        key_to_words(self._table(table), key, priority)
        for handle, row in self._contents[table].rows.items():
            if row.key == key and row.priority == priority:
                return handle
        raise NotFound(f"table '{table}' has no entry with this key")

    def table_entry(self, table: str, handle: int) -> Entry:
        """Return an entry. Raises NotFound."""
        row = self.row(table, handle)
        assert row.action is not None
        idle_ns = max(self.now_ns - row.hit_ns, 0)
        return Entry(table, handle, row.key, row.priority, row.action, row.is_const, row.timeout_ns, idle_ns)

    def table_handles(self, table: str) -> Iterator[int]:
        """Yield the handles of all entries in order."""
        self._table(table)
        yield from sorted(self._contents[table].rows)

    def table_entries(self, table: str) -> Iterator[Entry]:
        """Yield all entries, const ones too, in order of handle."""
        for handle in self.table_handles(table):
            yield self.table_entry(table, handle)

    def table_size(self, table: str) -> int:
        """Return the number of entries."""
        self._table(table)
        return len(self._contents[table].rows)

    def table_clear(self, table: str) -> None:
        """Delete every entry; the default action goes back to the program's."""
        t = self._writable(table)
        self._contents[table].rows.clear()
        if not t.const_default:
            self.table_reset_default(table)

    def table_set_timeout(self, table: str, handle: int, idle_timeout_ns: int) -> None:
        """Set after which time without a hit an entry is idle."""
        check_timeout(self._table(table), idle_timeout_ns, always=True)
        self.row(table, handle).timeout_ns = idle_timeout_ns

    def table_default(self, table: str) -> EntryAction | None:
        """Return the default action; None if the table has none (a miss does nothing)."""
        return self.row(table, None).action

    def table_set_default(self, table: str, action: EntryAction) -> None:
        """Set the default action."""
        t = self._table(table)
        if t.const_default and action != self.table_default(table):
            raise PermissionDenied(f"table '{table}': its default action is const")
        self._check_action(t, action)
        self._contents[table].default.action = action

    def table_reset_default(self, table: str) -> None:
        """Reset a table's default entry to that of the program."""
        t = self._table(table)
        self._contents[table].default.action = t.default_entry if t.action_profile is None else None

    # --- direct counters and meters ---

    def direct_counter_read(self, table: str, handle: int | None) -> CounterValue:
        """Return the counter of an entry, or of misses (None)."""
        cell = self.row(self._with_counters(table).name, handle).counter
        return CounterValue(cell.packets, cell.bytes)

    def direct_counter_write(self, table: str, handle: int | None, packets: int, bytes_: int) -> None:
        """Set the counter of an entry, or of misses (None)."""
        row = self.row(self._with_counters(table).name, handle)
        check64(f"direct counter of table '{table}'", packets=packets, bytes=bytes_)
        row.counter = CounterCell(packets, bytes_)

    def counter_read_all(self, counter: str) -> list[CounterValue]:
        """Return all cells; of a direct counter those of the table's entries, and at the end that of its misses."""
        array = self.program.counters.get(counter)
        if array is None or array.table is None:
            return super().counter_read_all(counter)
        return [self.direct_counter_read(array.table, h) for h in (*self.table_handles(array.table), None)]

    def direct_meter_config(self, table: str, handle: int | None) -> MeterConfig | None:
        """Return the configuration of an entry's meter."""
        return self.row(self._with_meter(table).name, handle).meter.config

    def direct_meter_set(self, table: str, handle: int | None, config: MeterConfig | None) -> None:
        """Configure the meter of an entry. That of the default entry (None) is stored but, as in BMv2, not run."""
        row = self.row(self._with_meter(table).name, handle)
        check_meter(f"direct meter of table '{table}'", config)
        row.meter.configure(config, self.now_ns)

    # --- action profiles ---

    def _profile(self, name: str) -> tuple[Profile, _Profile]:
        return self._known_profile(name), self._profiles[name]

    def _member(self, profile: str, member: int) -> ActionCall:
        call = self._profile(profile)[1].members.get(member)
        if call is None:
            raise NotFound(f"action profile '{profile}' has no member {member}")
        return call

    def _group(self, profile: str, group: int) -> Group:
        found = self._profile(profile)[1].groups.get(group)
        if found is None:
            raise NotFound(f"action profile '{profile}' has no group {group}")
        return found

    def _used(self, profile: str, action: EntryAction) -> bool:
        rows = (row for t in self.program.action_profiles[profile].tables for row in self._all_rows(t))
        return any(row.action == action for row in rows)

    def _all_rows(self, table: str) -> Iterator[Row]:
        yield self._contents[table].default
        yield from self._contents[table].rows.values()

    def member_add(self, profile: str, action: ActionCall, member: int | None = None) -> int:
        """Add a member with the given id, or the lowest free one."""
        p, contents = self._profile(profile)
        id_ = self._new_id(p, "member", member, contents.members)
        self._check_call(p.actions, action, f"action profile '{profile}'")
        contents.members[id_] = action
        return id_

    def member_modify(self, profile: str, member: int, action: ActionCall) -> None:
        """Give a member another action."""
        p, contents = self._profile(profile)
        self._member(profile, member)
        self._check_call(p.actions, action, f"action profile '{profile}'")
        contents.members[member] = action

    def member_delete(self, profile: str, member: int) -> None:
        """Delete a member. Raises InvalidArgument while an entry or group refers to it."""
        self._member(profile, member)
        contents = self._profiles[profile]
        if self._used(profile, MemberRef(member)) or any(member in g.members for g in contents.groups.values()):
            raise InvalidArgument(f"action profile '{profile}': member {member} is in use")
        del contents.members[member]

    def members(self, profile: str) -> Iterator[ProfileMember]:
        """Yield the members in order of their ids."""
        for id_, call in sorted(self._profile(profile)[1].members.items()):
            yield ProfileMember(profile, id_, call)

    def group_add(
        self, profile: str, members: Iterable[int] = (), group: int | None = None, *, max_size: int = 0
    ) -> int:
        """Add a group with the given id, or the lowest free one; a member listed n times has weight n."""
        p, contents = self._profile(profile)
        chosen = self._group_members(p, members, max_size, contents.members)
        id_ = self._new_id(p, "group", group, contents.groups)
        contents.groups[id_] = Group(profile, id_, chosen, max_size)
        return id_

    def group_modify(self, profile: str, group: int, members: Iterable[int]) -> None:
        """Replace the members of a group."""
        p, contents = self._profile(profile)
        old = self._group(profile, group)
        chosen = self._group_members(p, members, old.max_size, contents.members)
        contents.groups[group] = Group(profile, group, chosen, old.max_size)

    def group_delete(self, profile: str, group: int) -> None:
        """Delete a group. Raises InvalidArgument while an entry refers to it."""
        self._group(profile, group)
        if self._used(profile, GroupRef(group)):
            raise InvalidArgument(f"action profile '{profile}': group {group} is in use")
        del self._profiles[profile].groups[group]

    def groups(self, profile: str) -> Iterator[Group]:
        """Yield the groups in order of their ids."""
        for _, group in sorted(self._profile(profile)[1].groups.items()):
            yield group

    # --- for packets ---

    def lookup(self, table: TableFacts, values: Sequence[int]) -> tuple[int, Row] | None:
        """Return the handle and the entry that a packet with these key values hits."""
        best: tuple[tuple[int, int], int, Row] | None = None
        for handle, row in self._contents[table.name].rows.items():
            prefix = 0
            for value, key, match in zip(values, table.key, row.key, strict=True):
                if not matches(value, match, key.width):
                    break
                if isinstance(match, Lpm):
                    prefix = match.prefix_len
            else:
                rank = (-prefix if table.kind == "lpm" else row.priority, handle)
                if best is None or rank < best[0]:
                    best = (rank, handle, row)
        return None if best is None else best[1:]

    def resolve(self, table: TableFacts, action: EntryAction | None, choose: int | None) -> ActionCall | None:
        """Return the action that an entry stands for; `choose` is the selector's hash, for groups."""
        if table.action_profile is None or action is None or isinstance(action, ActionCall):
            return action if isinstance(action, ActionCall) else None
        if isinstance(action, MemberRef):
            return self._member(table.action_profile, action.member)
        members = sorted(self._group(table.action_profile, action.group).members)
        if not members:
            self.fault(f"group {action.group} of '{table.action_profile}' has no members")
            return None
        return self._member(table.action_profile, members[(choose or 0) % len(members)])


__all__ = ["InterpreterTables", "Optional", "Row", "initial_key", "matches"]
