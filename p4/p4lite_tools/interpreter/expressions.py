"""Expressions of the document as Python functions of the packet and the arguments of the action; named calculations,
and BMv2's hashes from their definitions.

Numbers are unbounded integers, cut to their width where they are stored. A header or union is its name, None if an
index leads out of its stack: reads of it give 0, and writes to it are lost.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from p4lite.switch.bmv2.model import MAX_DEPTH, FieldType, HeaderLayout, Model, UnionStack
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.calculations import CRCS, Crc, custom_crc
from p4lite_tools.interpreter.packet import Packet, ParserFailure, header_bytes, wrap
from p4lite_tools.interpreter.state import InterpreterState

Arguments = Sequence[int]
Number = Callable[[Packet, Arguments], int]
Truth = Callable[[Packet, Arguments], bool]
Name = Callable[[Packet, Arguments], "str | None"]

NUMBER, TRUTH, HEADER, UNION, STACK, UNION_STACK, VARBIT = (
    "number",
    "boolean",
    "header",
    "header union",
    "header stack",
    "header union stack",
    "variable-length field",
)
MAX_SHIFT = 1 << 17
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Value:
    """A compiled expression: its kind, the function that gives its value, and the type of a header."""

    kind: str
    get: Callable[[Packet, Arguments], Any]
    type: HeaderLayout | None = None
    union_stack: UnionStack | None = None


@dataclass(frozen=True, slots=True)
class AssignmentTarget:
    """What can be assigned: a field of the header that `header` names; `field` None is the validity."""

    header: Name
    field: FieldType


def bits_of(data: bytes, at: int, width: int) -> int:
    """Return `width` bits of `data` from bit `at` on. Raises IndexError beyond the end."""
    end = at + width
    if end > len(data) * 8:
        raise IndexError
    last = (end + 7) // 8
    return int.from_bytes(data[at // 8 : last], "big") >> (last * 8 - end) & ((1 << width) - 1)


class ExpressionCompiler:
    """Compiles expressions for one switch, whose registers they may read."""

    def __init__(self, model: Model, state: InterpreterState) -> None:
        self.model = model
        self.state = state
        self._depth = 0

    # --- by kind ---

    def number(self, node: JsonNode) -> Number:
        """Return a function for a number; a boolean gives 0 or 1."""
        return self._as_number(self.value(node), node)

    def truth(self, node: JsonNode) -> Truth:
        """Return a function for a boolean; a number is true unless 0."""
        return self._as_truth(self.value(node), node)

    def header(self, node: JsonNode) -> tuple[Name, HeaderLayout]:
        """Return a function for a header's name, and its type."""
        value = self.value(node)
        if value.kind != HEADER or value.type is None:
            node.fail(f"expected a header, found a {value.kind}")
        return value.get, value.type

    def name(self, node: JsonNode, kind: str) -> str:
        """Return the name of a stack, union or stack of unions."""
        value = self.value(node)
        if value.kind != kind or node["type"].value == "expression":
            node.fail(f"expected the name of a {kind}, found a {value.kind}")
        return node["value"].str()

    def target(self, node: JsonNode) -> AssignmentTarget:
        """Return what an assignment writes."""
        if node["type"].value == "field":
            ref = self.model.field_ref(node["value"])
            name = ref.header.name
            return AssignmentTarget(lambda p, a: name, ref.field)
        access = self._inner(node)
        if access.value.get("type") == "stack_field":
            stack = self.model.find(self.model.stacks, access["value"][0], HEADER)
            field = self.model.type_field(stack.type, access["value"][1])
            return AssignmentTarget(self._last(stack.name, [h.name for h in stack.headers]), field)
        if access.value.get("op") != "access_field":
            node.fail("this cannot be assigned to")
        header, type_ = self.header(access["left"])
        index = access["right"].int(0)
        if index >= len(type_.fields):
            access["right"].fail(f"header type '{type_.name}' has no field {index}")
        return AssignmentTarget(header, type_.fields[index])

    def _as_number(self, value: Value, node: JsonNode) -> Number:
        get = value.get
        if value.kind == TRUTH:
            return lambda p, a: int(get(p, a))
        if value.kind != NUMBER:
            node.fail(f"expected a number, found a {value.kind}")
        return get

    def _as_truth(self, value: Value, node: JsonNode) -> Truth:
        get = value.get
        if value.kind == NUMBER:
            return lambda p, a: get(p, a) != 0
        if value.kind != TRUTH:
            node.fail(f"expected a boolean, found a {value.kind}")
        return get

    # --- leaves ---

    @staticmethod
    def _inner(node: JsonNode) -> JsonNode:
        """Return what is inside the wrappers `{"type": "expression", "value": …}`."""
        while isinstance(node.value, dict) and node.value.get("type") == "expression":
            node = node["value"]
        return node

    def value(self, node: JsonNode) -> Value:
        """Return an expression of any kind. Raises ProgramError."""
        node = self._inner(node)
        if "op" in node.value:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                node.fail(f"the expression is nested more than {MAX_DEPTH} deep")
            result = self._operation(node)
            self._depth -= 1
            return result
        kind, value = node["type"].str(), node["value"]
        compiled = getattr(self, "_leaf_" + kind, None)
        if compiled is None:
            raise node["type"].error(f"'{kind}' is not a type of an expression that is known here")
        found: Value = compiled(value)
        return found

    def _leaf_hexstr(self, value: JsonNode) -> Value:
        number = value.hex()
        return Value(NUMBER, lambda p, a: number)

    def _leaf_bool(self, value: JsonNode) -> Value:
        holds = value.bool()
        return Value(TRUTH, lambda p, a: holds)

    def _leaf_local(self, value: JsonNode) -> Value:
        index = value.int(0)
        return Value(NUMBER, lambda p, a: a[index])

    _leaf_runtime_data = _leaf_local

    def _leaf_field(self, value: JsonNode) -> Value:
        ref = self.model.field_ref(value)
        header, field = ref.header.name, ref.field.name
        if ref.field.index < 0:
            return Value(NUMBER, lambda p, a: int(p.headers[header].valid))
        return Value(VARBIT if ref.field.varbit else NUMBER, lambda p, a: p.headers[header].fields[field])

    def _leaf_header(self, value: JsonNode) -> Value:
        header = self.model.find(self.model.headers, value, HEADER)
        name = header.name
        return Value(HEADER, lambda p, a: name, header.type)

    def _leaf_header_stack(self, value: JsonNode) -> Value:
        stack = self.model.find(self.model.stacks, value, STACK)
        return Value(STACK, lambda p, a: stack.name, stack.type)

    def _leaf_header_union(self, value: JsonNode) -> Value:
        union = self.model.find(self.model.unions, value, UNION)
        return Value(UNION, lambda p, a: union.name)

    def _leaf_header_union_stack(self, value: JsonNode) -> Value:
        stack = self.model.find(self.model.union_stacks, value, UNION_STACK)
        return Value(UNION_STACK, lambda p, a: stack.name, union_stack=stack)

    def _leaf_stack_field(self, value: JsonNode) -> Value:
        stack = self.model.find(self.model.stacks, value[0], STACK)
        field = self.model.type_field(stack.type, value[1])
        return self._field_of(self._last(stack.name, [h.name for h in stack.headers]), field)

    def _leaf_union_stack_field(self, value: JsonNode) -> Value:
        stack, member = self.model.union_member(value)
        names = [u.headers[member].name for u in stack.unions]
        field = self.model.type_field(stack.unions[0].headers[member].type, value[2])
        return self._field_of(self._last(stack.name, names), field)

    def _leaf_register(self, value: JsonNode) -> Value:
        array = self.model.find(self.state.program.registers, value[0], "register array")
        index, state = self.number(value[1]), self.state

        def read(packet: Packet, args: Arguments) -> int:
            return state.read_cell(array, index(packet, args)) or 0

        return Value(NUMBER, read)

    def _leaf_lookahead(self, value: JsonNode) -> Value:
        offset, width = value[0].int(0), value[1].int(1)
        error = self.model.error("PacketTooShort")

        def look(packet: Packet, args: Arguments) -> int:
            try:
                return bits_of(packet.data, packet.cursor * 8 + offset, width)
            except IndexError:
                raise ParserFailure(error) from None

        return Value(NUMBER, look)

    def _last(self, stack: str, names: list[str]) -> Name:
        """Return the last element that was extracted."""
        state = self.state

        def last(packet: Packet, args: Arguments) -> str | None:
            index = packet.next_index[stack] - 1
            if index < 0:
                state.fault(f"{stack}.last: nothing was extracted")
                return None
            return names[index]

        return last

    def _field_of(self, header: Name, field: FieldType) -> Value:
        name, valid = field.name, field.index < 0

        def read(packet: Packet, args: Arguments) -> int:
            of = header(packet, args)
            if of is None:
                return 0
            return int(packet.headers[of].valid) if valid else packet.headers[of].fields[name]

        return Value(VARBIT if field.varbit else NUMBER, read)

    # --- operators ---

    def _operation(self, node: JsonNode) -> Value:
        op = node["op"].str()
        if op == "?":
            return self._choice(node)
        special = getattr(self, "_op_" + op, None) if op.isidentifier() else None
        if special is not None:
            found: Value = special(node)
            return found
        right = self.value(node["right"])
        if node.get("left") is None:
            return self._unary(op, right, node)
        return self._binary(op, self.value(node["left"]), right, node)

    def _choice(self, node: JsonNode) -> Value:
        cond, left, right = self.truth(node["cond"]), self.value(node["left"]), self.value(node["right"])
        if left.kind != right.kind:
            node.fail(f"the branches of '?' are a {left.kind} and a {right.kind}")
        yes, no = left.get, right.get
        return Value(left.kind, lambda p, a: yes(p, a) if cond(p, a) else no(p, a), left.type)

    def _element(self, stack: str, names: list[str], index: Number) -> Name:
        state = self.state

        def element(packet: Packet, args: Arguments) -> str | None:
            at = index(packet, args)
            if not 0 <= at < len(names):
                state.fault(f"stack '{stack}' has no element {at}")
                return None
            return names[at]

        return element

    def _op_dereference_header_stack(self, node: JsonNode) -> Value:
        stack = self.model.find(self.model.stacks, self._inner(node["left"])["value"], STACK)
        names = [h.name for h in stack.headers]
        return Value(HEADER, self._element(stack.name, names, self.number(node["right"])), stack.type)

    _op_dereference_stack = _op_dereference_header_stack

    def _op_dereference_union_stack(self, node: JsonNode) -> Value:
        stack = self.model.find(self.model.union_stacks, self._inner(node["left"])["value"], UNION_STACK)
        names = [u.name for u in stack.unions]
        return Value(UNION, self._element(stack.name, names, self.number(node["right"])), union_stack=stack)

    def _op_access_union_header(self, node: JsonNode) -> Value:
        left, index = self.value(node["left"]), node["right"].int(0)
        if left.kind != UNION:
            node.fail(f"expected a header union, found a {left.kind}")
        if left.union_stack is not None:
            union = left.union_stack.unions[0]
        else:
            union = self.model.find(self.model.unions, self._inner(node["left"])["value"], UNION)
        unions, get = self.model.unions, left.get

        def member(packet: Packet, args: Arguments) -> str | None:
            name = get(packet, args)
            return None if name is None else unions[name].headers[index].name

        return Value(HEADER, member, union.headers[index].type)

    def _op_access_field(self, node: JsonNode) -> Value:
        header, type_ = self.header(node["left"])
        index = node["right"].int(0)
        if index == len(type_.fields):  # the hidden $valid$ comes last
            return Value(TRUTH, self._valid(header))
        if index > len(type_.fields):
            node["right"].fail(f"header type '{type_.name}' has only {len(type_.fields)} fields")
        return self._field_of(header, type_.fields[index])

    @staticmethod
    def _valid(header: Name) -> Truth:
        def valid(packet: Packet, args: Arguments) -> bool:
            name = header(packet, args)
            return name is not None and packet.headers[name].valid

        return valid

    def _op_valid(self, node: JsonNode) -> Value:
        return Value(TRUTH, self._valid(self.header(node["right"])[0]))

    def _op_valid_union(self, node: JsonNode) -> Value:
        value = self.value(node["right"])
        if value.kind != UNION:
            node.fail(f"'valid_union' wants a header union, found a {value.kind}")
        unions, get = self.model.unions, value.get

        def valid(packet: Packet, args: Arguments) -> bool:
            name = get(packet, args)
            return name is not None and any(packet.headers[h.name].valid for h in unions[name].headers)

        return Value(TRUTH, valid)

    def _stack_of(self, node: JsonNode) -> str:
        value = self.value(node["right"])
        if value.kind not in (STACK, UNION_STACK):
            node.fail(f"expected a header stack, found a {value.kind}")
        return self._inner(node["right"])["value"].str()

    def _op_last_stack_index(self, node: JsonNode) -> Value:
        name = self._stack_of(node)
        return Value(NUMBER, lambda p, a: (p.next_index[name] - 1) % (1 << 64))

    def _op_size_stack(self, node: JsonNode) -> Value:
        name = self._stack_of(node)
        return Value(NUMBER, lambda p, a: p.next_index[name])

    def _unary(self, op: str, value: Value, node: JsonNode) -> Value:
        if op == "not":
            truth = self._as_truth(value, node)
            return Value(TRUTH, lambda p, a: not truth(p, a))
        if op == "d2b":
            return Value(TRUTH, self._as_truth(value, node))
        number = self._as_number(value, node)
        if op in ("b2d", "+"):
            return Value(NUMBER, number)
        if op == "~":
            return Value(NUMBER, lambda p, a: ~number(p, a))
        if op == "-":
            return Value(NUMBER, lambda p, a: -number(p, a))
        raise node["op"].error(f"'{op}' is not a unary operator")

    def _binary(self, op: str, left: Value, right: Value, node: JsonNode) -> Value:
        if op in ("==", "!="):
            equal = self._equal(left, right, node)
            return Value(TRUTH, equal if op == "==" else lambda p, a: not equal(p, a))
        if op in ("and", "or"):
            one, other = self._as_truth(left, node), self._as_truth(right, node)
            if op == "and":
                return Value(TRUTH, lambda p, a: one(p, a) and other(p, a))
            return Value(TRUTH, lambda p, a: one(p, a) or other(p, a))
        x, y = self._as_number(left, node), self._as_number(right, node)
        if op in _COMPARE:
            compare = _COMPARE[op]
            return Value(TRUTH, lambda p, a: compare(x(p, a), y(p, a)))
        if op in _ARITHMETIC:
            compute = _ARITHMETIC[op]
            return Value(NUMBER, lambda p, a: compute(x(p, a), y(p, a)))
        if op in ("<<", ">>"):
            return Value(NUMBER, self._shift(op, x, y))
        if op in ("/", "%"):
            return Value(NUMBER, self._divide(op, x, y))
        return Value(NUMBER, self._cast(op, x, y, node))

    @staticmethod
    def _shift(op: str, x: Number, y: Number) -> Number:
        def shift(packet: Packet, args: Arguments) -> int:
            value, count = x(packet, args), min(max(y(packet, args), 0), MAX_SHIFT)
            if op == ">>":
                return value >> count
            return 0 if count == MAX_SHIFT else value << count

        return shift

    def _divide(self, op: str, x: Number, y: Number) -> Number:
        state = self.state

        def divide(packet: Packet, args: Arguments) -> int:
            value, by = x(packet, args), y(packet, args)
            if by == 0:
                state.fault("division by zero: the result is 0")
                return 0
            quotient = abs(value) // abs(by) * (1 if (value < 0) == (by < 0) else -1)
            return quotient if op == "/" else value - quotient * by

        return divide

    @staticmethod
    def _cast(op: str, x: Number, y: Number, node: JsonNode) -> Number:
        if op == "two_comp_mod":
            return lambda p, a: wrap(x(p, a), y(p, a), True)
        if op == "usat_cast":
            return lambda p, a: max(0, min(x(p, a), (1 << y(p, a)) - 1))
        if op == "sat_cast":
            return lambda p, a: max(-(1 << (y(p, a) - 1)), min(x(p, a), (1 << (y(p, a) - 1)) - 1))
        raise node["op"].error(f"'{op}' is not an operator")

    def _equal(self, left: Value, right: Value, node: JsonNode) -> Truth:
        a_get, b_get = left.get, right.get
        if TRUTH in (left.kind, right.kind):
            a_get, b_get = self._as_truth(left, node), self._as_truth(right, node)
        elif left.kind != right.kind:
            node.fail(f"cannot compare a {left.kind} with a {right.kind}")
        if left.kind == HEADER:
            return lambda p, a: _same_header(p, a_get(p, a), b_get(p, a))
        if left.kind == UNION:
            unions = self.model.unions

            def same(packet: Packet, args: Arguments) -> bool:
                pairs = zip(unions[a_get(packet, args)].headers, unions[b_get(packet, args)].headers, strict=True)
                return any(_same_header(packet, x.name, y.name) for x, y in pairs)

            return same
        return lambda p, a: bool(a_get(p, a) == b_get(p, a))


