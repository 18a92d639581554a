"""Random P4 programs for v1model, their entries and packets: `random_program(seed)` gives the same each time.

What it draws: bit and int of 1 to 100 bits, bool, enums with and without values, structs, tuples, headers, a stack, a
union; a parser with a loop over the stack, lookahead and select with masks and ranges; functions and actions with
parameters of every direction and data of the control plane; every operator; slices on both sides; calls in any place;
if, switch, loops, return and exit; tables of every match kind with constant entries and entries of the control plane;
register, counter and hash; some of the kinds of `random_features`.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from support.p4.control_plane import RuntimeEntry
from support.p4.random_expressions import Callee, Env, bits
from support.p4.random_features import Features
from support.p4.random_tree import Items, Node, Part, Tree

INCLUDES = "#include <core.p4>\n#include <v1model.p4>\n"
TYPES = (
    "enum E { A, B, C }",
    "enum bit<8> SE { ONE = 1, TWO = 2, BIG = 200 }",
    "struct inner_t { bit<9> n; bool f; E e; }",
    "header base_t { bit<8> a; bit<8> b; bit<16> c; int<8> i; bit<32> d; bit<64> l; "
    "bit<65> x; int<33> y; bit<6> z; SE k; }",
    "header item_t { bit<8> v; bit<7> w; bit<1> more; }",
    "header opt_t { int<16> p; SE q; bit<65> w; bit<7> pad; }",
    "header wide_t { bit<33> l; int<7> r; }",
    "header_union u_t { item_t x; wide_t y; }",
)
FIELDS = ("base_t h;", "item_t[3] s;", "opt_t o;", "u_t u;")
META_FIELDS = ("bit<8> m;", "bit<16> n;", "int<13> s;", "bool t;", "E e;", "inner_t in1;")
HEADER = {
    "hdr.h.a": "bit<8>", "hdr.h.b": "bit<8>", "hdr.h.c": "bit<16>", "hdr.h.i": "int<8>", "hdr.h.d": "bit<32>",
    "hdr.h.l": "bit<64>", "hdr.h.x": "bit<65>", "hdr.h.y": "int<33>", "hdr.h.z": "bit<6>", "hdr.h.k": "SE",
}  # fmt: skip
META = {
    "meta.m": "bit<8>", "meta.n": "bit<16>", "meta.s": "int<13>", "meta.t": "bool", "meta.e": "E",
    "meta.in1": "inner_t", "meta.in1.n": "bit<9>", "meta.in1.f": "bool", "meta.in1.e": "E",
}  # fmt: skip
LOCALS = {"x": "bit<8>", "w": "bit<48>", "sg": "int<7>", "st": "inner_t", "st.n": "bit<9>", "st.f": "bool"}
EXTERNS = ("register<bit<16>>(4) r;", "counter(4, CounterType.packets) c;")
VARIABLES = (
    "bit<8> x = 1;", "bit<48> w = 5;", "int<7> sg = -3;", "inner_t st = {n = 3, f = true, e = E.B};",
    "tuple<bit<8>, int<16>> tp = {8w4, -16s2};",
)  # fmt: skip
BASE_BYTES = 31
PARAMS = "inout headers hdr, inout meta_t meta, inout standard_metadata_t sm"
BOTH = "inout headers hdr, inout meta_t meta"
TAIL = (
    "control Dep(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr); } } "
    "V1Switch(P(), VC(), Ig(), Eg(), CC(), Dep()) main;\n"
)


class Maker(Features):
    """Draws one program."""

    def tree(self, packets: int) -> Tree:
        """Return the program, its entries, and packets."""
        self.configure()
        # Few names, so that calls meet variables that others write.
        places = {**HEADER, **META}
        chosen = {"hdr.h.a", "hdr.h.b", *self.rng.sample(list(places), self.rng.randint(3, 10))}
        places = {name: type_ for name, type_ in places.items() if name in chosen}
        self.common = [type_ for type_ in [*places.values(), *LOCALS.values()] if bits(type_)]
        outside = Env(dict(places), dict(places), [])
        functions: list[Node] = []
        for i in range(self.rng.randint(0, 3)):
            made, callee = self.function(f"fun{i}", outside)
            functions.append(made)
            outside.functions.append(callee)
        for i in range(self.rng.randint(0, 2)):
            made, callee = self.control(f"Sub{i}", outside)
            functions.append(made)
            outside.controls.append(callee)
        parser = self.parser(outside.functions)
        ingress = self.ingress(outside)
        egress = Env(
            {**places, "g": "bit<16>", **self.standard(egress=True)}, {**places, "g": "bit<16>"}, outside.functions
        )
        egress.egress = True
        egress.kinds = ("guard", "validity", "for", "return", "exit", "register", "hash", *self.texts("egress"))
        body = self.block(egress, 1, self.rng.randint(0, 2))
        parts: list[Part] = [
            INCLUDES,
            _removable(*TYPES, *self.texts("types")),
            "\nstruct headers { ",
            _removable(*FIELDS, *self.texts("fields"), between=" "),
        ]
        parts += [
            " }\nstruct meta_t { ",
            _removable(*(self.annotated(f) for f in (*META_FIELDS, *self.texts("meta"))), between=" "),
            " }\n",
            Items(functions),
            "\n",
            parser,
            "\n",
            ingress,
            "\n",
        ]
        parts += [
            f"control Eg({PARAMS}) {{\n",
            _removable(*EXTERNS, "bit<16> g = 0;", between=" "),
            "\n",
        ]
        parts += ["apply {\n", body, "\n}\n}\n", f"control VC({BOTH}) {{ apply {{ ", self.checksums("verify"), " } }\n"]
        root = Node([*parts, f"control CC({BOTH}) {{ apply {{ ", self.checksums("update"), " } }\n", TAIL])
        return Tree(root, self.entries, [self.packet() for _ in range(packets)])

    def parser(self, functions: list[Callee]) -> Node:
        rng = self.rng
        env = Env({**HEADER, **META}, {"meta.m": "bit<8>", "meta.n": "bit<16>"}, functions)
        ways: list[Node] = []
        to = ("stack", "opt", "union", "accept", *self.texts("states"))
        for i in range(rng.randint(1, 3)):
            low, high = sorted((rng.getrandbits(8), rng.getrandbits(8)))
            key = rng.choice((f"{low}", f"{low} &&& {rng.getrandbits(8)}", f"{low} .. {high}", f"8w{i}"))
            ways.append(Node([f"({key}, _): {rng.choice(to)};"]))
        part, mask = rng.getrandbits(3), rng.getrandbits(3)
        if self.portable:
            # p4c makes a second default of what matches everything, and BMv2 goes by the last one.
            mask |= 1
        ways.append(Node([f"(_, {part} &&& {mask}): {rng.choice(to[:2] + to[4:])};"]))
        ways += [Node([f"(_, {rng.getrandbits(2)} &&& 3): {name};"]) for name in self.texts("states")]
        rng.shuffle(ways)
        more = "hdr.s.last.more" if rng.random() < 0.6 else "pkt.lookahead<bit<1>>()"
        check = Node(["verify(", self.expr(env, "bool", 2), ", error.ParserInvalidArgument);"])
        skip = Node(["pkt.advance(8);"])
        first: list[Part] = [
            f"parser P(packet_in pkt, out headers hdr, {PARAMS[19:]}) {{\n",
            Items(self.set_states(env, to[:4])),
            "\nstate start {\npkt.extract(hdr.h);\n",
            Items([self._assign(env, 1) for _ in range(rng.randint(0, 2))]),
            "\n",
            Items([s for s in (check, skip) if rng.random() < 0.2]),
            "\ntransition select(",
            self.key(env, 1),
            ", hdr.h.z[2:0]) {\n",
            Items(ways),
            f"\ndefault: {rng.choice(('accept', 'stack', 'union'))}; }} }}\n",
        ]
        after = rng.choice(("accept", "opt"))
        states = (
            f"state stack {{ pkt.extract(hdr.s.next); transition select({more}) {{ 1: stack; default: {after}; }} }}",
            "state opt { pkt.extract(hdr.o); transition accept; }",
            "state union { transition select(pkt.lookahead<bit<8>>()) { 0 .. "
            f"{rng.getrandbits(8)}: one; default: two; }} }}",
            f"state one {{ pkt.extract(hdr.u.x); transition {rng.choice(('accept', 'stack'))}; }}",
            "state two { pkt.extract(hdr.u.y); transition accept; }",
        )
        return Node([*first, Items([*(Node([s]) for s in states), *self.var_states(env)]), "\n}"])

    def ingress(self, outside: Env) -> Node:
        rng = self.rng
        env = outside.with_names({**LOCALS, **self.standard(egress=False)}, LOCALS)
        declared: list[Node] = []
        data_actions = []
        for i in range(rng.randint(1, 4)):
            made, callee = self.action(f"act{i}", env, directed=rng.random() < 0.7)
            declared.append(made)
            env.actions.append(callee)
            data_actions.append(callee)
        tables = []
        for i in range(rng.randint(0, 3)):
            made, actions = self.table(f"t{i}", env, data_actions)
            declared.append(made)
            tables.append((f"t{i}", actions))
        if "profile" in self.names_drawn:
            made, actions = self.profiled(env, data_actions)
            declared.append(made)
            tables.append(("ta", actions))
        if "meter" in self.names_drawn:
            made, actions = self.metered()
            declared.append(made)
            tables.append(("tm", actions))
        self.tables = tuple(tables)
        env.readable |= {"tp[0]": "bit<8>", "tp[1]": "int<16>"}
        env.kinds = (
            "guard",
            "guard",
            "validity",
            "for",
            "return",
            "exit",
            "action",
            "action",
            "register",
            "hash",
            "drop",
            "control",
            *self.texts("ingress"),
        )
        body = self.block(env, 2, rng.randint(2, 6))
        # BMv2 applies a table once on a path: each gets its place between the statements.
        pieces: list[Node] = list(body.nodes)
        for name, actions in tables:
            self.tables = ((name, actions),)
            use = getattr(self, rng.choice(("_table", "_hit", "_action_run")))(env, 1)
            pieces.insert(rng.randint(0, len(pieces)), use)
        instances = [f"Sub{i}() Sub{i}_inst;" for i in range(len(env.controls))]
        head = Node(
            [
                f"control Ig({PARAMS}) {{\n",
                _removable(*EXTERNS, *VARIABLES, *instances, *self.texts("locals"), between=" "),
                "\n",
            ]
        )
        return Node([head, Items(declared), "\napply { sm.egress_spec = 2;\n", Items(pieces), "\n} }"])

    # --- tables ---

    def table(self, name: str, env: Env, actions: list[Callee]) -> tuple[Node, tuple[str, ...]]:
        """Return a table, and the names of its actions."""
        rng = self.rng
        keys, types = [], []
        lpm = rng.random() < 0.3
        for i in range(rng.randint(1, 3)):
            kind = (
                ("lpm" if i == 0 else "exact")
                if lpm
                else rng.choice(("exact", "exact", "ternary", "range", "optional"))
            )
            numbers = [n for n, t in env.readable.items() if (b := bits(t)) and b[0] <= 64 and not b[1] and "." in n]
            if self.portable and lpm and i == 0:
                # BMv2 counts a prefix from the first bit of whole bytes.
                numbers = [n for n in numbers if (bits(env.readable[n]) or (0, False))[0] % 8 == 0]
            key = rng.choice(numbers)
            type_ = env.readable[key]
            expr = Node([key], type_)
            if rng.random() < 0.3:
                expr = self.expr(env, type_, 1)
            keys.append(Node([expr, f': {kind} @name("k{i}");']))
            types.append((kind, (bits(type_) or (8, False))[0]))
        chosen = rng.sample(actions, rng.randint(1, len(actions)))
        listed, bound = self.listed(env, chosen)
        rows: list[Node] = []
        made: list[RuntimeEntry] = []
        seen = set()
        for number in range(rng.randint(0, 5)):
            action = rng.choice(chosen)
            values = [self._key(kind, width) for kind, width in types]
            if tuple(values) in seen:
                continue
            seen.add(tuple(values))
            data = tuple(self.data(type_) for type_, _ in action.data)
            made.append(RuntimeEntry(name, tuple(values), action.name, data, number + 1))
        if rng.random() < 0.4:
            for entry in made:
                written = ", ".join(self._written(k, v) for k, v in zip(types, entry.keys, strict=True))
                callee = next(a for a in chosen if a.name == entry.action)
                args = [*bound[entry.action], *(self.constant(t) for t, _ in callee.data)]
                rows.append(Node([f"({written}): {entry.action}({', '.join(args)});"]))
        else:
            self.entries += made
        parts: list[Part] = [f"table {name} {{\nkey = {{ ", Items(keys, " "), " }\nactions = { "]
        parts += [listed, " }\n"]
        default = rng.choice(chosen)
        if rng.random() < 0.5:
            args = [*bound[default.name], *(self.constant(t) for t, _ in default.data)]
            parts.append(Items([Node([f"default_action = {default.name}({', '.join(args)});"])]))
        if rows:
            parts += [Items([Node(["\nconst entries = {\n", Items(rows), "\n}"])])]
        return Node([*parts, "\n}"]), tuple(a.name for a in chosen)

    def _key(self, kind: str, width: int) -> tuple[int, int]:
        rng = self.rng
        value = rng.choice([0, 1, 2, 3, (1 << width) - 1, rng.getrandbits(width)]) % (1 << width)
        if kind == "exact":
            return value, 0
        if kind == "lpm":
            prefix = rng.randint(0, width)
            return value >> (width - prefix) << (width - prefix), prefix
        if kind == "ternary":
            mask = rng.choice([0, 1, (1 << width) - 1, rng.getrandbits(width)]) % (1 << width)
            return value & mask, mask
        if kind == "optional":
            return (value, (1 << width) - 1) if rng.random() < 0.6 else (0, 0)
        other = rng.getrandbits(width)
        return min(value, other), max(value, other)

    @staticmethod
    def _written(kind: tuple[str, int], key: tuple[int, int]) -> str:
        (name, width), (first, second) = kind, key
        if name == "exact":
            return f"{width}w{first}"
        if name == "range":
            return f"{width}w{first} .. {width}w{second}"
        if name == "optional":
            return f"{width}w{first}" if second else "_"
        mask = ((1 << second) - 1) << (width - second) if name == "lpm" else second
        return f"{width}w{first} &&& {width}w{mask}"

    def packet(self) -> tuple[int, bytes]:
        """Return a port and a packet; few are too short for their headers."""
        rng = self.rng
        small = rng.random() < 0.5
        data = bytes(rng.choice((0, 1, 2, 3, 128, 255)) if small else rng.getrandbits(8) for _ in range(BASE_BYTES))
        data += bytes(rng.choice((0, 1, 2, 3, 255, rng.getrandbits(8))) for _ in range(rng.choice((0, 1, 6, 12, 24))))
        return rng.randrange(8), data[: rng.randrange(len(data))] if rng.random() < 0.03 else data


def _removable(*texts: str, between: str = "\n") -> Items:
    return Items([Node([text]) for text in texts], between)


def random_program(
    seed: int, packets: int = 20, features: Collection[str] | None = None, *, portable: bool = False
) -> Tree:
    """Return the program of a seed.

    Args:
        features: what it has of `FEATURES`, instead of what it draws.
        portable: leave out what p4c is known to refuse for BMv2.
    """
    return Maker(random.Random(seed), features, portable=portable).tree(packets)
