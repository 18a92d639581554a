"""Draws random expressions of the types of `random_program`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from support.p4.random_tree import Node, Part, literal

WIDTHS = (1, 2, 3, 7, 8, 8, 8, 9, 13, 16, 16, 24, 31, 32, 33, 48, 63, 64, 65, 100)


def bits(type_: str) -> tuple[int, bool] | None:
    """Return width and signedness of a type, None if it is no number."""
    if not type_.startswith(("bit<", "int<")):
        return None
    return int(type_[4:-1]), type_[0] == "i"


@dataclass
class Callee:
    """A function or an action: directions, types, names of its parameters; `result` "" for an action."""

    name: str
    params: list[tuple[str, str, str]]
    result: str = ""
    data: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Env:
    """What a piece of program may read, write and call. Text of places to their types."""

    readable: dict[str, str]
    writable: dict[str, str]
    functions: list[Callee]
    actions: list[Callee] = field(default_factory=list)
    kinds: tuple[str, ...] = ()
    guarded: bool = False
    controls: list[Callee] = field(default_factory=list)
    egress: bool = False
    called: bool = False
    """Of an action or a function."""

    def with_names(self, readable: dict[str, str], writable: dict[str, str]) -> Env:
        return Env(
            {**self.readable, **readable},
            {**self.writable, **writable},
            self.functions,
            self.actions,
            self.kinds,
            self.guarded,
            self.controls,
            self.egress,
            self.called,
        )


class Expressions:
    """`expr` draws an expression of a type."""

    portable: bool = False
    """Whether only what p4c takes for BMv2 is drawn."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.common = ["bit<8>", "bit<16>"]
        """Types of numbers that variables of the program have."""

    def number_type(self) -> str:
        """Return a type of numbers: mostly one that variables of the program have."""
        if self.rng.random() < 0.7:
            return self.rng.choice(self.common)
        width = self.rng.choice(WIDTHS)
        return f"int<{max(width, 2)}>" if self.rng.random() < 0.3 else f"bit<{width}>"

    def constant(self, type_: str) -> str:
        rng, number = self.rng, bits(type_)
        if number is None:
            choices = {"bool": ("true", "false"), "E": ("E.A", "E.B", "E.C"), "SE": ("SE.ONE", "SE.TWO", "SE.BIG")}
            return rng.choice(choices[type_]) if type_ in choices else literal(type_)
        width, signed = number
        value = rng.choice([0, 1, 2, 3, (1 << width) - 1, 1 << (width - 1), rng.getrandbits(width)])
        value %= 1 << width
        if signed and value >> (width - 1):
            value -= 1 << width
            return f"(-{width}s{-value})" if value != -(1 << (width - 1)) else f"(-{width}s{-value - 1} - {width}s1)"
        return f"{width}{'s' if signed else 'w'}{value}"

    def names(self, env: dict[str, str], type_: str) -> list[str]:
        return [name for name, t in env.items() if t == type_]

    def expr(self, env: Env, type_: str, depth: int) -> Node:
        """Return a random expression."""
        rng = self.rng
        known = self.names(env.readable, type_)
        if depth <= 0 or rng.random() < 0.15:
            return Node([self._name(known) if known and rng.random() < 0.85 else self.constant(type_)], type_)
        options = ["leaf", "ternary", "ternary"]
        callable_here = [f for f in env.functions if f.result == type_ and self._can_call(f, env)]
        if callable_here:
            options += ["call"] * 3
        if bits(type_) is not None:
            options += ["arithmetic"] * 6 + ["unary", "shift", "cast", "cast"]
            if type_.startswith("bit<") and bits(type_) != (1, False):
                options += ["concat", "slice"]
        elif type_ == "bool":
            options += ["compare"] * 5 + ["logic"] * 3 + ["not"]
        kind = rng.choice(options)
        if kind == "leaf":
            return self.expr(env, type_, 0)
        if kind == "ternary":
            parts = [self.expr(env, "bool", depth - 1), self.expr(env, type_, depth - 1)]
            return Node(["(", parts[0], " ? ", parts[1], " : ", self.expr(env, type_, depth - 1), ")"], type_)
        if kind == "call":
            return Node([self.call(rng.choice(callable_here), env, depth - 1)], type_)
        return self.number(env, type_, depth, kind) if bits(type_) else self.boolean(env, depth, kind)

    def number(self, env: Env, type_: str, depth: int, kind: str) -> Node:
        rng = self.rng
        width, signed = bits(type_) or (8, False)
        if kind == "unary":
            return Node([f"({rng.choice('-~')}", self.expr(env, type_, depth - 1), ")"], type_)
        if kind == "shift":
            amount = self.expr(env, "bit<8>", depth - 1)
            by = [f"8w{rng.randint(0, width + 2)}"] if rng.random() < 0.5 else ["(", amount, " & 8w15)"]
            return Node(["(", self.expr(env, type_, depth - 1), f" {rng.choice(('<<', '>>'))} ", *by, ")"], type_)
        if kind == "cast":
            other = self.number_type()
            if self.portable and signed:
                # p4c loses the inner of two casts to a signed type of another width.
                other = type_
            elif rng.random() < 0.2 and (not signed or width > 1):
                other = f"{'bit' if signed else 'int'}<{max(width, 2)}>" if signed or width > 1 else type_
            elif signed != other.startswith("int"):
                other = f"{'int' if signed else 'bit'}<{max(int(other[4:-1]), 2)}>"
            if not signed and width == 1 and rng.random() < 0.5:
                other = "bool"
            if not signed and width == 8 and rng.random() < 0.2:
                other = "SE"
            return Node([f"(({type_}) ", self.expr(env, other, depth - 1), ")"], type_)
        if kind == "concat":
            low = rng.randint(1, width - 1)
            left, right = self.expr(env, f"bit<{width - low}>", depth - 1), self.expr(env, f"bit<{low}>", depth - 1)
            return Node(["(", left, " ++ ", right, ")"], type_)
        if kind == "slice":
            wider = [n for n, t in env.readable.items() if (b := bits(t)) and b[0] > width]
            if not wider:
                return self.expr(env, type_, 0)
            name = rng.choice(wider)
            low = rng.randint(0, (bits(env.readable[name]) or (width, 0))[0] - width)
            return Node([f"{name}[{low + width - 1}:{low}]"], type_)
        op = rng.choice(("+", "-", "*", "&", "|", "^", "|+|", "|-|", "/", "%")[: 8 if self.portable else 10])
        left, right = self.expr(env, type_, depth - 1), self.expr(env, type_, depth - 1)
        if op in ("/", "%"):
            # Signed numbers have no division, and none has one by zero.
            op = "+" if signed else op
            right = right if signed else Node(["(", right, f" | {width}w1)"], type_)
        return Node(["(", left, f" {op} ", right, ")"], type_)

    def boolean(self, env: Env, depth: int, kind: str) -> Node:
        rng = self.rng
        if kind == "not":
            return Node(["(!", self.expr(env, "bool", depth - 1), ")"], "bool")
        if kind == "logic":
            left, right = self.expr(env, "bool", depth - 1), self.expr(env, "bool", depth - 1)
            return Node(["(", left, f" {rng.choice(('&&', '||'))} ", right, ")"], "bool")
        if kind != "compare":
            return self.expr(env, "bool", 0)
        type_ = rng.choice([self.number_type(), "bit<8>", "bit<8>", "bool", "E", "SE", "inner_t"])
        if self.portable and type_ == "inner_t":
            type_ = "bool"
        if type_ == "inner_t" and not self.names(env.readable, type_):
            type_ = "bit<16>"
        ops = ("==", "!=", "<", ">", "<=", ">=") if bits(type_) else ("==", "!=")
        left, right = self.expr(env, type_, depth - 1), self.expr(env, type_, depth - 1)
        return Node(["(", left, f" {rng.choice(ops)} ", right, ")"], "bool")

    def _name(self, known: list[str]) -> str:
        """Return one of the names: mostly a parameter or variable, whose value depends on how it was copied."""
        own = [name for name in known if "." not in name]
        return self.rng.choice(own if own and self.rng.random() < 0.6 else known)

    def target(self, env: Env, type_: str) -> str:
        """Return an l-value of a type: a name, or bits of one."""
        number = bits(type_)
        wider = [n for n, t in env.writable.items() if (b := bits(t)) and number and b[0] > number[0]]
        if self.portable:
            wider = [n for n in wider if env.writable[n].startswith("bit<")]
        if number and not number[1] and wider and self.rng.random() < 0.25:
            name = self.rng.choice(wider)
            low = self.rng.randint(0, int(env.writable[name][4:-1]) - number[0])
            return f"{name}[{low + number[0] - 1}:{low}]"
        return self.rng.choice(self.names(env.writable, type_))

    def _can_call(self, callee: Callee, env: Env) -> bool:
        return all(d in ("in", "") or self.names(env.writable, t) for d, t, _ in callee.params)

    def call(self, callee: Callee, env: Env, depth: int, *, data: bool = False) -> Node:
        """Return a call with random arguments, by position or by name. `data`: with those of the control plane."""
        rng = self.rng
        args = []
        params = [*callee.params, *(("", t, n) for t, n in callee.data)] if data else callee.params
        named = rng.random() < 0.4
        for direction, type_, name in params:
            if direction in ("out", "inout"):
                value = Node([self.target(env, type_)])
            elif direction == "in":
                value = self.expr(env, type_, rng.choice((0, 0, depth)))
            else:
                value = Node([self.constant(type_)])
            args.append(Node([f"{name} = " if named else "", value]))
        if named:
            rng.shuffle(args)
        parts: list[Part] = [callee.name, "("]
        for i, arg in enumerate(args):
            parts += [", " if i else "", arg]
        return Node([*parts, ")"])
