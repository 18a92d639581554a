"""Statements (specification §12), and parser states (§13)."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check.calls import as_name, is_lvalue
from p4lite.compiler.check.coerce import Coercion, is_or_holds_int, show
from p4lite.compiler.check.constants import compile_time
from p4lite.compiler.check.expressions import ExpressionChecker
from p4lite.compiler.check.scope import ChecksBodies, Run, closest
from p4lite.compiler.types import Type

_RUN_TIME = ("state", "apply", "action", "function")


class StatementChecker:
    """`stmt` checks a statement in the present context."""

    def __init__(self, run: Run, exprs: ExpressionChecker, coercion: Coercion) -> None:
        self.run = run
        self.exprs = exprs
        self.coercion = coercion
        self.types = exprs.types
        self.bodies: ChecksBodies
        self._handlers: dict[type[ast.Node], Callable[..., None]] = {
            ast.Block: self.block,
            ast.Assign: self.assign,
            ast.CallStmt: self.call_stmt,
            ast.If: self.if_stmt,
            ast.Return: self.return_stmt,
            ast.Exit: self.exit_stmt,
            ast.Break: self.break_stmt,
            ast.Continue: self.break_stmt,
            ast.Empty: self.empty,
            ast.VarDecl: self.var_decl,
            ast.ConstDecl: self.const_decl,
            ast.Instantiation: self.instantiation,
            ast.For: self.for_stmt,
            ast.ForIn: self.for_in,
            ast.SwitchStmt: self.switch,
        }

    def block(self, b: ast.Block) -> None:
        with self.run.inner():
            self.stmts(b.stmts)

    def stmts(self, stmts: list[ast.Stmt]) -> None:
        for s in stmts:
            self.stmt(s)

    def stmt(self, s: ast.Stmt) -> None:
        handler = self._handlers.get(type(s))
        if handler is None:
            self.run.error(s.pos, "this declaration cannot stand here")
            return
        handler(s)

    def nested(self, s: ast.Stmt) -> None:
        """Check a statement that is the branch of another: it has a scope of its own."""
        with self.run.inner():
            self.stmt(s)

    # -- simple statements

    def assign(self, s: ast.Assign) -> None:
        s.target = self.exprs.value(s.target)
        t = s.target.type or ty.UNKNOWN
        if isinstance(t, ty.UnknownType):
            s.value = self.exprs.value(s.value)
            return
        if not is_lvalue(s.target):
            self.run.error(s.target.pos, f"cannot assign to {self._what(s.target)}")
        if s.op is None:
            s.value = self.coercion.coerce(self.exprs.value(s.value, t), t, "assignment")
            return
        both = self.exprs.expr(ast.Binary(s.pos, s.op, s.target, s.value))
        if isinstance(both, ast.Binary):
            s.value = both.right
            if both.left is not s.target or (both.type != t and not isinstance(both.type, ty.UnknownType)):
                self.run.error(s.pos, f"operator {s.op}= is not defined on {show(t)} and {show(s.value.type)}")

    @staticmethod
    def _what(e: ast.Expr) -> str:
        root = e
        while isinstance(root, ast.Member | ast.Index | ast.Slice | ast.PlusSlice):
            root = root.expr
        if isinstance(root, ast.Name):
            d = root.decl
            if isinstance(d, ast.Param):
                kind = f"'{d.direction}' parameter" if d.direction else "parameter"
                return f"{kind} '{d.name}'" if root is e else f"a part of {kind} '{d.name}'"
            if isinstance(d, ast.ConstDecl):
                return f"constant '{d.name}'"
        return "this: it is not a variable"

    def call_stmt(self, s: ast.CallStmt) -> None:
        result = self.exprs.expr(s.call)
        assert isinstance(result, ast.Call)
        s.call = result
        if result.kind is ast.CallKind.CONSTRUCTOR:
            self.run.error(s.pos, "a constructor call makes an instance: give it a name")

    def if_stmt(self, s: ast.If) -> None:
        s.cond = self.exprs.bool_expr(s.cond, "the condition of if")
        self.nested(s.then)
        if s.other is not None:
            self.nested(s.other)

    def return_stmt(self, s: ast.Return) -> None:
        if self.run.context.kind not in ("apply", "action", "function"):
            self.run.error(s.pos, "'return' is not allowed in a parser")
            return
        result = self.run.context.result or ty.VOID
        if s.expr is None:
            if not isinstance(result, ty.VoidType | ty.UnknownType):
                self.run.error(s.pos, f"'return' without a value in a function that returns {result}")
            return
        s.expr = self.exprs.value(s.expr, result)
        if isinstance(result, ty.VoidType):
            self.run.error(s.expr.pos, "'return' with a value where none is returned")
            return
        s.expr = self.coercion.coerce(s.expr, result, "return")

    def exit_stmt(self, s: ast.Exit) -> None:
        if self.run.context.kind not in ("apply", "action"):
            where = "a parser" if self.run.context.kind == "state" else "a function"
            self.run.error(s.pos, f"'exit' is not allowed in {where}")

    def break_stmt(self, s: ast.Break | ast.Continue) -> None:
        if not self.run.context.loops:
            word = "break" if isinstance(s, ast.Break) else "continue"
            self.run.error(s.pos, f"'{word}' outside of a loop")

    def empty(self, s: ast.Empty) -> None:
        pass

    # -- declarations among statements

    def var_decl(self, d: ast.VarDecl) -> None:
        d.type = self.types.resolve(d.type_node)
        self._variable_type(d)
        if d.init is not None:
            d.init = self.coercion.coerce(self.exprs.value(d.init, d.type), d.type, f"'{d.name}'")
        self.run.declare(d)

    def _variable_type(self, d: ast.VarDecl) -> None:
        t = ty.strip_newtypes(d.type or ty.UNKNOWN)
        forbidden = (
            ty.VoidType
            | ty.ExternType
            | ty.ParserType
            | ty.ControlType
            | ty.PackageType
            | ty.MatchKindType
            | ty.ListType
            | ty.StringType
        )
        if isinstance(t, forbidden) or is_or_holds_int(t):
            why = "; give it a width" if isinstance(t, ty.IntType) else ""
            self.run.error(d.pos, f"a variable cannot have type {t}{why}")
            d.type = ty.UNKNOWN

    def const_decl(self, d: ast.ConstDecl) -> None:
        d.type = self.types.resolve(d.type_node)
        if isinstance(d.type, ty.VoidType | ty.ExternType | ty.ParserType | ty.ControlType | ty.PackageType):
            self.run.error(d.pos, f"a constant cannot have type {d.type}")
            d.type = ty.UNKNOWN
        d.value = self.coercion.coerce(self.exprs.value(d.value, d.type), d.type, f"constant '{d.name}'")
        d.const = d.value.const
        if d.const is None and not isinstance(d.value.type, ty.UnknownType) and not self._no_constant(d.type):
            self.run.error(d.value.pos, f"the value of constant '{d.name}' is not a compile-time constant")
        if isinstance(d.value.type, ty.UnknownType):
            d.type = ty.UNKNOWN
        self.run.declare(d)

    @staticmethod
    def _no_constant(t: Type) -> bool:
        """Return whether a constant of this type is replaced by its initializer if that has no compile-time value."""
        return isinstance(ty.strip_newtypes(t), ty.FieldsType | ty.TupleType | ty.StackType | ty.ListType)

    def instantiation(self, d: ast.Instantiation) -> None:
        if self.run.context.kind in _RUN_TIME:
            self.run.error(
                d.pos, "an instance cannot be made among statements: declare it before the apply block or states"
            )
        self.bodies.check_instantiation(d)
        self.run.declare(d)

    # -- loops and switch

    def for_stmt(self, s: ast.For) -> None:
        with self.run.inner(loops=self.run.context.loops + 1):
            self.stmts(s.init)
            s.cond = self.exprs.bool_expr(s.cond, "the condition of for")
            self.stmts(s.update)
            self.nested(s.body)
        self._no_loop_in_parser(s)

    def _no_loop_in_parser(self, s: ast.Stmt) -> None:
        if self.run.context.kind == "state":
            self.run.error(s.pos, "a for loop is not allowed in a parser: use states")

    def for_in(self, s: ast.ForIn) -> None:
        self._no_loop_in_parser(s)
        with self.run.inner(loops=self.run.context.loops + 1):
            if isinstance(s.var, ast.VarDecl):
                s.var.type = self.types.resolve(s.var.type_node)
                self._variable_type(s.var)
                t = s.var.type
            else:
                s.var = as_name(self.exprs.value(s.var))
                t = s.var.type or ty.UNKNOWN
                if not is_lvalue(s.var) and not isinstance(t, ty.UnknownType):
                    self.run.error(s.var.pos, f"cannot assign to {self._what(s.var)}")
            self._collection(s, t)
            if isinstance(s.var, ast.VarDecl):
                self.run.declare(s.var)
            self.nested(s.body)

    def _collection(self, s: ast.ForIn, t: Type) -> None:
        c = s.collection
        if isinstance(c, ast.RangeExpr):
            c.lo, c.hi = self.exprs.value(c.lo, t), self.exprs.value(c.hi, t)
            c.lo, c.hi = self.coercion.coerce(c.lo, t, "loop range"), self.coercion.coerce(c.hi, t, "loop range")
            c.type = ty.SetType(t)
            if not isinstance(t, ty.BitType | ty.UnknownType):
                self.run.error(c.pos, f"a loop over a range needs a bit<> or int<> variable, not {show(t)}")
            return
        s.collection = c = self.exprs.value(c)
        ct = c.type
        if isinstance(ct, ty.TupleType) and isinstance(c, ast.ListExpr):
            s.collection = self.coercion.coerce(c, ty.ListType(t))
        elif isinstance(ct, ty.ListType | ty.StackType):
            if ct.element != t and not isinstance(t, ty.UnknownType):
                self.run.error(c.pos, f"the loop variable is a {show(t)}, the elements are {show(ct.element)}")
        elif not isinstance(ct, ty.UnknownType):
            self.run.error(c.pos, f"cannot loop over {show(ct)}: give a range a..b, a list or a stack")

    def switch(self, s: ast.SwitchStmt) -> None:
        if self.run.context.kind == "state":
            self.run.error(s.pos, "'switch' is not allowed in a parser: use transition select")
        outer, self.exprs.switching = self.exprs.switching, True
        s.expr = self.exprs.value(s.expr)
        self.exprs.switching = outer
        t = s.expr.type or ty.UNKNOWN
        core = ty.strip_newtypes(t)
        good = ty.BitType | ty.IntType | ty.BoolType | ty.EnumType | ty.SerEnumType | ty.ErrorType | ty.ActionEnumType
        if not isinstance(core, good | ty.UnknownType):
            self.run.error(s.expr.pos, f"cannot switch on {show(t)}")
        labels: set[object] = set()
        default_seen = False
        for case in s.cases:
            if default_seen:
                self.run.error(case.pos, "a label after 'default' is never reached")
            if case.is_default:
                default_seen = True
            elif case.label is not None:
                self._label(case, t, labels)
            if case.body is not None:
                self.block(case.body)

    def _label(self, case: ast.SwitchCase, t: Type, labels: set[object]) -> None:
        assert case.label is not None
        if isinstance(t, ty.ActionEnumType):
            self._action_label(case, t, labels)
            return
        case.label = self.exprs.value(case.label, t)
        if isinstance(t, ty.UnknownType):
            return
        case.label = self.coercion.coerce(case.label, t, "switch label")
        if isinstance(case.label.type, ty.UnknownType):
            return
        if case.label.const is None:
            self.run.error(case.label.pos, "a switch label must be a compile-time constant")
        elif case.label.const in labels:
            self.run.error(case.label.pos, "this switch label is given twice")
        else:
            labels.add(case.label.const)

    def _action_label(self, case: ast.SwitchCase, t: ty.ActionEnumType, labels: set[object]) -> None:
        label, table = case.label, t.decl
        assert isinstance(table, ast.TableDecl)
        if not isinstance(label, ast.Name):
            self.run.error(case.pos, f"a label of this switch must be an action of table '{table.name}'")
            return
        for ref in table.actions or []:
            if ref.decl is not None and ref.decl.name == label.name:
                if ref.decl.name in labels:
                    self.run.error(label.pos, f"action '{label.name}' is given twice")
                labels.add(ref.decl.name)
                label.decl, label.type = ref.decl, ref.decl.type
                return
        self.run.error(label.pos, f"'{label.name}' is not an action of table '{table.name}'")

    # -- parser states

    def state(self, s: ast.ParserState, states: dict[str, ast.ParserState]) -> None:
        with self.run.inner("state"):
            self.stmts(s.stmts)
            tr = s.transition
            if tr is None:
                return
            if tr.select is None:
                tr.target = self._state_named(tr.state or "", tr, states)
                return
            self._select(tr.select, states)

    def _state_named(self, name: str, at: ast.Node, states: dict[str, ast.ParserState]) -> ast.ParserState | None:
        builtin = {"accept": ast.ACCEPT, "reject": ast.REJECT}
        found = states.get(name) or builtin.get(name)
        if found is None:
            hint = closest(name, [*states, *builtin])
            self.run.error(at.pos, f"no state '{name}' in this parser{hint}")
        return found

    def _select(self, select: ast.Select, states: dict[str, ast.ParserState]) -> None:
        select.exprs = [self.exprs.value(e) for e in select.exprs]
        kinds = [e.type or ty.UNKNOWN for e in select.exprs]
        for e, t in zip(select.exprs, kinds, strict=True):
            core = ty.strip_newtypes(t)
            if isinstance(core, ty.FieldsType | ty.StackType | ty.VarbitType | ty.StringType | ty.ExternType):
                self.run.error(e.pos, f"cannot select on {show(t)}")
            if isinstance(t, ty.IntType):
                self.run.error(e.pos, "a number without width cannot be selected on: give it a width, as in 8w1")
        for case in select.cases:
            case.target = self._state_named(case.state, case, states)
            case.keys = self.keys(case.keys, kinds, "select")

    def keys(self, keys: list[ast.Expr], kinds: list[Type], what: str) -> list[ast.Expr]:
        """Check a keyset against the types of its keys and return it. A lone `_` or `default` fits all."""
        if len(keys) == 1 and isinstance(keys[0], ast.DontCare):
            keys[0].type = ty.DONT_CARE
            return keys
        if len(keys) == 1 and isinstance(keys[0], ast.Name | ast.Member):
            keys[0] = self.exprs.expr(keys[0])
            if isinstance(keys[0].type, ty.SetType):
                self._value_set_key(keys[0], keys[0].type.element, kinds, what)
                return keys
        if len(keys) == 1 and isinstance(keys[0], ast.ListExpr) and len(keys[0].items) == 1 and len(kinds) == 1:
            keys = list(keys[0].items)
        if len(keys) == 1 and len(kinds) != 1:
            # `(a, b)` in a variable or list: a tuple for all keys, or a value set.
            only = keys[0]
            if isinstance(only, ast.ListExpr):
                keys = list(only.items)
        if len(keys) != len(kinds):
            self.run.error(keys[0].pos, f"{len(keys)} keys for the {len(kinds)} of the {what}")
            return keys
        return [self.keyset(k, t, what) for k, t in zip(keys, kinds, strict=True)]

    def _value_set_key(self, k: ast.Expr, element: Type, kinds: list[Type], what: str) -> None:
        """Check a value set: its element, or the fields of its element in order, are the keys."""
        parts = [element]
        core = ty.strip_newtypes(element)
        if isinstance(core, ty.StructType):
            parts = list(core.fields.values())
        elif isinstance(core, ty.TupleType):
            parts = list(core.items)
        known = not any(isinstance(t, ty.UnknownType) for t in [*kinds, *parts])
        if parts != kinds and known:
            wanted = ", ".join(map(show, kinds))
            self.run.error(k.pos, f"this value set holds {show(element)}, the {what} has ({wanted})")

    def keyset(self, k: ast.Expr, t: Type, what: str) -> ast.Expr:
        """Check one key: a value, mask, range, value set or `_`."""
        if isinstance(k, ast.DontCare):
            k.type = ty.DONT_CARE
            return k
        if isinstance(k, ast.Mask | ast.RangeExpr):
            base = ty.underlying_bits(t)
            at = base if base is not None else t
            parts = (
                [(k.value, "value"), (k.mask, "mask")] if isinstance(k, ast.Mask) else [(k.lo, "low"), (k.hi, "high")]
            )
            done = [self._constant_key(self.exprs.value(p, at), at, what) for p, _ in parts]
            if isinstance(k, ast.Mask):
                k.value, k.mask = done
            else:
                k.lo, k.hi = done
                low, high = k.lo.const, k.hi.const
                if isinstance(low, int) and isinstance(high, int) and low > high:
                    self.run.warn(k.pos, f"empty range {low}..{high}: matches nothing")
            if base is None and not isinstance(t, ty.UnknownType):
                self.run.error(k.pos, f"a mask or range needs a number, not {show(t)}")
            k.type = ty.SetType(t)
            return k
        k = self.exprs.value(k, t)
        if isinstance(k.type, ty.SetType):
            self._value_set_key(k, k.type.element, [t], what)
            return k
        return self._constant_key(k, t, what)

    def _constant_key(self, k: ast.Expr, t: Type, what: str) -> ast.Expr:
        if isinstance(k.type, ty.BitType) and isinstance(t, ty.SerEnumType) and k.type == t.base:
            cast = ast.Cast(k.pos, None, k, True, type=t)
            cast.const = k.const
            k = cast
        elif isinstance(t, ty.SerEnumType) and isinstance(k.type, ty.IntType):
            k = self.coercion.coerce(k, t.base)
        elif isinstance(t, ty.NewType) and k.type == ty.strip_newtypes(t):
            cast = ast.Cast(k.pos, None, k, True, type=t)
            cast.const = k.const
            k = cast
        else:
            k = self.coercion.coerce(k, t, f"{what} key")
        if not isinstance(k.type, ty.UnknownType) and k.const is None and not compile_time(k):
            self.run.error(k.pos, f"a key of the {what} must be a compile-time constant")
        return k
