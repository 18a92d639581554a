"""Trace of a packet through a program, as lines of text or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from p4lite_tools.interpreter import events as ev

INSTANCES = {
    0: "",
    1: " (ingress clone)",
    2: " (egress clone)",
    4: " (recirculated)",
    5: " (replicated)",
    6: " (resubmitted)",
}
COLOURS = ("green", "yellow", "red")
#: Primitives that drop a packet, and the fields that decide about it in v1model and PSA.
DROPPING = ("mark_to_drop", "drop")
EGRESS_SPEC, MCAST_GRP = "standard_metadata.egress_spec", "standard_metadata.mcast_grp"
PSA_DROPS = ("psa_ingress_output_metadata.drop", "psa_egress_output_metadata.drop")
_STYLES = {
    "head": "1",
    "parser": "36",
    "table": "33",
    "hit": "32",
    "miss": "31",
    "change": "35",
    "fate": "1;34",
    "bad": "1;31",
    "dim": "2",
}


@dataclass
class Recorder:
    """An observer that keeps all events."""

    events: list[ev.Event] = field(default_factory=list)

    def __call__(self, event: ev.Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def take(self) -> list[ev.Event]:
        """Return the events since the last call."""
        taken, self.events = self.events, []
        return taken


def hexadecimal(value: int, width: int) -> str:
    """Return a value with the digits of its width."""
    return f"0x{value:0{(width + 3) // 4}x}" if width > 0 else hex(value)


def named(values: Iterable[ev.NamedValue]) -> str:
    """Return values with their names."""
    return ", ".join(f"{v.name}={hexadecimal(v.value, v.width)}" for v in values)


class Lines:
    """Turns events into lines: the place in the source, then what happened there."""

    def __init__(self, *, colour: bool = False) -> None:
        self.colour = colour
        self._place = 0
        self._pipeline = self._primitive = ""
        self._dropped = False

    def style(self, text: str, style: str) -> str:
        """Return text in a colour, if colours are wanted."""
        return f"\033[{_STYLES[style]}m{text}\033[0m" if self.colour and text else text

    def render(self, events: Sequence[ev.Event]) -> list[str]:
        """Return the lines of events."""
        shown = [("" if event is None else place(event), line) for event, line in self.told(events)]
        self._place = max([self._place, *(len(where) for where, _ in shown)])
        return [
            f"{self.style(where, 'dim')}{' ' * (self._place - len(where))}  {line}".rstrip() for where, line in shown
        ]

    def told(self, events: Sequence[ev.Event]) -> list[tuple[ev.Event | None, str]]:
        """Return what the lines say of events, without their places, each with its event."""
        return [(event, line) for before, event in pairwise((None, *events)) for line in self._after(before, event)]

    def _after(self, before: ev.Event | None, event: ev.Event | None) -> Iterator[str]:
        # An extraction makes its header valid, which says nothing new.
        if isinstance(before, ev.Extracted) and isinstance(event, ev.ValidityChanged) and event.header == before.header:
            return
        if event is not None:
            yield from self._lines(event)

    def _lines(self, event: ev.Event) -> Iterator[str]:
        method = getattr(self, "_on_" + event.name, None)
        if method is not None:
            yield from method(event)

    def _on_packet_started(self, e: ev.PacketStarted) -> Iterator[str]:
        kind = INSTANCES.get(e.instance_type, "")
        yield self.style(f"packet of {len(e.data)} bytes in at port {e.port}{kind}", "head")

    def _on_state_entered(self, e: ev.StateEntered) -> Iterator[str]:
        yield self.style(f"parser state {e.state}", "parser")

    def _on_extracted(self, e: ev.Extracted) -> Iterator[str]:
        yield f"  extract {e.header} at byte {e.offset}: {named(e.values)}"

    def _on_transition_taken(self, e: ev.TransitionTaken) -> Iterator[str]:
        yield f"  -> {e.to or 'accept'}"

    def _on_parser_failed(self, e: ev.ParserFailed) -> Iterator[str]:
        yield self.style(f"parser error {e.error} in state {e.state}", "bad")

    def _on_statement_started(self, e: ev.StatementStarted) -> Iterator[str]:
        self._primitive = e.primitive
        self._dropped |= e.primitive in DROPPING
        yield from ()

    def _on_pipeline_entered(self, e: ev.PipelineEntered) -> Iterator[str]:
        self._pipeline, self._primitive, self._dropped = e.pipeline, "", False
        at = f" to port {e.port}" if e.pipeline == "egress" else ""
        yield self.style(f"{e.pipeline}{at}", "head")

    def _on_condition_tested(self, e: ev.ConditionTested) -> Iterator[str]:
        text = condition(e)
        result = self.style("true" if e.holds else "false", "hit" if e.holds else "miss")
        yield f"if ({text}): {result}"

    def _on_table_applied(self, e: ev.TableApplied) -> Iterator[str]:
        if e.hidden:
            if e.called is not None:
                yield f"call {self.style(e.called, 'table')}()"
            return
        entry = self.style(f"hit, entry {e.entry}", "hit") if e.hit else self.style("miss", "miss")
        action = f"{e.action}({named(e.arguments)})" if e.action is not None else "no action"
        yield f"{self.style('table ' + e.table, 'table')} [{named(e.keys)}]: {entry}: {action}"

    def _on_field_changed(self, e: ev.FieldChanged) -> Iterator[str]:
        old, new = hexadecimal(e.old, e.width), hexadecimal(e.new, e.width)
        undone = ", which undoes the drop" if self._undoes_drop(e) else ""
        yield f"  {e.field}: {old} -> {self.style(new, 'change')}{undone}"

    def _undoes_drop(self, e: ev.FieldChanged) -> bool:
        """Return whether a packet that the program has dropped in this pipeline goes on, because of this change."""
        if e.field in PSA_DROPS:
            self._dropped, undone = bool(e.new), self._dropped and not e.new
            return undone
        decides = e.field == EGRESS_SPEC or (e.field == MCAST_GRP and self._pipeline == "ingress")
        if not decides or not self._dropped or self._primitive in DROPPING:
            return False
        self._dropped = False
        return True

    def _on_validity_changed(self, e: ev.ValidityChanged) -> Iterator[str]:
        yield f"  {e.header} is {self.style('valid' if e.valid else 'invalid', 'change')}"

    def _on_register_read(self, e: ev.RegisterRead) -> Iterator[str]:
        yield f"  register {e.register}[{e.index}] is {e.value:#x}"

    def _on_register_written(self, e: ev.RegisterWritten) -> Iterator[str]:
        yield f"  register {e.register}[{e.index}]: {e.old:#x} -> {self.style(hex(e.new), 'change')}"

    def _on_counted(self, e: ev.Counted) -> Iterator[str]:
        index = "" if e.index is None else f"[{e.index}]"
        yield f"  counter {e.counter}{index}: {e.packets} packets, {e.bytes} bytes"

    def _on_metered(self, e: ev.Metered) -> Iterator[str]:
        index = "" if e.index is None else f"[{e.index}]"
        yield f"  meter {e.meter}{index}: {COLOURS[e.colour]}"

    def _on_extern_called(self, e: ev.ExternCalled) -> Iterator[str]:
        yield f"  extern {e.instance}.{e.method}({', '.join(map(hex, e.arguments))})"

    def _on_cloned(self, e: ev.Cloned) -> Iterator[str]:
        yield self.style(f"clone at {e.pipeline} for mirror session {e.session}", "fate")

    def _on_replicated(self, e: ev.Replicated) -> Iterator[str]:
        group = f"group {e.group}" if e.group else "mirror session"
        yield self.style(f"copy of {group} to port {e.port} (rid {e.rid})", "fate")

    def _on_resubmitted(self, e: ev.Resubmitted) -> Iterator[str]:
        yield self.style(f"resubmit, field list {e.field_list}", "fate")

    def _on_recirculated(self, e: ev.Recirculated) -> Iterator[str]:
        yield self.style(f"recirculate, field list {e.field_list}", "fate")

    def _on_digest_sent(self, e: ev.DigestSent) -> Iterator[str]:
        yield self.style(f"digest {e.digest}: {named(e.values)}", "fate")

    def _on_dropped(self, e: ev.Dropped) -> Iterator[str]:
        yield self.style(f"dropped: {e.reason}", "bad")

    def _on_deparsed(self, e: ev.Deparsed) -> Iterator[str]:
        yield f"deparse {' '.join(e.headers) or 'no header'}: {len(e.data)} bytes"

    def _on_sent(self, e: ev.Sent) -> Iterator[str]:
        yield self.style(f"packet of {len(e.data)} bytes out at port {e.port}: ", "fate") + e.data.hex()

    def _on_logged(self, e: ev.Logged) -> Iterator[str]:
        yield f"  log: {e.text}"

    def _on_faulted(self, e: ev.Faulted) -> Iterator[str]:
        yield self.style(f"  undefined by P4: {e.text}", "bad")


def place(event: ev.Event) -> str:
    """Return the place of an event for people: the file's name without its folder, and the line."""
    return "" if event.where is None else f"{PurePath(event.where.file).name}:{event.where.line}"


def condition(event: ev.ConditionTested) -> str:
    """Return the text of a condition: the source line from its place on has the parenthesis of the `if`, too."""
    text = event.where.fragment if event.where is not None and event.where.fragment else event.condition
    return text[:-1] if text.endswith(")") and text.count("(") < text.count(")") else text


def to_json(events: Iterable[ev.Event]) -> list[dict[str, Any]]:
    """Return events for JSON."""
    return [event.to_json() for event in events]
