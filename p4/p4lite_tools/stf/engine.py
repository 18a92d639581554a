"""Runs an STF test against a program in virtual time and compares what comes out, with names and patterns as STF has
them.

Each `packet` is processed to its end before the next statement; the clock then moves on by a millisecond, and by
a second for `wait`. At the end every port must have sent exactly the packets its `expect`s ask for, in order.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from p4lite.api.switch import Switch
from p4lite.switch.errors import ControlError
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.values import FabricError, QueueLimits
from p4lite.switch.multicast import Replication
from p4lite.switch.program.entry import (
    ActionCall,
    EntryAction,
    Exact,
    Lpm,
    MatchValue,
    MemberRef,
    Optional,
    Range,
    Ternary,
)
from p4lite.switch.program.facts import ActionFacts, Array, Facts, KeyFacts, TableFacts
from p4lite.switch.runtime.loader import LoadedProgram
from p4lite_tools.commands import CommandError, Commands, parse_number
from p4lite_tools.stf.parse import (
    Add,
    Args,
    CheckCounter,
    Command,
    Expect,
    NoPacket,
    Remove,
    SetDefault,
    Statement,
    StfError,
    StfPacket,
    Wait,
)

ROW = 32  # hex digits a row: 16 bytes


def mismatches(pattern: str, exact: bool, received: bytes) -> list[int]:
    """Return positions (in hex digits) where `received` departs from `pattern`; empty when it matches.

    Digits missing from the packet count, and with `exact` also those it has too many.
    """
    got = received.hex().upper()
    wrong = [at for at, want in enumerate(pattern) if want != "*" and got[at : at + 1] != want]
    wrong += [at for at in range(len(got), len(pattern)) if pattern[at] == "*"]
    if exact:
        wrong += range(len(pattern), len(got))
    return sorted(wrong)


def _spaced(digits: str) -> str:
    return " ".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def hex_diff(pattern: str, exact: bool, received: bytes) -> str:
    """Return rows of 16 bytes, expected over received, with `^` under every digit that differs.

    `..` stands where one of the two has ended; rows without a difference are folded into one line.
    """
    got = received.hex().upper()
    wrong = set(mismatches(pattern, exact, received))
    width = max(len(pattern), len(got))
    lines: list[str] = []
    folded = 0
    for start in range(0, width, ROW):
        end = min(start + ROW, width)
        if not any(at in wrong for at in range(start, end)):
            folded += (end - start + 1) // 2
            continue
        if folded:
            lines.append(f"          ({folded} bytes as expected)")
            folded = 0
        want_row = pattern[start:end].ljust(end - start, "." if exact else " ")
        got_row = got[start:end].ljust(end - start, ".")
        marks = "".join("^" if at in wrong else " " for at in range(start, end))
        lines.append(f"  {start // 2:>4}    expected {_spaced(want_row)}".rstrip())
        lines.append(f"          received {_spaced(got_row)}".rstrip())
        lines.append(f"                   {_spaced(marks)}".rstrip())
    if folded and lines:
        lines.append(f"          ({folded} more bytes as expected)")
    return "\n".join(lines)


T = TypeVar("T")
#: STF's priorities: the higher wins; BMv2's command line gets this minus the priority.
PRIORITY_PIVOT = 10000
_STACK = re.compile(r"\$([0-9]+)")
_BITS = {"0x": 4, "0b": 1, "0o": 3}


class NameProblem(Exception):
    """An unknown name or an invalid value; the text lists the known ones."""


def resolve(name: str, known: Mapping[str, T], what: str) -> T:
    """Return the element called `name`, or the only one whose name ends in it."""
    if name in known:
        return known[name]
    for suffix in ("." + name, name):
        found = [full for full in known if full.endswith(suffix)]
        if len(found) == 1:
            return known[found[0]]
        if found:
            raise NameProblem(f"{what} '{name}' is ambiguous: {', '.join(found)}")
    raise NameProblem(f"no {what} '{name}'; known: {', '.join(known) or 'none'}")


def key_position(name: str, key: Iterable[KeyFacts]) -> int:
    """Return which key of a table an STF name means."""
    wanted = _STACK.sub(r"[\1]", name)
    names = [part.name for part in key]
    tests = (
        lambda full: full == wanted,
        lambda full: full == wanted + "$",
        lambda full: full in (wanted + ".$valid$", wanted + ".isValid()"),
        lambda full: wanted.endswith((".valid", ".$valid", ".isValid")) and _valid_of(wanted) == _valid_of(full),
        lambda full: full.endswith(("." + wanted, "." + wanted + "$")),
        lambda full: wanted in ("valid", "$valid") and _valid_of(full) is not None,
    )
    for test in tests:
        found = [position for position, full in enumerate(names) if test(full)]
        if found:
            return found[0]
    raise NameProblem(f"no key '{name}'; known: {', '.join(names) or 'none'}")


def _valid_of(name: str) -> str | None:
    """Return the header whose validity a name means."""
    for ending in (".$valid$", ".$valid", ".isValid()", ".isValid", ".valid"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return None


def table_key(table: TableFacts, given: Args) -> tuple[MatchValue, ...]:
    """Return the match values of an `add`; keys not given match everything (exact ones: 0)."""
    values: list[MatchValue] = [part.everything() or Exact(0) for part in table.key]
    for name, value in given:
        position = key_position(name, table.key)
        values[position] = match_value(table.key[position], value)
    return tuple(values)


def match_value(key: KeyFacts, value: str) -> MatchValue:
    """Return one key's value in any of STF's forms: number, wildcards `*`, `v/len`, `v&&&mask`, `low->high`."""
    try:
        return _match_value(key, value)
    except ValueError:
        raise NameProblem(f"'{value}' is not a value for the {key.match} key '{key.name}'") from None


def _match_value(key: KeyFacts, value: str) -> MatchValue:
    kind = key.match
    if kind in ("exact", "valid"):
        return Exact(parse_number(value))
    if kind == "optional":
        return Optional(None if value.strip("0xXbBoO*") == "" and "*" in value else parse_number(value))
    if kind == "range":
        low, arrow, high = value.partition("->")
        return Range(parse_number(low), parse_number(high if arrow else low))
    if kind == "lpm":
        return _lpm(key.width, value)
    number, operator, mask = value.partition("&&&")
    if operator:
        bits = parse_number(mask)
        return Ternary(parse_number(number) & bits, bits)
    return _ternary(key.width, value)


def _lpm(width: int, value: str) -> Lpm:
    number, slash, length = value.partition("/")
    if slash:
        prefix = parse_number(length)
    elif number.isdigit():
        prefix = width
    else:
        # A prefix is as long as the digits before the wildcards, whatever the field's width.
        prefix = (len(number) - 2 - number.count("*")) * _BITS[number[:2].lower()]
    bits = parse_number(number.replace("*", "0"))
    shift = max(width - prefix, 0)
    return Lpm(bits >> shift << shift, prefix)


def _ternary(width: int, value: str) -> Ternary:
    if value.isdigit():
        return Ternary(int(value), (1 << width) - 1)
    per_digit = _BITS[value[:2].lower()]
    mask = 0
    for digit in value[2:]:
        mask = mask << per_digit | (0 if digit == "*" else (1 << per_digit) - 1)
    return Ternary(parse_number(value.replace("*", "0")), mask & ((1 << width) - 1))


def action_call(table: TableFacts, name: str, args: Args) -> ActionCall:
    """Return the call of one of a table's actions with arguments by name."""
    action: ActionFacts = resolve(name, table.actions, f"action of table '{table.name}'")
    given = dict(args)
    values = []
    for param in action.params:
        if param.name not in given:
            raise NameProblem(f"action '{action.name}' needs an argument '{param.name}'")
        values.append(parse_number(given.pop(param.name)))
    if given:
        raise NameProblem(f"action '{action.name}' has no parameter '{next(iter(given))}'")
    return ActionCall(action.name, tuple(values))


