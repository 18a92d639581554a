"""Protocols by which the parts of the checker that need each other reach each other.

Types have widths that are expressions, expressions have types and calls in them, a call of a generic function checks
that function's body, and bodies hold all of these: each part knows the later ones by what it needs of them only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from p4lite.compiler import ast
from p4lite.compiler.types import Type


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
