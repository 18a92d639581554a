"""Values of P4 expressions while a program is lowered: data, booleans, and places of composite types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from p4lite.compiler import types as t
from p4lite.compiler.midend.lir import (
    Arg,
    Const,
    ElemField,
    ElemRef,
    Expr,
    Field,
    HeaderRef,
    LastField,
    SameHeader,
    Valid,
    children,
)


@dataclass(frozen=True)
class Data:
    """`bit<W>`, `int<W>`, `error`, an enum; assignable when `expr` is a Field or ElemField."""

    expr: Expr
    width: int
    signed: bool = False


@dataclass(frozen=True)
class Boolean:
    """`bool`; `place` is the 1-bit field it was read from, when there is one."""

    expr: Expr
    place: Field | ElemField | None = None


@dataclass(frozen=True)
class IntConst:
    """A compile-time `int`."""

    value: int


@dataclass(frozen=True)
class TextConst:
    """A compile-time `string`."""

    value: str


@dataclass(frozen=True)
class Varbit:
    """A varbit field."""

    field: Field


@dataclass(frozen=True)
class StoredHeader:
    """A header in storage."""

    ref: HeaderRef | ElemRef
    type: t.HeaderType


@dataclass(frozen=True)
class HeaderValue:
    """A header expression; `fields` is None for an invalid header."""

    type: t.HeaderType
    fields: dict[str, Value] | None


@dataclass(frozen=True)
class Struct:
    """A struct (`names` of its fields) or a tuple or array (fields "0", "1", ...)."""

    fields: dict[str, Value]


@dataclass(frozen=True)
class StoredStack:
    """A header stack; `name[i]` are its elements."""

    name: str
    type: t.StackType
    element: t.HeaderType


@dataclass(frozen=True)
class HeaderUnion:
    """A header union in storage; `name.member` are its members."""

    name: str
    type: t.UnionType


@dataclass(frozen=True)
class UnionInvalid:
    """An invalid header union (`{#}`)."""

    type: t.UnionType


@dataclass(frozen=True)
class StoredUnionStack:
    """A stack of header unions."""

    name: str
    type: t.StackType
    element: t.UnionType


@dataclass(frozen=True)
class NextElement:
    """`stack.next`, only for extract."""

    stack: StoredStack | StoredUnionStack
    member: str | None = None


@dataclass(frozen=True)
class SliceOf:
    """`base[high:low]` as a destination."""

    base: Data
    high: int
    low: int


@dataclass(frozen=True)
class PlusSliceOf:
    """`base[low+:width]` as a destination."""

    base: Data
    low: Expr
    low_width: int
    width: int


@dataclass(frozen=True)
class Object:
    """An extern, parser or control instance, or a packet: something that is not data."""

    what: object


@dataclass(frozen=True)
class Nothing:
    """The destination `_`."""


Value: TypeAlias = (
    Data
    | Boolean
    | IntConst
    | TextConst
    | Varbit
    | StoredHeader
    | HeaderValue
    | Struct
    | StoredStack
    | HeaderUnion
    | UnionInvalid
    | StoredUnionStack
    | NextElement
    | SliceOf
    | PlusSliceOf
    | Object
    | Nothing
)

ENUM_WIDTH = 32
"""Enums without representation and `error` are 32-bit data."""


def _expr_roots(expr: Arg) -> Iterator[str]:
    if isinstance(expr, Field):
        yield f"{expr.header}:{expr.name}"
    elif isinstance(expr, (ElemField, LastField)):
        yield from _names(expr.stack)
        if isinstance(expr, ElemField):
            yield from _expr_roots(expr.index)
    elif isinstance(expr, ElemRef):
        yield from _names(expr.stack)
        yield from _expr_roots(expr.index)
    elif isinstance(expr, Valid):
        yield from _expr_roots(expr.target)
    elif isinstance(expr, SameHeader):
        yield from _expr_roots(expr.left)
        yield from _expr_roots(expr.right)
    elif hasattr(expr, "name"):
        yield from _names(expr.name)
    elif hasattr(expr, "stack"):
        yield from _names(expr.stack)
    else:
        for child in children(expr):
            yield from _expr_roots(child)


def _names(name: str) -> Iterator[str]:
    yield name


def roots(value: Value) -> set[str]:
    """Return the storage a value reads: names of headers, stacks, unions, and `header:field`."""
    if isinstance(value, (Data, Boolean)):
        return set(_expr_roots(value.expr))
    if isinstance(value, Varbit):
        return {value.field.header}
    if isinstance(value, StoredHeader):
        return set(_expr_roots(value.ref))
    if isinstance(value, HeaderValue):
        return set().union(*(roots(v) for v in (value.fields or {}).values()))
    if isinstance(value, Struct):
        return set().union(*(roots(v) for v in value.fields.values()))
    if isinstance(value, (StoredStack, HeaderUnion, StoredUnionStack)):
        return {value.name}
    if isinstance(value, NextElement):
        return {value.stack.name}
    if isinstance(value, SliceOf):
        return roots(value.base)
    if isinstance(value, PlusSliceOf):
        return roots(value.base) | set(_expr_roots(value.low))
    return set()


def may_overlap(a: set[str], b: set[str]) -> bool:
    """Return whether storage named in `a` may be part of storage named in `b`, or the other way round.

    `stack[0]` is part of `stack`, `union.member` of `union`, `header:field` of `header`.
    """
    return any(x == y or _inside(x, y) or _inside(y, x) or _in_one_union(x, y) for x in a for y in b)


def _inside(part: str, whole: str) -> bool:
    return part.startswith(whole) and len(part) > len(whole) and part[len(whole)] in "[.:"


def _in_one_union(x: str, y: str) -> bool:
    """Return whether both are members of one union: making one valid invalidates the other."""
    if ":" in x and ":" in y:
        return False
    x, y = x.partition(":")[0], y.partition(":")[0]
    return "." in x and "." in y and x.rpartition(".")[0] == y.rpartition(".")[0]


def as_const(value: Value) -> int | None:
    """Return the integer a value is at compile time, or None."""
    if isinstance(value, IntConst):
        return value.value
    if isinstance(value, Data) and isinstance(value.expr, Const):
        return value.expr.value
    return None
