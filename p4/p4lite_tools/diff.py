"""The same packets and table entries through two programs, up to the first difference."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from p4lite.api.program import Program
from p4lite.api.switch import ALL_PORTS, Switch
from p4lite.api.values import Control
from p4lite.switch.errors import AlreadyExists, ResourceExhausted
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Range, Ternary
from p4lite.switch.program.facts import TableFacts
from p4lite.switch.runtime.tables import words_to_key
from p4lite_tools.fuzz.campaign import random_args, random_key
from p4lite_tools.fuzz.frames import FrameMaker
from p4lite_tools.interpreter import events as ev
from p4lite_tools.interpreter.machine import Interpreter
from p4lite_tools.interpreter.packet import fresh_packet
from p4lite_tools.trace import Recorder


class Aim:
    """Aims packets at the entries of an interpreted switch."""

    def __init__(self, interpreter: Interpreter, rng: random.Random) -> None:
        self._interpreter = interpreter
        self._rng = rng

    def at_an_entry(self, data: bytes) -> bytes:
        """Return a packet that matches an entry as far as the entry's keys are fields that its parser extracts."""
        tables = [
            t for t in self._interpreter.program.tables.values() if self._interpreter.table_size(t.name) and t.key
        ]
        if not tables:
            return data
        table = self._rng.choice(tables)
        entry = self._rng.choice(list(self._interpreter.table_entries(table.name)))
        places, bits = self._places(data), int.from_bytes(data, "big")
        for key, match in zip(table.key, entry.key, strict=True):
            place = places.get((key.target.header.name, key.target.field.name))
            if place is None:
                continue
            shift, full = 8 * len(data) - place - key.width, (1 << key.width) - 1
            value, mask = _wanted(match, full)
            bits = bits & ~((mask & full) << shift) | (value & mask & full) << shift
        return bits.to_bytes(len(data), "big")

    def _places(self, data: bytes) -> dict[tuple[str, str], int]:
        """Return at which bit each field begins that is extracted."""
        places: dict[tuple[str, str], int] = {}

        def observe(event: ev.Event) -> None:
            if isinstance(event, ev.Extracted):
                at = 8 * event.offset
                for value in event.values:
                    places[(event.header, value.name)] = at
                    at += value.width

        before, self._interpreter.observers = self._interpreter.observers, [observe]
        try:
            self._interpreter.parser.run(fresh_packet(self._interpreter.program.model, 0, data))
        finally:
            self._interpreter.observers = before
        return places


def _wanted(match: MatchValue, full: int) -> tuple[int, int]:
    """Return a value that matches, and which of its bits matter."""
    if isinstance(match, Exact):
        return match.value, full
    if isinstance(match, Range):
        return match.low, full
    if isinstance(match, Ternary):
        return match.value, match.mask
    if isinstance(match, Lpm):
        return match.value, full ^ (full >> match.prefix_len)
    return match.value or 0, full if match.value is not None else 0


def same_table(table: TableFacts, other: TableFacts | None) -> bool:
    """Return whether entries of a table fit another: keys alike, actions alike."""
    if other is None:
        return False
    keys = [(k.match, k.width) for k in table.key] == [(k.match, k.width) for k in other.key]
    actions = {n: a.widths for n, a in table.actions.items()} == {n: a.widths for n, a in other.actions.items()}
    return keys and actions and (table.action_profile is None) == (other.action_profile is None)


def takes_entries(table: TableFacts) -> bool:
    """Return whether random entries can be made for a table."""
    return bool(table.key) and bool(table.actions) and not table.const_entries and table.action_profile is None


def fill(controls: Sequence[Control], rng: random.Random, entries: int, *, least: int = 0) -> int:
    """Add `least` to `entries` to every table that all switches have; return how many were added."""
    first, added = controls[0], 0
    for table in first.program.tables.values():
        if not takes_entries(table) or not all(same_table(table, c.program.tables.get(table.name)) for c in controls):
            continue
        actions = list(table.actions.values())
        for _ in range(rng.randint(least, entries)):
            words = random_key(table, rng)
            key = words_to_key(table, words.value, words.mask, words.high)
            action = rng.choice(actions)
            call = ActionCall(action.name, tuple(random_args(action, rng)))
            priority = words.order if table.needs_priority else 0
            try:
                for control in controls:
                    control.table_add(table.name, key, call, priority=priority)
            except (AlreadyExists, ResourceExhausted):
                continue
            added += 1
    return added


ENTRIES = 6
PORTS = 8


