"""Arguments of a checked call with their parameters."""

from __future__ import annotations

from typing import NamedTuple

from p4lite.compiler import ast


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
