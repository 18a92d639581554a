"""Calls: functions, actions, sub-controls and header methods, inlined with copy-in and copy-out.

A parameter is bound by reference where nobody can tell the difference: when the argument is plain storage that no
other argument and nothing the callee captures overlaps. Otherwise it is copied, and copied back at the end of the call,
also when an `exit` ends it (language specification §6.8, §12.5).
"""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.base import Bound, Env, Frame, as_const, as_written, bindings, has_effects, rebind
from p4lite.compiler.midend.exprs import Expressions
from p4lite.compiler.midend.instances import ControlInstance, Instances
from p4lite.compiler.midend.lir import Block, Const, ElemField, ElemRef, Prim
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import (
    Boolean,
    Data,
    Header,
    NextElement,
    Nothing,
    Object,
    PlusSliceOf,
    SliceOf,
    Stack,
    Struct,
    TextConst,
    UnionStack,
    Value,
    may_overlap,
    roots,
)

Kind = ast.CallKind


class Calls(Instances, Expressions):
    """Everything that is called."""

    # --- hooks of the later layers ---

    def statements(self, stmts: list[ast.Stmt]) -> None:
        raise NotImplementedError

    def extern_function(self, call: ast.Call) -> Value | None:
        raise NotImplementedError

    def extern_method(self, call: ast.Call) -> Value | None:
        raise NotImplementedError

    def warn(self, pos: ast.Pos, message: str) -> None:
        """Report a warning."""
        raise NotImplementedError

    def apply_parser(self, call: ast.Call) -> None:
        raise NotImplementedError

    # --- names ---

    def lookup(self, decl: ast.Declaration, pos: ast.Pos) -> Value:
        """The value bound to a declaration; instances are made when they are first named."""
        value = self.env.find(decl)
        if value is not None:
            return value
        if isinstance(decl, ast.ConstDecl):
            if decl.const is not None:
                return self.constant(decl.const, decl.type, pos)
            return self.eval(decl.value)
        if isinstance(decl, ast.Instantiation):
            return self.instance(decl)
        raise unsupported(pos, f"the use of '{decl.name}' here")

    # --- calls ---

    def call(self, call: ast.Call) -> Value | None:
        """Perform a call; its value, or None when it has none."""
        kind = call.kind
        if kind is Kind.FUNCTION:
            return self._call_function(call)
        if kind is Kind.ACTION:
            self._call_action(call)
            return None
        if kind is Kind.EXTERN_FUNCTION:
            return self.extern_function(call)
        if kind is Kind.EXTERN_METHOD:
            return self.extern_method(call)
        if kind is Kind.TABLE_APPLY:
            self.apply_table(call, "")
            return None
        if kind is Kind.CONTROL_APPLY:
            self._apply_control(call)
            return None
        if kind is Kind.PARSER_APPLY:
            self.apply_parser(call)
            return None
        if kind is Kind.HEADER_METHOD:
            return self._header_method(call)
        if kind is Kind.STACK_METHOD:
            return self._stack_method(call)
        if kind is Kind.SIZE_METHOD:
            assert call.const is not None
            return self.constant(call.const, call.type, call.pos)
        raise unsupported(call.pos, f"this call ({kind.value if kind else 'unknown'})")

    def _header_method(self, call: ast.Call) -> Value | None:
        assert call.receiver is not None
        if call.method == "isValid":
            return Boolean(self.is_valid(self.eval(call.receiver), call.pos))
        target = self.destination(call.receiver)
        if not isinstance(target, Header):
            raise unsupported(call.pos, f"{call.method}() of this expression")
        self.set_valid(target, call.method == "setValid", self.loc(call))
        return None

    def _stack_method(self, call: ast.Call) -> Value | None:
        assert call.receiver is not None
        stack = self.destination(call.receiver)
        if not isinstance(stack, (Stack, UnionStack)):
            raise unsupported(call.pos, f"{call.method}() of this expression")
        count_expr = call.args[0].expr
        assert count_expr is not None
        count = as_const(self.eval(count_expr))
        if count is None:
            raise unsupported(call.pos, f"{call.method}() by an amount that is not constant")
        ref = lir.StackRef(stack.name) if isinstance(stack, Stack) else lir.UnionStackRef(stack.name)
        if self.routine.kind == "parser":
            self.warn(call.pos, f"p4c refuses {call.method} in a parser for BMv2: do it in ingress to stay portable")
        op = "push" if call.method == "push_front" else "pop"
        self.emit(Prim(op, (ref, Const(count, 32)), self.loc(call)))
        return None

    # --- arguments ---

    def _bind_arguments(
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
                values.append(self.destination(expr, stable=True))
                if param.direction == "inout" and has_effects(later):
                    early[i] = self.snapshot(self._readable(values[i], expr.pos), expr.pos)
                continue
            value = self.eval(expr)
            values.append(self.snapshot(value, expr.pos) if has_effects(later) else value)
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
                    self.initialise(value, expr.pos)
                env.bind(param, value)
            else:
                others = captured.union(*written)
                env.bind(param, self._in_parameter(param, value, others, env, expr.pos, always_copy))

    def _copied_parameter(
        self, param: ast.Param, value: Value, initial: Value, env: Env, frame: Frame, pos: ast.Pos
    ) -> Value:
        """A parameter in storage of its own: `initial` is copied in (inout), `value` is where it is copied back."""
        assert param.type is not None
        place = env.own(param) or self.storage.allocate(param.type, param.name, pos)
        if param.direction == "inout":
            self.copy(place, self._readable(initial, pos), pos)
        else:
            self.initialise(place, pos)
        if not isinstance(value, Nothing):
            frame.copy_outs.append((value, place))
        return place

    def _in_parameter(
        self, param: ast.Param, value: Value, written: set[str], env: Env, pos: ast.Pos, always_copy: bool
    ) -> Value:
        if isinstance(value, (Object, TextConst)) or param.type is None:
            return value
        value = self.cast(value, param.type, pos)
        if always_copy:
            place = env.own(param) or self.storage.allocate(param.type, param.name, pos)
            self.assign(place, value, pos)
            return place
        simple = not isinstance(value, (Data, Boolean)) or isinstance(
            value.expr, (Const, lir.Field, lir.Param, lir.Bool)
        )
        if isinstance(value, Boolean) and value.place is not None and not isinstance(value.place, ElemField):
            simple = True
        if simple and not may_overlap(roots(value), written):
            return value
        return self.snapshot(value, pos)

    def _readable(self, value: Value, pos: ast.Pos) -> Value:
        """What a destination holds now."""
        from p4lite.compiler.midend import arith

        if isinstance(value, SliceOf):
            base = value.base
            expr = arith.slice_bits(self.data(base, pos), value.high, value.low, base.width, base.signed)
            return Data(expr, value.high - value.low + 1)
        if isinstance(value, PlusSliceOf):
            base = value.base
            raw = arith.cast(self.data(base, pos), base.width, base.signed, base.width, False)
            shifted = arith.shift_right(raw, value.low, value.low_width, base.width, False)
            return Data(arith.cast(shifted, base.width, False, value.width, False), value.width)
        if isinstance(value, NextElement):
            raise unsupported(pos, "'.next' as an inout argument")
        return value

    def _inline(self, frame: Frame, env: Env, body: Callable[[], None], pos: ast.Pos) -> None:
        """Run a body in its own environment and frame, then copy out."""
        saved_env, saved_frame = self.env, self.frame
        self.env, self.frame = env, frame
        body()
        self.jump(frame.done)
        self.start(frame.done)
        self.env, self.frame = saved_env, saved_frame
        self.copy_out(frame, pos)

    def copy_out(self, frame: Frame, pos: ast.Pos) -> None:
        """Copy back the parameters of one call, in the order of its arguments."""
        for target, source in frame.copy_outs:
            if not isinstance(target, NextElement):
                self.assign(target, source, pos)

    # --- functions and actions ---

    def _call_function(self, call: ast.Call) -> Value | None:
        decl = call.target
        assert isinstance(decl, ast.FunctionDecl)
        assert decl.body is not None
        frame = Frame(self.frame, Block())
        env = Env(self.globals, path=self.env.path)
        self._bind_arguments(bindings(call.args), env, frame, set())
        result_type = decl.result.type
        if result_type is not None and not isinstance(result_type, t.VoidType):
            frame.result = self.storage.allocate(result_type, decl.name, call.pos)
        body = decl.body
        self._inline(frame, env, lambda: self.statements(body.stmts), call.pos)
        return frame.result

    def _call_action(self, call: ast.Call) -> None:
        decl = call.target
        assert isinstance(decl, ast.ActionDecl)
        if self.routine.kind == "control" and not decl.params and decl.body.stmts and not self.copies_out():
            self.action_node(decl, call)
        else:
            self.run_action(decl, bindings(call.args), call.pos)

    def action_node(self, decl: ast.ActionDecl, call: ast.Call) -> None:
        raise NotImplementedError

    def copies_out(self) -> bool:
        """True iff a call around the current place has parameters to copy back."""
        frame: Frame | None = self.frame
        while frame is not None:
            if frame.copy_outs:
                return True
            frame = frame.parent
        return False

    def run_action(self, decl: ast.ActionDecl, bound: list[Bound], pos: ast.Pos) -> None:
        """An action's body in place, its arguments evaluated here."""
        home = self._home(decl)
        frame = Frame(self.frame, Block())
        env = Env(home)
        self._bind_arguments(bound, env, frame, self._captured(decl, home))
        self._inline(frame, env, lambda: self.statements(decl.body.stmts), pos)

    def _home(self, decl: ast.Declaration) -> Env:
        """The environment in which an action or table was declared."""
        env: Env | None = self.env
        while env is not None:
            if decl in env.declared:
                return env
            env = env.parent
        return self.globals

    def _captured(self, decl: ast.ActionDecl, home: Env) -> set[str]:
        """Storage outside of an action that its body (or an action it calls) names."""
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
        """The storage of `a.b.c` where that is known without evaluating anything."""
        if isinstance(node, ast.Name) and node.decl is not None:
            return home.find(node.decl)
        if isinstance(node, ast.Member):
            base = self._static_path(node.expr, home)
            if isinstance(base, Struct):
                return base.fields.get(node.name)
            return base
        return None

    # --- sub-controls ---

    def _apply_control(self, call: ast.Call) -> None:
        assert call.receiver is not None
        instance = self.eval(call.receiver)
        if not isinstance(instance, Object) or not isinstance(instance.what, ControlInstance):
            raise unsupported(call.pos, "apply() of this expression")
        self.apply_control(instance.what, bindings(call.args), call.pos)

    def apply_control(self, control: ControlInstance, bound: list[Bound], pos: ast.Pos) -> None:
        """The body of a sub-control in place; an instance that is applied in several places has own parameters."""
        frame = Frame(self.frame, Block())
        env = control.env
        shared = control.passed or self.apply_sites(control.site) > 1 or self._in_loop()
        self._bind_arguments(rebind(bound, control.decl.params), env, frame, set(), always_copy=shared)
        self._inline(frame, env, lambda: self.control_body(control), pos)

    def _in_loop(self) -> bool:
        frame: Frame | None = self.frame
        while frame is not None:
            if frame.loops:
                return True
            frame = frame.parent
        return False

    def control_body(self, control: ControlInstance) -> None:
        """Declare a control's locals, then run its apply block."""
        decl = control.decl
        assert decl.body is not None
        self.declare_locals(decl.locals)
        self.statements(decl.body.stmts)

    def declare_locals(self, decls: list[ast.Declaration]) -> None:
        """Local variables and instances of a parser or control, in order."""
        for local in decls:
            if isinstance(local, (ast.ActionDecl, ast.TableDecl, ast.FunctionDecl, ast.ValueSetDecl)):
                self.env.declared.add(local)
            elif isinstance(local, ast.Instantiation):
                self.env.declared.add(local)
                self.instance(local)
            else:
                self.statements([local])


def _is_plain(value: Value) -> bool:
    """Storage that can be named again later with the same meaning."""
    if isinstance(value, Data):
        return isinstance(value.expr, lir.Field)
    if isinstance(value, Boolean):
        return isinstance(value.place, lir.Field)
    if isinstance(value, Header):
        return not isinstance(value.ref, ElemRef)
    if isinstance(value, Struct):
        return all(_is_plain(v) for v in value.fields.values())
    return not isinstance(value, (SliceOf, PlusSliceOf, Nothing, NextElement))
