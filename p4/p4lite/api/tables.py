"""Tables, registers, counters, meters and value sets of a switch as mappings, sequences and sets."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from p4lite.api.program import ActionScope
from p4lite.api.values import Control, Missing, Scalar, find, is_int, match, number
from p4lite.switch.errors import InvalidArgument, NotFound, OutOfRange
from p4lite.switch.program.entry import ActionCall, EntryAction, GroupRef, MatchValue, MemberRef
from p4lite.switch.program.facts import ActionFacts, Array, TableFacts
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig

T = TypeVar("T")
#: Several operations that go together are done inside.
Lock = AbstractContextManager[object]
MAX_PRIORITY = (1 << 31) - 1


@dataclass(frozen=True)
class Action:
    """An action with its arguments by name: `Action("ipv4_forward", port=1, dst="00:00:0a:00:01:01")`."""

    name: str
    arguments: Mapping[str, Scalar] = field(default_factory=dict)

    def __init__(self, name: str, /, **arguments: Scalar) -> None:
        """Take the arguments by the names of the action's parameters."""
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)


#: An action as it can be given: `Action`, its name, (name, {parameter: value}), (name, [values]).
ActionLike = Action | str | tuple[str, Mapping[str, Scalar]] | tuple[str, Sequence[Scalar]] | MemberRef | GroupRef
#: A key as it can be given: a value, a tuple with one for each key, or {name of the key: value}.
KeyLike = object


@dataclass(frozen=True)
class TableEntry:
    """An entry: its key as match values, its action, its priority (the lower number wins) and its handle."""

    key: tuple[MatchValue, ...]
    action: Action | MemberRef | GroupRef
    priority: int
    handle: int
    is_const: bool


def action_call(actions: Mapping[str, ActionFacts], given: ActionLike, where: str) -> ActionCall:
    """Return a checked call. Raises NotFound, InvalidArgument or OutOfRange, which say what is allowed."""
    name, arguments = _named(given, where)
    info = actions[find(name, actions, f"action of {where}")]
    params = ", ".join(f"{p.name}: bit<{p.width}>" for p in info.params) or "no arguments"
    if not isinstance(arguments, Mapping):
        if len(arguments) != len(info.params):
            raise InvalidArgument(f"{where}: {info.name} takes {params}, not {len(arguments)} values")
        arguments = {p.name: value for p, value in zip(info.params, arguments, strict=True)}
    wrong = [n for n in arguments if n not in {p.name for p in info.params}]
    missing = [p.name for p in info.params if p.name not in arguments]
    if wrong or missing:
        problem = f"has no parameter '{wrong[0]}'" if wrong else f"needs an argument '{missing[0]}'"
        raise InvalidArgument(f"{where}: {info.name} {problem}; it takes {params}")
    values = (number(arguments[p.name], p.width, f"{where}, {info.name}, '{p.name}'") for p in info.params)
    return ActionCall(info.name, tuple(values))


def _named(given: ActionLike, where: str) -> tuple[str, Mapping[str, Scalar] | Sequence[Scalar]]:
    if isinstance(given, Action):
        return given.name, given.arguments
    if isinstance(given, str):
        return given, {}
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        arguments = given[1]
        if isinstance(arguments, Mapping | list | tuple):
            return given[0], arguments
    raise InvalidArgument(
        f"{where}: {given!r} is not an action; write Action('name', parameter=value), ('name', {{'parameter': value}}) "
        "or 'name'"
    )


def match_key(table: TableFacts, given: KeyLike) -> tuple[MatchValue, ...]:
    """Return a table's match key from any form of it. Raises InvalidArgument or OutOfRange."""
    where = f"table '{table.name}'"
    names = ", ".join(f"{k.name} ({k.match}, {k.width} bits)" for k in table.key) or "none"
    if isinstance(given, Mapping):
        by_name = {find(str(n), {k.name: k for k in table.key}, f"key of {where}"): v for n, v in given.items()}
        values: list[object] = [by_name.get(k.name) for k in table.key]
    elif isinstance(given, tuple) and len(given) == len(table.key):
        values = list(given)
    elif len(table.key) == 1:
        values = [given]
    else:
        raise InvalidArgument(
            f"{where}: {given!r} is not a key; give a tuple or a dict with a value for each of: {names}"
        )
    return tuple(match(key, value, where) for key, value in zip(table.key, values, strict=True))


