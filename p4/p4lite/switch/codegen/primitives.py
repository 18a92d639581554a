"""Action primitives of BMv2 and simple_switch as C statements."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.calculations import CalculationCodegen
from p4lite.switch.codegen.cexpr import CExpr, rep, width_for
from p4lite.switch.codegen.expr import DATA, BoundedExpr, ExprBuilder, ExprScope, interval
from p4lite.switch.codegen.headers import HeaderOps
from p4lite.switch.codegen.phv import c_string, limbs
from p4lite.switch.program.facts import MAX_JUMPS_BACK, Array, Facts

BINARY = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}
PART = 128
"""Primitives of an action after which another C function may begin."""

Emit = Callable[[list[JsonNode], ExprScope], list[str]]


def _ends(targets: dict[int, int], count: int) -> list[int]:
    """Return where the parts of an action of `count` primitives end; no jump (from key to value of `targets`) leaves a
    part."""
    ends: list[int] = []
    begin = reach = 0
    # A jump back forbids an end between its target and itself.
    back = sorted((target, i) for i, target in targets.items() if target <= i)
    at = 0
    for i in range(count):
        if i - begin >= PART and i >= reach:
            ends.append(i)
            begin = i
        while at < len(back) and back[at][0] == i:
            reach = max(reach, back[at][1] + 1)
            at += 1
        reach = max(reach, targets.get(i, 0))
    return [*ends, count]


class PrimitiveCodegen:
    """Turns primitive calls into C; `scope` holds the parameters of the action they are in."""

    def __init__(self, facts: Facts, cx: CExpr, builder: ExprBuilder, calculations: CalculationCodegen):
        self.facts = facts
        self.model = facts.model
        self.cx = cx
        self.builder = builder
        self.calculations = calculations
        self.headers = HeaderOps(facts.model, cx, builder)
        h = self.headers
        self.table: dict[str, tuple[int, Emit]] = {
            "assign": (2, self._assign),
            "modify_field": (2, self._assign),
            "assign_VL": (2, self._assign_varbit),
            "assign_header": (2, h.assign_header),
            "copy_header": (2, h.assign_header),
            "assign_union": (2, h.assign_union),
            "assign_header_stack": (2, h.assign_stack),
            "assign_union_stack": (2, h.assign_union_stack),
            "push": (2, h.push),
            "pop": (2, h.pop),
            "add_header": (1, h.add_header),
            "add_header_fast": (1, h.add_header_fast),
            "remove_header": (1, h.remove_header),
            "add_to_field": (2, self._accumulate("+")),
            "subtract_from_field": (2, self._accumulate("-")),
            "modify_field_rng_uniform": (3, self._random),
            "modify_field_with_hash_based_offset": (4, self._hash),
            "drop": (0, self._drop),
            "mark_to_drop": (1, self._mark_to_drop),
            "generate_digest": (2, self._digest),
            "clone_ingress_pkt_to_egress": (2, self._clone),
            "clone_egress_pkt_to_egress": (2, self._clone),
            "resubmit": (1, self._flag("resubmit")),
            "recirculate": (1, self._flag("recirculate")),
            "truncate": (1, self._truncate),
            "execute_meter": (3, self._meter),
            "count": (2, self._count),
            "register_read": (3, self._register_read),
            "register_write": (3, self._register_write),
            "exit": (0, self._exit),
            "no_op": (0, lambda args, scope: []),
            "assert": (1, self._assert("assert")),
            "assume": (1, self._assert("assume")),
            "log_msg": (2, self._log),
        }
        for name, op in BINARY.items():
            self.table[name] = (3, self._ternary(op))

    def emit(self, node: JsonNode, scope: ExprScope) -> list[str]:
        """Return statements for one primitive call (all but `_jump` and `_jump_if_zero`)."""
        name = node["op"].str()
        known = self.table.get(name)
        if known is None and name.startswith("_"):
            instance = next(
                (p["value"].value for p in node["parameters"].items() if p["type"].value == "extern"), "NAME"
            )
            node["op"].fail(
                f"'{name[1:]}' is of an extern of the program's own, which only the interpreter has: give it a Python "
                f"object by p4lite.Switch(program, externs={{'{instance}': OBJECT}})"
            )
        if known is None:
            node["op"].fail(f"the primitive '{name}' is not supported")
        args = list(node["parameters"].items())
        if len(args) != known[0]:
            node.fail(f"the primitive '{name}' takes {known[0]} parameters, found {len(args)}")
        return known[1](args, scope)

    def body(self, primitives: list[JsonNode], scope: ExprScope) -> list[list[str]]:
        """Return statements for the primitives of an action, with labels for its jumps, in parts of `PART` primitives
        or more that no jump connects. Each part is a C function, since C compilers take long over long functions."""
        targets: dict[int, int] = {}
        for i, node in enumerate(primitives):
            if node["op"].value in ("_jump", "_jump_if_zero"):
                where = node["parameters"][0 if node["op"].value == "_jump" else 1]["value"]
                targets[i] = where.hex()
                if not 0 <= targets[i] <= len(primitives):
                    where.fail(f"a jump to primitive {targets[i]} of {len(primitives)}")
        parts: list[list[str]] = []
        begin = 0
        for end in _ends(targets, len(primitives)):
            parts.append(self._part(primitives, begin, end, targets, scope))
            begin = end
        return parts

    def _part(
        self, primitives: list[JsonNode], begin: int, end: int, targets: dict[int, int], scope: ExprScope
    ) -> list[str]:
        inside = {i: targets[i] for i in range(begin, end) if i in targets}
        labels = set(inside.values())
        loops = any(target <= i for i, target in inside.items())
        # A loop that goes on for ever would stop the switch: an action that jumps back too often ends.
        out: list[str] = ["uint32_t jumps_back = 0;"] if loops else []
        for i in range(begin, end):
            node = primitives[i]
            if i in labels:
                out.append(f"L{i}:;")
            if i not in inside:
                out += self.emit(node, scope)
                continue
            go = f"goto L{inside[i]};"
            if inside[i] <= i:
                go = f"{{ if (++jumps_back > {MAX_JUMPS_BACK}) goto L{end}; {go} }}"
            if node["op"].value == "_jump":
                out.append(go)
            else:
                test = self.cx.u64(self.builder.data(node["parameters"][0], scope))
                out.append(f"if ((int32_t){test} == 0) {go}")
        if loops or end in labels:
            out.append(f"L{end}:;")
        return out

    def _data(self, node: JsonNode, scope: ExprScope) -> BoundedExpr:
        return self.builder.data(node, scope)

    def _u64(self, node: JsonNode, scope: ExprScope) -> str:
        return self.cx.u64(self._data(node, scope))

    # --- numbers ------------------------------------------------------------------------------------------
    def store(self, target: JsonNode, value: BoundedExpr, scope: ExprScope) -> list[str]:
        """Assign to the target: a field, a field of a header chosen at run time, or a register cell."""
        if target["type"].value == "register":
            return self._store_register(target, value, scope)
        e = self.builder.build(target, scope)
        if e.op == "b2d" and e.args[0].op == "valid":
            target.fail("$valid$ cannot be assigned")
        if e.kind != DATA or e.op not in ("field", "header_field"):
            target.fail("this cannot be assigned to")
        if e.op == "field":
            if e.ref.field.index < 0:
                target.fail("$valid$ cannot be assigned")
            return [self.cx.store(self.cx.layout.place(e.ref.header), e.ref.field, value)]
        f = e.ref
        if f.index < 0:
            target.fail("$valid$ cannot be assigned")
        return self.headers.each(e.args[0], "d_", lambda t: [self.cx.store(t.place, f, value)])

    def _store_register(self, target: JsonNode, value: BoundedExpr, scope: ExprScope) -> list[str]:
        array = self.model.find(self.facts.registers, target["value"][0], "register array")
        return self._write(array, self._u64(target["value"][1], scope), value)

    def _write(self, array: Array, index: str, value: BoundedExpr) -> list[str]:
        width = width_for(array.width)
        ref = f"&in->registers[{array.index}], {index}"
        if width <= 128:
            return [f"p4_register_write{width}({ref}, {self.cx.bits(value, width)}, &in->head.faults);"]
        code = self.cx.bits(value, width)
        name = self.cx.ctype(width)
        return [f"{{ {name} v_ = {code}; p4_register_write_words({ref}, v_.w, &in->head.faults); }}"]

    def _assign(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        if self._is_varbit(args[0]):
            return self._assign_varbit(args, scope)
        return self.store(args[0], self._data(args[1], scope), scope)

    def _is_varbit(self, node: JsonNode) -> bool:
        return node["type"].value == "field" and self.model.field_ref(node["value"]).field.varbit

    def _assign_varbit(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        refs = [self.model.field_ref(a["value"]) if a["type"].value == "field" else None for a in args]
        if refs[0] is None or refs[1] is None or not (refs[0].field.varbit and refs[1].field.varbit):
            args[0].fail("assign_VL wants two variable-length fields")
        to, source = (self.cx.layout.place(r.header) for r in refs if r)
        f, g = refs[0].field, refs[1].field
        room = refs[0].header.type.varbit_max
        if room < refs[1].header.type.varbit_max:
            length = f"({source.length(g)} < {room} ? {source.length(g)} : {room})"
        else:
            length = source.length(g)
        return [
            f"{to.length(f)} = {length};",
            f"memmove({to.field(f)}, {source.field(g)}, {to.length(f)}); {to.touch()}",
        ]

    def _accumulate(self, op: str) -> Emit:
        def emit(args: list[JsonNode], scope: ExprScope) -> list[str]:
            a, b = self._data(args[0], scope), self._data(args[1], scope)
            return self.store(args[0], BoundedExpr(DATA, op, [a, b], *interval(op, a, b)), scope)

        return emit

    def _ternary(self, op: str) -> Emit:
        def emit(args: list[JsonNode], scope: ExprScope) -> list[str]:
            a, b = self._data(args[1], scope), self._data(args[2], scope)
            return self.store(args[0], BoundedExpr(DATA, op, [a, b], *interval(op, a, b)), scope)

        return emit

    def _code(self, code: str, hi: int = 2**64 - 1) -> BoundedExpr:
        return BoundedExpr(DATA, "data_code", lo=0, hi=hi, ref=code)

    def _random(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        store = self.store(args[0], self._code("r_"), scope)
        low, high = self._u64(args[1], scope), self._u64(args[2], scope)
        return [
            f"{{ uint64_t lo_ = {low}, hi_ = {high};",
            "if (lo_ > hi_) { in->head.faults.random_range++; } else {",
            "uint64_t r_ = p4_random(&in->head, lo_, hi_);",
            *store,
            "} }",
        ]

    def _hash(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        if args[2]["type"].value != "calculation":
            args[2].fail("expected a calculation")
        calculation = self.calculations.named(args[2]["value"])
        if calculation.payload:
            args[2].fail("a calculation over the payload is only possible in a checksum")
        base, size = self._data(args[1], scope), self._data(args[3], scope)
        call = f"{calculation.function}(in, p, NULL, 0)"
        return [
            f"{{ uint64_t m_ = {self.cx.u64(size)};",
            "if (m_ == 0) { in->head.faults.hash_zero++; m_ = 1; }",
            f"uint64_t r_ = {call} % m_ + {self.cx.u64(base)};",
            *self.store(args[0], self._code("r_"), scope),
            "}",
        ]

    # --- fate of the packet -------------------------------------------------------------------------------
    def _named_field(self, name: str) -> tuple[str, str] | None:
        """Return (lvalue, mask) of a target's field, through aliases; None if the program lacks it."""
        header, field = name.split(".")
        ref = self.model.aliases.get(name)
        if ref is None:
            h = self.model.headers.get(header)
            f = h.type.by_name.get(field) if h else None
            if h is None or f is None or f.width > 64:
                return None
            place, found = self.cx.layout.place(h), f
        else:
            place, found = self.cx.layout.place(ref.header), ref.field
        return place.field(found), f"{(1 << found.width) - 1:#x}u"

    def _drop(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        out = []
        spec = self._named_field("standard_metadata.egress_spec")
        if spec:
            out.append(f"{spec[0]} = in->head.drop_port & {spec[1]};")
        group = self._named_field("intrinsic_metadata.mcast_grp")
        if group:
            out.append(f"{group[0]} = 0;")
        return out

    def _mark_to_drop(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        if args[0]["type"].value != "header":
            args[0].fail("mark_to_drop wants the standard metadata header")
        header = self.model.find(self.model.headers, args[0]["value"], "header")
        spec, group = (header.type.by_name.get(n) for n in ("egress_spec", "mcast_grp"))
        if spec is None or spec.width > 32:
            args[0].fail(f"header '{header.name}' has no field egress_spec")
        place = self.cx.layout.place(header)
        out = [f"{place.field(spec)} = in->head.drop_port & {(1 << spec.width) - 1:#x}u;"]
        if group is not None:
            out.append(f"{place.field(group)} = 0;")
        return out

    def _digest(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        return [f"p->head.digest = (uint16_t){self._u64(args[1], scope)};"]

    def _clone(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        return [
            f"p->head.clone_session = ((uint32_t){self._u64(args[0], scope)} & P4_CLONE_MASK) | P4_CLONE_VALID;",
            f"p->head.clone_field_list = (uint16_t){self._u64(args[1], scope)};",
        ]

    def _flag(self, member: str) -> Emit:
        return lambda args, scope: [f"p->head.{member} = (uint16_t){self._u64(args[0], scope)};"]

    def _truncate(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        length = self._u64(args[0], scope)
        return [f"{{ uint64_t n_ = {length}; if (n_ < p->head.truncate_to) p->head.truncate_to = (uint32_t)n_; }}"]

    def _exit(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        return ["p->head.exit = 1;"]

    # --- stateful objects ---------------------------------------------------------------------------------
    def _array(self, node: JsonNode, kind: str, table: dict[str, Array]) -> Array:
        if node["type"].value != kind:
            node.fail(f"expected a {kind}")
        array = self.model.find(table, node["value"], kind.replace("_", " "))
        if array.direct:
            node.fail(f"'{array.name}' is direct and belongs to a table")
        return array

    def _meter(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        meter = self._array(args[0], "meter_array", self.facts.meters)
        amount = "p->head.ingress_length" if meter.unit == "bytes" else "1"
        cell = f"&in->meters[{meter.index}].cells[x_]"
        return [
            f"{{ uint32_t x_ = (uint32_t){self._u64(args[1], scope)};",
            f"if (x_ < in->meters[{meter.index}].size) {{",
            f"uint64_t r_ = p4_meter_execute({cell}, {amount}, in->head.now_ns);",
            *self.store(args[2], self._code("r_", 2), scope),
            "} else { in->head.faults.meter_index++; } }",
        ]

    def _count(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        counter = self._array(args[0], "counter_array", self.facts.counters)
        index = self._u64(args[1], scope)
        array = f"&in->counters[{counter.index}]"
        return [f"p4_counter_array_count({array}, {index}, p->head.ingress_length, &in->head.faults);"]

    def _register_read(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        array = self._array(args[1], "register_array", self.facts.registers)
        index = self._data(args[2], scope)
        cell = BoundedExpr(DATA, "register", [self._code("x_")], 0, (1 << array.width) - 1, array)
        return [
            f"{{ uint64_t x_ = {self.cx.u64(index)};",
            f"if (p4_register_has(&in->registers[{array.index}], x_, &in->head.faults)) {{",
            *self.store(args[0], cell, scope),
            "} }",
        ]

    def _register_write(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        array = self._array(args[0], "register_array", self.facts.registers)
        return self._write(array, self._u64(args[1], scope), self._data(args[2], scope))

    # --- diagnosis ----------------------------------------------------------------------------------------
    def _assert(self, what: str) -> Emit:
        def emit(args: list[JsonNode], scope: ExprScope) -> list[str]:
            test = self.cx.boolean(self.builder.boolean(args[0], scope))
            return [f"if (!{test}) p4_assert_failed(in, {c_string(what + ' at ' + args[0].path)});"]

        return emit

    def _log(self, args: list[JsonNode], scope: ExprScope) -> list[str]:
        pieces = _split_format(args[0]["value"].str())
        arguments = args[1]["value"]
        # p4c writes an empty object, not an empty array, for a message without arguments
        values = [] if arguments.value == {} else [self._data(v, scope) for v in arguments.items()]
        out = ["if (in->head.host.log_msg) {", "struct p4_text t_ = {0};"]
        for i, piece in enumerate(pieces):
            if piece:
                out.append(f"p4_text_add(&t_, {c_string(piece)});")
            if i == len(pieces) - 1:
                break
            # a struct with one place for it comes as several values: the last place takes all that are left
            taken = values[i:] if i == len(pieces) - 2 else values[i : i + 1]
            for j, value in enumerate(taken):
                out += (['p4_text_add(&t_, ", ");'] if j else []) + self._log_value(value)
            if not taken:
                out.append('p4_text_add(&t_, "{}");')
        return [*out, "p4_log(in, &t_);", "}"]

    def _log_value(self, e: BoundedExpr) -> list[str]:
        width, signed = rep(e.lo, e.hi)
        if not signed:
            width += 64  # a limb for the sign
        code = self.cx.bits(e, width)
        n = limbs(width)
        if width == 64:
            return [f"p4_text_number(&t_, (const uint64_t[]){{{code}}}, 1);"]
        if width == 128:
            words = "(uint64_t)n_, (uint64_t)(n_ >> 64)"
            return [f"{{ u128 n_ = {code}; p4_text_number(&t_, (const uint64_t[]){{{words}}}, 2); }}"]
        return [f"{{ {self.cx.ctype(width)} n_ = {code}; p4_text_number(&t_, n_.w, {n}); }}"]


def _split_format(text: str) -> list[str]:
    """Return the text between the places of a log format; `\\{` and `\\}` stand for braces."""
    pieces, current, i = [], "", 0
    while i < len(text):
        if text[i] == "\\" and text[i + 1 : i + 2] in ("{", "}"):
            current += text[i + 1]
            i += 2
        elif text[i] == "{" and "}" in text[i:]:
            pieces.append(current)
            current = ""
            i = text.index("}", i) + 1
        else:
            current += text[i]
            i += 1
    return [*pieces, current]
