"""What only some random programs have: a program draws few of these, so that it stays small."""

from __future__ import annotations

from dataclasses import dataclass

from support.p4.random_expressions import Env
from support.p4.random_statements import Statements
from support.p4.random_tree import Node

SHARE = 0.25
"""Of the programs that have a feature."""


@dataclass(frozen=True)
class Feature:
    """Declarations that a feature needs, and the kinds of its statements in ingress and egress."""

    types: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
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


class Features(Statements):
    """Draws features, and their statements."""

    def draw(self) -> None:
        """Draw the features of the program."""
        self.features = [f for name, f in FEATURES.items() if self.rng.random() < SHARE]

    def texts(self, part: str) -> list[str]:
        """Return a part of all features."""
        return [text for feature in self.features for text in getattr(feature, part)]

    def var_states(self, env: Env) -> list[Node]:
        """Return states that extract headers with a varbit."""
        if FEATURES["varbit"] not in self.features:
            return []
        lengths = (
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

    def _varbit(self, env: Env, depth: int) -> Node:
        return Node([self.rng.choice(VARBIT)])
