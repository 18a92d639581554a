"""Expressions: from typed syntax to values, with the effects of calls emitted in the order of evaluation."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import Callees, unsupported
from p4lite.compiler.midend.emitter import has_effects
from p4lite.compiler.midend.lir import BasicBlock, Const, ElemRef, Expr, LastIndex, Op
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import (
    ENUM_WIDTH,
    Boolean,
    Data,
    HeaderUnion,
    HeaderValue,
    IntConst,
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
    UnionInvalid,
    Value,
    as_const,
)
from p4lite.compiler.position import Pos


def data_width(expr: ast.Expr) -> int | None:
    """Return the width of a data expression, or None."""
    shape = data_shape(expr.type) if expr.type is not None else None
    return shape[0] if shape is not None else None


def needed_shape(expr: ast.Expr) -> tuple[int, bool]:
    """Return width and sign of an expression that must be data."""
    shape = data_shape(expr.type) if expr.type is not None else None
    if shape is None:
        raise unsupported(expr.pos, f"an operation on type {expr.type}")
    return shape


class ExpressionLowering:
    """Evaluation of expressions and resolution of destinations."""

    def __init__(self, code: Places, callees: Callees, error_codes: dict[str, int]) -> None:
        self.code = code
        self.callees = callees
        self.error_codes = error_codes

    # --- constants ---

    def constant(self, value: ast.Value, ty: t.Type | None, pos: Pos) -> Value:
        """Return a compile-time value of type `ty`."""
        ty = t.strip_newtypes(ty) if ty is not None else None
        if isinstance(value, bool):
            return Boolean(lir.Bool(value))
        if isinstance(value, int):
            shape = data_shape(ty) if ty is not None else None
            if shape is None:
                return IntConst(value)
            return Data(arith.const(value, *shape), *shape)
        if isinstance(value, str):
            return TextConst(value)
        if isinstance(value, ast.ErrorValue):
            return Data(Const(self.error_codes[value.member], ENUM_WIDTH), ENUM_WIDTH)
        if isinstance(value, ast.EnumValue):
            return self._enum_constant(value, ty, pos)
        if isinstance(value, ast.ListValue):
            types = self._item_types(ty, len(value.items))
            items = {n: self.constant(v, it, pos) for v, (n, it) in zip(value.items, types, strict=True)}
            return HeaderValue(ty, items) if isinstance(ty, t.HeaderType) else Struct(items)
        if isinstance(value, ast.StructValue):
            return self._struct_constant(value, ty, pos)
        return Object(value)

    def _enum_constant(self, value: ast.EnumValue, ty: t.Type | None, pos: Pos) -> Value:
        if isinstance(ty, t.SerEnumType):
            return Data(
                arith.const(ty.values[value.member], ty.base.width, ty.base.signed), ty.base.width, ty.base.signed
            )
        if isinstance(ty, t.EnumType):
            return Data(Const(ty.members.index(value.member), ENUM_WIDTH), ENUM_WIDTH)
        raise unsupported(pos, f"the value {value.enum}.{value.member} here")

    def _item_types(self, ty: t.Type | None, count: int) -> list[tuple[str, t.Type | None]]:
        if isinstance(ty, t.TupleType):
            return [(str(i), f) for i, f in enumerate(ty.items)]
        if isinstance(ty, (t.FieldsType, t.AnonStructType)):
            return list(ty.fields.items())
        if isinstance(ty, t.StackType):
            return [(str(i), ty.element) for i in range(ty.size)]
        if isinstance(ty, t.ListType):
            return [(str(i), ty.element) for i in range(count)]
        return [(str(i), None) for i in range(count)]

    def _struct_constant(self, value: ast.StructValue, ty: t.Type | None, pos: Pos) -> Value:
        if isinstance(ty, t.UnionType):
            return UnionInvalid(ty)
        fields = ty.fields if isinstance(ty, (t.FieldsType, t.AnonStructType)) else {}
        items = {n: self.constant(v, fields.get(n), pos) for n, v in value.fields}
        if isinstance(ty, t.HeaderType):
            return HeaderValue(ty, items if value.valid else None)
        return Struct(items)

    # --- names ---

    def lookup(self, decl: ast.Declaration, pos: Pos) -> Value:
        """Return the value bound to a declaration; instances are made when they are first named."""
        value = self.code.env.find(decl)
        if value is not None:
            return value
        if isinstance(decl, ast.ConstDecl):
            if decl.const is not None:
                return self.constant(decl.const, decl.type, pos)
            return self.eval(decl.value)
        if isinstance(decl, ast.Instantiation):
            return self.callees.instances.instance(decl)
        raise unsupported(pos, f"the use of '{decl.name}' here")

    # --- evaluation ---

    def eval(self, expr: ast.Expr) -> Value:
        """Return the value of an expression; calls in it are emitted."""
        if expr.const is not None and not isinstance(expr.const, ast.Instance):
            return self.constant(expr.const, expr.type, expr.pos)
        method = getattr(self, "_eval_" + type(expr).__name__.lower(), None)
        if method is None:
            raise unsupported(expr.pos, f"this kind of expression ({type(expr).__name__})")
        value: Value = method(expr)
        return value

    def eval_data(self, expr: ast.Expr) -> Expr:
        """Return the data expression of an integer, enum or error (booleans as 1-bit data)."""
        return self.code.data(self.eval(expr), expr.pos, data_width(expr))

    def eval_truth(self, expr: ast.Expr) -> Expr:
        """Return the boolean expression of a condition."""
        return self.code.truth(self.eval(expr), expr.pos)

    def eval_in_order(self, exprs: list[ast.Expr]) -> list[Value]:
        """Return the values of several expressions, evaluated left to right."""
        values: list[Value] = []
        for i, expr in enumerate(exprs):
            value = self.eval(expr)
            if has_effects(exprs[i + 1 :]):
                value = self.code.snapshot(value, expr.pos)
            values.append(value)
        return values

    def _eval_intliteral(self, e: ast.IntLiteral) -> Value:
        return self.constant(e.value, e.type, e.pos)

    def _eval_boolliteral(self, e: ast.BoolLiteral) -> Value:
        return Boolean(lir.Bool(e.value))

    def _eval_stringliteral(self, e: ast.StringLiteral) -> Value:
        return TextConst(e.value)

    def _eval_name(self, e: ast.Name) -> Value:
        assert e.decl is not None
        return self.lookup(e.decl, e.pos)

    def _eval_dontcare(self, e: ast.DontCare) -> Value:
        del e
        return Nothing()

    def _eval_defaultexpr(self, e: ast.DefaultExpr) -> Value:
        assert e.type is not None
        return self.code.zero(e.type, e.pos)

    def _eval_call(self, e: ast.Call) -> Value:
        value = self.callees.call(e)
        if value is None:
            raise unsupported(e.pos, f"the value of a call of {e.method or 'this'}")
        return value

    def _eval_member(self, e: ast.Member) -> Value:
        if isinstance(e.expr, ast.Call) and e.expr.kind is ast.CallKind.TABLE_APPLY:
            return self._outcome(e.expr, e.name)
        return self.member(self.eval(e.expr), e.name, e.type, e.pos)

    def _outcome(self, call: ast.Call, name: str) -> Boolean:
        """Apply a table and return `t.apply().hit` or `.miss`."""
        outcome = self.code.temp_bool(name)
        hit, miss, after = BasicBlock(), BasicBlock(), BasicBlock()
        self.callees.tables.apply(call, {lir.HIT: hit, lir.MISS: miss}, after)
        for block, is_hit in ((hit, True), (miss, False)):
            self.code.start(block)
            self.code.copy(outcome, Boolean(lir.Bool(is_hit == (name == "hit"))), call.pos)
            self.code.jump(after)
        self.code.start(after)
        return outcome

    def member(self, base: Value, name: str, ty: t.Type | None, pos: Pos) -> Value:
        """Return `base.name`."""
        if isinstance(base, Struct) and name in base.fields:
            return base.fields[name]
        if isinstance(base, StoredHeader):
            return self.code.header_field(base, name, base.type.fields[name], pos)
        if isinstance(base, HeaderValue):
            if base.fields is not None:
                return base.fields[name]
            return self.code.zero(base.type.fields[name], pos)
        if isinstance(base, HeaderUnion):
            return self.code.union_member(base, name)
        if isinstance(base, UnionInvalid):
            member_type = base.type.fields[name]
            assert isinstance(member_type, t.HeaderType)
            return HeaderValue(member_type, None)
        if isinstance(base, (StoredStack, StoredUnionStack)):
            return self._stack_member(base, name, pos)
        if isinstance(base, NextElement) and isinstance(base.stack, StoredUnionStack):
            return NextElement(base.stack, name)
        raise unsupported(pos, f"'.{name}' of this expression (type {ty})")

    def _stack_member(self, stack: StoredStack | StoredUnionStack, name: str, pos: Pos) -> Value:
        if name == "size":
            return IntConst(stack.type.size)
        if name == "next":
            return NextElement(stack)
        if isinstance(stack, StoredUnionStack):
            raise unsupported(pos, f"'.{name}' of a stack of header unions")
        if name == "lastIndex":
            return Data(arith.fit(LastIndex(stack.name), 32, False), 32)
        if name == "last":
            self.check_not_empty(stack)
            return StoredHeader(ElemRef(stack.name, LastIndex(stack.name)), stack.element)
        raise unsupported(pos, f"'.{name}' of a header stack")

    def check_not_empty(self, stack: StoredStack) -> None:
        """Emit the parser's check that a stack has an element for `last`; the error is StackOutOfBounds."""
        if self.code.routine.kind != "parser":
            return
        for op in self.code.routine.current.ops:
            if isinstance(op, lir.Extract) and op.target == stack.name:
                return
            if isinstance(op, lir.Verify) and op.cond == self._nonempty(stack):
                return
        code = Const(self.error_codes.get("StackOutOfBounds", 0), ENUM_WIDTH)
        self.code.emit(lir.Verify(self._nonempty(stack), code))

    def _nonempty(self, stack: StoredStack) -> Expr:
        return Op(">", lir.StackSize(stack.name), Const(0, 32))

    def _eval_index(self, e: ast.Index) -> Value:
        base = self.eval(e.expr)
        index = self.eval(e.index)
        constant = as_const(index)
        if constant is not None:
            return self.constant_index(base, constant, e.pos)
        if isinstance(base, StoredStack):
            return StoredHeader(ElemRef(base.name, self.code.data(index, e.pos)), base.element)
        if isinstance(base, Struct) and base.fields:
            chosen = self._choose_item(base, self.code.data(index, e.pos), e.pos)
            if chosen is not None:
                return chosen
        raise unsupported(e.pos, f"a run-time index of a value of type {e.expr.type}")

    def constant_index(self, base: Value, index: int, pos: Pos) -> Value:
        if isinstance(base, (StoredStack, StoredUnionStack)):
            if not 0 <= index < base.type.size:
                raise unsupported(pos, f"index {index} outside of a stack of {base.type.size}")
            return self.code.element(base, index)
        if isinstance(base, Struct) and str(index) in base.fields:
            return base.fields[str(index)]
        raise unsupported(pos, f"index {index} of this expression")

    def _choose_item(self, base: Struct, index: Expr, pos: Pos) -> Value | None:
        """Return `array[index]` of scalars for reading: a chain of choices, and the last item beyond the end."""
        items = list(base.fields.values())
        if all(isinstance(i, Data) for i in items):
            first = items[0]
            assert isinstance(first, Data)
            result = self.code.data(items[-1], pos)
            for i in range(len(items) - 2, -1, -1):
                result = arith.choose(Op("==", index, Const(i, 32)), self.code.data(items[i], pos), result)
            return Data(result, first.width, first.signed)
        if all(isinstance(i, Boolean) for i in items):
            truth = self.code.truth(items[-1], pos)
            for i in range(len(items) - 2, -1, -1):
                truth = arith.choose(Op("==", index, Const(i, 32)), self.code.truth(items[i], pos), truth)
            return Boolean(truth)
        return None

    def _slice_bounds(self, e: ast.Slice) -> tuple[int, int]:
        high, low = as_const(self.eval(e.hi)), as_const(self.eval(e.lo))
        if high is None or low is None:
            raise unsupported(e.pos, "a slice with bounds that are not constant")
        return high, low

    def _eval_slice(self, e: ast.Slice) -> Value:
        high, low = self._slice_bounds(e)
        base = self.eval(e.expr)
        width, signed = (base.width, base.signed) if isinstance(base, Data) else needed_shape(e.expr)
        expr = arith.slice_bits(self.code.data(base, e.pos, width), high, low, width, signed)
        return Data(expr, high - low + 1)

    def _eval_plusslice(self, e: ast.PlusSlice) -> Value:
        base, low = self.eval_in_order([e.expr, e.lo])
        width, signed = needed_shape(e.expr)
        bits = as_const(self.eval(e.width))
        assert bits is not None
        raw = arith.cast(self.code.data(base, e.pos, width), width, signed, width, False)
        low_width = data_width(e.lo) or 32
        shifted = arith.shift_right(raw, self.code.data(low, e.pos, low_width), low_width, width, False)
        return Data(arith.cast(shifted, width, False, bits, False), bits)

    def _eval_unary(self, e: ast.Unary) -> Value:
        if e.op == "!":
            return Boolean(arith.logical_not(self.eval_truth(e.expr)))
        value = self.eval_data(e.expr)
        width, signed = needed_shape(e.expr)
        if e.op == "-":
            return Data(arith.negate(value, width, signed), width, signed)
        if e.op == "~":
            return Data(arith.complement(value, width, signed), width, signed)
        return Data(value, width, signed)

    def _eval_binary(self, e: ast.Binary) -> Value:
        if e.op in ("&&", "||"):
            return self._eval_logical(e)
        left, right = self.eval_in_order([e.left, e.right])
        if e.op in ("==", "!="):
            same = self.code.equal(left, right, e.pos)
            return Boolean(same if e.op == "==" else _negated_equality(same))
        if e.op in ("<", "<=", ">", ">="):
            width = data_width(e.left) or data_width(e.right)
            return Boolean(arith.compare(e.op, self.code.data(left, e.pos, width), self.code.data(right, e.pos, width)))
        return self.operate(e.op, left, right, e)

    def operate(self, op: str, left: Value, right: Value, e: ast.Expr) -> Value:
        """Return an arithmetic or bit operator on evaluated operands; the result has the type of `e`."""
        if isinstance(left, IntConst) and isinstance(right, IntConst) and op in _INTEGERS:
            return IntConst(_INTEGERS[op](left.value, right.value))
        width, signed = needed_shape(e)
        if op == "++":
            if not isinstance(left, Data) or not isinstance(right, Data):
                raise unsupported(e.pos, "concatenation of values without width")
            joined = arith.concat(
                self.code.data(left, e.pos), self.code.data(right, e.pos), right.width, right.signed, width, signed
            )
            return Data(joined, width, signed)
        if op in ("<<", ">>"):
            amount_width = right.width if isinstance(right, Data) else 8
            amount = self.code.data(right, e.pos, amount_width)
            if isinstance(amount, Const) and amount.value < 0:
                raise unsupported(e.pos, "a shift by a negative amount")
            shift = arith.shift_left if op == "<<" else arith.shift_right
            return Data(shift(self.code.data(left, e.pos, width), amount, amount_width, width, signed), width, signed)
        a, b = self.code.data(left, e.pos, width), self.code.data(right, e.pos, width)
        if op in ("/", "%") and isinstance(b, Const) and b.value == 0:
            raise unsupported(e.pos, "a division by zero")
        return Data(arith.binary(op, a, b, width, signed), width, signed)

    def _eval_logical(self, e: ast.Binary) -> Value:
        left = self.eval_truth(e.left)
        if not has_effects([e.right]):
            right = self.eval_truth(e.right)
            combine = arith.logical_and if e.op == "&&" else arith.logical_or
            return Boolean(combine(left, right))
        target = self.code.temp_bool()
        evaluate, skip, after = BasicBlock(), BasicBlock(), BasicBlock()
        self.code.branch(left, *((evaluate, skip) if e.op == "&&" else (skip, evaluate)))
        self.code.start(evaluate)
        self.code.copy(target, Boolean(self.eval_truth(e.right)), e.pos)
        self.code.jump(after)
        self.code.start(skip)
        self.code.copy(target, Boolean(lir.Bool(e.op == "||")), e.pos)
        self.code.jump(after)
        self.code.start(after)
        return target

    def _eval_conditionalexpr(self, e: ast.ConditionalExpr) -> Value:
        cond = self.eval_truth(e.cond)
        if isinstance(cond, lir.Bool):
            return self.eval(e.then if cond.value else e.other)
        if not has_effects([e.then, e.other]):
            then, other = self.eval(e.then), self.eval(e.other)
            if isinstance(then, Boolean) and isinstance(other, Boolean):
                return Boolean(arith.choose(cond, then.expr, other.expr))
            if isinstance(then, (Data, IntConst)) and isinstance(other, (Data, IntConst)):
                width, signed = needed_shape(e)
                a, b = self.code.data(then, e.pos, width), self.code.data(other, e.pos, width)
                return Data(arith.choose(cond, a, b), width, signed)
        assert e.type is not None
        target = self.code.storage.allocate(e.type, "tmp", e.pos)
        yes, no, after = BasicBlock(), BasicBlock(), BasicBlock()
        self.code.branch(cond, yes, no)
        for block, side in ((yes, e.then), (no, e.other)):
            self.code.start(block)
            self.code.copy(target, self.eval(side), e.pos)
            self.code.jump(after)
        self.code.start(after)
        return target

    def _eval_cast(self, e: ast.Cast) -> Value:
        assert e.type is not None
        return self.cast(self.eval(e.expr), e.type, e.pos)

    def cast(self, value: Value, ty: t.Type, pos: Pos) -> Value:
        """Return `(ty) value`."""
        ty = t.strip_newtypes(ty)
        if isinstance(ty, t.BoolType):
            if isinstance(value, Boolean):
                return value
            return Boolean(arith.compare("!=", self.code.data(value, pos), Const(0, 1)))
        shape = data_shape(ty)
        if shape is not None:
            if isinstance(value, Boolean):
                return Data(arith.choose(value.expr, Const(1, shape[0]), Const(0, shape[0])), *shape)
            if isinstance(value, IntConst):
                return Data(arith.const(value.value, *shape), *shape)
            if isinstance(value, Data):
                if (value.width, value.signed) == shape:
                    return value
                return Data(arith.cast(self.code.data(value, pos), value.width, value.signed, *shape), *shape)
        if isinstance(ty, t.HeaderType) and isinstance(value, Struct):
            return HeaderValue(ty, dict(zip(ty.fields, value.fields.values(), strict=True)))
        if isinstance(ty, t.UnionType) and isinstance(value, HeaderValue):
            return UnionInvalid(ty)
        if isinstance(ty, (t.StructType, t.AnonStructType)) and isinstance(value, Struct):
            return Struct(dict(zip(ty.fields, value.fields.values(), strict=True)))
        return value

    def _eval_listexpr(self, e: ast.ListExpr) -> Value:
        values = self.eval_in_order(e.items)
        return Struct({str(i): v for i, v in enumerate(values)})

    def _eval_structexpr(self, e: ast.StructExpr) -> Value:
        values = self.eval_in_order([f.expr for f in e.fields])
        named = {f.name: v for f, v in zip(e.fields, values, strict=True)}
        ty = t.strip_newtypes(e.type) if e.type is not None else None
        if isinstance(ty, (t.StructType, t.HeaderType)):
            named = {n: named[n] for n in ty.fields}
        return HeaderValue(ty, named) if isinstance(ty, t.HeaderType) else Struct(named)

    def _eval_invalidexpr(self, e: ast.InvalidExpr) -> Value:
        assert e.type is not None
        return self.code.zero(e.type, e.pos)

    # --- destinations ---

    def destination(self, expr: ast.Expr, *, stable: bool = False) -> Value:
        """Return what an lvalue denotes; with `stable`, later changes of index variables do not matter."""
        if isinstance(expr, ast.Slice):
            high, low = self._slice_bounds(expr)
            base = self.destination(expr.expr, stable=stable)
            if isinstance(base, SliceOf):
                return SliceOf(base.base, base.low + high, base.low + low)
            if not isinstance(base, Data):
                raise unsupported(expr.pos, "a slice of this as destination")
            return SliceOf(base, high, low)
        if isinstance(expr, ast.PlusSlice):
            base = self.destination(expr.expr, stable=stable)
            low_value = self.eval(expr.lo)
            if stable:
                low_value = self.code.snapshot(low_value, expr.pos)
            bits = as_const(self.eval(expr.width))
            if not isinstance(base, Data) or bits is None:
                raise unsupported(expr.pos, "this slice as destination")
            low_width = data_width(expr.lo) or 32
            return PlusSliceOf(base, self.code.data(low_value, expr.pos, low_width), low_width, bits)
        if isinstance(expr, ast.Index):
            base = self.destination(expr.expr, stable=stable)
            index = self.eval(expr.index)
            constant = as_const(index)
            if constant is not None:
                return self.constant_index(base, constant, expr.pos)
            if stable:
                index = self.code.snapshot(index, expr.pos)
            if isinstance(base, StoredStack):
                return StoredHeader(ElemRef(base.name, self.code.data(index, expr.pos)), base.element)
            raise unsupported(expr.pos, f"a run-time index of a value of type {expr.expr.type} as destination")
        if isinstance(expr, ast.Member):
            return self.member(self.destination(expr.expr, stable=stable), expr.name, expr.type, expr.pos)
        if isinstance(expr, (ast.Name, ast.DontCare)):
            return self.eval(expr)
        if isinstance(expr, ast.Cast):
            return self.destination(expr.expr, stable=stable)
        raise unsupported(expr.pos, "this expression as destination")


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}
"""Operators on compile-time integers that a constructor argument gave."""


def _negated_equality(same: Expr) -> Expr:
    if isinstance(same, Op) and same.op == "==":
        return Op("!=", same.left, same.right)
    return arith.logical_not(same)
