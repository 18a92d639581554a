"""Packets changed so that they hit table entries: fields of their headers get the values that an entry asks for."""

from __future__ import annotations

import random

from p4lite.interpreter import events as ev
from p4lite.interpreter.machine import Interpreter
from p4lite.interpreter.packet import fresh_packet
from p4lite.switch.program.entry import Exact, Lpm, MatchValue, Range, Ternary


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