def _same_header(packet: Packet, one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    a, b = packet.headers[one], packet.headers[other]
    return a.valid and b.valid and a.fields == b.fields and a.varbit_bits == b.varbit_bits


Hash = Callable[[bytes], int]
_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _words(data: bytes, size: int) -> list[int]:
    padded = data + b"\0" * (-len(data) % size)
    return [int.from_bytes(padded[i : i + size], "big") for i in range(0, len(padded), size)]


def csum16(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total = sum(_words(data, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _xor(size: int) -> Hash:
    def xor(data: bytes) -> int:
        out = 0
        for word in _words(data, size):
            out ^= word
        return out

    return xor


def _identity(data: bytes) -> int:
    """Return the first eight bytes as a number."""
    return int.from_bytes(data[:8], "big")


def _reflect(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


def _crc(crc: Crc) -> Hash:
    """Return the CRC by long division, bit by bit."""
    top, mask = 1 << (crc.width - 1), (1 << crc.width) - 1

    def compute(data: bytes) -> int:
        rest = crc.initial
        for byte in data:
            rest ^= (_reflect(byte, 8) if crc.reflected else byte) << (crc.width - 8)
            for _ in range(8):
                rest = (rest << 1 ^ crc.polynomial if rest & top else rest << 1) & mask
        reflected = crc.reflected if crc.remainder is None else crc.remainder
        return (_reflect(rest, crc.width) if reflected else rest) ^ crc.final_xor

    return compute


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _MASK


def _round(total: int, word: int) -> int:
    return _rotate((total + word * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64(data: bytes) -> int:
    """Return XXH64 with seed 0, after its specification."""
    at = 0
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        total = sum(_rotate(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        total = _P5
    total = (total + len(data)) & _MASK
    while at + 8 <= len(data):
        total = (_rotate(total ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        total = (_rotate(total ^ word, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotate(total ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


HASHES: dict[str, Hash] = {
    "csum16": csum16,
    "cksum16": csum16,
    "xor16": _xor(2),
    "xor32": _xor(4),
    "identity": _identity,
    "xxh64": _xxh64,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
}


def find_hash(name: str) -> Hash | None:
    """Return a hash algorithm by its name in the document; None if it is unknown."""
    if name in HASHES:
        return HASHES[name]
    crc = CRCS.get(name) or custom_crc(name)
    return None if crc is None else _crc(crc)


Calculation = Callable[[Packet], int]
#: Return (value, width), None for what an invalid header leaves out.
Part = Callable[[Packet], "tuple[int, int] | None"]


class CalculationCompiler:
    """Compiles calculations."""

    def __init__(self, model: Model) -> None:
        self.model = model
        #: Of calculations by name, those that a controller changed.
        self.changed: dict[str, Hash] = {}

    def set_crc(self, name: str, crc: Crc) -> None:
        """Change the CRC of a calculation."""
        self.changed[name] = _crc(crc)

    def named(self, node: JsonNode) -> Calculation:
        """Return the calculation whose name is in `node`."""
        return self.make(self.model.find(self.model.calculations, node, "calculation"))

    def make(self, node: JsonNode) -> Calculation:
        """Return the function of an object with `algo` and `input`."""
        algorithm = find_hash(node["algo"].str())
        named = node.get("name")
        name = named.str() if named is not None else ""
        if algorithm is None:
            node["algo"].fail(f"the hash algorithm '{node['algo'].value}' is not supported")
        inputs = list(node["input"].items())
        payload = any(item["type"].value == "payload" for item in inputs)
        parts = [self._part(item) for item in inputs if item["type"].value != "payload"]

        def compute(packet: Packet) -> int:
            value = bits = 0
            for part in parts:
                found = part(packet)
                if found is not None:
                    value, bits = value << found[1] | found[0], bits + found[1]
            pad = -bits % 8
            data = (value << pad).to_bytes((bits + pad) // 8, "big")
            used = self.changed.get(name, algorithm)
            return used(data + packet.payload[: packet.truncate] if payload else data)

        return compute

    def _part(self, item: JsonNode) -> Part:
        kind = item["type"].str()
        if kind == "hexstr":
            width = item["bitwidth"].int(1)
            value = item["value"].hex() & ((1 << width) - 1)
            return lambda packet: (value, width)
        if kind == "header":
            name = self.model.find(self.model.headers, item["value"], "header").name
            return lambda packet: self._whole(packet, name)
        if kind != "field":
            item["type"].fail(f"'{kind}' is not an input of a calculation")
        ref = self.model.field_ref(item["value"])
        header, field = ref.header.name, ref.field

        def part(packet: Packet) -> tuple[int, int] | None:
            state = packet.headers[header]
            if not state.valid:
                return None
            width = state.varbit_bits if field.varbit else field.width
            return state.fields[field.name] & ((1 << width) - 1), width

        return part

    def _whole(self, packet: Packet, name: str) -> tuple[int, int] | None:
        if not packet.headers[name].valid:
            return None
        data = header_bytes(self.model, packet, name)
        return int.from_bytes(data, "big"), 8 * len(data)

    def ipv4(self, header: str) -> Calculation:
        """Return the ones' complement sum of a header with bytes 10 and 11 taken as zero (old P4_14 programs)."""

        def compute(packet: Packet) -> int:
            data = bytearray(header_bytes(self.model, packet, header))
            data[10:12] = b"\0\0"
            return csum16(bytes(data))

        return compute
