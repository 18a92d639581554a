"""The lowering for v1model: its externs, its six blocks, checksums and field lists."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.architecture import DROP_PORT
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import bindings, rebind, unsupported
from p4lite.compiler.midend.blocks import ArchitectureLowering, Blocks
from p4lite.compiler.midend.calls import CallLowering
from p4lite.compiler.midend.emitter import Env, Frame
from p4lite.compiler.midend.exprs import ExpressionLowering, data_width, needed_shape
from p4lite.compiler.midend.externs import Externs
from p4lite.compiler.midend.lir import BasicBlock, Const, Field, FieldList, ObjectRef, Prim
from p4lite.compiler.midend.names import annotation_numbers, control_plane_name
from p4lite.compiler.midend.objects import (
    METER_KINDS,
    ControlInstance,
    ExternInstance,
    Instances,
    add_register,
    int_argument,
)
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.values import Boolean, Data, IntConst, Object, Struct, Value, as_const
from p4lite.compiler.position import Pos
from p4lite.compiler.unparse import expression

CHECKSUMS = {
    "verify_checksum": (True, False),
    "verify_checksum_with_payload": (True, True),
    "update_checksum": (False, False),
    "update_checksum_with_payload": (False, True),
}


class Checksums:
    """Lowers checksum controls, which hold nothing else."""

    def __init__(
        self, code: Places, exprs: ExpressionLowering, instances: Instances, calls: CallLowering, externs: Externs
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.instances = instances
        self.calls = calls
        self.externs = externs

    def lower(self, decl: ast.ControlDecl, env: Env, verify: bool) -> None:
        """Lower the control that verifies or updates checksums."""
        self.code.env = env
        self._control(decl, verify, lir.Bool(True))

    def _control(self, decl: ast.ControlDecl, verify: bool, holds: lir.Expr) -> None:
        """Collect the calls of a checksum control, or of a control that it applies; `holds` is the condition to get
        there.
        """
        assert decl.body is not None
        variables = [d for d in decl.locals if isinstance(d, ast.VarDecl)]
        if variables:
            raise unsupported(variables[0].pos, "a variable in a checksum control")
        self.code.env.declared.update(decl.locals)
        for local in decl.locals:
            if isinstance(local, ast.Instantiation):
                self.instances.instance(local)
        self._statement(decl.body, verify, holds)

    def _statement(self, stmt: ast.Stmt, verify: bool, holds: lir.Expr) -> None:
        scratch = self.code.scratch("checksum")
        self.code.frame = Frame(None, BasicBlock())
        if isinstance(stmt, ast.Block):
            for inner in stmt.stmts:
                self._statement(inner, verify, holds)
        elif isinstance(stmt, ast.If):
            cond = self.exprs.eval_truth(stmt.cond)
            self._statement(stmt.then, verify, arith.logical_and(holds, cond))
            if stmt.other is not None:
                self._statement(stmt.other, verify, arith.logical_and(holds, arith.logical_not(cond)))
        elif isinstance(stmt, ast.CallStmt) and stmt.call.method in CHECKSUMS:
            self._checksum(stmt.call, verify, holds)
        elif isinstance(stmt, ast.CallStmt) and stmt.call.kind is ast.CallKind.CONTROL_APPLY:
            self._apply(stmt.call, verify, holds)
        elif not isinstance(stmt, (ast.Empty, ast.ConstDecl)):
            raise unsupported(stmt.pos, "anything but calls of verify_checksum or update_checksum here")
        if scratch.ops or scratch.term is not None:
            raise unsupported(stmt.pos, "computations in a checksum control")

    def _apply(self, call: ast.Call, verify: bool, holds: lir.Expr) -> None:
        assert call.receiver is not None
        receiver = self.exprs.eval(call.receiver)
        control = receiver.what if isinstance(receiver, Object) else None
        if not isinstance(control, ControlInstance):
            raise unsupported(call.pos, "apply() of this expression")
        frame = Frame(None, BasicBlock())
        self.calls.bind_arguments(rebind(bindings(call.args), control.decl.params), control.env, frame, set())
        if frame.copy_outs:
            raise unsupported(call.pos, "arguments that must be copied, in a checksum control")
        saved = self.code.env
        self.code.env = control.env
        self._control(control.decl, verify, holds)
        self.code.env = saved

    def _checksum(self, call: ast.Call, verify: bool, holds: lir.Expr) -> None:
        is_verify, payload = CHECKSUMS[call.method]
        if is_verify != verify:
            raise unsupported(call.pos, f"'{call.method}' in this block")
        cond, data, target, algo = self.externs.arguments(call)
        place = self.exprs.eval(target)
        if not isinstance(place, Data) or not isinstance(place.expr, Field):
            raise unsupported(target.pos, "a checksum anywhere but in a field")
        inputs = self.externs.hash_input(self.exprs.eval(data), data.pos, simple=True)
        name = self.externs.calculation(self.externs.enum_member(algo), inputs, payload=payload)
        number = len(self.code.out.checksums)
        label = f"cksum_{number}" if number else "cksum"
        holds = arith.logical_and(holds, self.exprs.eval_truth(cond))
        self.code.out.checksums.append(lir.Checksum(label, place.expr, name, verify, holds, self.code.loc(call)))


class FieldLists:
    """The lists of a program, by the index that `@field_list` gives them."""

    def __init__(self, code: Places, exprs: ExpressionLowering, decls: list[ast.Declaration]) -> None:
        self.code = code
        self.exprs = exprs
        self._decls = decls
        self._ids: dict[int, int] = {}
        self._empty: FieldList | None = None

    def declare(self, meta_type: t.Type, meta: Value) -> None:
        """Declare the field lists that `@field_list(n, ...)` puts on fields of the user metadata."""
        lists: dict[int, FieldList] = {}
        self._scan_field_lists(t.strip_newtypes(meta_type), meta, lists)
        for index, made in lists.items():
            self.code.out.field_lists.append(made)
            self._ids[index] = made.id

    def _scan_field_lists(self, ty: t.Type, value: Value, lists: dict[int, FieldList]) -> None:
        if not isinstance(ty, t.StructType) or not isinstance(value, Struct):
            return
        assert isinstance(ty.decl, ast.StructDecl)
        for decl in ty.decl.fields:
            member = value.fields[decl.name]
            annotation = decl.annotation("field_list")
            if annotation is None:
                self._scan_field_lists(t.strip_newtypes(ty.fields[decl.name]), member, lists)
                continue
            for index in annotation_numbers(annotation, self._decls):
                made = lists.setdefault(index, FieldList(f"field_list{index}", len(lists) + 1, []))
                made.elements.extend(self._listed(member, decl.pos))

    def _listed(self, member: Value, pos: Pos) -> list[Field | lir.Const]:
        fields: list[Field | lir.Const] = []
        for leaf in self.code.leaves(member, pos):
            if isinstance(leaf, Data) and isinstance(leaf.expr, Field):
                fields.append(leaf.expr)
            elif isinstance(leaf, Boolean) and isinstance(leaf.place, Field):
                fields.append(leaf.place)
        return fields

    def empty(self) -> int:
        """Return the id of the empty list."""
        if self._empty is None:
            self._empty = FieldList("empty", len(self.code.out.field_lists) + 1, [])
            self.code.out.field_lists.append(self._empty)
        return self._empty.id

    def named(self, expr: ast.Expr) -> int:
        """Return the id of the list of a constant index; that of the empty list, with a warning, if no field has the
        index."""
        index = as_const(self.exprs.eval(expr))
        if index is None:
            raise unsupported(expr.pos, "a field list index that is not constant")
        if index not in self._ids:
            self.code.warn(expr.pos, f"no field of the user metadata is annotated with @field_list({index})")
            return self.empty()
        return self._ids[index]


MAX_EXTERN_DATA_BITS = 64
PARSER_PARAMS = 4
STANDARD_METADATA = "standard_metadata"
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


class V1ModelExterns(Externs):
    """Lowers calls of the externs of v1model.p4."""

    standard_metadata: Struct

    def __init__(self, code: Places, exprs: ExpressionLowering, field_lists: FieldLists) -> None:
        super().__init__(code, exprs)
        self.field_lists = field_lists
        self._unnamed_digests = 0

    def function(self, call: ast.Call, name: str) -> Value | None:
        """Lower a call of an extern function."""
        if name in FIELD_LIST_FUNCTIONS:
            raise unsupported(call.pos, f"extern function '{name}'; {self._rewrite(call, name)}")
        return super().function(call, name)

    def declare(self, instance: ExternInstance) -> None:
        """Put a new extern object into the output."""
        loc = self.code.loc(instance.node)
        if instance.kind == "register":
            add_register(self.code, instance)
        elif instance.kind == "counter":
            self.code.out.counters.append(lir.LoweredCounter(instance.name, int_argument(instance, "size"), None, loc))
        elif instance.kind == "meter":
            kind = METER_KINDS[int_argument(instance, "type")]
            self.code.out.meters.append(lir.LoweredMeter(instance.name, int_argument(instance, "size"), kind, loc=loc))
        elif self.code.architecture.kind(instance.kind) is None:
            raise unsupported(instance.node.pos, f"extern '{instance.kind}'")

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
        target, _, base_value, data_value, limit_value = self.values(call)
        inputs = self.hash_input(data_value, data.pos)
        name = self.calculation(algorithm, inputs)
        low, size = self.operand(base_value, base), self.operand(limit_value, limit)
        for expr in (result, base, limit):
            self._check_width(expr)
        self.into_field(
            target,
            result,
            lambda field: self.code.emit(
                Prim(
                    "modify_field_with_hash_based_offset",
                    (field, low, ObjectRef("calculation", name), size),
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
        target, low_data, high_data = self.values(call)
        low_value, high_value = self.operand(low_data, low), self.operand(high_data, high)
        self.into_field(
            target,
            result,
            lambda field: self.code.emit(
                Prim("modify_field_rng_uniform", (field, low_value, high_value), self.code.loc(call))
            ),
        )

    def _fn_digest(self, call: ast.Call) -> None:
        receiver, data = self.arguments(call)
        receiver_data, value = self.values(call)
        receiver_value = self.operand(receiver_data, receiver)
        ty = call.types[0] if call.types else data.type
        key: object = ty if isinstance(ty, t.StructType) else call
        name = ""
        if isinstance(ty, t.StructType):
            name = control_plane_name(ast.declaration_of(ty))
            self.code.claims.claim("digest", name, ty.decl, ty.decl.pos)
        elif key not in self.learn_lists:
            name = f"digest_{self._unnamed_digests}"
            self._unnamed_digests += 1
        assert data.type is not None
        self.generate_digest(key, name, ty or data.type, value, receiver_value, call)

    def _clone(self, call: ast.Call, list_id: int) -> None:
        kind, session = self.arguments(call)[:2]
        egress = self.enum_member(kind) == "E2E"
        if self.code.routine.region != ("egress" if egress else "ingress"):
            raise unsupported(
                call.pos, f"clone({'E2E' if egress else 'I2E'}) in {self.code.routine.region or 'this block'}"
            )
        op = "clone_egress_pkt_to_egress" if egress else "clone_ingress_pkt_to_egress"
        session_value = self.operand(self.exprs.eval(session), session)
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
        self.code.emit(Prim("truncate", (self.operand(self.exprs.eval(length), length),), self.code.loc(call)))

    def _on_register_read(self, call: ast.Call, register: ExternInstance) -> None:
        result, index = self.arguments(call)
        target, number = self.values(call)
        at = self.operand(number, index)
        named = ObjectRef("register_array", register.name)
        self.into_field(
            target, result, lambda field: self.code.emit(Prim("register_read", (field, named, at), self.code.loc(call)))
        )

    def _on_register_write(self, call: ast.Call, register: ExternInstance) -> None:
        index, value = self.arguments(call)
        number, content = self.values(call)
        at, new = self.operand(number, index), self.operand(content, value)
        named = ObjectRef("register_array", register.name)
        self.code.emit(Prim("register_write", (named, at, new), self.code.loc(call)))

    def _on_counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        (index,) = self.arguments(call)
        at = self.operand(self.exprs.eval(index), index)
        self.code.emit(Prim("count", (ObjectRef("counter_array", counter.name), at), self.code.loc(call)))

    def _on_meter_execute_meter(self, call: ast.Call, meter: ExternInstance) -> None:
        index, result = self.arguments(call)
        number, target = self.values(call)
        at = self.operand(number, index)
        named = ObjectRef("meter_array", meter.name)
        self.into_field(
            target, result, lambda field: self.code.emit(Prim("execute_meter", (named, at, field), self.code.loc(call)))
        )

    def _on_direct_counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        """Emit nothing: BMv2 counts every hit of the table by itself."""
        if self.code.routine.kind != "action":
            raise unsupported(call.pos, f"'{counter.name}.count()' outside of an action of its table")

    def _on_direct_meter_read(self, call: ast.Call, meter: ExternInstance) -> None:
        """Copy the colour from a field of the meter's own, which BMv2 writes at every hit before the action runs."""
        if self.code.routine.kind != "action":
            raise unsupported(call.pos, f"'{meter.name}.read()' outside of an action of its table")
        (target,) = self.values(call)
        (result,) = self.arguments(call)
        shape = needed_shape(result)
        if not meter.users:
            meter.users.append(self.code.temp(*shape, hint="colour"))
        colour = meter.users[0]
        assert isinstance(colour, Field)
        self.code.assign(target, Data(colour, *shape), call.pos)


