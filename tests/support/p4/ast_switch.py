"""A v1model switch that executes a checked syntax tree: parser, tables, externs and deparser around `ast_machine`.

Not there: clones, resubmission, recirculation, multicast, meters, varbits, checksums, value sets. Random programs that
are compared with it (`random_tree`) have none of these.
"""

from __future__ import annotations

import contextlib

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.ast import ErrorValue, Instance
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.types import Type
from support.p4.ast_machine import Exit, Return
from support.p4.ast_tables import Tables
from support.p4.ast_values import (
    UNSET,
    Header,
    Held,
    Stack,
    Struct,
    Undefined,
    Union,
    initial,
    packed,
    unpacked,
    wrap,
    zero,
)
from support.p4.bmv2_hash import HASHES
from support.p4.control_plane import ControlItem

DROP_PORT = 511
MAX_STATES = 200


class ParserError(Exception):
    """An error that the parser raises."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class AstSwitch(Tables):
    """One switch running a program. `process(port, data)` gives the (port, data) that it sends. Raises Undefined."""

    def __init__(self, program: TypedProgram, items: list[ControlItem]) -> None:
        super().__init__(items)
        blocks = {name: i.decl for name, i in program.main.args.items() if isinstance(i, Instance)}
        self.parser = blocks["p"]
        self.controls = {name: blocks[name] for name in ("ig", "eg", "dep")}
        self.registers: dict[str, list[Held]] = {}
        self.counters: dict[str, list[int]] = {}
        """By the names of their control and their own, as in BMv2 JSON."""
        self.names: dict[ast.Declaration, str] = {}
        for control in (self.controls["ig"], self.controls["eg"]):
            assert isinstance(control, ast.ControlDecl)
            for local in control.locals:
                self._instance(control.name, local)
        self.packet, self.cursor = b"", 0
        self.out: list[bytes] = []
        self.extern_calls = {
            "extract": self._extract,
            "lookahead": self._lookahead,
            "advance": self._advance,
            "verify": self._verify,
            "read": self._read,
            "write": self._write,
            "count": self._count,
            "mark_to_drop": self._drop,
            "hash": self._hash,
            "emit": self._emit,
        }

    def _instance(self, control: str, local: ast.Declaration) -> None:
        if not isinstance(local, ast.Instantiation) or local.instance is None:
            return
        size = local.instance.args.get("size")
        self.names[local] = name = f"{control}.{local.name}"
        if isinstance(size, int) and local.instance.decl.name == "register":
            self.registers[name] = [0] * size
        elif isinstance(size, int):
            self.counters[name] = [0] * size

    # --- packets ---

    def process(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Send a packet in; return what is sent because of it. Raises Undefined."""
        parser = self.parser
        assert isinstance(parser, ast.ParserDecl)
        self.packet, self.cursor, self.out = data, 0, []
        _, headers, meta, standard = parser.params
        sm = zero(standard.type or ty.UNKNOWN)
        assert isinstance(sm, Struct)
        sm.fields |= {"ingress_port": port, "packet_length": len(data), "parser_error": ErrorValue("NoError")}
        values = [initial(headers.type or ty.UNKNOWN), zero(meta.type or ty.UNKNOWN), sm]
        self.cells.update(zip((headers, meta, standard), values, strict=True))
        try:
            self._parse(parser)
        except ParserError as error:
            sm.fields["parser_error"] = ErrorValue(error.name)
        values = [self.cells[p] for p in (headers, meta, standard)]
        values = self._control("ig", values)
        spec = sm.fields["egress_spec"]
        if spec == DROP_PORT:
            return []
        assert isinstance(spec, int)
        sm.fields |= {"egress_port": spec, "egress_spec": 0}
        values = self._control("eg", values)
        if sm.fields["egress_spec"] == DROP_PORT:
            return []
        deparser = self.controls["dep"]
        assert isinstance(deparser, ast.ControlDecl)
        self.cells[deparser.params[1]] = values[0]
        self.run_control(deparser)
        return [(spec, b"".join(self.out) + data[self.cursor :])]

    def _control(self, name: str, values: list[Held]) -> list[Held]:
        control = self.controls[name]
        assert isinstance(control, ast.ControlDecl)
        self.cells.update(zip(control.params, values, strict=True))
        with contextlib.suppress(Exit, Return):
            self.run_control(control)
        return [self.cells[p] for p in control.params]

    # --- parser ---

    def _parse(self, parser: ast.ParserDecl) -> None:
        for local in parser.locals:
            if isinstance(local, ast.VarDecl):
                self.declare(local)
        state: ast.ParserState | None = next(s for s in parser.states or [] if s.name == "start")
        for _ in range(MAX_STATES):
            if state is ast.ACCEPT or state is ast.REJECT or state is None:
                return
            for s in state.stmts:
                self.stmt(s)
            transition = state.transition
            assert transition is not None
            state = transition.target if transition.select is None else self._select(transition.select)
        raise Undefined("the parser does not end")

    def _select(self, select: ast.Select) -> ast.ParserState | None:
        values = [self.value(e) for e in select.exprs]
        for case in select.cases:
            if len(case.keys) == 1 and isinstance(case.keys[0], ast.DontCare):
                return case.target
            if all(self.matches(k, v, e.type) for k, v, e in zip(case.keys, values, select.exprs, strict=True)):
                return case.target
        raise ParserError("NoMatch")

    def _need(self, bits: int) -> int:
        """Return the next bits of the packet as a number. Raises ParserError."""
        size = (bits + 7) // 8
        if self.cursor * 8 + bits > len(self.packet) * 8:
            raise ParserError("PacketTooShort")
        return int.from_bytes(self.packet[self.cursor : self.cursor + size], "big") >> (size * 8 - bits)

    def _extract(self, e: ast.Call) -> Held:
        target = e.args[0].expr
        assert target is not None
        stack: Held = UNSET
        if isinstance(target, ast.Member) and isinstance(target.expr.type, ty.StackType):
            stack = self.value(target.expr)
            assert isinstance(stack, Stack)
            if stack.following >= len(stack.items):
                raise ParserError("StackOutOfBounds")
        place, t = self.place(target), ty.strip_newtypes(target.type or ty.UNKNOWN)
        assert isinstance(t, ty.HeaderType)
        width = ty.max_width_bits(t)
        assert width is not None
        self.store(place, unpacked(self._need(width), t))
        self.cursor += width // 8
        if isinstance(stack, Stack):
            stack.following += 1
        return UNSET

    def _lookahead(self, e: ast.Call) -> Held:
        width = ty.max_width_bits(e.types[0])
        assert width is not None
        return unpacked(self._need(width), e.types[0])

    def _advance(self, e: ast.Call) -> Held:
        assert e.args[0].expr is not None
        bits = self.number(e.args[0].expr)
        self._need(bits)
        self.cursor += bits // 8
        return UNSET

    def _verify(self, e: ast.Call) -> Held:
        cond, error = (a.expr for a in e.args)
        assert cond is not None
        assert error is not None
        if not self.truth(cond):
            code = self.value(error)
            assert isinstance(code, ErrorValue)
            raise ParserError(code.member)
        return UNSET

    # --- externs ---

    def _cell(self, e: ast.Call) -> tuple[list[Held], str]:
        assert isinstance(e.receiver, ast.Name)
        assert isinstance(e.receiver.decl, ast.Instantiation)
        name = self.names[e.receiver.decl]
        return self.registers.get(name, []), name

    def _read(self, e: ast.Call) -> Held:
        cells, _ = self._cell(e)
        target, index = (a.expr for a in e.args)
        assert target is not None
        assert index is not None
        place, i = self.place(target), self.number(index)
        self.store(place, cells[i] if i < len(cells) else UNSET)
        return UNSET

    def _write(self, e: ast.Call) -> Held:
        cells, _ = self._cell(e)
        index, value = (a.expr for a in e.args)
        assert index is not None
        assert value is not None
        i, new = self.number(index), self.number(value)
        if i < len(cells):
            cells[i] = new
        return UNSET

    def _count(self, e: ast.Call) -> Held:
        _, name = self._cell(e)
        assert e.args[0].expr is not None
        i = self.number(e.args[0].expr)
        if i < len(self.counters[name]):
            self.counters[name][i] += 1
        return UNSET

    def _drop(self, e: ast.Call) -> Held:
        assert e.args[0].expr is not None
        standard = self.load(self.place(e.args[0].expr))
        assert isinstance(standard, Struct)
        standard.fields |= {"egress_spec": DROP_PORT, "mcast_grp": 0}
        return UNSET

    def _hash(self, e: ast.Call) -> Held:
        target, algo, base, data, limit = (a.expr for a in e.args)
        assert target is not None
        assert algo is not None
        assert base is not None
        assert data is not None
        assert limit is not None
        place, kind, start = self.place(target), algo.const, self.number(base)
        assert isinstance(kind, ast.EnumValue)
        value, width = packed(self.value(data), data.type or ty.UNKNOWN)
        pad = -width % 8
        made = HASHES[kind.member]((value << pad).to_bytes((width + pad) // 8, "big"))
        bits = ty.underlying_bits(target.type or ty.UNKNOWN)
        assert bits is not None
        self.store(place, wrap(start + made % self.number(limit), bits.width, bits.signed))
        return UNSET

    def _emit(self, e: ast.Call) -> Held:
        assert e.args[0].expr is not None
        self._emit_value(self.value(e.args[0].expr), e.args[0].expr.type or ty.UNKNOWN)
        return UNSET

    def _emit_value(self, v: Held, t: Type) -> None:
        if isinstance(v, Header):
            if v.valid:
                value, width = packed(v, t)
                self.out.append(value.to_bytes(width // 8, "big"))
        elif isinstance(v, Stack) and isinstance(t, ty.StackType):
            for item in v.items:
                self._emit_value(item, t.element)
        elif isinstance(t, ty.FieldsType):
            parts = v.members if isinstance(v, Union) else v.fields if isinstance(v, Struct) else {}
            for name, part in t.fields.items():
                self._emit_value(parts[name], part)
