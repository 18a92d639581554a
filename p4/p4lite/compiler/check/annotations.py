"""Annotations (language specification §20): structured bodies are constants, known ones have their form."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast
from p4lite.compiler.check.expressions import ExpressionChecker
from p4lite.compiler.check.run import Run

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
