"""Runs of the checker: where it is, what names mean there, what it reports, and what its parts ask of each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Reporter
from p4lite.compiler.position import Pos
from p4lite.compiler.types import Type


def _overloads(a: ast.Declaration, b: ast.Declaration) -> bool:
    """Return whether two functions of one name can coexist: they differ in number, names or types of parameters."""
    if not isinstance(a, ast.FunctionDecl | ast.Method) or not isinstance(b, ast.FunctionDecl | ast.Method):
        return False
    return [(p.name, p.type) for p in a.params] != [(p.name, p.type) for p in b.params]


class Scope:
    """One block's names; `parent` is the enclosing scope, None for the program's."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, list[ast.Declaration]] = {}

    def lookup(self, name: str) -> list[ast.Declaration]:
        """Return the declarations of `name` in the innermost scope that has any (several only for overloaded
        functions).
        """
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found:
                return found
            scope = scope.parent
        return []

    def all_names(self, kinds: tuple[type[ast.Declaration], ...]) -> list[str]:
        """Return the names of these kinds of declarations in this scope and those around it."""
        mine = [name for name, found in self.names.items() if any(isinstance(d, kinds) for d in found)]
        return mine if self.parent is None else mine + self.parent.all_names(kinds)

    def root(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def declare(self, decl: ast.Declaration, reporter: Reporter) -> None:
        """Add a declaration; report a name that is already in use."""
        there = self.names.setdefault(decl.name, [])
        for other in there:
            if not _overloads(decl, other):
                reporter.error(decl.pos, f"'{decl.name}' is already declared at {other.pos}")
                return
        there.append(decl)


def closest(name: str, names: list[str]) -> str:
    """Return `; did you mean ...?` for a name that is nearly one of `names`, else an empty text."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


@dataclass(frozen=True)
class Context:
    """Where the checker is: kind "program", "parser", "state", "control", "apply", "action", "function".

    `owner` is the enclosing parser or control; `result` what a function returns; `loops` how many loops are around.
    """

    kind: str = "program"
    owner: ast.ParserDecl | ast.ControlDecl | None = None
    result: Type | None = None
    loops: int = 0
    this: Type | None = None


class Run:
    """What all parts of the checker share."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.scope = Scope()
        self.context = Context()
        self.errors: dict[str, ast.EnumMember] = {}
        self.match_kinds: dict[str, ast.EnumMember] = {}
        self.open: list[str] = []
        """Functions and actions whose bodies are being checked: not declared yet, so that calling one is recursion."""
        self.in_progress: set[int] = set()
        """ids of declarations whose bodies are being checked: using one of them is recursion."""
        self.hoisted: list[ast.Instantiation] = []
        """Instances made for `T.apply()` in the parser or control at hand."""
        self.values: set[int] = set()
        """ids of calls whose result is used."""
        self.pristine: dict[int, ast.FunctionDecl] = {}
        self.specialised: dict[tuple[int, tuple[Type, ...]], ast.FunctionDecl] = {}

    # -- reporting

    def error(self, pos: Pos, message: str) -> None:
        self.reporter.error(pos, message)

    def warn(self, pos: Pos, message: str) -> None:
        self.reporter.warning(pos, message)

    # -- scopes

    @contextmanager
    def inner(self, kind: str | None = None, **changes: object) -> Iterator[Scope]:
        """Open a scope inside the present one, optionally in another context."""
        scope, context = self.scope, self.context
        self.scope = Scope(scope)
        if kind is not None:
            changes["kind"] = kind
        if changes:
            self.context = replace(context, **changes)  # type: ignore[arg-type]
        try:
            yield self.scope
        finally:
            self.scope, self.context = scope, context

    def declare(self, decl: ast.Declaration) -> None:
        self.scope.declare(decl, self.reporter)


class Evaluates(Protocol):
    """Checks expressions; the returned expression replaces the given one."""

    def expr(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        """Check any expression; return it with `type` and `const` set."""

    def value(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        """Check and return an expression that must have a value to compute with."""

    def bool_expr(self, e: ast.Expr, what: str) -> ast.Expr:
        """Check and return a condition."""

    def constant(self, e: ast.Expr, what: str) -> tuple[ast.Expr, int | None]:
        """Check and return an expression that must be a compile-time number."""


class ChecksCalls(Protocol):
    """Checks calls."""

    def call(self, e: ast.Call, want: Type | None = None) -> ast.Expr:
        """Check and return a call of any kind."""


class ChecksBodies(Protocol):
    """Checks the functions and instances that a call or a declaration among statements creates."""

    def check_function(self, decl: ast.FunctionDecl, aliases: Sequence[ast.Declaration] = ()) -> None:
        """Check a function with its body; `aliases` are the types of a generic one."""

    def check_instantiation(self, inst: ast.Instantiation) -> None:
        """Check an instance with the methods that it implements."""