@dataclass
class Difference:
    """The first packet with which the programs part, what each sent, and what each did."""

    number: int
    port: int
    data: bytes
    sent: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]
    events: tuple[list[ev.Event], list[ev.Event]]


@dataclass
class Comparison:
    """`packets` went through both; `notes` say what cannot be compared."""

    packets: int = 0
    entries: int = 0
    difference: Difference | None = None
    notes: list[str] = field(default_factory=list)


def random_frames(programs: Sequence[Program], rng: random.Random, count: int) -> Iterable[tuple[int, bytes]]:
    """Yield packets that reach deep into either parser, some cut off, and the port at which each comes in."""
    makers = [FrameMaker(program.facts, rng) for program in programs]
    for number in range(count):
        data = makers[number % len(makers)].make()
        if data and rng.random() < 0.5:  # what programs compare with is mostly a small or boundary value
            at = rng.randrange(min(len(data), 64))
            data = data[:at] + bytes([rng.choice((0, 1, 2, 127, 128, 255))]) + data[at + 1 :]
        if rng.random() < 0.15:
            data = data[: rng.randrange(len(data) + 1)]
        yield rng.randrange(PORTS), data


class Pair:
    """Two programs, each on an interpreted switch."""

    def __init__(self, one: Program, other: Program, *, seed: int = 1) -> None:
        self.programs = (one, other)
        self._recorders = (Recorder(), Recorder())
        self.switches = tuple(
            Switch(program, backend="interpreter", ports=ALL_PORTS, seed=seed, observers=[recorder])
            for program, recorder in zip(self.programs, self._recorders, strict=True)
        )
        self.rng = random.Random(seed)
        control = self.switches[0].control
        assert isinstance(control, Interpreter)
        self._aim = Aim(control, self.rng)

    def notes(self) -> list[str]:
        """Return what one program has and the other lacks, so that it is not compared."""
        out = []
        a, b = (program.facts.tables for program in self.programs)
        for name in sorted({n for n in (*a, *b) if not n.startswith("tbl_")}):
            if name not in a or name not in b:
                out.append(f"only {self.programs[name not in a].name} has table {name}")
            elif not same_table(a[name], b[name]):
                out.append(
                    f"table {name} has other keys or actions in {self.programs[1].name}: it gets no random entries"
                )
        return out

    def fill(self) -> int:
        """Add random entries to the tables that both have."""
        return fill([switch.control for switch in self.switches], self.rng, ENTRIES, least=ENTRIES // 2)

    def packets(self, count: int) -> Iterable[tuple[int, bytes]]:
        """Yield random packets, half of them aimed at entries that are in the tables by then."""
        for port, data in random_frames(self.programs, self.rng, count):
            yield port, self._aim.at_an_entry(data) if self.rng.random() < 0.5 else data

    def compare(self, packets: Iterable[tuple[int, bytes]]) -> Comparison:
        """Send packets until the programs part."""
        result = Comparison(notes=self.notes())
        for port, data in packets:
            result.packets += 1
            one, other = (switch.send(port, data) for switch in self.switches)
            events = (self._recorders[0].take(), self._recorders[1].take())
            if one != other or effects(events[0]) != effects(events[1]):
                result.difference = Difference(result.packets, port, data, (one, other), events)
                return result
        return result


def effects(events: Sequence[ev.Event]) -> list[object]:
    """Return what a packet did to registers, counters and digests of objects that have the same name in both."""
    return [_meaning(e) for e in events if isinstance(e, ev.RegisterWritten | ev.Counted | ev.DigestSent)]


def parting(one: Sequence[ev.Event], other: Sequence[ev.Event]) -> tuple[int, int]:
    """Return where two traces part: the first event of each that the other does not have in its place.

    Places in the source do not count, and neither does what only says that a statement begins.
    """
    a, b = ([i for i, e in enumerate(events) if _compared(e)] for events in (one, other))
    for x, y in zip(a, b, strict=False):
        if _meaning(one[x]) != _meaning(other[y]):
            return x, y
    shorter = min(len(a), len(b))
    return (a[shorter] if shorter < len(a) else len(one)), (b[shorter] if shorter < len(b) else len(other))


def _compared(event: ev.Event) -> bool:
    return not isinstance(event, ev.StatementStarted | ev.ChecksumTested | ev.ValidityChanged) and not (
        isinstance(event, ev.TableApplied) and event.hidden
    )


def _meaning(event: ev.Event) -> object:
    meaning = event.to_json()
    del meaning["where"]
    if isinstance(event, ev.ConditionTested):
        del meaning["condition"]
    return meaning
