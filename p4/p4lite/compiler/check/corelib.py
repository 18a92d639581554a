"""Rules for the objects of core.p4 that its declarations cannot say (language specification §§13.8, 16)."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check.run import Run
from p4lite.compiler.types import Type


def varbits(t: Type) -> int:
    """Return the number of varbit fields of a header."""
    if not isinstance(t, ty.FieldsType):
        return 0
    return sum(isinstance(ty.strip_newtypes(f), ty.VarbitType) for f in t.fields.values())


def emittable(t: Type) -> bool:
    """Return whether a deparser can emit a `t`: headers, unions, stacks, structs of these."""
    t = ty.strip_newtypes(t)
    if isinstance(t, ty.HeaderType | ty.UnionType | ty.TypeVar | ty.UnknownType):
        return True
    if isinstance(t, ty.StackType):
        return emittable(t.element)
    if isinstance(t, ty.StructType):
        return all(emittable(f) for f in t.fields.values())
    if isinstance(t, ty.TupleType):
        return all(emittable(f) for f in t.items)
    return False


def check_extern_method(run: Run, call: ast.Call, extern: str) -> None:
    """Check the type that `packet_in.extract`, `packet_in.lookahead` or `packet_out.emit` gets."""
    if extern == "packet_out" and call.method == "emit":
        arg = call.args[0].expr
        if arg is not None and arg.type is not None and not emittable(arg.type):
            run.error(arg.pos, f"only headers can be emitted, not a {arg.type}")
    elif extern == "packet_in" and call.method == "extract":
        _extract(run, call)
    elif extern == "packet_in" and call.method == "lookahead":
        t = call.types[0] if call.types else ty.UNKNOWN
        if not isinstance(t, ty.TypeVar | ty.UnknownType) and (
            ty.max_width_bits(t) is None or ty.min_width_bits(t) != ty.max_width_bits(t)
        ):
            run.error(call.pos, f"lookahead needs a type of fixed width, not {t}")


def _extract(run: Run, call: ast.Call) -> None:
    arg = call.args[0].expr
    if arg is None or arg.type is None:
        return
    t = ty.strip_newtypes(arg.type)
    if isinstance(t, ty.UnknownType | ty.TypeVar | ty.DontCareType):
        return
    if not isinstance(t, ty.HeaderType):
        run.error(arg.pos, f"only a header can be extracted, not a {arg.type}")
    elif len(call.args) == 1 and varbits(t):
        run.error(arg.pos, f"{t} has a varbit field: extract it with its length, extract(hdr, bits)")
    elif len(call.args) == 2 and varbits(t) != 1:
        run.error(arg.pos, f"extract with a length needs a header with one varbit field; {t} has {varbits(t)}")


def needs_name(e: ast.Expr) -> bool:
    """Return whether a table key is too complex to be named after its text, and so needs @name."""
    if isinstance(e, ast.Name | ast.IntLiteral | ast.BoolLiteral):
        return False
    if isinstance(e, ast.Member):
        return needs_name(e.expr)
    if isinstance(e, ast.Index):
        return needs_name(e.expr) or e.index.const is None
    if isinstance(e, ast.Slice):
        return needs_name(e.expr)
    if isinstance(e, ast.Cast):
        return not e.implicit or needs_name(e.expr)
    if isinstance(e, ast.Binary) and e.op == "&":
        return needs_name(e.left) or needs_name(e.right)
    if isinstance(e, ast.Call) and e.method == "isValid" and e.receiver is not None:
        return needs_name(e.receiver)
    return True


def prefix_mask(mask: int, width: int) -> bool:
    """Return whether the ones of a mask are its highest bits, as a longest-prefix match needs."""
    low = ~mask & ((1 << width) - 1)
    return low & (low + 1) == 0
