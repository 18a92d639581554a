"""Names as the control plane sees them, one object of a kind for each, and the numbers in annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend.arguments import unsupported
from p4lite.compiler.position import Pos


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


def annotation_numbers(annotation: ast.Annotation, decls: list[ast.Declaration]) -> list[int]:
    """Return numbers in an annotation: literals, constants, members of serializable enums."""
    if annotation.exprs:
        found = [e.const for e in annotation.exprs]
    else:
        found = [_named_number(item, decls) for item in "".join(annotation.tokens).split(",")]
    numbers = [n for n in found if isinstance(n, int)]
    if not numbers or len(numbers) != len(found):
        raise unsupported(annotation.pos, f"@{annotation.name} of anything but constant numbers")
    return numbers


def _named_number(text: str, decls: list[ast.Declaration]) -> int | None:
    name, dot, member = text.partition(".")
    for decl in decls:
        if decl.name != name:
            continue
        if dot and isinstance(decl, ast.EnumDecl) and isinstance(decl.type, t.SerEnumType):
            return decl.type.values.get(member)
        if not dot and isinstance(decl, ast.ConstDecl) and isinstance(decl.const, int):
            return decl.const
    literal = re.fullmatch(r"(?:\d+[ws])?(0[xXbBoO])?([0-9a-fA-F_]+)", text)
    if literal is None:
        return None
    base = {"0x": 16, "0b": 2, "0o": 8}.get((literal[1] or "").lower(), 10)
    try:
        return int(literal[2].replace("_", ""), base)
    except ValueError:
        return None


class Claims:
    """The owner of each name. A second owner is refused: switch and control plane find objects by their names."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[object, Pos]] = {}
        self._instances: dict[str, list[Pos]] = {}

    def instance(self, path: str, pos: Pos) -> None:
        """Note an instance of a parser or control with the control-plane name `path`."""
        self._instances.setdefault(path, []).append(pos)

    def claim(self, kind: str, name: str, owner: object, pos: Pos) -> None:
        """Record the object of this kind and name, declared at `pos`. Raises `Unsupported` if another one has it."""
        known, place = self._owners.setdefault((kind, name), (owner, pos))
        if known == owner:
            return
        path = name
        while path:
            path = path.rpartition(".")[0]
            made = self._instances.get(path, [])
            if len(made) > 1 and place == pos:
                raise Unsupported(
                    made[1],
                    f"a second instance with the control-plane name '{path}' (the first is at {made[0]}): its {kind} "
                    f"'{name}' would be there twice; declare instances with names of their own, as in C() first; "
                    "C() second;",
                )
        raise Unsupported(pos, f"a second {kind} with the control-plane name '{name}'; the first is at {place}")

    def taken(self, *kinds: str) -> set[str]:
        """Return the names that objects of these kinds have."""
        return {name for kind, name in self._owners if kind in kinds}
