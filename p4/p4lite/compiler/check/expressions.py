"""Types and constants of expressions (language specification §8)."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.check.coerce import Coercion, show
from p4lite.compiler.check.scope import Scope
from p4lite.compiler.types import Type

_ORDERS = {"<", "<=", ">", ">="}
_EQUALITIES = {"==", "!="}
_STACK_MEMBERS = {"next", "last", "lastIndex", "size"}


class Expressions(Coercion):
    """`expr` checks an expression and returns it, or what takes its place, with `type` and `const` set."""

    switching = False
    """Whether the expression at hand is that of a switch statement."""

    def expr(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        if e.type is not None:
            return e
        new: ast.Expr = _HANDLERS[type(e)](self, e, want)
        if new.type is None:
            new.type = ty.UNKNOWN
        return new

    def value(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        """An expression that must have a value one can compute with: no type, action, table, instance."""
        e = self.expr(e, want)
        if isinstance(
            e.type,
            ty.TypeType
            | ty.ActionType
            | ty.TableType
            | ty.FunctionType
            | ty.VoidType
            | ty.StateType
            | ty.ApplyResultType,
        ):
            self.error(e.pos, f"expected a value, found {_describe(e)}")
            e.type = ty.UNKNOWN
        return e

    def bool_expr(self, e: ast.Expr, what: str) -> ast.Expr:
        """A condition."""
        e = self.value(e, ty.BOOL)
        if not isinstance(e.type, ty.BoolType | ty.UnknownType):
            self.error(e.pos, f"{what} must be bool, not {show(e.type)}")
        return e

    def fold(self, e: ast.Expr) -> ast.Expr:
        """Sets `const` where the operands have one; reports operations without a value."""
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
            self.error(e.pos, str(err))
            e.type = ty.UNKNOWN
        return e

    # -- literals and names

    def int_literal(self, e: ast.IntLiteral, want: Type | None) -> ast.Expr:
        if e.width is None:
            e.type, e.const = ty.INT, e.value
            return e
        t = ty.BitType(e.width, e.signed)
        if e.width < (1 if e.signed else 0) or (e.width == 0 and e.value):
            self.error(e.pos, f"wrong width {e.width} of the number {e.text}")
            e.type = ty.UNKNOWN
            return e
        value = constfold.wrap(e.value, t)
        if value != e.value:
            self.warn(e.pos, f"{e.text} does not fit in {t}: becomes {value}")
        e.type, e.value, e.const = t, value, value
        return e

    def bool_literal(self, e: ast.BoolLiteral, want: Type | None) -> ast.Expr:
        e.type, e.const = ty.BOOL, e.value
        return e

    def string_literal(self, e: ast.StringLiteral, want: Type | None) -> ast.Expr:
        e.type, e.const = ty.STRING, e.value
        return e

    def dont_care(self, e: ast.Expr, want: Type | None) -> ast.Expr:
        e.type = ty.DONT_CARE
        return e

    def invalid(self, e: ast.InvalidExpr, want: Type | None) -> ast.Expr:
        if want is not None and isinstance(want, ty.HeaderType | ty.UnionType):
            e.type = want
        else:
            e.type = ty.AnonStructType(())
        return e

    def this(self, e: ast.This, want: Type | None) -> ast.Expr:
        e.type = self.context.this
        if e.type is None:
            self.error(e.pos, "'this' is only for implementations of abstract methods")
        return e

    def name(self, e: ast.Name, want: Type | None) -> ast.Expr:
        found = (self.scope.root() if e.absolute else self.scope).lookup(e.name)
        if not found:
            self.undeclared(e)
            e.type = ty.UNKNOWN
            return e
        decl = found[0]
        e.decl = decl
        if isinstance(decl, ast.ConstDecl):
            e.type, e.const = decl.type, decl.const
        elif isinstance(decl, ast.VarDecl | ast.Param | ast.ActionDecl | ast.TableDecl):
            e.type = decl.type
        elif isinstance(decl, ast.Instantiation):
            e.type, e.const = decl.type, decl.instance
        elif isinstance(decl, ast.ValueSetDecl):
            e.type = decl.type
        elif isinstance(decl, ast.FunctionDecl):
            e.type = ty.FunctionType(decl)
        elif isinstance(decl, ast.ParserState):
            e.type = ty.StateType(decl)
        else:
            self.error(e.pos, f"'{e.name}' is a type, not a value")
            e.type = ty.UNKNOWN
        return e

    def undeclared(self, e: ast.Name) -> None:
        """Reports a name that is not in scope."""
        if e.name in self.open:
            self.error(e.pos, f"recursion: '{e.name}' cannot call itself")
        elif e.name:
            names: list[str] = []
            scope: Scope | None = self.scope
            while scope is not None:
                names += scope.names
                scope = scope.parent
            self.error(e.pos, f"'{e.name}' is not declared{self._closest(e.name, names)}")

    def type_expr(self, e: ast.TypeExpr, want: Type | None) -> ast.Expr:
        e.type = ty.TypeType(self.resolve(e.node, generic_ok=True))
        return e

    # -- parts

    def member(self, e: ast.Member, want: Type | None) -> ast.Expr:
        e.expr = self.expr(e.expr)
        t = e.expr.type
        if isinstance(t, ty.TypeType):
            return self._type_member(e, t.of)
        t = ty.strip_newtypes(t) if t is not None else ty.UNKNOWN
        if isinstance(t, ty.UnknownType):
            e.type = t
        elif isinstance(t, ty.FieldsType | ty.AnonStructType):
            e.type = t.fields.get(e.name)
            if e.type is None:
                hint = self._closest(e.name, list(t.fields))
                self.error(e.name_pos, f"{show(t)} has no field '{e.name}'{hint}")
            e.const = constfold.member(e.expr.const, e.name)
        elif isinstance(t, ty.StackType) and e.name in _STACK_MEMBERS:
            self._stack_member(e, t)
        elif isinstance(t, ty.ApplyResultType) and e.name in ("hit", "miss", "action_run"):
            e.type = ty.ActionEnumType(t.decl) if e.name == "action_run" else ty.BOOL
            if e.name == "action_run" and not self.switching:
                self.error(e.name_pos, "'action_run' is for a switch statement only")
        else:
            self.error(e.name_pos, f"{show(e.expr.type)} has no member '{e.name}'")
        return e

    @staticmethod
    def _closest(name: str, names: list[str]) -> str:
        near = difflib.get_close_matches(name, names, 1)
        return f"; did you mean '{near[0]}'?" if near else ""

    def _stack_member(self, e: ast.Member, t: ty.StackType) -> None:
        if e.name == "size":
            e.type, e.const = ty.bit(32), t.size
            return
        if not isinstance(ty.strip_newtypes(t.element), ty.HeaderType | ty.UnionType | ty.TypeVar):
            self.error(e.name_pos, f"'{e.name}' is for header stacks only, not for an array of {t.element}")
            return
        if (e.name == "next" and self.context.kind != "state") or (
            e.name in ("last", "lastIndex") and self.context.kind not in ("state", "function")
        ):
            self.error(e.name_pos, f"'{e.name}' of a header stack is for parsers only")
        e.type = ty.bit(32) if e.name == "lastIndex" else t.element

    def _type_member(self, e: ast.Member, t: Type) -> ast.Expr:
        if isinstance(t, ty.EnumType):
            if e.name in t.members:
                e.type, e.const = t, ast.EnumValue(t.name, e.name)
            else:
                self.error(e.name_pos, f"enum {t} has no member '{e.name}'{self._closest(e.name, list(t.members))}")
        elif isinstance(t, ty.SerEnumType):
            if e.name in t.values:
                e.type, e.const = t, t.values[e.name]
            else:
                self.error(e.name_pos, f"enum {t} has no member '{e.name}'{self._closest(e.name, list(t.values))}")
        elif isinstance(t, ty.ErrorType):
            if e.name in self.errors:
                e.type, e.const = t, ast.ErrorValue(e.name)
            else:
                self.error(e.name_pos, f"no error '{e.name}' is declared{self._closest(e.name, list(self.errors))}")
        elif isinstance(t, ty.MatchKindType):
            if e.name in self.match_kinds:
                e.type, e.const = t, ast.EnumValue("match_kind", e.name)
            else:
                self.error(e.name_pos, f"no match_kind '{e.name}' is declared")
        elif not isinstance(t, ty.UnknownType):
            self.error(e.name_pos, f"type {t} has no member '{e.name}'")
        return e

    def index(self, e: ast.Index, want: Type | None) -> ast.Expr:
        e.expr = self.value(e.expr)
        e.index = self.value(e.index)
        t = ty.strip_newtypes(e.expr.type or ty.UNKNOWN)
        it = e.index.type
        if isinstance(t, ty.UnknownType) or isinstance(it, ty.UnknownType):
            return e
        if ty.underlying_bits(it or ty.UNKNOWN) is None and not isinstance(it, ty.IntType):
            self.error(e.index.pos, f"an index must be a number, not {show(it)}")
            return e
        i = e.index.const
        size = t.size if isinstance(t, ty.StackType) else len(t.items) if isinstance(t, ty.TupleType) else None
        if isinstance(t, ty.TupleType) and not isinstance(i, int):
            self.error(e.index.pos, "the index of a tuple must be a compile-time constant")
        elif isinstance(i, int) and size is not None and not 0 <= i < size:
            self.error(e.index.pos, f"index {i} is outside of {t}")
        elif isinstance(t, ty.StackType):
            e.type = t.element
            if isinstance(it, ty.IntType) and isinstance(i, int):
                e.index = self.coerce(e.index, ty.bit(32))
            elif isinstance(it, ty.SerEnumType):
                e.index = self.coerce(e.index, it.base)
        elif isinstance(t, ty.TupleType) and isinstance(i, int):
            e.type = t.items[i]
        elif isinstance(t, ty.ListType):
            e.type = t.element
        else:
            self.error(e.pos, f"{show(t)} cannot be indexed")
        e.const = constfold.index(e.expr.const, i)
        return e

    def slice(self, e: ast.Slice, want: Type | None) -> ast.Expr:
        e.expr = self.value(e.expr)
        e.hi, hi = self.constant(e.hi, "a bit index of a slice")
        e.lo, lo = self.constant(e.lo, "a bit index of a slice")
        return self._slice(e, hi, lo)

    def _slice(self, e: ast.Slice, hi: int | None, lo: int | None) -> ast.Expr:
        if isinstance(e.expr.type, ty.UnknownType) or hi is None or lo is None:
            return e
        if isinstance(e.expr.type, ty.SerEnumType):
            e.expr = self.coerce(e.expr, e.expr.type.base)
        t = e.expr.type
        if isinstance(t, ty.IntType) and isinstance(e.expr.const, int):
            if not 0 <= lo <= hi < constfold.MAX_INT_BITS:
                self.error(e.pos, f"slice [{hi}:{lo}] of a number: must be high:low")
                return e
        elif not isinstance(t, ty.BitType):
            self.error(e.pos, f"only bit<> and int<> can be sliced, not {show(t)}")
            return e
        elif hi >= t.width or lo < 0:
            self.error(e.pos, f"slice [{hi}:{lo}] is outside of {t}")
            return e
        elif lo > hi:
            self.error(e.pos, f"slice [{hi}:{lo}]: the high bit comes first")
            return e
        e.type = ty.bit(hi - lo + 1)
        if isinstance(e.expr.const, int):
            e.const = constfold.slice_bits(e.expr.const, hi, lo)
        return e

    def plus_slice(self, e: ast.PlusSlice, want: Type | None) -> ast.Expr:
        e.expr = self.value(e.expr)
        e.lo = self.value(e.lo)
        e.width, width = self.constant(e.width, "the width of a slice")
        if isinstance(e.expr.type, ty.UnknownType) or isinstance(e.lo.type, ty.UnknownType) or width is None:
            return e
        if width < 1:
            self.error(e.width.pos, f"a slice of {width} bits: must be at least one")
            return e
        lo = e.lo.const
        if isinstance(lo, int):
            hi = ast.IntLiteral(e.width.pos, lo + width - 1, type=ty.INT, const=lo + width - 1)
            return self._slice(ast.Slice(e.pos, e.expr, hi, e.lo), lo + width - 1, lo)
        bits = ty.underlying_bits(e.expr.type or ty.UNKNOWN)
        low = ty.underlying_bits(e.lo.type or ty.UNKNOWN)
        if bits is None:
            self.error(e.pos, f"only bit<> and int<> can be sliced, not {show(e.expr.type)}")
        elif low is None or low.signed:
            self.error(e.lo.pos, f"a bit index of a slice must be a bit<>, not {show(e.lo.type)}")
        elif width > bits.width:
            self.error(e.pos, f"a slice of {width} bits is wider than {show(e.expr.type)}")
        else:
            e.type = ty.bit(width)
        return e

    # -- operators

    def unary(self, e: ast.Unary, want: Type | None) -> ast.Expr:
        e.expr = self.value(e.expr, want)
        t = e.expr.type
        if isinstance(t, ty.UnknownType):
            return e
        if isinstance(t, ty.SerEnumType):
            e.expr = self.coerce(e.expr, t.base)
            t = t.base
        good: tuple[type, ...] = (ty.BoolType,) if e.op == "!" else (ty.BitType,)
        if e.op in "+-":
            good = (ty.BitType, ty.IntType)
        if not isinstance(t, good):
            self.error(e.pos, f"operator {e.op} is not defined on {show(t)}")
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
            b.left = result if b is not chain[-1] else self.value(b.left)
            b.right = self.value(b.right)
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
                    self.error(side.pos, f"operand of {e.op} must be bool, not {show(t)}")
                    return e
            e.type = ty.BOOL
            return self.fold(e)
        if e.op in _EQUALITIES:
            return self._equality(e)
        if isinstance(lt, ty.SerEnumType):
            e.left = self.coerce(e.left, lt.base)
        if isinstance(rt, ty.SerEnumType):
            e.right = self.coerce(e.right, rt.base)
        if e.op in ("<<", ">>"):
            return self._shift(e)
        if e.op == "++":
            return self._concatenate(e)
        return self._arithmetic(e)

    def _no_operator(self, e: ast.Binary) -> ast.Expr:
        self.error(e.pos, f"operator {e.op} is not defined on {show(e.left.type)} and {show(e.right.type)}")
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
                self.error(e.pos, f"operator {e.op} is not defined on negative numbers")
                return e
        if isinstance(lt, ty.IntType) and isinstance(rt, ty.BitType):
            e.left = self.coerce(e.left, rt)
        elif isinstance(rt, ty.IntType) and isinstance(lt, ty.BitType):
            e.right = self.coerce(e.right, lt)
        elif lt != rt:
            both = isinstance(lt, ty.BitType) and isinstance(rt, ty.BitType) and lt.signed == rt.signed
            what = f"different widths: {show(lt)} and {show(rt)}" if both else f"{show(lt)} and {show(rt)}"
            self.error(e.pos, f"operands of {e.op} have {'' if both else 'types '}{what}; cast one")
            return e
        t = e.left.type or ty.UNKNOWN
        if e.op in ("/", "%") and isinstance(t, ty.BitType) and t.signed:
            self.error(e.pos, f"operator {e.op} is not defined on signed numbers ({t})")
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
            self.error(e.right.pos, f"the shift amount must be unsigned, not {rt}")
            return e
        if isinstance(lt, ty.IntType) and e.right.const is None:
            self.error(e.pos, "a number without width is shifted by what is no constant: give it a width, as in 8w1")
            return e
        e.type = lt
        amount = e.right.const
        if isinstance(lt, ty.BitType) and isinstance(amount, int) and amount >= lt.width:
            self.warn(e.pos, f"shift of {lt} by {amount} leaves nothing")
        return self.fold(e)

    def _concatenate(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type, e.right.type
        if isinstance(lt, ty.StringType) and isinstance(rt, ty.StringType):
            e.type = ty.STRING
            return self.fold(e)
        if not isinstance(lt, ty.BitType) or not isinstance(rt, ty.BitType):
            if isinstance(lt, ty.IntType) or isinstance(rt, ty.IntType):
                self.error(e.pos, "operands of ++ need a width, as in 8w1")
                return e
            return self._no_operator(e)
        e.type = ty.BitType(lt.width + rt.width, lt.signed)
        return self.fold(e)

    def _equality(self, e: ast.Binary) -> ast.Expr:
        lt, rt = e.left.type or ty.UNKNOWN, e.right.type or ty.UNKNOWN
        if isinstance(lt, ty.TypeType | ty.ExternType | ty.VoidType | ty.SetType):
            return self._no_operator(e)
        if isinstance(rt, ty.TupleType | ty.AnonStructType | ty.IntType) and lt != rt:
            e.right = self._try(e.right, lt)
        elif isinstance(lt, ty.TupleType | ty.AnonStructType | ty.IntType) and lt != rt:
            e.left = self._try(e.left, rt)
        elif isinstance(lt, ty.SerEnumType) and rt == lt.base:
            e.left = self.coerce(e.left, rt)
        elif isinstance(rt, ty.SerEnumType) and lt == rt.base:
            e.right = self.coerce(e.right, lt)
        if isinstance(e.left.type, ty.UnknownType) or isinstance(e.right.type, ty.UnknownType):
            return e
        if isinstance(e.left.type, ty.SerEnumType) and isinstance(e.right.type, ty.SerEnumType) and lt != rt:
            e.left, e.right = self.coerce(e.left, e.left.type.base), self.coerce(e.right, e.right.type.base)
        if e.left.type != e.right.type:
            self.error(e.pos, f"operands of {e.op} have types {show(lt)} and {show(rt)}; cast one")
            return e
        e.type = ty.BOOL
        return self.fold(e)

    def _try(self, e: ast.Expr, target: Type) -> ast.Expr:
        """Converts one side of a comparison to the type of the other."""
        if isinstance(e.type, ty.IntType) and isinstance(target, ty.SerEnumType):
            return e
        if isinstance(e.type, ty.IntType) and not isinstance(target, ty.BitType):
            return e
        return self.coerce(e, target)

    def ternary(self, e: ast.Ternary, want: Type | None) -> ast.Expr:
        e.cond = self.bool_expr(e.cond, "the condition of ?:")
        e.then, e.other = self.value(e.then, want), self.value(e.other, want)
        tt, ot = e.then.type or ty.UNKNOWN, e.other.type or ty.UNKNOWN
        if isinstance(tt, ty.UnknownType) or isinstance(ot, ty.UnknownType):
            return e
        if tt != ot:
            if isinstance(ot, ty.IntType | ty.TupleType | ty.AnonStructType):
                e.other = self.coerce(e.other, tt)
            elif isinstance(tt, ty.IntType | ty.TupleType | ty.AnonStructType) or (
                isinstance(tt, ty.SerEnumType) and tt.base == ot
            ):
                e.then = self.coerce(e.then, ot)
            elif isinstance(ot, ty.SerEnumType) and ot.base == tt:
                e.other = self.coerce(e.other, tt)
            else:
                self.error(e.pos, f"the branches of ?: have types {show(tt)} and {show(ot)}; cast one")
                return e
        e.type = e.then.type
        if isinstance(e.type, ty.IntType) and e.cond.const is None:
            target = want if isinstance(want, ty.BitType) else None
            if target is None:
                self.error(e.pos, "cannot tell the width of the branches of ?: : give one a width, as in 8w1")
                e.type = ty.UNKNOWN
                return e
            e.then, e.other, e.type = self.coerce(e.then, target), self.coerce(e.other, target), target
        if isinstance(e.cond.const, bool):
            e.const = (e.then if e.cond.const else e.other).const
        return e

    def cast(self, e: ast.Cast, want: Type | None) -> ast.Expr:
        assert e.target is not None
        target = self.resolve(e.target)
        e.expr = self.value(e.expr, target)
        source = e.expr.type or ty.UNKNOWN
        if isinstance(source, ty.UnknownType) or isinstance(target, ty.UnknownType):
            return e
        if isinstance(e.expr, ast.ListExpr | ast.StructExpr | ast.InvalidExpr | ast.DefaultExpr):
            return self.coerce(e.expr, target)
        if isinstance(source, ty.IntType) and isinstance(target, ty.BitType) and isinstance(e.expr.const, int):
            e.type, e.const = target, constfold.wrap(e.expr.const, target)
            return e
        to_bool = isinstance(ty.strip_newtypes(target), ty.BoolType)
        if to_bool and isinstance(source, ty.IntType) and e.expr.const not in (0, 1):
            self.error(e.pos, "only 0 and 1 can be cast to bool")
            return e
        if not castable(source, target):
            self.error(e.pos, f"cannot cast {show(source)} to {show(target)}")
            return e
        e.type = target
        if isinstance(source, ty.IntType) and e.expr.const is None:
            return e
        if e.expr.const is not None:
            e.const = constfold.cast(e.expr.const, source, target)
        return e

    # -- lists

    def list_expr(self, e: ast.ListExpr, want: Type | None) -> ast.Expr:
        wants = _item_types(want, len(e.items))
        e.items = [self.value(i, w) for i, w in zip(e.items, wants, strict=True)]
        if any(isinstance(i.type, ty.UnknownType) for i in e.items):
            e.type = ty.UNKNOWN
            return e
        e.type = ty.TupleType(tuple(i.type or ty.UNKNOWN for i in e.items))
        e.const = constfold.list_value([i.const for i in e.items])
        return e

    def struct_expr(self, e: ast.StructExpr, want: Type | None) -> ast.Expr:
        fields = want.fields if isinstance(want, ty.FieldsType) else {}
        seen: set[str] = set()
        for f in e.fields:
            if f.name in seen:
                self.error(f.pos, f"field '{f.name}' is given twice")
            seen.add(f.name)
            f.expr = self.value(f.expr, fields.get(f.name))
            if isinstance(f.expr.type, ty.UnknownType):
                e.type = ty.UNKNOWN
        if e.type is None:
            e.type = ty.AnonStructType(tuple((f.name, f.expr.type or ty.UNKNOWN) for f in e.fields))
            e.const = constfold.struct_value({f.name: f.expr.const for f in e.fields})
        return e

    def call_expr(self, e: ast.Call, want: Type | None) -> ast.Expr:
        return self.call(e, want)

    def call(self, e: ast.Call, want: Type | None = None) -> ast.Expr:
        raise NotImplementedError

    def keyset_only(self, e: ast.Expr, want: Type | None) -> ast.Expr:
        self.error(e.pos, "a mask or range is for select, table entries and value sets only")
        return e


def _item_types(want: Type | None, n: int) -> list[Type | None]:
    if isinstance(want, ty.TupleType) and len(want.items) == n:
        return list(want.items)
    if isinstance(want, ty.StructType | ty.HeaderType) and len(want.fields) == n:
        return list(want.fields.values())
    if isinstance(want, ty.StackType | ty.ListType):
        return [want.element] * n
    return [None] * n


def _describe(e: ast.Expr) -> str:
    t = e.type
    if isinstance(t, ty.TypeType):
        return f"the type {t.of}"
    if isinstance(t, ty.VoidType):
        return "a call without result"
    kinds = {ty.ActionType: "action", ty.TableType: "table", ty.FunctionType: "function", ty.StateType: "state"}
    if isinstance(t, ty.Nominal):
        return f"the {kinds.get(type(t), 'result of applying table')} '{t.name}'"
    return show(t)


def castable(source: Type, target: Type) -> bool:
    """Whether `(target) x` is defined for an `x` of type `source` (specification §8.11.1)."""
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


_HANDLERS: dict[type[ast.Node], Callable[..., Any]] = {
    ast.IntLiteral: Expressions.int_literal,
    ast.BoolLiteral: Expressions.bool_literal,
    ast.StringLiteral: Expressions.string_literal,
    ast.DefaultExpr: Expressions.dont_care,
    ast.DontCare: Expressions.dont_care,
    ast.InvalidExpr: Expressions.invalid,
    ast.This: Expressions.this,
    ast.Name: Expressions.name,
    ast.TypeExpr: Expressions.type_expr,
    ast.Member: Expressions.member,
    ast.Index: Expressions.index,
    ast.Slice: Expressions.slice,
    ast.PlusSlice: Expressions.plus_slice,
    ast.Unary: Expressions.unary,
    ast.Binary: Expressions.binary,
    ast.Ternary: Expressions.ternary,
    ast.Cast: Expressions.cast,
    ast.ListExpr: Expressions.list_expr,
    ast.StructExpr: Expressions.struct_expr,
    ast.Call: Expressions.call_expr,
    ast.Mask: Expressions.keyset_only,
    ast.Range: Expressions.keyset_only,
}
