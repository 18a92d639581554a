"""A v1model switch that executes a checked syntax tree: the way of packets around `ast_machine` and its relatives.

What happens to a packet after ingress and egress is what v1model.p4 and the description of simple_switch say. What
these leave open (such as the ingress port of a packet that was recirculated, or most standard metadata of a clone) is
unset, so that a program that reads it proves nothing. Copies may leave in any order: `process` sorts them.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.ast import ErrorValue, Instance
from p4lite.compiler.check import TypedProgram
from support.p4.ast_externs import DROP_PORT, Externs
from support.p4.ast_machine import Exit, Return
from support.p4.ast_parser import ParserError
from support.p4.ast_values import UNSET, Held, Struct, Undefined, Unset, copied, initial, zero
from support.p4.control_plane import ControlItem, Group, Session

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
"""Values of instance_type."""


@dataclass
class Arrival:
    """A packet that enters the parser, with what it keeps of the user metadata."""

    data: bytes
    port: int | Unset
    kind: int = NORMAL
    kept: dict[str | int, Held] = field(default_factory=dict)


@dataclass
class Parsed:
    """A packet after the parser: headers, user metadata, standard metadata, and the bytes that were not parsed."""

    headers: Held
    meta: Held
    standard: Struct
    payload: bytes

    def copy(self) -> Parsed:
        """Return a packet that shares nothing with this one."""
        standard = copied(self.standard)
        assert isinstance(standard, Struct)
        return Parsed(copied(self.headers), copied(self.meta), standard, self.payload)


class AstSwitch(Externs):
    """One switch running a program. `process(port, data)` gives the (port, data) that it sends. Raises Undefined."""

    def __init__(self, program: TypedProgram, items: list[ControlItem]) -> None:
        super().__init__(items)
        blocks = {name: i.decl for name, i in program.main.args.items() if isinstance(i, Instance)}
        parser = blocks.pop("p")
        assert isinstance(parser, ast.ParserDecl)
        self.parser = parser
        self.controls = {name: decl for name, decl in blocks.items() if isinstance(decl, ast.ControlDecl)}
        for name in ("ig", "eg"):
            self.declare_instances(self.controls[name])
        self.multicast = {item.number: item.replicas for item in items if isinstance(item, Group)}
        self.sessions = {item.number: item for item in items if isinstance(item, Session)}
        self.lists = _field_lists(parser.params[2])
        self.work: deque[Arrival] = deque()
        self.sent: list[tuple[int, bytes]] = []

    def process(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Send a packet in; return what is sent because of it, sorted. Raises Undefined; then nothing has happened."""
        before = copy.deepcopy(self._state())
        self.work, self.sent = deque([Arrival(data, port)]), []
        try:
            while self.work:
                self._arrive(self.work.popleft())
        except Undefined:
            for now, old in zip(self._state(), before, strict=True):
                now.clear()
                now.update(old)
            raise
        return sorted(self.sent)

    def _state(self) -> list[dict[Any, Any]]:
        return [self.registers, self.counters, self.meters, self.buckets]

    def _arrive(self, arrival: Arrival) -> None:
        packet = self._parsed(arrival)
        self.length = len(arrival.data)
        self._control("ig", packet)
        clone, again, standard = self.clone, self.again, packet.standard.fields
        if clone is not None and clone[0] in self.sessions:
            # The parser sees the packet as it was received, but what it finds in metadata that were kept is open.
            kept: dict[str | int, Held] = dict.fromkeys(arrival.kept, UNSET)
            received = self._parsed(Arrival(arrival.data, arrival.port, arrival.kind, kept))
            self._send_clone(received, self.sessions[clone[0]], self._kept(packet, clone[1]), INGRESS_CLONE)
        if again is not None:
            self.work.append(Arrival(arrival.data, UNSET, RESUBMITTED, self._kept(packet, again)))
            return
        group, spec = standard["mcast_grp"], standard["egress_spec"]
        assert isinstance(group, int)
        assert isinstance(spec, int)
        if group:
            standard["instance_type"] = REPLICATED
            for port, rid in self.multicast.get(group, ()):
                self._leave(packet.copy(), port, rid)
        elif spec != DROP_PORT:
            standard["instance_type"] = NORMAL
            self._leave(packet, spec, None)

    def _kept(self, packet: Parsed, number: int) -> dict[str | int, Held]:
        """Return what a field list keeps."""
        assert isinstance(packet.meta, Struct)
        return {name: copied(packet.meta.fields[name]) for name in self.lists.get(number, ())}

    def _fresh_meta(self, kept: dict[str | int, Held]) -> Struct:
        meta = zero(self.parser.params[2].type or ty.UNKNOWN)
        assert isinstance(meta, Struct)
        meta.fields |= kept
        return meta

    def _send_clone(self, packet: Parsed, session: Session, kept: dict[str | int, Held], kind: int) -> None:
        """Send the copies of a session; most of their standard metadata is open."""
        packet.meta = self._fresh_meta(kept)
        packet.standard = Struct(dict.fromkeys(packet.standard.fields, UNSET))
        packet.standard.fields["instance_type"] = kind
        for port, rid in (*self.multicast.get(session.group, ()), *session.replicas):
            self._leave(packet.copy(), port, rid)
        if session.port >= 0:
            self._leave(packet.copy(), session.port, None)

    def _parsed(self, arrival: Arrival) -> Parsed:
        self.packet, self.cursor = arrival.data, 0
        _, headers, meta, standard = self.parser.params
        sm = zero(standard.type or ty.UNKNOWN)
        assert isinstance(sm, Struct)
        sm.fields |= {"ingress_port": arrival.port, "packet_length": len(arrival.data), "instance_type": arrival.kind}
        sm.fields["parser_error"] = ErrorValue("NoError")
        values = [initial(headers.type or ty.UNKNOWN), self._fresh_meta(arrival.kept), sm]
        self.cells.update(zip((headers, meta, standard), values, strict=True))
        try:
            self.parse(self.parser)
        except ParserError as error:
            sm.fields["parser_error"] = ErrorValue(error.name)
        packet = Parsed(self.cells[headers], self.cells[meta], sm, arrival.data[self.cursor :])
        self.checksum_error = False
        self._control("vr", packet)
        sm.fields["checksum_error"] = int(self.checksum_error)
        return packet

    def _control(self, name: str, packet: Parsed) -> None:
        control = self.controls[name]
        values: list[Held] = [packet.headers, packet.meta, packet.standard][: len(control.params)]
        self.cells.update(zip(control.params, values, strict=True))
        self.clone = self.again = None
        self.payload = packet.payload
        with contextlib.suppress(Exit, Return):
            self.run_control(control)
        packet.headers, packet.meta = (self.cells[p] for p in control.params[:2])

    def _leave(self, packet: Parsed, port: int, rid: int | None) -> None:
        """Run egress and send the packet."""
        packet.standard.fields |= {"egress_port": port, "egress_spec": 0}
        if rid is not None:
            packet.standard.fields["egress_rid"] = rid
        self._control("eg", packet)
        clone, again = self.clone, self.again
        if clone is not None and clone[0] in self.sessions:
            self._send_clone(packet.copy(), self.sessions[clone[0]], self._kept(packet, clone[1]), EGRESS_CLONE)
        if packet.standard.fields["egress_spec"] == DROP_PORT:
            return
        kept = {} if again is None else self._kept(packet, again)
        data = self._deparsed(packet)
        if again is None:
            self.sent.append((port, data))
        else:
            self.work.append(Arrival(data, UNSET, RECIRCULATED, kept))

    def _deparsed(self, packet: Parsed) -> bytes:
        self._control("ck", packet)
        deparser = self.controls["dep"]
        self.out = []
        self.cells[deparser.params[1]] = packet.headers
        self.run_control(deparser)
        return b"".join(self.out) + packet.payload


def _field_lists(meta: ast.Param) -> dict[int, list[str]]:
    """Return the fields of the user metadata that each @field_list names."""
    lists: dict[int, list[str]] = {}
    assert isinstance(meta.type, ty.StructType)
    assert isinstance(meta.type.decl, ast.StructDecl)
    for field_ in meta.type.decl.fields:
        annotation = field_.annotation("field_list")
        for token in () if annotation is None else annotation.tokens:
            if token != ",":
                lists.setdefault(int(token), []).append(field_.name)
    return lists
