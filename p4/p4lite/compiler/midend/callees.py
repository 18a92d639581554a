"""What code calls and names beyond itself: who carries out which calls.

Expressions, statements and calls of actions and functions need each other; externs, tables and parsers need them, and
are reached from them through the protocols here only.
"""

from __future__ import annotations

from typing import Protocol

from p4lite.compiler import ast
from p4lite.compiler.midend.lir import Block
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import Object, Value


class Callee(Protocol):
    """Carries out calls of some kinds."""

    def call(self, call: ast.Call) -> Value | None:
        """Perform a call; its value, or None when it has none."""


class Applied(Callee, Protocol):
    """Tables: where code goes on may depend on what applying one did."""

    def apply(self, call: ast.Call, targets: dict[str | ast.ActionDecl, Block], default: Block) -> None:
        """Apply a table; go on by hit or miss (`lir.HIT`, `lir.MISS`) or by the action that ran, else in `default`."""


class Instantiates(Protocol):
    """Makes instances when they are first named."""

    def instance(self, decl: ast.Instantiation) -> Object:
        """Return the instance of a declaration in the current environment."""


class Callees:
    """Every callee by the kinds of its calls; complete before any code is lowered."""

    tables: Applied
    instances: Instantiates

    def __init__(self) -> None:
        self._by_kind: dict[ast.CallKind, Callee] = {}

    def add(self, callee: Callee, *kinds: ast.CallKind) -> None:
        """Let `callee` carry out the calls of these kinds."""
        self._by_kind.update(dict.fromkeys(kinds, callee))

    def call(self, call: ast.Call) -> Value | None:
        """Perform a call of any kind; its value, or None when it has none."""
        kind = call.kind
        callee = self._by_kind.get(kind) if kind is not None else None
        if callee is None:
            raise unsupported(call.pos, f"this call ({kind.value if kind else 'unknown'})")
        return callee.call(call)
