"""Ingress and egress as C functions: a label per table, condition and action call, a goto per edge."""

from __future__ import annotations

from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.calculations import CalculationCodegen
from p4lite.switch.codegen.cexpr import CExpr, literal
from p4lite.switch.codegen.expr import BoundedExpr, ExprBuilder
from p4lite.switch.codegen.phv import HeaderPlace, comment, limbs
from p4lite.switch.program.facts import Array, Facts, KeyFacts, TableFacts
from p4lite.switch.program.layout import MASK64, KeyWords, pack_args
from p4lite.switch.program.load import entry_action, find_action

PART = 64
"""Nodes of a pipeline in one C function."""


def table_flags(table: TableFacts) -> str:
    """Return C of a table's `enum p4_table_flags`."""
    flags = {
        "P4_WITH_COUNTERS": table.with_counters,
        "P4_WITH_TIMEOUT": table.support_timeout,
        "P4_WITH_METER": table.direct_meter is not None,
    }
    return " | ".join(name for name, given in flags.items() if given) or "0"


class FlowCodegen:
    """Control flow between nodes of a pipeline: `goto` within a C function, else by the number of the node, which is
    its place in `order`."""

    def __init__(self, node: JsonNode, order: list[str]):
        self.order = order
        self.number = {name: i for i, name in enumerate(order)}
        self.labels = {name: f"N{i}" for i, name in enumerate(order)}
        self.parts = max(1, (len(order) + PART - 1) // PART)
        self.part = 0
        """The part that code is being made for."""
        self.stop = "return;" if self.parts == 1 else f"return {len(order) + PART};"

    def find(self, node: JsonNode) -> int:
        """Return the number of the node that is named."""
        number = self.number.get(node.str())
        if number is None:
            node.fail(f"there is no table, condition or action call '{node.value}'")
        return number

    def goto(self, node: JsonNode | None) -> str:
        if node is None:
            return self.stop
        number = self.find(node)
        return f"goto N{number};" if number // PART == self.part else f"return {number};"


class PipelineCodegen:
    """Generates the C of a program's pipelines."""

    def __init__(self, facts: Facts, cx: CExpr, builder: ExprBuilder, calculations: CalculationCodegen):
        self.facts = facts
        self.cx = cx
        self.builder = builder
        self.calculations = calculations
        self.selectors: dict[str, str] = {}
        """The hash function of each selector."""
        self.exits = {
            action.id
            for action in facts.actions.values()
            if any(n["op"].value == "exit" for n in action.node.items("primitives"))
        }

    def prepare(self) -> None:
        """Generate the hash functions of selectors (before any pipeline function)."""
        for profile in self.facts.action_profiles.values():
            if not profile.selector:
                continue
            selector = profile.node["selector"]
            function = self.selectors[profile.name] = f"select_{profile.index}"
            if selector["algo"].value == "round_robin":
                self.calculations.code += [
                    f"static uint64_t {function}(struct p4_state *in, const struct phv *p P4_UNUSED,",
                    "    const uint8_t *payload P4_UNUSED, uint32_t payload_len P4_UNUSED)",
                    "{",
                    f"    return in->profiles[{profile.index}].round_robin++;",
                    "}",
                ]
                continue
            made = self.calculations.make(function, selector, f"selector of {profile.name}")
            if made.payload:
                selector.fail("a selector cannot hash the payload")

    def function(self, name: str) -> list[str]:
        """Return the C function of pipeline `name`, an empty one if the program has none; a long pipeline becomes a
        function for every `PART` nodes, since C compilers take long over long functions."""
        node = self.facts.pipelines.get(name)
        before: list[str] = []
        body: list[str] = []
        if node is not None and node.get("init_table") is not None:
            flow = FlowCodegen(node, self._order(node))
            pieces = self._pieces(node, flow)
            if flow.parts == 1:
                body = [f"    {flow.goto(node.get('init_table'))}", *[line for piece in pieces for line in piece]]
            else:
                before, body = self._split(name, node, flow, pieces)
        return [
            *before,
            f"static void {name}(struct p4_instance *head, struct p4_phv *phv)",
            "{",
            "    struct p4_state *in P4_UNUSED = (struct p4_state *)(void *)head;",
            "    struct phv *p P4_UNUSED = (struct phv *)(void *)phv;",
            "    p->head.exit = 0;",
            *body,
            "}",
        ]

    def _pieces(self, node: JsonNode, flow: FlowCodegen) -> list[list[str]]:
        """Return the C of every node of a pipeline, in the order of `flow`."""
        tables = {t["name"].str(): t for t in node.items("tables")}
        conditionals = {c["name"].str(): c for c in node.items("conditionals")}
        calls = {c["name"].str(): c for c in node.items("action_calls")}
        pieces = []
        for number, name in enumerate(flow.order):
            flow.part = number // PART
            if name in tables:
                pieces.append(self._table_code(self.facts.tables[name], flow))
            elif name in conditionals:
                c = conditionals[name]
                test = self.cx.boolean(self.builder.boolean(c["expression"]))
                pieces.append(
                    [
                        f"{flow.labels[name]}: P4_UNUSED; /* {comment(name)} */",
                        f"    if ({test}) {flow.goto(c.get('true_next'))}",
                        f"    {flow.goto(c.get('false_next'))}",
                    ]
                )
            else:
                c = calls[name]
                action = find_action(self.facts.actions, c["action_id"])
                if action.params:
                    c["action_id"].fail(f"the action '{action.name}' wants parameters")
                stop = [f"    if (p->head.exit) {flow.stop}"] if action.id in self.exits else []
                pieces.append(
                    [
                        f"{flow.labels[name]}: P4_UNUSED; /* {comment(name)} */",
                        f"    action_{action.index}(in, p, NULL);",
                        *stop,
                        f"    {flow.goto(c.get('next_node'))}",
                    ]
                )
        return pieces

    @staticmethod
    def _split(name: str, node: JsonNode, flow: FlowCodegen, pieces: list[list[str]]) -> tuple[list[str], list[str]]:
        """Return the functions of the parts, which return the number of the next node, and the loop that calls them."""
        before: list[str] = []
        body = [f"    uint32_t next = {flow.find(node['init_table'])};", "    for (;;) {"]
        body.append(f"        switch (next / {PART}) {{")
        for part in range(flow.parts):
            numbers = range(part * PART, min((part + 1) * PART, len(pieces)))
            before += [
                f"static P4_NOINLINE uint32_t {name}_{part}(struct p4_state *in, struct phv *p, uint32_t next)",
                "{",
                "    (void)in;",
                "    (void)p;",
                "    switch (next) {",
                *[f"    case {n}: goto {flow.labels[flow.order[n]]};" for n in numbers],
                f"    default: {flow.stop}",
                "    }",
                *[line for n in numbers for line in pieces[n]],
                "}",
            ]
            body.append(f"        case {part}: next = {name}_{part}(in, p, next); break;")
        return before, [*body, "        default: return;", "        }", "    }"]

    def _order(self, node: JsonNode) -> list[str]:
        """Return the names of a pipeline's nodes, each before those that follow it and close to them."""
        edges: dict[str, list[str]] = {}
        for item in [*node.items("tables"), *node.items("conditionals"), *node.items("action_calls")]:
            following = [item.get(k) for k in ("true_next", "false_next", "next_node", "base_default_next")]
            tables = item.get("next_tables")
            if tables is not None:
                following += [tables.get(k) for k in tables.names()]
            if item["name"].str() in edges:
                item["name"].fail(f"'{item['name'].value}' is declared twice")
            edges[item["name"].str()] = list(dict.fromkeys(n.str() for n in following if n is not None))
        state: dict[str, int] = {}
        order: list[str] = []
        for start in (node["init_table"].str(), *edges):
            done: list[str] = []
            stack = [(start, iter(edges[start]))] if start in edges and start not in state else []
            state.setdefault(start, 1)
            while stack:
                name, rest = stack[-1]
                step = next(rest, None)
                if step is None:
                    state[name] = 2
                    done.append(name)
                    stack.pop()
                elif state.get(step) == 1:
                    node.fail(f"the pipeline goes round in a circle through '{step}'")
                elif step not in state and step in edges:
                    state[step] = 1
                    stack.append((step, iter(edges[step])))
            order += reversed(done)
        return order

    def _value(self, key: KeyFacts, place: HeaderPlace) -> str:
        """Return C of a key field's unsigned value (uint64_t or u128), 0 if its header is invalid."""
        bits = 64 if key.width <= 64 else 128
        if key.target.field.index < 0:
            return f"(uint64_t){place.valid()}"
        code = f"({'uint64_t' if bits == 64 else 'u128'}){place.field(key.target.field)}"
        if key.mask is not None:
            code = f"({code} & {literal(key.mask, bits)})"
        if place.state is not None:
            code = f"({place.valid()} ? {code} : 0)"
        return code

    def _key_code(self, table: TableFacts) -> list[str]:
        words: list[list[str]] = [[] for _ in range(table.key_words)]
        extra: list[str] = []
        for i, key in enumerate(table.key):
            place = self.cx.layout.place(key.target.header)
            at = key.place
            if key.width > 128:
                n = limbs(key.width)
                guard = f"if {place.valid()} " if place.state is not None else ""
                for j in range(n):
                    limb = n - 1 - j
                    mask = "" if key.mask is None else f" & {literal(key.mask >> (64 * limb), 64)}"
                    extra.append(f"{guard}key[{at.word + j}] = {place.field(key.target.field)}[{limb}]{mask};")
                    words[at.word + j].append("0")
            elif key.width > 64:
                extra.insert(0, f"u128 k{i} = {self._value(key, place)};")
                words[at.word].append(f"(uint64_t)(k{i} >> 64)")
                words[at.word + 1].append(f"(uint64_t)k{i}")
            else:
                code = self._value(key, place)
                words[at.word].append(f"{code} << {at.shift}" if at.shift else code)
        early = [line for line in extra if line.startswith("u128")]
        late = [line for line in extra if not line.startswith("u128")]
        init = ", ".join(" | ".join(w) for w in words)
        return [*early, f"uint64_t key[{table.key_words}] = {{{init}}};", *late]

    def _table_code(self, table: TableFacts, flow: FlowCodegen) -> list[str]:
        flags = table_flags(table)
        label = flow.labels[table.name]
        head = f"{label}: P4_UNUSED; {{ /* {comment(table.name)} */"
        if not table.key and flags == "0" and table.const_default and table.action_profile is None:
            return [head, *[f"    {line}" for line in self._fixed(table, flow)], "}"]
        body = [f"struct p4_table *t = &in->tables[{table.index}];"]
        if table.key:
            body += self._key_code(table)
            kind = f"P4_{table.kind.upper()}"
            body.append(f"struct p4_entry *e = p4_table_lookup(t, key, {table.key_words}, {kind});")
            body.append("int hit P4_UNUSED = e != NULL;")
            if table.direct_meter is not None:
                body += self._meter(self.facts.meters[table.direct_meter])
            body += ["if (!e)", "    e = t->default_entry;"]
        else:
            body += ["struct p4_entry *e = t->default_entry;", "const int hit P4_UNUSED = 0;"]
        if table.with_counters or table.support_timeout:
            body.append(f"p4_hit(in, e, {flags}, p->head.ingress_length);")
        body += self._resolve(table)
        body += self._dispatch(table, flow)
        return [head, *[f"    {line}" for line in body], "}"]

    def _meter(self, meter: Array) -> list[str]:
        ref = self.facts.model.field_ref(meter.node["result_target"])
        amount = "p->head.ingress_length" if meter.unit == "bytes" else "1"
        color = BoundedExpr("data", "data_code", lo=0, hi=2, ref="color")
        store = self.cx.store(self.cx.layout.place(ref.header), ref.field, color)
        execute = f"p4_meter_execute(&t->meters[e->handle], {amount}, in->head.now_ns)"
        return ["if (e) {", f"    uint64_t color = {execute};", f"    {store}", "}"]

    def _resolve(self, table: TableFacts) -> list[str]:
        """Declare `action` (index or -1) and `args`."""
        if table.action_profile is None:
            return ["int32_t action = e->act.kind ? e->act.number : -1;", "const uint64_t *args P4_UNUSED = e->data;"]
        profile = self.facts.action_profiles[table.action_profile]
        lines = [
            "int32_t action = -1;",
            "const uint64_t *args P4_UNUSED = e->data;",
            "const struct p4_member *member = NULL;",
            "if (e->act.kind == P4_REF_MEMBER)",
            f"    member = &in->profiles[{profile.index}].members[e->act.number];",
        ]
        if profile.selector:
            choose = f"p4_group_choose(in, &in->profiles[{profile.index}], e->act.number, hash)"
            lines += [
                "else if (e->act.kind == P4_REF_GROUP) {",
                f"    uint64_t hash = {self.selectors[profile.name]}(in, p, NULL, 0);",
                f"    member = {choose};",
                "}",
            ]
        lines += [
            "else if (e->act.kind == P4_REF_ACTION)",
            "    action = e->act.number;",
            "if (member) {",
            "    action = member->action;",
            "    args = member->args;",
            "}",
        ]
        return lines

    def _fixed(self, table: TableFacts, flow: FlowCodegen) -> list[str]:
        """Return the call that replaces a table without a key whose action cannot change."""
        self._dispatch(table, flow)  # only for its checks
        call = table.default_entry
        assert call is not None
        action = table.actions[call.name]
        args = pack_args(action.widths, call.args, table.arg_words)
        given = f"(const uint64_t[]){{{', '.join(literal(w, 64) for w in args)}}}" if args else "NULL"
        following = table.node["next_tables"]
        after = following.get("__MISS__" if "__HIT__" in following.names() else action.name)
        stop = [f"if (p->head.exit) {flow.stop}"] if action.id in self.exits else []
        return [f"action_{action.index}(in, p, {given});", *stop, flow.goto(after)]

    def _dispatch(self, table: TableFacts, flow: FlowCodegen) -> list[str]:
        following = table.node["next_tables"]
        names = following.names()
        by_hit = "__HIT__" in names
        if by_hit and "__MISS__" not in names:
            following.fail("'__HIT__' wants '__MISS__' beside it")
        base = flow.goto(table.node.get("base_default_next"))
        out = ["switch (action) {"]
        for action in table.actions.values():
            if not by_hit and action.name not in names:
                following.fail(f"there is no next node for action '{action.name}'")
            goto = "" if by_hit else flow.goto(following.get(action.name))
            stop = f" if (p->head.exit) {flow.stop}" if action.id in self.exits else ""
            out.append(f"case {action.index}: action_{action.index}(in, p, args);{stop} {goto or 'break;'}")
        out += ["default: break;", "}"]
        if by_hit:
            hit, miss = flow.goto(following.get("__HIT__")), flow.goto(following.get("__MISS__"))
            return [*out, f"if (hit) {hit}", miss]
        return [*out, base]


def words_of(values: list[int]) -> str:
    return "(const uint64_t[]){" + ", ".join(literal(v, 64) for v in values or [0]) + "}"


def _hex_value(node: JsonNode, key: KeyFacts) -> int:
    value = node.hex()
    # p4c writes the constants of an int<W> with a sign
    if -(1 << key.width >> 1) <= value < 0:
        return value + (1 << key.width)
    if not 0 <= value < (1 << key.width):
        node.fail(f"{node.value} does not fit into the {key.width} bits of '{key.name}'")
    return value


def _match(words: KeyWords, key: KeyFacts, node: JsonNode, kind: str) -> None:
    full = (1 << key.width) - 1
    match = node["match_type"].str()
    same = {key.match, "ternary" if key.match == "optional" else key.match}
    if match not in same and match != "optional":
        node["match_type"].fail(f"the key '{key.name}' is of type '{key.match}', not '{match}'")
    if match == "valid":
        words.put(key.place, int(node["key"].bool()), 1, 1)
    elif match == "exact" or (match == "optional" and node.get("mask") is None):
        value = _hex_value(node["key"], key)
        words.put(key.place, value, full, value)
    elif match == "lpm":
        value, length = _hex_value(node["key"], key), node["prefix_length"].int(0, key.width)
        mask = full ^ (full >> length)
        # p4c leaves bits behind the prefix as the programmer wrote them; BMv2 ignores them
        words.put(key.place, value & mask, mask, (value & mask) | (full ^ mask))
        if kind == "lpm":
            words.order = key.width - length
    elif match in ("ternary", "optional"):
        value, mask = _hex_value(node["key"], key), _hex_value(node["mask"], key)
        words.put(key.place, value & mask, mask, value & mask)
    else:
        low, high = _hex_value(node["start"], key), _hex_value(node["end"], key)
        if low > high:
            node.fail(f"the range {low} to {high} is empty")
        words.put(key.place, low, full, high)


def load_initial(facts: Facts) -> list[str]:
    """Return the C function `load_initial`, with the entries as data: C compilers take long over long functions."""
    data: list[str] = []
    defaults: list[str] = []
    calls: list[str] = []
    for table in facts.tables.values():
        default = table.default_entry
        if default is not None:
            action = table.actions[default.name]
            args = pack_args(action.widths, default.args, table.arg_words)
            defaults.append(_row([table.index, action.index, *args]))
        rows = _rows(facts, table)
        if rows:
            data += [f"static const uint64_t entries_{table.index}[] = {{", *rows, "};"]
            mask = words_of(_full_mask(table)) if table.kind == "exact" else "NULL"
            calls.append(f"p4_initial_entries(in, {table.index}, {mask}, entries_{table.index}, {len(rows)})")
    if defaults:
        data += ["static const uint64_t defaults[] = {", *defaults, "};"]
        calls.insert(0, f"p4_initial_defaults(in, defaults, {len(defaults)})")
    out = [*data, "static int load_initial(struct p4_state *in)", "{", "    (void)in;"]
    for call in calls:
        out += [f"    if ({call} < 0)", "        return -1;"]
    return [*out, "    return 0;", "}"]


def _full_mask(table: TableFacts) -> list[int]:
    """Return the mask of every entry of an exact table."""
    words = [0] * table.key_words
    for key in table.key:
        key.place.put(words, (1 << key.width) - 1)
    return words


def _rows(facts: Facts, table: TableFacts) -> list[str]:
    """Return the entries of a table, a line of words each, as `p4_initial_entries` reads them."""
    rows: list[str] = []
    seen: set[tuple[object, ...]] = set()
    for node in table.node.items("entries"):
        key, args, number = _entry(facts, node, table)
        identity = (tuple(key.value), tuple(key.mask), tuple(key.high), key.order)
        if identity in seen:
            node.fail(f"the table '{table.name}' has this entry twice")
        seen.add(identity)
        row = [number, *args, *key.value]
        if table.kind != "exact":
            row += [key.order & MASK64, *key.mask]
        if table.kind == "range":
            row += key.high
        rows.append(_row(row))
    return rows


def _row(words: list[int]) -> str:
    return "    " + "".join(f"{word:#x}," if word > 9 else f"{word}," for word in words)


def _entry(facts: Facts, node: JsonNode, table: TableFacts) -> tuple[KeyWords, list[int], int]:
    parts = list(node["match_key"].items())
    if len(parts) != len(table.key):
        node["match_key"].fail(f"the table has {len(table.key)} keys, the entry {len(parts)}")
    words = KeyWords(table.key_words)
    for key, part in zip(table.key, parts, strict=True):
        _match(words, key, part, table.kind)
    if table.needs_priority:
        priority = node.get("priority")
        words.order = priority.int() if priority else 0
    if table.kind != "range":
        words.high = [0] * table.key_words
    action, call = entry_action(node["action_entry"], facts.actions, table.name, table.actions)
    return words, pack_args(action.widths, call.args, table.arg_words), action.index
