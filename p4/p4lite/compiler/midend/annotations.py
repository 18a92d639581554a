"""Numbers in annotations."""

from __future__ import annotations

import re

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend.report import unsupported


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
