"""An evaluator of P4 expressions over vectors of bits, independent of the compiler's arithmetic.

A number of width W is a list of W bools, least significant first. Addition is a ripple of full adders, multiplication
is shift and add, division is by hand; nothing here uses Python's integer arithmetic on values.
"""

from __future__ import annotations

from dataclasses import dataclass

Bits = list[bool]


@dataclass(frozen=True)
class Vector:
    """A value of `bit<W>` or `int<W>`."""

    bits: tuple[bool, ...]
    signed: bool

    @property
    def width(self) -> int:
        return len(self.bits)


def from_int(value: int, width: int, signed: bool) -> Vector:
    """Return the vector of a number (the only way in)."""
    return Vector(tuple(value >> i & 1 == 1 for i in range(width)), signed)


def to_int(v: Vector) -> int:
    """Return the number of a vector (the only way out)."""
    total = sum(1 << i for i, b in enumerate(v.bits) if b)
    return total - (1 << v.width) if v.signed and v.bits[-1] else total


def _add(a: tuple[bool, ...] | Bits, b: tuple[bool, ...] | Bits, carry: bool = False) -> tuple[Bits, bool]:
    out: Bits = []
    for x, y in zip(a, b, strict=True):
        out.append(x ^ y ^ carry)
        carry = (x and y) or (carry and (x ^ y))
    return out, carry


def _negate(a: tuple[bool, ...] | Bits) -> Bits:
    return _add([not x for x in a], [False] * len(a), carry=True)[0]


def _extend(v: Vector, width: int) -> Bits:
    fill = v.signed and v.bits[-1]
    return (list(v.bits) + [fill] * width)[:width]


def _less(a: Vector, b: Vector) -> bool:
    if a.signed and a.bits[-1] != b.bits[-1]:
        return a.bits[-1]
    for x, y in zip(reversed(a.bits), reversed(b.bits), strict=True):
        if x != y:
            return y
    return False


def _multiply(a: Vector, b: Vector) -> Bits:
    total: Bits = [False] * a.width
    for i, on in enumerate(b.bits):
        if on:
            total = _add(total, ([False] * i + list(a.bits))[: a.width])[0]
    return total


def _divide(a: Vector, b: Vector) -> tuple[Bits, Bits]:
    quotient: Bits = [False] * a.width
    rest: Bits = [False] * (a.width + 1)
    divisor = [*b.bits, False]
    for i in range(a.width - 1, -1, -1):
        rest = [a.bits[i], *rest[:-1]]
        difference, fits = _add(rest, [not x for x in divisor], carry=True)
        if fits:
            rest, quotient[i] = difference, True
    return quotient, rest[:-1]


def _saturating(op: str, a: Vector, b: Vector) -> Bits:
    wide = a.width + 2
    x, y = _extend(a, wide), _extend(b, wide)
    total = _add(x, y if op == "|+|" else _negate(y))[0]
    if a.signed:
        # In range when all bits from the sign bit up agree.
        if all(bit == total[-1] for bit in total[a.width - 1 :]):
            return total[: a.width]
        return [not total[-1]] * (a.width - 1) + [total[-1]]
    if total[-1]:
        return [False] * a.width
    if any(total[a.width :]):
        return [True] * a.width
    return total[: a.width]


def _shift(op: str, a: Vector, amount: int) -> Bits:
    if op == "<<":
        return ([False] * min(amount, a.width) + list(a.bits))[: a.width]
    fill = a.signed and a.bits[-1]
    return (list(a.bits[amount:]) + [fill] * a.width)[: a.width]


def unary(op: str, a: Vector) -> Vector:
    """`- ~ +`."""
    bits = {"-": _negate(a.bits), "~": [not x for x in a.bits], "+": list(a.bits)}[op]
    return Vector(tuple(bits), a.signed)


def binary(op: str, a: Vector, b: Vector) -> Vector:
    """Return an operator on two numbers of one type; `++` of any two."""
    if op == "++":
        return Vector(b.bits + a.bits, a.signed)
    if op in ("+", "-"):
        bits = _add(a.bits, b.bits if op == "+" else _negate(b.bits))[0]
    elif op == "*":
        bits = _multiply(a, b)
    elif op in ("/", "%"):
        bits = _divide(a, b)[0 if op == "/" else 1]
    elif op in ("|+|", "|-|"):
        bits = _saturating(op, a, b)
    else:
        table = {"&": (False, False, False, True), "|": (False, True, True, True), "^": (False, True, True, False)}[op]
        bits = [table[2 * x + y] for x, y in zip(a.bits, b.bits, strict=True)]
    return Vector(tuple(bits), a.signed)


def shift(op: str, a: Vector, amount: int) -> Vector:
    """`<<` (zeros come in), `>>` (zeros, or copies of the sign, come in)."""
    return Vector(tuple(_shift(op, a, amount)), a.signed)


def compare(op: str, a: Vector, b: Vector) -> bool:
    """Return the orders and equalities."""
    less, equal = _less(a, b), a.bits == b.bits
    return {
        "<": less, "<=": less or equal, ">": not less and not equal, ">=": not less, "==": equal, "!=": not equal,
    }[op]  # fmt: skip


def cast(a: Vector, width: int, signed: bool) -> Vector:
    """Return a change of width (by the sign of the source) or of signedness."""
    return Vector(tuple(_extend(a, width)), signed)


def slice_bits(a: Vector, hi: int, lo: int) -> Vector:
    """`a[hi:lo]`."""
    return Vector(a.bits[lo : hi + 1], False)
