"""Exact arithmetic of `bit<W>` and `int<W>` in terms of BMv2's unbounded integers.

Every function takes operands that are exact (`lir` module docstring) and returns an exact expression: masks and
`two_comp_mod` are put in where a result could leave its type. Constants are folded.
"""

from __future__ import annotations

from p4lite.compiler.midend.lir import (
    Arg,
    Bool,
    Const,
    ElemField,
    Expr,
    Field,
    LastField,
    LoweredConditional,
    Op,
    RuntimeParam,
    Valid,
    is_bool,
)

MAX_PLAIN_SHIFT_BITS = 8
"""Shift amounts of at most this width are given to BMv2 as they are; wider ones are guarded."""


def mask(width: int) -> int:
    """Return `width` one bits."""
    return (1 << width) - 1


def wrap(value: int, width: int, signed: bool) -> int:
    """Return `value` modulo 2^width, in the range of the type."""
    value &= mask(width)
    if signed and value >> (width - 1):
        value -= 1 << width
    return value


def const(value: int, width: int, signed: bool = False) -> Const:
    """Return a constant of the type, wrapped."""
    return Const(wrap(value, width, signed) if width else 0, width)


def fit(expr: Expr, width: int, signed: bool) -> Expr:
    """Bring any integer into the range of the type."""
    if isinstance(expr, Const):
        return const(expr.value, width, signed)
    if signed:
        return Op("two_comp_mod", expr, Const(width, 8))
    return Op("&", expr, Const(mask(width), width))


def binary(op: str, left: Expr, right: Expr, width: int, signed: bool) -> Expr:
    """Return `left op right` for + - * / % & | ^ |+| |-| on operands of one type."""
    if isinstance(left, Const) and isinstance(right, Const):
        folded = _fold(op, left.value, right.value, width, signed)
        if folded is not None:
            return folded
    simple = _identity(op, left, right, width, signed)
    if simple is not None:
        return simple
    if op in ("|+|", "|-|"):
        return Op("sat_cast" if signed else "usat_cast", Op(op[1], left, right), Const(width, 8))
    if op in ("/", "%"):
        result: Expr = Op(op, left, right)
        if isinstance(right, Const):
            return result
        return LoweredConditional(Op("==", right, Const(0, width)), Const(0, width), result)
    if op in ("&", "|", "^"):
        return Op(op, left, right)
    return fit(Op(op, left, right), width, signed)


