"""The same packets and table entries through two programs, up to the first difference."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from p4lite.api.program import Program
from p4lite.api.switch import Switch
from p4lite.interpreter import events as ev
from p4lite.interpreter.machine import Interpreter
from p4lite.switch.fuzz.frames import FrameMaker
from p4lite.tools.aim import Aim
from p4lite.tools.random_entries import fill, same_table
from p4lite.tools.trace import Recorder

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
            Switch(program, backend="interpreter", ports=range(511), seed=seed, observers=[recorder])
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
