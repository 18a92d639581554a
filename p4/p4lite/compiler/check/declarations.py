"""Declarations (specification §§7, 10, 11, 13, 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.check.scope import Scope
from p4lite.compiler.check.tables import Tables
from p4lite.compiler.types import Type


class Declarations(Tables):
    """`declaration` checks one top-level declaration."""

    def declaration(self, d: ast.Declaration) -> None:
        _HANDLERS[type(d)](self, d)

    # -- types

    def typedef(self, d: ast.TypedefDecl) -> None:
        t = self.resolve(d.target)
        if not d.distinct:
            d.type = t
        else:
            core = ty.strip_newtypes(t)
            if not isinstance(core, ty.BitType | ty.BoolType | ty.UnknownType | ty.SerEnumType):
                self.error(d.target.pos, f"'type' is defined on bit<>, int<> and bool only, not on {t}")
            d.type = ty.NewType(d, (), t)
        self.declare(d)

    def struct(self, d: ast.StructDecl) -> None:
        self.declare(d)
        self.in_progress.add(id(d))
        fields: dict[str, Type] = {}
        with self.inner():
            args = self.declare_type_params(d.type_params)
            for f in d.fields:
                f.type = self.resolve(f.type_node)
                self.check_component(f.pos, f.type, d.kind)
                if f.name in fields:
                    self.error(f.pos, f"{d.kind} '{d.name}' has a second field '{f.name}'")
                fields[f.name] = f.type
        self.in_progress.discard(id(d))
        kind = {"header": ty.HeaderType, "struct": ty.StructType, "header_union": ty.UnionType}[d.kind]
        if d.kind == "header":
            varbits = [f for f in d.fields if isinstance(f.type, ty.VarbitType)]
            if len(varbits) > 1:
                self.error(varbits[1].pos, f"header '{d.name}' has more than one varbit field")
        d.type = kind(d, args, fields)

    def enum(self, d: ast.EnumDecl) -> None:
        names = [m.name for m in d.members]
        for i, m in enumerate(d.members):
            if m.name in names[:i]:
                self.error(m.pos, f"enum '{d.name}' has a second member '{m.name}'")
        if not d.members:
            self.error(d.pos, f"enum '{d.name}' has no members")
        if d.base is None:
            for m in d.members:
                m.const = ast.EnumValue(d.name, m.name)
                if m.value is not None:
                    self.error(
                        m.value.pos, f"enum '{d.name}' needs a base type for values: enum bit<8> {d.name} {{ ... }}"
                    )
            d.type = ty.EnumType(d, (), tuple(names))
            self.declare(d)
            return
        base = self.resolve(d.base)
        if not isinstance(base, ty.BitType):
            if not isinstance(base, ty.UnknownType):
                self.error(d.base.pos, f"the base of an enum must be bit<> or int<>, not {base}")
            base = ty.bit(32)
        values: dict[str, int] = {}
        # Members may use those before them.
        d.type = ty.SerEnumType(d, (), base, values)
        self.declare(d)
        for m in d.members:
            if m.value is None:
                self.error(m.pos, f"member '{m.name}' of a serializable enum needs a value: {m.name} = ...")
                values[m.name] = 0
                continue
            m.value = self.value(m.value, base)
            given = m.value.const
            if isinstance(m.value.type, ty.IntType) and isinstance(given, int) and not constfold.in_range(given, base):
                self.error(m.value.pos, f"the value {given} of member '{m.name}' does not fit in {base}")
                values[m.name] = 0
                continue
            m.value = self.coerce(m.value, base, f"member '{m.name}'")
            if isinstance(m.value.type, ty.UnknownType):
                values[m.name] = 0
            elif not isinstance(m.value.const, int):
                self.error(m.value.pos, f"the value of member '{m.name}' must be a compile-time constant")
                values[m.name] = 0
            else:
                values[m.name] = m.value.const
            m.const = values[m.name]

    def error_decl(self, d: ast.ErrorDecl) -> None:
        for m in d.members:
            if m.name in self.errors:
                self.error(m.pos, f"error '{m.name}' is already declared at {self.errors[m.name].pos}")
            self.errors.setdefault(m.name, m)
            m.const = ast.ErrorValue(m.name)

    def match_kind(self, d: ast.MatchKindDecl) -> None:
        for m in d.members:
            if m.name in self.match_kinds:
                self.error(m.pos, f"match_kind '{m.name}' is already declared at {self.match_kinds[m.name].pos}")
            self.match_kinds.setdefault(m.name, m)
            m.const = ast.EnumValue("match_kind", m.name)

    # -- parameters

    def params(self, params: Sequence[ast.Param], where: str) -> None:
        """Checks parameters and declares them; `where`: "function", "action", "parser", "constructor", ..."""
        directionless = True
        for p in params:
            p.type = self.resolve(p.type_node)
            self._param_type(p, where)
            if where == "action":
                if not p.direction:
                    directionless = False
                elif not directionless:
                    self.error(p.pos, f"parameter '{p.name}': those with a direction come before those without")
            if p.direction and where == "constructor":
                self.error(p.pos, f"constructor parameter '{p.name}' cannot have a direction")
            if p.optional and where in ("function", "action"):
                self.error(p.pos, f"parameter '{p.name}' of a {where} cannot be @optional")
            if p.default is not None:
                if p.direction in ("out", "inout"):
                    self.error(p.default.pos, f"'{p.direction}' parameter '{p.name}' cannot have a default value")
                if p.optional:
                    self.error(p.pos, f"parameter '{p.name}' is @optional and has a default value")
                p.default = self.coerce(self.value(p.default, p.type), p.type, f"default of '{p.name}'")
                if not isinstance(p.default.type, ty.UnknownType) and not self._compile_time(p.default):
                    self.error(p.default.pos, f"the default of '{p.name}' must be a compile-time constant")
            self.declare(p)

    def _param_type(self, p: ast.Param, where: str) -> None:
        t = ty.strip_newtypes(p.type or ty.UNKNOWN)
        if isinstance(t, ty.VoidType | ty.SetType):
            self.error(p.pos, f"parameter '{p.name}' cannot have type {t}")
        elif isinstance(t, ty.ExternType | ty.ParserType | ty.ControlType | ty.PackageType):
            if p.direction:
                self.error(p.pos, f"parameter '{p.name}' of type {t} cannot have a direction")
            elif where == "action":
                self.error(p.pos, f"parameter '{p.name}' of an action cannot have type {t}")
            elif isinstance(t, ty.ParserType | ty.ControlType | ty.PackageType) and where in ("parser", "control"):
                self.error(p.pos, f"parameter '{p.name}' cannot have type {t}: make it a constructor parameter")
        elif isinstance(t, ty.IntType) and where == "action":
            self.error(p.pos, f"parameter '{p.name}' of an action needs a width: bit<> or int<>")
        elif isinstance(t, ty.StringType) and p.direction:
            self.error(p.pos, f"parameter '{p.name}' of type string cannot have a direction")
        elif (
            where == "action"
            and not p.direction
            and not isinstance(
                t, ty.BitType | ty.BoolType | ty.SerEnumType | ty.ErrorType | ty.EnumType | ty.UnknownType
            )
        ):
            self.error(p.pos, f"parameter '{p.name}': the control plane cannot give a {t}; split it into numbers")
        elif isinstance(t, ty.IntType) and p.direction and where != "extern":
            self.error(p.pos, f"parameter '{p.name}' with a direction cannot have type {t}")

    # -- functions, externs, actions

    def function(self, d: ast.FunctionDecl) -> None:
        if d.body is not None and d.type_params:
            self.pristine[id(d)] = ast.clone(d)
            with self.inner("function"):
                self.declare_type_params(d.type_params)
                self.resolve(d.result)
                self.params(d.params, "function")
            self.declare(d)
            return
        if d.body is None:
            with self.inner():
                self.declare_type_params(d.type_params)
                self.resolve(d.result)
                self.params(d.params, "extern")
            self.declare(d)
            return
        self.check_function(d)
        self.declare(d)

    def check_function(self, decl: ast.FunctionDecl, aliases: Sequence[ast.Declaration] = ()) -> None:
        # A generic function is checked from its call: its names are those of the program, not those of the caller.
        scope, self.scope = self.scope, self.scope.root() if aliases else self.scope
        self.open.append(decl.name)
        with self.inner("function", loops=0, owner=None):
            for a in aliases:
                self.declare(a)
            result = self.resolve(decl.result)
            if isinstance(result, ty.IntType | ty.ExternType | ty.ParserType | ty.ControlType | ty.PackageType):
                self.error(decl.result.pos, f"function '{decl.name}' cannot return {result}")
            with self.inner(result=result):
                self.params(decl.params, "function")
                assert decl.body is not None
                self.block(decl.body)
            if not isinstance(result, ty.VoidType | ty.UnknownType) and not returns(decl.body):
                self.error(decl.pos, f"function '{decl.name}' can end without a 'return' of a {result}")
        self.scope = scope
        self.open.pop()

    def extern(self, d: ast.ExternDecl) -> None:
        if d.type is None:
            self.declare(d)
        with self.inner():
            args = self.declare_type_params(d.type_params)
            d.type = ty.ExternType(d, args)
            seen: list[ast.Method] = []
            for m in d.methods:
                if m.result is None and m.name != d.name:
                    self.error(m.pos, f"method '{m.name}' has no result type")
                elif m.result is not None and m.name == d.name:
                    self.error(m.pos, f"the constructor of '{d.name}' cannot have a result type")
                for other in seen:
                    if other.name == m.name and [p.name for p in other.params] == [p.name for p in m.params]:
                        self.error(m.pos, f"method '{m.name}' with these parameters is already declared at {other.pos}")
                seen.append(m)
                with self.inner():
                    self.declare_type_params(m.type_params)
                    if m.result is not None:
                        self.resolve(m.result)
                    self.params(m.params, "extern" if m.result is not None else "constructor")

    def action(self, d: ast.ActionDecl) -> None:
        d.type = ty.ActionType(d)
        self.open.append(d.name)
        with self.inner("action", loops=0, result=None):
            self.params(d.params, "action")
            self.block(d.body)
        self.open.pop()
        self.declare(d)

    def package(self, d: ast.PackageDecl) -> None:
        with self.inner():
            args = self.declare_type_params(d.type_params)
            self.params(d.params, "package")
        d.type = ty.PackageType(d, args)
        self.declare(d)

    # -- parsers and controls

    def parser(self, d: ast.ParserDecl) -> None:
        with self.inner("parser", owner=d):
            args = self.declare_type_params(d.type_params)
            if args and not d.is_prototype:
                self.error(d.pos, f"parser '{d.name}' has a body and so cannot have type parameters")
            self.params(d.params, "parser")
            self.params(d.ctor_params, "constructor")
            d.type = ty.ParserType(d, args)
            if d.states is not None:
                self.in_progress.add(id(d))
                self.scope.parent = self._own(d)
                outer, self.hoisted = self.hoisted, []
                with self.inner():
                    for local in d.locals:
                        self.local(local)
                    self._states(d, d.states)
                d.locals.extend(self.hoisted)
                self.hoisted = outer
                self.in_progress.discard(id(d))
        self.declare(d)

    def _own(self, d: ast.Declaration) -> Scope:
        """The enclosing scope, with `d` itself in it, so that a use inside is told apart from an unknown name."""
        own = Scope(self.scope.parent)
        own.names[d.name] = [d]
        return own

    def _states(self, d: ast.ParserDecl, states: list[ast.ParserState]) -> None:
        by_name: dict[str, ast.ParserState] = {}
        for s in states:
            if s.name in ("accept", "reject"):
                self.error(s.pos, f"state '{s.name}' is built in and cannot be declared")
            elif s.name in by_name:
                self.error(s.pos, f"duplicate state '{s.name}' in parser '{d.name}' (first at {by_name[s.name].pos})")
            else:
                by_name[s.name] = s
        if "start" not in by_name:
            self.error(d.pos, f"parser '{d.name}' has no state 'start'")
        for s in states:
            self.state(s, by_name)

    def local(self, d: ast.Declaration) -> None:
        """A declaration inside a parser or control."""
        if isinstance(d, ast.TableDecl):
            self.table(d)
        elif isinstance(d, ast.ActionDecl):
            self.action(d)
        elif isinstance(d, ast.ValueSetDecl):
            self.value_set(d)
        else:
            self.stmt(d)

    def _control_plane_names(self, d: ast.ParserDecl | ast.ControlDecl) -> None:
        """Two objects of a kind must not have one name for the control plane, which @name gives."""
        seen: dict[tuple[type, str], ast.Declaration] = {}
        for local in d.locals:
            if not isinstance(local, ast.TableDecl | ast.ActionDecl):
                continue
            note = local.annotation("name")
            name = str(note.args[0]) if note is not None and note.args else local.name
            other = seen.setdefault((type(local), name), local)
            if other is not local and other.name != local.name:
                self.error(local.pos, f"control-plane name '{name}' is already that of '{other.name}' at {other.pos}")

    def value_set(self, d: ast.ValueSetDecl) -> None:
        element = self.resolve(d.element)
        d.size = self.value(d.size)
        if not isinstance(d.size.type, ty.UnknownType) and not self._compile_time(d.size):
            self.error(d.size.pos, "the size of a value set must be a compile-time constant")
        d.type = ty.SetType(element)
        self.declare(d)

    def control(self, d: ast.ControlDecl) -> None:
        with self.inner("control", owner=d):
            args = self.declare_type_params(d.type_params)
            if args and not d.is_prototype:
                self.error(d.pos, f"control '{d.name}' has a body and so cannot have type parameters")
            self.params(d.params, "control")
            self.params(d.ctor_params, "constructor")
            d.type = ty.ControlType(d, args)
            if d.body is not None:
                self.in_progress.add(id(d))
                self.scope.parent = self._own(d)
                outer, self.hoisted = self.hoisted, []
                with self.inner():
                    for local in d.locals:
                        self.local(local)
                    with self.inner("apply"):
                        self.stmts(d.body.stmts)
                self._control_plane_names(d)
                d.locals.extend(self.hoisted)
                self.hoisted = outer
                self.in_progress.discard(id(d))
        self.declare(d)

    # -- instances

    def top_instance(self, d: ast.Instantiation) -> None:
        self.check_instantiation(d)
        if isinstance(d.type, ty.ParserType | ty.ControlType):
            self.error(d.pos, f"'{d.type}' cannot be instantiated outside of a parser or control")
        self.declare(d)

    def check_instantiation(self, inst: ast.Instantiation) -> None:
        call = ast.Call(inst.type_node.pos, ast.TypeExpr(inst.type_node.pos, inst.type_node), inst.args)
        outer, self.naming = self.naming, True
        done = self.expr(call)
        self.naming = outer
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
            env = self.type_env(t.decl.type_params, t.args)
        given: set[str] = set()
        with self.inner("function", this=t):
            for member in d.body:
                if isinstance(member, ast.Instantiation):
                    self.check_instantiation(member)
                    self.declare(member)
                    continue
                if not isinstance(member, ast.FunctionDecl) or member.name not in abstract:
                    self.error(member.pos, f"'{t}' has no abstract method '{member.name}'")
                    continue
                given.add(member.name)
                self.check_function(member)
                wanted = abstract[member.name]
                same = len(wanted.params) == len(member.params) and all(
                    w.direction == m.direction and ty.substitute(w.type or ty.UNKNOWN, env) == m.type
                    for w, m in zip(wanted.params, member.params, strict=True)
                )
                if not same:
                    self.error(member.pos, f"method '{member.name}' has other parameters than at {wanted.pos}")
        missing = [n for n in abstract if n not in given]
        if missing:
            self.error(d.pos, f"abstract method '{missing[0]}' of '{t}' is not implemented")


def returns(s: ast.Stmt | None) -> bool:
    """Whether every way through `s` ends in a return (or exit)."""
    if isinstance(s, ast.Return | ast.Exit):
        return True
    if isinstance(s, ast.Block):
        return any(returns(x) for x in s.stmts)
    if isinstance(s, ast.If):
        return s.other is not None and returns(s.then) and returns(s.other)
    if isinstance(s, ast.Switch):
        bodies = [c.body for c in s.cases if c.body is not None]
        return any(c.is_default for c in s.cases) and all(returns(b) for b in bodies)
    return False


def main_instance(scope_names: Sequence[ast.Declaration]) -> ast.Instance | None:
    """The package instance among the declarations named `main`."""
    for d in scope_names:
        if isinstance(d, ast.Instantiation) and d.instance is not None:
            return d.instance
    return None


_HANDLERS: dict[type[ast.Node], Callable[..., Any]] = {
    ast.TypedefDecl: Declarations.typedef,
    ast.StructDecl: Declarations.struct,
    ast.EnumDecl: Declarations.enum,
    ast.ErrorDecl: Declarations.error_decl,
    ast.MatchKindDecl: Declarations.match_kind,
    ast.FunctionDecl: Declarations.function,
    ast.ExternDecl: Declarations.extern,
    ast.ActionDecl: Declarations.action,
    ast.PackageDecl: Declarations.package,
    ast.ParserDecl: Declarations.parser,
    ast.ControlDecl: Declarations.control,
    ast.Instantiation: Declarations.top_instance,
    ast.ConstDecl: Declarations.const_decl,
}