PACKET_GAP_NS = 1_000_000
WAIT_NS = 1_000_000_000
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass
class StfResult:
    """The outcome of a test; without `failures` it passed."""

    packets_in: int = 0
    packets_out: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures


class Bench(Protocol):
    """A switch under test, on a clock of its own; `control` has the operations of `Control` that the test uses."""

    @property
    def program(self) -> Facts: ...
    @property
    def control(self) -> Any: ...
    @property
    def replication(self) -> Replication: ...
    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]: ...
    def advance(self, duration_ns: int) -> list[tuple[int, bytes]]: ...


class _Compiled:
    """The compiled switch with some ports."""

    def __init__(self, fabric: Fabric, program: LoadedProgram, ports: Iterable[int], priority_queues: int) -> None:
        self._fabric = fabric
        self._switch = fabric.add_switch(1, priority_queues=priority_queues)
        self._switch.load(program)
        self.program: Facts = program
        self.control = self._switch.instance
        self.replication = self._switch
        for port in ports:
            try:
                self._switch.add_port(port).set_queue(QueueLimits(packets=0))
            except FabricError as error:
                raise FabricError(f"port {port}: {error}") from None

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        self._fabric.inject(self._switch.port(port), data)
        return self.advance(0)

    def advance(self, duration_ns: int) -> list[tuple[int, bytes]]:
        return [(port, data) for _, _, port, data in self._fabric.run_until(self._fabric.now_ns + duration_ns)]