class Table:
    """One table: `table[key] = action`, `del table[key]`, `key in table`, `len(table)`, `get`, `pop`, `update`.

    These do what they do with a dict. A table is no dict, though: entries of ternary and range tables have priorities,
    and several entries may have one key. So iteration gives its entries (`TableEntry`), and operations by key without a
    priority mean the entry of priority 0.

    A key is a value, a tuple with a value for each key, or a dict by name: exact values, `"10.0.0.0/8"` or
    `(value, length)` for lpm, `(value, mask)` or None for ternary, `(low, high)` for range.
    """

    def __init__(self, control: Control, facts: TableFacts, gate: Lock, scopes: Mapping[str, ActionScope]) -> None:
        """Take the control operations of the switch behind `gate`; `scopes`: actions that may not stand everywhere."""
        self._control = control
        self._gate = gate
        self._scopes = scopes
        self.facts = facts
        self.name = facts.name

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def _action(self, given: ActionLike, *, default: bool = False) -> EntryAction:
        if isinstance(given, MemberRef | GroupRef):
            return given
        call = action_call(self.facts.actions, given, f"table '{self.name}'")
        scope = self._scopes.get(call.name)
        if scope is ActionScope.DEFAULT_ONLY and not default:
            raise InvalidArgument(
                f"table '{self.name}': {call.name} is @{scope.value}: no entry can have it; `table.default = ...` can"
            )
        if scope is ActionScope.ENTRIES_ONLY and default:
            raise InvalidArgument(
                f"table '{self.name}': {call.name} is @{scope.value}: it cannot be the default action"
            )
        profile = self.facts.action_profile
        return call if profile is None else MemberRef(self._control.member_add(profile, call))

    def _priority(self, priority: int) -> int:
        if not is_int(priority) or not 0 <= priority <= MAX_PRIORITY:
            raise InvalidArgument(
                f"table '{self.name}': priority={priority!r}: an int from 0 to {MAX_PRIORITY} is wanted; the lower "
                "number wins"
            )
        return priority

    def _shown(self, action: EntryAction) -> Action | MemberRef | GroupRef:
        if not isinstance(action, ActionCall):
            return action
        params = self.facts.actions[action.name].params
        return Action(action.name, **{p.name: v for p, v in zip(params, action.args, strict=True)})

    def add(self, key: KeyLike, action: ActionLike, *, priority: int = 0) -> int:
        """Add an entry and return its handle; of ternary and range tables the lower priority number wins.

        Raises:
            AlreadyExists: there is an entry with this key and priority.
            InvalidArgument, NotFound, OutOfRange: key, action or priority are wrong.
            ResourceExhausted: the table is full.
        """
        wanted = match_key(self.facts, key)
        return self._control.table_add(self.name, wanted, self._action(action), priority=self._priority(priority))

    def __setitem__(self, key: KeyLike, action: ActionLike) -> None:
        wanted = match_key(self.facts, key)
        with self._gate:
            try:
                handle = self._control.table_find(self.name, wanted)
            except NotFound:
                self._control.table_add(self.name, wanted, self._action(action))
            else:
                self._control.table_modify(self.name, handle, self._action(action))

    def handle(self, key: KeyLike, *, priority: int = 0) -> int:
        """Return the handle of the entry with this key. Raises NotFound, which is a KeyError, too."""
        wanted = match_key(self.facts, key)
        try:
            return self._control.table_find(self.name, wanted, priority=self._priority(priority))
        except NotFound:
            raise Missing(f"table '{self.name}' has no entry with the key {key!r}") from None

    def get(
        self, key: KeyLike, default: T | None = None, *, priority: int = 0
    ) -> Action | MemberRef | GroupRef | T | None:
        """Return the action of the entry with this key, `default` if there is none."""
        with self._gate:
            try:
                return self._shown(self._control.table_entry(self.name, self.handle(key, priority=priority)).action)
            except (NotFound, OutOfRange):
                return default

    def pop(self, key: KeyLike, *default: T, priority: int = 0) -> Action | MemberRef | GroupRef | T:
        """Delete the entry with this key, and return its action; without such an entry return `default`, if given.

        Raises NotFound, which is a KeyError, too.
        """
        with self._gate:
            try:
                handle = self.handle(key, priority=priority)
            except (NotFound, OutOfRange):
                if default:
                    return default[0]
                raise
            action = self._shown(self._control.table_entry(self.name, handle).action)
            self._control.table_delete(self.name, handle)
            return action

    def update(self, entries: Mapping[KeyLike, ActionLike] | Iterable[tuple[KeyLike, ActionLike]]) -> None:
        """Do `table[key] = action` for each key of a mapping, or each pair (key, action)."""
        for key, action in entries.items() if isinstance(entries, Mapping) else entries:
            self[key] = action

    def __getitem__(self, key: KeyLike) -> Action | MemberRef | GroupRef:
        with self._gate:
            return self._shown(self._control.table_entry(self.name, self.handle(key)).action)

    def __delitem__(self, key: KeyLike) -> None:
        with self._gate:
            self._control.table_delete(self.name, self.handle(key))

    def delete(self, handle: int) -> None:
        """Delete an entry by its handle."""
        if not is_int(handle):
            raise InvalidArgument(f"table '{self.name}': {handle!r} is not the handle of an entry, which is an int")
        self._control.table_delete(self.name, handle)

    def __contains__(self, key: KeyLike) -> bool:
        # A number beyond the width of the key cannot be in the table; what is no key at all is an error.
        try:
            self.handle(key)
        except (NotFound, OutOfRange):
            return False
        return True

    def __len__(self) -> int:
        return self._control.table_size(self.name)

    def __iter__(self) -> Iterator[TableEntry]:
        for e in self._control.table_entries(self.name):
            yield TableEntry(e.key, self._shown(e.action), e.priority, e.handle, e.is_const)

    def clear(self) -> None:
        """Delete every entry; the default action goes back to the program's."""
        self._control.table_clear(self.name)

    @property
    def default(self) -> Action | MemberRef | GroupRef | None:
        """The action of a miss; None: nothing is done."""
        action = self._control.table_default(self.name)
        return None if action is None else self._shown(action)

    @default.setter
    def default(self, action: ActionLike | None) -> None:
        if action is None:
            self._control.table_reset_default(self.name)
        else:
            self._control.table_set_default(self.name, self._action(action, default=True))

    def counter(self, key: KeyLike = None, *, priority: int = 0) -> CounterValue:
        """Return the direct counter of an entry; without a key that of misses."""
        with self._gate:
            handle = None if key is None else self.handle(key, priority=priority)
            return self._control.direct_counter_read(self.name, handle)

    def set_meter(self, key: KeyLike, config: MeterConfig | None, *, priority: int = 0) -> None:
        """Configure the direct meter of an entry."""
        with self._gate:
            self._control.direct_meter_set(self.name, self.handle(key, priority=priority), config)


