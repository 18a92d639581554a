"""Executes expressions and statements of a checked syntax tree, as P4_16 says, in plain Python.

It is the oracle of what a program means, and shares with the compiler only the front end: operands and arguments from
left to right, && and || and ?: lazily (§§8.1, 8.5), the place left of `=` before the value (§12.1), arguments copied
in, and out when the call ends, also by exit (§§6.8, 12.5). No program calls itself, so that one dictionary from
declarations to values holds all variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.ast import CallKind
from p4lite.compiler.types import Type
from support.p4.ast_values import (
    UNSET,
    Header,
    Held,
    Scalar,
    Stack,
    Struct,
    Undefined,
    Union,
    Unset,
    child,
    copied,
    equal,
    initial,
    put,
    wrap,
)


class Return(Exception):
    """`return`, with the value of a function."""

    def __init__(self, value: Held = UNSET) -> None:
        super().__init__()
        self.value = value


class Exit(Exception):
    """`exit`."""


class Break(Exception):
    """`break`."""


class Continue(Exception):
    """`continue`."""


@dataclass(frozen=True)
class Place:
    """A variable, a part of one, and bits of this: what an l-value denotes once its indices are known."""

    root: ast.Declaration
    keys: tuple[str | int, ...] = ()
    bits: tuple[int, int] | None = None
    width: int = 0
    signed: bool = False


class Machine:
    """Variables, and what executes expressions and statements on them."""

    def __init__(self) -> None:
        self.cells: dict[ast.Declaration, Held] = {}
        self.extern_calls: dict[str, Callable[[ast.Call], Held]] = {}
        self._statements: dict[type[ast.Node], Callable[..., None]] = {
            ast.Block: self._block,
            ast.Assign: self._assign,
            ast.CallStmt: lambda s: self._ignore(self.call(s.call)),
            ast.If: self._if,
            ast.SwitchStmt: self._switch,
            ast.For: self._for,
            ast.ForIn: self._for_in,
            ast.Return: self._return,
            ast.Exit: lambda s: self._raise(Exit()),
            ast.Break: lambda s: self._raise(Break()),
            ast.Continue: lambda s: self._raise(Continue()),
            ast.Empty: lambda s: None,
            ast.VarDecl: self.declare,
            ast.ConstDecl: lambda s: None,
        }
        self._expressions: dict[type[ast.Node], Callable[..., Held]] = {
            ast.Name: lambda e: self.load(self.place(e)),
            ast.Member: self._member,
            ast.Index: self._index,
            ast.Slice: self._slice,
            ast.Unary: self._unary,
            ast.Binary: self._binary,
            ast.ConditionalExpr: lambda e: self.value(e.then if self.truth(e.cond) else e.other),
            ast.Cast: self._cast,
            ast.StructExpr: self._struct,
            ast.ListExpr: lambda e: Struct({i: copied(self.value(x)) for i, x in enumerate(e.items)}),
            ast.InvalidExpr: lambda e: initial(e.type),
            ast.Call: self.call,
        }

    @staticmethod
    def _raise(error: Exception) -> None:
        raise error

    @staticmethod
    def _ignore(value: object) -> None:
        pass

    # --- places ---

    def place(self, e: ast.Expr) -> Place:
        """Evaluate an l-value: its indices, from left to right."""
        if isinstance(e, ast.Name):
            assert e.decl is not None
            return Place(e.decl)
        if isinstance(e, ast.Member):
            base = self.place(e.expr)
            if isinstance(e.expr.type, ty.StackType):
                stack = self.load(base)
                assert isinstance(stack, Stack)
                return Place(base.root, (*base.keys, stack.following - (e.name == "last")))
            return Place(base.root, (*base.keys, e.name))
        if isinstance(e, ast.Index):
            base = self.place(e.expr)
            return Place(base.root, (*base.keys, self.number(e.index)))
        assert isinstance(e, ast.Slice), e
        base = self.place(e.expr)
        hi, lo = e.hi.const, e.lo.const
        assert isinstance(hi, int)
        assert isinstance(lo, int)
        if base.bits is not None:
            low = base.bits[1]
            return Place(base.root, base.keys, (hi + low, lo + low), base.width, base.signed)
        bits = ty.underlying_bits(e.expr.type or ty.UNKNOWN)
        assert bits is not None
        return Place(base.root, base.keys, (hi, lo), bits.width, bits.signed)

    def load(self, place: Place) -> Held:
        v = self.cells[place.root]
        for key in place.keys:
            v = child(v, key)
        if place.bits is None:
            return v
        hi, lo = place.bits
        return (self._int(v) >> lo) % (1 << (hi - lo + 1))

    def store(self, place: Place, new: Held) -> None:
        """Write to a place; what is in an invalid header stays as it is."""
        if place.bits is not None:
            whole = Place(place.root, place.keys)
            hi, lo = place.bits
            try:
                old = self._int(self.load(whole)) % (1 << place.width)
            except Undefined:
                # Bits of what is undefined: the others stay undefined, and so does the whole.
                return
            mask = ((1 << (hi - lo + 1)) - 1) << lo
            new, place = wrap(old & ~mask | self._int(new) << lo, place.width, place.signed), whole
        if not place.keys:
            self.cells[place.root] = copied(new)
            return
        v = self.cells[place.root]
        for key in place.keys[:-1]:
            v = child(v, key)
        put(v, place.keys[-1], copied(new))

    @staticmethod
    def _int(v: Held) -> int:
        if isinstance(v, Unset):
            raise Undefined("an undefined number")
        assert isinstance(v, int), v
        return v

    # --- expressions ---

    def value(self, e: ast.Expr) -> Held:
        """Evaluate an expression."""
        if isinstance(e.const, Scalar) and not isinstance(e, ast.Call):
            return e.const
        return self._expressions[type(e)](e)

    @staticmethod
    def given(e: ast.Call) -> list[ast.Expr]:
        """Return the arguments of a call that leaves none out."""
        found = [a.expr for a in e.args if a.expr is not None]
        assert len(found) == len(e.args)
        return found

    def number(self, e: ast.Expr) -> int:
        """Evaluate a number. Raises Undefined."""
        return self._int(self.value(e))

    def truth(self, e: ast.Expr) -> bool:
        v = self.value(e)
        if isinstance(v, Unset):
            raise Undefined("an undefined condition")
        assert isinstance(v, bool), v
        return v

    def _member(self, e: ast.Member) -> Held:
        if isinstance(e.expr.type, ty.ApplyResultType):
            assert isinstance(e.expr, ast.Call)
            hit, _ = self.apply_table(e.expr)
            return hit == (e.name == "hit")
        if e.name == "lastIndex" and isinstance(e.expr.type, ty.StackType):
            stack = self.value(e.expr)
            assert isinstance(stack, Stack)
            if stack.following == 0:
                raise Undefined("lastIndex of an empty stack")
            return stack.following - 1
        if isinstance(e.expr.type, ty.StackType):
            return self.load(self.place(e))
        return child(self.value(e.expr), e.name)

    def _index(self, e: ast.Index) -> Held:
        base = self.value(e.expr)
        return child(base, self.number(e.index))

    def _slice(self, e: ast.Slice) -> Held:
        hi, lo = e.hi.const, e.lo.const
        assert isinstance(hi, int)
        assert isinstance(lo, int)
        return (self.number(e.expr) >> lo) % (1 << (hi - lo + 1))

    def _unary(self, e: ast.Unary) -> Held:
        if e.op == "!":
            return not self.truth(e.expr)
        a, bits = self.number(e.expr), ty.underlying_bits(e.type or ty.UNKNOWN)
        assert bits is not None
        return wrap({"~": ~a, "-": -a, "+": a}[e.op], bits.width, bits.signed)

    def _binary(self, e: ast.Binary) -> Held:
        if e.op == "&&":
            return self.truth(e.left) and self.truth(e.right)
        if e.op == "||":
            return self.truth(e.left) or self.truth(e.right)
        left = copied(self.value(e.left))
        right = self.value(e.right)
        if e.op in ("==", "!="):
            return equal(left, right) == (e.op == "==")
        return self.operate(e.op, self._int(left), self._int(right), e.left.type, e.right.type)

    def operate(self, op: str, a: int, b: int, left: Type | None, right: Type | None) -> Held:
        """Return `a op b` for numbers of these types."""
        if op in ("<", "<=", ">", ">="):
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
        t = ty.underlying_bits(left or ty.UNKNOWN)
        assert t is not None
        if op == "++":
            u = ty.underlying_bits(right or ty.UNKNOWN)
            assert u is not None
            return wrap(a * (1 << u.width) + b % (1 << u.width), t.width + u.width, t.signed)
        if op in ("<<", ">>"):
            return wrap(a * 2**b if b < t.width else 0, t.width, t.signed) if op == "<<" else a // 2**b
        if op in ("|+|", "|-|"):
            exact = a + b if op == "|+|" else a - b
            low = -(2 ** (t.width - 1)) if t.signed else 0
            return min(max(exact, low), low + 2**t.width - 1)
        if op in ("/", "%"):
            if b == 0:
                raise Undefined("division by zero")
            return a // b if op == "/" else a % b
        exact = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[op]
        return wrap(exact, t.width, t.signed)

    def _cast(self, e: ast.Cast) -> Held:
        v = self.value(e.expr)
        target = ty.strip_newtypes(e.type or ty.UNKNOWN)
        bits = ty.underlying_bits(target)
        if bits is not None:
            return wrap(self._int(v), bits.width, bits.signed)
        return self._int(v) != 0 if isinstance(target, ty.BoolType) else v

    def _struct(self, e: ast.StructExpr) -> Held:
        fields: dict[str | int, Held] = {f.name: copied(self.value(f.expr)) for f in e.fields}
        return Header(fields, True) if isinstance(e.type, ty.HeaderType) else Struct(fields)

    # --- calls ---

    def call(self, e: ast.Call) -> Held:
        """Execute a call of any kind; return its result."""
        if e.kind in (CallKind.FUNCTION, CallKind.ACTION):
            assert isinstance(e.target, ast.FunctionDecl | ast.ActionDecl)
            return self.invoke(e.target, e.args, lambda target: self.stmt(target.body))
        if e.kind is CallKind.HEADER_METHOD:
            return self._header_method(e)
        if e.kind is CallKind.STACK_METHOD:
            return self._stack_method(e)
        if e.kind is CallKind.TABLE_APPLY:
            self.apply_table(e)
            return UNSET
        if e.kind is CallKind.CONTROL_APPLY:
            assert isinstance(e.target, ast.ControlDecl)
            return self.invoke(e.target, e.args, self.run_control)
        return self.extern_calls[e.method](e)

    def run_control(self, control: ast.ControlDecl) -> None:
        """Execute a control whose parameters are set."""
        for local in control.locals:
            if isinstance(local, ast.VarDecl):
                self.declare(local)
        assert control.body is not None
        self.stmt(control.body)

    def invoke(
        self,
        target: ast.FunctionDecl | ast.ActionDecl | ast.ControlDecl,
        args: list[ast.Arg],
        run: Callable[..., None],
        data: dict[str, Held] | None = None,
    ) -> Held:
        """Copy in, run, copy out. `data` are values that the control plane gives, by parameter."""
        bound: dict[ast.Declaration, Held] = dict.fromkeys(target.params, UNSET)
        outs: list[tuple[Place, ast.Param]] = []
        by_name = {p.name: p for p in target.params}
        for arg in sorted(args, key=lambda a: a.place):
            assert arg.param is not None
            assert arg.expr is not None
            param = by_name[arg.param.name]
            if isinstance(arg.expr, ast.DontCare):
                bound[param] = initial(param.type or ty.UNKNOWN)
            elif param.direction in ("out", "inout"):
                place = self.place(arg.expr)
                value = self.load(place) if param.direction == "inout" else initial(param.type or ty.UNKNOWN)
                bound[param] = copied(value)
                outs.append((place, param))
            else:
                bound[param] = copied(self.value(arg.expr))
        for param in target.params:
            if data is not None and param.name in data:
                bound[param] = data[param.name]
        self.cells.update(bound)
        try:
            run(target)
        except Return as returned:
            return returned.value
        finally:
            for place, param in outs:
                self.store(place, self.cells[param])
        return UNSET

    def _header_method(self, e: ast.Call) -> Held:
        assert e.receiver is not None
        v = self.load(self.place(e.receiver))
        if isinstance(v, Union):
            return any(m.valid for m in v.members.values())
        assert isinstance(v, Header)
        if e.method == "isValid":
            return v.valid
        place = self.place(e.receiver)
        if e.method == "setInvalid":
            v.valid = False
        elif not v.valid:
            self.store(place, Header(dict.fromkeys(v.fields, UNSET), True))
        return UNSET

    def _stack_method(self, e: ast.Call) -> Held:
        assert e.receiver is not None
        stack = self.load(self.place(e.receiver))
        assert isinstance(stack, Stack)
        assert isinstance(e.receiver.type, ty.StackType)
        (argument,) = self.given(e)
        count, size = self.number(argument), len(stack.items)
        count = min(count, size)
        fresh = [initial(e.receiver.type.element) for _ in range(count)]
        if e.method == "push_front":
            stack.items[:] = [*fresh, *stack.items][:size]
            stack.following = min(size, stack.following + count)
        else:
            stack.items[:] = [*stack.items, *fresh][count:]
            stack.following = max(0, stack.following - count)
        return UNSET

    def apply_table(self, e: ast.Call) -> tuple[bool, ast.ActionDecl | None]:
        """Apply a table; return whether it hit, and its action."""
        raise NotImplementedError

    # --- statements ---

    def stmt(self, s: ast.Stmt) -> None:
        """Execute a statement."""
        self._statements[type(s)](s)

    def declare(self, d: ast.VarDecl) -> None:
        """Declare a variable."""
        self.cells[d] = initial(d.type or ty.UNKNOWN) if d.init is None else copied(self.value(d.init))

    def _block(self, s: ast.Block) -> None:
        for inner in s.stmts:
            self.stmt(inner)

    def _assign(self, s: ast.Assign) -> None:
        place = self.place(s.target)
        if s.op is None:
            self.store(place, copied(self.value(s.value)))
            return
        old = self._int(self.load(place))
        self.store(place, self.operate(s.op, old, self.number(s.value), s.target.type, s.value.type))

    def _if(self, s: ast.If) -> None:
        if self.truth(s.cond):
            self.stmt(s.then)
        elif s.other is not None:
            self.stmt(s.other)

    def _switch(self, s: ast.SwitchStmt) -> None:
        chosen: object
        if isinstance(s.expr.type, ty.ActionEnumType):
            assert isinstance(s.expr, ast.Member)
            assert isinstance(s.expr.expr, ast.Call)
            chosen = self.apply_table(s.expr.expr)[1]
        else:
            chosen = self.value(s.expr)
            if isinstance(chosen, Unset):
                raise Undefined("an undefined switch")
        for i, case in enumerate(s.cases):
            label = case.label
            known = label.decl if isinstance(label, ast.Name) and isinstance(label.decl, ast.ActionDecl) else None
            matches = case.is_default or (known is chosen if known is not None else label and label.const == chosen)
            if matches:
                body = next((c.body for c in s.cases[i:] if c.body is not None), None)
                if body is not None:
                    self.stmt(body)
                return

    def _loop(self, body: ast.Stmt) -> bool:
        """Execute a loop's body once; return False to end the loop."""
        try:
            self.stmt(body)
        except Break:
            return False
        except Continue:
            pass
        return True

    def _for(self, s: ast.For) -> None:
        for first in s.init:
            self.stmt(first)
        while self.truth(s.cond) and self._loop(s.body):
            for update in s.update:
                self.stmt(update)

    def _for_in(self, s: ast.ForIn) -> None:
        decl = s.var if isinstance(s.var, ast.VarDecl) else s.var.decl
        assert decl is not None
        assert isinstance(s.collection, ast.RangeExpr)
        low, high = self.number(s.collection.lo), self.number(s.collection.hi)
        for i in range(low, high + 1):
            self.cells[decl] = i
            if not self._loop(s.body):
                return

    def _return(self, s: ast.Return) -> None:
        raise Return(UNSET if s.expr is None else copied(self.value(s.expr)))
