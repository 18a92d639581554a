"""Puts the C of a whole program together."""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.recursion import deep_recursion
from p4lite.switch.bmv2.model import Bmv2Architecture, FieldRef, Model
from p4lite.switch.codegen.calculations import CalculationCodegen
from p4lite.switch.codegen.cexpr import CExpr
from p4lite.switch.codegen.expr import ExprBuilder, ExprScope
from p4lite.switch.codegen.packing import PackedItem, append_padded, header_bytes, store_header
from p4lite.switch.codegen.parsers import ParserCodegen
from p4lite.switch.codegen.phv import Layout, c_string, comment
from p4lite.switch.codegen.pipelines import PipelineCodegen, load_initial, table_flags
from p4lite.switch.codegen.primitives import PrimitiveCodegen
from p4lite.switch.errors import InterpretedOnly, ProgramError
from p4lite.switch.program.facts import ActionFacts, Facts

# Names under which simple_switch looks for the fields of enum p4_field_id, through field_aliases.
TARGET_FIELDS = {
    "P4F_INGRESS_PORT": "standard_metadata.ingress_port",
    "P4F_EGRESS_SPEC": "standard_metadata.egress_spec",
    "P4F_EGRESS_PORT": "standard_metadata.egress_port",
    "P4F_INSTANCE_TYPE": "standard_metadata.instance_type",
    "P4F_PACKET_LENGTH": "standard_metadata.packet_length",
    "P4F_PARSER_ERROR": "standard_metadata.parser_error",
    "P4F_CHECKSUM_ERROR": "standard_metadata.checksum_error",
    "P4F_PRIORITY": "intrinsic_metadata.priority",
    "P4F_MCAST_GRP": "intrinsic_metadata.mcast_grp",
    "P4F_EGRESS_RID": "intrinsic_metadata.egress_rid",
    "P4F_INGRESS_TIMESTAMP": "intrinsic_metadata.ingress_global_timestamp",
    "P4F_EGRESS_TIMESTAMP": "intrinsic_metadata.egress_global_timestamp",
    "P4F_ENQ_TIMESTAMP": "queueing_metadata.enq_timestamp",
    "P4F_ENQ_QDEPTH": "queueing_metadata.enq_qdepth",
    "P4F_DEQ_TIMEDELTA": "queueing_metadata.deq_timedelta",
    "P4F_DEQ_QDEPTH": "queueing_metadata.deq_qdepth",
    "P4F_QID": "queueing_metadata.qid",
}
HARMLESS = (
    "type-limits",
    "tautological-compare",
    "bool-compare",
    "bool-operation",
    "int-in-bool-context",
    "sign-compare",
)
"""Warnings about programs that say nothing about the generated code. A program may compare anything: x == x, or an
8-bit field with 300. Of an exclusive or with all ones gcc makes the complement of the narrow field, and then warns of
C's promotions. The generated code has none: each operand is of 64 bits or more before anything is computed."""
EMIT_PART = 64
"""Headers of a packet in one C function of the deparser."""
QUEUEING = ("P4F_ENQ_TIMESTAMP", "P4F_ENQ_QDEPTH", "P4F_DEQ_TIMEDELTA", "P4F_DEQ_QDEPTH")


@dataclass(frozen=True, slots=True)
class Code:
    """The C of a program. `size`: its bytes without tables' entries and descriptions."""

    text: str
    size: int


def generate(facts: Facts) -> Code:
    """Return the C of a program; check that every reference in the JSON leads to an object (ProgramError).

    Raises InterpretedOnly for a program of another architecture than v1model.
    """
    check_compiled(facts.model)
    try:
        with deep_recursion():
            return _Generator(facts).code()
    except RecursionError:
        raise ProgramError(f"{facts.source}: an expression is nested too deeply") from None


def check_compiled(model: Model) -> None:
    """Raise InterpretedOnly for a program of another architecture than v1model."""
    if model.architecture is not Bmv2Architecture.V1MODEL:
        raise InterpretedOnly(
            f"{model.root.source}: the program is for the architecture {model.architecture.value}, and the compiled "
            f"switch runs {Bmv2Architecture.V1MODEL.value} only; run it in the interpreter: p4lite trace, p4lite stf, "
            "p4lite debug, or p4lite.Switch(program) in Python"
        )


