"""What only some random programs have: a program draws few of these features, so that it stays small."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from support.p4.control_plane import ControlItem, Group, Member, MemberGroup, Rate, RuntimeEntry, Session, SetMember
from support.p4.random_expressions import Callee, Env, bits
from support.p4.random_statements import Statements
from support.p4.random_tree import Items, Node, Part

SHARE = 0.3
"""Of the programs that have a feature."""
SMALL = (0, 1, 2, 3, 128, 255)
"""Bytes that packets often have."""


@dataclass(frozen=True)
class Feature:
    """Declarations that a feature needs, and the kinds of its statements in ingress and egress."""

    types: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    meta: tuple[str, ...] = ()
    locals: tuple[str, ...] = ()
    """Of the ingress control."""
    ingress: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    """States that the first one may go to."""


FEATURES = {
    "varbit": Feature(
        types=(
            "header var_t { bit<8> n; varbit<64> v; }",
            "bool swapped(inout var_t p, inout var_t q) { var_t t = p; p = q; q = t; return p == q; }",
        ),
        fields=("var_t va;", "var_t[2] vs;"),
        ingress=("varbit",) * 3,
        egress=("varbit",) * 2,
        states=("var", "vars"),
    ),
    "value_set": Feature(types=("struct pair_t { bit<8> f; bit<3> g; }",), states=("set", "pair")),
    "checksum": Feature(),
    "multicast": Feature(ingress=("multicast",) * 3, egress=("drop",)),
    "clone": Feature(ingress=("clone",) * 4, egress=("clone",) * 4 + ("drop",)),
    "again": Feature(ingress=("again",) * 4, egress=("again",) * 4 + ("drop",)),
    "profile": Feature(),
    "meter": Feature(
        meta=("bit<8> colour;",),
        locals=("meter(4, MeterType.packets) mp;", "meter(4, MeterType.bytes) mb;"),
        ingress=("meter",) * 3,
    ),
}
VARBIT = (
    "hdr.vs[0] = hdr.va;",
    "hdr.va = hdr.vs[1];",
    "hdr.va.setInvalid();",
    "hdr.vs.push_front(1);",
    "hdr.vs.pop_front(1);",
    "if (hdr.va.isValid() && hdr.vs[0].isValid()) { hdr.va.v = hdr.vs[0].v; hdr.h.b = hdr.va.n; }",
    "if (hdr.va.isValid() && hdr.vs[1].isValid()) "
    "{ varbit<64> tv = hdr.va.v; hdr.va.v = hdr.vs[1].v; hdr.vs[1].v = tv; }",
    "{ var_t th = hdr.va; hdr.va = hdr.vs[0]; hdr.vs[0] = th; }",
    "if (hdr.vs[0].isValid()) { hdr.va.setValid(); hdr.va.n = 8w7; hdr.va.v = hdr.vs[0].v; }",
    "if (hdr.va == hdr.vs[0]) { hdr.h.a = 8w77; }",
    "if (hdr.va.isValid() && hdr.vs[0].isValid() && hdr.va.v != hdr.vs[0].v) { hdr.h.b = 8w3; }",
    "if (swapped(hdr.va, hdr.vs[0])) { hdr.h.a = 8w5; }",
)
CHECKED = {
    "hdr.h.a": "bit<8>", "hdr.h.b": "bit<8>", "hdr.h.c": "bit<16>", "hdr.h.i": "int<8>", "hdr.h.d": "bit<32>",
    "hdr.h.x": "bit<65>", "hdr.h.y": "int<33>", "hdr.h.z": "bit<6>", "meta.m": "bit<8>", "meta.s": "int<13>",
}  # fmt: skip
"""What checksums are computed of."""
GUARDED = {
    "hdr.o.isValid()": {"hdr.o.p": "int<16>", "hdr.o.w": "bit<65>"},
    "hdr.s[0].isValid()": {"hdr.s[0].v": "bit<8>", "hdr.s[0].w": "bit<7>"},
    "hdr.u.x.isValid()": {"hdr.u.x.v": "bit<8>"},
}
ALGORITHMS = (("csum16", 16), ("csum16", 16), ("crc16", 16), ("xor16", 16), ("crc32", 32))
RATES = ((0, 0), (1, 1), (1, 3), (2, 5), (0, 2))
"""Committed and peak bursts in packets; no rate fills the buckets again while the clock stands still."""
METERED = {
    "md0": "action md0(bit<8> d) { dm.read(meta.colour); hdr.h.a = hdr.h.a + d; }",
    "md1": "action md1() { hdr.h.a = hdr.h.a ^ meta.colour; dm.read(meta.colour); hdr.h.a = hdr.h.a + meta.colour; }",
    "md2": "action md2() { hdr.h.a = hdr.h.a + meta.colour; }",
}
"""Actions of the table with a direct meter."""
LISTS = ("@field_list(1) ", "@field_list(2) ", "@field_list(1, 2) ", "", "")
HOPS = "@field_list(1, 2) bit<8> hops;"
"""How often the packet, or what it is a copy of, was resubmitted, recirculated or cloned: two times at most."""


class Features(Statements):
    """Draws features, and their statements."""

    def __init__(self, rng: random.Random, features: Collection[str] | None = None, *, portable: bool = False) -> None:
        super().__init__(rng)
        self.portable = portable
        self.entries: list[ControlItem] = []
        self.names_drawn = {name for name in FEATURES if rng.random() < SHARE} if features is None else set(features)
        copies = bool(self.names_drawn & {"multicast", "clone"})
        if copies and "again" in self.names_drawn:
            # Which of the copies comes first is open, and with it whom a bucket's last token serves.
            self.names_drawn.discard("meter")
        self.features = [feature for name, feature in FEATURES.items() if name in self.names_drawn]
        self.in_order = not copies
        if self.names_drawn & {"clone", "again"}:
            self.features.append(Feature(meta=(HOPS,)))

    def texts(self, part: str) -> list[str]:
        """Return a part of all features."""
        return [text for feature in self.features for text in getattr(feature, part)]

    def standard(self, *, egress: bool) -> dict[str, str]:
        """Return metadata that features write and the program reads."""
        found = {"sm.checksum_error": "bit<1>"} if "checksum" in self.names_drawn else {}
        if "meter" in self.names_drawn:
            found["meta.colour"] = "bit<8>"
        if self.names_drawn & ({"multicast", "clone", "again"} if egress else {"again"}):
            found["sm.instance_type"] = "bit<32>"
        if egress and "multicast" in self.names_drawn:
            found["sm.egress_rid"] = "bit<16>"
        return found

    # --- parser ---

    def var_states(self, env: Env) -> list[Node]:
        """Return states that extract headers with a varbit."""
        if "varbit" not in self.names_drawn:
            return []
        lengths: tuple[list[Part], ...] = (
            ["((bit<32>) (", self.expr(env, "bit<8>", 1), " & 8w9)) << 3"],
            [f"32w{8 * self.rng.randint(0, 8)}"],
            ["(bit<32>) (pkt.lookahead<bit<8>>() & 8w3) * 8"],
        )
        first, second = self.rng.choices(lengths, k=2)
        after = self.rng.choice(("accept", "opt"))
        again = "transition select(pkt.lookahead<bit<8>>()) { 0 .. 7: vars; default: accept; }"
        return [
            Node(["state var { pkt.extract(hdr.va, ", *first, f"); transition {self.rng.choice(('vars', after))}; }}"]),
            Node(["state vars { pkt.extract(hdr.vs.next, ", *second, f"); {again} }}"]),
        ]

    def key(self, env: Env, depth: int) -> Node:
        """Return a part of a select's key. p4c writes one that turns out as a constant, which BMv2 does not load."""
        return self.expr(env, "bit<8>", depth) if not self.portable else Node([self.rng.choice(("hdr.h.a", "hdr.h.b"))])

    def set_states(self, env: Env, to: tuple[str, ...]) -> list[Node]:
        """Return value sets, and states that select with them; draw their members."""
        if "value_set" not in self.names_drawn:
            return []
        rng = self.rng
        single, pair = rng.choice(("bit<8>", "SE", "int<8>")), rng.choice(("pair_t", "tuple<bit<8>, bit<3>>"))
        if self.portable:
            single, pair = "bit<8>", "pair_t"
        key = {"bit<8>": self.key(env, 1), "SE": Node(["hdr.h.k"]), "int<8>": Node(["hdr.h.i"])}[single]
        for name in ("ps", "pt"):
            self.entries += [SetMember(name, v) for v in rng.sample((*SMALL, 200), rng.randint(0, 4))]
        for value in rng.sample([f << 3 | g for f in SMALL for g in range(8)], rng.randint(0, 16)):
            self.entries.append(SetMember("pp", value))
        cases = [f"ps: {rng.choice(to)};", f"pt: {rng.choice(to)};"]
        if single != "SE":
            cases.insert(rng.randint(0, 2), f"{rng.choice(('5 .. 90', '2', '3 &&& 7'))}: {rng.choice(to)};")
        pairs = [f"pp: {rng.choice(to)};", f"(_, {rng.getrandbits(3)}): {rng.choice(to)};"]
        rng.shuffle(pairs)
        return [
            Node([f"value_set<{single}>(4) ps; value_set<{single}>(4) pt; value_set<{pair}>(16) pp;"]),
            Node(["state set { transition select(", key, ") {\n", _items(cases), f" default: {rng.choice(to)}; }} }}"]),
            Node(
                [
                    "state pair { transition select(",
                    self.key(env, rng.randint(0, 1)),
                    ", hdr.h.z[2:0]) {\n",
                    _items(pairs),
                    f" default: {rng.choice(to)}; }} }}",
                ]
            ),
        ]

    # --- tables ---

    def profiled(self, env: Env, actions: list[Callee]) -> tuple[Node, tuple[str, ...]]:
        """Return an action profile or selector with its table `ta`, and the names of the table's actions."""
        rng, groups = self.rng, self.rng.random() < 0.7
        keys: list[Node] = [Node(["hdr.h.a: ternary;"]), Node(["hdr.h.b: ternary;"])]
        made = "action_profile(16) ap;"
        if groups:
            algorithm = rng.choice(("crc16", "crc32", "csum16", "xor16", "identity"))
            made = f"action_selector(HashAlgorithm.{algorithm}, 16, 16) ap;"
            for i, type_ in enumerate(rng.choices(("bit<16>", "bit<8>", "bit<9>"), k=rng.randint(1, 3))):
                keys.append(Node([self.expr(env, type_, 1), f': selector @name("s{i}");']))
        chosen = rng.sample(actions, rng.randint(1, len(actions)))
        listed, _ = self.listed(env, chosen)
        numbers = rng.sample(range(20), rng.randint(1, 6))
        for number in numbers:
            action = rng.choice(chosen)
            self.entries.append(Member("ap", number, action.name, tuple(self.data(t) for t, _ in action.data)))
        if groups:
            for number in (1, 2):
                self.entries.append(MemberGroup("ap", number, tuple(rng.sample(numbers, rng.randint(1, len(numbers))))))
        masks, rows = ((0, 0), (0, 0), (1, 1), (0, 1), (2, 255)), {}
        for priority in range(rng.randint(2, 8)):
            member = group = -1
            if groups and rng.random() < 0.7:
                group = rng.randint(1, 2)
            else:
                member = rng.choice(numbers)
            key = (rng.choice(masks), rng.choice(masks))
            rows[key] = RuntimeEntry("ta", key, "", (), priority + 1, member, group)
        self.entries += rows.values()
        table: list[Part] = [f"{made}\ntable ta {{\nkey = {{ ", Items(keys, " "), " }\nactions = { "]
        return Node([*table, listed, " }\nimplementation = ap;\n}"]), tuple(a.name for a in chosen)

    def metered(self) -> tuple[Node, tuple[str, ...]]:
        """Return a direct meter with its table `tm` and the table's actions, and their names."""
        rng = self.rng
        for value in rng.sample(SMALL, rng.randint(2, 5)):
            # p4c has the colour in the variable before the action, and also where the action does not read it.
            name = rng.choice(["md0"] if self.portable else list(METERED))
            data = (rng.getrandbits(8),) if name == "md0" else ()
            self.entries.append(RuntimeEntry("tm", ((value, 0),), name, data, 1, bursts=rng.choice((*RATES, ()))))
        declared = _items(["direct_meter<bit<8>>(MeterType.packets) dm;", *METERED.values()])
        table = "table tm { key = { hdr.h.b: exact; } actions = { md0; md1; md2; NoAction; } meters = dm; }"
        return Node([declared, "\n", table]), tuple(METERED)

    def listed(self, env: Env, chosen: list[Callee]) -> tuple[Items, dict[str, list[str]]]:
        """Return a table's list of actions, and the arguments that it binds."""
        rng, made, bound = self.rng, [], {}
        for action in chosen:
            names = []
            for direction, type_, _ in action.params:
                if direction == "in":
                    names.append(rng.choice(self.names(env.readable, type_) or [self.constant(type_)]))
                else:
                    names.append(rng.choice(self.names(env.writable, type_)))
            bound[action.name] = names
            made.append(Node([f"{action.name}({', '.join(names)});" if names else f"{action.name};"]))
        return Items([*made, Node(["NoAction;"])], " "), bound

    def data(self, type_: str) -> int:
        """Return an argument that the control plane gives, as a number."""
        if type_ == "SE":
            return self.rng.choice((1, 2, 200))
        width = 1 if type_ == "bool" else (bits(type_) or (8, False))[0]
        return self.rng.getrandbits(width)

    # --- statements ---

    def _varbit(self, env: Env, depth: int) -> Node:
        return Node([self.rng.choice(VARBIT)])

    def _multicast(self, env: Env, depth: int) -> Node:
        return Node(["if (", self.expr(env, "bool", 2), f") {{ sm.mcast_grp = 16w{self.rng.randint(0, 4)}; }}"])

    def _clone(self, env: Env, depth: int) -> Node:
        rng, kind = self.rng, "E2E" if env.egress else "I2E"
        session = rng.choice(("32w1", "32w2", "32w3", "32w9", "(bit<32>) (hdr.h.a & 8w3)"))
        head: list[Part] = ["if (", self.expr(env, "bool", 1)]
        if "again" not in self.names_drawn and rng.random() < 0.4:
            return Node([*head, f" && sm.instance_type != 32w2) {{ clone(CloneType.{kind}, {session}); }}"])
        call = f"clone_preserving_field_list(CloneType.{kind}, {session}, {rng.randint(1, 2)});"
        return Node([*head, f" && meta.hops < 2) {{ meta.hops = meta.hops + 1; {call} }}"])

    def _again(self, env: Env, depth: int) -> Node:
        verb = "recirculate" if env.egress else "resubmit"
        call = f"{verb}_preserving_field_list({self.rng.randint(1, 2)});"
        return Node(["if (", self.expr(env, "bool", 1), f" && meta.hops < 2) {{ meta.hops = meta.hops + 1; {call} }}"])

    def _meter(self, env: Env, depth: int) -> Node:
        targets = [n for n, t in env.writable.items() if (b := bits(t)) and not b[1] and b[0] > 1]
        if not targets:
            return self._assign(env, depth)
        index: list[Part] = ["(bit<32>) (", self.expr(env, "bit<8>", 1), " & 8w3)"]
        return Node([f"{self.rng.choice(('mp', 'mb'))}.execute_meter(", *index, f", {self.rng.choice(targets)});"])

    # --- controls of checksums ---

    def checksums(self, verb: str) -> Items:
        """Return calls of verify_checksum or update_checksum."""
        count = self.rng.randint(1, 2) if "checksum" in self.names_drawn else 0
        return Items([self._checksum(verb) for _ in range(count)])

    def _checksum(self, verb: str) -> Node:
        rng = self.rng
        algorithm, width = rng.choice(ALGORITHMS)
        target = "hdr.h.c" if width == 16 else "hdr.h.d"
        condition, known = rng.choice(("true", f"hdr.h.a < 8w{rng.getrandbits(8)}", "meta.t")), dict(CHECKED)
        if rng.random() < 0.4:
            condition = rng.choice(list(GUARDED))
            known |= GUARDED[condition]
        data = rng.sample([k for k in known if not self.portable or k != target], rng.randint(1, 5))
        if rng.random() < 0.3 and not self.portable:
            # What is always right, without payload: the field, and twice a number.
            algorithm, target, data = "xor16", "hdr.h.c", ["hdr.h.c", "16w77", "16w77"]
            known |= {"16w77": "bit<16>"}
        size = sum((bits(known[name]) or (0, False))[0] for name in data)
        if size % width:
            pad = width - size % width
            data.insert(rng.randint(0, len(data)), f"{pad}w{rng.getrandbits(pad)}")
        if "varbit" in self.names_drawn and width == 16 and rng.random() < 0.5:
            condition, data = "hdr.va.isValid()", ["hdr.va.n", "hdr.va.v", "8w0"]
            data += ["hdr.h.a", "hdr.h.b"] if self.portable else ["hdr.h.c"]
        call = f"{verb}_checksum{'_with_payload' if rng.random() < 0.4 else ''}"
        return Node([f"{call}({condition}, {{{', '.join(data)}}}, {target}, HashAlgorithm.{algorithm});"])

    # --- control plane ---

    def configure(self) -> None:
        """Draw groups, sessions and rates."""
        rng = self.rng

        def replicas() -> tuple[tuple[int, int], ...]:
            return tuple({(rng.randrange(8), rng.randrange(4)) for _ in range(rng.randint(0, 3))})

        if self.names_drawn & {"multicast", "clone"}:
            self.entries += [Group(number, replicas()) for number in (1, 2, 3)]
        if "clone" in self.names_drawn:
            self.entries.append(Session(1, rng.randrange(8), 0, ()))
            self.entries.append(Session(2, -1, rng.randint(1, 3), ()))
            self.entries.append(Session(3, -1, 0, replicas()))
        if "meter" in self.names_drawn:
            for name, unit in (("mp", 1), ("mb", 40)):
                for index in rng.sample(range(4), rng.randint(1, 4)):
                    committed, peak = rng.choice(RATES)
                    self.entries.append(Rate(name, index, committed * unit, peak * unit))

    def annotated(self, field: str) -> str:
        """Return a field of the user metadata, perhaps in a list of what copies keep."""
        kept = self.names_drawn & {"clone", "again"} and "hops" not in field
        return f"{self.rng.choice(LISTS)}{field}" if kept else field


def _items(texts: list[str]) -> Items:
    return Items([Node([text]) for text in texts])
