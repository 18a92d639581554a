"""A run of the checker: where it is in the program, what it has seen, what it reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from p4lite.compiler import ast
from p4lite.compiler.check.scope import Scope
from p4lite.compiler.diagnostics import Reporter
from p4lite.compiler.position import Pos
from p4lite.compiler.types import Type


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
