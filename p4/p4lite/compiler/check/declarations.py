"""Declarations (specification §§7, 10, 11, 13, 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.check.bodies import Bodies
from p4lite.compiler.check.coerce import Coercion
from p4lite.compiler.check.constants import compile_time
from p4lite.compiler.check.expressions import ExpressionChecker
from p4lite.compiler.check.scope import Run, Scope
from p4lite.compiler.check.statements import StatementChecker
from p4lite.compiler.check.tables import TableChecker
from p4lite.compiler.types import Type


class Declarations:
    """`declaration` checks one top-level declaration."""

    def __init__(
        self,
        run: Run,
        exprs: ExpressionChecker,
        coercion: Coercion,
        statements: StatementChecker,
        bodies: Bodies,
        tables: TableChecker,
    ) -> None:
        self.run = run
        self.exprs = exprs
        self.coercion = coercion
        self.statements = statements
        self.bodies = bodies
        self.tables = tables
        self.types = exprs.types
        self._handlers: dict[type[ast.Node], Callable[..., None]] = {
            ast.TypedefDecl: self.typedef,
            ast.StructDecl: self.struct,
            ast.EnumDecl: self.enum,
            ast.ErrorDecl: self.error_decl,
            ast.MatchKindDecl: self.match_kind,
            ast.FunctionDecl: bodies.function,
            ast.ExternDecl: bodies.extern,
            ast.ActionDecl: bodies.action,
            ast.PackageDecl: bodies.package,
            ast.ParserDecl: self.parser,
            ast.ControlDecl: self.control,
            ast.Instantiation: self.top_instance,
            ast.ConstDecl: statements.const_decl,
        }

    def declaration(self, d: ast.Declaration) -> None:
        self._handlers[type(d)](d)

    # -- types

    def typedef(self, d: ast.TypedefDecl) -> None:
        t = self.types.resolve(d.target)
        if not d.distinct:
            d.type = t
        else:
            core = ty.strip_newtypes(t)
            if not isinstance(core, ty.BitType | ty.BoolType | ty.UnknownType | ty.SerEnumType):
                self.run.error(d.target.pos, f"'type' is defined on bit<>, int<> and bool only, not on {t}")
            d.type = ty.NewType(d, (), t)
        self.run.declare(d)

    def struct(self, d: ast.StructDecl) -> None:
        self.run.declare(d)
        self.run.in_progress.add(id(d))
        fields: dict[str, Type] = {}
        with self.run.inner():
            args = self.types.declare_type_params(d.type_params)
            for f in d.fields:
                f.type = self.types.resolve(f.type_node)
                self.types.check_component(f.pos, f.type, d.kind)
                if f.name in fields:
                    self.run.error(f.pos, f"{d.kind} '{d.name}' has a second field '{f.name}'")
                fields[f.name] = f.type
        self.run.in_progress.discard(id(d))
        kind = {"header": ty.HeaderType, "struct": ty.StructType, "header_union": ty.UnionType}[d.kind]
        if d.kind == "header":
            varbits = [f for f in d.fields if isinstance(f.type, ty.VarbitType)]
            if len(varbits) > 1:
                self.run.error(varbits[1].pos, f"header '{d.name}' has more than one varbit field")
        d.type = kind(d, args, fields)

    def enum(self, d: ast.EnumDecl) -> None:
        names = [m.name for m in d.members]
        for i, m in enumerate(d.members):
            if m.name in names[:i]:
                self.run.error(m.pos, f"enum '{d.name}' has a second member '{m.name}'")
        if not d.members:
            self.run.error(d.pos, f"enum '{d.name}' has no members")
        if d.base is None:
            for m in d.members:
                m.const = ast.EnumValue(d.name, m.name)
                if m.value is not None:
                    self.run.error(
                        m.value.pos, f"enum '{d.name}' needs a base type for values: enum bit<8> {d.name} {{ ... }}"
                    )
            d.type = ty.EnumType(d, (), tuple(names))
            self.run.declare(d)
            return
        base = self.types.resolve(d.base)
        if not isinstance(base, ty.BitType):
            if not isinstance(base, ty.UnknownType):
                self.run.error(d.base.pos, f"the base of an enum must be bit<> or int<>, not {base}")
            base = ty.bit(32)
        values: dict[str, int] = {}
        # Members may use those before them.
        d.type = ty.SerEnumType(d, (), base, values)
        self.run.declare(d)
        for m in d.members:
            if m.value is None:
                self.run.error(m.pos, f"member '{m.name}' of a serializable enum needs a value: {m.name} = ...")
                values[m.name] = 0
                continue
            m.value = self.exprs.value(m.value, base)
            given = m.value.const
            if isinstance(m.value.type, ty.IntType) and isinstance(given, int) and not constfold.in_range(given, base):
                self.run.error(m.value.pos, f"the value {given} of member '{m.name}' does not fit in {base}")
                values[m.name] = 0
                continue
            m.value = self.coercion.coerce(m.value, base, f"member '{m.name}'")
            if isinstance(m.value.type, ty.UnknownType):
                values[m.name] = 0
            elif not isinstance(m.value.const, int):
                self.run.error(m.value.pos, f"the value of member '{m.name}' must be a compile-time constant")
                values[m.name] = 0
            else:
                values[m.name] = m.value.const
            m.const = values[m.name]

    def error_decl(self, d: ast.ErrorDecl) -> None:
        for m in d.members:
            if m.name in self.run.errors:
                self.run.error(m.pos, f"error '{m.name}' is already declared at {self.run.errors[m.name].pos}")
            self.run.errors.setdefault(m.name, m)
            m.const = ast.ErrorValue(m.name)

    def match_kind(self, d: ast.MatchKindDecl) -> None:
        for m in d.members:
            if m.name in self.run.match_kinds:
                self.run.error(
                    m.pos, f"match_kind '{m.name}' is already declared at {self.run.match_kinds[m.name].pos}"
                )
            self.run.match_kinds.setdefault(m.name, m)
            m.const = ast.EnumValue("match_kind", m.name)

    # -- parsers and controls

    def parser(self, d: ast.ParserDecl) -> None:
        with self.run.inner("parser", owner=d):
            args = self.types.declare_type_params(d.type_params)
            if args and not d.is_prototype:
                self.run.error(d.pos, f"parser '{d.name}' has a body and so cannot have type parameters")
            self.bodies.params(d.params, "parser")
            self.bodies.params(d.ctor_params, "constructor")
            d.type = ty.ParserType(d, args)
            if d.states is not None:
                self.run.in_progress.add(id(d))
                self.run.scope.parent = self._own(d)
                outer, self.run.hoisted = self.run.hoisted, []
                with self.run.inner():
                    for local in d.locals:
                        self.local(local)
                    self._states(d, d.states)
                d.locals.extend(self.run.hoisted)
                self.run.hoisted = outer
                self.run.in_progress.discard(id(d))
        self.run.declare(d)

    def _own(self, d: ast.Declaration) -> Scope:
        """Return the enclosing scope, with `d` itself in it, so that a use inside differs from an unknown name."""
        own = Scope(self.run.scope.parent)
        own.names[d.name] = [d]
        return own

    def _states(self, d: ast.ParserDecl, states: list[ast.ParserState]) -> None:
        by_name: dict[str, ast.ParserState] = {}
        for s in states:
            if s.name in ("accept", "reject"):
                self.run.error(s.pos, f"state '{s.name}' is built in and cannot be declared")
            elif s.name in by_name:
                self.run.error(
                    s.pos, f"duplicate state '{s.name}' in parser '{d.name}' (first at {by_name[s.name].pos})"
                )
            else:
                by_name[s.name] = s
        if "start" not in by_name:
            self.run.error(d.pos, f"parser '{d.name}' has no state 'start'")
        for s in states:
            self.statements.state(s, by_name)

    def local(self, d: ast.Declaration) -> None:
        """Check a declaration inside a parser or control."""
        if isinstance(d, ast.TableDecl):
            self.tables.table(d)
        elif isinstance(d, ast.ActionDecl):
            self.bodies.action(d)
        elif isinstance(d, ast.ValueSetDecl):
            self.value_set(d)
        else:
            self.statements.stmt(d)

    def _control_plane_names(self, d: ast.ParserDecl | ast.ControlDecl) -> None:
        """Report two objects of a kind with one control-plane name, which @name gives."""
        seen: dict[tuple[type, str], ast.Declaration] = {}
        for local in d.locals:
            if not isinstance(local, ast.TableDecl | ast.ActionDecl):
                continue
            note = local.annotation("name")
            name = str(note.args[0]) if note is not None and note.args else local.name
            other = seen.setdefault((type(local), name), local)
            if other is not local and other.name != local.name:
                self.run.error(
                    local.pos, f"control-plane name '{name}' is already that of '{other.name}' at {other.pos}"
                )

    def value_set(self, d: ast.ValueSetDecl) -> None:
        element = self.types.resolve(d.element)
        d.size = self.exprs.value(d.size)
        if not isinstance(d.size.type, ty.UnknownType) and not compile_time(d.size):
            self.run.error(d.size.pos, "the size of a value set must be a compile-time constant")
        d.type = ty.SetType(element)
        self.run.declare(d)

    def control(self, d: ast.ControlDecl) -> None:
        with self.run.inner("control", owner=d):
            args = self.types.declare_type_params(d.type_params)
            if args and not d.is_prototype:
                self.run.error(d.pos, f"control '{d.name}' has a body and so cannot have type parameters")
            self.bodies.params(d.params, "control")
            self.bodies.params(d.ctor_params, "constructor")
            d.type = ty.ControlType(d, args)
            if d.body is not None:
                self.run.in_progress.add(id(d))
                self.run.scope.parent = self._own(d)
                outer, self.run.hoisted = self.run.hoisted, []
                with self.run.inner():
                    for local in d.locals:
                        self.local(local)
                    with self.run.inner("apply"):
                        self.statements.stmts(d.body.stmts)
                self._control_plane_names(d)
                d.locals.extend(self.run.hoisted)
                self.run.hoisted = outer
                self.run.in_progress.discard(id(d))
        self.run.declare(d)

    # -- instances

    def top_instance(self, d: ast.Instantiation) -> None:
        self.bodies.check_instantiation(d)
        if isinstance(d.type, ty.ParserType | ty.ControlType):
            self.run.error(d.pos, f"'{d.type}' cannot be instantiated outside of a parser or control")
        self.run.declare(d)


def main_instance(scope_names: Sequence[ast.Declaration]) -> ast.Instance | None:
    """Return the package instance among the declarations named `main`."""
    for d in scope_names:
        if isinstance(d, ast.Instantiation) and d.instance is not None:
            return d.instance
    return None
