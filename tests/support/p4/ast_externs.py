"""The externs of v1model for the interpreter of syntax trees, as v1model.p4 describes them."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.types import Type
from support.p4.ast_parser import Parsing
from support.p4.ast_values import UNSET, Header, Held, Stack, Struct, Union, packed, wrap
from support.p4.bmv2_hash import HASHES
from support.p4.control_plane import ControlItem

DROP_PORT = 511


class Externs(Parsing):
    """A machine with the externs; `out` is what the deparser has emitted."""

    def __init__(self, items: list[ControlItem]) -> None:
        super().__init__(items)
        self.registers: dict[str, list[Held]] = {}
        self.counters: dict[str, list[int]] = {}
        """By the names of their control and their own, as in BMv2 JSON."""
        self.names: dict[ast.Declaration, str] = {}
        self.out: list[bytes] = []
        self.extern_calls |= {
            "read": self._read,
            "write": self._write,
            "count": self._count,
            "mark_to_drop": self._drop,
            "hash": self._hash,
            "emit": self._emit,
        }

    def declare_instances(self, control: ast.ControlDecl) -> None:
        """Make the registers, counters and so on of a control."""
        for local in control.locals:
            if isinstance(local, ast.Instantiation) and local.instance is not None:
                self._instance(f"{control.name}.{local.name}", local, local.instance)

    def _instance(self, name: str, local: ast.Instantiation, instance: ast.Instance) -> None:
        self.names[local] = name
        size, kind = instance.args.get("size"), instance.decl.name
        if isinstance(size, int) and kind == "register":
            self.registers[name] = [0] * size
        elif isinstance(size, int) and kind == "counter":
            self.counters[name] = [0] * size

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
