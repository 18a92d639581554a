"""Expressions and simple statements of a checked program as P4 text, for people to read."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast


def expression(e: ast.Expr | None) -> str:
    """Return the source text of an expression; casts that the compiler inserted are left out."""
    if e is None:
        return ""
    if isinstance(e, ast.IntLiteral):
        return e.text or str(e.value)
    if isinstance(e, ast.BoolLiteral):
        return "true" if e.value else "false"
    if isinstance(e, ast.StringLiteral):
        return f'"{e.value}"'
    if isinstance(e, ast.Name):
        return ("." if e.absolute else "") + e.name
    if isinstance(e, ast.Member):
        return f"{_operand(e.expr)}.{e.name}"
    if isinstance(e, ast.Call):
        return call(e)
    if isinstance(e, ast.Cast):
        return expression(e.expr) if e.implicit else f"({e.type}){_operand(e.expr)}"
    if isinstance(e, ast.Unary | ast.Binary | ast.ConditionalExpr):
        return _operation(e)
    if isinstance(e, ast.Index | ast.Slice | ast.PlusSlice):
        return _subscript(e)
    return _other(e)


def call(e: ast.Call) -> str:
    """Return the source text of a call; omitted arguments stay omitted."""
    given = ", ".join(expression(a.expr) for a in e.args if a.expr is not None)
    return f"{expression(e.func)}({given})"


def _operand(e: ast.Expr) -> str:
    while isinstance(e, ast.Cast) and e.implicit:
        e = e.expr
    text = expression(e)
    return f"({text})" if isinstance(e, ast.Binary | ast.ConditionalExpr) else text


def _operation(e: ast.Unary | ast.Binary | ast.ConditionalExpr) -> str:
    if isinstance(e, ast.Unary):
        return f"{e.op}{_operand(e.expr)}"
    if isinstance(e, ast.Binary):
        return f"{_operand(e.left)} {e.op} {_operand(e.right)}"
    return f"{_operand(e.cond)} ? {_operand(e.then)} : {_operand(e.other)}"


def _subscript(e: ast.Index | ast.Slice | ast.PlusSlice) -> str:
    base = _operand(e.expr)
    if isinstance(e, ast.Index):
        return f"{base}[{expression(e.index)}]"
    if isinstance(e, ast.Slice):
        return f"{base}[{e.hi.const}:{e.lo.const}]"
    return f"{base}[{expression(e.lo)}+:{expression(e.width)}]"


def _other(e: ast.Expr) -> str:
    if isinstance(e, ast.ListExpr):
        return _listed([expression(i) for i in e.items])
    if isinstance(e, ast.StructExpr):
        return _listed([f"{f.name} = {expression(f.expr)}" for f in e.fields])
    if isinstance(e, ast.Mask):
        return f"{_operand(e.value)} &&& {_operand(e.mask)}"
    if isinstance(e, ast.RangeExpr):
        return f"{_operand(e.lo)} .. {_operand(e.hi)}"
    if isinstance(e, ast.TypeExpr):
        node = e.node
        return node.name if isinstance(node, ast.NamedTypeNode | ast.BaseTypeNode) else str(node.type)
    return {ast.DontCare: "_", ast.DefaultExpr: "...", ast.InvalidExpr: "{#}", ast.This: "this"}.get(type(e), "?")


def _listed(items: Sequence[str]) -> str:
    return "{" + ", ".join(items) + "}"


def statement(s: ast.Stmt) -> str | None:
    """Return the source text of a statement of one line; None for one that contains others."""
    if isinstance(s, ast.Assign):
        return f"{expression(s.target)} {s.op or ''}= {expression(s.value)}"
    if isinstance(s, ast.CallStmt):
        return call(s.call)
    if isinstance(s, ast.VarDecl):
        return f"{s.type} {s.name}" + (f" = {expression(s.init)}" if s.init is not None else "")
    if isinstance(s, ast.ConstDecl):
        return f"const {s.type} {s.name} = {expression(s.value)}"
    if isinstance(s, ast.Break):
        return "break"
    if isinstance(s, ast.Continue):
        return "continue"
    return None


def action_reference(reference: ast.ActionRef) -> str:
    """Return the source text of an action with its arguments, or with the names of the parameters of the control
    plane."""
    given = [expression(a.expr) for a in reference.args or [] if a.expr is not None]
    if not given and reference.decl is not None:
        given = [p.name for p in reference.decl.params if not p.direction]
    return f"{reference.action.name}({', '.join(given)})"
