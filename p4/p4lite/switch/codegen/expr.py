"""Expressions of BMv2 JSON as typed trees, with the interval of values each can take.

BMv2 computes with integers of any size. The interval of every node, known from the widths of fields and the
operators above them, tells which C integer holds it exactly; `cexpr.py` turns the tree into C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from p4lite.switch.bmv2.model import MAX_DEPTH, FieldRef, FieldType, Stack
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.program.facts import Facts, ParamFacts

# A left shift by a run-time amount beyond this counts as this many bits when its exact value is needed
# (it is compared, divided or shifted right without a mask in between).
MAX_SHIFT = 4096
MAX_BITS = 1 << 17

DATA, BOOL, HEADER, STACK, UNION, UNION_STACK = "data", "bool", "header", "header stack", "header union", "union stack"
VARBIT = "variable-length field"

ARITHMETIC = {"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"}
COMPARISON = {"<", "<=", ">", ">="}
SATURATING = {"two_comp_mod", "usat_cast", "sat_cast"}


@dataclass
class BoundedExpr:
    """A node: `op` with `args`; for data the inclusive interval `lo`..`hi`. `ref` holds what a leaf refers to."""

    kind: str
    op: str
    args: list[BoundedExpr] = field(default_factory=list)
    lo: int = 0
    hi: int = 1
    ref: Any = None
    number: int = 0


@dataclass
class ExprScope:
    """What an expression may refer to besides fields: run-time data of an action, or the packet in a parser."""

    params: Sequence[ParamFacts] = ()
    parser: bool = False
    place: Any = None  # of a header with a length expression: its HeaderPlace, "local" then means its fields


def const(value: int) -> BoundedExpr:
    return BoundedExpr(DATA, "const", lo=value, hi=value, number=value)


def field_expr(ref: FieldRef, node: JsonNode) -> BoundedExpr:
    """Return a fixed field of a fixed header."""
    f = ref.field
    if f.varbit:
        node.fail(f"the variable-length field '{ref.header.name}.{f.name}' cannot be read as a number")
    lo, hi = (-(1 << (f.width - 1)), (1 << (f.width - 1)) - 1) if f.signed else (0, (1 << f.width) - 1)
    return BoundedExpr(DATA, "field", lo=lo, hi=hi, ref=ref)


def _field_interval(f: FieldType) -> tuple[int, int]:
    return (-(1 << (f.width - 1)), (1 << (f.width - 1)) - 1) if f.signed else (0, (1 << f.width) - 1)


def _bits(lo: int, hi: int) -> int:
    return max((~lo if lo < 0 else lo).bit_length(), (~hi if hi < 0 else hi).bit_length())


def interval(op: str, a: BoundedExpr, b: BoundedExpr) -> tuple[int, int]:
    """Return values of `a op b`."""
    if op == "+":
        return a.lo + b.lo, a.hi + b.hi
    if op == "-":
        return a.lo - b.hi, a.hi - b.lo
    if op == "*":
        products = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return min(products), max(products)
    if op in ("<<", ">>"):
        low, high = (min(max(x, 0), MAX_SHIFT) for x in (b.lo, b.hi))
        if b.lo < 0:
            high = MAX_SHIFT
        ends = [x << s if op == "<<" else x >> s for x in (a.lo, a.hi) for s in (low, high)]
        if op == "<<":
            ends.append(0)  # an amount beyond the C width shifts everything out
        return min(ends), max(ends)
    negative = a.lo < 0 or b.lo < 0
    if op == "/":
        size = max(abs(a.lo), abs(a.hi))
        return (-size, size) if negative else (0, a.hi)
    if op == "%":
        size = max(abs(a.lo), abs(a.hi))
        return (-size, size) if negative else (0, max(min(a.hi, b.hi - 1), 0))
    size = max(_bits(a.lo, a.hi), _bits(b.lo, b.hi))
    if op == "&" and not (a.lo < 0 and b.lo < 0):
        return 0, min(x.hi for x in (a, b) if x.lo >= 0)
    return (-(1 << size) if negative else 0), (1 << size) - 1


class ExprBuilder:
    """Turns JSON expressions into `BoundedExpr`; errors name the place."""

    def __init__(self, facts: Facts):
        self.facts = facts
        self.model = facts.model

    def data(self, node: JsonNode, scope: ExprScope | None = None) -> BoundedExpr:
        e = self.build(node, scope)
        if e.kind == BOOL:
            # p4c's own JSON never does this, but old compilers did, and BMv2 then reads a number
            return BoundedExpr(DATA, "b2d", [e], 0, 1)
        if e.kind != DATA:
            node.fail(f"expected a number, found a {e.kind}")
        return e

    def boolean(self, node: JsonNode, scope: ExprScope | None = None) -> BoundedExpr:
        e = self.build(node, scope)
        if e.kind == DATA:
            return BoundedExpr(BOOL, "d2b", [e])
        if e.kind != BOOL:
            node.fail(f"expected a boolean, found a {e.kind}")
        return e

    def build(self, node: JsonNode, scope: ExprScope | None = None, depth: int = 0) -> BoundedExpr:  # noqa: C901 - a branch per operator
        scope = scope or ExprScope()
        if depth > MAX_DEPTH:
            node.fail(f"the expression is nested more than {MAX_DEPTH} deep")
        kind = node["type"].str()
        value = node["value"]
        if kind == "expression":
            # p4c wraps some expressions twice
            if isinstance(value.value, dict) and "op" not in value.value:
                return self.build(value, scope, depth + 1)
            return self._operation(value, scope, depth + 1)
        if kind == "field":
            ref = self.model.field_ref(value)
            return BoundedExpr(VARBIT, "varbit", ref=ref) if ref.field.varbit else field_expr(ref, node)
        if kind == "hexstr":
            return const(value.hex())
        if kind == "bool":
            return BoundedExpr(BOOL, "bool", number=int(value.bool()))
        if kind in ("local", "runtime_data"):
            index = value.int(0)
            if scope.place is not None:
                return self._own_field(scope.place, index, value)
            if index >= len(scope.params):
                value.fail(f"there is no parameter {index}, the action has {len(scope.params)}")
            return BoundedExpr(
                DATA, "local", lo=0, hi=(1 << scope.params[index].width) - 1, number=index, ref=scope.params
            )
        if kind == "header":
            return BoundedExpr(HEADER, "header", ref=self.model.find(self.model.headers, value, "header"))
        if kind == "header_stack":
            return BoundedExpr(STACK, "stack", ref=self.model.find(self.model.stacks, value, "header stack"))
        if kind == "header_union":
            return BoundedExpr(UNION, "union", ref=self.model.find(self.model.unions, value, "header union"))
        if kind == "header_union_stack":
            stack = self.model.find(self.model.union_stacks, value, "header union stack")
            return BoundedExpr(UNION_STACK, "union_stack", ref=stack)
        if kind == "stack_field":
            s = self.model.find(self.model.stacks, value[0], "header stack")
            return self._header_field(BoundedExpr(HEADER, "last", ref=s), self.model.type_field(s.type, value[1]), node)
        if kind == "union_stack_field":
            return self._union_stack_field(value, node)
        if kind == "register":
            array = self.model.find(self.facts.registers, value[0], "register array")
            index_expr = self.data(value[1], scope)
            return BoundedExpr(DATA, "register", [index_expr], 0, (1 << array.width) - 1, array)
        if kind == "lookahead" and scope.parser:
            offset, width = value[0].int(0, MAX_BITS), value[1].int(1, MAX_BITS)
            return BoundedExpr(DATA, "lookahead", lo=0, hi=(1 << width) - 1, ref=(offset, width))
        raise node["type"].error(f"'{kind}' is not a type of an expression that is known here")

    def _own_field(self, place: Any, index: int, value: JsonNode) -> BoundedExpr:
        if index >= len(place.type.fields) or place.type.fields[index].varbit:
            value.fail(f"header type '{place.type.name}' has no field {index} of fixed width")
        f = place.type.fields[index]
        lo, hi = _field_interval(f)
        return BoundedExpr(DATA, "place_field", [], lo, hi, (place, f))

    def _header_field(self, header: BoundedExpr, f: FieldType, node: JsonNode) -> BoundedExpr:
        if f.index >= 0 and f.varbit:
            node.fail(f"the variable-length field '{f.name}' cannot be read as a number")
        lo, hi = _field_interval(f)
        return BoundedExpr(DATA, "header_field", [header], lo, hi, f)

    def _union_stack_field(self, value: JsonNode, node: JsonNode) -> BoundedExpr:
        stack, member = self.model.union_member(value)
        type_ = stack.unions[0].headers[member].type
        header = BoundedExpr(HEADER, "member", [BoundedExpr(UNION, "last_union", ref=stack)], ref=type_, number=member)
        return self._header_field(header, self.model.type_field(type_, value[2]), node)

    def header_type(self, e: BoundedExpr, node: JsonNode) -> Any:
        """Return the HeaderType of a header expression."""
        if e.kind != HEADER:
            node.fail(f"expected a header, found a {e.kind}")
        if e.op in ("header", "last"):
            return e.ref.type
        if e.op == "element":
            return e.ref.type
        return e.ref

    def _operation(self, value: JsonNode, scope: ExprScope, depth: int) -> BoundedExpr:
        op = value["op"].str()
        if op == "?":
            cond = self.build(value["cond"], scope, depth)
            if cond.kind == DATA:
                cond = BoundedExpr(BOOL, "d2b", [cond])
            left, right = self.build(value["left"], scope, depth), self.build(value["right"], scope, depth)
            if left.kind != right.kind or left.kind not in (DATA, BOOL):
                value.fail(f"the branches of '?' are a {left.kind} and a {right.kind}")
            return BoundedExpr(left.kind, "?", [cond, left, right], min(left.lo, right.lo), max(left.hi, right.hi))
        if op in ("access_field", "access_union_header"):
            left = self.build(value["left"], scope, depth)
            return self._access(op, left, value)
        right = self.build(value["right"], scope, depth)
        if value.get("left") is None:
            return self._unary(op, right, value)
        left = self.build(value["left"], scope, depth)
        return self._binary(op, left, right, value)

    def _access(self, op: str, left: BoundedExpr, value: JsonNode) -> BoundedExpr:
        index = value["right"].int(0)
        if op == "access_field":
            type_ = self.header_type(left, value["left"])
            if index == len(type_.fields):  # the hidden $valid$ field comes last
                return BoundedExpr(DATA, "b2d", [BoundedExpr(BOOL, "valid", [left])], 0, 1)
            if index > len(type_.fields):
                value["right"].fail(f"header type '{type_.name}' has only {len(type_.fields)} fields")
            return self._header_field(left, type_.fields[index], value)
        if left.kind != UNION:
            value["left"].fail(f"expected a header union, found a {left.kind}")
        headers = left.ref.headers if left.op == "union" else left.ref.unions[0].headers
        if index >= len(headers):
            value["right"].fail(f"the union has only {len(headers)} members")
        return BoundedExpr(HEADER, "member", [left], ref=headers[index].type, number=index)

    def _unary(self, op: str, e: BoundedExpr, value: JsonNode) -> BoundedExpr:
        if op in ("valid", "valid_union"):
            wanted = HEADER if op == "valid" else UNION
            if e.kind != wanted:
                value.fail(f"'{op}' wants a {wanted}, found a {e.kind}")
            return BoundedExpr(BOOL, op, [e])
        if op in ("last_stack_index", "size_stack"):
            if e.kind != STACK:
                value.fail(f"'{op}' wants a header stack, found a {e.kind}")
            s: Stack = e.ref
            return BoundedExpr(DATA, op, [e], 0, 2**64 - 1 if op == "last_stack_index" else len(s.headers), s)
        if op == "not":
            return BoundedExpr(BOOL, "not", [self._bool(e, value)])
        if op == "b2d":
            return e if e.kind == DATA else BoundedExpr(DATA, "b2d", [self._bool(e, value)], 0, 1)
        d = self._data(e, value)
        if op == "d2b":
            return BoundedExpr(BOOL, "d2b", [d])
        if op == "~":
            return BoundedExpr(DATA, "~", [d], ~d.hi, ~d.lo)
        if op in "+-":
            return self._binary(op, const(0), d, value)
        raise value["op"].error(f"'{op}' is not a unary operator")

    def _bool(self, e: BoundedExpr, value: JsonNode) -> BoundedExpr:
        if e.kind == DATA:
            return BoundedExpr(BOOL, "d2b", [e])
        if e.kind != BOOL:
            value.fail(f"expected a boolean, found a {e.kind}")
        return e

    def _data(self, e: BoundedExpr, value: JsonNode) -> BoundedExpr:
        if e.kind == BOOL:
            return BoundedExpr(DATA, "b2d", [e], 0, 1)
        if e.kind != DATA:
            value.fail(f"expected a number, found a {e.kind}")
        return e

    def _binary(self, op: str, a: BoundedExpr, b: BoundedExpr, value: JsonNode) -> BoundedExpr:
        if op in ("==", "!="):
            if BOOL in (a.kind, b.kind) and a.kind != b.kind:
                a, b = self._bool(a, value), self._bool(b, value)
            if a.kind != b.kind or a.kind not in (DATA, BOOL, HEADER, UNION, VARBIT):
                value.fail(f"cannot compare a {a.kind} with a {b.kind}")
            return BoundedExpr(BOOL, op, [a, b])
        if op in ("and", "or"):
            return BoundedExpr(BOOL, op, [self._bool(a, value), self._bool(b, value)])
        if op in ("dereference_header_stack", "dereference_stack"):
            if a.kind != STACK:
                value["left"].fail(f"expected a header stack, found a {a.kind}")
            return BoundedExpr(HEADER, "element", [self._data(b, value)], ref=a.ref)
        if op == "dereference_union_stack":
            if a.kind != UNION_STACK:
                value["left"].fail(f"expected a header union stack, found a {a.kind}")
            return BoundedExpr(UNION, "element_union", [self._data(b, value)], ref=a.ref)
        a, b = self._data(a, value), self._data(b, value)
        if op in COMPARISON:
            return BoundedExpr(BOOL, op, [a, b])
        if op in SATURATING:
            if b.op != "const" or not 1 <= b.number <= MAX_BITS:
                value["right"].fail(f"the width of '{op}' must be a constant")
            return cast(op, a, b.number)
        if op not in ARITHMETIC:
            value["op"].fail(f"'{op}' is not an operator")
        lo, hi = interval(op, a, b)
        if _bits(lo, hi) > MAX_BITS:
            value.fail(f"the result of '{op}' may need more than {MAX_BITS} bits")
        return BoundedExpr(DATA, op, [a, b], lo, hi)


def lookaheads(e: BoundedExpr) -> list[tuple[int, int]]:
    """Return (offset, width) of every lookahead in an expression."""
    own = [e.ref] if e.op == "lookahead" else []
    return own + [x for arg in e.args for x in lookaheads(arg)]


def cast(op: str, e: BoundedExpr, width: int) -> BoundedExpr:
    """Return the cast (two_comp_mod, usat_cast or sat_cast) of `e` to `width` bits."""
    lo, hi = (0, (1 << width) - 1) if op == "usat_cast" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    if lo <= e.lo and e.hi <= hi:
        return e
    if op == "two_comp_mod":
        return BoundedExpr(DATA, op, [e], lo, hi, number=width)
    return BoundedExpr(DATA, op, [e], min(max(e.lo, lo), hi), max(min(e.hi, hi), lo), number=width)