class _Generator:
    def __init__(self, facts: Facts):
        self.facts = facts
        self.model = facts.model
        self.layout = Layout(facts.model)
        self.cx = CExpr(self.layout)
        self.builder = ExprBuilder(facts)
        self.calculations = CalculationCodegen(facts.model, self.cx, self.builder)
        self.primitives = PrimitiveCodegen(facts, self.cx, self.builder, self.calculations)
        self.parsers = ParserCodegen(facts, self.cx, self.builder, self.primitives)
        self.pipelines = PipelineCodegen(facts, self.cx, self.builder, self.calculations)

    def code(self) -> Code:
        body: list[str] = []
        for action in self.facts.actions.values():
            body += self._action(action)
        self.pipelines.prepare()
        verify = self.calculations.checksums(verify=True)
        update = self.calculations.checksums(verify=False)
        body += self.parsers.function(verify)
        body += self.pipelines.function("ingress")
        body += self.pipelines.function("egress")
        body += self._phv_functions()
        body += self._deparser(update)
        body += self._field_lists()
        body += self._digests()
        size = sum(map(len, body))
        body += load_initial(self.facts)
        body += self._descriptions()
        head = [f"/* Generated from {comment(self.facts.name)}; do not edit. */"]
        head += [f'#pragma GCC diagnostic ignored "-W{warning}"' for warning in HARMLESS]
        head.append('#include "instance.h"')
        head += [f"P4_WIDE({n})" for n in sorted(self.cx.wide)]
        head += self.layout.declarations()
        head += ["static const struct p4_program program;"]
        head += self.calculations.crc_declarations()
        head += self.primitives.headers.union_functions()
        head += self.primitives.headers.shift_functions()
        head += self.calculations.code
        return Code("\n".join([*head, *body]) + "\n", size)

    def _action(self, action: ActionFacts) -> list[str]:
        index = action.index
        parts = self.primitives.body(list(action.node.items("primitives")), ExprScope(params=action.params))
        out = [f"/* {comment(action.name)} */"]
        if len(parts) > 1:
            for i, part in enumerate(parts):
                out += self._action_function("P4_NOINLINE", f"action_{index}_{i}", part)
            parts = [[f"action_{index}_{i}(in, p, a);" for i in range(len(parts))]]
        return [*out, *self._action_function("P4_UNUSED", f"action_{index}", parts[0])]

    @staticmethod
    def _action_function(attribute: str, name: str, body: list[str]) -> list[str]:
        return [
            f"static {attribute} void {name}(struct p4_state *in P4_UNUSED, struct phv *p P4_UNUSED,",
            "    const uint64_t *a P4_UNUSED)",
            "{",
            *[f"    {line}" for line in body],
            "}",
        ]

    def _phv_functions(self) -> list[str]:
        groups = self.layout.groups()
        clears: list[str] = []
        for first, count, lvalue in groups:
            test = " | ".join(f"p->hs[{first + i}]" for i in range(count))
            clears.append(f"    if ({test}) memset(&{lvalue}, 0, sizeof {lvalue});")
        return [
            "static void phv_init(struct p4_phv *phv)",
            "{",
            "    memset(phv, 0, sizeof(struct phv));",
            "    phv->truncate_to = P4_NO_TRUNCATE;",
            "}",
            "static void phv_reset(struct p4_phv *phv)",
            "{",
            "    struct phv *p = (struct phv *)(void *)phv;",
            *clears,
            "    memset(p, 0, offsetof(struct phv, un) + sizeof p->un);",
            "    phv->truncate_to = P4_NO_TRUNCATE;",
            "}",
            "static void phv_copy(struct p4_phv *to, const struct p4_phv *from)",
            "{",
            "    memcpy(to, from, sizeof(struct phv));",
            "}",
            "static void reset_metadata(struct p4_phv *phv)",
            "{",
            "    struct phv *p = (struct phv *)(void *)phv;",
            "    memset(&p->m, 0, sizeof p->m);",
            "}",
        ]

    def _deparser(self, update: list[str]) -> list[str]:
        deparsers = list(self.model.root.items("deparsers"))
        chosen = next((d for d in deparsers if d["name"].value == "deparser"), deparsers[0] if deparsers else None)
        order = []
        calls: list[str] = []
        if chosen is not None:
            for item in chosen["order"].items():
                header = self.model.find(self.model.headers, item, "header")
                if header.metadata:
                    item.fail(f"the metadata '{header.name}' cannot be deparsed")
                order.append(self.layout.place(header))
            for node in chosen.items("primitives"):
                calls += self.primitives.emit(node, ExprScope())
        sizes = [f"    if {place.valid()} n += {header_bytes(place)};" for place in order]
        emits: list[str] = []
        for place in order:
            lines = " ".join(store_header(place, "o"))
            emits.append(f"    if {place.valid()} {{ {lines} o += {header_bytes(place)}; }}")
        parts: list[str] = []
        if len(emits) > EMIT_PART:
            # C compilers take long over long functions.
            chosen_parts = [emits[i : i + EMIT_PART] for i in range(0, len(emits), EMIT_PART)]
            for i, part in enumerate(chosen_parts):
                head = f"static P4_NOINLINE uint8_t *emit_{i}(const struct phv *p, uint8_t *o)"
                parts += [head, "{", *part, "    return o;", "}"]
            emits = [f"    o = emit_{i}(p, o);" for i in range(len(chosen_parts))]
        too_long = ["    if (header_length(phv) > cap)", "        return -1;"]
        self.max_header_bytes = sum(place.type.fixed_bits // 8 + place.type.varbit_max for place in order)
        return [
            *parts,
            "static uint32_t header_length(const struct p4_phv *phv)",
            "{",
            "    const struct phv *p P4_UNUSED = (const struct phv *)(const void *)phv;",
            "    uint32_t n = 0;",
            *sizes,
            "    return n;",
            "}",
            "static int64_t deparse(struct p4_instance *head, struct p4_phv *phv, const uint8_t *payload P4_UNUSED,",
            "    uint32_t payload_len P4_UNUSED, uint8_t *out, uint32_t cap)",
            "{",
            "    struct p4_state *in P4_UNUSED = (struct p4_state *)(void *)head;",
            "    struct phv *p P4_UNUSED = (struct phv *)(void *)phv;",
            "    uint8_t *o = out;",
            *too_long,
            # BMv2's checksums cover what truncate() leaves of the payload (calculations.cpp: get_data_size()).
            *(["    if (p->head.truncate_to < payload_len) payload_len = p->head.truncate_to;"] if update else []),
            *update,
            *[f"    {line}" for line in calls],
            *(too_long if calls else []),
            *emits,
            "    return o - out;",
            "}",
        ]

    def _field_lists(self) -> list[str]:
        out = [
            "static void copy_field_list(uint32_t id, struct p4_phv *to, const struct p4_phv *from)",
            "{",
            "    struct phv *d P4_UNUSED = (struct phv *)(void *)to;",
            "    const struct phv *s P4_UNUSED = (const struct phv *)(const void *)from;",
            "    switch (id) {",
        ]
        for id_, refs in self.facts.field_lists.items():
            out.append(f"    case {id_}:")
            for ref in refs:
                out += [f"        {line}" for line in self._copy_field(ref)]
            out.append("        break;")
        return [*out, "    default: break;", "    }", "}"]

    def _copy_field(self, ref: FieldRef) -> list[str]:
        if ref.field.index < 0:
            return []
        place = self.layout.place(ref.header)
        path = place.field(ref.field)[1:]
        if ref.field.varbit or ref.field.width > 128:
            lines = [f"memcpy(d{path}, s{path}, sizeof d{path});"]
            if ref.field.varbit:
                length = place.length(ref.field)[1:]
                lines.append(f"d{length} = s{length};")
        else:
            lines = [f"d{path} = s{path};"]
        if place.state is not None:
            lines.append(f"d{place.state[1:]} |= 2;")
        return lines

    def _digests(self) -> list[str]:
        out = [
            "static int64_t digest(uint32_t id, const struct p4_phv *phv, uint8_t *out P4_UNUSED,",
            "    uint32_t cap P4_UNUSED)",
            "{",
            "    const struct phv *p P4_UNUSED = (const struct phv *)(const void *)phv;",
            "    uint32_t n P4_UNUSED = 0;",
            "    switch (id) {",
        ]
        for digest in self.facts.learn_lists:
            items = [PackedItem(ref.field.width, self.layout.place(ref.header), ref.field) for ref in digest.fields]
            size = sum((i.width + 7) // 8 for i in items)
            out += [f"    case {digest.id}:", f"        if (cap < {size}) return -1;"]
            for item in items:
                out += [f"        {line}" for line in append_padded(item, self.cx)]
            out.append("        return n;")
        return [*out, "    default: return -1;", "    }", "}"]

    # --- descriptions -------------------------------------------------------------------------------------
    def _target_fields(self) -> tuple[list[str], set[str]]:
        rows, present = [], set()
        for constant, name in TARGET_FIELDS.items():
            header_name, field_name = name.split(".")
            ref = self.model.aliases.get(name)
            header = self.model.headers.get(header_name)
            if ref is None and header is not None and field_name in header.type.by_name:
                ref = FieldRef(header, header.type.by_name[field_name])
            if ref is None and header_name != "standard_metadata":
                # v1model has one struct; p4c writes aliases, others may not
                std = self.model.headers.get("standard_metadata")
                if std is not None and field_name in std.type.by_name:
                    ref = FieldRef(std, std.type.by_name[field_name])
            if ref is None or ref.field.varbit or ref.field.width > 64:
                rows.append(f"        [{constant}] = {{-1, 0, 0}},")
                continue
            present.add(constant)
            size = next(n for n in (1, 2, 4, 8) if ref.field.width <= 8 * n)
            offset = self.layout.offset_expr(ref.header, ref.field)
            rows.append(f"        [{constant}] = {{{offset}, {size}, {ref.field.width}}},")
        return rows, present

    def _descriptions(self) -> list[str]:
        facts = self.facts
        tables = list(facts.tables.values())
        out: list[str] = []
        rows: list[str] = []
        for t in tables:
            ranges = [k for k in t.key if k.match == "range"] if t.kind == "range" else []
            if ranges:
                cells = ", ".join(
                    f"{{{k.place.word}, {k.place.words}, {k.place.shift}, {min(k.width, 64)}}}" for k in ranges
                )
                out.append(f"static const struct p4_range_field ranges_{t.index}[] = {{{cells}}};")
            meter_bytes = int(t.direct_meter is not None and facts.meters[t.direct_meter].unit == "bytes")
            profile = -1 if t.action_profile is None else facts.action_profiles[t.action_profile].index
            rows.append(
                f"    {{{c_string(t.name)}, P4_{t.kind.upper()}, {table_flags(t)}, {t.key_words}, {t.arg_words}, "
                f"{len(ranges)}, {f'ranges_{t.index}' if ranges else 'NULL'}, {t.max_size}u, "
                f"{profile}, {meter_bytes}}},"
            )
        out += self._array("p4_table_desc", "table_descs", rows)
        profiles = [
            f"    {{{c_string(p.name)}, {p.arg_words}, {p.max_size}u}}," for p in facts.action_profiles.values()
        ]
        out += self._array("p4_profile_desc", "profile_descs", profiles)
        counters = [f"    {{{c_string(c.name)}, {0 if c.direct else c.size}u}}," for c in facts.counters.values()]
        out += self._array("p4_counter_desc", "counter_descs", counters)
        meters = [
            f"    {{{c_string(c.name)}, {0 if c.direct else c.size}u, {int(c.unit == 'bytes')}}},"
            for c in facts.meters.values()
        ]
        out += self._array("p4_meter_desc", "meter_descs", meters)
        registers = [f"    {{{c_string(r.name)}, {r.size}u, {r.width}u}}," for r in facts.registers.values()]
        out += self._array("p4_register_desc", "register_descs", registers)
        vsets = [f"    {{{c_string(v.name)}, {v.bytes}u, {v.max_size}u}}," for v in facts.value_sets.values()]
        out += self._array("p4_vset_desc", "vset_descs", vsets)
        fields, present = self._target_fields()
        return [
            *out,
            "static const struct p4_state_desc state_desc = {",
            f"    &program, {len(tables)}, {len(profiles)}, {len(counters)},",
            f"    {len(meters)}, {len(registers)}, {len(vsets)}, {len(facts.model.custom_crcs)},",
            "    table_descs, profile_descs, counter_descs, meter_descs, register_descs, vset_descs, load_initial,",
            "};",
            "static struct p4_instance *create(const struct p4_config *config)",
            "{",
            "    return (struct p4_instance *)(void *)p4_state_create(&state_desc, config);",
            "}",
            "static void destroy(struct p4_instance *in)",
            "{",
            "    p4_state_destroy((struct p4_state *)(void *)in);",
            "}",
            "static void restart(struct p4_instance *in)",
            "{",
            "    p4_state_restart((struct p4_state *)(void *)in);",
            "}",
            "static const struct p4_program program = {",
            "    .abi = P4LITE_ABI,",
            "    .phv_size = sizeof(struct phv),",
            f"    .max_header_bytes = {self.max_header_bytes},",
            f"    .queueing_metadata = {int(all(q in present for q in QUEUEING))},",
            f"    .payload_checksums = {int(self.calculations.checksums_of_payload)},",
            f"    .name = {c_string(self.facts.name)},",
            "    .fields = {",
            *fields,
            "    },",
            "    .create = create, .destroy = destroy, .restart = restart,",
            "    .phv_init = phv_init, .phv_reset = phv_reset, .phv_copy = phv_copy, .reset_metadata = reset_metadata,",
            "    .parse = parse, .ingress = ingress, .egress = egress, .header_length = header_length,",
            "    .deparse = deparse, .copy_field_list = copy_field_list, .digest = digest,",
            "};",
            "P4_EXPORT const struct p4_program *p4lite_program(void);",
            "P4_EXPORT const struct p4_program *p4lite_program(void)",
            "{",
            *[f"    if (!{name}.ready) p4_crc_prepare(&{name});" for name in self.calculations.crcs.values()],
            "    return &program;",
            "}",
        ]

    @staticmethod
    def _array(kind: str, name: str, rows: list[str]) -> list[str]:
        return [f"static const struct {kind} {name}[] = {{", *(rows or ["    {0}"]), "};"]
