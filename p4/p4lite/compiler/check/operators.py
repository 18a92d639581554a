"""Operators and casts (language specification §§8.3-8.11)."""

from __future__ import annotations

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.check import advice
from p4lite.compiler.check.coerce import Coercion, is_newtype_of_bits, show
from p4lite.compiler.check.scope import Evaluates, Run
from p4lite.compiler.check.typenames import TypeNames
from p4lite.compiler.types import Type

_ORDERS = {"<", "<=", ">", ">="}
_EQUALITIES = {"==", "!="}


class Operators:
    """Checks expressions made of other expressions."""

    def __init__(self, run: Run, types: TypeNames, coercion: Coercion, exprs: Evaluates) -> None:
        self.run = run
        self.types = types
        self.coercion = coercion
        self.exprs = exprs

    def fold(self, e: ast.Expr) -> ast.Expr:
        """Set `const` where the operands have one; report operations without a value."""
        try:
            if isinstance(e, ast.Binary):
                a, b = e.left.const, e.right.const
                if e.op in ("&&", "||") and isinstance(a, bool) and a == (e.op == "||"):
                    e.const = a
                elif a is not None and b is not None and e.left.type is not None and e.right.type is not None:
                    e.const = constfold.binary(e.op, a, b, e.left.type, e.right.type)
                elif e.op in ("/", "%") and b == 0 and isinstance(b, int):
                    raise constfold.ConstError("division by zero" if e.op == "/" else "modulo by zero")
                elif e.op in ("<<", ">>") and isinstance(b, int) and b < 0:
                    raise constfold.ConstError("shift by a negative amount")
            elif isinstance(e, ast.Unary) and e.expr.const is not None and e.expr.type is not None:
                e.const = constfold.unary(e.op, e.expr.const, e.expr.type)
        except constfold.ConstError as err:
            self.run.error(e.pos, str(err))
            e.type = ty.UNKNOWN
        return e

    # -- operators

    def unary(self, e: ast.Unary, want: Type | None) -> ast.Expr:
        e.expr = self.exprs.value(e.expr, want)
        t = e.expr.type
        if isinstance(t, ty.UnknownType):
            return e
        if isinstance(t, ty.SerEnumType):
            e.expr = self.coercion.coerce(e.expr, t.base)
            t = t.base
        good: tuple[type, ...] = (ty.BoolType,) if e.op == "!" else (ty.BitType,)
        if e.op in "+-":
            good = (ty.BitType, ty.IntType)
        if not isinstance(t, good):
            self.run.error(e.pos, f"operator {e.op} is not defined on {show(t)}")
            return e
        e.type = t
        return self.fold(e)

    def binary(self, e: ast.Binary, want: Type | None) -> ast.Expr:
        # Chains of operators lean left: walk them without recursion.
        chain = [e]
        while isinstance(chain[-1].left, ast.Binary) and chain[-1].left.type is None:
            chain.append(chain[-1].left)
        result: ast.Expr = e
        for b in reversed(chain):
            b.left = result if b is not chain[-1] else self.exprs.value(b.left)
            b.right = self.exprs.value(b.right)
            result = self._binary(b)
            if result.type is None:
                result.type = ty.UNKNOWN
        return result

    def _binary(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type or ty.UNKNOWN, e.right.type or ty.UNKNOWN
        if isinstance(lt, ty.UnknownType) or isinstance(rt, ty.UnknownType):
            return e
        if e.op in ("&&", "||"):
            for side, t in ((e.left, lt), (e.right, rt)):
                if not isinstance(t, ty.BoolType):
                    self.run.error(side.pos, f"operand of {e.op} must be bool, not {show(t)}")
                    return e
            e.type = ty.BOOL
            return self.fold(e)
        if e.op in _EQUALITIES:
            return self._equality(e)
        if isinstance(lt, ty.SerEnumType):
            e.left = self.coercion.coerce(e.left, lt.base)
        if isinstance(rt, ty.SerEnumType):
            e.right = self.coercion.coerce(e.right, rt.base)
        if e.op in ("<<", ">>"):
            return self._shift(e)
        if e.op == "++":
            return self._concatenate(e)
        return self._arithmetic(e)

    def _no_operator(self, e: ast.Binary) -> ast.Expr:
        self.run.error(
            e.pos,
            f"operator {e.op} is not defined on {show(e.left.type)} and {show(e.right.type)}"
            f"{advice.text(e.left, e.right)}",
        )
        return e

    def _arithmetic(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type, e.right.type
        number = ty.BitType | ty.IntType
        if not isinstance(lt, number) or not isinstance(rt, number):
            return self._no_operator(e)
        for side in (e.left, e.right):
            if (
                e.op in ("/", "%")
                and isinstance(side.type, ty.IntType)
                and isinstance(side.const, int)
                and side.const < 0
            ):
                self.run.error(e.pos, f"operator {e.op} is not defined on negative numbers")
                return e
        if isinstance(lt, ty.IntType) and isinstance(rt, ty.BitType):
            e.left = self.coercion.coerce(e.left, rt)
        elif isinstance(rt, ty.IntType) and isinstance(lt, ty.BitType):
            e.right = self.coercion.coerce(e.right, lt)
        elif lt != rt:
            both = isinstance(lt, ty.BitType) and isinstance(rt, ty.BitType) and lt.signed == rt.signed
            what = f"different widths: {show(lt)} and {show(rt)}" if both else f"{show(lt)} and {show(rt)}"
            self.run.error(e.pos, f"operands of {e.op} have {'' if both else 'types '}{what}; cast one")
            return e
        t = e.left.type or ty.UNKNOWN
        if e.op in ("/", "%") and isinstance(t, ty.BitType) and t.signed:
            self.run.error(e.pos, f"operator {e.op} is not defined on signed numbers ({t})")
            return e
        if e.op in ("|+|", "|-|") and not isinstance(t, ty.BitType):
            return self._no_operator(e)
        e.type = ty.BOOL if e.op in _ORDERS else t
        return self.fold(e)

    def _shift(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type, e.right.type
        if not isinstance(lt, ty.BitType | ty.IntType) or not isinstance(rt, ty.BitType | ty.IntType):
            return self._no_operator(e)
        if isinstance(rt, ty.BitType) and rt.signed and e.right.const is None:
            self.run.error(e.right.pos, f"the shift amount must be unsigned, not {rt}")
            return e
        if isinstance(lt, ty.IntType) and e.right.const is None:
            self.run.error(
                e.pos, "a number without width is shifted by what is not a constant: give it a width, as in 8w1"
            )
            return e
        e.type = lt
        amount = e.right.const
        if isinstance(lt, ty.BitType) and isinstance(amount, int) and amount >= lt.width:
            self.run.warn(e.pos, f"shift of {lt} by {amount} leaves nothing")
        return self.fold(e)

    def _concatenate(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type, e.right.type
        if isinstance(lt, ty.StringType) and isinstance(rt, ty.StringType):
            e.type = ty.STRING
            return self.fold(e)
        if not isinstance(lt, ty.BitType) or not isinstance(rt, ty.BitType):
            if isinstance(lt, ty.IntType) or isinstance(rt, ty.IntType):
                self.run.error(e.pos, "operands of ++ need a width, as in 8w1")
                return e
            return self._no_operator(e)
        e.type = ty.BitType(lt.width + rt.width, lt.signed)
        return self.fold(e)

    def _equality(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type or ty.UNKNOWN, e.right.type or ty.UNKNOWN
        if isinstance(lt, ty.TypeType | ty.ExternType | ty.VoidType | ty.SetType):
            return self._no_operator(e)
        # A number takes the type of the enum's values, as in arithmetic; p4c does the same.
        if isinstance(lt, ty.SerEnumType) and isinstance(rt, ty.IntType):
            e.left, lt = self.coercion.coerce(e.left, lt.base), lt.base
        elif isinstance(rt, ty.SerEnumType) and isinstance(lt, ty.IntType):
            e.right, rt = self.coercion.coerce(e.right, rt.base), rt.base
        if isinstance(rt, ty.TupleType | ty.AnonStructType | ty.IntType) and lt != rt:
            e.right = self._try(e.right, lt)
        elif isinstance(lt, ty.TupleType | ty.AnonStructType | ty.IntType) and lt != rt:
            e.left = self._try(e.left, rt)
        elif isinstance(lt, ty.SerEnumType) and rt == lt.base:
            e.left = self.coercion.coerce(e.left, rt)
        elif isinstance(rt, ty.SerEnumType) and lt == rt.base:
            e.right = self.coercion.coerce(e.right, lt)
        if isinstance(e.left.type, ty.UnknownType) or isinstance(e.right.type, ty.UnknownType):
            return e
        if isinstance(e.left.type, ty.SerEnumType) and isinstance(e.right.type, ty.SerEnumType) and lt != rt:
            e.left, e.right = (
                self.coercion.coerce(e.left, e.left.type.base),
                self.coercion.coerce(e.right, e.right.type.base),
            )
        if e.left.type != e.right.type:
            self.run.error(e.pos, f"operands of {e.op} have types {show(lt)} and {show(rt)}{advice.comparison(e)}")
            return e
        e.type = ty.BOOL
        return self.fold(e)

    def _try(self, e: ast.Expr, target: Type) -> ast.Expr:
        """Convert one side of a comparison to the type of the other."""
        if isinstance(e.type, ty.IntType) and not isinstance(target, ty.BitType):
            return e
        return self.coercion.coerce(e, target)

    def ternary(self, e: ast.ConditionalExpr, want: Type | None) -> ast.Expr:
        e.cond = self.exprs.bool_expr(e.cond, "the condition of ?:")
        e.then, e.other = self.exprs.value(e.then, want), self.exprs.value(e.other, want)
        tt, ot = e.then.type or ty.UNKNOWN, e.other.type or ty.UNKNOWN
        if isinstance(tt, ty.UnknownType) or isinstance(ot, ty.UnknownType):
            return e
        if tt != ot:
            if isinstance(ot, ty.IntType | ty.TupleType | ty.AnonStructType):
                e.other = self.coercion.coerce(e.other, tt)
            elif isinstance(tt, ty.IntType | ty.TupleType | ty.AnonStructType) or (
                isinstance(tt, ty.SerEnumType) and tt.base == ot
            ):
                e.then = self.coercion.coerce(e.then, ot)
            elif isinstance(ot, ty.SerEnumType) and ot.base == tt:
                e.other = self.coercion.coerce(e.other, tt)
            else:
                self.run.error(e.pos, f"the branches of ?: have types {show(tt)} and {show(ot)}; cast one")
                return e
        e.type = e.then.type
        if isinstance(e.type, ty.IntType) and e.cond.const is None:
            target = want if isinstance(want, ty.BitType) or (want and is_newtype_of_bits(want)) else None
            if target is None:
                self.run.error(e.pos, "cannot tell the width of the branches of ?: : give one a width, as in 8w1")
                e.type = ty.UNKNOWN
                return e
            e.then, e.other, e.type = (
                self.coercion.coerce(e.then, target),
                self.coercion.coerce(e.other, target),
                target,
            )
        if isinstance(e.cond.const, bool):
            e.const = (e.then if e.cond.const else e.other).const
        return e

    def cast(self, e: ast.Cast, want: Type | None) -> ast.Expr:
        assert e.target is not None
        target = self.types.resolve(e.target)
        e.expr = self.exprs.value(e.expr, target)
        source = e.expr.type or ty.UNKNOWN
        if isinstance(source, ty.UnknownType) or isinstance(target, ty.UnknownType):
            return e
        if isinstance(e.expr, ast.ListExpr | ast.StructExpr | ast.InvalidExpr | ast.DefaultExpr):
            return self.coercion.coerce(e.expr, target)
        if isinstance(source, ty.IntType) and isinstance(target, ty.BitType) and isinstance(e.expr.const, int):
            e.type, e.const = target, constfold.wrap(e.expr.const, target)
            return e
        to_bool = isinstance(ty.strip_newtypes(target), ty.BoolType)
        if to_bool and isinstance(source, ty.IntType) and e.expr.const not in (0, 1):
            self.run.error(e.pos, "only 0 and 1 can be cast to bool")
            return e
        if not castable(source, target):
            self.run.error(e.pos, f"cannot cast {show(source)} to {show(target)}")
            return e
        for new, other in ((source, target), (target, source)):
            if isinstance(new, ty.NewType) and other not in (new, new.base) and not isinstance(other, ty.IntType):
                what = f"a cast between {show(source)} and {show(target)}: p4c, and the specification (§8.12), want one"
                self.run.warn(e.pos, f"{what} by way of {new.base}, from which {new} was made")
                break
        e.type = target
        if isinstance(source, ty.IntType) and e.expr.const is None:
            return e
        if e.expr.const is not None:
            e.const = constfold.cast(e.expr.const, source, target)
        return e


def castable(source: Type, target: Type) -> bool:
    """Return whether `(target) x` is defined for an `x` of type `source` (specification §8.11.1)."""
    if source == target:
        return True
    if isinstance(source, ty.NewType):
        return castable(source.base, target)
    if isinstance(target, ty.NewType):
        return castable(source, target.base)
    if isinstance(source, ty.SerEnumType):
        return castable(source.base, target) or (isinstance(target, ty.SerEnumType))
    if isinstance(target, ty.SerEnumType):
        return castable(source, target.base)
    if isinstance(source, ty.IntType):
        return isinstance(target, ty.BitType | ty.BoolType)
    if isinstance(target, ty.IntType):
        return isinstance(source, ty.BitType | ty.BoolType)
    if isinstance(source, ty.BoolType):
        return isinstance(target, ty.BitType) and target.width == 1 and not target.signed
    if isinstance(target, ty.BoolType):
        return isinstance(source, ty.BitType) and source.width == 1 and not source.signed
    if isinstance(source, ty.BitType) and isinstance(target, ty.BitType):
        return source.signed == target.signed or source.width == target.width
    return False
