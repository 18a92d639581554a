"""Calls as they are lowered: arguments with their parameters, the parts that carry them out, and refusals."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Unsupported
from p4lite.compiler.midend.lir import BasicBlock
from p4lite.compiler.midend.values import Object, Value
from p4lite.compiler.position import Pos


class Bound(NamedTuple):
    """An argument and its parameter; `expr` is None for an optional parameter left out.

    `place` orders the arguments as the call does, which may name them in another order than the parameters'.
    """

    param: ast.Param
    expr: ast.Expr | None
    place: int = 0


def bindings(args: list[ast.Arg] | None) -> list[Bound]:
    """Return the arguments of a checked call with their parameters, in the order of the parameters."""
    out: list[Bound] = []
    for arg in args or []:
        assert arg.param is not None
        out.append(Bound(arg.param, arg.expr, arg.place))
    return out


def as_written(bound: list[Bound]) -> list[Bound]:
    """Return arguments in the order of the call: that of evaluation and of copying out (specification §6.8, §8.20)."""
    return sorted(bound, key=lambda b: b.place)


def rebind(bound: list[Bound], params: list[ast.Param]) -> list[Bound]:
    """Return the same arguments for the parameters of what is really called, when that was given as a constructor
    argument.
    """
    return [Bound(param, item.expr, item.place) for param, item in zip(params, bound, strict=True)]


def unsupported(pos: Pos, what: str) -> Unsupported:
    """Return the exception that refuses a construct by name and place."""
    return Unsupported(pos, f"not supported for BMv2: {what}")


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
