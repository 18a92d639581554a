"""Compile-time evaluation with the arithmetic of the language specification (§8).

Values of `bit<W>`, `int<W>` and serializable enums are Python ints in the range of their type; results wrap, saturate
or widen as P4 says. `ConstError` tells what has no value: division by zero, a shift by a negative amount, ...
"""

from __future__ import annotations

from collections.abc import Mapping

from p4lite.compiler import ast
from p4lite.compiler.ast import EnumValue, ErrorValue, Instance, ListValue, StructValue, Value
from p4lite.compiler.types import BitType, BoolType, FieldsType, IntType, Type, underlying_bits

MAX_INT_BITS = 1 << 16
"""The longest `int` the compiler computes with; longer is a runaway shift."""


class ConstError(Exception):
    """The expression has no value; the message says why."""


def wrap(value: int, t: BitType) -> int:
    """Return the low bits of `value`, as a number of type `t`."""
    value &= (1 << t.width) - 1
    if t.signed and t.width and value >> (t.width - 1):
        value -= 1 << t.width
    return value


def in_range(value: int, t: BitType) -> bool:
    """Return whether `value` is a value of `t`."""
    return wrap(value, t) == value


def saturate(value: int, t: BitType) -> int:
    """Return the value of type `t` that is nearest to `value`."""
    low = -(1 << (t.width - 1)) if t.signed and t.width else 0
    high = (1 << (t.width - (1 if t.signed and t.width else 0))) - 1
    return min(max(value, low), high)


def _int_binary(op: str, a: int, b: int) -> int:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "&":
        return a & b
    if op == "|":
        return a | b
    if op == "^":
        return a ^ b
    raise ConstError(f"operator {op} is not defined on 'int'")


def _divide(op: str, a: int, b: int) -> int:
    if b == 0:
        raise ConstError("division by zero" if op == "/" else "modulo by zero")
    if a < 0 or b < 0:
        raise ConstError(f"operator {op} is not defined on negative numbers")
    return a // b if op == "/" else a % b


def _shift(op: str, a: int, amount: int, t: BitType | None) -> int:
    if amount < 0:
        raise ConstError("shift by a negative amount")
    if op == ">>":
        # Python's >> keeps the sign, which is what P4 asks of signed operands.
        return a >> min(amount, MAX_INT_BITS)
    if t is not None:
        return wrap(a << amount, t) if amount < t.width else 0
    if amount > MAX_INT_BITS:
        raise ConstError(f"shift by {amount}: the result is too long")
    return a << amount


def compare(op: str, a: Value, b: Value) -> bool:
    """Return the result of a comparison of two values of one type; `<`, `<=`, `>` and `>=` take numbers only."""
    if op == "==":
        return a == b
    if op == "!=":
        return a != b
    assert isinstance(a, int)
    assert isinstance(b, int)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def binary(op: str, a: Value, b: Value, left: Type, right: Type) -> Value:
    """Return the value of `a op b` with operand types `left`, `right`."""
    if op in ("==", "!=", "<", "<=", ">", ">="):
        return compare(op, a, b)
    if op == "&&":
        return bool(a) and bool(b)
    if op == "||":
        return bool(a) or bool(b)
    if op == "++" and isinstance(a, str) and isinstance(b, str):
        return a + b
    assert isinstance(a, int)
    assert isinstance(b, int)
    t = underlying_bits(left)
    if op == "++":
        u = underlying_bits(right)
        if t is None or u is None:
            raise ConstError("operands of ++ need a width")
        whole = (a & (1 << t.width) - 1) << u.width | b & (1 << u.width) - 1
        return wrap(whole, BitType(t.width + u.width, t.signed))
    if op in ("<<", ">>"):
        result = _shift(op, a, b, t)
    elif op in ("/", "%"):
        result = _divide(op, a, b)
    elif op in ("|+|", "|-|"):
        if t is None:
            raise ConstError(f"operator {op} needs operands with a width")
        return saturate(a + b if op == "|+|" else a - b, t)
    else:
        result = _int_binary(op, a, b)
    return _fit(result, t)


def _fit(value: int, t: BitType | None) -> int:
    if t is not None:
        return wrap(value, t)
    if value.bit_length() > MAX_INT_BITS:
        raise ConstError(f"the result has more than {MAX_INT_BITS} bits")
    return value


def unary(op: str, a: Value, t: Type) -> Value:
    """Return the value of `op a`."""
    if op == "!":
        return not a
    assert isinstance(a, int)
    bits = underlying_bits(t)
    if op == "~":
        if bits is None:
            raise ConstError("operator ~ needs an operand with a width")
        return wrap(~a, bits)
    return _fit(-a if op == "-" else a, bits)


