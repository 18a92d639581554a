"""Warnings from a walk along the flow of control: reads before a write, and traps of simple_switch (p4-target.md).

The walk is of one body at a time (apply block, action, function, parser state) and errs towards silence: what a called
table or control may do ends what is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.ast import CallKind
from p4lite.compiler.diagnostics import Reporter

_SCALARS = ty.BitType | ty.BoolType | ty.EnumType | ty.SerEnumType | ty.ErrorType | ty.VarbitType


@dataclass
class FlowState:
    """The facts at a place: variables surely written, headers surely invalid, whether the packet was dropped."""

    written: set[ast.Declaration] = field(default_factory=set)
    invalid: set[str] = field(default_factory=set)
    dropped: bool = False
    ended: bool = False

    def copy(self) -> FlowState:
        return FlowState(set(self.written), set(self.invalid), self.dropped, self.ended)


def merge(a: FlowState, b: FlowState) -> FlowState:
    """Return the facts where two paths meet."""
    if a.ended:
        return b
    if b.ended:
        return a
    return FlowState(a.written & b.written, a.invalid & b.invalid, a.dropped and b.dropped)


def path_of(e: ast.Expr | None) -> str | None:
    """Return a header's place as text, or None if it has no fixed place."""
    if isinstance(e, ast.Name):
        return f"{id(e.decl)}"
    if isinstance(e, ast.Member):
        base = path_of(e.expr)
        return None if base is None or e.name in ("next", "last") else f"{base}.{e.name}"
    if isinstance(e, ast.Index) and isinstance(e.index.const, int):
        base = path_of(e.expr)
        return None if base is None else f"{base}[{e.index.const}]"
    return None


def shown(e: ast.Expr) -> str:
    """Return a place as the user wrote it."""
    if isinstance(e, ast.Name):
        return e.name
    if isinstance(e, ast.Member):
        return f"{shown(e.expr)}.{e.name}"
    if isinstance(e, ast.Index):
        return f"{shown(e.expr)}[{e.index.const}]"
    return "..."


def _is_metadata(e: ast.Expr, *names: str) -> bool:
    """Return whether `e` is one of these fields of standard_metadata."""
    t = e.expr.type if isinstance(e, ast.Member) else None
    return (
        isinstance(e, ast.Member)
        and e.name in names
        and isinstance(t, ty.StructType)
        and t.name == "standard_metadata_t"
    )


