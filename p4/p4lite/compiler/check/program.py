"""The whole program: all declarations, and the package instance `main`."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler.check.annotations import check_annotations
from p4lite.compiler.check.checker import Checker
from p4lite.compiler.check.declarations import main_instance
from p4lite.compiler.check.flow import check_flow
from p4lite.compiler.diagnostics import Diagnostic, Reporter
from p4lite.compiler.position import Pos


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
