"""Calls: functions, actions, sub-controls and header methods, inlined with copy-in and copy-out.

A parameter is bound by reference where no difference can be observed: when the argument is plain storage that no
other argument and nothing the callee captures overlaps. Otherwise it is copied, and copied back at the end of the call,
also when an `exit` ends it (language specification §6.8, §12.5).
"""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import Bound, as_written, bindings, rebind, unsupported
from p4lite.compiler.midend.emitter import Env, Frame, Routine, has_effects
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.hidden import HiddenTables
from p4lite.compiler.midend.lir import BasicBlock, Const, ElemField, ElemRef, LoweredAction, Prim
from p4lite.compiler.midend.names import control_plane_name, qualified
from p4lite.compiler.midend.objects import ControlInstance, Instances
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.stmts import StatementLowering
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import (
    Boolean,
    Data,
    NextElement,
    Nothing,
    Object,
    PlusSliceOf,
    SliceOf,
    StoredHeader,
    StoredStack,
    StoredUnionStack,
    Struct,
    TextConst,
    Value,
    as_const,
    may_overlap,
    roots,
)
from p4lite.compiler.position import Pos

Kind = ast.CallKind
KINDS = (
    Kind.FUNCTION, Kind.ACTION, Kind.CONTROL_APPLY, Kind.HEADER_METHOD, Kind.STACK_METHOD, Kind.SIZE_METHOD,
)  # fmt: skip
"""The calls that `CallLowering` carries out."""


