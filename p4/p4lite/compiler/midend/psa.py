"""The lowering for the Portable Switch Architecture: its externs, and its six blocks, as BMv2's psa_switch has them.

What a deparser hands to a later parser (normal_meta and so on) is one place for both. A field list with the place's
name says what the packet path of that name keeps.
"""

# ruff: noqa: N802, N815 - methods are named after the types and methods of psa.p4

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, graph, lir
from p4lite.compiler.midend.arguments import unsupported
from p4lite.compiler.midend.blocks import ArchitectureLowering, Blocks
from p4lite.compiler.midend.externs import IN_DEPARSER, Externs
from p4lite.compiler.midend.graph import written_field
from p4lite.compiler.midend.lir import (
    BasicBlock,
    Const,
    Expr,
    Field,
    FieldList,
    HeaderRef,
    LoweredAssign,
    LoweredConditional,
    ObjectRef,
    Op,
    Prim,
)
from p4lite.compiler.midend.objects import METER_KINDS, ExternInstance, add_register, int_argument
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import ENUM_WIDTH, Boolean, Data, Object, StoredHeader, Struct, Value
from p4lite.compiler.position import Pos

PORT_RECIRCULATE = 0xFFFFFFFA
DIGEST_RECEIVER = 1
COLOUR_BITS = 32
CHECKSUM_UNIT = 16
BLOCK_PARAMETERS = {
    "ingress_parser": 6,
    "ingress": 4,
    "ingress_deparser": 7,
    "egress_parser": 7,
    "egress": 4,
    "egress_deparser": 7,
}


