"""Types and constants of expressions (language specification §8)."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.check import advice
from p4lite.compiler.check.coerce import Coercion, show
from p4lite.compiler.check.operators import Operators
from p4lite.compiler.check.scope import ChecksCalls, Run, closest
from p4lite.compiler.check.typenames import TypeNames
from p4lite.compiler.types import Type

VALUES = (ast.VarDecl, ast.Param, ast.ConstDecl, ast.Instantiation, ast.ValueSetDecl)
HOLDERS = (*VALUES, ast.TableDecl, ast.EnumDecl, ast.ParserDecl, ast.ControlDecl)
"""What may stand before a dot."""
CALLABLE = (ast.FunctionDecl, ast.ActionDecl)
ACTIONS = (ast.ActionDecl,)
MAX_LISTED = 8
"""Fields that a message lists."""
#: What headers and unions can be asked and told, with the types of the answers.
HEADER_METHODS: dict[str, Type] = {"isValid": ty.BOOL, "setValid": ty.VOID, "setInvalid": ty.VOID}
#: The fields of what `apply` of a table returns.
APPLY_RESULTS = ("hit", "miss", "action_run")
_STACK_MEMBERS = {"next", "last", "lastIndex", "size"}


class ExpressionChecker:
    """Checks expressions; `expr` returns the expression, or its replacement, with `type` and `const` set."""

    def __init__(self, run: Run, coercion: Coercion) -> None:
        self.run = run
        self.coercion = coercion
        self.types = TypeNames(run, self)
        self.calls: ChecksCalls
        self.switching = False
        """Whether the expression at hand is that of a switch statement."""
        operators = Operators(run, self.types, coercion, self)
        self._handlers: dict[type[ast.Node], Callable[..., ast.Expr]] = {
            ast.IntLiteral: self.int_literal,
            ast.BoolLiteral: self.bool_literal,
            ast.StringLiteral: self.string_literal,
            ast.DefaultExpr: self.dont_care,
            ast.DontCare: self.dont_care,
            ast.InvalidExpr: self.invalid,
            ast.This: self.this,
            ast.Name: self.name,
            ast.TypeExpr: self.type_expr,
            ast.Member: self.member,
            ast.Index: self.index,
            ast.Slice: self.slice,
            ast.PlusSlice: self.plus_slice,
            ast.Unary: operators.unary,
            ast.Binary: operators.binary,
            ast.ConditionalExpr: operators.ternary,
            ast.Cast: operators.cast,
            ast.ListExpr: self.list_expr,
            ast.StructExpr: self.struct_expr,
            ast.Call: self.call_expr,
            ast.Mask: self.keyset_only,
            ast.RangeExpr: self.keyset_only,
        }

    def expr(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        if e.type is not None:
            return e
        new: ast.Expr = self._handlers[type(e)](e, want)
        if new.type is None:
            new.type = ty.UNKNOWN
        return new

    def value(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        """Check and return an expression that must have a value to compute with, not a type, action, table or
        instance."""
        if isinstance(e, ast.Call):
            self.run.values.add(id(e))
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
            self.run.error(e.pos, f"expected a value, found {_describe(e)}")
            e.type = ty.UNKNOWN
        return e

    def bool_expr(self, e: ast.Expr, what: str) -> ast.Expr:
        """Check and return a condition."""
        e = self.value(e, ty.BOOL)
        if not isinstance(e.type, ty.BoolType | ty.UnknownType):
            self.run.error(e.pos, f"{what} must be bool, not {show(e.type)}{advice.condition(e)}")
        return e

    def constant(self, e: ast.Expr, what: str) -> tuple[ast.Expr, int | None]:
        """Check an expression that must be a compile-time number."""
        e = self.expr(e)
        value = e.const
        if isinstance(e.type, ty.UnknownType):
            return e, None
        if ty.underlying_bits(e.type or ty.UNKNOWN) is None and not isinstance(e.type, ty.IntType):
            self.run.error(e.pos, f"{what} must be a number, not {e.type}")
            return e, None
        if not isinstance(value, int):
            self.run.error(e.pos, f"{what} must be a compile-time constant")
            return e, None
        return e, int(value)

    # -- literals and names

    def int_literal(self, e: ast.IntLiteral, want: Type | None) -> ast.Expr:
        if e.width is None:
            e.type, e.const = ty.INT, e.value
            return e
        t = ty.BitType(e.width, e.signed)
        if e.width < (1 if e.signed else 0) or (e.width == 0 and e.value):
            self.run.error(e.pos, f"wrong width {e.width} of the number {e.text}")
            e.type = ty.UNKNOWN
            return e
        value = constfold.wrap(e.value, t)
        if value != e.value:
            self.run.warn(e.pos, f"{e.text} does not fit in {t}: becomes {value}")
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
        e.type = self.run.context.this
        if e.type is None:
            self.run.error(e.pos, "'this' is only for implementations of abstract methods")
        return e

    def named(self, e: ast.Expr, wanted: tuple[type[ast.Declaration], ...]) -> ast.Expr:
        """Check an expression that is to be a name of the kinds `wanted`, or a value with parts."""
        if not isinstance(e, ast.Name) or e.type is not None or self._lookup(e):
            return self.expr(e)
        self.undeclared(e, wanted)
        e.type = ty.UNKNOWN
        return e

    def _lookup(self, e: ast.Name) -> list[ast.Declaration]:
        return (self.run.scope.root() if e.absolute else self.run.scope).lookup(e.name)

    def name(self, e: ast.Name, want: Type | None) -> ast.Expr:
        found = self._lookup(e)
        if not found:
            self.undeclared(e, VALUES)
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
            self.run.error(e.pos, f"'{e.name}' is a type, not a value")
            e.type = ty.UNKNOWN
        return e

    def undeclared(self, e: ast.Name, wanted: tuple[type[ast.Declaration], ...]) -> None:
        """Report a name that is not in scope; suggest declarations of the kinds `wanted`."""
        owner = self.run.context.owner
        later = next((d for d in owner.locals if d.name == e.name), None) if owner is not None else None
        if e.name in self.run.open:
            self.run.error(e.pos, f"recursion: '{e.name}' cannot call itself")
        elif isinstance(later, ast.TableDecl) and self.run.context.kind not in ("apply", "table"):
            self.run.error(e.pos, only_in_apply(later.name))
        elif later is not None:
            self.run.error(e.pos, f"'{e.name}' is not declared before {later.pos}: move its declaration up")
        elif e.name:
            self.run.error(e.pos, f"'{e.name}' is not declared{advice.name(e, self.run.scope, wanted)}")

    def type_expr(self, e: ast.TypeExpr, want: Type | None) -> ast.Expr:
        e.type = ty.TypeType(self.types.resolve(e.node, generic_ok=True))
        return e

    # -- parts

    def member(self, e: ast.Member, want: Type | None) -> ast.Expr:
        e.expr = self.named(e.expr, HOLDERS)
        t = e.expr.type
        if isinstance(t, ty.TypeType):
            return self._type_member(e, t.of)
        t = ty.strip_newtypes(t) if t is not None else ty.UNKNOWN
        if isinstance(t, ty.UnknownType):
            e.type = t
        elif isinstance(t, ty.FieldsType | ty.AnonStructType):
            e.type = t.fields.get(e.name)
            if e.type is None:
                hint = closest(e.name, list(t.fields))
                if isinstance(t, ty.HeaderType | ty.UnionType) and e.name in HEADER_METHODS:
                    hint = f"; it has a method of that name: write {e.name}()"
                elif not hint and 0 < len(t.fields) <= MAX_LISTED:
                    hint = f"; it has {', '.join(t.fields)}"
                self.run.error(e.name_pos, f"{show(t)} has no field '{e.name}'{hint}")
            e.const = constfold.member(e.expr.const, e.name)
        elif isinstance(t, ty.StackType) and e.name in _STACK_MEMBERS:
            self._stack_member(e, t)
        elif isinstance(t, ty.ApplyResultType) and e.name in APPLY_RESULTS:
            e.type = ty.ActionEnumType(t.decl) if e.name == "action_run" else ty.BOOL
            if e.name == "action_run" and not self.switching:
                self.run.error(e.name_pos, "'action_run' is for a switch statement only")
        else:
            self.run.error(e.name_pos, f"{show(e.expr.type)} has no member '{e.name}'")
        return e

    def _stack_member(self, e: ast.Member, t: ty.StackType) -> None:
        if e.name == "size":
            e.type, e.const = ty.bit(32), t.size
            return
        if not isinstance(ty.strip_newtypes(t.element), ty.HeaderType | ty.UnionType | ty.TypeVar):
            self.run.error(e.name_pos, f"'{e.name}' is for header stacks only, not for an array of {t.element}")
            return
        if (e.name == "next" and self.run.context.kind != "state") or (
            e.name in ("last", "lastIndex") and self.run.context.kind not in ("state", "function")
        ):
            self.run.error(e.name_pos, f"'{e.name}' of a header stack is for parsers only")
        e.type = ty.bit(32) if e.name == "lastIndex" else t.element

    def _type_member(self, e: ast.Member, t: Type) -> ast.Expr:
        if isinstance(t, ty.EnumType):
            if e.name in t.members:
                e.type, e.const = t, ast.EnumValue(t.name, e.name)
            else:
                self.run.error(e.name_pos, f"enum {t} has no member '{e.name}'{closest(e.name, list(t.members))}")
        elif isinstance(t, ty.SerEnumType):
            if e.name in t.values:
                e.type, e.const = t, t.values[e.name]
            else:
                self.run.error(e.name_pos, f"enum {t} has no member '{e.name}'{closest(e.name, list(t.values))}")
        elif isinstance(t, ty.ErrorType):
            if e.name in self.run.errors:
                e.type, e.const = t, ast.ErrorValue(e.name)
            else:
                self.run.error(e.name_pos, f"no error '{e.name}' is declared{closest(e.name, list(self.run.errors))}")
        elif isinstance(t, ty.MatchKindType):
            if e.name in self.run.match_kinds:
                e.type, e.const = t, ast.EnumValue("match_kind", e.name)
            else:
                self.run.error(e.name_pos, f"no match_kind '{e.name}' is declared")
        elif not isinstance(t, ty.UnknownType):
            self.run.error(e.name_pos, f"type {t} has no member '{e.name}'")
        return e

    def index(self, e: ast.Index, want: Type | None) -> ast.Expr:
        e.expr = self.value(e.expr)
        e.index = self.value(e.index)
        t = ty.strip_newtypes(e.expr.type or ty.UNKNOWN)
        it = e.index.type
        if isinstance(t, ty.UnknownType) or isinstance(it, ty.UnknownType):
            return e
        if ty.underlying_bits(it or ty.UNKNOWN) is None and not isinstance(it, ty.IntType):
            self.run.error(e.index.pos, f"an index must be a number, not {show(it)}")
            return e
        i = e.index.const
        size = t.size if isinstance(t, ty.StackType) else len(t.items) if isinstance(t, ty.TupleType) else None
        if isinstance(t, ty.TupleType) and not isinstance(i, int):
            self.run.error(e.index.pos, "the index of a tuple must be a compile-time constant")
        elif isinstance(i, int) and size is not None and not 0 <= i < size:
            self.run.error(e.index.pos, f"index {i} is outside of {t}")
        elif isinstance(t, ty.StackType):
            e.type = t.element
            if isinstance(it, ty.IntType) and isinstance(i, int):
                e.index = self.coercion.coerce(e.index, ty.bit(32))
            elif isinstance(it, ty.SerEnumType):
                e.index = self.coercion.coerce(e.index, it.base)
        elif isinstance(t, ty.TupleType) and isinstance(i, int):
            e.type = t.items[i]
        elif isinstance(t, ty.ListType):
            e.type = t.element
        else:
            self.run.error(e.pos, f"{show(t)} cannot be indexed{advice.index(e)}")
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
            e.expr = self.coercion.coerce(e.expr, e.expr.type.base)
        t = e.expr.type
        if isinstance(t, ty.IntType) and isinstance(e.expr.const, int):
            if not 0 <= lo <= hi < constfold.MAX_INT_BITS:
                self.run.error(e.pos, f"slice [{hi}:{lo}] of a number: must be high:low")
                return e
        elif not isinstance(t, ty.BitType):
            self.run.error(e.pos, f"only bit<> and int<> can be sliced, not {show(t)}")
            return e
        elif hi >= t.width or lo < 0:
            self.run.error(e.pos, f"slice [{hi}:{lo}] is outside of {t}")
            return e
        elif lo > hi:
            self.run.error(e.pos, f"slice [{hi}:{lo}]: the high bit comes first")
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
            self.run.error(e.width.pos, f"a slice of {width} bits: must be at least one")
            return e
        lo = e.lo.const
        if isinstance(lo, int):
            hi = ast.IntLiteral(e.width.pos, lo + width - 1, type=ty.INT, const=lo + width - 1)
            return self._slice(ast.Slice(e.pos, e.expr, hi, e.lo), lo + width - 1, lo)
        bits = ty.underlying_bits(e.expr.type or ty.UNKNOWN)
        low = ty.underlying_bits(e.lo.type or ty.UNKNOWN)
        if bits is None:
            self.run.error(e.pos, f"only bit<> and int<> can be sliced, not {show(e.expr.type)}")
        elif low is None or low.signed:
            self.run.error(e.lo.pos, f"a bit index of a slice must be a bit<>, not {show(e.lo.type)}")
        elif width > bits.width:
            self.run.error(e.pos, f"a slice of {width} bits is wider than {show(e.expr.type)}")
        else:
            e.type = ty.bit(width)
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
                self.run.error(f.pos, f"field '{f.name}' is given twice")
            seen.add(f.name)
            f.expr = self.value(f.expr, fields.get(f.name))
            if isinstance(f.expr.type, ty.UnknownType):
                e.type = ty.UNKNOWN
        if e.type is None:
            e.type = ty.AnonStructType(tuple((f.name, f.expr.type or ty.UNKNOWN) for f in e.fields))
            e.const = constfold.struct_value({f.name: f.expr.const for f in e.fields})
        return e

    def call_expr(self, e: ast.Call, want: Type | None) -> ast.Expr:
        return self.calls.call(e, want)

    def keyset_only(self, e: ast.Expr, want: Type | None) -> ast.Expr:
        self.run.error(e.pos, "a mask or range is for select, table entries and value sets only")
        return e


def only_in_apply(table: str) -> str:
    """Return the error for a table that is applied elsewhere."""
    return f"table '{table}' can be applied in the apply block of a control only"


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


def _item_types(want: Type | None, n: int) -> list[Type | None]:
    if isinstance(want, ty.TupleType) and len(want.items) == n:
        return list(want.items)
    if isinstance(want, ty.StructType | ty.HeaderType) and len(want.fields) == n:
        return list(want.fields.values())
    if isinstance(want, ty.StackType | ty.ListType):
        return [want.element] * n
    return [None] * n
