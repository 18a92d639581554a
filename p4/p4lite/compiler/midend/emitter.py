"""The routine being built, environments, frames of inlined calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.architecture import Architecture
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.lir import BasicBlock, Branch, Expr, Field, Jump, LOp
from p4lite.compiler.midend.names import Claims
from p4lite.compiler.midend.storage import Storage, boolean
from p4lite.compiler.midend.values import Boolean, Value
from p4lite.compiler.position import Pos

if TYPE_CHECKING:
    from p4lite.compiler.diagnostics import Reporter


@dataclass
class Routine:
    """A parser, a pipeline control, an action or the deparser while its graph is built."""

    kind: str
    entry: BasicBlock
    current: BasicBlock
    region: str = ""
    exit_flag: Field | None = None
    """In an action: set this instead of leaving the pipeline, because calls around the table copy out first."""


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
    done: BasicBlock
    copy_outs: list[tuple[Value, Value]] = field(default_factory=list)
    result: Value | None = None
    loops: list[tuple[BasicBlock, BasicBlock]] = field(default_factory=list)
    """(break target, continue target), innermost last."""
    call: Pos | None = None
    """The place of the call."""


class Emitter:
    """Emits operations and control flow into the current routine, whose frames and names it holds."""

    def __init__(
        self,
        out: lir.LoweredProgram,
        architecture: Architecture,
        sources: dict[str, list[str]],
        reporter: Reporter | None,
    ) -> None:
        self.out = out
        self.architecture = architecture
        self.sources = sources
        self.reporter = reporter
        self.storage = Storage(out)
        self.claims = Claims()
        self.globals = Env(None, "")
        self.env = self.globals
        self.frame = Frame(None, BasicBlock())
        self.routine: Routine
        self.scratch("")

    def warn(self, pos: Pos, message: str) -> None:
        """Report a warning through the front end's reporter."""
        if self.reporter is not None:
            self.reporter.warning(pos, message)

    # --- routines ---

    def enter(self, kind: str, region: str, env: Env) -> BasicBlock:
        """Begin a routine and return its first block."""
        entry = BasicBlock()
        self.routine = Routine(kind, entry, entry, region)
        self.frame = Frame(None, BasicBlock())
        self.env = env
        return entry

    def leave(self) -> None:
        """End the routine where its outermost frame ends."""
        self.jump(self.frame.done)
        self.start(self.frame.done)
        self.end()

    def scratch(self, kind: str) -> BasicBlock:
        """Emit into a block of its own, to see whether anything is emitted."""
        block = BasicBlock()
        self.routine = Routine(kind, block, block)
        return block

    # --- where we are ---

    def home(self, decl: ast.Declaration) -> Env:
        """Return the environment in which an action, table or instance was declared."""
        env: Env | None = self.env
        while env is not None:
            if decl in env.declared:
                return env
            env = env.parent
        return self.globals

    def copies_out(self) -> bool:
        """Return whether a call around the current place has parameters to copy back."""
        frame: Frame | None = self.frame
        while frame is not None:
            if frame.copy_outs:
                return True
            frame = frame.parent
        return False

    def in_loop(self) -> bool:
        """Return whether the current place is in a loop of this routine."""
        frame: Frame | None = self.frame
        while frame is not None:
            if frame.loops:
                return True
            frame = frame.parent
        return False

    # --- blocks ---

    def emit(self, op: LOp) -> None:
        """Append an operation to the current block."""
        self.routine.current.ops.append(op)

    def start(self, block: BasicBlock) -> None:
        """Continue in `block`."""
        self.routine.current = block

    def jump(self, to: BasicBlock) -> None:
        """End the current block with a jump, and continue in an unreachable one."""
        if self.routine.current.term is None:
            self.routine.current.term = Jump(to)
        self.start(BasicBlock())

    def end(self) -> None:
        """End the routine here."""
        if self.routine.current.term is None:
            self.routine.current.term = lir.End()
        self.start(BasicBlock())

    def branch(self, cond: Expr, then: BasicBlock, other: BasicBlock, loc: lir.SourceInfo | None = None) -> None:
        """End the current block by a condition."""
        if isinstance(cond, lir.Bool):
            self.jump(then if cond.value else other)
            return
        if self.routine.current.term is None:
            self.routine.current.term = Branch(cond, then, other, loc)
        self.start(BasicBlock())

    def guarded(self, cond: Expr | None, body: Callable[[], None]) -> None:
        """Run `body` only if `cond` holds (always if it is None)."""
        if cond is None:
            body()
            return
        then, after = BasicBlock(), BasicBlock()
        self.branch(cond, then, after)
        self.start(then)
        body()
        self.jump(after)
        self.start(after)

    # --- temporaries ---

    def temp(self, width: int, signed: bool = False, hint: str = "tmp") -> Field:
        """Return a new scalar."""
        return self.storage.scalar(hint, width, signed)

    def temp_bool(self, hint: str = "tmp") -> Boolean:
        """Return a new boolean scalar."""
        return boolean(self.storage.scalar(hint, 1))

    def loc(self, node: ast.Node) -> lir.SourceInfo | None:
        """Return the place of a node in the source."""
        pos = node.pos
        if pos.line <= 0:
            return None
        if isinstance(node, (ast.Expr, ast.Assign, ast.CallStmt)):
            # An operator's position is its own: the text starts with the leftmost operand.
            pos = min(n.pos for n in ast.walk(node) if n.pos.line == pos.line and n.pos.file == pos.file)
        lines = self.sources.get(pos.file, [])
        text = lines[pos.line - 1][pos.col - 1 :] if pos.line <= len(lines) else ""
        return lir.SourceInfo(pos.file, pos.line, pos.col, re.split(r"[;{]", text)[0].strip())


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
