"""Scopes: what a name means at a place in the program."""

from __future__ import annotations

import difflib

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Reporter


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
