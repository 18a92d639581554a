"""Names as the control plane sees them: of declarations, and of table keys."""

from __future__ import annotations

from collections.abc import Iterable

from p4lite.compiler import ast
from p4lite.compiler import types as t


class UniqueNames:
    """Unique names, each taken once."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def reserve(self, names: Iterable[str]) -> None:
        """Mark names as taken, whether or not they have been given."""
        self._taken.update(names)

    def take(self, hint: str) -> str:
        """Take and return `hint`, or `hint_0`, `hint_1`, ... when it is taken."""
        name, n = hint, self._next.get(hint, 0)
        while name in self._taken:
            name = f"{hint}_{n}"
            n += 1
        self._next[hint] = n
        self._taken.add(name)
        return name


def control_plane_name(decl: ast.Declaration, default: str | None = None) -> str:
    """Return the name of one declaration: `@name`, else its own."""
    annotation = decl.annotation("name")
    if annotation is not None and annotation.args:
        return str(annotation.args[0])
    return default or decl.name


def qualified(prefix: str, name: str) -> str:
    """Return `prefix.name`; a name that starts with a dot is absolute."""
    if name.startswith("."):
        return name[1:]
    return f"{prefix}.{name}" if prefix else name


def in_place_name(prop: ast.TableProperty, table: str) -> str:
    """Return the name of an extern object constructed in a table's property: `@name`, else after table and property."""
    return control_plane_name(prop, f"{table}.{prop.name}").lstrip(".")


def field_name(ty: t.Type, name: str) -> str:
    """Return the name of a field of a struct or header type; with a leading dot if `@name` makes it absolute."""
    if isinstance(ty, t.FieldsType) and isinstance(ty.decl, ast.StructDecl):
        for f in ty.decl.fields:
            if f.name == name:
                return control_plane_name(f)
    return name


def key_name(element: ast.KeyElement) -> str | None:
    """Return the name of a table key: `@name`, else the expression; None when that is too complex for a name."""
    for annotation in element.annotations:
        if annotation.name == "name" and annotation.args:
            return str(annotation.args[0])
    return expression_name(element.expr)


def expression_name(expr: ast.Expr) -> str | None:
    """Return a key expression as a name, or None."""
    if isinstance(expr, ast.Name):
        return expr.name
    if isinstance(expr, ast.Cast):
        return expression_name(expr.expr)
    base: str | None = None
    suffix = ""
    if isinstance(expr, ast.Member):
        base = expression_name(expr.expr)
        ty = t.strip_newtypes(expr.expr.type) if expr.expr.type is not None else None
        name = expr.name if ty is None else field_name(ty, expr.name)
        if name.startswith("."):
            return name[1:]
        suffix = f".{name}"
    elif isinstance(expr, ast.Index) and isinstance(expr.index.const, int):
        base, suffix = expression_name(expr.expr), f"[{expr.index.const}]"
    elif isinstance(expr, ast.Call) and expr.method == "isValid" and expr.receiver is not None:
        base, suffix = expression_name(expr.receiver), ".$valid$"
    elif isinstance(expr, ast.Slice):
        base, suffix = expression_name(expr.expr), f"[{expr.hi.const}:{expr.lo.const}]"
    elif isinstance(expr, ast.Binary) and expr.op == "&" and isinstance(expr.right.const, int):
        base, suffix = expression_name(expr.left), f" & {_number(expr.right)}"
    return None if base is None else base + suffix


def _number(expr: ast.Expr) -> str:
    """Return a constant in the base in which it was written."""
    literal = expr
    while isinstance(literal, ast.Cast):
        literal = literal.expr
    assert isinstance(expr.const, int)
    if isinstance(literal, ast.IntLiteral) and "0x" in literal.text.lower():
        return hex(expr.const)
    return str(expr.const)
