"""State of the lowering: the routine being built, environments, frames of inlined calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.claims import Claims
from p4lite.compiler.midend.lir import Block, Branch, Const, Expr, Field, Jump, LOp
from p4lite.compiler.midend.storage import Storage, boolean
from p4lite.compiler.midend.values import Boolean, Data, Value


@dataclass
class Routine:
    """A parser, a pipeline control, an action or the deparser while its graph is built."""

    kind: str
    entry: Block
    current: Block
    region: str = ""
    exit_flag: Field | None = None
    """In an action: set this instead of leaving the pipeline, because calls around the table copy out first."""


class Bound(NamedTuple):
    """An argument and its parameter; `expr` is None for an optional parameter left out.

    `place` orders the arguments as the call does, which may name them in another order than the parameters'.
    """

    param: ast.Param
    expr: ast.Expr | None
    place: int = 0


def bindings(args: list[ast.Arg] | None) -> list[Bound]:
    """The arguments of a checked call with their parameters, in the order of the parameters."""
    out: list[Bound] = []
    for arg in args or []:
        assert arg.param is not None
        out.append(Bound(arg.param, arg.expr, arg.place))
    return out


def as_written(bound: list[Bound]) -> list[Bound]:
    """Arguments in the order of the call: that of evaluation and of copying out (specification §6.8, §8.20)."""
    return sorted(bound, key=lambda b: b.place)


def rebind(bound: list[Bound], params: list[ast.Param]) -> list[Bound]:
    """The same arguments for the parameters of what is really called, when that was given as a constructor argument."""
    return [Bound(param, item.expr, item.place) for param, item in zip(params, bound, strict=True)]


class Env:
    """Bindings of declarations to values; looked up along the chain of parents.

    `path` is the control-plane name of the parser or control instance the environment belongs to.
    """

    def __init__(self, parent: Env | None = None, path: str | None = None) -> None:
        self.parent = parent
        self.path: str = path if path is not None else (parent.path if parent else "")
        self._values: dict[ast.Node, Value] = {}
        self.declared: set[ast.Node] = set()
        """Actions, tables and instances declared here."""
        self.tables: dict[ast.Node, object] = {}
        self.actions: dict[object, object] = {}
        self.exit_flag: Field | None = None

    def bind(self, decl: ast.Node, value: Value) -> None:
        self._values[decl] = value

    def find(self, decl: ast.Node) -> Value | None:
        env: Env | None = self
        while env is not None:
            if decl in env._values:
                return env._values[decl]
            env = env.parent
        return None

    def own(self, decl: ast.Node) -> Value | None:
        return self._values.get(decl)


@dataclass
class Frame:
    """One inlined call: where return goes and what to copy out then (also on exit)."""

    parent: Frame | None
    done: Block
    copy_outs: list[tuple[Value, Value]] = field(default_factory=list)
    result: Value | None = None
    loops: list[tuple[Block, Block]] = field(default_factory=list)
    """(break target, continue target), innermost last."""


class Builder:
    """Emits operations and control flow into the current routine."""

    routine: Routine
    frame: Frame
    env: Env

    def __init__(self, program_name: str) -> None:
        self.sources: dict[str, list[str]] = {}
        self.out = lir.LoweredProgram(program=program_name)
        self.storage = Storage(self.out)
        self.claims = Claims()

    # --- blocks ---

    def emit(self, op: LOp) -> None:
        """Append an operation to the current block."""
        self.routine.current.ops.append(op)

    def start(self, block: Block) -> None:
        """Go on in `block`."""
        self.routine.current = block

    def jump(self, to: Block) -> None:
        """End the current block with a jump, and go on in an unreachable one."""
        if self.routine.current.term is None:
            self.routine.current.term = Jump(to)
        self.start(Block())

    def end(self) -> None:
        """End the routine here."""
        if self.routine.current.term is None:
            self.routine.current.term = lir.End()
        self.start(Block())

    def branch(self, cond: Expr, then: Block, other: Block, loc: lir.SourceInfo | None = None) -> None:
        """End the current block by a condition."""
        if isinstance(cond, lir.Bool):
            self.jump(then if cond.value else other)
            return
        if self.routine.current.term is None:
            self.routine.current.term = Branch(cond, then, other, loc)
        self.start(Block())

    def guarded(self, cond: Expr | None, body: Callable[[], None]) -> None:
        """Run `body` only if `cond` holds (always if it is None)."""
        if cond is None:
            body()
            return
        then, after = Block(), Block()
        self.branch(cond, then, after)
        self.start(then)
        body()
        self.jump(after)
        self.start(after)

    # --- temporaries ---

    def temp(self, width: int, signed: bool = False, hint: str = "tmp") -> Field:
        """A new scalar."""
        return self.storage.scalar(hint, width, signed)

    def temp_bool(self, hint: str = "tmp") -> Boolean:
        """A new boolean scalar."""
        return boolean(self.storage.scalar(hint, 1))

    def loc(self, node: ast.Node) -> lir.SourceInfo | None:
        """Where a node comes from."""
        pos = node.pos
        if pos.line <= 0:
            return None
        if isinstance(node, (ast.Expr, ast.Assign, ast.CallStmt)):
            # An operator's position is its own: the text starts with the leftmost operand.
            pos = min(n.pos for n in ast.walk(node) if n.pos.line == pos.line and n.pos.file == pos.file)
        lines = self.sources.get(pos.file, [])
        text = lines[pos.line - 1][pos.col - 1 :] if pos.line <= len(lines) else ""
        return lir.SourceInfo(pos.file, pos.line, pos.col, re.split(r"[;{]", text)[0].strip())


def data(expr: Expr, width: int, signed: bool = False) -> Data:
    """Data of a type, known to be exact."""
    return Data(expr, width, signed)


def has_effects(nodes: Iterable[ast.Node | None]) -> bool:
    """True iff evaluating one of the expressions can change anything (or raise a parser error)."""
    return any(n is not None and _effects(n) for n in nodes)


def can_exit(decl: ast.ActionDecl) -> bool:
    """True iff the action, or one that it calls, has an exit statement."""
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


def as_const(value: Value) -> int | None:
    """The integer a value is at compile time, or None."""
    from p4lite.compiler.midend.values import IntConst

    if isinstance(value, IntConst):
        return value.value
    if isinstance(value, Data) and isinstance(value.expr, Const):
        return value.expr.value
    return None


def fields_of(ty: t.Type) -> list[tuple[str, t.Type]]:
    """Named fields of a struct, header or anonymous struct; items of a tuple or array by position."""
    ty = t.strip_newtypes(ty)
    if isinstance(ty, (t.FieldsType, t.AnonStructType)):
        return list(ty.fields.items())
    if isinstance(ty, t.TupleType):
        return [(str(i), f) for i, f in enumerate(ty.items)]
    if isinstance(ty, t.StackType):
        return [(str(i), ty.element) for i in range(ty.size)]
    return []