class V1ModelLowering(ArchitectureLowering):
    """The lowering of the program around the externs."""

    externs: V1ModelExterns

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self.field_lists = FieldLists(blocks.code, blocks.exprs, blocks.decls)
        self.externs = V1ModelExterns(blocks.code, blocks.exprs, self.field_lists)

    def lower(self) -> None:
        """Lower the six blocks."""
        blocks, code = self.blocks, self.blocks.code
        checksums = Checksums(code, blocks.exprs, blocks.instances, blocks.calls, self.externs)
        parser = blocks.instance("parser").decl
        assert isinstance(parser, ast.ParserDecl)
        params = parser.params
        if len(params) != PARSER_PARAMS:
            raise unsupported(parser.pos, "a V1Switch other than v1model's")
        headers_type, meta_type, standard_type = (blocks.type_of(p) for p in params[1:])
        assert isinstance(standard_type, t.StructType)
        for given, param, what in ((headers_type, params[1], "headers"), (meta_type, params[2], "user metadata")):
            if not isinstance(t.strip_newtypes(given), t.StructType):
                raise unsupported(param.pos, f"{what} of type {given}, which is no struct: put it into a struct")
        headers = code.storage.allocate(headers_type, "", params[1].pos)
        meta = code.storage.allocate(meta_type, blocks.USER_METADATA, params[2].pos)
        standard = code.storage.intrinsic_metadata(standard_type, STANDARD_METADATA)
        self.externs.standard_metadata = standard
        self.field_lists.declare(meta_type, meta)
        blocks.lower_parser("parser", "parser", [Object("packet_in"), headers, meta, standard])
        for name in ("ingress", "egress"):
            blocks.lower_pipeline(name, [headers, meta, standard])
        self._deparser([Object("packet_out"), headers])
        for name, verify in (("compute", False), ("verify", True)):
            control = blocks.control(name)
            checksums.lower(control, blocks.environment(name, [headers, meta]), verify)

    def _deparser(self, values: list[Value]) -> None:
        """Lower the deparser, which may emit headers and check."""
        entry, decl = self.blocks.lower_deparser("deparser", values)
        if not isinstance(entry.term, lir.End):
            raise unsupported(decl.pos, "conditions in a deparser")
        order: list[str] = []
        others: list[lir.LOp] = []
        for op in entry.ops:
            if isinstance(op, Prim) and op.op == "emit":
                target = op.args[0]
                assert isinstance(target, lir.HeaderRef)
                order.append(target.name)
            elif isinstance(op, Prim) and op.op in ("log_msg", "assert", "assume"):
                others.append(op)
            else:
                raise unsupported(decl.pos, "computations in a deparser")
        body = BasicBlock(others, lir.End())
        self.blocks.code.out.deparsers.append(lir.LoweredDeparser("deparser", order, body, self.blocks.code.loc(decl)))