class PsaExternLowering(Externs):
    """Lowers calls of the externs of psa.p4."""

    parser_methods = frozenset({"packet_in", "InternetChecksum", "Checksum"})
    deparser_methods = frozenset({"packet_out", "InternetChecksum", "Checksum", "Digest"})
    deparser_functions = IN_DEPARSER | {
        "psa_clone_i2e", "psa_resubmit", "psa_normal", "psa_clone_e2e", "psa_recirculate"
    }  # fmt: skip

    # --- objects ---

    def declare(self, instance: ExternInstance) -> None:
        """Put a new extern object into the output."""
        declare = getattr(self, "_new_" + instance.kind, None)
        if declare is not None:
            declare(instance)

    def _object(self, instance: ExternInstance, *args: tuple[str, Const | lir.Text]) -> None:
        loc = self.code.loc(instance.node)
        self.code.out.externs.append(lir.ExternObject(instance.name, instance.kind, list(args), loc))

    def _new_Register(self, register: ExternInstance) -> None:
        initial = 0
        if "initial_value" in register.args:
            initial = int_argument(register, "initial_value")
        if initial:
            self.code.warn(
                register.node.pos,
                f"BMv2's psa_switch starts '{register.name}' at 0; p4lite's interpreter heeds the initial value",
            )
        add_register(self.code, register, initial)

    def _new_Counter(self, counter: ExternInstance) -> None:
        size, unit = int_argument(counter, "n_counters"), int_argument(counter, "type")
        self.code.out.counters.append(lir.LoweredCounter(counter.name, size, None, self.code.loc(counter.node)))
        self._object(counter, ("n_counters", Const(size, 32)), ("type", Const(unit, ENUM_WIDTH)))

    def _new_Meter(self, meter: ExternInstance) -> None:
        size, kind = int_argument(meter, "n_meters"), METER_KINDS[int_argument(meter, "type")]
        self._object(
            meter,
            ("is_direct", Const(0, 8)),
            ("n_meters", Const(size, 32)),
            ("rate_count", Const(2, 8)),
            ("type", lir.Text(kind)),
        )

    def _new_DirectMeter(self, meter: ExternInstance) -> None:
        # BMv2 writes the colour of a hit here before the action runs.
        meter.users[:] = [self.code.temp(COLOUR_BITS, hint="colour")]

    def _new_InternetChecksum(self, checksum: ExternInstance) -> None:
        self._object(checksum)

    def _new_Checksum(self, checksum: ExternInstance) -> None:
        self._object(checksum, ("hash", lir.Text(self._algorithm(checksum, "hash"))))

    def _new_Hash(self, hashing: ExternInstance) -> None:
        self._object(hashing, ("algo", lir.Text(self._algorithm(hashing, "algo"))))

    def _algorithm(self, instance: ExternInstance, argument: str) -> str:
        number = int_argument(instance, argument)
        return list(self.code.architecture.hashes.values())[number]

    # --- functions ---

    def _bits(self, call: ast.Call) -> list[Struct]:
        found = [self.exprs.eval(expr) for expr in self.arguments(call)]
        assert all(isinstance(each, Struct) for each in found)
        return [each for each in found if isinstance(each, Struct)]

    @staticmethod
    def _flag(struct: Struct, name: str) -> Expr:
        value = struct.fields[name]
        assert isinstance(value, Boolean)
        return value.expr

    def _fn_psa_clone_i2e(self, call: ast.Call) -> Value:
        return Boolean(self._flag(self._bits(call)[0], "clone"))

    _fn_psa_clone_e2e = _fn_psa_clone_i2e

    def _fn_psa_resubmit(self, call: ast.Call) -> Value:
        (ostd,) = self._bits(call)
        return Boolean(Op("and", Op("not", None, self._flag(ostd, "drop")), self._flag(ostd, "resubmit")))

    def _fn_psa_normal(self, call: ast.Call) -> Value:
        (ostd,) = self._bits(call)
        return Boolean(Op("not", None, Op("or", self._flag(ostd, "drop"), self._flag(ostd, "resubmit"))))

    def _fn_psa_recirculate(self, call: ast.Call) -> Value:
        ostd, edstd = self._bits(call)
        port = self.code.data(edstd.fields["egress_port"], call.pos)
        there = Op("==", port, Const(PORT_RECIRCULATE, 32))
        return Boolean(Op("and", Op("not", None, self._flag(ostd, "drop")), there))

    # --- methods that give a value ---

    def _give(self, call: ast.Call, op: str, before: tuple[lir.Arg, ...], after: tuple[lir.Arg, ...] = ()) -> Value:
        """Emit a primitive that writes its result between its other arguments; return the result."""
        shape = data_shape(call.type) if call.type is not None else None
        if shape is None:
            raise unsupported(call.pos, f"method '{call.method}' with a result of type {call.type}")
        field = self.code.temp(*shape, "result")
        self.code.emit(Prim(op, (*before, field, *after), self.code.loc(call), len(before)))
        return Data(field, *shape)

    def _data(self, value: Value, pos: Pos) -> lir.Vector:
        """Return data of a hash or checksum: BMv2 takes fields, so that constants get one."""
        fields: list[Expr] = []
        for item in self.hash_input(value, pos):
            if isinstance(item, Const):
                field = self.code.temp(item.width)
                self.code.emit(LoweredAssign(field, item))
                fields.append(field)
            else:
                fields.append(item)
        return lir.Vector(tuple(fields), "field_list")

    def _on_Register_read(self, call: ast.Call, register: ExternInstance) -> Value:
        (index,) = self.arguments(call)
        at = self.operand(self.exprs.eval(index), index)
        return self._give(call, "register_read", (), (ObjectRef("register_array", register.name), at))

    def _on_Register_write(self, call: ast.Call, register: ExternInstance) -> None:
        index, value = self.arguments(call)
        number, content = self.values(call)
        at, new = self.operand(number, index), self.operand(content, value)
        self.code.emit(
            Prim("register_write", (ObjectRef("register_array", register.name), at, new), self.code.loc(call))
        )

    def _on_Random_read(self, call: ast.Call, random: ExternInstance) -> Value:
        low, high = int_argument(random, "min"), int_argument(random, "max")
        if not 0 <= low <= high < 1 << 64:
            raise unsupported(random.node.pos, f"random numbers from {low} to {high}: 0 <= min <= max < 2^64")
        width = data_shape(random.types[0]) or (64, False)
        limits = (Const(low, width[0]), Const(high, width[0]))
        return self._give(call, "modify_field_rng_uniform", (), limits)

    def _on_Hash_get_hash(self, call: ast.Call, hashing: ExternInstance) -> Value:
        named = ObjectRef("extern", hashing.name)
        exprs, values = self.arguments(call), self.values(call)
        if len(exprs) == 1:
            return self._give(call, "_Hash_get_hash", (named,), (self._data(values[0], exprs[0].pos),))
        base, largest = self.operand(values[0], exprs[0]), self.operand(values[2], exprs[2])
        data = self._data(values[1], exprs[1].pos)
        return self._give(call, "_Hash_get_hash_mod", (named,), (base, data, largest))

    def _colour_blind(self, colours: list[ast.Expr]) -> None:
        """Refuse a packet's colour other than green, which means a colour-blind meter."""
        if any(not isinstance(e.const, ast.EnumValue) or e.const.member != "GREEN" for e in colours):
            raise unsupported(colours[0].pos, "a colour-aware meter: call execute without a colour")

    def _on_Meter_execute(self, call: ast.Call, meter: ExternInstance) -> Value:
        index, *colours = self.arguments(call)
        self._colour_blind(colours)
        at = self.operand(self.exprs.eval(index), index)
        return self._give(call, "_Meter_execute", (ObjectRef("extern", meter.name), at))

    def _on_DirectMeter_execute(self, call: ast.Call, meter: ExternInstance) -> Value:
        self._colour_blind(self.arguments(call))
        if self.code.routine.kind != "action":
            raise unsupported(call.pos, f"'{meter.name}.execute()' outside of an action of its table")
        raw = meter.users[0]
        assert isinstance(raw, Field)
        # BMv2's green, yellow and red are 0, 1 and 2; PSA's are 1, 2 and 0.
        after = arith.binary("+", raw, Const(1, COLOUR_BITS), COLOUR_BITS, False)
        colour = LoweredConditional(Op("==", raw, Const(2, COLOUR_BITS)), Const(0, COLOUR_BITS), after)
        return Data(colour, ENUM_WIDTH)

    # --- methods that do something ---

    def _on_Counter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        (index,) = self.arguments(call)
        at = self.operand(self.exprs.eval(index), index)
        self.code.emit(Prim("_Counter_count", (ObjectRef("extern", counter.name), at), self.code.loc(call)))

    def _on_DirectCounter_count(self, call: ast.Call, counter: ExternInstance) -> None:
        """Emit nothing: BMv2 counts every hit of the table by itself."""
        if self.code.routine.kind != "action":
            raise unsupported(call.pos, f"'{counter.name}.count()' outside of an action of its table")

    def _on_Digest_pack(self, call: ast.Call, digest: ExternInstance) -> None:
        (value,) = self.values(call)
        self.generate_digest(digest, digest.name, digest.types[0], value, Const(DIGEST_RECEIVER, 32), call)

    def _checksum(self, call: ast.Call, checksum: ExternInstance, *args: lir.Arg) -> None:
        op = f"_{checksum.kind}_{call.method}"
        self.code.emit(Prim(op, (ObjectRef("extern", checksum.name), *args), self.code.loc(call)))

    def _on_InternetChecksum_clear(self, call: ast.Call, checksum: ExternInstance) -> None:
        self._checksum(call, checksum)

    _on_Checksum_clear = _on_InternetChecksum_clear

    def _on_Checksum_update(self, call: ast.Call, checksum: ExternInstance) -> None:
        (value,) = self.values(call)
        self._checksum(call, checksum, self._data(value, call.pos))

    def _on_InternetChecksum_add(self, call: ast.Call, checksum: ExternInstance) -> None:
        (value,) = self.values(call)
        data = self._data(value, call.pos)
        bits = sum(item.width for item in data.items if isinstance(item, Field))
        if bits % CHECKSUM_UNIT:
            raise unsupported(call.pos, f"{bits} bits of data for a checksum of words of {CHECKSUM_UNIT} bits")
        self._checksum(call, checksum, data)

    _on_InternetChecksum_subtract = _on_InternetChecksum_add

    def _on_InternetChecksum_set_state(self, call: ast.Call, checksum: ExternInstance) -> None:
        (state,) = self.arguments(call)
        self._checksum(call, checksum, self.operand(self.exprs.eval(state), state))

    def _on_InternetChecksum_get(self, call: ast.Call, checksum: ExternInstance) -> Value:
        return self._give(call, f"_{checksum.kind}_{call.method}", (ObjectRef("extern", checksum.name),))

    _on_InternetChecksum_get_state = _on_InternetChecksum_get
    _on_Checksum_get = _on_InternetChecksum_get