def cast(a: Value, source: Type, target: Type) -> Value:
    """Return the value of `(target) a`."""
    bits = underlying_bits(target)
    if bits is not None and isinstance(a, bool | int):
        return wrap(int(a), bits)
    if isinstance(target, IntType) and isinstance(a, bool | int):
        return int(a)
    if isinstance(target, BoolType) and isinstance(a, int):
        return a != 0
    return a


def slice_bits(a: int, hi: int, lo: int) -> int:
    """Return the value of `a[hi:lo]`, unsigned."""
    return (a >> lo) & ((1 << (hi - lo + 1)) - 1)


Env = Mapping[ast.Declaration, Value | None]


def evaluate(expr: ast.Expr, env: Env | None = None) -> Value | None:
    """Return the compile-time value of a checked expression, or None.

    `env` gives values to declarations that have none by themselves: constructor parameters of one instance.
    """
    if expr.const is not None:
        return expr.const
    if not env:
        return None
    try:
        return _evaluate(expr, env)
    except ConstError:
        return None


def _evaluate(e: ast.Expr, env: Env) -> Value | None:
    if e.const is not None:
        return e.const
    if isinstance(e, ast.Name):
        return env.get(e.decl) if e.decl is not None else None
    if isinstance(e, ast.Binary):
        a, b = _evaluate(e.left, env), _evaluate(e.right, env)
        if a is None or b is None or e.left.type is None or e.right.type is None:
            return None
        return binary(e.op, a, b, e.left.type, e.right.type)
    if isinstance(e, ast.Unary):
        a = _evaluate(e.expr, env)
        return None if a is None or e.expr.type is None else unary(e.op, a, e.expr.type)
    if isinstance(e, ast.Cast):
        a = _evaluate(e.expr, env)
        return None if a is None or e.type is None or e.expr.type is None else cast(a, e.expr.type, e.type)
    if isinstance(e, ast.ConditionalExpr):
        c = _evaluate(e.cond, env)
        return None if c is None else _evaluate(e.then if c else e.other, env)
    if isinstance(e, ast.Slice):
        a, hi, lo = _evaluate(e.expr, env), e.hi.const, e.lo.const
        if isinstance(a, int) and isinstance(hi, int) and isinstance(lo, int):
            return slice_bits(a, hi, lo)
        return None
    if isinstance(e, ast.Member):
        return member(_evaluate(e.expr, env), e.name)
    if isinstance(e, ast.Index):
        return index(_evaluate(e.expr, env), _evaluate(e.index, env))
    if isinstance(e, ast.ListExpr):
        return list_value([_evaluate(i, env) for i in e.items])
    if isinstance(e, ast.StructExpr):
        values = {f.name: _evaluate(f.expr, env) for f in e.fields}
        # As written; a struct's fields have the order of its type.
        order = e.type.fields if isinstance(e.type, FieldsType) else values
        return struct_value({n: values[n] for n in order if n in values})
    if isinstance(e, ast.Call) and e.kind is ast.CallKind.CONSTRUCTOR:
        return instance_value(e, env)
    return None


def instance_value(call: ast.Call, env: Env | None = None, site: ast.Instantiation | None = None) -> Instance | None:
    """Return the instance a checked constructor call makes; None if an argument has no value."""
    args: dict[str, Value | None] = {}
    for a in call.args:
        assert a.param is not None
        value = None if a.expr is None else evaluate(a.expr, env)
        if value is None and a.expr is not None:
            return None
        args[a.param.name] = value
    decl = call.target
    if not isinstance(decl, ast.ExternDecl | ast.ParserDecl | ast.ControlDecl | ast.PackageDecl) or call.type is None:
        return None
    return Instance(decl, call.type, args, site, call.pos)


def member(value: Value | None, name: str) -> Value | None:
    """Return the field `name` of a constant struct."""
    if isinstance(value, StructValue):
        return next((v for n, v in value.fields if n == name), None)
    return None


def index(value: Value | None, i: Value | None) -> Value | None:
    """Return the item `i` of a constant list."""
    if isinstance(value, ListValue) and isinstance(i, int) and 0 <= i < len(value.items):
        return value.items[i]
    return None


def list_value(items: list[Value | None]) -> ListValue | None:
    """Return the constant list of these items, None unless all are constants."""
    known = [i for i in items if i is not None]
    return ListValue(tuple(known)) if len(known) == len(items) else None


def struct_value(fields: Mapping[str, Value | None]) -> StructValue | None:
    """Return the constant struct of these fields, None unless all are constants."""
    known = [(n, v) for n, v in fields.items() if v is not None]
    return StructValue(tuple(known)) if len(known) == len(fields) else None


__all__ = [
    "ConstError", "EnumValue", "ErrorValue", "binary", "cast", "compare", "evaluate", "in_range", "index",
    "instance_value", "list_value", "member", "saturate", "slice_bits", "struct_value", "unary", "wrap",
]  # fmt: skip
