"""Statements: assignment, conditionals, switch, loops, and the ways out of a block."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.base import Frame, as_const, fields_of, has_effects
from p4lite.compiler.midend.calls import Calls
from p4lite.compiler.midend.lir import Block, Const, Op, Prim
from p4lite.compiler.midend.loops import unroll_values, writes
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import Data, IntConst, Struct, Value

MAX_UNROLL = 1024
"""Iterations of a loop with constant bounds that are written out."""


class Statements(Calls):
    """Statement by statement."""

    def apply_switch(self, stmt: ast.Switch, call: ast.Call) -> None:
        raise NotImplementedError

    def table_condition(self, cond: ast.Expr, then: Block, other: Block) -> bool:
        raise NotImplementedError

    def statements(self, stmts: list[ast.Stmt]) -> None:
        """A sequence."""
        for stmt in stmts:
            self.statement(stmt)

    def statement(self, stmt: ast.Stmt) -> None:
        """One statement."""
        method = getattr(self, "_do_" + type(stmt).__name__.lower(), None)
        if method is None:
            raise unsupported(stmt.pos, f"this statement ({type(stmt).__name__})")
        method(stmt)

    def _do_block(self, stmt: ast.Block) -> None:
        self.statements(stmt.stmts)

    def _do_empty(self, stmt: ast.Empty) -> None:
        del stmt

    def _do_constdecl(self, stmt: ast.ConstDecl) -> None:
        if stmt.const is None:
            self.env.bind(stmt, self.eval(stmt.value))

    def _do_instantiation(self, stmt: ast.Instantiation) -> None:
        self.env.declared.add(stmt)
        self.instance(stmt)

    def _do_vardecl(self, stmt: ast.VarDecl) -> None:
        assert stmt.type is not None
        value = self.eval(stmt.init) if stmt.init is not None else None
        place = self.env.own(stmt)
        if place is None:
            place = self.storage.allocate(stmt.type, stmt.name, stmt.pos)
            self.env.bind(stmt, place)
        if value is None:
            self.initialise(place, stmt.pos)
        else:
            self.assign(place, self.cast(value, stmt.type, stmt.pos), stmt.pos, self.loc(stmt))

    def _do_assign(self, stmt: ast.Assign) -> None:
        effects = has_effects([stmt.value])
        target = self.destination(stmt.target, stable=effects)
        if stmt.op is not None:
            value = self._operated(stmt, target)
        else:
            value = self.eval(stmt.value)
            if stmt.target.type is not None and not isinstance(target, Struct):
                value = self.cast(value, stmt.target.type, stmt.pos)
        self.assign(target, value, stmt.pos, self.loc(stmt))

    def _operated(self, stmt: ast.Assign, target: Value) -> Value:
        """The value of `target op value`."""
        assert stmt.op is not None
        old = self._readable(target, stmt.pos)
        if has_effects([stmt.value]):
            old = self.snapshot(old, stmt.pos)
        right = self.eval(stmt.value)
        if stmt.op in ("&&", "||"):
            combine = arith.logical_and if stmt.op == "&&" else arith.logical_or
            from p4lite.compiler.midend.values import Boolean

            return Boolean(combine(self.truth(old, stmt.pos), self.truth(right, stmt.pos)))
        return self.operate(stmt.op, old, right, stmt.target)

    def _do_callstmt(self, stmt: ast.CallStmt) -> None:
        self.call(stmt.call)

    def _do_if(self, stmt: ast.If) -> None:
        then, other, after = Block(), Block(), Block()
        if not self.table_condition(stmt.cond, then, other):
            cond = self.eval_truth(stmt.cond)
            if isinstance(cond, lir.Bool):
                chosen = stmt.then if cond.value else stmt.other
                if chosen is not None:
                    self.statement(chosen)
                return
            self.branch(cond, then, other if stmt.other is not None else after, self.loc(stmt.cond))
        self.start(then)
        self.statement(stmt.then)
        self.jump(after)
        self.start(other)
        if stmt.other is not None:
            self.statement(stmt.other)
        self.jump(after)
        self.start(after)

    def _do_switch(self, stmt: ast.Switch) -> None:
        if isinstance(stmt.expr, ast.Member) and isinstance(stmt.expr.type, t.ActionEnumType):
            call = stmt.expr.expr
            if not isinstance(call, ast.Call):
                raise unsupported(stmt.pos, "a switch on a stored action_run")
            self.apply_switch(stmt, call)
            return
        subject = self.snapshot(self.eval(stmt.expr), stmt.expr.pos)
        after = Block()
        default: Block | None = None
        bodies = self.case_blocks(stmt)
        for case, block in zip(stmt.cases, bodies, strict=True):
            if case.is_default or case.label is None:
                default = block
                continue
            label = self.eval(case.label)
            following = Block()
            self.branch(self.equal(subject, label, case.pos), block, following, self.loc(case))
            self.start(following)
        self.jump(default or after)
        self.fill_cases(stmt, bodies, after)
        self.start(after)

    def case_blocks(self, stmt: ast.Switch) -> list[Block]:
        """One block per label; labels without a body share that of the next one that has one."""
        blocks: list[Block] = []
        shared = Block()
        for case in stmt.cases:
            blocks.append(shared)
            if case.body is not None:
                shared = Block()
        return blocks

    def fill_cases(self, stmt: ast.Switch, blocks: list[Block], after: Block) -> None:
        """The bodies of a switch."""
        for case, block in zip(stmt.cases, blocks, strict=True):
            if case.body is not None:
                self.start(block)
                self.statement(case.body)
                self.jump(after)
        if stmt.cases and stmt.cases[-1].body is None:
            self.start(blocks[-1])
            self.jump(after)

    # --- ways out ---

    def _do_return(self, stmt: ast.Return) -> None:
        if stmt.expr is not None:
            value = self.eval(stmt.expr)
            if self.frame.result is not None:
                self.assign(self.frame.result, value, stmt.pos, self.loc(stmt))
        self.jump(self.frame.done)

    def _do_exit(self, stmt: ast.Exit) -> None:
        self.exit(stmt.pos, self.loc(stmt))

    def exit(self, pos: ast.Pos, loc: lir.SourceInfo | None = None) -> None:
        """Leave the pipeline, after the copy-out of all calls on the way."""
        frame: Frame | None = self.frame
        while frame is not None:
            self.copy_out(frame, pos)
            frame = frame.parent
        if self.routine.kind == "action":
            if self.routine.exit_flag is not None:
                self.emit(lir.Assign(self.routine.exit_flag, Const(1, 1), loc))
            else:
                self.emit(Prim("exit", (), loc))
        elif self.routine.kind not in ("control", "deparser"):
            raise unsupported(pos, "exit here")
        self.end()

    def _do_break(self, stmt: ast.Break) -> None:
        if not self.frame.loops:
            raise unsupported(stmt.pos, "break outside of a loop")
        self.jump(self.frame.loops[-1][0])

    def _do_continue(self, stmt: ast.Continue) -> None:
        if not self.frame.loops:
            raise unsupported(stmt.pos, "continue outside of a loop")
        self.jump(self.frame.loops[-1][1])

    # --- loops ---

    def _loop_body(self, body: ast.Stmt, after: Block) -> None:
        following = Block()
        self.frame.loops.append((after, following))
        self.statement(body)
        self.frame.loops.pop()
        self.jump(following)
        self.start(following)

    def _do_for(self, stmt: ast.For) -> None:
        plan = unroll_values(stmt, lambda e: as_const(self.eval(e)), MAX_UNROLL)
        after = Block()
        if plan is not None:
            variable, values, final = plan
            self.statements(list(stmt.init))
            place = self.env.find(variable)
            assert place is not None
            assert variable.type is not None
            for value in values:
                constant = self.constant(value, variable.type, stmt.pos)
                self.assign(place, constant, stmt.pos)
                self.env.bind(variable, constant)
                self._loop_body(stmt.body, after)
                self.env.bind(variable, place)
            self.assign(place, self.constant(final, variable.type, stmt.pos), stmt.pos)
            self.jump(after)
            self.start(after)
            return

        def loop() -> None:
            self.statements(list(stmt.init))
            head, inside = Block(), Block()
            self.jump(head)
            self.start(head)
            self.branch(self.eval_truth(stmt.cond), inside, after, self.loc(stmt))
            self.start(inside)
            self._loop_body(stmt.body, after)
            self.statements(list(stmt.update))
            self.jump(head)
            self.start(after)

        self._run_loop(stmt, loop)

    def _run_loop(self, stmt: ast.For | ast.ForIn, loop: Callable[[], None]) -> None:
        """A loop of a length known at run time only: in place in actions and parsers, else in an action of its own."""
        if self.routine.kind in ("action", "parser"):
            loop()
            return
        applies = (ast.CallKind.TABLE_APPLY, ast.CallKind.CONTROL_APPLY)
        for node in ast.walk(stmt):
            if isinstance(node, ast.Return) or (isinstance(node, ast.Call) and node.kind in applies):
                what = "return" if isinstance(node, ast.Return) else "apply()"
                raise unsupported(node.pos, f"{what} in a loop with bounds that are not constant")
        self.in_action(stmt, loop)

    def in_action(self, node: ast.Node, body: Callable[[], None]) -> None:
        """Run `body` as an action of its own, called here."""
        raise NotImplementedError

    def _do_forin(self, stmt: ast.ForIn) -> None:
        place = self._loop_variable(stmt)
        after = Block()
        if isinstance(stmt.collection, ast.Range):
            low, high = self.eval_in_order([stmt.collection.lo, stmt.collection.hi])
            first, last = as_const(low), as_const(high)
            if first is not None and last is not None and last - first < MAX_UNROLL:
                items: list[Value] = [
                    self.constant(v, stmt.collection.lo.type, stmt.pos) for v in range(first, last + 1)
                ]
                self._each(stmt, place, items, after)
            else:
                self._count(stmt, place, low, high, after)
                return
        else:
            collection = self.eval(stmt.collection)
            if not isinstance(collection, Struct):
                names = [n for n, _ in fields_of(stmt.collection.type)] if stmt.collection.type else []
                items = [self._constant_index(collection, int(n), stmt.pos) for n in names]
            else:
                items = list(collection.fields.values())
            self._each(stmt, place, items, after)
        self.jump(after)
        self.start(after)

    def _loop_variable(self, stmt: ast.ForIn) -> Value:
        if isinstance(stmt.var, ast.VarDecl):
            place = self.env.own(stmt.var)
            if place is None:
                assert stmt.var.type is not None
                place = self.storage.allocate(stmt.var.type, stmt.var.name, stmt.pos)
                self.env.bind(stmt.var, place)
            return place
        return self.eval(stmt.var)

    def _each(self, stmt: ast.ForIn, place: Value, items: list[Value], after: Block) -> None:
        decl = stmt.var if isinstance(stmt.var, ast.VarDecl) and not writes(stmt.body, stmt.var) else None
        for item in items:
            value = item
            if isinstance(value, IntConst) and isinstance(place, Data):
                value = Data(Const(value.value, place.width), place.width, place.signed)
            self.assign(place, value, stmt.pos)
            if decl is not None and as_const(value) is not None:
                self.env.bind(decl, value)
            self._loop_body(stmt.body, after)
            if decl is not None:
                self.env.bind(decl, place)

    def _count(self, stmt: ast.ForIn, place: Value, low: Value, high: Value, after: Block) -> None:
        """`for (x in low .. high)` at run time; the bounds are evaluated once, and `high` may be the largest value."""
        shape = data_shape(stmt.collection.type.element) if isinstance(stmt.collection.type, t.SetType) else None
        width, signed = shape or ((place.width, place.signed) if isinstance(place, Data) else (32, False))

        def loop() -> None:
            counter, bound = self.temp(width + 1, signed), self.temp(width, signed)
            self.emit(lir.Assign(counter, self.data(low, stmt.pos, width)))
            self.emit(lir.Assign(bound, self.data(high, stmt.pos, width)))
            head, inside = Block(), Block()
            self.jump(head)
            self.start(head)
            self.branch(Op("<=", counter, bound), inside, after, self.loc(stmt))
            self.start(inside)
            self.copy(place, Data(counter, width, signed), stmt.pos)
            self._loop_body(stmt.body, after)
            self.emit(lir.Assign(counter, arith.binary("+", counter, Const(1, width + 1), width + 1, signed)))
            self.jump(head)
            self.start(after)

        self._run_loop(stmt, loop)
