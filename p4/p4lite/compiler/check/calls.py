"""Calls: overloads, arguments to parameters, type arguments, what a call may do (specification §§6.7, 8.20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.ast import CallKind
from p4lite.compiler.check import advice, typenames
from p4lite.compiler.check.coerce import Coercion, is_or_holds_int, show
from p4lite.compiler.check.constants import compile_time
from p4lite.compiler.check.expressions import (
    APPLY_RESULTS,
    CALLABLE,
    HEADER_METHODS,
    HOLDERS,
    ExpressionChecker,
    only_in_apply,
)
from p4lite.compiler.check.scope import ChecksBodies, Run, closest
from p4lite.compiler.check.typenames import type_env
from p4lite.compiler.position import Pos
from p4lite.compiler.types import Type

CalleeT = TypeVar("CalleeT", ast.FunctionDecl, ast.Method)

_SIZE_METHODS = {
    "minSizeInBits": (False, 1), "maxSizeInBits": (True, 1), "minSizeInBytes": (False, 8), "maxSizeInBytes": (True, 8),
}  # fmt: skip
_STACK_METHODS = ("push_front", "pop_front")


def is_lvalue(e: ast.Expr) -> bool:
    """Return whether `e` can stand left of `=` or be an out argument (specification §6.6)."""
    if isinstance(e, ast.Name):
        d = e.decl
        return isinstance(d, ast.VarDecl) or (isinstance(d, ast.Param) and d.direction in ("out", "inout"))
    if isinstance(e, ast.Member):
        if isinstance(e.expr.type, ty.StackType):
            return e.name in ("next", "last") and is_lvalue(e.expr)
        return isinstance(ty.strip_newtypes(e.expr.type or ty.UNKNOWN), ty.FieldsType) and is_lvalue(e.expr)
    if isinstance(e, ast.Index):
        return isinstance(e.expr.type, ty.StackType | ty.TupleType) and is_lvalue(e.expr)
    if isinstance(e, ast.Slice | ast.PlusSlice):
        return is_lvalue(e.expr)
    return False


def as_name(e: ast.Expr) -> ast.Name:
    """Return an expression as a name, if the checker has left it one."""
    assert isinstance(e, ast.Name)
    return e


class CallChecker:
    """`call` checks a call of any kind."""

    def __init__(self, run: Run, exprs: ExpressionChecker, coercion: Coercion) -> None:
        self.run = run
        self.exprs = exprs
        self.coercion = coercion
        self.types = exprs.types
        self.bodies: ChecksBodies
        self.naming = False
        """Whether the constructor call at hand is that of a declaration."""

    def call(self, e: ast.Call, want: Type | None = None) -> ast.Expr:
        func = e.func
        if isinstance(func, ast.TypeExpr):
            return self._constructor(e, func)
        if isinstance(func, ast.Name):
            return self._named_call(e, func, want)
        if isinstance(func, ast.Member):
            return self._method_call(e, func, want)
        self.run.error(e.pos, "this cannot be called")
        return e

    # -- functions and actions

    def _named_call(self, e: ast.Call, func: ast.Name, want: Type | None) -> ast.Expr:
        found = (self.run.scope.root() if func.absolute else self.run.scope).lookup(func.name)
        e.method = func.name
        if not found:
            self.exprs.undeclared(func, CALLABLE)
            return e
        if isinstance(found[0], ast.FunctionDecl):
            candidates = [d for d in found if isinstance(d, ast.FunctionDecl)]
            decl = self._pick(e, candidates)
            if decl is None:
                return e
            func.decl, func.type = decl, ty.FunctionType(decl)
            e.kind = CallKind.FUNCTION if decl.body is not None else CallKind.EXTERN_FUNCTION
            if decl.name == "verify" and decl.body is None and self.run.context.kind not in ("state", "function"):
                self.run.error(e.pos, "'verify' can be called in parsers only: test with 'if' elsewhere")
            self._call_function(e, decl, {}, want)
            if decl.body is not None and decl.type_params and isinstance(e.target, ast.FunctionDecl):
                self._specialise(e, decl)
            self._fold_call(e)
            return e
        e.func = func = as_name(self.exprs.expr(func))
        if isinstance(found[0], ast.ActionDecl):
            action = found[0]
            e.kind, e.target = CallKind.ACTION, action
            if self.run.context.kind in ("state", "parser", "function", "program"):
                self.run.error(e.pos, f"action '{action.name}' can be called in controls and actions only")
            if e.type_args:
                self.run.error(e.pos, f"action '{action.name}' takes no type arguments")
            self.bind(e, action.params, f"action '{action.name}'", {}, constants=False)
            e.type = ty.VOID
            return e
        if not isinstance(func.type, ty.UnknownType):
            hint = "; say .apply()" if isinstance(func.type, ty.TableType | ty.ControlType | ty.ParserType) else ""
            self.run.error(e.pos, f"'{func.name}' cannot be called{hint}")
        return e

    def _pick(self, e: ast.Call, candidates: Sequence[CalleeT]) -> CalleeT | None:
        """Return the overload that takes this number (these names) of arguments."""
        fitting = [c for c in candidates if _accepts(c.params, e.args)]
        if len(fitting) == 1 or (fitting and not candidates[1:]):
            return fitting[0]
        if not fitting:
            if len(candidates) == 1:
                return candidates[0]
            self.run.error(e.pos, f"no '{candidates[0].name}' takes these {len(e.args)} arguments")
            return None
        for a in e.args:
            if a.expr is not None and not isinstance(a.expr, ast.DontCare):
                a.expr = self.exprs.value(a.expr)
        typed = [c for c in fitting if self._types_fit(c, e.args)]
        if len(typed) == 1:
            return typed[0]
        self.run.error(e.pos, f"call of '{candidates[0].name}' is ambiguous: {len(fitting)} declarations fit")
        return None

    def _types_fit(self, decl: ast.FunctionDecl | ast.Method, args: list[ast.Arg]) -> bool:
        env: dict[ty.TypeVar, Type] = {p.var: ty.UNKNOWN for p in decl.type_params if p.var is not None}
        named = {p.name: p for p in decl.params}
        for p, a in zip(decl.params, args, strict=False):
            param = named[a.name] if a.name is not None else p
            actual = a.expr.type if a.expr is not None else None
            if actual is not None and not self.coercion.unify(param.type or ty.UNKNOWN, actual, env):
                return False
        return True

    def _call_function(
        self, e: ast.Call, decl: ast.FunctionDecl | ast.Method, outer: dict[ty.TypeVar, Type], want: Type | None
    ) -> None:
        """Bind arguments and infer type arguments; `outer` are those of the extern object."""
        e.target = decl
        what = f"'{decl.name}'"
        result = ty.VOID if decl.result is None else decl.result.type or ty.UNKNOWN
        if isinstance(result, ty.VoidType) and id(e) in self.run.values:
            self.run.error(e.pos, advice.without_result(e, decl.params))
            e.type = ty.UNKNOWN
            return
        env: dict[ty.TypeVar, Type] = {p.var: ty.UNKNOWN for p in decl.type_params if p.var is not None}
        variables = list(env)
        if e.type_args:
            # Given type arguments are not inferred: like those of the object, they are substituted at once.
            outer = dict(outer)
            if len(e.type_args) != len(env):
                self.run.error(e.pos, f"{what} takes {len(env)} type arguments, not {len(e.type_args)}")
                e.type = ty.UNKNOWN
                return
            for var, node in zip(variables, e.type_args, strict=True):
                t = self.types.resolve(node, wildcard=True)
                if isinstance(t, ty.VoidType | ty.ParserType | ty.ControlType | ty.PackageType | ty.TableType):
                    self.run.error(node.pos, f"{t} cannot be a type argument of {what}")
                    t = ty.UNKNOWN
                if not isinstance(t, ty.DontCareType):
                    outer[var] = t
                    del env[var]
        full = self.bind(e, decl.params, what, env, constants=not getattr(decl, "body", None), outer=outer)
        if want is not None and any(isinstance(t, ty.UnknownType) for t in env.values()):
            self.coercion.unify(ty.substitute(result, outer), want, env)
        if full:
            for var, t in env.items():
                if isinstance(t, ty.UnknownType):
                    self.run.error(e.pos, f"cannot infer type {var} of {what}: give it, as in {decl.name}<bit<8>>(...)")
                elif is_or_holds_int(t) and not isinstance(result, ty.VoidType) and result == var:
                    self.run.error(e.pos, f"cannot infer the width of {var} of {what}: give numbers a width, as in 8w1")
                    env[var] = ty.UNKNOWN
                elif isinstance(t, ty.AnonStructType):
                    self.run.error(
                        e.pos, f"cannot infer type {var} of {what}: say which struct it is, as in (S){{...}}"
                    )
        e.types = tuple(outer[v] if v in outer else env[v] for v in variables)
        e.type = ty.substitute(ty.substitute(result, outer), env)

    def _specialise(self, e: ast.Call, decl: ast.FunctionDecl) -> None:
        """Make the instance of a generic function, once for each choice of types."""
        if any(isinstance(t, ty.UnknownType) for t in e.types):
            return
        if id(decl) in self.run.in_progress:
            self.run.error(e.pos, f"recursion: '{decl.name}' cannot call itself")
            return
        key = (id(decl), e.types)
        made = self.run.specialised.get(key)
        if made is None:
            if len(self.run.specialised) > 500:
                raise self.run.reporter.fatal(e.pos, "more than 500 instances of generic functions")
            made = ast.clone(self.run.pristine[id(decl)])
            assert isinstance(made, ast.FunctionDecl)
            self.run.specialised[key] = made
            aliases = [
                ast.TypedefDecl(p.pos, p.name, ast.BaseTypeNode(p.pos, "_", type=t), type=t)
                for p, t in zip(decl.type_params, e.types, strict=True)
            ]
            made.type_params = []
            self.run.in_progress.add(id(decl))
            self.bodies.check_function(made, aliases)
            self.run.in_progress.discard(id(decl))
        e.target = made
        for a, p in zip(e.args, made.params, strict=True):
            a.param = p

    def _fold_call(self, e: ast.Call) -> None:
        if e.method == "static_assert" and e.kind is CallKind.EXTERN_FUNCTION and e.args:
            cond = e.args[0].expr
            message = e.args[1].expr.const if len(e.args) > 1 and e.args[1].expr is not None else None
            if cond is not None and cond.const is False:
                self.run.error(e.pos, "static_assert failed" + (f": {message}" if message else ""))
            if cond is not None and cond.const is True:
                e.const = True

    # -- methods

    def _method_call(self, e: ast.Call, func: ast.Member, want: Type | None) -> ast.Expr:
        e.method = name = func.name
        func.expr = base = self.exprs.named(func.expr, HOLDERS)
        t = base.type
        if isinstance(t, ty.TypeType):
            return self._type_method(e, func, t.of)
        t = ty.strip_newtypes(t or ty.UNKNOWN)
        if isinstance(t, ty.UnknownType):
            return e
        func.type = ty.VOID
        if name in _SIZE_METHODS and not isinstance(t, ty.ExternType):
            return self._size_method(e, t)
        if isinstance(t, ty.HeaderType | ty.UnionType) and name in HEADER_METHODS:
            return self._header_method(e, t)
        if isinstance(t, ty.StackType) and name in _STACK_METHODS:
            return self._stack_method(e, base)
        if isinstance(t, ty.TableType) and name == "apply":
            return self._table_apply(e, t)
        if isinstance(t, ty.ParserType | ty.ControlType) and name == "apply":
            return self._block_apply(e, t)
        if isinstance(t, ty.ExternType) and isinstance(t.decl, ast.ExternDecl):
            return self._extern_method(e, t, t.decl, want)
        is_result = isinstance(t, ty.ApplyResultType) and name in APPLY_RESULTS
        hint = f"; it is a field: write {name} without ()" if is_result else ""
        self.run.error(func.name_pos, f"{show(base.type)} has no method '{name}'{hint or advice.method(t, name)}")
        return e

    def _no_arguments(self, e: ast.Call) -> None:
        if e.args:
            self.run.error(e.pos, f"'{e.method}' takes no arguments")

    def _size_method(self, e: ast.Call, t: Type) -> ast.Expr:
        self._no_arguments(e)
        e.kind = CallKind.SIZE_METHOD
        largest, unit = _SIZE_METHODS[e.method]
        bits = ty.max_width_bits(t) if largest else ty.min_width_bits(t)
        if bits is None:
            self.run.error(e.pos, f"{show(t)} has no size")
            return e
        e.type = ty.INT
        e.const = -(-bits // unit)
        return e

    def _header_method(self, e: ast.Call, t: Type) -> ast.Expr:
        self._no_arguments(e)
        e.kind = CallKind.HEADER_METHOD
        receiver = e.receiver
        assert receiver is not None
        if e.method != "isValid":
            if isinstance(t, ty.UnionType):
                self.run.error(e.pos, f"a header union has no '{e.method}': call it on a member")
            elif not is_lvalue(receiver):
                self.run.error(e.pos, f"'{e.method}' needs a header that can be written")
        e.type = HEADER_METHODS[e.method]
        return e

    def _stack_method(self, e: ast.Call, base: ast.Expr) -> ast.Expr:
        e.kind = CallKind.STACK_METHOD
        e.type = ty.VOID
        if not is_lvalue(base):
            self.run.error(e.pos, f"'{e.method}' needs a stack that can be written")
        if len(e.args) != 1 or e.args[0].expr is None:
            self.run.error(e.pos, f"'{e.method}' takes one argument, the number of elements")
            return e
        e.args[0].expr, count = self.exprs.constant(e.args[0].expr, f"the argument of {e.method}")
        if count is not None and count < 0:
            self.run.error(e.args[0].pos, f"the argument of {e.method} is negative")
        return e

    def _table_apply(self, e: ast.Call, t: ty.TableType) -> ast.Expr:
        self._no_arguments(e)
        e.kind, e.target = CallKind.TABLE_APPLY, ast.declaration_of(t)
        e.type = ty.ApplyResultType(t.decl)
        if self.run.context.kind not in ("apply", "table"):
            self.run.error(e.pos, only_in_apply(t.name))
        return e

    def _block_apply(self, e: ast.Call, t: ty.Nominal) -> ast.Expr:
        decl = t.decl
        assert isinstance(decl, ast.ParserDecl | ast.ControlDecl)
        is_parser = isinstance(decl, ast.ParserDecl)
        e.kind, e.target = (CallKind.PARSER_APPLY if is_parser else CallKind.CONTROL_APPLY), decl
        if is_parser and self.run.context.kind != "state":
            self.run.error(e.pos, f"parser '{decl.name}' can be applied in parser states only")
        elif not is_parser and self.run.context.kind != "apply":
            self.run.error(e.pos, f"control '{decl.name}' can be applied in the apply block of a control only")
        env = type_env(decl.type_params, t.args)
        self.bind(e, decl.params, f"'{decl.name}'", {}, constants=False, outer=env)
        e.type = ty.VOID
        return e

    def _type_method(self, e: ast.Call, func: ast.Member, t: Type) -> ast.Expr:
        if isinstance(t, ty.UnknownType):
            return e
        func.type = ty.VOID
        if func.name in _SIZE_METHODS:
            return self._size_method(e, t)
        if func.name != "apply" or not isinstance(t, ty.ParserType | ty.ControlType):
            self.run.error(func.name_pos, f"type {t} has no method '{func.name}'")
            return e
        # T.apply(): an instance without a name of its own.
        assert isinstance(func.expr, ast.TypeExpr)
        node = func.expr.node
        name = f"{t.name}_inst" + (f"_{len(self.run.hoisted)}" if self.run.hoisted else "")
        note = ast.Annotation(e.pos, "name", f'"{t.name}"', tokens=[f'"{t.name}"'], args=[t.name])
        inst = ast.Instantiation(e.pos, name, node, [], annotations=[note])
        self.bodies.check_instantiation(inst)
        self.run.hoisted.append(inst)
        func.expr = ast.Name(e.pos, name, type=inst.type, decl=inst, const=inst.instance)
        if isinstance(inst.type, ty.ParserType | ty.ControlType):
            return self._block_apply(e, inst.type)
        return e

    def _extern_method(self, e: ast.Call, t: ty.ExternType, decl: ast.ExternDecl, want: Type | None) -> ast.Expr:
        candidates = [m for m in decl.methods if m.name == e.method and m.result is not None]
        if not candidates:
            hint = closest(e.method, [m.name for m in decl.methods if m.result is not None])
            at = e.func.name_pos if isinstance(e.func, ast.Member) else e.pos
            self.run.error(at, f"extern '{decl.name}' has no method '{e.method}'{hint}")
            return e
        method = self._pick(e, candidates)
        if method is None:
            return e
        assert isinstance(method, ast.Method)
        e.kind = CallKind.ABSTRACT_METHOD if method.abstract else CallKind.EXTERN_METHOD
        self._call_function(e, method, type_env(decl.type_params, t.args), want)
        if not self.run.reporter.failed:
            typenames.check_extern_method(self.run, e, decl.name)
        return e

    # -- constructors

    def _constructor(self, e: ast.Call, func: ast.TypeExpr) -> ast.Expr:  # noqa: C901 - a branch per kind of argument
        t = self.types.resolve(func.node, generic_ok=True)
        func.type = ty.TypeType(t)
        e.kind = CallKind.CONSTRUCTOR
        if isinstance(t, ty.UnknownType):
            return e
        if not isinstance(t, ty.Nominal):
            self.run.error(e.pos, f"type {t} has no constructor")
            return e
        decl = ast.declaration_of(t)
        e.target, e.method = decl, decl.name
        params: Sequence[ast.Param]
        if isinstance(decl, ast.ExternDecl):
            constructors = decl.constructors()
            if not self.naming and any(m.abstract for m in decl.methods):
                self.run.error(
                    e.pos, f"extern '{decl.name}' has abstract methods: instantiate it in a declaration of its own"
                )
            if not constructors and not e.args:
                params = []
            elif not constructors:
                self.run.error(e.pos, f"extern '{decl.name}' has no constructor")
                return e
            else:
                picked = self._pick(e, constructors)
                if picked is None:
                    return e
                params = picked.params
        elif isinstance(decl, ast.ParserDecl | ast.ControlDecl):
            if decl.is_prototype:
                self.run.error(e.pos, f"'{decl.name}' is only the type of a parser or control: nothing to instantiate")
                return e
            if id(decl) in self.run.in_progress:
                self.run.error(e.pos, f"recursion: '{decl.name}' cannot instantiate itself")
                return e
            params = decl.ctor_params
        elif isinstance(decl, ast.PackageDecl):
            params = decl.params
        else:
            self.run.error(e.pos, f"type {t} has no constructor")
            return e
        type_params = decl.type_params
        explicit = bool(t.args) and t.args != tuple(p.var for p in type_params)
        env: dict[ty.TypeVar, Type] = {}
        outer: dict[ty.TypeVar, Type] = {}
        if explicit:
            outer = {v: a for v, a in type_env(type_params, t.args).items() if not isinstance(a, ty.DontCareType)}
            env = {v: ty.UNKNOWN for v in type_env(type_params, t.args) if v not in outer}
        else:
            env = {p.var: ty.UNKNOWN for p in type_params if p.var is not None}
        if not self.bind(e, params, f"the constructor of '{decl.name}'", env, constants=True, outer=outer):
            return e
        for var, found in env.items():
            if isinstance(found, ty.UnknownType) and not isinstance(decl, ast.PackageDecl):
                self.run.error(
                    e.pos, f"cannot infer type {var} of '{decl.name}': give it, as in {decl.name}<bit<8>>(...)"
                )
        env.update(outer)
        e.types = tuple(env[p.var] for p in type_params if p.var is not None)
        e.type = ty.substitute(decl.type or ty.UNKNOWN, env)
        if not self.run.reporter.failed:
            e.const = constfold.instance_value(e)
        return e

    # -- arguments

    def bind(
        self,
        e: ast.Call,
        params: Sequence[ast.Param],
        what: str,
        env: dict[ty.TypeVar, Type],
        *,
        constants: bool,
        outer: dict[ty.TypeVar, Type] | None = None,
    ) -> bool:
        """Put `e.args` into the order of `params`, check them and fill `env`; return whether the arguments fit.

        `constants`: parameters without direction take compile-time values.
        """
        args = self.arrange(e.args, params, what, e.pos)
        if args is None:
            e.type = ty.UNKNOWN
            return False
        formals = [ty.substitute(p.type or ty.UNKNOWN, outer or {}) for p in params]
        ok = True
        for a, p, formal in zip(args, params, formals, strict=True):
            if a.expr is None:
                continue
            want = ty.substitute(formal, {v: t for v, t in env.items() if not isinstance(t, ty.UnknownType)})
            a.expr = self.argument(a.expr, p, None if _open(want, env) else want)
            if isinstance(formal, ty.TypeVar) and isinstance(
                a.expr.type, ty.ParserType | ty.ControlType | ty.TableType
            ):
                self.run.error(a.expr.pos, f"a {show(a.expr.type)} cannot be an argument")
                ok = False
            elif not self.coercion.unify(formal, a.expr.type or ty.UNKNOWN, env):
                shown = ty.substitute(want, env)
                self.run.error(
                    a.expr.pos,
                    f"argument '{p.name}' of {what} is a {show(a.expr.type)}, not {show(shown)}{advice.text(a.expr)}",
                )
                ok = False
        if not ok:
            e.type = ty.UNKNOWN
            return False
        for a, p, formal in zip(args, params, formals, strict=True):
            if a.expr is not None:
                self._settle(a, p, ty.substitute(formal, env), what, constants)
        e.args = args
        return True

    def argument(self, expr: ast.Expr, p: ast.Param, want: Type | None) -> ast.Expr:
        """Check an argument before its type is settled."""
        if isinstance(expr, ast.DontCare):
            expr.type = ty.DONT_CARE
            return expr
        if isinstance(want, ty.ParserType | ty.ControlType | ty.ExternType | ty.PackageType):
            return self.exprs.expr(expr, want)
        return self.exprs.value(expr, want)

    def _settle(self, a: ast.Arg, p: ast.Param, t: Type, what: str, constants: bool) -> None:
        expr = a.expr
        assert expr is not None
        if isinstance(expr, ast.DontCare):
            if p.direction != "out" and p.direction:
                self.run.error(
                    expr.pos, f"'_' can be given to an out parameter only; '{p.name}' of {what} is {p.direction}"
                )
            elif not p.direction:
                self.run.error(expr.pos, f"'_' can be given to an out parameter only, not to '{p.name}' of {what}")
            expr.type = t
            return
        if isinstance(t, ty.ParserType | ty.ControlType):
            return
        if p.direction in ("out", "inout"):
            if isinstance(expr.type, ty.UnknownType):
                return
            if not is_lvalue(expr):
                self.run.error(
                    expr.pos, f"'{p.name}' of {what} is {p.direction}: the argument must be something to write to"
                )
            elif expr.type != t and not isinstance(t, ty.UnknownType):
                self.run.error(expr.pos, f"argument '{p.name}' of {what} is a {show(expr.type)}, not {show(t)}")
            return
        a.expr = expr = self.coercion.coerce(expr, t, f"argument '{p.name}' of {what}")
        if isinstance(expr.type, ty.UnknownType):
            return
        if p.direction == "in" and is_or_holds_int(expr.type or ty.UNKNOWN) and p.type != ty.INT:
            self.run.error(expr.pos, f"argument '{p.name}' of {what} has no width: give one, as in 16w1")
        if not p.direction and constants and not compile_time(expr):
            self.run.error(expr.pos, f"argument '{p.name}' of {what} must be a compile-time constant")

    def arrange(self, given: list[ast.Arg], params: Sequence[ast.Param], what: str, pos: Pos) -> list[ast.Arg] | None:
        """Return arguments in the order of parameters, defaults put in; None (reported) when they do not fit."""
        by_name: dict[str, ast.Arg] = {}
        for place, a in enumerate(given):
            a.place = place
        named = [a for a in given if a.name is not None]
        if named and len(named) != len(given):
            self.run.error(pos, f"arguments of {what}: give either all by name or none")
            return None
        if len(given) > len(params):
            self.run.error(pos, f"{what} takes {len(params)} arguments, not {len(given)}")
            return None
        if named:
            known = {p.name for p in params}
            for a in named:
                assert a.name is not None
                if a.name not in known:
                    self.run.error(a.pos, f"{what} has no parameter '{a.name}'{closest(a.name, sorted(known))}")
                    return None
                if a.name in by_name:
                    self.run.error(a.pos, f"argument '{a.name}' is given twice")
                    return None
                by_name[a.name] = a
        else:
            by_name = {p.name: a for p, a in zip(params, given, strict=False)}
        out: list[ast.Arg] = []
        for p in params:
            arg = by_name.get(p.name)
            if arg is None:
                if p.default is not None:
                    arg = ast.Arg(pos, ast.clone(p.default), place=len(params))
                elif p.optional:
                    arg = ast.Arg(pos, None, place=len(params))
                else:
                    self.run.error(pos, f"no argument for parameter '{p.name}' of {what}")
                    return None
            arg.param = p
            out.append(arg)
        return out


def _open(t: Type, env: dict[ty.TypeVar, Type]) -> bool:
    """Return whether `t` has a type variable that is still unknown."""
    if isinstance(t, ty.TypeVar):
        return t in env
    if isinstance(t, ty.TupleType):
        return any(_open(i, env) for i in t.items)
    if isinstance(t, ty.Nominal):
        return any(_open(a, env) for a in t.args)
    if isinstance(t, ty.ListType | ty.StackType | ty.SetType):
        return _open(t.element, env)
    return False


def _accepts(params: Sequence[ast.Param], args: Sequence[ast.Arg]) -> bool:
    """Return whether the arguments fit in number and names."""
    if len(args) > len(params):
        return False
    names = {a.name for a in args if a.name is not None}
    if names:
        given = names
        if not names <= {p.name for p in params}:
            return False
    else:
        given = {p.name for p in params[: len(args)]}
    return all(p.name in given or p.default is not None or p.optional for p in params)
