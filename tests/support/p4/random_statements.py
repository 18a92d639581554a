"""Draws random statements of the programs of `random_program`."""

from __future__ import annotations

from support.p4.random_expressions import Callee, Env, Expressions, bits
from support.p4.random_tree import Items, Node, Part

GUARDS = {
    "hdr.o.isValid()": {"hdr.o.p": "int<16>", "hdr.o.q": "SE", "hdr.o.w": "bit<65>"},
    "hdr.u.x.isValid()": {"hdr.u.x.v": "bit<8>", "hdr.u.x.w": "bit<7>"},
    "hdr.u.y.isValid()": {"hdr.u.y.l": "bit<33>", "hdr.u.y.r": "int<7>"},
    "hdr.s[0].isValid()": {"hdr.s[0].v": "bit<8>", "hdr.s[0].w": "bit<7>"},
    "hdr.s[0].isValid() && hdr.s[1].isValid()": {"hdr.s[1].v": "bit<8>", "hdr.s[1].w": "bit<7>"},
}
"""Conditions, and what may be read and written where they hold."""

VALIDITY = (
    "hdr.o.setInvalid();",
    "hdr.o = {p = 16s5, q = SE.TWO, w = 65w77, pad = 7w0};",
    "hdr.s.push_front(1); hdr.s[0] = {v = 8w9, w = 7w3, more = 1w0};",
    "hdr.s.pop_front(1);",
    "hdr.s[1] = hdr.s[0];",
    "hdr.s[2] = hdr.u.x;",
    "hdr.u.x = {v = 8w1, w = 7w2, more = 1w1};",
    "hdr.u.y.setValid(); hdr.u.y.l = 33w7; hdr.u.y.r = 7s3;",
    "hdr.u.y.setInvalid();",
    "hdr.s[0].setInvalid();",
)
"""Statements that change which headers are valid; none is drawn where a guard holds."""


DATA_TYPES = ["bit<8>", "bit<16>", "int<9>", "bit<70>", "bool", "SE"]
"""Types of what the control plane gives to actions."""


