"""The externs of core.p4 and v1model.p4."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.base import as_const, as_written, bindings, has_effects
from p4lite.compiler.midend.instances import ExternInstance, int_argument
from p4lite.compiler.midend.lir import Assign, Const, Expr, Field, FieldList, Named, Prim
from p4lite.compiler.midend.names import control_plane_name
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.stmts import Statements
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
)
from p4lite.compiler.unparse import expression

DROP_PORT = 511
METER_KINDS = ("packets", "bytes")
MAX_EXTERN_DATA_BITS = 64
EXTERN_KINDS = {
    "register": "register", "counter": "counter", "direct_counter": "counter", "meter": "meter",
    "direct_meter": "meter", "action_profile": "action profile", "action_selector": "action profile",
}  # fmt: skip
"""Extern objects that the control plane sees; those of one kind share their names."""
IN_PARSER = frozenset({"verify", "assert", "assume", "log_msg", "static_assert"})
IN_DEPARSER = frozenset({"assert", "assume", "log_msg", "static_assert"})
FIELD_LIST_FUNCTIONS = {
    "clone3": "clone_preserving_field_list",
    "resubmit": "resubmit_preserving_field_list",
    "recirculate": "recirculate_preserving_field_list",
}
"""Functions of the v1model.p4 of 2020 and before, and those that came after them."""


def strip_casts(expr: ast.Expr) -> ast.Expr:
    """An expression without the casts that the checker put around it."""
    while isinstance(expr, ast.Cast) and expr.implicit:
        expr = expr.expr
    return expr


class Externs(Statements):
    """Calls of extern functions and methods."""

    field_list_ids: dict[int, int]
    standard_metadata: Struct

    def __init__(self, program_name: str) -> None:
        super().__init__(program_name)
        self._learn_lists: dict[object, tuple[FieldList, Struct]] = {}
        self._empty_list: FieldList | None = None
        self._calculations = 0
        self._unnamed_digests = 0

    # --- arguments ---

    def _args(self, call: ast.Call) -> list[ast.Expr]:
        return [b.expr for b in bindings(call.args) if b.expr is not None]

    def _values(self, call: ast.Call) -> list[Value]:
        """The arguments in the order of the parameters, evaluated in the order of the call.

        Of an out parameter it is the place to write, fixed before later arguments are evaluated.
        """
        found: dict[int, Value] = {}
        ordered = [b for b in as_written(bindings(call.args)) if b.expr is not None]
        for i, (param, expr, _) in enumerate(ordered):
            assert expr is not None
            if param.direction in ("out", "inout"):
                value = self.destination(expr, stable=True)
            else:
                value = self.eval(expr)
                if has_effects(b.expr for b in ordered[i + 1 :]):
                    value = self.snapshot(value, expr.pos)
            found[id(expr)] = value
        return [found[id(expr)] for expr in self._args(call)]

    def _operand(self, value: Value, expr: ast.Expr) -> Expr:
        """A data argument of a primitive."""
        return self.data(value, expr.pos, self._width(expr) or 32)

    def _into_field(self, target: Value, expr: ast.Expr, emit: Callable[[Field], None]) -> None:
        """Run a primitive that writes a field, then copy to `target`, where the argument `expr` wants the result."""
        if isinstance(target, Data) and isinstance(target.expr, Field):
            emit(target.expr)
            return
        shape = data_shape(expr.type) if expr.type is not None else None
        if isinstance(target, Data):
            shape = target.width, target.signed
        if shape is None:
            shape = self._shape(expr)
        field = self.temp(*shape)
        emit(field)
        self.assign(target, Data(field, *shape), expr.pos)

    def leaves(self, value: Value, pos: ast.Pos) -> list[Value]:
        """The scalars (and varbits) of a value in order."""
        if isinstance(value, Struct):
            return [leaf for v in value.fields.values() for leaf in self.leaves(v, pos)]
        if isinstance(value, Header):
            return [leaf for v in self.header_fields(value, pos).values() for leaf in self.leaves(v, pos)]
        if isinstance(value, HeaderValue) and value.fields is not None:
            return [leaf for v in value.fields.values() for leaf in self.leaves(v, pos)]
        if isinstance(value, (Stack, UnionStack)):
            elements = [self.element(value, i) for i in range(value.type.size)]
            return [leaf for e in elements for leaf in self.leaves(e, pos)]
        if isinstance(value, HeaderUnion):
            members = [self.union_member(value, n) for n in value.type.fields]
            return [leaf for m in members for leaf in self.leaves(m, pos)]
        if isinstance(value, (Data, Boolean, Varbit)):
            return [value]
        raise unsupported(pos, "a value of this type in a list of fields")

    def hash_input(self, value: Value, pos: ast.Pos, *, simple: bool = False) -> list[Field | Const]:
        """Fields and constants for a calculation; with `simple`, computed values are refused."""
        inputs: list[Field | Const] = []
        for leaf in self.leaves(value, pos):
            if isinstance(leaf, Varbit):
                inputs.append(leaf.field)
            elif isinstance(leaf, Boolean):
                raw = arith.to_data(leaf.expr)
                inputs.append(self._input(raw, 1, False, pos, simple))
            elif isinstance(leaf, Data):
                raw = leaf.expr if isinstance(leaf.expr, Field) else self.data(leaf, pos)
                inputs.append(self._input(raw, leaf.width, leaf.signed, pos, simple))
        return inputs

    def _input(self, raw: Expr, width: int, signed: bool, pos: ast.Pos, simple: bool) -> Field | Const:
        if isinstance(raw, Field) and raw.width == width:
            return raw
        if isinstance(raw, Const):
            return Const(raw.value & arith.mask(width), width)
        if simple:
            raise unsupported(pos, "a computed value in the data of a checksum")
        field = self.temp(width, signed)
        self.emit(Assign(field, raw))
        return field

    def calculation(self, algo: str, inputs: list[Field | Const], *, payload: bool = False) -> str:
        """A new named calculation."""
        name = f"calc_{self._calculations}" if self._calculations else "calc"
        self._calculations += 1
        self.out.calculations.append(lir.Calculation(name, algo, inputs, payload))
        return name

    def enum_member(self, expr: ast.Expr) -> str:
        """The member that an enum-typed compile-time argument names."""
        if isinstance(expr.const, ast.EnumValue):
            return expr.const.member
        value = as_const(self.eval(expr))
        ty = t.strip_newtypes(expr.type) if expr.type is not None else None
        if value is None or not isinstance(ty, t.EnumType):
            raise unsupported(expr.pos, "this argument when it is not a constant")
        return ty.members[value]

    # --- functions ---

    def extern_function(self, call: ast.Call) -> Value | None:
        """A call of an extern function."""
        name = call.method or (call.target.name if call.target is not None else "")
        allowed = {"parser": IN_PARSER, "deparser": IN_DEPARSER}.get(self.routine.kind)
        method = getattr(self, "_fn_" + name, None)
        if name in FIELD_LIST_FUNCTIONS:
            raise unsupported(call.pos, f"extern function '{name}'; {self._rewrite(call, name)}")
        if method is None:
            raise unsupported(call.pos, f"extern function '{name}'")
        if allowed is not None and name not in allowed:
            raise unsupported(call.pos, f"'{name}' in a {self.routine.kind}")
        result: Value | None = method(call)
        return result

    def _rewrite(self, call: ast.Call, name: str) -> str:
        """What to write instead of one of v1model's functions that took the data to keep as an argument."""
        *others, data = [strip_casts(e) for e in self._args(call)]
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
        cond_expr, error_expr = self._args(call)
        if self.routine.kind != "parser":
            raise unsupported(call.pos, "verify outside of a parser")
        cond, code = self._values(call)
        self.emit(lir.Verify(self.truth(cond, cond_expr.pos), self._operand(code, error_expr)))

    def _fn_mark_to_drop(self, call: ast.Call) -> None:
        args = self._args(call)
        target = self.destination(args[0]) if args else self.standard_metadata
        if target == self.standard_metadata:
            self.emit(Prim("mark_to_drop", (lir.HeaderRef(STANDARD_METADATA),), self.loc(call)))
            return
        assert isinstance(target, Struct)
        self.copy(target.fields["egress_spec"], IntConst(DROP_PORT), call.pos)
        self.copy(target.fields["mcast_grp"], IntConst(0), call.pos)

    def _fn_hash(self, call: ast.Call) -> None:
        result, algo, base, data, limit = self._args(call)
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
            lambda field: self.emit(
                Prim(
                    "modify_field_with_hash_based_offset",
                    (field, low, Named("calculation", name), size),
                    self.loc(call),
                )
            ),
        )

    def _check_width(self, expr: ast.Expr) -> None:
        width = self._width(expr)
        if width is not None and width > MAX_EXTERN_DATA_BITS:
            raise unsupported(expr.pos, f"an argument of {width} bits here (at most {MAX_EXTERN_DATA_BITS})")

    def _fn_random(self, call: ast.Call) -> None:
        result, low, high = self._args(call)
        for expr in (result, low, high):
            self._check_width(expr)
        target, low_data, high_data = self._values(call)
        low_value, high_value = self._operand(low_data, low), self._operand(high_data, high)
        self._into_field(
            target,
            result,
            lambda field: self.emit(Prim("modify_field_rng_uniform", (field, low_value, high_value), self.loc(call))),
        )

    def _fn_digest(self, call: ast.Call) -> None:
        receiver, data = self._args(call)
        receiver_data, value = self._values(call)
        receiver_value = self._operand(receiver_data, receiver)
        ty = call.types[0] if call.types else data.type
        key: object = ty if isinstance(ty, t.StructType) else call
        if key not in self._learn_lists:
            assert data.type is not None
            if isinstance(ty, t.StructType):
                name = control_plane_name(ty.decl)
                self.claims.claim("digest", name, ty.decl, ty.decl.pos)
            else:
                name = f"digest_{self._unnamed_digests}"
                self._unnamed_digests += 1
            place = self.storage.allocate(ty or data.type, f"{name}_digest", call.pos)
            elements = self.hash_input(place, call.pos)
            listed = FieldList(name, len(self.out.learn_lists) + 1, elements, self.loc(call))
            self.out.learn_lists.append(listed)
            self._learn_lists[key] = listed, place if isinstance(place, Struct) else Struct({"0": place})
        listed, place = self._learn_lists[key]
        leaves = self.leaves(value, call.pos)
        for target, leaf in zip(self.leaves(place, call.pos), leaves, strict=True):
            self.copy(target, leaf, call.pos)
        self.emit(Prim("generate_digest", (receiver_value, Const(listed.id, 32)), self.loc(call)))

    def _clone(self, call: ast.Call, list_id: int) -> None:
        kind, session = self._args(call)[:2]
        egress = self.enum_member(kind) == "E2E"
        if self.routine.region != ("egress" if egress else "ingress"):
            raise unsupported(call.pos, f"clone({'E2E' if egress else 'I2E'}) in {self.routine.region or 'this block'}")
        op = "clone_egress_pkt_to_egress" if egress else "clone_ingress_pkt_to_egress"
        session_value = self._operand(self.eval(session), session)
        self.emit(Prim(op, (session_value, Const(list_id, 32)), self.loc(call)))

    def _fn_clone(self, call: ast.Call) -> None:
        self._clone(call, self._empty_field_list())

    def _fn_clone_preserving_field_list(self, call: ast.Call) -> None:
        self._clone(call, self._field_list(self._args(call)[2]))

    def _empty_field_list(self) -> int:
        if self._empty_list is None:
            self._empty_list = FieldList("empty", len(self.out.field_lists) + 1, [])
            self.out.field_lists.append(self._empty_list)
        return self._empty_list.id

    def _field_list(self, expr: ast.Expr) -> int:
        index = as_const(self.eval(expr))
        if index is None:
            raise unsupported(expr.pos, "a field list index that is not constant")
        if index not in self.field_list_ids:
            self.warn(expr.pos, f"no field of the user metadata is annotated with @field_list({index})")
            return self._empty_field_list()
        return self.field_list_ids[index]

    def _again(self, call: ast.Call, op: str, region: str) -> None:
        if self.routine.region != region:
            raise unsupported(call.pos, f"{call.method} outside of {region}")
        self.emit(Prim(op, (Const(self._field_list(self._args(call)[0]), 32),), self.loc(call)))

    def _fn_resubmit_preserving_field_list(self, call: ast.Call) -> None:
        self._again(call, "resubmit", "ingress")

    def _fn_recirculate_preserving_field_list(self, call: ast.Call) -> None:
        self._again(call, "recirculate", "egress")

    def _fn_truncate(self, call: ast.Call) -> None:
        (length,) = self._args(call)
        self.emit(Prim("truncate", (self._operand(self.eval(length), length),), self.loc(call)))

    def _check(self, call: ast.Call, op: str) -> None:
        (cond,) = self._args(call)
        self.emit(Prim(op, (arith.to_data(self.eval_truth(cond)),), self.loc(call)))

    def _fn_assert(self, call: ast.Call) -> None:
        self._check(call, "assert")

    def _fn_assume(self, call: ast.Call) -> None:
        self._check(call, "assume")

    def _fn_log_msg(self, call: ast.Call) -> None:
        args = self._args(call)
        text = self.eval(args[0])
        if not isinstance(text, TextConst):
            raise unsupported(call.pos, "a message that is not a string literal")
        items: list[Expr] = []
        if len(args) > 1:
            for leaf in self.leaves(self._logged(self.eval(args[1])), call.pos):
                if isinstance(leaf, Varbit):
                    raise unsupported(call.pos, "a varbit in log_msg")
                items.append(self.data(leaf, call.pos))
        self.emit(Prim("log_msg", (lir.Text(text.value), lir.Vector(tuple(items))), self.loc(call)))

    def _logged(self, value: Value) -> Value:
        if isinstance(value, Struct):
            return Struct({n: self._logged(v) for n, v in value.fields.items()})
        if isinstance(value, IntConst):
            return Data(Const(value.value, 32), 32)
        return value

    # --- methods ---

    def extern_method(self, call: ast.Call) -> Value | None:
        """A call of a method of an extern object."""
        assert call.receiver is not None
        receiver = self.eval(call.receiver)
        what = receiver.what if isinstance(receiver, Object) else None
        if isinstance(what, str):
            kind = what
        elif isinstance(what, ExternInstance):
            kind = what.kind
        else:
            raise unsupported(call.pos, f"method '{call.method}' of this expression")
        method = getattr(self, f"_on_{kind}_{call.method}", None)
        if method is None:
            raise unsupported(call.pos, f"method '{call.method}' of extern '{kind}'")
        if self.routine.kind == "parser" and kind != "packet_in":
            raise unsupported(call.pos, f"extern '{kind}' in a parser")
        if self.routine.kind == "deparser" and kind != "packet_out":
            raise unsupported(call.pos, f"extern '{kind}' in a deparser")
        result: Value | None = method(call, what)
        return result

    def _on_register_read(self, call: ast.Call, register: ExternInstance) -> None:
        result, index = self._args(call)
        target, number = self._values(call)
        at = self._operand(number, index)
        named = Named("register_array", register.name)
        self._into_field(
            target, result, lambda field: self.emit(Prim("register_read", (field, named, at), self.loc(call)))
        )

    def _on_register_write(self, call: ast.Call, register: ExternInstance) -> None:
        index, value = self._args(call)
        number, content = self._values(call)
        at, new = self._operand(number, index), self._operand(content, value)
        named = Named("register_array", register.name)
        self.emit(Prim("register_write", (named, at, new), self.loc(call)))

    def _on_counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        (index,) = self._args(call)
        at = self._operand(self.eval(index), index)
        self.emit(Prim("count", (Named("counter_array", counter.name), at), self.loc(call)))

    def _on_meter_execute_meter(self, call: ast.Call, meter: ExternInstance) -> None:
        index, result = self._args(call)
        number, target = self._values(call)
        at = self._operand(number, index)
        named = Named("meter_array", meter.name)
        self._into_field(
            target, result, lambda field: self.emit(Prim("execute_meter", (named, at, field), self.loc(call)))
        )

    def _on_direct_counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        """BMv2 counts every hit of the table by itself."""
        if self.routine.kind != "action":
            raise unsupported(call.pos, f"'{counter.name}.count()' outside of an action of its table")

    def _on_direct_meter_read(self, call: ast.Call, meter: ExternInstance) -> None:
        """BMv2 meters every hit of the table by itself; the call says where the colour goes."""
        if self.routine.kind != "action":
            raise unsupported(call.pos, f"'{meter.name}.read()' outside of an action of its table")
        target = self.destination(self._args(call)[0])
        if not isinstance(target, Data) or not isinstance(target.expr, Field):
            raise unsupported(call.pos, "a direct meter's result anywhere but in a field or variable")
        if meter.users and meter.users[0] != target.expr:
            raise unsupported(call.pos, f"results of direct meter '{meter.name}' in different fields")
        meter.users[:] = [target.expr]

    # --- packets ---

    def _on_packet_in_extract(self, call: ast.Call, packet: object) -> None:
        del packet
        args = self._args(call)
        target, *rest = self._values(call)
        length = self._operand(rest[0], args[1]) if rest else None
        if isinstance(target, Nothing):
            ty = call.types[0]
            target = self.storage.allocate(ty, "skipped", call.pos)
        if isinstance(target, NextElement):
            self._extract_next(target, length, call)
        elif isinstance(target, Header) and isinstance(target.ref, lir.HeaderRef):
            self.emit(lir.Extract("regular", target.ref.name, length))
        elif isinstance(target, Header):
            made = self.storage.allocate(target.type, "extracted", call.pos)
            assert isinstance(made, Header)
            assert isinstance(made.ref, lir.HeaderRef)
            self.emit(lir.Extract("regular", made.ref.name, length))
            self.assign(target, made, call.pos)
        else:
            raise unsupported(call.pos, "extract into anything but a header")

    def _extract_next(self, target: NextElement, length: Expr | None, call: ast.Call) -> None:
        if isinstance(target.stack, Stack):
            self.emit(lir.Extract("stack", target.stack.name, length))
        elif target.member is not None:
            self.emit(lir.Extract("union_stack", (target.stack.name, target.member), length))
        else:
            raise unsupported(call.pos, "extract into a header union")

    def _on_packet_in_advance(self, call: ast.Call, packet: object) -> None:
        del packet
        (amount,) = self._args(call)
        bits = self._operand(self.eval(amount), amount)
        if not isinstance(bits, (Const, Field)):
            field = self.temp(32)
            self.emit(Assign(field, bits))
            bits = field
        self.emit(lir.Advance(bits))

    def _on_packet_in_lookahead(self, call: ast.Call, packet: object) -> Value:
        del packet
        ty = call.types[0]
        width = t.max_width_bits(ty)
        if width is None or t.min_width_bits(ty) != width or width == 0:
            raise unsupported(call.pos, f"lookahead of type {ty}")
        field = self.temp(width)
        self.emit(Assign(field, lir.Lookahead(0, width)))
        value, rest = self._unpack(field, width, width, ty, call.pos)
        assert rest == 0
        return value

    def _unpack(self, field: Field, total: int, left: int, ty: t.Type, pos: ast.Pos) -> tuple[Value, int]:
        """The next value of type `ty` in the lowest `left` bits of `field`, and how many bits remain."""
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
        (what,) = self._args(call)
        if self.routine.kind != "deparser":
            raise unsupported(call.pos, "emit outside of the deparser")
        self._emit(self.eval(what), call.pos)

    def _emit(self, value: Value, pos: ast.Pos) -> None:
        if isinstance(value, Header) and isinstance(value.ref, lir.HeaderRef):
            self.emit(Prim("emit", (value.ref,)))
        elif isinstance(value, Struct):
            for item in value.fields.values():
                self._emit(item, pos)
        elif isinstance(value, (Stack, UnionStack)):
            for i in range(value.type.size):
                self._emit(self.element(value, i), pos)
        elif isinstance(value, HeaderUnion):
            for name in value.type.fields:
                self._emit(self.union_member(value, name), pos)
        else:
            raise unsupported(pos, "emit of anything but headers")

    # --- instances ---

    def extern_created(self, instance: ExternInstance) -> None:
        """Put a new extern object into the output."""
        loc = self.loc(instance.node)
        kind = EXTERN_KINDS.get(instance.kind)
        if kind is not None:
            self.claims.claim(kind, instance.name, instance, instance.node.pos)
        if instance.kind == "register":
            shape = data_shape(instance.types[0])
            if shape is None:
                raise unsupported(instance.node.pos, f"a register of type {instance.types[0]}")
            size = int_argument(instance, "size")
            if size == 0:
                raise unsupported(instance.node.pos, "a register of size 0")
            self.out.registers.append(lir.Register(instance.name, size, shape[0], loc))
        elif instance.kind == "counter":
            self.out.counters.append(lir.Counter(instance.name, int_argument(instance, "size"), None, loc))
        elif instance.kind == "meter":
            kind = METER_KINDS[int_argument(instance, "type")]
            self.out.meters.append(lir.Meter(instance.name, int_argument(instance, "size"), kind, loc=loc))
        elif instance.kind not in ("direct_counter", "direct_meter", "action_profile", "action_selector"):
            raise unsupported(instance.node.pos, f"extern '{instance.kind}'")
