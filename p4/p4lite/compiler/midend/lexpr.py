"""Expressions over flat storage, as BMv2 evaluates them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Const:
    """An integer; `width` only pads its hexadecimal form."""

    value: int
    width: int = 32


@dataclass(frozen=True, slots=True)
class Bool:
    """A boolean constant."""

    value: bool


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header or metadata instance; booleans are 1-bit data."""

    header: str
    name: str
    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ElemField:
    """A field of a stack element with a run-time index."""

    stack: str
    index: Expr
    offset: int
    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class LastField:
    """A field of the last valid element of a stack."""

    stack: str
    name: str
    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeParam:
    """Run-time data of an action."""

    index: int
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """A BMv2 expression operator; `left` is None for unary ones."""

    op: str
    left: Expr | None
    right: Expr


@dataclass(frozen=True, slots=True)
class LoweredConditional:
    """`cond ? then : other`; only the chosen side is evaluated."""

    cond: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Bits at an offset from the parser's cursor; right side of a parser assignment only."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class LastIndex:
    """`stack.lastIndex`."""

    stack: str


@dataclass(frozen=True, slots=True)
class StackSize:
    """The number of elements that a stack holds, as `next` counts them."""

    stack: str


@dataclass(frozen=True, slots=True)
class Valid:
    """`isValid()` of a header, a stack element or a header union; a boolean."""

    target: HeaderRef | ElemRef | UnionRef


@dataclass(frozen=True, slots=True)
class SameHeader:
    """Two valid headers with equal fields (also varbit ones); a boolean."""

    left: HeaderRef | ElemRef
    right: HeaderRef | ElemRef


@dataclass(frozen=True, slots=True)
class HeaderRef:
    """A header instance."""

    name: str


@dataclass(frozen=True, slots=True)
class ElemRef:
    """A stack element with a run-time index."""

    stack: str
    index: Expr


@dataclass(frozen=True, slots=True)
class StackRef:
    """A header stack."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionRef:
    """A header union."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionStackRef:
    """A stack of header unions."""

    name: str


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A named object as an argument: `register_array`, `counter_array`, `meter_array`, `calculation`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string argument."""

    value: str


@dataclass(frozen=True, slots=True)
class Vector:
    """Several values in the place of one argument: those of a `log_msg`, or (`field_list`) the data of a hash."""

    items: tuple[Expr, ...]
    kind: str = "parameters_vector"


Expr: TypeAlias = (
    Const
    | Bool
    | Field
    | ElemField
    | LastField
    | RuntimeParam
    | Op
    | LoweredConditional
    | Lookahead
    | LastIndex
    | StackSize
    | Valid
    | SameHeader
)
Ref: TypeAlias = HeaderRef | ElemRef | StackRef | UnionRef | UnionStackRef
Arg: TypeAlias = Expr | Ref | ObjectRef | Text | Vector

_BOOL_OPS = frozenset({"==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "valid", "d2b"})


def is_bool(expr: Arg) -> bool:
    """Return whether BMv2 evaluates the expression to a boolean, not to data."""
    if isinstance(expr, Op):
        return expr.op in _BOOL_OPS
    if isinstance(expr, LoweredConditional):
        return is_bool(expr.then)
    return isinstance(expr, (Bool, Valid, SameHeader))


def children(expr: Arg) -> Iterator[Arg]:
    """Yield the direct operands of an expression."""
    if isinstance(expr, Op):
        if expr.left is not None:
            yield expr.left
        yield expr.right
    elif isinstance(expr, LoweredConditional):
        yield from (expr.cond, expr.then, expr.other)
    elif isinstance(expr, (ElemField, ElemRef)):
        yield expr.index
    elif isinstance(expr, Valid):
        yield expr.target
    elif isinstance(expr, SameHeader):
        yield from (expr.left, expr.right)
    elif isinstance(expr, Vector):
        yield from expr.items
