"""Loops with constant bounds, and the values that their variable takes."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler.midend.arith import wrap
from p4lite.compiler.midend.storage import data_shape

Evaluate = Callable[[ast.Expr], int | None]

_TESTS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
    "==": lambda a, b: a == b,
}
_STEPS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def unroll_values(stmt: ast.For, evaluate: Evaluate, limit: int) -> tuple[ast.VarDecl, list[int], int] | None:
    """Return the variable of a loop, its value in each iteration and after the last one.

    None when the loop is not of the form `for (T i = c; i OP c; i = i STEP c)` with a body that does not write `i`, or
    takes more than `limit` iterations.
    """
    if len(stmt.init) != 1 or len(stmt.update) != 1:
        return None
    start = stmt.init[0]
    if not isinstance(start, ast.VarDecl) or start.init is None or start.type is None:
        return None
    shape = data_shape(start.type)
    if shape is None or writes(stmt.body, start):
        return None
    value = _constant(start.init, evaluate)
    test = _test(stmt.cond, start, evaluate)
    step = _step(stmt.update[0], start, evaluate)
    if value is None or test is None or step is None:
        return None
    values: list[int] = []
    while test(value):
        values.append(value)
        if len(values) > limit:
            return None
        value = wrap(step(value), *shape)
    return start, values, value


def _strip(expr: ast.Expr) -> ast.Expr:
    while isinstance(expr, ast.Cast) and expr.implicit:
        expr = expr.expr
    return expr


def _is_variable(expr: ast.Expr, variable: ast.VarDecl) -> bool:
    expr = _strip(expr)
    return isinstance(expr, ast.Name) and expr.decl is variable


def _constant(expr: ast.Expr, evaluate: Evaluate) -> int | None:
    if any(isinstance(n, ast.Call) for n in ast.walk(expr)):
        return None
    return evaluate(expr)


def _test(cond: ast.Expr, variable: ast.VarDecl, evaluate: Evaluate) -> Callable[[int], bool] | None:
    if not isinstance(cond, ast.Binary) or cond.op not in _TESTS:
        return None
    compare = _TESTS[cond.op]
    if _is_variable(cond.left, variable):
        right = _constant(cond.right, evaluate)
        return None if right is None else lambda v: compare(v, right)
    if _is_variable(cond.right, variable):
        left = _constant(cond.left, evaluate)
        return None if left is None else lambda v: compare(left, v)
    return None


def _step(stmt: ast.Stmt, variable: ast.VarDecl, evaluate: Evaluate) -> Callable[[int], int] | None:
    if not isinstance(stmt, ast.Assign) or not _is_variable(stmt.target, variable):
        return None
    op, amount_expr = stmt.op, stmt.value
    if op is None:
        value = _strip(stmt.value)
        if not isinstance(value, ast.Binary) or value.op not in _STEPS:
            return None
        if _is_variable(value.left, variable):
            op, amount_expr = value.op, value.right
        elif _is_variable(value.right, variable) and value.op in ("+", "*"):
            op, amount_expr = value.op, value.left
        else:
            return None
    if op not in _STEPS:
        return None
    amount = _constant(amount_expr, evaluate)
    if amount is None:
        return None
    advance = _STEPS[op]
    return lambda v: advance(v, amount)


def writes(body: ast.Node, variable: ast.VarDecl) -> bool:
    """Return whether the body may write the variable: by assignment, or as an out or inout argument."""
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and _mentions(node.target, variable):
            return True
        if isinstance(node, ast.Call):
            for arg in node.args:
                # The argument of push_front and pop_front is only read, and has no parameter.
                out = arg.param is not None and arg.param.direction in ("out", "inout")
                if out and arg.expr is not None and _mentions(arg.expr, variable):
                    return True
    return False


def _mentions(expr: ast.Expr, variable: ast.VarDecl) -> bool:
    """Return whether a destination is (part of) the variable; an index in it does not count."""
    while isinstance(expr, ast.Slice | ast.PlusSlice | ast.Index | ast.Member):
        expr = expr.expr
    return isinstance(expr, ast.Name) and expr.decl is variable