class OnSwitch:
    """A switch of the API, which sends nothing while only its clock moves."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self.program: Facts = switch.program.facts
        self.control = switch.control
        self.replication = switch.replication

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        return self._switch.send(port, data)

    def advance(self, duration_ns: int) -> list[tuple[int, bytes]]:
        self._switch.advance(duration_ns)
        return []


def ports_of(statements: Sequence[Statement]) -> list[int]:
    """Return the ports that a test names."""
    return sorted({item.port for item in statements if isinstance(item, StfPacket | Expect)})


def run_stf(
    program: LoadedProgram, statements: Sequence[Statement], filename: str = "<stf>", *, priority_queues: int = 1
) -> StfResult:
    """Run a test on a fresh compiled switch. Raises StfError for a statement that cannot be executed."""
    with Fabric("virtual", seed=1) as fabric:
        try:
            bench = _Compiled(fabric, program, ports_of(statements), priority_queues)
        except FabricError as error:
            raise StfError(f"{filename}: {error}") from None
        return run_on(bench, statements, filename)


def run_on(bench: Bench, statements: Sequence[Statement], filename: str = "<stf>") -> StfResult:
    """Run a test on a switch. Raises StfError for a statement that cannot be executed."""
    return _Run(bench, statements, filename).run()


class _Run:
    def __init__(self, bench: Bench, statements: Sequence[Statement], filename: str) -> None:
        self.bench = bench
        self.program = bench.program
        self.statements = statements
        self.filename = filename
        self.result = StfResult()
        self.instance = bench.control
        self.received: dict[int, list[bytes]] = {}
        self.unchecked = 0  # packets out since the last `packet` or `no_packet`
        self.handles: dict[str, tuple[str, int]] = {}  # an entry's id -> table, handle
        self.commands = Commands(bench.control, bench.replication, lambda line: None)

    def run(self) -> StfResult:
        for statement in self.statements:
            try:
                self.execute(statement)
            except (NameProblem, CommandError, ControlError, FabricError, ValueError) as error:
                raise StfError(f"{self.place(statement)}: {error}") from None
        self.compare()
        return self.result

    def place(self, statement: Statement) -> str:
        return f"{self.filename}:{statement.line}"

    def fail(self, statement: Statement, what: str) -> None:
        self.result.failures.append(f"{self.place(statement)}: {what}")

    def execute(self, statement: Statement) -> None:
        match statement:
            case StfPacket():
                self.unchecked = 0
                self.result.packets_in += 1
                self.came(self.bench.send(statement.port, statement.data))
                self.came(self.bench.advance(PACKET_GAP_NS))
            case Wait():
                self.came(self.bench.advance(WAIT_NS))
            case NoPacket():
                if self.unchecked:
                    self.fail(statement, f"no_packet: {self.unchecked} packets came out")
                self.unchecked = 0
            case Add():
                self.add(statement)
            case SetDefault():
                table = self.table(statement.table)
                call = action_call(table, statement.action, statement.args)
                self.instance.table_set_default(table.name, self.entry_action(table, call))
            case Remove():
                self.remove(statement)
            case CheckCounter():
                self.check_counter(statement)
            case Command():
                self.command(statement)
            case Expect():
                pass  # compared at the end

    def came(self, packets: Iterable[tuple[int, bytes]]) -> None:
        for port, data in packets:
            self.received.setdefault(port, []).append(data)
            self.unchecked += 1
            self.result.packets_out += 1

    # -- tables ------------------------------------------------------------------------------------------

    def table(self, name: str) -> TableFacts:
        return resolve(name, self.program.tables, "table")

    def entry_action(self, table: TableFacts, call: ActionCall) -> EntryAction:
        """Return the action itself, or a new member of the table's action profile with it."""
        if table.action_profile is None:
            return call
        return MemberRef(self.instance.member_add(table.action_profile, call))

    def add(self, statement: Add) -> None:
        table = self.table(statement.table)
        key = table_key(table, statement.keys)
        call = action_call(table, statement.action, statement.args)
        priority = PRIORITY_PIVOT - (statement.priority or 0) if table.needs_priority else 0
        if priority < 0:
            raise NameProblem(f"priority {statement.priority} is above {PRIORITY_PIVOT}")
        handle = self.instance.table_add(table.name, key, self.entry_action(table, call), priority=priority)
        if statement.ident is not None:
            self.handles[statement.ident] = (table.name, handle)

    def remove(self, statement: Remove) -> None:
        if statement.ident is not None:
            if statement.ident not in self.handles:
                raise NameProblem(f"no entry was added as '{statement.ident}'")
            self.instance.table_delete(*self.handles.pop(statement.ident))
            return
        for name in self.program.tables:
            for entry in list(self.instance.table_entries(name)):
                if not entry.is_const:
                    self.instance.table_delete(name, entry.handle)
        self.handles.clear()

    def check_counter(self, statement: CheckCounter) -> None:
        info: Array = resolve(statement.counter, self.program.counters, "counter")
        if info.table is not None:
            known = self.handles.get(statement.index) or self.handles.get(statement.index.lstrip("$"))
            if known is not None and known[0] != info.table:
                raise NameProblem(f"entry '{statement.index}' is of table '{known[0]}', not '{info.table}'")
            value = self.instance.direct_counter_read(
                info.table, known[1] if known is not None else parse_number(statement.index)
            )
        else:
            value = self.instance.counter_read(info.name, parse_number(statement.index))
        got = value.bytes if statement.kind == "bytes" else value.packets
        if not _COMPARE[statement.op](got, statement.number):
            unit = statement.kind or "packets"
            self.fail(
                statement,
                f"check_counter: {info.name}({statement.index}) is {got} {unit}, "
                f"expected {statement.op} {statement.number}",
            )

    def command(self, statement: Command) -> None:
        """Execute a command of simple_switch_CLI, whose first word STF may shorten further than that does."""
        words = list(statement.args)
        known: Mapping[str, Mapping[str, Array]] = {
            "counter": self.program.counters,
            "register": self.program.registers,
            "meter": self.program.meters,
        }
        what = statement.verb.partition("_")[0]
        if words and what in known:
            words[0] = resolve(words[0], known[what], what).name
        self.commands.execute([statement.verb, *words])

    # -- comparison --------------------------------------------------------------------------------------

    def compare(self) -> None:
        expected: dict[int, list[Expect]] = {}
        for statement in self.statements:
            if isinstance(statement, Expect):
                expected.setdefault(statement.port, []).append(statement)
        for port in sorted({*expected, *self.received}):
            self.compare_port(port, expected.get(port, []), self.received.get(port, []))

    def compare_port(self, port: int, expected: list[Expect], received: list[bytes]) -> None:
        for index, (want, got) in enumerate(zip(expected, received, strict=False)):
            if want.pattern is not None and mismatches(want.pattern, want.exact, got):
                size = f"{len(want.pattern) // 2} bytes{'' if want.exact else ' or more'}"
                self.fail(
                    want,
                    f"packet {index + 1} on port {port} differs (expected {size}, received {len(got)}):\n"
                    + hex_diff(want.pattern, want.exact, got),
                )
        for want in expected[len(received) :]:
            self.fail(want, f"port {port}: this packet never came ({len(received)} came, {len(expected)} expected)")
        for got in received[len(expected) :]:
            self.result.failures.append(
                f"{self.filename}: port {port}: unexpected packet ({len(received)} came, {len(expected)} "
                f"expected): {got.hex(' ').upper()}"
            )
