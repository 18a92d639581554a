"""Ingress and egress as C functions: a label per table, condition and action call, a goto per edge."""

from __future__ import annotations

from dataclasses import dataclass

from p4lite.switch.bmv2.model import VALID_FIELD, Action, Array, FieldType, Header, Model
from p4lite.switch.bmv2.reader import Node
from p4lite.switch.codegen.calculations import Calculations
from p4lite.switch.codegen.cexpr import CExpr, literal
from p4lite.switch.codegen.expr import Builder, Expr
from p4lite.switch.codegen.phv import HeaderPlace, comment, limbs
from p4lite.switch.program.layout import KeyField, arg_words, key_layout, pack_args

KINDS = ("exact", "lpm", "ternary", "range")
MATCHES = {"exact", "lpm", "ternary", "range", "optional", "valid"}
MAX_KEY_BITS = 8192
PART = 64
"""Nodes of a pipeline in one C function."""
REF_ACTION, REF_MEMBER, REF_GROUP = 1, 2, 3


@dataclass
class Key:
    name: str
    match: str
    width: int
    header: Header
    field: FieldType
    mask: int | None
    place: KeyField


@dataclass
class Profile:
    name: str
    id: int
    index: int
    max_size: int
    node: Node
    selector: Node | None
    tables: list[str]
    actions: dict[str, Action]
    arg_words: int = 0
    function: str = ""


@dataclass
class Table:
    name: str
    id: int
    index: int
    pipeline: str
    kind: str
    type: str
    node: Node
    keys: list[Key]
    key_words: int
    actions: dict[str, Action]
    max_size: int
    counters: bool
    timeout: bool
    meter: Array | None
    profile: Profile | None
    const_default: bool
    arg_words: int = 0


