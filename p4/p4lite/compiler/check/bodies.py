"""Parameters and bodies: functions, externs, actions, packages, and what instances implement."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check.calls import CallChecker
from p4lite.compiler.check.coerce import Coercion
from p4lite.compiler.check.constants import compile_time
from p4lite.compiler.check.expressions import ExpressionChecker
from p4lite.compiler.check.scope import Run
from p4lite.compiler.check.statements import StatementChecker
from p4lite.compiler.check.typenames import type_env


class Bodies:
    """Checks declarations with parameters and a body that runs when they are called."""

    def __init__(
        self, run: Run, exprs: ExpressionChecker, coercion: Coercion, calls: CallChecker, statements: StatementChecker
    ) -> None:
        self.run = run
        self.exprs = exprs
        self.types = exprs.types
        self.coercion = coercion
        self.calls = calls
        self.statements = statements

    def params(self, params: Sequence[ast.Param], where: str) -> None:
        """Check parameters and declare them; `where`: "function", "action", "parser", "constructor", ..."""
        directionless = True
        for p in params:
            p.type = self.types.resolve(p.type_node)
            self._param_type(p, where)
            if where == "action":
                if not p.direction:
                    directionless = False
                elif not directionless:
                    self.run.error(p.pos, f"parameter '{p.name}': those with a direction come before those without")
            if p.direction and where == "constructor":
                self.run.error(p.pos, f"constructor parameter '{p.name}' cannot have a direction")
            if p.optional and where in ("function", "action"):
                self.run.error(p.pos, f"parameter '{p.name}' of a {where} cannot be @optional")
            if p.default is not None:
                if p.direction in ("out", "inout"):
                    self.run.error(p.default.pos, f"'{p.direction}' parameter '{p.name}' cannot have a default value")
                if p.optional:
                    self.run.error(p.pos, f"parameter '{p.name}' is @optional and has a default value")
                p.default = self.coercion.coerce(self.exprs.value(p.default, p.type), p.type, f"default of '{p.name}'")
                if not isinstance(p.default.type, ty.UnknownType) and not compile_time(p.default):
                    self.run.error(p.default.pos, f"the default of '{p.name}' must be a compile-time constant")
            self.run.declare(p)

    def _param_type(self, p: ast.Param, where: str) -> None:
        t = ty.strip_newtypes(p.type or ty.UNKNOWN)
        if isinstance(t, ty.VoidType | ty.SetType):
            self.run.error(p.pos, f"parameter '{p.name}' cannot have type {t}")
        elif isinstance(t, ty.ExternType | ty.ParserType | ty.ControlType | ty.PackageType):
            if p.direction:
                self.run.error(p.pos, f"parameter '{p.name}' of type {t} cannot have a direction")
            elif where == "action":
                self.run.error(p.pos, f"parameter '{p.name}' of an action cannot have type {t}")
            elif isinstance(t, ty.ParserType | ty.ControlType | ty.PackageType) and where in ("parser", "control"):
                self.run.error(p.pos, f"parameter '{p.name}' cannot have type {t}: make it a constructor parameter")
        elif isinstance(t, ty.IntType) and where == "action":
            self.run.error(p.pos, f"parameter '{p.name}' of an action needs a width: bit<> or int<>")
        elif isinstance(t, ty.StringType) and p.direction:
            self.run.error(p.pos, f"parameter '{p.name}' of type string cannot have a direction")
        elif (
            where == "action"
            and not p.direction
            and not isinstance(
                t, ty.BitType | ty.BoolType | ty.SerEnumType | ty.ErrorType | ty.EnumType | ty.UnknownType
            )
        ):
            self.run.error(p.pos, f"parameter '{p.name}': the control plane cannot give a {t}; split it into numbers")
        elif isinstance(t, ty.IntType) and p.direction and where != "extern":
            self.run.error(p.pos, f"parameter '{p.name}' with a direction cannot have type {t}")

    def function(self, d: ast.FunctionDecl) -> None:
        if d.body is not None and d.type_params:
            self.run.pristine[id(d)] = ast.clone(d)
            with self.run.inner("function"):
                self.types.declare_type_params(d.type_params)
                self.types.resolve(d.result)
                self.params(d.params, "function")
            self._no_comparison_of_type_parameters(d, d.body)
            self.run.declare(d)
            return
        if d.body is None:
            with self.run.inner():
                self.types.declare_type_params(d.type_params)
                self.types.resolve(d.result)
                self.params(d.params, "extern")
            self.run.declare(d)
            return
        self.check_function(d)
        self.run.declare(d)

    def _no_comparison_of_type_parameters(self, d: ast.FunctionDecl, body: ast.Block) -> None:
        """Report == and != of parameters and variables whose type is a type parameter, as p4c does."""
        generic = {p.name for p in d.type_params}
        declared: list[ast.Param | ast.VarDecl] = [
            *d.params,
            *(n for n in ast.walk(body) if isinstance(n, ast.VarDecl)),
        ]
        types = {v.name: v.type_node.name for v in declared if isinstance(v.type_node, ast.NamedTypeNode)}
        for node in ast.walk(body):
            if isinstance(node, ast.Binary) and node.op in ("==", "!="):
                for side in (node.left, node.right):
                    if isinstance(side, ast.Name) and types.get(side.name) in generic:
                        what = f"'{side.name}' has type {types[side.name]}, a type parameter, and cannot be compared"
                        self.run.error(side.pos, f"{what}: compare values of a type that is known")

    def check_function(self, decl: ast.FunctionDecl, aliases: Sequence[ast.Declaration] = ()) -> None:
        # A generic function is checked from its call: its names are those of the program, not those of the caller.
        scope, self.run.scope = self.run.scope, self.run.scope.root() if aliases else self.run.scope
        self.run.open.append(decl.name)
        with self.run.inner("function", loops=0, owner=None):
            for a in aliases:
                self.run.declare(a)
            result = self.types.resolve(decl.result)
            if isinstance(result, ty.IntType | ty.ExternType | ty.ParserType | ty.ControlType | ty.PackageType):
                self.run.error(decl.result.pos, f"function '{decl.name}' cannot return {result}")
            with self.run.inner(result=result):
                self.params(decl.params, "function")
                assert decl.body is not None
                self.statements.block(decl.body)
            if not isinstance(result, ty.VoidType | ty.UnknownType) and not returns(decl.body):
                self.run.error(decl.pos, f"function '{decl.name}' can end without a 'return' of a {result}")
        self.run.scope = scope
        self.run.open.pop()

    def extern(self, d: ast.ExternDecl) -> None:
        if d.type is None:
            self.run.declare(d)
        with self.run.inner():
            args = self.types.declare_type_params(d.type_params)
            d.type = ty.ExternType(d, args)
            seen: list[ast.Method] = []
            for m in d.methods:
                if m.result is None and m.name != d.name:
                    self.run.error(m.pos, f"method '{m.name}' has no result type")
                elif m.result is not None and m.name == d.name:
                    self.run.error(m.pos, f"the constructor of '{d.name}' cannot have a result type")
                for other in seen:
                    if other.name == m.name and [p.name for p in other.params] == [p.name for p in m.params]:
                        self.run.error(
                            m.pos, f"method '{m.name}' with these parameters is already declared at {other.pos}"
                        )
                seen.append(m)
                with self.run.inner():
                    self.types.declare_type_params(m.type_params)
                    if m.result is not None:
                        self.types.resolve(m.result)
                    self.params(m.params, "extern" if m.result is not None else "constructor")

    def action(self, d: ast.ActionDecl) -> None:
        d.type = ty.ActionType(d)
        self.run.open.append(d.name)
        with self.run.inner("action", loops=0, result=None):
            self.params(d.params, "action")
            self.statements.block(d.body)
        self.run.open.pop()
        self.run.declare(d)

    def package(self, d: ast.PackageDecl) -> None:
        with self.run.inner():
            args = self.types.declare_type_params(d.type_params)
            self.params(d.params, "package")
        d.type = ty.PackageType(d, args)
        self.run.declare(d)

    def check_instantiation(self, inst: ast.Instantiation) -> None:
        call = ast.Call(inst.type_node.pos, ast.TypeExpr(inst.type_node.pos, inst.type_node), inst.args)
        outer, self.calls.naming = self.calls.naming, True
        done = self.exprs.expr(call)
        self.calls.naming = outer
        assert isinstance(done, ast.Call)
        inst.call, inst.type, inst.args = done, done.type, done.args
        if isinstance(done.const, ast.Instance):
            done.const.site = inst
            inst.instance = done.const
        if not isinstance(inst.type, ty.UnknownType):
            self._implementations(inst)

    def _implementations(self, d: ast.Instantiation) -> None:
        t = d.type
        abstract: dict[str, ast.Method] = {}
        if isinstance(t, ty.ExternType) and isinstance(t.decl, ast.ExternDecl):
            abstract = {m.name: m for m in t.decl.methods if m.abstract}
            env = type_env(t.decl.type_params, t.args)
        given: set[str] = set()
        with self.run.inner("function", this=t):
            for member in d.body:
                if isinstance(member, ast.Instantiation):
                    self.check_instantiation(member)
                    self.run.declare(member)
                    continue
                if not isinstance(member, ast.FunctionDecl) or member.name not in abstract:
                    self.run.error(member.pos, f"'{t}' has no abstract method '{member.name}'")
                    continue
                given.add(member.name)
                self.check_function(member)
                wanted = abstract[member.name]
                same = len(wanted.params) == len(member.params) and all(
                    w.direction == m.direction and ty.substitute(w.type or ty.UNKNOWN, env) == m.type
                    for w, m in zip(wanted.params, member.params, strict=True)
                )
                if not same:
                    self.run.error(member.pos, f"method '{member.name}' has other parameters than at {wanted.pos}")
        missing = [n for n in abstract if n not in given]
        if missing:
            self.run.error(d.pos, f"abstract method '{missing[0]}' of '{t}' is not implemented")


def returns(s: ast.Stmt | None) -> bool:
    """Return whether every path through `s` ends in a return (or exit)."""
    if isinstance(s, ast.Return | ast.Exit):
        return True
    if isinstance(s, ast.Block):
        return any(returns(x) for x in s.stmts)
    if isinstance(s, ast.If):
        return s.other is not None and returns(s.then) and returns(s.other)
    if isinstance(s, ast.SwitchStmt):
        bodies = [c.body for c in s.cases if c.body is not None]
        return any(c.is_default for c in s.cases) and all(returns(b) for b in bodies)
    return False
