"""The externs of v1model for the interpreter of syntax trees, as v1model.p4 describes them."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.types import Type
from support.p4.ast_machine import Place
from support.p4.ast_parser import Parsing
from support.p4.ast_tables import Buckets
from support.p4.ast_values import UNSET, Header, Held, Stack, Struct, Undefined, Union, packed, wrap
from support.p4.bmv2_hash import HASHES, hashed
from support.p4.control_plane import ControlItem, Rate

DROP_PORT = 511


class Externs(Parsing):
    """A machine with the externs; `out` is what the deparser has emitted."""

    def __init__(self, items: list[ControlItem]) -> None:
        super().__init__(items)
        self.registers: dict[str, list[Held]] = {}
        self.counters: dict[str, list[int]] = {}
        """By the names of their control and their own, as in BMv2 JSON."""
        self.names: dict[ast.Declaration, str] = {}
        self.meters: dict[str, list[Buckets | None]] = {}
        self.byte_meters: set[str] = set()
        self.length = 0
        """Bytes of the packet that entered the parser, which meters of bytes take."""
        self.payload = b""
        """What the parser left of the packet, which checksums may cover."""
        self.checksum_error = False
        self.clone: tuple[int, int] | None = None
        """What the control asked for last: session and field list (0: none) of a clone."""
        self.again: int | None = None
        """Field list of a resubmission or recirculation that the control asked for last."""
        self.rates = [item for item in items if isinstance(item, Rate)]
        self.out: list[bytes] = []
        self.extern_calls |= {
            "verify_checksum": lambda e: self._verify_checksum(e, b""),
            "verify_checksum_with_payload": lambda e: self._verify_checksum(e, self.payload),
            "update_checksum": lambda e: self._update_checksum(e, b""),
            "update_checksum_with_payload": lambda e: self._update_checksum(e, self.payload),
            "clone": self._clone,
            "clone_preserving_field_list": self._clone,
            "resubmit_preserving_field_list": self._again,
            "recirculate_preserving_field_list": self._again,
            "execute_meter": self._execute_meter,
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
        elif isinstance(size, int) and kind == "meter":
            cells = self.meters[name] = [None] * size
            for rate in self.rates:
                if name.endswith(f".{rate.meter}"):
                    cells[rate.index] = Buckets(rate.committed, rate.peak)
            unit = instance.args["type"]
            if isinstance(unit, ast.EnumValue) and unit.member == "bytes":
                self.byte_meters.add(name)

    def _cell(self, e: ast.Call) -> tuple[list[Held], str]:
        assert isinstance(e.receiver, ast.Name)
        assert isinstance(e.receiver.decl, ast.Instantiation)
        name = self.names[e.receiver.decl]
        return self.registers.get(name, []), name

    def _read_colour(self, e: ast.Call) -> Held:
        """Read a direct meter, which the hit of its table has executed."""
        if self.colour is None:
            raise Undefined("a direct meter's colour without a hit")
        (target,) = self.given(e)
        self.store(self.place(target), self.colour)
        return UNSET

    def _execute_meter(self, e: ast.Call) -> Held:
        _, name = self._cell(e)
        index, target = self.given(e)
        i, place = self.number(index), self.place(target)
        cell = self.meters[name][i]
        self.store(place, 0 if cell is None else cell.colour(self.length if name in self.byte_meters else 1))
        return UNSET

    # --- checksums ---

    def _checksum(self, e: ast.Call, payload: bytes) -> tuple[Place, int, int] | None:
        """Return where a checksum is, its width and its right value; None if the condition does not hold."""
        condition, data, target, algorithm = self.given(e)
        if not self.truth(condition):
            return None
        value, width = packed(self.value(data), data.type or ty.UNKNOWN)
        bits = ty.underlying_bits(target.type or ty.UNKNOWN)
        assert bits is not None
        if width % bits.width:
            raise Undefined("data of a checksum that is no multiple of its size")
        assert isinstance(algorithm.const, ast.EnumValue)
        right = HASHES[algorithm.const.member](value.to_bytes(width // 8, "big") + payload)
        return self.place(target), bits.width, right % (1 << bits.width)

    def _verify_checksum(self, e: ast.Call, payload: bytes) -> Held:
        found = self._checksum(e, payload)
        if found is not None and self.load(found[0]) != found[2]:
            self.checksum_error = True
        return UNSET

    def _update_checksum(self, e: ast.Call, payload: bytes) -> Held:
        found = self._checksum(e, payload)
        if found is not None:
            self.store(found[0], found[2])
        return UNSET

    # --- copies ---

    def _clone(self, e: ast.Call) -> Held:
        _, session, *index = self.given(e)
        number = self.number(session)
        self.clone = number, self.number(index[0]) if index else 0
        return UNSET

    def _again(self, e: ast.Call) -> Held:
        (field_list,) = self.given(e)
        self.again = self.number(field_list)
        return UNSET

    def _read(self, e: ast.Call) -> Held:
        cells, name = self._cell(e)
        if name not in self.registers:
            return self._read_colour(e)
        target, index = self.given(e)
        place, i = self.place(target), self.number(index)
        self.store(place, cells[i] if i < len(cells) else UNSET)
        return UNSET

    def _write(self, e: ast.Call) -> Held:
        cells, _ = self._cell(e)
        index, value = self.given(e)
        i, new = self.number(index), self.number(value)
        if i < len(cells):
            cells[i] = new
        return UNSET

    def _count(self, e: ast.Call) -> Held:
        _, name = self._cell(e)
        (index,) = self.given(e)
        i = self.number(index)
        if i < len(self.counters[name]):
            self.counters[name][i] += 1
        return UNSET

    def _drop(self, e: ast.Call) -> Held:
        (metadata,) = self.given(e)
        standard = self.load(self.place(metadata))
        assert isinstance(standard, Struct)
        standard.fields |= {"egress_spec": DROP_PORT, "mcast_grp": 0}
        return UNSET

    def _hash(self, e: ast.Call) -> Held:
        target, algo, base, data, limit = self.given(e)
        place, kind, start = self.place(target), algo.const, self.number(base)
        assert isinstance(kind, ast.EnumValue)
        made = hashed(kind.member, [packed(self.value(data), data.type or ty.UNKNOWN)])
        bits = ty.underlying_bits(target.type or ty.UNKNOWN)
        assert bits is not None
        self.store(place, wrap(start + made % self.number(limit), bits.width, bits.signed))
        return UNSET

    def _emit(self, e: ast.Call) -> Held:
        (emitted,) = self.given(e)
        self._emit_value(self.value(emitted), emitted.type or ty.UNKNOWN)
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