class Statements(Expressions):
    """`block` draws statements; `Env.kinds` says which kinds are allowed."""

    fresh = 0
    in_order: bool = True
    """Whether packets pass each control in a known order, so that a register holds a known value."""
    tables: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of tables, and of their actions."""

    def block(self, env: Env, depth: int, count: int) -> Items:
        made = []
        for _ in range(count):
            made.append(self.stmt(env, depth))
        return Items(made)

    def stmt(self, env: Env, depth: int) -> Node:
        """Return a random statement."""
        kinds = ["assign"] * 6 + list(env.kinds)
        if depth > 0:
            kinds += ["if"] * 3 + ["switch", "local"]
        kind = self.rng.choice(kinds)
        if self.portable and (kind == "for" or (kind == "switch" and env.called)):
            kind = "assign"
        if kind in ("guard", "validity", "table", "hit", "action_run") and env.guarded:
            kind = "assign"
        return getattr(self, f"_{kind}")(env, depth)

    def _assign(self, env: Env, depth: int) -> Node:
        rng = self.rng
        if not env.writable:
            return Node([";"])
        target = rng.choice(list(env.writable))
        type_ = env.writable[target]
        number = bits(type_)
        if number and number[0] > 2 and rng.random() < 0.2 and not (self.portable and number[1]):
            low = rng.randint(0, number[0] - 2)
            high = rng.randint(low, number[0] - 1)
            return Node([f"{target}[{high}:{low}] = ", self.expr(env, f"bit<{high - low + 1}>", 2), ";"])
        if number and rng.random() < 0.15:
            return Node([f"{target} {rng.choice(('+=', '-=', '|=', '^=', '&='))} ", self.expr(env, type_, 2), ";"])
        return Node([f"{target} = ", self.expr(env, type_, rng.choice((1, 2, 2, 3))), ";"])

    def _if(self, env: Env, depth: int) -> Node:
        parts: list[Part] = ["if (", self.expr(env, "bool", 2), ") {\n"]
        parts += [self.block(env, depth - 1, self.rng.randint(1, 3)), "\n}"]
        if self.rng.random() < 0.5:
            parts += [" else {\n", self.block(env, depth - 1, self.rng.randint(1, 2)), "\n}"]
        return Node(parts)

    def _local(self, env: Env, depth: int) -> Node:
        self.fresh += 1
        name, type_ = f"v{self.fresh}", self.rng.choice([self.number_type(), "bool", "bit<8>", "E", "inner_t"])
        inner = env.with_names({name: type_}, {name: type_})
        parts: list[Part] = [f"{{ {type_} {name} = ", self.expr(env, type_, 2), ";\n"]
        return Node([*parts, self.block(inner, depth - 1, self.rng.randint(1, 3)), "\n}"])

    def _switch(self, env: Env, depth: int) -> Node:
        rng = self.rng
        type_ = rng.choice(("bit<8>", "E", "bit<3>", "SE"))
        labels = {self.constant(type_) for _ in range(rng.randint(1, 3))}
        cases = []
        for i, label in enumerate(sorted(labels)):
            body = self.block(env, depth - 1, 1)
            falls = i + 1 < len(labels) and rng.random() < 0.25
            cases.append(Node([f"{label}: "] if falls else [f"{label}: {{ ", body, " }"]))
        if rng.random() < 0.7 or cases[-1].parts[0] == "":
            cases.append(Node(["default: { ", self.block(env, depth - 1, 1), " }"]))
        return Node(["switch (", self.expr(env, type_, 1), ") {\n", Items(cases), "\n}"])

    def _for(self, env: Env, depth: int) -> Node:
        self.fresh += 1
        name, rng = f"i{self.fresh}", self.rng
        inner = env.with_names({name: "bit<8>"}, {})
        outside = ("table", "hit", "action_run", "for", "control")
        inner.kinds = (*(k for k in env.kinds if k not in outside), "leave")
        body = self.block(inner, min(depth, 1), rng.randint(1, 2))
        low, high = rng.randint(0, 2), rng.randint(1, 4)
        head = f"for (bit<8> {name} in 8w{low} .. 8w{high}) {{\n"
        if rng.random() < 0.5:
            head = f"for (bit<8> {name} = 0; {name} < {high}; {name} = {name} + 1) {{\n"
        return Node([head, body, "\n}"])

    def _leave(self, env: Env, depth: int) -> Node:
        return Node(["if (", self.expr(env, "bool", 1), f") {{ {self.rng.choice(('break', 'continue'))}; }}"])

    def _return(self, env: Env, depth: int) -> Node:
        return Node(["if (", self.expr(env, "bool", 1), ") { return; }"])

    def _exit(self, env: Env, depth: int) -> Node:
        return Node(["if (", self.expr(env, "bool", 1), ") { exit; }"])

    def _action(self, env: Env, depth: int) -> Node:
        usable = [a for a in env.actions if self._can_call(a, env)]
        if not usable:
            return self._assign(env, depth)
        return Node([self.call(self.rng.choice(usable), env, 1, data=True), ";"])

    def _control(self, env: Env, depth: int) -> Node:
        usable = [c for c in env.controls if self._can_call(c, env)]
        if not usable:
            return self._assign(env, depth)
        return Node([self.call(self.rng.choice(usable), env, 1), ";"])

    def _guard(self, env: Env, depth: int) -> Node:
        guard = self.rng.choice(list(GUARDS))
        inner = env.with_names(GUARDS[guard], GUARDS[guard])
        inner.guarded = True
        parts: list[Part] = [f"if ({guard}) {{\n"]
        if " && " in guard:
            index = Node(["hdr.s[(", self.expr(env, "bit<8>", 1), ") & 1].v"])
            parts += [Items([Node([index, " = ", self.expr(env, "bit<8>", 2), ";"]), self._dynamic(inner)]), "\n"]
        return Node([*parts, self.block(inner, max(depth - 1, 0), self.rng.randint(1, 3)), "\n}"])

    def _dynamic(self, env: Env) -> Node:
        return Node(["hdr.h.a = hdr.s[(", self.expr(env, "bit<8>", 1), ") & 1].v;"])

    def _validity(self, env: Env, depth: int) -> Node:
        return Node([self.rng.choice(VALIDITY)])

    def _register(self, env: Env, depth: int) -> Node:
        index: list[Part] = ["(bit<32>) (", self.expr(env, "bit<8>", 1), " & 8w3)"]
        if not self.in_order:
            return Node(["c.count(", *index, ");"])
        if self.rng.random() < 0.5:
            return Node(["r.write(", *index, ", ", self.expr(env, "bit<16>", 2), ");"])
        targets = self.names(env.writable, "bit<16>")
        if not targets:
            return Node(["c.count(", *index, ");"])
        return Node([f"r.read({self.rng.choice(targets)}, ", *index, ");"])

    def _hash(self, env: Env, depth: int) -> Node:
        targets = self.names(env.writable, "bit<16>")
        if not targets:
            return self._assign(env, depth)
        algo = self.rng.choice(("crc16", "crc32", "csum16", "xor16", "identity"))
        data: list[Part] = [self.expr(env, "bit<16>", 1), ", ", self.expr(env, "bit<8>", 1)]
        target = self.rng.choice(targets)
        return Node([f"hash({target}, HashAlgorithm.{algo}, 16w{self.rng.randint(0, 9)}, {{", *data, "}, 16w1000);"])

    def _drop(self, env: Env, depth: int) -> Node:
        return Node(["if (", self.expr(env, "bool", 2), " && hdr.h.a > 8w250) { mark_to_drop(sm); }"])

    # --- tables ---

    def _table(self, env: Env, depth: int) -> Node:
        return Node([f"{self.rng.choice(self.tables)[0]}.apply();"]) if self.tables else self._assign(env, depth)

    def _hit(self, env: Env, depth: int) -> Node:
        if not self.tables:
            return self._assign(env, depth)
        name = self.rng.choice(self.tables)[0]
        first, second = self.block(env, 0, 1), self.block(env, 0, 1)
        return Node([f"if ({name}.apply().{self.rng.choice(('hit', 'miss'))}) {{ ", first, " } else { ", second, " }"])

    def _action_run(self, env: Env, depth: int) -> Node:
        if not self.tables:
            return self._assign(env, depth)
        name, actions = self.rng.choice(self.tables)
        cases = [Node([f"{a}: {{ ", self.block(env, 0, 1), " }"]) for a in actions if self.rng.random() < 0.7]
        cases.append(Node(["default: { ", self.block(env, 0, 1), " }"]))
        return Node([f"switch ({name}.apply().action_run) {{\n", Items(cases), "\n}"])

    def parameters(self, env: Env, prefix: str, *, results: bool) -> tuple[list[tuple[str, str, str]], Env, list[Node]]:
        """Return random parameters, the body's environment, and statements that give out parameters a value."""
        rng, params, first = self.rng, [], []
        for i in range(rng.randint(0 if not results else 1, 3)):
            direction, type_ = (
                rng.choice(("in", "out", "inout")),
                rng.choice([self.number_type(), "bit<8>", "bit<16>", "bool", "SE"]),
            )
            if direction != "in" and type_ not in env.writable.values():
                type_ = "bit<8>"
            params.append((direction, type_, f"{prefix}{i}"))
            if direction == "out":
                first.append(Node([f"{prefix}{i} = {self.constant(type_)};"]))
        inner = env.with_names({n: t for _, t, n in params}, {n: t for d, t, n in params if d != "in"})
        return params, inner, first

    def function(self, name: str, outside: Env) -> tuple[Node, Callee]:
        """Return a function and what its callers need."""
        params, _, first = self.parameters(outside, f"{name}_", results=True)
        result = self.rng.choice(["bit<8>", "bit<16>", "bool", self.number_type()])
        inner = Env({n: t for _, t, n in params}, {n: t for d, t, n in params if d != "in"}, outside.functions)
        inner.called = True
        early: list[Part] = ["if (", self.expr(inner, "bool", 1), ") { return ", self.expr(inner, result, 1), "; }\n"]
        body: list[Part] = [*[p for s in first for p in (s, "\n")], self.block(inner, 1, self.rng.randint(0, 2)), "\n"]
        listed = ", ".join(f"{d} {t} {n}" for d, t, n in params)
        parts: list[Part] = [f"{result} {name}({listed}) {{\n", *body]
        if self.rng.random() < 0.5:
            parts.append(Items([Node(early)]))
        parts += [self.uses(params, inner), "\n"]
        return Node([*parts, "return ", self.expr(inner, result, 2), ";\n}"]), Callee(name, params, result)

    def control(self, name: str, outside: Env) -> tuple[Node, Callee]:
        """Return a control that others apply, and what they need."""
        params, _, first = self.parameters(outside, f"{name}_", results=True)
        inner = Env({n: t for _, t, n in params}, {n: t for d, t, n in params if d != "in"}, outside.functions)
        inner.kinds = ("return", "exit", "for")
        listed = ", ".join(f"{d} {t} {n}" for d, t, n in params)
        parts: list[Part] = [f"control {name}({listed}) {{ apply {{\n", *[p for s in first for p in (s, "\n")]]
        parts += [self.block(inner, 1, self.rng.randint(1, 3)), "\n", self.uses(params, inner), "\n} }"]
        return Node(parts), Callee(f"{name}_inst.apply", params)

    def action(self, name: str, outside: Env, *, directed: bool) -> tuple[Node, Callee]:
        """Return an action and what its callers need."""
        params, inner, first = self.parameters(outside, f"{name}_", results=False) if directed else ([], outside, [])
        data = []
        types = ["bit<8>", "bit<16>", "bit<70>"] if self.portable else DATA_TYPES
        if self.rng.random() < 0.6 or not directed:
            data = [(self.rng.choice(types), f"{name}_d{i}") for i in range(2)]
            inner = inner.with_names({n: t for t, n in data}, {})
        inner.kinds = ("return", "exit", "action", "register", "hash", "for", "guard")
        inner.called = True
        listed = ", ".join([*(f"{d} {t} {n}" for d, t, n in params), *(f"{t} {n}" for t, n in data)])
        parts: list[Part] = [f"action {name}({listed}) {{\n"]
        parts += [p for s in first for p in (s, "\n")]
        body = self.block(inner, 1, self.rng.randint(1, 3))
        return Node([*parts, body, "\n", self.uses(params, inner), "\n}"]), Callee(name, params, "", data)

    def uses(self, params: list[tuple[str, str, str]], env: Env) -> Items:
        """Return statements that read parameters after the others: a copy differs from what it was copied from."""
        made = []
        for direction, type_, name in params:
            targets = [t for t in self.names(env.writable, type_) if t != name]
            if direction != "out" and targets:
                made.append(Node([f"{self.rng.choice(targets)} = {name};"]))
        return Items(made)
