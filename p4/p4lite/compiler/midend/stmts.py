"""Statements: assignment, conditionals, switch, loops, and the ways out of a block."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import Callees, unsupported
from p4lite.compiler.midend.arith import wrap
from p4lite.compiler.midend.emitter import Frame, has_effects
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.hidden import HiddenTables
from p4lite.compiler.midend.lir import BasicBlock, Const, Op, Prim
from p4lite.compiler.midend.objects import Instances
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import Boolean, Data, IntConst, Struct, Value, as_const
from p4lite.compiler.position import Pos

Evaluate = Callable[[ast.Expr], int | None]

_TESTS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
    "==": lambda a, b: a == b,
}
_STEPS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def unroll_values(stmt: ast.For, evaluate: Evaluate, limit: int) -> tuple[ast.VarDecl, list[int], int] | None:
    """Return the variable of a loop, its value in each iteration and after the last one.

    None when the loop is not of the form `for (T i = c; i OP c; i = i STEP c)` with a body that does not write `i`, or
    takes more than `limit` iterations.
    """
    if len(stmt.init) != 1 or len(stmt.update) != 1:
        return None
    start = stmt.init[0]
    if not isinstance(start, ast.VarDecl) or start.init is None or start.type is None:
        return None
    shape = data_shape(start.type)
    if shape is None or writes(stmt.body, start):
        return None
    value = _constant(start.init, evaluate)
    test = _test(stmt.cond, start, evaluate)
    step = _step(stmt.update[0], start, evaluate)
    if value is None or test is None or step is None:
        return None
    values: list[int] = []
    while test(value):
        values.append(value)
        if len(values) > limit:
            return None
        value = wrap(step(value), *shape)
    return start, values, value


def _strip(expr: ast.Expr) -> ast.Expr:
    while isinstance(expr, ast.Cast) and expr.implicit:
        expr = expr.expr
    return expr


def _is_variable(expr: ast.Expr, variable: ast.VarDecl) -> bool:
    expr = _strip(expr)
    return isinstance(expr, ast.Name) and expr.decl is variable


def _constant(expr: ast.Expr, evaluate: Evaluate) -> int | None:
    if any(isinstance(n, ast.Call) for n in ast.walk(expr)):
        return None
    return evaluate(expr)


def _test(cond: ast.Expr, variable: ast.VarDecl, evaluate: Evaluate) -> Callable[[int], bool] | None:
    if not isinstance(cond, ast.Binary) or cond.op not in _TESTS:
        return None
    compare = _TESTS[cond.op]
    if _is_variable(cond.left, variable):
        right = _constant(cond.right, evaluate)
        return None if right is None else lambda v: compare(v, right)
    if _is_variable(cond.right, variable):
        left = _constant(cond.left, evaluate)
        return None if left is None else lambda v: compare(left, v)
    return None


def _step(stmt: ast.Stmt, variable: ast.VarDecl, evaluate: Evaluate) -> Callable[[int], int] | None:
    if not isinstance(stmt, ast.Assign) or not _is_variable(stmt.target, variable):
        return None
    op, amount_expr = stmt.op, stmt.value
    if op is None:
        value = _strip(stmt.value)
        if not isinstance(value, ast.Binary) or value.op not in _STEPS:
            return None
        if _is_variable(value.left, variable):
            op, amount_expr = value.op, value.right
        elif _is_variable(value.right, variable) and value.op in ("+", "*"):
            op, amount_expr = value.op, value.left
        else:
            return None
    if op not in _STEPS:
        return None
    amount = _constant(amount_expr, evaluate)
    if amount is None:
        return None
    advance = _STEPS[op]
    return lambda v: advance(v, amount)


def writes(body: ast.Node, variable: ast.VarDecl) -> bool:
    """Return whether the body may write the variable: by assignment, or as an out or inout argument."""
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and _mentions(node.target, variable):
            return True
        if isinstance(node, ast.Call):
            for arg in node.args:
                # The argument of push_front and pop_front is only read, and has no parameter.
                out = arg.param is not None and arg.param.direction in ("out", "inout")
                if out and arg.expr is not None and _mentions(arg.expr, variable):
                    return True
    return False


def _mentions(expr: ast.Expr, variable: ast.VarDecl) -> bool:
    """Return whether a destination is (part of) the variable; an index in it does not count."""
    while isinstance(expr, ast.Slice | ast.PlusSlice | ast.Index | ast.Member):
        expr = expr.expr
    return isinstance(expr, ast.Name) and expr.decl is variable


MAX_UNROLL = 1024
"""Iterations of a loop with constant bounds that are written out."""


class StatementLowering:
    """Lowers statements."""

    def __init__(
        self, code: Places, exprs: ExpressionLowering, callees: Callees, instances: Instances, hidden: HiddenTables
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.callees = callees
        self.instances = instances
        self.hidden = hidden

    def run(self, stmts: list[ast.Stmt]) -> None:
        """Lower a sequence of statements."""
        for stmt in stmts:
            self.statement(stmt)

    def statement(self, stmt: ast.Stmt) -> None:
        """Lower one statement."""
        method = getattr(self, "_do_" + type(stmt).__name__.lower(), None)
        if method is None:
            raise unsupported(stmt.pos, f"this statement ({type(stmt).__name__})")
        method(stmt)

    def _do_block(self, stmt: ast.Block) -> None:
        self.run(stmt.stmts)

    def _do_empty(self, stmt: ast.Empty) -> None:
        del stmt

    def _do_constdecl(self, stmt: ast.ConstDecl) -> None:
        if stmt.const is None:
            self.code.env.bind(stmt, self.exprs.eval(stmt.value))

    def _do_instantiation(self, stmt: ast.Instantiation) -> None:
        self.code.env.declared.add(stmt)
        self.instances.instance(stmt)

    def _do_vardecl(self, stmt: ast.VarDecl) -> None:
        assert stmt.type is not None
        value = self.exprs.eval(stmt.init) if stmt.init is not None else None
        place = self.code.env.own(stmt)
        if place is None:
            place = self.code.storage.allocate(stmt.type, stmt.name, stmt.pos)
            self.code.env.bind(stmt, place)
        if value is None:
            self.code.initialise(place, stmt.pos)
        else:
            self.code.assign(place, self.exprs.cast(value, stmt.type, stmt.pos), stmt.pos, self.code.loc(stmt))

    def _do_assign(self, stmt: ast.Assign) -> None:
        effects = has_effects([stmt.value])
        target = self.exprs.destination(stmt.target, stable=effects)
        if stmt.op is not None:
            value = self._operated(stmt, target)
        else:
            value = self.exprs.eval(stmt.value)
            if stmt.target.type is not None and not isinstance(target, Struct):
                value = self.exprs.cast(value, stmt.target.type, stmt.pos)
        self.code.assign(target, value, stmt.pos, self.code.loc(stmt))

    def _operated(self, stmt: ast.Assign, target: Value) -> Value:
        """Return the value of `target op value`."""
        assert stmt.op is not None
        old = self.code.readable(target, stmt.pos)
        if has_effects([stmt.value]):
            old = self.code.snapshot(old, stmt.pos)
        right = self.exprs.eval(stmt.value)
        if stmt.op in ("&&", "||"):
            combine = arith.logical_and if stmt.op == "&&" else arith.logical_or
            return Boolean(combine(self.code.truth(old, stmt.pos), self.code.truth(right, stmt.pos)))
        return self.exprs.operate(stmt.op, old, right, stmt.target)

    def _do_callstmt(self, stmt: ast.CallStmt) -> None:
        self.callees.call(stmt.call)

    def _do_if(self, stmt: ast.If) -> None:
        then, other, after = BasicBlock(), BasicBlock(), BasicBlock()
        if not self._branch_on_table(stmt.cond, then, other):
            cond = self.exprs.eval_truth(stmt.cond)
            if isinstance(cond, lir.Bool):
                chosen = stmt.then if cond.value else stmt.other
                if chosen is not None:
                    self.statement(chosen)
                return
            self.code.branch(cond, then, other if stmt.other is not None else after, self.code.loc(stmt.cond))
        self.code.start(then)
        self.statement(stmt.then)
        self.code.jump(after)
        self.code.start(other)
        if stmt.other is not None:
            self.statement(stmt.other)
        self.code.jump(after)
        self.code.start(after)

    def _branch_on_table(self, cond: ast.Expr, then: BasicBlock, other: BasicBlock) -> bool:
        """Branch on `t.apply().hit` (or miss, or their negations) without a temporary; return whether the condition is
        one."""
        while isinstance(cond, ast.Unary) and cond.op == "!":
            cond, then, other = cond.expr, other, then
        if not isinstance(cond, ast.Member) or cond.name not in ("hit", "miss"):
            return False
        call = cond.expr
        if not isinstance(call, ast.Call) or call.kind is not ast.CallKind.TABLE_APPLY:
            return False
        hit, miss = (then, other) if cond.name == "hit" else (other, then)
        self.callees.tables.apply(call, {lir.HIT: hit, lir.MISS: miss}, miss)
        return True

    def _do_switchstmt(self, stmt: ast.SwitchStmt) -> None:
        if isinstance(stmt.expr, ast.Member) and isinstance(stmt.expr.type, t.ActionEnumType):
            call = stmt.expr.expr
            if not isinstance(call, ast.Call):
                raise unsupported(stmt.pos, "a switch on a stored action_run")
            self._switch_on_action(stmt, call)
            return
        subject = self.code.snapshot(self.exprs.eval(stmt.expr), stmt.expr.pos)
        after = BasicBlock()
        default: BasicBlock | None = None
        bodies = self._case_blocks(stmt)
        for case, block in zip(stmt.cases, bodies, strict=True):
            if case.is_default or case.label is None:
                default = block
                continue
            label = self.exprs.eval(case.label)
            following = BasicBlock()
            self.code.branch(self.code.equal(subject, label, case.pos), block, following, self.code.loc(case))
            self.code.start(following)
        self.code.jump(default or after)
        self._fill_cases(stmt, bodies, after)
        self.code.start(after)

    def _switch_on_action(self, stmt: ast.SwitchStmt, call: ast.Call) -> None:
        """Lower `switch (t.apply().action_run)`."""
        after = BasicBlock()
        blocks = self._case_blocks(stmt)
        targets: dict[str | ast.ActionDecl, BasicBlock] = {}
        default = after
        for case, block in zip(stmt.cases, blocks, strict=True):
            if case.is_default or case.label is None:
                default = block
                continue
            decl = case.label.decl if isinstance(case.label, ast.Name) else None
            if not isinstance(decl, ast.ActionDecl):
                raise unsupported(case.pos, "this label of a switch on action_run")
            targets[decl] = block
        self.callees.tables.apply(call, targets, default)
        self._fill_cases(stmt, blocks, after)
        self.code.start(after)

    def _case_blocks(self, stmt: ast.SwitchStmt) -> list[BasicBlock]:
        """Return one block per label; labels without a body share that of the next one that has one."""
        blocks: list[BasicBlock] = []
        shared = BasicBlock()
        for case in stmt.cases:
            blocks.append(shared)
            if case.body is not None:
                shared = BasicBlock()
        return blocks

    def _fill_cases(self, stmt: ast.SwitchStmt, blocks: list[BasicBlock], after: BasicBlock) -> None:
        """Lower the bodies of a switch."""
        for case, block in zip(stmt.cases, blocks, strict=True):
            if case.body is not None:
                self.code.start(block)
                self.statement(case.body)
                self.code.jump(after)
        if stmt.cases and stmt.cases[-1].body is None:
            self.code.start(blocks[-1])
            self.code.jump(after)

    # --- ways out ---

    def _do_return(self, stmt: ast.Return) -> None:
        if stmt.expr is not None:
            value = self.exprs.eval(stmt.expr)
            if self.code.frame.result is not None:
                self.code.assign(self.code.frame.result, value, stmt.pos, self.code.loc(stmt))
        self.code.jump(self.code.frame.done)

    def _do_exit(self, stmt: ast.Exit) -> None:
        self.exit(stmt.pos, self.code.loc(stmt))

    def exit(self, pos: Pos, loc: lir.SourceInfo | None = None) -> None:
        """Leave the pipeline, after the copy-out of all calls on the way."""
        frame: Frame | None = self.code.frame
        while frame is not None:
            self.code.copy_out(frame, pos)
            frame = frame.parent
        if self.code.routine.kind == "action":
            if self.code.routine.exit_flag is not None:
                self.code.emit(lir.LoweredAssign(self.code.routine.exit_flag, Const(1, 1), loc))
            else:
                self.code.emit(Prim("exit", (), loc))
        elif self.code.routine.kind not in ("control", "deparser"):
            raise unsupported(pos, "exit here")
        self.code.end()

    def _do_break(self, stmt: ast.Break) -> None:
        if not self.code.frame.loops:
            raise unsupported(stmt.pos, "break outside of a loop")
        self.code.jump(self.code.frame.loops[-1][0])

    def _do_continue(self, stmt: ast.Continue) -> None:
        if not self.code.frame.loops:
            raise unsupported(stmt.pos, "continue outside of a loop")
        self.code.jump(self.code.frame.loops[-1][1])

    # --- loops ---

    def _loop_body(self, body: ast.Stmt, after: BasicBlock) -> None:
        following = BasicBlock()
        self.code.frame.loops.append((after, following))
        self.statement(body)
        self.code.frame.loops.pop()
        self.code.jump(following)
        self.code.start(following)

    def _do_for(self, stmt: ast.For) -> None:
        plan = unroll_values(stmt, lambda e: as_const(self.exprs.eval(e)), MAX_UNROLL)
        after = BasicBlock()
        if plan is not None:
            variable, values, final = plan
            self.run(list(stmt.init))
            place = self.code.env.find(variable)
            assert place is not None
            assert variable.type is not None
            for value in values:
                constant = self.exprs.constant(value, variable.type, stmt.pos)
                self.code.assign(place, constant, stmt.pos)
                self.code.env.bind(variable, constant)
                self._loop_body(stmt.body, after)
                self.code.env.bind(variable, place)
            self.code.assign(place, self.exprs.constant(final, variable.type, stmt.pos), stmt.pos)
            self.code.jump(after)
            self.code.start(after)
            return

        def loop() -> None:
            self.run(list(stmt.init))
            head, inside = BasicBlock(), BasicBlock()
            self.code.jump(head)
            self.code.start(head)
            self.code.branch(self.exprs.eval_truth(stmt.cond), inside, after, self.code.loc(stmt))
            self.code.start(inside)
            self._loop_body(stmt.body, after)
            self.run(list(stmt.update))
            self.code.jump(head)
            self.code.start(after)

        self._run_loop(stmt, loop)

    def _run_loop(self, stmt: ast.For | ast.ForIn, loop: Callable[[], None]) -> None:
        """Lower a loop whose length is known at run time only: inline in actions and parsers, else in an action of its
        own."""
        if self.code.routine.kind in ("action", "parser"):
            loop()
            return
        applies = (ast.CallKind.TABLE_APPLY, ast.CallKind.CONTROL_APPLY)
        for node in ast.walk(stmt):
            if isinstance(node, ast.Return) or (isinstance(node, ast.Call) and node.kind in applies):
                what = "return" if isinstance(node, ast.Return) else "apply()"
                raise unsupported(node.pos, f"{what} in a loop with bounds that are not constant")
        self.hidden.in_action(stmt, loop)

    def _do_forin(self, stmt: ast.ForIn) -> None:
        place = self._loop_variable(stmt)
        after = BasicBlock()
        if isinstance(stmt.collection, ast.RangeExpr):
            low, high = self.exprs.eval_in_order([stmt.collection.lo, stmt.collection.hi])
            first, last = as_const(low), as_const(high)
            if first is not None and last is not None and last - first < MAX_UNROLL:
                items: list[Value] = [
                    self.exprs.constant(v, stmt.collection.lo.type, stmt.pos) for v in range(first, last + 1)
                ]
                self._each(stmt, place, items, after)
            else:
                self._count(stmt, place, low, high, after)
                return
        else:
            collection = self.exprs.eval(stmt.collection)
            if not isinstance(collection, Struct):
                names = [n for n, _ in _fields_of(stmt.collection.type)] if stmt.collection.type else []
                items = [self.exprs.constant_index(collection, int(n), stmt.pos) for n in names]
            else:
                items = list(collection.fields.values())
            self._each(stmt, place, items, after)
        self.code.jump(after)
        self.code.start(after)

    def _loop_variable(self, stmt: ast.ForIn) -> Value:
        if isinstance(stmt.var, ast.VarDecl):
            place = self.code.env.own(stmt.var)
            if place is None:
                assert stmt.var.type is not None
                place = self.code.storage.allocate(stmt.var.type, stmt.var.name, stmt.pos)
                self.code.env.bind(stmt.var, place)
            return place
        return self.exprs.eval(stmt.var)

    def _each(self, stmt: ast.ForIn, place: Value, items: list[Value], after: BasicBlock) -> None:
        decl = stmt.var if isinstance(stmt.var, ast.VarDecl) and not writes(stmt.body, stmt.var) else None
        for item in items:
            value = item
            if isinstance(value, IntConst) and isinstance(place, Data):
                value = Data(Const(value.value, place.width), place.width, place.signed)
            self.code.assign(place, value, stmt.pos)
            if decl is not None and as_const(value) is not None:
                self.code.env.bind(decl, value)
            self._loop_body(stmt.body, after)
            if decl is not None:
                self.code.env.bind(decl, place)

    def _count(self, stmt: ast.ForIn, place: Value, low: Value, high: Value, after: BasicBlock) -> None:
        """Lower `for (x in low .. high)` at run time: evaluate the bounds once; `high` may be the largest value."""
        shape = data_shape(stmt.collection.type.element) if isinstance(stmt.collection.type, t.SetType) else None
        width, signed = shape or ((place.width, place.signed) if isinstance(place, Data) else (32, False))

        def loop() -> None:
            counter, bound = self.code.temp(width + 1, signed), self.code.temp(width, signed)
            self.code.emit(lir.LoweredAssign(counter, self.code.data(low, stmt.pos, width)))
            self.code.emit(lir.LoweredAssign(bound, self.code.data(high, stmt.pos, width)))
            head, inside = BasicBlock(), BasicBlock()
            self.code.jump(head)
            self.code.start(head)
            self.code.branch(Op("<=", counter, bound), inside, after, self.code.loc(stmt))
            self.code.start(inside)
            self.code.copy(place, Data(counter, width, signed), stmt.pos)
            self._loop_body(stmt.body, after)
            self.code.emit(
                lir.LoweredAssign(counter, arith.binary("+", counter, Const(1, width + 1), width + 1, signed))
            )
            self.code.jump(head)
            self.code.start(after)

        self._run_loop(stmt, loop)


def _fields_of(ty: t.Type) -> list[tuple[str, t.Type]]:
    """Return the named fields of a struct, header or anonymous struct, or the items of a tuple or array by position."""
    ty = t.strip_newtypes(ty)
    if isinstance(ty, (t.FieldsType, t.AnonStructType)):
        return list(ty.fields.items())
    if isinstance(ty, t.TupleType):
        return [(str(i), f) for i, f in enumerate(ty.items)]
    if isinstance(ty, t.StackType):
        return [(str(i), ty.element) for i in range(ty.size)]
    return []
