"""The externs of core.p4 and of the program itself, and what those of all architectures share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import as_written, bindings, unsupported
from p4lite.compiler.midend.emitter import has_effects
from p4lite.compiler.midend.exprs import ExpressionLowering, data_width, needed_shape
from p4lite.compiler.midend.lir import Const, Expr, Field, FieldList, LoweredAssign, ObjectRef, Prim
from p4lite.compiler.midend.objects import ExternInstance, add_own, claim
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import (
    Boolean,
    Data,
    HeaderUnion,
    HeaderValue,
    IntConst,
    NextElement,
    Nothing,
    Object,
    StoredHeader,
    StoredStack,
    StoredUnionStack,
    Struct,
    TextConst,
    Value,
    Varbit,
    as_const,
)
from p4lite.compiler.position import Pos

IN_PARSER = frozenset({"verify", "assert", "assume", "log_msg", "static_assert"})
IN_DEPARSER = frozenset({"assert", "assume", "log_msg", "static_assert"})


class Externs(ABC):
    """Lowers calls of extern functions and methods: `_fn_NAME`, and `_on_TYPE_METHOD`."""

    parser_methods = frozenset({"packet_in"})
    deparser_methods = frozenset({"packet_out"})
    deparser_functions = IN_DEPARSER
    """Extern types and functions that may be called in parsers and in deparsers."""

    def __init__(self, code: Places, exprs: ExpressionLowering) -> None:
        self.code = code
        self.exprs = exprs
        self.learn_lists: dict[object, tuple[FieldList, Struct]] = {}
        self._calculations = 0

    def call(self, call: ast.Call) -> Value | None:
        """Lower a call of an extern function, or of a method of an extern object."""
        if call.kind is ast.CallKind.EXTERN_FUNCTION:
            return self.function(call, call.method or (call.target.name if call.target is not None else ""))
        return self._method(call)

    # --- arguments ---

    def arguments(self, call: ast.Call) -> list[ast.Expr]:
        return [b.expr for b in bindings(call.args) if b.expr is not None]

    def values(self, call: ast.Call) -> list[Value]:
        """Return the arguments in the order of the parameters, evaluated in the order of the call.

        Of an out parameter it is the place to write, fixed before later arguments are evaluated.
        """
        found: dict[int, Value] = {}
        ordered = [b for b in as_written(bindings(call.args)) if b.expr is not None]
        for i, (param, expr, _) in enumerate(ordered):
            assert expr is not None
            if param.direction in ("out", "inout"):
                value = self.exprs.destination(expr, stable=True)
            else:
                value = self.exprs.eval(expr)
                if has_effects(b.expr for b in ordered[i + 1 :]):
                    value = self.code.snapshot(value, expr.pos)
            found[id(expr)] = value
        return [found[id(expr)] for expr in self.arguments(call)]

    def operand(self, value: Value, expr: ast.Expr) -> Expr:
        """Return a data argument of a primitive."""
        return self.code.data(value, expr.pos, data_width(expr) or 32)

    def into_field(self, target: Value, expr: ast.Expr, emit: Callable[[Field], None]) -> None:
        """Run a primitive that writes a field, then copy to `target`, where the argument `expr` wants the result."""
        if isinstance(target, Data) and isinstance(target.expr, Field):
            emit(target.expr)
            return
        shape = data_shape(expr.type) if expr.type is not None else None
        if isinstance(target, Data):
            shape = target.width, target.signed
        if shape is None:
            shape = needed_shape(expr)
        field = self.code.temp(*shape)
        emit(field)
        self.code.assign(target, Data(field, *shape), expr.pos)

    def hash_input(self, value: Value, pos: Pos, *, simple: bool = False) -> list[Field | Const]:
        """Return fields and constants for a calculation; with `simple`, computed values are refused."""
        inputs: list[Field | Const] = []
        for leaf in self.code.leaves(value, pos):
            if isinstance(leaf, Varbit):
                inputs.append(leaf.field)
            elif isinstance(leaf, Boolean):
                raw = arith.to_data(leaf.expr)
                inputs.append(self._input(raw, 1, False, pos, simple))
            elif isinstance(leaf, Data):
                raw = leaf.expr if isinstance(leaf.expr, Field) else self.code.data(leaf, pos)
                inputs.append(self._input(raw, leaf.width, leaf.signed, pos, simple))
        return inputs

    def _input(self, raw: Expr, width: int, signed: bool, pos: Pos, simple: bool) -> Field | Const:
        if isinstance(raw, Field) and raw.width == width:
            return raw
        if isinstance(raw, Const):
            return Const(raw.value & arith.mask(width), width)
        if simple:
            raise unsupported(pos, "a computed value in the data of a checksum")
        field = self.code.temp(width, signed)
        self.code.emit(LoweredAssign(field, raw))
        return field

    def calculation(self, algo: str, inputs: list[Field | Const], *, payload: bool = False) -> str:
        """Return a new named calculation."""
        name = f"calc_{self._calculations}" if self._calculations else "calc"
        self._calculations += 1
        self.code.out.calculations.append(lir.Calculation(name, algo, inputs, payload))
        return name

    def enum_member(self, expr: ast.Expr) -> str:
        """Return the member that an enum-typed compile-time argument names."""
        if isinstance(expr.const, ast.EnumValue):
            return expr.const.member
        value = as_const(self.exprs.eval(expr))
        ty = t.strip_newtypes(expr.type) if expr.type is not None else None
        if value is None or not isinstance(ty, t.EnumType):
            raise unsupported(expr.pos, "this argument when it is not a constant")
        return ty.members[value]

    def learn(self, key: object, name: str, ty: t.Type, pos: Pos) -> tuple[FieldList, Struct]:
        """Return the learn list of a digest, and the fields that it holds; a new one if `key` is new."""
        if key not in self.learn_lists:
            place = self.code.storage.allocate(ty, f"{name}_digest", pos)
            elements = self.hash_input(place, pos)
            listed = FieldList(name, len(self.code.out.learn_lists) + 1, elements)
            self.code.out.learn_lists.append(listed)
            self.learn_lists[key] = listed, place if isinstance(place, Struct) else Struct({"0": place})
        return self.learn_lists[key]

    def generate_digest(self, key: object, name: str, ty: t.Type, value: Value, receiver: Expr, call: ast.Call) -> None:
        """Copy a value to the fields of a digest, and send it."""
        listed, place = self.learn(key, name, ty, call.pos)
        listed.loc = listed.loc or self.code.loc(call)
        for target, leaf in zip(self.code.leaves(place, call.pos), self.code.leaves(value, call.pos), strict=True):
            self.code.copy(target, leaf, call.pos)
        self.code.emit(Prim("generate_digest", (receiver, Const(listed.id, 32)), self.code.loc(call)))

    # --- functions ---

    @abstractmethod
    def declare(self, instance: ExternInstance) -> None:
        """Put a new extern object of the architecture into the output."""

    def add(self, instance: ExternInstance) -> None:
        """Take a new extern object's name, and put it into the output."""
        if not self.code.architecture.owns(instance.kind):
            add_own(self.code, instance)
            return
        claim(self.code, instance)
        self.declare(instance)

    def function(self, call: ast.Call, name: str) -> Value | None:
        """Lower a call of an extern function."""
        allowed = {"parser": IN_PARSER, "deparser": self.deparser_functions}.get(self.code.routine.kind)
        method = getattr(self, "_fn_" + name, None)
        if method is None:
            raise unsupported(call.pos, f"extern function '{name}'")
        if allowed is not None and name not in allowed:
            raise unsupported(call.pos, f"'{name}' in a {self.code.routine.kind}")
        result: Value | None = method(call)
        return result

    def _fn_static_assert(self, call: ast.Call) -> Value:
        del call
        return Boolean(lir.Bool(True))

    def _fn_verify(self, call: ast.Call) -> None:
        cond_expr, error_expr = self.arguments(call)
        if self.code.routine.kind != "parser":
            raise unsupported(call.pos, "verify outside of a parser")
        cond, code = self.values(call)
        truth, error = self.code.truth(cond, cond_expr.pos), self.operand(code, error_expr)
        self.code.emit(lir.Verify(truth, error, self.code.loc(call)))

    def _check(self, call: ast.Call, op: str) -> None:
        (cond,) = self.arguments(call)
        self.code.emit(Prim(op, (arith.to_data(self.exprs.eval_truth(cond)),), self.code.loc(call)))

    def _fn_assert(self, call: ast.Call) -> None:
        self._check(call, "assert")

    def _fn_assume(self, call: ast.Call) -> None:
        self._check(call, "assume")

    def _fn_log_msg(self, call: ast.Call) -> None:
        args = self.arguments(call)
        text = self.exprs.eval(args[0])
        if not isinstance(text, TextConst):
            raise unsupported(call.pos, "a message that is not a string literal")
        items: list[Expr] = []
        if len(args) > 1:
            for leaf in self.code.leaves(self._logged(self.exprs.eval(args[1])), call.pos):
                if isinstance(leaf, Varbit):
                    raise unsupported(call.pos, "a varbit in log_msg")
                items.append(self.code.data(leaf, call.pos))
        self.code.emit(Prim("log_msg", (lir.Text(text.value), lir.Vector(tuple(items))), self.code.loc(call)))

    def _logged(self, value: Value) -> Value:
        if isinstance(value, Struct):
            return Struct({n: self._logged(v) for n, v in value.fields.items()})
        if isinstance(value, IntConst):
            return Data(Const(value.value, 32), 32)
        return value

    # --- methods ---

    def _method(self, call: ast.Call) -> Value | None:
        """Lower a call of a method of an extern object."""
        assert call.receiver is not None
        receiver = self.exprs.eval(call.receiver)
        what = receiver.what if isinstance(receiver, Object) else None
        if isinstance(what, str):
            kind = what
        elif isinstance(what, ExternInstance):
            kind = what.kind
        else:
            raise unsupported(call.pos, f"method '{call.method}' of this expression")
        method = getattr(self, f"_on_{kind}_{call.method}", None)
        if isinstance(what, ExternInstance) and not self.code.architecture.owns(kind):
            self._own_method(call, what)
            return None
        if method is None:
            raise unsupported(call.pos, f"method '{call.method}' of extern '{kind}'")
        if self.code.routine.kind == "parser" and kind not in self.parser_methods:
            raise unsupported(call.pos, f"extern '{kind}' in a parser")
        if self.code.routine.kind == "deparser" and kind not in self.deparser_methods:
            raise unsupported(call.pos, f"extern '{kind}' in a deparser")
        result: Value | None = method(call, what)
        return result

    def _own_method(self, call: ast.Call, instance: ExternInstance) -> None:
        """Lower a method of an extern of the program's own: first its in parameters, then its out parameters."""
        if self.code.routine.kind in ("parser", "deparser"):
            raise unsupported(call.pos, f"extern '{instance.kind}' in a {self.code.routine.kind}")
        if call.type is not None and not isinstance(call.type, t.VoidType):
            raise unsupported(call.pos, f"method '{call.method}' of extern '{instance.kind}', which returns a value")
        bound = [b for b in bindings(call.args) if b.expr is not None]
        outs = [param.direction == "out" for param, _, _ in bound]
        if any(param.direction == "inout" for param, _, _ in bound) or outs != sorted(outs):
            raise unsupported(call.pos, f"method '{call.method}': in parameters come first, then those that are out")
        operands: list[lir.Arg] = []
        results: list[tuple[Value, Data, Pos]] = []
        for value, expr, is_out in zip(self.values(call), self.arguments(call), outs, strict=True):
            if not is_out:
                operands.append(self.operand(value, expr))
                continue
            # A field of its own, which the call alone writes: what was in the destination stays out of it.
            shape = data_shape(expr.type) if expr.type is not None else None
            if shape is None:
                raise unsupported(expr.pos, f"an out argument of type {expr.type} here")
            field = self.code.temp(*shape, "result")
            operands.append(field)
            results.append((value, Data(field, *shape), expr.pos))
        named = ObjectRef("extern", instance.name)
        self.code.emit(Prim(f"_{instance.kind}_{call.method}", (named, *operands), self.code.loc(call)))
        for target, result, pos in results:
            self.code.assign(target, result, pos)

    # --- packets ---

    def _on_packet_in_extract(self, call: ast.Call, packet: object) -> None:
        del packet
        args = self.arguments(call)
        target, *rest = self.values(call)
        length = self.operand(rest[0], args[1]) if rest else None
        if isinstance(target, Nothing):
            ty = call.types[0]
            target = self.code.storage.allocate(ty, "skipped", call.pos)
        if isinstance(target, NextElement):
            self._extract_next(target, length, call)
        elif isinstance(target, StoredHeader) and isinstance(target.ref, lir.HeaderRef):
            self.code.emit(lir.Extract("regular", target.ref.name, length, self.code.loc(call)))
        elif isinstance(target, StoredHeader):
            made = self.code.storage.allocate(target.type, "extracted", call.pos)
            assert isinstance(made, StoredHeader)
            assert isinstance(made.ref, lir.HeaderRef)
            self.code.emit(lir.Extract("regular", made.ref.name, length, self.code.loc(call)))
            self.code.assign(target, made, call.pos)
        else:
            raise unsupported(call.pos, "extract into anything but a header")

    def _extract_next(self, target: NextElement, length: Expr | None, call: ast.Call) -> None:
        if isinstance(target.stack, StoredStack):
            self.code.emit(lir.Extract("stack", target.stack.name, length, self.code.loc(call)))
        elif target.member is not None:
            self.code.emit(lir.Extract("union_stack", (target.stack.name, target.member), length, self.code.loc(call)))
        else:
            raise unsupported(call.pos, "extract into a header union")

    def _on_packet_in_advance(self, call: ast.Call, packet: object) -> None:
        del packet
        (amount,) = self.arguments(call)
        bits = self.operand(self.exprs.eval(amount), amount)
        if not isinstance(bits, (Const, Field)):
            field = self.code.temp(32)
            self.code.emit(LoweredAssign(field, bits))
            bits = field
        self.code.emit(lir.Advance(bits, self.code.loc(call)))

    def _on_packet_in_lookahead(self, call: ast.Call, packet: object) -> Value:
        del packet
        ty = call.types[0]
        width = t.max_width_bits(ty)
        if width is None or t.min_width_bits(ty) != width or width == 0:
            raise unsupported(call.pos, f"lookahead of type {ty}")
        field = self.code.temp(width)
        self.code.emit(LoweredAssign(field, lir.Lookahead(0, width)))
        value, rest = self._unpack(field, width, width, ty, call.pos)
        assert rest == 0
        return value

    def _unpack(self, field: Field, total: int, left: int, ty: t.Type, pos: Pos) -> tuple[Value, int]:
        """Return the next value of type `ty` in the lowest `left` bits of `field`, and how many bits remain."""
        ty = t.strip_newtypes(ty)
        shape = data_shape(ty)
        if shape is not None:
            raw = arith.slice_bits(field, left - 1, left - shape[0], total, False)
            return Data(arith.cast(raw, shape[0], False, *shape), *shape), left - shape[0]
        if isinstance(ty, t.BoolType):
            return Boolean(arith.to_bool(arith.slice_bits(field, left - 1, left - 1, total, False))), left - 1
        items: dict[str, Value] = {}
        if isinstance(ty, (t.HeaderType, t.StructType)):
            for name, field_type in ty.fields.items():
                items[name], left = self._unpack(field, total, left, field_type, pos)
            return (HeaderValue(ty, items) if isinstance(ty, t.HeaderType) else Struct(items)), left
        if isinstance(ty, t.TupleType):
            for i, item in enumerate(ty.items):
                items[str(i)], left = self._unpack(field, total, left, item, pos)
            return Struct(items), left
        if isinstance(ty, t.StackType):
            for i in range(ty.size):
                items[str(i)], left = self._unpack(field, total, left, ty.element, pos)
            return Struct(items), left
        raise unsupported(pos, f"lookahead of type {ty}")

    def _on_packet_out_emit(self, call: ast.Call, packet: object) -> None:
        del packet
        (what,) = self.arguments(call)
        if self.code.routine.kind != "deparser":
            raise unsupported(call.pos, "emit outside of the deparser")
        self._emit(self.exprs.eval(what), call.pos)

    def _emit(self, value: Value, pos: Pos) -> None:
        if isinstance(value, StoredHeader) and isinstance(value.ref, lir.HeaderRef):
            self.code.emit(Prim("emit", (value.ref,)))
        elif isinstance(value, Struct):
            for item in value.fields.values():
                self._emit(item, pos)
        elif isinstance(value, (StoredStack, StoredUnionStack)):
            for i in range(value.type.size):
                self._emit(self.code.element(value, i), pos)
        elif isinstance(value, HeaderUnion):
            for name in value.type.fields:
                self._emit(self.code.union_member(value, name), pos)
        else:
            raise unsupported(pos, "emit of anything but headers")
