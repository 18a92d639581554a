"""Constants at compile time."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as ty


def compile_time(expr: ast.Expr) -> bool:
    """Return whether an expression is a constant, or made of constants and constructor parameters."""
    if expr.const is not None or isinstance(expr, ast.InvalidExpr):
        return True
    t = ty.strip_newtypes(expr.type or ty.UNKNOWN)
    if isinstance(t, ty.ExternType | ty.ParserType | ty.ControlType | ty.PackageType | ty.TypeVar | ty.UnknownType):
        return True
    if isinstance(expr, ast.Name):
        return isinstance(expr.decl, ast.Param) and not expr.decl.direction
    if isinstance(
        expr, ast.ListExpr | ast.StructExpr | ast.Binary | ast.Unary | ast.Cast | ast.ConditionalExpr | ast.Slice
    ):
        return all(compile_time(c) for c in _operands(expr))
    if isinstance(expr, ast.Member | ast.Index):
        return compile_time(expr.expr)
    return False


def _operands(e: ast.Expr) -> list[ast.Expr]:
    if isinstance(e, ast.StructExpr):
        return [f.expr for f in e.fields]
    return [c for c in ast.children(e) if isinstance(c, ast.Expr)]
