"""Expressions and arguments as JSON's type-value objects."""

from __future__ import annotations

from typing import Any

from p4lite.compiler.midend import lir
from p4lite.compiler.midend.lir import Arg, Const, Expr, Field, SourceInfo

Json = dict[str, Any]


def hexstr(value: int, width: int = 0) -> str:
    """Return a number in hexadecimal, padded to the bytes of `width` bits; negative ones have a sign."""
    sign = "-" if value < 0 else ""
    digits = f"{abs(value):x}"
    return f"{sign}0x{digits.rjust((width + 7) // 8 * 2, '0')}"


def source_info(loc: SourceInfo | None) -> Json:
    """Return the `source_info` attribute, or nothing."""
    if loc is None:
        return {}
    info = {"filename": loc.filename, "line": loc.line, "column": loc.column, "source_fragment": loc.fragment}
    return {"source_info": info}


def _op(op: str, left: Json | None, right: Any, **more: Json) -> Json:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def _element(stack: str, index: Expr) -> Json:
    return _op("dereference_header_stack", {"type": "header_stack", "value": stack}, expression(index))


def expression(expr: Arg) -> Json:
    """Return an expression as it stands inside of another one."""
    if isinstance(expr, Const):
        return {"type": "hexstr", "value": hexstr(expr.value, expr.width)}
    if isinstance(expr, lir.Bool):
        return {"type": "bool", "value": expr.value}
    if isinstance(expr, Field):
        return {"type": "field", "value": [expr.header, expr.name]}
    if isinstance(expr, lir.RuntimeParam):
        return {"type": "local", "value": expr.index}
    if isinstance(expr, lir.Op):
        left = None if expr.left is None else expression(expr.left)
        return _op(expr.op, left, expression(expr.right))
    if isinstance(expr, lir.LoweredConditional):
        return _op("?", expression(expr.then), expression(expr.other), cond=expression(expr.cond))
    if isinstance(expr, lir.ElemField):
        return _op("access_field", _element(expr.stack, expr.index), expr.offset)
    if isinstance(expr, lir.LastField):
        return {"type": "stack_field", "value": [expr.stack, expr.name]}
    if isinstance(expr, lir.LastIndex):
        return _op("last_stack_index", None, {"type": "header_stack", "value": expr.stack})
    if isinstance(expr, lir.StackSize):
        return _op("size_stack", None, {"type": "header_stack", "value": expr.stack})
    if isinstance(expr, lir.Valid):
        return _valid(expr.target)
    if isinstance(expr, lir.SameHeader):
        return _op("==", expression(expr.left), expression(expr.right))
    if isinstance(expr, lir.ElemRef):
        return _element(expr.stack, expr.index)
    return reference(expr)


def _valid(target: lir.HeaderRef | lir.ElemRef | lir.UnionRef) -> Json:
    if isinstance(target, lir.HeaderRef):
        return _op("d2b", None, {"type": "field", "value": [target.name, "$valid$"]})
    if isinstance(target, lir.UnionRef):
        return _op("valid_union", None, reference(target))
    return _op("valid", None, _element(target.stack, target.index))


_REFERENCES = (
    (lir.HeaderRef, "header"),
    (lir.StackRef, "header_stack"),
    (lir.UnionRef, "header_union"),
    (lir.UnionStackRef, "header_union_stack"),
)


def reference(ref: Arg) -> Json:
    """Return a named object."""
    for kind, name in _REFERENCES:
        if isinstance(ref, kind):
            return {"type": name, "value": ref.name}
    if isinstance(ref, lir.ObjectRef):
        return {"type": ref.kind, "value": ref.name}
    raise TypeError(f"{type(ref).__name__} cannot be written as JSON here")


def argument(arg: Arg) -> Json:
    """Return an argument of a primitive; expressions are wrapped once more."""
    if isinstance(arg, lir.RuntimeParam):
        return {"type": "runtime_data", "value": arg.index}
    if isinstance(arg, lir.Text):
        return {"type": "string", "value": arg.value}
    if isinstance(arg, lir.Vector):
        return {"type": arg.kind, "value": [argument(item) for item in arg.items]}
    if isinstance(arg, (Const, Field)):
        return expression(arg)
    made = expression(arg)
    if made["type"] in ("expression", "stack_field", "bool"):
        return {"type": "expression", "value": made}
    return made