Cell = TypeVar("Cell")
F = TypeVar("F")


class NamedObjects(Mapping[str, Cell], Generic[Cell, F]):
    """Objects by name: the full name, or the end of it after a dot where only one has that."""

    def __init__(self, what: str, facts: Mapping[str, F], make: Callable[[F], Cell]) -> None:
        self._what, self._facts, self._make = what, facts, make

    def __getitem__(self, name: str) -> Cell:
        return self._make(self._facts[find(name, self._facts, self._what)])

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def only(self, names: Container[str]) -> NamedObjects[Cell, F]:
        """Return those of these full names."""
        kept = {name: facts for name, facts in self._facts.items() if name in names}
        return NamedObjects(self._what, kept, self._make)


class Register:
    """A register: `register[3]`, `register[3] = 7`, `list(register)`."""

    def __init__(self, control: Control, array: Array) -> None:
        self._control, self._array, self.name, self.width = control, array, array.name, array.width

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[int]:
        return iter(self._control.register_read_all(self.name))

    def __getitem__(self, index: int) -> int:
        return self._control.register_read(self.name, index)

    def __setitem__(self, index: int, value: Scalar) -> None:
        self._control.register_write(self.name, index, number(value, self.width, f"register '{self.name}'"))

    def clear(self) -> None:
        """Set all cells to 0."""
        self._control.register_reset(self.name)


class Counter:
    """A counter: `counter[3].packets`, `counter[3] = CounterValue(0, 0)`, `list(counter)`."""

    def __init__(self, control: Control, array: Array) -> None:
        self._control, self._array, self.name = control, array, array.name

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[CounterValue]:
        return iter(self._control.counter_read_all(self.name))

    def __getitem__(self, index: int) -> CounterValue:
        return self._control.counter_read(self.name, index)

    def __setitem__(self, index: int, value: CounterValue) -> None:
        if not isinstance(value, CounterValue):
            raise InvalidArgument(
                f"counter '{self.name}': {value!r} is no value of it; write CounterValue(packets, bytes)"
            )
        self._control.counter_write(self.name, index, value.packets, value.bytes)

    def clear(self) -> None:
        """Set all cells to 0."""
        self._control.counter_reset(self.name)


class MeterArray:
    """A meter: `meter[3] = MeterConfig(cir, cburst, pir, pburst)`, rates per second; None: every packet is green."""

    def __init__(self, control: Control, array: Array) -> None:
        self._control, self._array, self.name = control, array, array.name

    def __len__(self) -> int:
        return self._array.size

    def __getitem__(self, index: int) -> MeterConfig | None:
        return self._control.meter_config(self.name, index)

    def __setitem__(self, index: int, value: MeterConfig | None) -> None:
        self._control.meter_set(self.name, index, value)


class ProgramObjects:
    """Tables, registers, counters and meters of a running program, by name.

    Args:
        control: the operations of the switch.
        lock: is held for several operations that go together.
        scopes: by table, actions that may not stand everywhere.
    """

    def __init__(self, control: Control, lock: Lock, scopes: Mapping[str, Mapping[str, ActionScope]]) -> None:
        facts = control.program

        def table(found: TableFacts) -> Table:
            with lock:  # raises if the switch is closed
                return Table(control, found, lock, scopes.get(found.name, {}))

        self.tables: NamedObjects[Table, TableFacts] = NamedObjects("table", facts.tables, table)
        self.registers: NamedObjects[Register, Array] = NamedObjects(
            "register", facts.registers, lambda array: Register(control, array)
        )
        self.counters: NamedObjects[Counter, Array] = NamedObjects(
            "counter", facts.counters, lambda array: Counter(control, array)
        )
        self.meters: NamedObjects[MeterArray, Array] = NamedObjects(
            "meter", facts.meters, lambda array: MeterArray(control, array)
        )
