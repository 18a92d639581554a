"""The checker, put together from its parts."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler.check.bodies import Bodies
from p4lite.compiler.check.calls import CallChecker
from p4lite.compiler.check.coerce import Coercion
from p4lite.compiler.check.declarations import Declarations
from p4lite.compiler.check.expressions import ExpressionChecker
from p4lite.compiler.check.run import Run
from p4lite.compiler.check.statements import StatementChecker
from p4lite.compiler.check.tables import TableChecker
from p4lite.compiler.diagnostics import Reporter


class Checker:
    """Checks the declarations of one program, in their order."""

    def __init__(self, reporter: Reporter) -> None:
        self.run = run = Run(reporter)
        coercion = Coercion(run)
        self.exprs = exprs = ExpressionChecker(run, coercion)
        calls = CallChecker(run, exprs, coercion)
        statements = StatementChecker(run, exprs, coercion)
        bodies = Bodies(run, exprs, coercion, calls, statements)
        exprs.calls = calls
        calls.bodies = statements.bodies = bodies
        tables = TableChecker(run, exprs, coercion, calls, statements)
        self._declarations = Declarations(run, exprs, coercion, statements, bodies, tables)

    def declaration(self, d: ast.Declaration) -> None:
        """Check a top-level declaration and let those after it use it."""
        self._declarations.declaration(d)