class FlowChecker:
    """Walks one body after another."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.tracked: set[ast.Declaration] = set()

    def body(self, stmts: list[ast.Stmt], params: list[ast.Param]) -> None:
        state = FlowState()
        self.tracked = {p for p in params if p.direction == "out" and isinstance(ty.strip_newtypes(_type(p)), _SCALARS)}
        self.stmts(stmts, state)

    # -- statements

    def stmts(self, stmts: list[ast.Stmt], state: FlowState) -> None:
        for s in stmts:
            if state.ended:
                return
            self.stmt(s, state)

    def stmt(self, s: ast.Stmt, state: FlowState) -> None:
        if isinstance(s, ast.Block):
            self.stmts(s.stmts, state)
        elif isinstance(s, ast.VarDecl):
            self._variable(s, state)
        elif isinstance(s, ast.Assign):
            self._assign(s, state)
        elif isinstance(s, ast.CallStmt):
            self.expr(s.call, state)
        elif isinstance(s, ast.If):
            self._if(s, state)
        elif isinstance(s, ast.SwitchStmt):
            self._switch(s, state)
        elif isinstance(s, ast.For | ast.ForIn):
            self._loop(s, state)
        elif isinstance(s, ast.Return):
            if s.expr is not None:
                self.expr(s.expr, state)
            state.ended = True
        elif isinstance(s, ast.Exit | ast.Break | ast.Continue):
            state.ended = True

    def _variable(self, d: ast.VarDecl, state: FlowState) -> None:
        t = ty.strip_newtypes(d.type or ty.UNKNOWN)
        if d.init is not None:
            self.expr(d.init, state)
            state.written.add(d)
            if isinstance(d.init, ast.InvalidExpr):
                state.invalid.add(f"{id(d)}")
        elif isinstance(t, _SCALARS):
            self.tracked.add(d)
            state.written.discard(d)
        elif isinstance(t, ty.HeaderType):
            state.invalid.add(f"{id(d)}")

    def _assign(self, s: ast.Assign, state: FlowState) -> None:
        self.expr(s.value, state)
        if s.op is not None:
            self.expr(s.target, state)
        self.write(s.target, state)
        if state.dropped and _is_metadata(s.target, "egress_spec", "mcast_grp"):
            assert isinstance(s.target, ast.Member)
            self.reporter.warning(s.target.pos, f"writing {s.target.name} after mark_to_drop takes the drop back")
            state.dropped = False

    def _if(self, s: ast.If, state: FlowState) -> None:
        self.expr(s.cond, state)
        then, other = state.copy(), state.copy()
        self._assume(s.cond, then)
        self.stmt(s.then, then)
        if s.other is not None:
            self.stmt(s.other, other)
        self._set(state, merge(then, other))
        state.ended = then.ended and other.ended

    def _assume(self, cond: ast.Expr, state: FlowState) -> None:
        """Remove headers whose `isValid()` a condition calls from the invalid ones of the branch where it holds."""
        for n in ast.walk(cond):
            if isinstance(n, ast.Call) and n.method == "isValid":
                self._valid(n.receiver, state)

    @staticmethod
    def _set(state: FlowState, new: FlowState) -> None:
        state.written, state.invalid, state.dropped = new.written, new.invalid, new.dropped

    def _switch(self, s: ast.SwitchStmt, state: FlowState) -> None:
        self.expr(s.expr, state)
        ends: list[FlowState] = []
        for case in s.cases:
            if case.body is not None:
                branch = state.copy()
                self.stmt(case.body, branch)
                ends.append(branch)
        if not any(c.is_default for c in s.cases):
            ends.append(state.copy())
        if ends:
            result = ends[0]
            for e in ends[1:]:
                result = merge(result, e)
            self._set(state, result)
            state.ended = all(e.ended for e in ends)

    def _loop(self, s: ast.For | ast.ForIn, state: FlowState) -> None:
        if isinstance(s, ast.For):
            self.stmts(s.init, state)
            self.expr(s.cond, state)
        else:
            self.expr(s.collection, state)
        inner = state.copy()
        inner.invalid.clear()
        inner.dropped = False
        if isinstance(s, ast.ForIn):
            decl = s.var if isinstance(s.var, ast.VarDecl) else s.var.decl
            if decl is not None:
                inner.written.add(decl)
        self.stmt(s.body, inner)
        if isinstance(s, ast.For):
            inner.ended = False
            self.stmts(s.update, inner)
        state.invalid &= inner.invalid
        state.dropped = state.dropped and inner.dropped

    # -- expressions

    def write(self, target: ast.Expr, state: FlowState) -> None:
        """Record that a place is written."""
        if isinstance(target, ast.Name):
            if target.decl is not None:
                state.written.add(target.decl)
            self._valid(target, state)
            return
        if isinstance(target, ast.Slice | ast.PlusSlice):
            # A part of a variable was written: the rest may be unwritten, but a warning would be noise.
            self.write(target.expr, state)
            return
        if isinstance(target, ast.Member) and isinstance(ty.strip_newtypes(_type(target.expr)), ty.HeaderType):
            path = path_of(target.expr)
            if path is not None and path in state.invalid:
                what = shown(target.expr)
                self.reporter.warning(
                    target.pos, f"{what} is not valid here: the write is lost (call {what}.setValid())"
                )
            return
        self._valid(target, state)

    @staticmethod
    def _valid(e: ast.Expr | None, state: FlowState) -> None:
        path = path_of(e)
        if path is None:
            state.invalid.clear()
            return
        state.invalid = {
            p for p in state.invalid if not (p + ".").startswith(path + ".") and not p.startswith(path + "[")
        }

    def expr(self, e: ast.Expr, state: FlowState) -> None:
        """Check an expression that is read."""
        if e.const is not None and not isinstance(e, ast.Call):
            return
        if isinstance(e, ast.Name):
            if e.decl in self.tracked and e.decl not in state.written:
                self.reporter.warning(e.pos, f"'{e.name}' may be read before it is written")
                state.written.add(e.decl)
            return
        if isinstance(e, ast.Member):
            if isinstance(ty.strip_newtypes(_type(e.expr)), ty.HeaderType):
                path = path_of(e.expr)
                if path is not None and path in state.invalid:
                    self.reporter.warning(e.pos, f"{shown(e.expr)} is not valid here: the value read is undefined")
                    state.invalid.discard(path)
            self.expr(e.expr, state)
            return
        if isinstance(e, ast.Call):
            self._call(e, state)
            return
        if isinstance(e, ast.Binary) and e.op in ("&&", "||"):
            self.expr(e.left, state)
            right = state.copy()
            self._assume(e.left, right)
            self.expr(e.right, right)
            return
        for child in ast.children(e):
            if isinstance(child, ast.Expr):
                self.expr(child, state)
            elif isinstance(child, ast.NamedExpr):
                self.expr(child.expr, state)

    def _call(self, e: ast.Call, state: FlowState) -> None:
        note = e.target.annotation("deprecated") if e.target is not None else None
        if note is not None:
            text = f": {note.args[0]}" if note.args else ""
            self.reporter.warning(e.pos, f"'{e.method}' is deprecated{text}")
        if e.kind is CallKind.HEADER_METHOD:
            if e.method == "setValid":
                self._valid(e.receiver, state)
            elif e.method == "setInvalid" and (path := path_of(e.receiver)) is not None:
                state.invalid.add(path)
            return
        outs: list[ast.Expr] = []
        for a in e.args:
            if a.expr is None or a.param is None:
                continue
            if a.param.direction == "out":
                outs.append(a.expr)
            else:
                self.expr(a.expr, state)
                if a.param.direction == "inout":
                    outs.append(a.expr)
        for target in outs:
            self._output(target, state)
        if e.method == "mark_to_drop" and e.kind is CallKind.EXTERN_FUNCTION:
            state.dropped = True
        elif e.kind in (CallKind.TABLE_APPLY, CallKind.CONTROL_APPLY, CallKind.PARSER_APPLY, CallKind.STACK_METHOD):
            state.invalid.clear()
            state.dropped = False
        elif e.kind is CallKind.ACTION and isinstance(e.target, ast.ActionDecl):
            state.invalid.clear()
            state.dropped = any(
                isinstance(s, ast.CallStmt) and s.call.method == "mark_to_drop" for s in e.target.body.stmts
            ) and not any(
                isinstance(s, ast.Assign) and _is_metadata(s.target, "egress_spec") for s in e.target.body.stmts
            )

    def _output(self, target: ast.Expr, state: FlowState) -> None:
        """Record an argument that the call writes."""
        if isinstance(target, ast.Name | ast.Slice | ast.PlusSlice):
            self.write(target, state)
        elif isinstance(target, ast.Member | ast.Index):
            self._valid(target, state)


def _type(d: ast.Param | ast.Expr) -> ty.Type:
    return d.type or ty.UNKNOWN


def check_flow(decls: list[ast.Declaration], main: ast.Instance, reporter: Reporter) -> None:
    """Warn about the whole program."""
    flow = FlowChecker(reporter)
    for d in decls:
        if isinstance(d, ast.ControlDecl) and d.body is not None:
            for local in d.locals:
                if isinstance(local, ast.ActionDecl):
                    flow.body(local.body.stmts, local.params)
            flow.body([s for s in d.locals if isinstance(s, ast.VarDecl) and s.init is not None] + d.body.stmts, [])
            _never_written(d, reporter)
        elif isinstance(d, ast.FunctionDecl):
            if d.body is not None and not d.type_params:
                flow.body(d.body.stmts, d.params)
        elif isinstance(d, ast.ActionDecl):
            flow.body(d.body.stmts, d.params)
        elif isinstance(d, ast.ParserDecl) and d.states is not None:
            for s in d.states:
                flow.body(s.stmts, [])
    egress = main.args.get("eg")
    if isinstance(egress, ast.Instance):
        _egress_spec(egress.decl, reporter)
    _unseen_verify(decls, reporter)


def _never_written(d: ast.ControlDecl, reporter: Reporter) -> None:
    """Warn of variables of a control that some code reads and no code writes."""
    waiting = {
        v
        for v in d.locals
        if isinstance(v, ast.VarDecl)
        and v.init is None
        and isinstance(ty.strip_newtypes(v.type or ty.UNKNOWN), _SCALARS)
    }
    if not waiting:
        return
    reads: dict[ast.Declaration, ast.Name] = {}
    written: set[ast.Declaration] = set()
    for n in ast.walk(d):
        targets: list[ast.Expr | None] = []
        if isinstance(n, ast.Assign):
            targets = [n.target]
        elif isinstance(n, ast.Call):
            targets = [a.expr for a in n.args if a.param is not None and a.param.direction in ("out", "inout")]
        elif isinstance(n, ast.ActionRef):
            targets = [a.expr for a in n.args or [] if a.param is not None and a.param.direction in ("out", "inout")]
        elif isinstance(n, ast.ForIn) and isinstance(n.var, ast.Name):
            targets = [n.var]
        elif isinstance(n, ast.Name) and n.decl in waiting and n.decl is not None:
            reads.setdefault(n.decl, n)
        for t in targets:
            while isinstance(t, ast.Slice | ast.PlusSlice):
                t = t.expr
            if isinstance(t, ast.Name) and t.decl is not None:
                written.add(t.decl)
    for decl, name in reads.items():
        if decl not in written:
            reporter.warning(name.pos, f"'{name.name}' is read but never written")


def _egress_spec(d: ast.Declaration, reporter: Reporter) -> None:
    """Warn of a read of egress_spec in egress without a write: simple_switch clears it, so it reads 0."""
    targets = [n.target for n in ast.walk(d) if isinstance(n, ast.Assign)]
    if any(_is_metadata(t, "egress_spec") for t in targets):
        return
    for n in ast.walk(d):
        if isinstance(n, ast.Member) and _is_metadata(n, "egress_spec"):
            reporter.warning(n.pos, "egress_spec reads 0 in egress; egress_port tells where the packet goes")
            return


def _unseen_verify(decls: list[ast.Declaration], reporter: Reporter) -> None:
    """Warn of a `verify` whose error is never read: a parser error drops nothing by itself."""
    first: ast.Call | None = None
    for d in decls:
        for n in ast.walk(d):
            if isinstance(n, ast.Member) and _is_metadata(n, "parser_error"):
                return
            if isinstance(n, ast.Call) and n.method == "verify" and n.kind is CallKind.EXTERN_FUNCTION:
                first = first or n
    if first is not None:
        reporter.warning(
            first.pos, "a failed verify drops nothing by itself: test standard_metadata.parser_error in ingress"
        )