class Flow:
    """How control gets from one node of a pipeline to another: `goto` within a C function, else by the number of the
    node, which is its place in `order`."""

    def __init__(self, node: Node, order: list[str]):
        self.order = order
        self.number = {name: i for i, name in enumerate(order)}
        self.labels = {name: f"N{i}" for i, name in enumerate(order)}
        self.parts = max(1, (len(order) + PART - 1) // PART)
        self.part = 0
        """The part that code is being made for."""
        self.stop = "return;" if self.parts == 1 else f"return {len(order) + PART};"

    def find(self, node: Node) -> int:
        """The number of the node that is named."""
        number = self.number.get(node.str())
        if number is None:
            node.fail(f"there is no table, condition or action call '{node.value}'")
        return number

    def goto(self, node: Node | None) -> str:
        if node is None:
            return self.stop
        number = self.find(node)
        return f"goto N{number};" if number // PART == self.part else f"return {number};"


class Pipelines:
    """Reads the pipelines of a program, then generates their C."""

    def __init__(self, model: Model, cx: CExpr, builder: Builder, calculations: Calculations):
        self.model = model
        self.cx = cx
        self.builder = builder
        self.calculations = calculations
        self.profiles: dict[str, Profile] = {}
        self.tables: dict[str, Table] = {}
        self.exits: set[int] = set()
        self.pipelines = {n["name"].str(): n for n in model.root["pipelines"].items()}
        if "ingress" not in self.pipelines:
            model.root["pipelines"].fail("there is no pipeline 'ingress'")
        for name, node in self.pipelines.items():
            for p in node.items("action_profiles"):
                self._profile(p)
            for t in node.items("tables"):
                self._table(t, name)
        for table in self.tables.values():
            profile = table.profile
            words = [arg_words([w for _, w in a.params]) for a in table.actions.values()]
            table.arg_words = max(words, default=0)
            if profile is not None:
                profile.arg_words = max([profile.arg_words, *words])
        for action in model.actions.values():
            if any(n["op"].value == "exit" for n in action.primitives):
                self.exits.add(action.id)

    # --- reading ------------------------------------------------------------------------------------------
    def _profile(self, node: Node) -> None:
        name = node["name"].str()
        if name in self.profiles:
            node["name"].fail("the action profile is declared twice")
        size = node.get("max_size")
        profile = Profile(
            name,
            node["id"].int(),
            len(self.profiles),
            size.int(0, 1 << 30) if size else 1024,
            node,
            node.get("selector"),
            [],
            {},
        )
        self.profiles[name] = profile

    def _keys(self, node: Node) -> tuple[list[Key], int]:
        raw: list[tuple[str, str, int, Header, FieldType, int | None]] = []
        for k in node.items("key"):
            match = k["match_type"].str()
            if match not in MATCHES:
                k["match_type"].fail(f"'{match}' is no match type")
            if match == "valid":
                target = k["target"]
                header = self.model.find(
                    self.model.headers, target if isinstance(target.value, str) else target[0], "header"
                )
                field, width = VALID_FIELD, 1
            else:
                ref = self.model.field_ref(k["target"])
                header, field, width = ref.header, ref.field, ref.field.width
                if field.varbit:
                    k["target"].fail("a variable-length field cannot be matched on")
            mask_node = k.get("mask")
            name = k.get("name")
            raw.append(
                (
                    name.str() if name else f"{header.name}.{field.name}",
                    match,
                    width,
                    header,
                    field,
                    mask_node.hex() if mask_node else None,
                )
            )
        if sum(r[2] for r in raw) > MAX_KEY_BITS:
            node["key"].fail(f"the key has more than {MAX_KEY_BITS} bits")
        if sum(r[1] == "lpm" for r in raw) > 1:
            node["key"].fail("a table may have one lpm key only")
        places, words = key_layout([r[2] for r in raw])
        return [Key(*r, place) for r, place in zip(raw, places, strict=True)], words

    def _table(self, node: Node, pipeline: str) -> None:
        name = node["name"].str()
        if name in self.tables:
            node["name"].fail("the table is declared twice")
        kind, type_ = node["match_type"].str(), node["type"].str()
        if kind not in KINDS:
            node["match_type"].fail(f"'{kind}' is no match type of a table")
        if type_ not in ("simple", "indirect", "indirect_ws"):
            node["type"].fail(f"'{type_}' is no type of table")
        keys, words = self._keys(node)
        if kind in ("exact", "lpm") and any(k.match in ("ternary", "range", "optional") for k in keys):
            node["match_type"].fail(f"a table of type '{kind}' cannot have ternary, range or optional keys")
        if kind == "ternary" and any(k.match == "range" for k in keys):
            node["match_type"].fail("a table with a range key must be of type 'range'")
        if kind == "exact" and any(k.match == "lpm" for k in keys):
            node["match_type"].fail("a table with an lpm key must be of type 'lpm', 'ternary' or 'range'")
        entries = node.get("entries")
        size_node = node.get("max_size")
        if size_node is None and entries is None:
            node.fail("the key 'max_size' is missing")
        size = size_node.int(0, 1 << 30) if size_node else 0
        meter_node = node.get("direct_meters")
        meter = self.model.find(self.model.meters, meter_node, "meter array") if meter_node else None
        if meter is not None:
            meter.direct, meter.table = True, name
            if meter.result is None and meter_node is not None:
                meter_node.fail(f"the direct meter '{meter.name}' has no result_target")
        default = node.get("default_entry")
        self.tables[name] = Table(
            name,
            node["id"].int(),
            len(self.tables),
            pipeline,
            kind,
            type_,
            node,
            keys,
            words,
            self._actions(node),
            max(size, len(entries) if entries else 0),
            node.flag("with_counters"),
            node.flag("support_timeout"),
            meter,
            self._table_profile(node, name, type_),
            bool(default and (default.flag("action_const") or default.flag("action_entry_const"))),
        )
        profile = self.tables[name].profile
        if profile is not None:
            profile.tables.append(name)
            profile.actions.update(self.tables[name].actions)

    def _actions(self, node: Node) -> dict[str, Action]:
        out: dict[str, Action] = {}
        if node.get("action_ids") is not None:
            for item in node.items("action_ids"):
                action = self.model.actions.get(item.int())
                if action is None:
                    item.fail(f"there is no action with id {item.value}")
                out[action.name] = action
        else:
            by_name = {a.name: a for a in self.model.actions.values()}
            for item in node.items("actions"):
                out[item.str()] = self.model.find(by_name, item, "action")
        return out

    def _table_profile(self, node: Node, name: str, type_: str) -> Profile | None:
        if type_ == "simple":
            return None
        ref = node.get("action_profile")
        if ref is not None:
            return self.model.find(self.profiles, ref, "action profile")
        old = node["act_prof_name"]
        if old.str() not in self.profiles:
            index = len(self.profiles)
            selector = node.get("selector")
            self.profiles[old.str()] = Profile(old.str(), node["id"].int(), index, 1024, node, selector, [], {})
        return self.profiles[old.str()]

    # --- generating ---------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Generates the hash functions of selectors (before any pipeline function)."""
        for profile in self.profiles.values():
            if profile.selector is None:
                continue
            profile.function = f"select_{profile.index}"
            if profile.selector["algo"].value == "round_robin":
                self.calculations.code += [
                    f"static uint64_t {profile.function}(struct p4_state *in, const struct phv *p P4_UNUSED,",
                    "    const uint8_t *payload P4_UNUSED, uint32_t payload_len P4_UNUSED)",
                    "{",
                    f"    return in->profiles[{profile.index}].round_robin++;",
                    "}",
                ]
                continue
            made = self.calculations.make(profile.function, profile.selector, f"selector of {profile.name}")
            if made.payload:
                profile.selector.fail("a selector cannot hash the payload")

    def function(self, name: str) -> list[str]:
        """The C function of pipeline `name`, an empty one if the program has none; a long pipeline becomes a function
        for every `PART` nodes, since C compilers take long over long functions."""
        node = self.pipelines.get(name)
        before: list[str] = []
        body: list[str] = []
        if node is not None and node.get("init_table") is not None:
            flow = Flow(node, self._order(node))
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

    def _pieces(self, node: Node, flow: Flow) -> list[list[str]]:
        """The C of every node of a pipeline, in the order of `flow`."""
        tables = {t["name"].str(): t for t in node.items("tables")}
        conditionals = {c["name"].str(): c for c in node.items("conditionals")}
        calls = {c["name"].str(): c for c in node.items("action_calls")}
        pieces = []
        for number, name in enumerate(flow.order):
            flow.part = number // PART
            if name in tables:
                pieces.append(self._table_code(self.tables[name], flow))
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
                action = self._action(c["action_id"])
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
    def _split(name: str, node: Node, flow: Flow, pieces: list[list[str]]) -> tuple[list[str], list[str]]:
        """The functions of the parts, which return the number of the next node, and the loop that calls them."""
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

    def _action(self, node: Node) -> Action:
        action = self.model.actions.get(node.int())
        if action is None:
            node.fail(f"there is no action with id {node.value}")
        return action

    def _order(self, node: Node) -> list[str]:
        """The names of a pipeline's nodes, each before those that follow it and close to them."""
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

    def _value(self, key: Key, place: HeaderPlace) -> str:
        """C of a key field's unsigned value (uint64_t or u128), 0 if its header is invalid."""
        bits = 64 if key.width <= 64 else 128
        if key.field.index < 0:
            return f"(uint64_t){place.valid()}"
        code = f"({'uint64_t' if bits == 64 else 'u128'}){place.field(key.field)}"
        if key.mask is not None:
            code = f"({code} & {literal(key.mask, bits)})"
        if place.state is not None:
            code = f"({place.valid()} ? {code} : 0)"
        return code

    def _key_code(self, table: Table) -> list[str]:
        words: list[list[str]] = [[] for _ in range(table.key_words)]
        extra: list[str] = []
        for i, key in enumerate(table.keys):
            place = self.cx.layout.place(key.header)
            at = key.place
            if key.width > 128:
                n = limbs(key.width)
                guard = f"if {place.valid()} " if place.state is not None else ""
                for j in range(n):
                    limb = n - 1 - j
                    mask = "" if key.mask is None else f" & {literal(key.mask >> (64 * limb), 64)}"
                    extra.append(f"{guard}key[{at.word + j}] = {place.field(key.field)}[{limb}]{mask};")
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

    def _table_code(self, table: Table, flow: Flow) -> list[str]:
        flags = (1 if table.counters else 0) | (2 if table.timeout else 0) | (4 if table.meter else 0)
        label = flow.labels[table.name]
        head = f"{label}: P4_UNUSED; {{ /* {comment(table.name)} */"
        if not table.keys and not flags and table.const_default and table.profile is None:
            return [head, *[f"    {line}" for line in self._fixed(table, flow)], "}"]
        body = [f"struct p4_table *t = &in->tables[{table.index}];"]
        if table.keys:
            body += self._key_code(table)
            kind = f"P4_{table.kind.upper()}"
            body.append(f"struct p4_entry *e = p4_table_lookup(t, key, {table.key_words}, {kind});")
            body.append("int hit P4_UNUSED = e != NULL;")
            if table.meter is not None:
                body += self._meter(table.meter)
            body += ["if (!e)", "    e = t->default_entry;"]
        else:
            body += ["struct p4_entry *e = t->default_entry;", "const int hit P4_UNUSED = 0;"]
        if flags & 3:
            body.append(f"p4_hit(in, e, {flags}, p->head.ingress_length);")
        body += self._resolve(table)
        body += self._dispatch(table, flow)
        return [head, *[f"    {line}" for line in body], "}"]

    def _meter(self, meter: Array) -> list[str]:
        assert meter.result is not None
        ref = self.model.field_ref(meter.result)
        amount = "p->head.ingress_length" if meter.unit == "bytes" else "1"
        color = Expr("data", "data_code", lo=0, hi=2, ref="color")
        store = self.cx.store(self.cx.layout.place(ref.header), ref.field, color)
        execute = f"p4_meter_execute(&t->meters[e->handle], {amount}, in->head.now_ns)"
        return ["if (e) {", f"    uint64_t color = {execute};", f"    {store}", "}"]

    def _resolve(self, table: Table) -> list[str]:
        """Declares `action` (index or -1) and `args`."""
        if table.profile is None:
            return ["int32_t action = e->act.kind ? e->act.number : -1;", "const uint64_t *args P4_UNUSED = e->data;"]
        profile = table.profile
        lines = [
            "int32_t action = -1;",
            "const uint64_t *args P4_UNUSED = e->data;",
            "const struct p4_member *member = NULL;",
            "if (e->act.kind == P4_REF_MEMBER)",
            f"    member = &in->profiles[{profile.index}].members[e->act.number];",
        ]
        if profile.selector is not None:
            choose = f"p4_group_choose(in, &in->profiles[{profile.index}], e->act.number, hash)"
            lines += [
                "else if (e->act.kind == P4_REF_GROUP) {",
                f"    uint64_t hash = {profile.function}(in, p, NULL, 0);",
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

    def _fixed(self, table: Table, flow: Flow) -> list[str]:
        """A table without a key whose action cannot change: a call."""
        self._dispatch(table, flow)  # for what it refuses
        entry = table.node["default_entry"]
        action = self._action(entry["action_id"])
        words = [w for _, w in action.params]
        # a wrong number of arguments is refused with the initial entries
        values = [d.hex() & ((1 << w) - 1) for d, w in zip(entry["action_data"].items(), words, strict=False)]
        args = pack_args(words[: len(values)], values, table.arg_words)
        given = f"(const uint64_t[]){{{', '.join(literal(w, 64) for w in args)}}}" if args else "NULL"
        following = table.node["next_tables"]
        after = following.get("__MISS__" if "__HIT__" in following.names() else action.name)
        stop = [f"if (p->head.exit) {flow.stop}"] if action.id in self.exits else []
        return [f"action_{action.index}(in, p, {given});", *stop, flow.goto(after)]

    def _dispatch(self, table: Table, flow: Flow) -> list[str]:
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
