"""A v1model switch that executes a checked syntax tree: the way of packets around `ast_machine` and its relatives.

What happens to a packet after ingress and egress is what v1model.p4 and the description of simple_switch say. What
these leave open (such as the ingress port of a packet that was recirculated, or most standard metadata of a clone) is
unset, so that a program that reads it proves nothing. Copies may leave in any order: `process` sorts them.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.ast import ErrorValue, Instance
from p4lite.compiler.check import TypedProgram
from support.p4.ast_externs import DROP_PORT, Externs
from support.p4.ast_machine import Exit, Return
from support.p4.ast_parser import ParserError
from support.p4.ast_values import Held, Struct, initial, zero
from support.p4.control_plane import ControlItem


@dataclass
class Arrival:
    """A packet that enters the parser."""

    data: bytes
    port: int


@dataclass
class Parsed:
    """A packet after the parser: headers, user metadata, standard metadata, and the bytes that were not parsed."""

    headers: Held
    meta: Held
    standard: Struct
    payload: bytes


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
        self.work: deque[Arrival] = deque()
        self.sent: list[tuple[int, bytes]] = []

    def process(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Send a packet in; return what is sent because of it, sorted. Raises Undefined."""
        self.work, self.sent = deque([Arrival(data, port)]), []
        while self.work:
            self._arrive(self.work.popleft())
        return sorted(self.sent)

    def _arrive(self, arrival: Arrival) -> None:
        packet = self._parsed(arrival)
        self._control("ig", packet)
        spec = packet.standard.fields["egress_spec"]
        if spec != DROP_PORT:
            assert isinstance(spec, int)
            self._leave(packet, spec)

    def _parsed(self, arrival: Arrival) -> Parsed:
        self.packet, self.cursor = arrival.data, 0
        _, headers, meta, standard = self.parser.params
        sm = zero(standard.type or ty.UNKNOWN)
        assert isinstance(sm, Struct)
        sm.fields |= {"ingress_port": arrival.port, "packet_length": len(arrival.data)}
        sm.fields["parser_error"] = ErrorValue("NoError")
        values = [initial(headers.type or ty.UNKNOWN), zero(meta.type or ty.UNKNOWN), sm]
        self.cells.update(zip((headers, meta, standard), values, strict=True))
        try:
            self.parse(self.parser)
        except ParserError as error:
            sm.fields["parser_error"] = ErrorValue(error.name)
        return Parsed(self.cells[headers], self.cells[meta], sm, arrival.data[self.cursor :])

    def _control(self, name: str, packet: Parsed) -> None:
        control = self.controls[name]
        values: list[Held] = [packet.headers, packet.meta, packet.standard][: len(control.params)]
        self.cells.update(zip(control.params, values, strict=True))
        with contextlib.suppress(Exit, Return):
            self.run_control(control)
        packet.headers, packet.meta = (self.cells[p] for p in control.params[:2])

    def _leave(self, packet: Parsed, port: int) -> None:
        """Run egress and send the packet."""
        packet.standard.fields |= {"egress_port": port, "egress_spec": 0}
        self._control("eg", packet)
        if packet.standard.fields["egress_spec"] == DROP_PORT:
            return
        self.sent.append((port, self._deparsed(packet)))

    def _deparsed(self, packet: Parsed) -> bytes:
        deparser = self.controls["dep"]
        self.out = []
        self.cells[deparser.params[1]] = packet.headers
        self.run_control(deparser)
        return b"".join(self.out) + packet.payload