class PsaLowering(ArchitectureLowering):
    """The lowering of the program around the externs."""

    externs: PsaExternLowering

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self.externs = PsaExternLowering(blocks.code, blocks.exprs)

    def lower(self) -> None:
        """Lower the six blocks."""
        blocks, storage = self.blocks, self.blocks.code.storage
        params = {name: self._parameters(name) for name in BLOCK_PARAMETERS}
        types = {name: [blocks.type_of(p) for p in found] for name, found in params.items()}
        given = {
            name: self._intrinsic(ty)
            for name, ty in {
                "ip": types["ingress_parser"][3],
                "ig": types["ingress"][2],
                "out": types["ingress"][3],
                "ep": types["egress_parser"][3],
                "eg": types["egress"][2],
                "eout": types["egress"][3],
                "ed": types["egress_deparser"][6],
            }.items()
        }
        headers, meta = self._own(types["ingress_parser"], params["ingress_parser"])
        own = types["egress_parser"][1:3]
        # One place for both, as in BMv2, unless the types differ: egress begins with invalid headers anyway.
        later, later_meta = headers, meta
        if own[0] != types["ingress_parser"][1]:
            later = storage.allocate(own[0], "", params["egress_parser"][1].pos)
        if own[1] != types["ingress_parser"][2]:
            later_meta = storage.allocate(own[1], blocks.USER_METADATA, params["egress_parser"][2].pos)
        kept = {
            name: self._kept(name, params[block][at])
            for name, block, at in (
                ("normal_meta", "egress_parser", 4),
                ("clone_i2e_meta", "egress_parser", 5),
                ("clone_e2e_meta", "egress_parser", 6),
                ("resubmit_meta", "ingress_parser", 4),
                ("recirculate_meta", "ingress_parser", 5),
            )
        }
        buffer, out = Object("packet_in"), Object("packet_out")
        again = [kept["resubmit_meta"], kept["recirculate_meta"]]
        arrived = [kept["normal_meta"], kept["clone_i2e_meta"], kept["clone_e2e_meta"]]
        blocks.lower_parser("ingress_parser", "ingress_parser", [buffer, headers, meta, given["ip"], *again])
        blocks.lower_parser("egress_parser", "egress_parser", [buffer, later, later_meta, given["ep"], *arrived])
        blocks.lower_pipeline("ingress", [headers, meta, given["ig"], given["out"]])
        blocks.lower_pipeline("egress", [later, later_meta, given["eg"], given["eout"]])
        left = [kept["clone_i2e_meta"], kept["resubmit_meta"], kept["normal_meta"]]
        self._deparser("ingress_deparser", [out, *left, headers, meta, given["out"]])
        left = [kept["clone_e2e_meta"], kept["recirculate_meta"]]
        self._deparser("egress_deparser", [out, *left, later, later_meta, given["eout"], given["ed"]])

    def _parameters(self, name: str) -> list[ast.Param]:
        decl = self.blocks.instance(name).decl
        if not isinstance(decl, (ast.ParserDecl, ast.ControlDecl)) or len(decl.params) != BLOCK_PARAMETERS[name]:
            raise unsupported(decl.pos, "a PSA_Switch other than psa's")
        return decl.params

    def _own(self, types: list[t.Type], params: list[ast.Param]) -> tuple[Value, Value]:
        """Return the places of headers and user metadata."""
        storage = self.blocks.code.storage
        headers = storage.allocate(types[1], "", params[1].pos)
        return headers, storage.allocate(types[2], self.blocks.USER_METADATA, params[2].pos)

    def _intrinsic(self, ty: t.Type) -> Struct:
        assert isinstance(ty, t.StructType)
        return self.blocks.code.storage.intrinsic_metadata(ty, ty.name.removesuffix("_t"), ty.name)

    def _kept(self, name: str, param: ast.Param) -> Value:
        """Return the place of what a packet path keeps, and declare its field list."""
        code = self.blocks.code
        place = code.storage.allocate(self.blocks.type_of(param), name, param.pos)
        fields = list(self._fields(place, param.pos))
        if fields:
            lists = code.out.field_lists
            lists.append(FieldList(name, len(lists) + 1, fields))
        return place

    def _fields(self, place: Value, pos: Pos) -> list[Field | Const]:
        if isinstance(place, Struct):
            return [field for item in place.fields.values() for field in self._fields(item, pos)]
        fields = self.externs.hash_input(place, pos)
        if isinstance(place, StoredHeader) and isinstance(place.ref, HeaderRef):
            fields.append(Field(place.ref.name, "$valid$", 1))
        return fields

    # --- deparsers ---

    def _deparser(self, name: str, values: list[Value]) -> None:
        """Lower a deparser: what it computes happens before the first header is emitted."""
        entry, decl = self.blocks.lower_deparser(name, values)
        order: list[str] = []
        block: BasicBlock | None = entry
        while block is not None:
            block.ops = [op for op in block.ops if not self._emitted(op, order, decl)]
            following = _join(block)
            for other in _between(block, following):
                for op in other.ops:
                    if isinstance(op, Prim) and op.op == "emit":
                        raise unsupported(decl.pos, "an emit under a condition: make the header invalid instead")
                    self._emitted(op, order, decl)
            block = following
        graph.simplify(entry)
        code = self.blocks.code
        code.out.deparsers.append(lir.LoweredDeparser(name, order, entry, code.loc(decl)))

    @staticmethod
    def _emitted(op: lir.LOp, order: list[str], decl: ast.ControlDecl) -> bool:
        """Note an emit and return True; return False of anything else, which must not change what was emitted."""
        if isinstance(op, Prim) and op.op == "emit":
            assert isinstance(op.args[0], HeaderRef)
            order.append(op.args[0].name)
            return True
        field = written_field(op)
        changed = {field.header} if field is not None else set()
        if isinstance(op, Prim) and op.result is None:
            changed |= {arg.name for arg in op.args[:1] if isinstance(arg, HeaderRef)}
        if changed & set(order):
            raise unsupported(decl.pos, f"a change of header '{sorted(changed)[0]}' after its emit")
        return False


def _join(block: BasicBlock) -> BasicBlock | None:
    """Return the block in which all ways from a block meet again, None if they do not."""
    ways = [lir.reachable(each) for each in lir.successors(block.term)]
    if not ways:
        return None
    common = [b for b in ways[0] if all(any(b is other for other in way) for way in ways[1:])]
    for candidate in common:
        behind = {id(b) for b in lir.reachable(candidate)}
        if all(id(b) in behind for b in common):
            ends = [b for way in ways for b in way if not lir.successors(b.term)]
            return candidate if all(id(b) in behind for b in ends) else None
    return None


def _between(block: BasicBlock, end: BasicBlock | None) -> list[BasicBlock]:
    """Return the blocks between a block and the one where its ways meet."""
    behind = {id(b) for b in lir.reachable(end)} if end is not None else set()
    return [b for b in lir.reachable(block)[1:] if id(b) not in behind]