class CallLowering:
    """Lowers calls of everything but externs, tables and parsers."""

    def __init__(
        self,
        code: Places,
        exprs: ExpressionLowering,
        instances: Instances,
        statements: StatementLowering,
        hidden: HiddenTables,
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.instances = instances
        self.statements = statements
        self.hidden = hidden

    def call(self, call: ast.Call) -> Value | None:
        """Perform a call; return its value, or None when it has none."""
        kind = call.kind
        if kind is Kind.FUNCTION:
            return self._call_function(call)
        if kind is Kind.ACTION:
            self._call_action(call)
            return None
        if kind is Kind.CONTROL_APPLY:
            self._apply_control(call)
            return None
        if kind is Kind.HEADER_METHOD:
            return self._header_method(call)
        if kind is Kind.STACK_METHOD:
            return self._stack_method(call)
        assert kind is Kind.SIZE_METHOD
        assert call.const is not None
        return self.exprs.constant(call.const, call.type, call.pos)

    def _header_method(self, call: ast.Call) -> Value | None:
        assert call.receiver is not None
        if call.method == "isValid":
            return Boolean(self.code.is_valid(self.exprs.eval(call.receiver), call.pos))
        target = self.exprs.destination(call.receiver)
        if not isinstance(target, StoredHeader):
            raise unsupported(call.pos, f"{call.method}() of this expression")
        self.code.set_valid(target, call.method == "setValid", self.code.loc(call))
        return None

    def _stack_method(self, call: ast.Call) -> Value | None:
        assert call.receiver is not None
        stack = self.exprs.destination(call.receiver)
        if not isinstance(stack, (StoredStack, StoredUnionStack)):
            raise unsupported(call.pos, f"{call.method}() of this expression")
        count_expr = call.args[0].expr
        assert count_expr is not None
        count = as_const(self.exprs.eval(count_expr))
        if count is None:
            raise unsupported(call.pos, f"{call.method}() by an amount that is not constant")
        ref = lir.StackRef(stack.name) if isinstance(stack, StoredStack) else lir.UnionStackRef(stack.name)
        if self.code.routine.kind == "parser":
            self.code.warn(
                call.pos, f"p4c refuses {call.method} in a parser for BMv2: do it in ingress to stay portable"
            )
        op = "push" if call.method == "push_front" else "pop"
        self.code.emit(Prim(op, (ref, Const(count, 32)), self.code.loc(call)))
        return None

    # --- arguments ---

    def bind_arguments(
        self, bound: list[Bound], env: Env, frame: Frame, captured: set[str], *, always_copy: bool = False
    ) -> None:
        """Evaluate arguments in the order of the call, copy in, and bind the parameters in `env`."""
        bound = as_written(bound)
        values: list[Value] = []
        early: dict[int, Value] = {}
        for i, (param, expr, _) in enumerate(bound):
            later = [b.expr for b in bound[i + 1 :]]
            if expr is None:
                raise unsupported(param.pos, f"a missing argument for '{param.name}'")
            if param.direction in ("out", "inout"):
                values.append(self.exprs.destination(expr, stable=True))
                if param.direction == "inout" and has_effects(later):
                    early[i] = self.code.snapshot(self.code.readable(values[i], expr.pos), expr.pos)
                continue
            value = self.exprs.eval(expr)
            values.append(self.code.snapshot(value, expr.pos) if has_effects(later) else value)
        written = [roots(v) for (p, _, _), v in zip(bound, values, strict=True) if p.direction in ("out", "inout")]
        for i, ((param, expr, _), value) in enumerate(zip(bound, values, strict=True)):
            assert expr is not None
            assert param.type is not None
            if param.direction in ("out", "inout"):
                others = captured.union(*(roots(v) for j, v in enumerate(values) if j != i))
                plain = _is_plain(value) and not always_copy and i not in early
                if not plain or may_overlap(roots(value), others):
                    env.bind(param, self._copied_parameter(param, value, early.get(i, value), env, frame, expr.pos))
                    continue
                if param.direction == "out":
                    self.code.initialise(value, expr.pos)
                env.bind(param, value)
            else:
                others = captured.union(*written)
                env.bind(param, self._in_parameter(param, value, others, env, expr.pos, always_copy))

    def _copied_parameter(
        self, param: ast.Param, value: Value, initial: Value, env: Env, frame: Frame, pos: Pos
    ) -> Value:
        """Bind a parameter to storage of its own: copy `initial` in (inout); `value` is where it is copied back."""
        assert param.type is not None
        place = env.own(param) or self.code.storage.allocate(param.type, param.name, pos)
        if param.direction == "inout":
            self.code.copy(place, self.code.readable(initial, pos), pos)
        else:
            self.code.initialise(place, pos)
        if not isinstance(value, Nothing):
            frame.copy_outs.append((value, place))
        return place

    def _in_parameter(
        self, param: ast.Param, value: Value, written: set[str], env: Env, pos: Pos, always_copy: bool
    ) -> Value:
        if isinstance(value, (Object, TextConst)) or param.type is None:
            return value
        value = self.exprs.cast(value, param.type, pos)
        if always_copy:
            place = env.own(param) or self.code.storage.allocate(param.type, param.name, pos)
            self.code.assign(place, value, pos)
            return place
        simple = not isinstance(value, (Data, Boolean)) or isinstance(
            value.expr, (Const, lir.Field, lir.RuntimeParam, lir.Bool)
        )
        if isinstance(value, Boolean) and value.place is not None and not isinstance(value.place, ElemField):
            simple = True
        if simple and not may_overlap(roots(value), written):
            return value
        return self.code.snapshot(value, pos)

    def inline(self, frame: Frame, env: Env, body: Callable[[], None], pos: Pos) -> None:
        """Run a body in its own environment and frame, then copy out."""
        saved_env, saved_frame = self.code.env, self.code.frame
        self.code.env, self.code.frame = env, frame
        frame.call = pos
        body()
        self.code.jump(frame.done)
        self.code.start(frame.done)
        self.code.env, self.code.frame = saved_env, saved_frame
        self.code.copy_out(frame, pos)

    # --- functions and actions ---

    def _call_function(self, call: ast.Call) -> Value | None:
        decl = call.target
        assert isinstance(decl, ast.FunctionDecl)
        assert decl.body is not None
        frame = Frame(self.code.frame, BasicBlock())
        env = Env(self.code.globals, path=self.code.env.path)
        self.bind_arguments(bindings(call.args), env, frame, set())
        result_type = decl.result.type
        if result_type is not None and not isinstance(result_type, t.VoidType):
            frame.result = self.code.storage.allocate(result_type, decl.name, call.pos)
        body = decl.body
        self.inline(frame, env, lambda: self.statements.run(body.stmts), call.pos)
        return frame.result

    def _call_action(self, call: ast.Call) -> None:
        decl = call.target
        assert isinstance(decl, ast.ActionDecl)
        if self.code.routine.kind == "control" and not decl.params and decl.body.stmts and not self.code.copies_out():
            self._action_node(decl, call)
        else:
            self.run_action(decl, bindings(call.args), call.pos)

    def run_action(self, decl: ast.ActionDecl, bound: list[Bound], pos: Pos) -> None:
        """Inline an action's body; its arguments are evaluated here."""
        home = self.code.home(decl)
        frame = Frame(self.code.frame, BasicBlock())
        env = Env(home)
        self.bind_arguments(bound, env, frame, self.captured(decl, home))
        self.inline(frame, env, lambda: self.statements.run(decl.body.stmts), pos)

    def captured(self, decl: ast.ActionDecl, home: Env) -> set[str]:
        """Return the names of storage outside an action that its body, or an action it calls, uses."""
        found: set[str] = set()
        seen: set[ast.Node] = set()
        todo: list[ast.Node] = [decl.body]
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.Name, ast.Member)):
                value = self._static_path(node, home)
                if value is not None:
                    found |= roots(value)
                    continue
            if isinstance(node, ast.Name) and isinstance(node.decl, ast.ActionDecl) and node.decl not in seen:
                seen.add(node.decl)
                todo.append(node.decl.body)
            todo.extend(ast.children(node))
        return found

    def _static_path(self, node: ast.Expr, home: Env) -> Value | None:
        """Return the storage of `a.b.c` where that is known without evaluating anything."""
        if isinstance(node, ast.Name) and node.decl is not None:
            return home.find(node.decl)
        if isinstance(node, ast.Member):
            base = self._static_path(node.expr, home)
            if isinstance(base, Struct):
                return base.fields.get(node.name)
            return base
        return None

    def _action_node(self, decl: ast.ActionDecl, call: ast.Call) -> None:
        """Emit a call of an action without parameters: a table of its own with only that action."""
        home = self.code.home(decl)
        saved = self.code.env
        action = self.action(ast.ActionRef(call.pos, ast.Name(call.pos, decl.name), decl=decl), home)
        self.code.env = saved
        self.hidden.call_node(action, self.code.loc(call))

    def action(self, ref: ast.ActionRef, home: Env) -> LoweredAction:
        """Return the BMv2 action for an entry of an action list; shared between tables when it binds no arguments."""
        decl = ref.decl
        assert decl is not None
        self.code.env = home
        scope = self.code.home(decl)
        directed = [b for b in bindings(ref.args) if b.param.direction != ""]
        key: object = ref if directed else decl
        known = scope.actions.get(key)
        if isinstance(known, LoweredAction):
            return known
        name = control_plane_name(decl)
        path = scope.path if scope is not self.code.globals else ""
        made = LoweredAction(qualified(path, name), [], BasicBlock(), self.code.loc(decl))
        self.code.claims.claim("action", made.name, (decl, scope), decl.pos)
        scope.actions[key] = made
        self.code.out.actions.append(made)
        saved = self.code.routine, self.code.frame, self.code.env
        self.code.routine = Routine("action", made.body, made.body, self.code.routine.region, scope.exit_flag)
        self.code.frame = Frame(None, BasicBlock())
        env = Env(scope)
        self.bind_arguments(directed, env, self.code.frame, self.captured(decl, scope))
        for param in decl.params:
            if param.direction == "":
                env.bind(param, self._data_parameter(param, made))
        frame = self.code.frame
        self.inline(frame, env, lambda: self.statements.run(decl.body.stmts), decl.pos)
        self.code.end()
        self.code.routine, self.code.frame, self.code.env = saved
        return made

    def _data_parameter(self, param: ast.Param, action: LoweredAction) -> Value:
        assert param.type is not None
        index = len(action.params)
        name = control_plane_name(param)
        if isinstance(t.strip_newtypes(param.type), t.BoolType):
            action.params.append((name, 1))
            return Boolean(arith.to_bool(lir.RuntimeParam(index, 1)))
        shape = data_shape(param.type)
        if shape is None:
            raise unsupported(param.pos, f"action parameter '{param.name}' of type {param.type}")
        action.params.append((name, shape[0]))
        raw = lir.RuntimeParam(index, shape[0])
        return Data(arith.fit(raw, *shape) if shape[1] else raw, *shape)

    # --- sub-controls ---

    def _apply_control(self, call: ast.Call) -> None:
        assert call.receiver is not None
        instance = self.exprs.eval(call.receiver)
        if not isinstance(instance, Object) or not isinstance(instance.what, ControlInstance):
            raise unsupported(call.pos, "apply() of this expression")
        self.apply_control(instance.what, bindings(call.args), call.pos)

    def apply_control(self, control: ControlInstance, bound: list[Bound], pos: Pos) -> None:
        """Inline the body of a sub-control; an instance that is applied in several places has own parameters."""
        frame = Frame(self.code.frame, BasicBlock())
        env = control.env
        shared = control.passed or self.instances.apply_sites(control.site) > 1 or self.code.in_loop()
        self.bind_arguments(rebind(bound, control.decl.params), env, frame, set(), always_copy=shared)
        self.inline(frame, env, lambda: self.control_body(control), pos)

    def control_body(self, control: ControlInstance) -> None:
        """Declare a control's locals, then run its apply block."""
        decl = control.decl
        assert decl.body is not None
        self.declare_locals(decl.locals)
        self.statements.run(decl.body.stmts)

    def declare_locals(self, decls: list[ast.Declaration]) -> None:
        """Declare the local variables and instances of a parser or control, in order."""
        for local in decls:
            if isinstance(local, (ast.ActionDecl, ast.TableDecl, ast.FunctionDecl, ast.ValueSetDecl)):
                self.code.env.declared.add(local)
            elif isinstance(local, ast.Instantiation):
                self.code.env.declared.add(local)
                self.instances.instance(local)
            else:
                self.statements.run([local])


def _is_plain(value: Value) -> bool:
    """Return whether storage can be named again later with the same meaning."""
    if isinstance(value, Data):
        return isinstance(value.expr, lir.Field)
    if isinstance(value, Boolean):
        return isinstance(value.place, lir.Field)
    if isinstance(value, StoredHeader):
        return not isinstance(value.ref, ElemRef)
    if isinstance(value, Struct):
        return all(_is_plain(v) for v in value.fields.values())
    return not isinstance(value, (SliceOf, PlusSliceOf, Nothing, NextElement))
