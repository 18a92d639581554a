"""Side effects of evaluating an expression or running an action."""

from __future__ import annotations

from collections.abc import Iterable

from p4lite.compiler import ast
from p4lite.compiler import types as t


def has_effects(nodes: Iterable[ast.Node | None]) -> bool:
    """Return whether evaluating one of the expressions can change anything (or raise a parser error)."""
    return any(n is not None and _effects(n) for n in nodes)


def can_exit(decl: ast.ActionDecl) -> bool:
    """Return whether the action, or one that it calls, has an exit statement."""
    seen: set[ast.Node] = set()
    todo: list[ast.Node] = [decl]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Exit):
            return True
        target = node.target if isinstance(node, ast.Call) else None
        if isinstance(target, (ast.ActionDecl, ast.FunctionDecl)) and target not in seen:
            seen.add(target)
            todo.append(target)
        todo.extend(ast.children(node))
    return False


_PURE_KINDS = frozenset({ast.CallKind.SIZE_METHOD, ast.CallKind.CONSTRUCTOR})


def _effects(node: ast.Node) -> bool:
    for n in ast.walk(node):
        if isinstance(n, ast.Call) and n.const is None and n.kind not in _PURE_KINDS:
            if n.kind is ast.CallKind.HEADER_METHOD and n.method == "isValid":
                continue
            return True
        if isinstance(n, ast.Member) and n.name == "last" and isinstance(n.expr.type, t.StackType):
            return True
    return False
