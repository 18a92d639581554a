"""The externs of core.p4 and v1model.p4."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import as_written, bindings
from p4lite.compiler.midend.effects import has_effects
from p4lite.compiler.midend.exprs import Expressions, data_width, needed_shape
from p4lite.compiler.midend.field_lists import FieldLists
from p4lite.compiler.midend.lir import Assign, Const, Expr, Field, FieldList, Named, Prim
from p4lite.compiler.midend.names import control_plane_name
from p4lite.compiler.midend.objects import OF_V1MODEL, ExternInstance
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.storage import STANDARD_METADATA, data_shape
from p4lite.compiler.midend.values import (
    Boolean,
    Data,
    Header,
    HeaderUnion,
    HeaderValue,
    IntConst,
    NextElement,
    Nothing,
    Object,
    Stack,
    Struct,
    TextConst,
    UnionStack,
    Value,
    Varbit,
    as_const,
)
from p4lite.compiler.unparse import expression

DROP_PORT = 511
MAX_EXTERN_DATA_BITS = 64
IN_PARSER = frozenset({"verify", "assert", "assume", "log_msg", "static_assert"})
IN_DEPARSER = frozenset({"assert", "assume", "log_msg", "static_assert"})
FIELD_LIST_FUNCTIONS = {
    "clone3": "clone_preserving_field_list",
    "resubmit": "resubmit_preserving_field_list",
    "recirculate": "recirculate_preserving_field_list",
}
"""Functions of the v1model.p4 of 2020 and before, and those that came after them."""


def strip_casts(expr: ast.Expr) -> ast.Expr:
    """Return an expression without the casts that the checker put around it."""
    while isinstance(expr, ast.Cast) and expr.implicit:
        expr = expr.expr
    return expr


class Externs:
    """Lowers calls of extern functions and methods."""

    standard_metadata: Struct

    def __init__(self, code: Places, exprs: Expressions, field_lists: FieldLists) -> None:
        self.code = code
        self.exprs = exprs
        self.field_lists = field_lists
        self._learn_lists: dict[object, tuple[FieldList, Struct]] = {}
        self._calculations = 0
        self._unnamed_digests = 0

    def call(self, call: ast.Call) -> Value | None:
        """Lower a call of an extern function, or of a method of an extern object."""
        return self._function(call) if call.kind is ast.CallKind.EXTERN_FUNCTION else self._method(call)

    # --- arguments ---

    def arguments(self, call: ast.Call) -> list[ast.Expr]:
        return [b.expr for b in bindings(call.args) if b.expr is not None]

    def _values(self, call: ast.Call) -> list[Value]:
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

    def _operand(self, value: Value, expr: ast.Expr) -> Expr:
        """Return a data argument of a primitive."""
        return self.code.data(value, expr.pos, data_width(expr) or 32)

    def _into_field(self, target: Value, expr: ast.Expr, emit: Callable[[Field], None]) -> None:
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

    def hash_input(self, value: Value, pos: ast.Pos, *, simple: bool = False) -> list[Field | Const]:
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

    def _input(self, raw: Expr, width: int, signed: bool, pos: ast.Pos, simple: bool) -> Field | Const:
        if isinstance(raw, Field) and raw.width == width:
            return raw
        if isinstance(raw, Const):
            return Const(raw.value & arith.mask(width), width)
        if simple:
            raise unsupported(pos, "a computed value in the data of a checksum")
        field = self.code.temp(width, signed)
        self.code.emit(Assign(field, raw))
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

    # --- functions ---

    def _function(self, call: ast.Call) -> Value | None:
        """Lower a call of an extern function."""
        name = call.method or (call.target.name if call.target is not None else "")
        allowed = {"parser": IN_PARSER, "deparser": IN_DEPARSER}.get(self.code.routine.kind)
        method = getattr(self, "_fn_" + name, None)
        if name in FIELD_LIST_FUNCTIONS:
            raise unsupported(call.pos, f"extern function '{name}'; {self._rewrite(call, name)}")
        if method is None:
            raise unsupported(call.pos, f"extern function '{name}'")
        if allowed is not None and name not in allowed:
            raise unsupported(call.pos, f"'{name}' in a {self.code.routine.kind}")
        result: Value | None = method(call)
        return result

    def _rewrite(self, call: ast.Call, name: str) -> str:
        """Return what to write instead of one of v1model's functions that took the data to keep as an argument."""
        *others, data = [strip_casts(e) for e in self.arguments(call)]
        items = data.items if isinstance(data, ast.ListExpr) else [data]
        if isinstance(data, ast.StructExpr):
            items = [f.expr for f in data.fields]
        kept = [expression(strip_casts(item)) for item in items]
        arguments = ", ".join([*(expression(e) for e in others), "1"])
        annotate = f"annotate {', '.join(kept)} with @field_list(1) (fields outside of the user metadata: copies in it)"
        if not kept:
            annotate = "annotate no field"
        return f"{annotate} and call {FIELD_LIST_FUNCTIONS[name]}({arguments})"

    def _fn_static_assert(self, call: ast.Call) -> Value:
        del call
        return Boolean(lir.Bool(True))

    def _fn_verify(self, call: ast.Call) -> None:
        cond_expr, error_expr = self.arguments(call)
        if self.code.routine.kind != "parser":
            raise unsupported(call.pos, "verify outside of a parser")
        cond, code = self._values(call)
        truth, error = self.code.truth(cond, cond_expr.pos), self._operand(code, error_expr)
        self.code.emit(lir.Verify(truth, error, self.code.loc(call)))

    def _fn_mark_to_drop(self, call: ast.Call) -> None:
        args = self.arguments(call)
        target = self.exprs.destination(args[0]) if args else self.standard_metadata
        if target == self.standard_metadata:
            self.code.emit(Prim("mark_to_drop", (lir.HeaderRef(STANDARD_METADATA),), self.code.loc(call)))
            return
        assert isinstance(target, Struct)
        self.code.copy(target.fields["egress_spec"], IntConst(DROP_PORT), call.pos)
        self.code.copy(target.fields["mcast_grp"], IntConst(0), call.pos)

    def _fn_hash(self, call: ast.Call) -> None:
        result, algo, base, data, limit = self.arguments(call)
        algorithm = self.enum_member(algo)
        target, _, base_value, data_value, limit_value = self._values(call)
        inputs = self.hash_input(data_value, data.pos)
        name = self.calculation(algorithm, inputs)
        low, size = self._operand(base_value, base), self._operand(limit_value, limit)
        for expr in (result, base, limit):
            self._check_width(expr)
        self._into_field(
            target,
            result,
            lambda field: self.code.emit(
                Prim(
                    "modify_field_with_hash_based_offset",
                    (field, low, Named("calculation", name), size),
                    self.code.loc(call),
                )
            ),
        )

    def _check_width(self, expr: ast.Expr) -> None:
        width = data_width(expr)
        if width is not None and width > MAX_EXTERN_DATA_BITS:
            raise unsupported(expr.pos, f"an argument of {width} bits here (at most {MAX_EXTERN_DATA_BITS})")

    def _fn_random(self, call: ast.Call) -> None:
        result, low, high = self.arguments(call)
        for expr in (result, low, high):
            self._check_width(expr)
        target, low_data, high_data = self._values(call)
        low_value, high_value = self._operand(low_data, low), self._operand(high_data, high)
        self._into_field(
            target,
            result,
            lambda field: self.code.emit(
                Prim("modify_field_rng_uniform", (field, low_value, high_value), self.code.loc(call))
            ),
        )

    def _fn_digest(self, call: ast.Call) -> None:
        receiver, data = self.arguments(call)
        receiver_data, value = self._values(call)
        receiver_value = self._operand(receiver_data, receiver)
        ty = call.types[0] if call.types else data.type
        key: object = ty if isinstance(ty, t.StructType) else call
        if key not in self._learn_lists:
            assert data.type is not None
            if isinstance(ty, t.StructType):
                name = control_plane_name(ast.declaration_of(ty))
                self.code.claims.claim("digest", name, ty.decl, ty.decl.pos)
            else:
                name = f"digest_{self._unnamed_digests}"
                self._unnamed_digests += 1
            place = self.code.storage.allocate(ty or data.type, f"{name}_digest", call.pos)
            elements = self.hash_input(place, call.pos)
            listed = FieldList(name, len(self.code.out.learn_lists) + 1, elements, self.code.loc(call))
            self.code.out.learn_lists.append(listed)
            self._learn_lists[key] = listed, place if isinstance(place, Struct) else Struct({"0": place})
        listed, place = self._learn_lists[key]
        leaves = self.code.leaves(value, call.pos)
        for target, leaf in zip(self.code.leaves(place, call.pos), leaves, strict=True):
            self.code.copy(target, leaf, call.pos)
        self.code.emit(Prim("generate_digest", (receiver_value, Const(listed.id, 32)), self.code.loc(call)))

    def _clone(self, call: ast.Call, list_id: int) -> None:
        kind, session = self.arguments(call)[:2]
        egress = self.enum_member(kind) == "E2E"
        if self.code.routine.region != ("egress" if egress else "ingress"):
            raise unsupported(
                call.pos, f"clone({'E2E' if egress else 'I2E'}) in {self.code.routine.region or 'this block'}"
            )
        op = "clone_egress_pkt_to_egress" if egress else "clone_ingress_pkt_to_egress"
        session_value = self._operand(self.exprs.eval(session), session)
        self.code.emit(Prim(op, (session_value, Const(list_id, 32)), self.code.loc(call)))

    def _fn_clone(self, call: ast.Call) -> None:
        self._clone(call, self.field_lists.empty())

    def _fn_clone_preserving_field_list(self, call: ast.Call) -> None:
        self._clone(call, self.field_lists.named(self.arguments(call)[2]))

    def _again(self, call: ast.Call, op: str, region: str) -> None:
        if self.code.routine.region != region:
            raise unsupported(call.pos, f"{call.method} outside of {region}")
        self.code.emit(Prim(op, (Const(self.field_lists.named(self.arguments(call)[0]), 32),), self.code.loc(call)))

    def _fn_resubmit_preserving_field_list(self, call: ast.Call) -> None:
        self._again(call, "resubmit", "ingress")

    def _fn_recirculate_preserving_field_list(self, call: ast.Call) -> None:
        self._again(call, "recirculate", "egress")

    def _fn_truncate(self, call: ast.Call) -> None:
        (length,) = self.arguments(call)
        self.code.emit(Prim("truncate", (self._operand(self.exprs.eval(length), length),), self.code.loc(call)))

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
        if isinstance(what, ExternInstance) and kind not in OF_V1MODEL:
            self._own_method(call, what)
            return None
        if method is None:
            raise unsupported(call.pos, f"method '{call.method}' of extern '{kind}'")
        if self.code.routine.kind == "parser" and kind != "packet_in":
            raise unsupported(call.pos, f"extern '{kind}' in a parser")
        if self.code.routine.kind == "deparser" and kind != "packet_out":
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
        results: list[tuple[Value, Data, ast.Pos]] = []
        for value, expr, is_out in zip(self._values(call), self.arguments(call), outs, strict=True):
            if not is_out:
                operands.append(self._operand(value, expr))
                continue
            # A field of its own, which the call alone writes: what was in the destination stays out of it.
            shape = data_shape(expr.type) if expr.type is not None else None
            if shape is None:
                raise unsupported(expr.pos, f"an out argument of type {expr.type} here")
            field = self.code.temp(*shape, "result")
            operands.append(field)
            results.append((value, Data(field, *shape), expr.pos))
        named = Named("extern", instance.name)
        self.code.emit(Prim(f"_{instance.kind}_{call.method}", (named, *operands), self.code.loc(call)))
        for target, result, pos in results:
            self.code.assign(target, result, pos)

    def _on_register_read(self, call: ast.Call, register: ExternInstance) -> None:
        result, index = self.arguments(call)
        target, number = self._values(call)
        at = self._operand(number, index)
        named = Named("register_array", register.name)
        self._into_field(
            target, result, lambda field: self.code.emit(Prim("register_read", (field, named, at), self.code.loc(call)))
        )

    def _on_register_write(self, call: ast.Call, register: ExternInstance) -> None:
        index, value = self.arguments(call)
        number, content = self._values(call)
        at, new = self._operand(number, index), self._operand(content, value)
        named = Named("register_array", register.name)
        self.code.emit(Prim("register_write", (named, at, new), self.code.loc(call)))

    def _on_counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        (index,) = self.arguments(call)
        at = self._operand(self.exprs.eval(index), index)
        self.code.emit(Prim("count", (Named("counter_array", counter.name), at), self.code.loc(call)))

    def _on_meter_execute_meter(self, call: ast.Call, meter: ExternInstance) -> None:
        index, result = self.arguments(call)
        number, target = self._values(call)
        at = self._operand(number, index)
        named = Named("meter_array", meter.name)
        self._into_field(
            target, result, lambda field: self.code.emit(Prim("execute_meter", (named, at, field), self.code.loc(call)))
        )

    def _on_direct_counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        """Emit nothing: BMv2 counts every hit of the table by itself."""
        if self.code.routine.kind != "action":
            raise unsupported(call.pos, f"'{counter.name}.count()' outside of an action of its table")

    def _on_direct_meter_read(self, call: ast.Call, meter: ExternInstance) -> None:
        """Record the field for the colour; BMv2 meters every hit of the table by itself."""
        if self.code.routine.kind != "action":
            raise unsupported(call.pos, f"'{meter.name}.read()' outside of an action of its table")
        target = self.exprs.destination(self.arguments(call)[0])
        if not isinstance(target, Data) or not isinstance(target.expr, Field):
            raise unsupported(call.pos, "a direct meter's result anywhere but in a field or variable")
        if meter.users and meter.users[0] != target.expr:
            raise unsupported(call.pos, f"results of direct meter '{meter.name}' in different fields")
        meter.users[:] = [target.expr]

    # --- packets ---

    def _on_packet_in_extract(self, call: ast.Call, packet: object) -> None:
        del packet
        args = self.arguments(call)
        target, *rest = self._values(call)
        length = self._operand(rest[0], args[1]) if rest else None
        if isinstance(target, Nothing):
            ty = call.types[0]
            target = self.code.storage.allocate(ty, "skipped", call.pos)
        if isinstance(target, NextElement):
            self._extract_next(target, length, call)
        elif isinstance(target, Header) and isinstance(target.ref, lir.HeaderRef):
            self.code.emit(lir.Extract("regular", target.ref.name, length, self.code.loc(call)))
        elif isinstance(target, Header):
            made = self.code.storage.allocate(target.type, "extracted", call.pos)
            assert isinstance(made, Header)
            assert isinstance(made.ref, lir.HeaderRef)
            self.code.emit(lir.Extract("regular", made.ref.name, length, self.code.loc(call)))
            self.code.assign(target, made, call.pos)
        else:
            raise unsupported(call.pos, "extract into anything but a header")

    def _extract_next(self, target: NextElement, length: Expr | None, call: ast.Call) -> None:
        if isinstance(target.stack, Stack):
            self.code.emit(lir.Extract("stack", target.stack.name, length, self.code.loc(call)))
        elif target.member is not None:
            self.code.emit(lir.Extract("union_stack", (target.stack.name, target.member), length, self.code.loc(call)))
        else:
            raise unsupported(call.pos, "extract into a header union")

    def _on_packet_in_advance(self, call: ast.Call, packet: object) -> None:
        del packet
        (amount,) = self.arguments(call)
        bits = self._operand(self.exprs.eval(amount), amount)
        if not isinstance(bits, (Const, Field)):
            field = self.code.temp(32)
            self.code.emit(Assign(field, bits))
            bits = field
        self.code.emit(lir.Advance(bits, self.code.loc(call)))

    def _on_packet_in_lookahead(self, call: ast.Call, packet: object) -> Value:
        del packet
        ty = call.types[0]
        width = t.max_width_bits(ty)
        if width is None or t.min_width_bits(ty) != width or width == 0:
            raise unsupported(call.pos, f"lookahead of type {ty}")
        field = self.code.temp(width)
        self.code.emit(Assign(field, lir.Lookahead(0, width)))
        value, rest = self._unpack(field, width, width, ty, call.pos)
        assert rest == 0
        return value

    def _unpack(self, field: Field, total: int, left: int, ty: t.Type, pos: ast.Pos) -> tuple[Value, int]:
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

    def _emit(self, value: Value, pos: ast.Pos) -> None:
        if isinstance(value, Header) and isinstance(value.ref, lir.HeaderRef):
            self.code.emit(Prim("emit", (value.ref,)))
        elif isinstance(value, Struct):
            for item in value.fields.values():
                self._emit(item, pos)
        elif isinstance(value, (Stack, UnionStack)):
            for i in range(value.type.size):
                self._emit(self.code.element(value, i), pos)
        elif isinstance(value, HeaderUnion):
            for name in value.type.fields:
                self._emit(self.code.union_member(value, name), pos)
        else:
            raise unsupported(pos, "emit of anything but headers")

    # --- instances ---
