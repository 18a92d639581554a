"""The whole program: all declarations, and the package instance `main`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler.check.bodies import Bodies
from p4lite.compiler.check.calls import CallChecker
from p4lite.compiler.check.coerce import Coercion
from p4lite.compiler.check.declarations import Declarations, main_instance
from p4lite.compiler.check.expressions import ExpressionChecker
from p4lite.compiler.check.flow import check_flow
from p4lite.compiler.check.scope import Run
from p4lite.compiler.check.statements import StatementChecker
from p4lite.compiler.check.tables import TableChecker
from p4lite.compiler.diagnostics import Diagnostic, Reporter
from p4lite.compiler.position import Pos

_STRINGS = ("name", "brief", "description", "deprecated", "alias")


def check_annotations(run: Run, exprs: ExpressionChecker, decls: Sequence[ast.Node]) -> None:
    """Check the annotations of everything in `decls`, in the program's scope."""
    for d in decls:
        for node in ast.walk(d):
            annotations: list[ast.Annotation] | None = getattr(node, "annotations", None)
            if annotations:
                _check(run, exprs, annotations)


def _check(run: Run, exprs: ExpressionChecker, annotations: list[ast.Annotation]) -> None:
    structured: set[str] = set()
    for a in annotations:
        if a.text is None and (a.exprs or a.pairs):
            if a.name in structured:
                run.error(a.pos, f"a second structured annotation @{a.name} here")
            structured.add(a.name)
            a.exprs = [_constant(run, exprs, e) for e in a.exprs]
            names = [pair.name for pair in a.pairs]
            for i, name in enumerate(names):
                if name in names[:i]:
                    run.error(a.pairs[i].pos, f"annotation @{a.name} has a second '{name}'")
            for pair in a.pairs:
                pair.expr = _constant(run, exprs, pair.expr)
            if not a.args:
                a.args = [e.const for e in a.exprs if isinstance(e.const, int | str)]
        elif a.name in _STRINGS and a.text is not None and not _is_string(a):
            run.error(a.pos, f'@{a.name} takes one string: @{a.name}("...")')


def _is_string(a: ast.Annotation) -> bool:
    return len(a.args) == 1 and isinstance(a.args[0], str)


def _constant(run: Run, exprs: ExpressionChecker, e: ast.Expr) -> ast.Expr:
    e = exprs.expr(e)
    if not isinstance(e.const, int | str) and not run.reporter.failed:
        run.error(e.pos, "a value in an annotation must be a constant number, string or bool")
    return e


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


@dataclass
class TypedProgram:
    """A program without errors; see `p4lite.compiler` for what holds for it."""

    source_name: str
    decls: list[ast.Declaration]
    main: ast.Instance
    errors: list[str]
    match_kinds: list[str]
    reporter: Reporter
    diagnostics: list[Diagnostic] = field(default_factory=list)


def check_program(program: ast.SourceProgram, source_name: str, reporter: Reporter) -> TypedProgram:
    """Check everything. Raises `CompileError` when there are errors."""
    checker = Checker(reporter)
    for d in program.decls:
        checker.declaration(d)
    check_annotations(checker.run, checker.exprs, program.decls)
    reporter.check()
    found = checker.run.scope.lookup("main")
    main = main_instance(found)
    if main is not None and not isinstance(main.decl, ast.PackageDecl):
        raise reporter.fatal(found[0].pos, f"'main' must be the instance of a package, not of {main.type}")
    if not program.decls:
        raise reporter.fatal(Pos(source_name, 0, 0), "the program is empty: it declares nothing")
    if main is None:
        raise reporter.fatal(
            Pos(source_name, 0, 0),
            "the program has no package instance 'main': end it with V1Switch(...) main; (PSA: PSA_Switch(...) main;)",
        )
    check_flow(program.decls, main, reporter)
    return TypedProgram(
        source_name,
        program.decls,
        main,
        list(checker.run.errors),
        list(checker.run.match_kinds),
        reporter,
        reporter.diagnostics,
    )