def _fold(op: str, a: int, b: int, width: int, signed: bool) -> Const | None:
    if op in ("|+|", "|-|"):
        raw = a + b if op == "|+|" else a - b
        low, high = (-(1 << (width - 1)), mask(width - 1)) if signed else (0, mask(width))
        return Const(max(low, min(high, raw)), width)
    if op in ("/", "%"):
        if b == 0:
            return None
        return Const(a // b if op == "/" else a % b, width)
    raw = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[op]
    return const(raw, width, signed)


def _identity(op: str, left: Expr, right: Expr, width: int, signed: bool) -> Expr | None:
    """Simplify neutral and absorbing constants, which masks and inlined parameters often leave; else return None."""
    ones = -1 if signed else mask(width)
    for this, other in ((left, right), (right, left)):
        if not isinstance(this, Const):
            continue
        value, on_right = this.value, this is right
        if value == 0:
            if op in ("+", "|", "^", "|+|") or (op in ("-", "|-|") and on_right):
                return other
            if op in ("&", "*"):
                return Const(0, width)
        if value == ones:
            if op == "&":
                return other
            if op == "|":
                return Const(ones, width)
        if value == 1 and (op == "*" or (op == "/" and on_right)):
            return other
    return None


def shift_left(left: Expr, amount: Expr, amount_width: int, width: int, signed: bool) -> Expr:
    """Return `left << amount`; an amount of `width` or more gives 0."""
    if isinstance(amount, Const):
        if amount.value >= width:
            return Const(0, width)
        if amount.value == 0:
            return left
        if isinstance(left, Const):
            return const(left.value << amount.value, width, signed)
        return fit(Op("<<", left, Const(amount.value, 8)), width, signed)
    shifted = fit(Op("<<", left, amount), width, signed)
    if amount_width <= MAX_PLAIN_SHIFT_BITS:
        return shifted
    return LoweredConditional(Op("<", amount, Const(width, amount_width)), shifted, Const(0, width))


def shift_right(left: Expr, amount: Expr, amount_width: int, width: int, signed: bool) -> Expr:
    """Return `left >> amount`: logical for `bit`, arithmetic for `int`."""
    if isinstance(amount, Const):
        count = min(amount.value, width)
        if count == 0:
            return left
        if isinstance(left, Const):
            return const(left.value >> count, width, signed)
        if count == width and not signed:
            return Const(0, width)
        return Op(">>", left, Const(count, 8))
    shifted = Op(">>", left, amount)
    if amount_width <= MAX_PLAIN_SHIFT_BITS:
        return shifted
    beyond: Expr = Op(">>", left, Const(width, 8)) if signed else Const(0, width)
    return LoweredConditional(Op("<", amount, Const(width, amount_width)), shifted, beyond)


def negate(expr: Expr, width: int, signed: bool) -> Expr:
    """Return `-expr`."""
    if isinstance(expr, Const):
        return const(-expr.value, width, signed)
    return fit(Op("-", Const(0, width), expr), width, signed)


def complement(expr: Expr, width: int, signed: bool) -> Expr:
    """Return `~expr`."""
    if isinstance(expr, Const):
        return const(~expr.value, width, signed)
    return fit(Op("~", None, expr), width, signed)


def cast(expr: Expr, width: int, signed: bool, to_width: int, to_signed: bool) -> Expr:
    """Return `expr` cast to `bit<to_width>` or `int<to_width>`."""
    if isinstance(expr, Const):
        return const(expr.value, to_width, to_signed)
    if signed == to_signed:
        return expr if to_width >= width else fit(expr, to_width, to_signed)
    if to_signed and to_width > width:
        return expr
    return fit(expr, to_width, to_signed)


def slice_bits(expr: Expr, high: int, low: int, width: int, signed: bool) -> Expr:
    """Return `expr[high:low]`, unsigned; `width` and `signed` are those of `expr`."""
    bits = high - low + 1
    if isinstance(expr, Const):
        return Const((expr.value >> low) & mask(bits), bits)
    if bits == width:
        return cast(expr, width, signed, width, False)
    shifted: Expr = Op(">>", expr, Const(low, 8)) if low else expr
    if high == width - 1 and not signed:
        return shifted
    return Op("&", shifted, Const(mask(bits), bits))


def set_slice(old: Expr, high: int, low: int, value: Expr, width: int, signed: bool) -> Expr:
    """Return `old` with bits `high`..`low` replaced by `value` (unsigned, of that width)."""
    bits = high - low + 1
    if bits == width:
        return cast(value, width, False, width, signed)
    keep = mask(width) ^ (mask(bits) << low)
    kept: Expr = Op("&", old, Const(keep, width)) if not isinstance(old, Const) else Const(old.value & keep, width)
    moved = shift_left(value, Const(low, 8), 8, width, False) if low else value
    joined = binary("|", kept, moved, width, False)
    return fit(joined, width, True) if signed else joined


def concat(left: Expr, right: Expr, right_width: int, right_signed: bool, width: int, signed: bool) -> Expr:
    """Return `left ++ right`, with the signedness of `left`."""
    low = cast(right, right_width, right_signed, right_width, False)
    if isinstance(left, Const) and isinstance(low, Const):
        return const((left.value << right_width) | low.value, width, signed)
    high: Expr = (
        Const(left.value << right_width, width) if isinstance(left, Const) else Op("<<", left, Const(right_width, 8))
    )
    return Op("|", high, low)


_COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(op: str, left: Expr, right: Expr) -> Expr:
    """Return a comparison; both sides data, or both boolean (then == and != only)."""
    if isinstance(left, Const) and isinstance(right, Const):
        return Bool(_COMPARE[op](left.value, right.value))
    if left == right:
        return Bool(op in ("==", "<=", ">="))
    if is_bool(left):
        for this, other in ((left, right), (right, left)):
            if isinstance(this, Bool):
                return other if this.value == (op == "==") else logical_not(other)
    return Op(op, left, right)


def logical_and(left: Expr, right: Expr) -> Expr:
    """Return `left && right`, which evaluates a right side that could fault only if the left side is true."""
    if isinstance(left, Bool):
        return right if left.value else left
    if isinstance(right, Bool) and right.value:
        return left
    if _may_fault(right):
        return LoweredConditional(left, right, Bool(False))
    return Op("and", left, right)


def logical_or(left: Expr, right: Expr) -> Expr:
    """Return `left || right`, which evaluates a right side that could fault only if the left side is false."""
    if isinstance(left, Bool):
        return left if left.value else right
    if isinstance(right, Bool) and not right.value:
        return left
    if _may_fault(right):
        return LoweredConditional(left, Bool(True), right)
    return Op("or", left, right)


def logical_not(expr: Expr) -> Expr:
    """Return `!expr`."""
    if isinstance(expr, Bool):
        return Bool(not expr.value)
    if isinstance(expr, Op) and expr.op == "not":
        return expr.right
    return Op("not", None, expr)


def choose(cond: Expr, then: Expr, other: Expr) -> Expr:
    """Return `cond ? then : other`."""
    if isinstance(cond, Bool):
        return then if cond.value else other
    if then == other:
        return then
    return LoweredConditional(cond, then, other)


def to_bool(data: Expr) -> Expr:
    """Return a data value (0 or 1) as boolean."""
    if isinstance(data, Const):
        return Bool(data.value != 0)
    if isinstance(data, Op) and data.op == "b2d":
        return data.right
    return Op("d2b", None, data)


def to_data(cond: Expr) -> Expr:
    """Return a boolean as 1-bit data."""
    if isinstance(cond, Bool):
        return Const(int(cond.value), 1)
    if (
        isinstance(cond, Op)
        and cond.op == "d2b"
        and isinstance(cond.right, (Field, RuntimeParam, ElemField, LastField))
    ):
        return cond.right
    return Op("b2d", None, cond)


def _may_fault(expr: Arg) -> bool:
    """Return whether an expression reads a stack element by a run-time index, which BMv2 does not bound."""
    if isinstance(expr, ElemField):
        return True
    if isinstance(expr, Op):
        return (expr.left is not None and _may_fault(expr.left)) or _may_fault(expr.right)
    if isinstance(expr, LoweredConditional):
        return any(_may_fault(e) for e in (expr.cond, expr.then, expr.other))
    return isinstance(expr, Valid) and not hasattr(expr.target, "name")
