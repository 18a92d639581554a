"""Callees: the parts that carry out the calls in code, and what it names beyond itself.

Expressions, statements and calls of actions and functions need each other; externs, tables and parsers need them, and
are reached from them through the protocols here only.
"""

from __future__ import annotations

from typing import Protocol

from p4lite.compiler import ast
from p4lite.compiler.midend.lir import BasicBlock
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import Object, Value


class Callee(Protocol):
    """Carries out calls of some kinds."""

    def call(self, call: ast.Call) -> Value | None:
        """Perform a call; return its value, or None when it has none."""


class Applied(Callee, Protocol):
    """The tables, whose application decides where the code continues."""

    def apply(self, call: ast.Call, targets: dict[str | ast.ActionDecl, BasicBlock], default: BasicBlock) -> None:
        """Apply a table; continue by hit or miss (`lir.HIT`, `lir.MISS`) or by the action that ran, else in
        `default`."""


class Instantiates(Protocol):
    """Creates instances when they are first named."""

    def instance(self, decl: ast.Instantiation) -> Object:
        """Return the instance of a declaration in the current environment."""


class Callees:
    """The callees by the kinds of their calls; all are added before any code is lowered."""

    tables: Applied
    instances: Instantiates

    def __init__(self) -> None:
        self._by_kind: dict[ast.CallKind, Callee] = {}

    def add(self, callee: Callee, *kinds: ast.CallKind) -> None:
        """Let `callee` carry out the calls of these kinds."""
        self._by_kind.update(dict.fromkeys(kinds, callee))

    def call(self, call: ast.Call) -> Value | None:
        """Perform a call of any kind; return its value, or None when it has none."""
        kind = call.kind
        callee = self._by_kind.get(kind) if kind is not None else None
        if callee is None:
            raise unsupported(call.pos, f"this call ({kind.value if kind else 'unknown'})")
        return callee.call(call)
