"""Expressions: generated C against an evaluator over Python integers, which are unbounded as BMv2's are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from p4lite.switch.runtime.loader import load_program
from support.switch.bmv2_json import Doc, assign, expr, extract, fld, hdr, num
from support.switch.runner import Runner

INPUTS = [
    ("a", 8, False),
    ("b", 7, False),
    ("c", 1, False),
    ("d", 16, False),
    ("e", 32, False),
    ("f", 48, False),
    ("g", 64, False),
    ("h", 65, False),
    ("i", 128, False),
    ("j", 200, False),
    ("k", 8, True),
    ("l", 31, True),
    ("m", 64, True),
    ("n", 127, True),
    ("o", 129, True),
    ("p", 3, False),
]
PAD = -sum(w for _, w, _ in INPUTS) % 8
WIDTH = {name: (width, signed) for name, width, signed in INPUTS}
RESULTS = (1, 8, 13, 32, 64, 72, 128, 160, 256)
CELLS = 24  # expressions per program


def signed_value(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


class Maker:
    """Random expressions and their values."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def number(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            if rng.random() < 0.1:
                # All ones of a field: C compilers make of an exclusive or with them a complement, and warn.
                return num((1 << rng.choice(INPUTS)[1]) - 1)
            if rng.random() < 0.3:
                magnitude = rng.getrandbits(rng.choice((1, 4, 8, 33, 64, 90)))
                return num(rng.choice((1, 1, -1)) * magnitude)
            return fld("in", rng.choice(INPUTS)[0])
        op = rng.choice(["+", "-", "*", "&", "|", "^", "~", "<<", ">>", "/", "%", "?", "cast", "cast", "b2d", "neg"])
        if op == "cast":
            kind = rng.choice(("two_comp_mod", "usat_cast", "sat_cast"))
            return expr(kind, self.number(depth - 1), num(rng.choice((2, 7, 8, 16, 63, 64, 65, 100, 130))))
        if op in ("<<", ">>"):
            amount = num(rng.randrange(80)) if rng.random() < 0.6 else fld("in", rng.choice(("p", "b", "a")))
            return expr(op, self.number(depth - 1), amount)
        if op in "/%":
            # BMv2 wants a dividend of at least 0 and a divisor above 0
            below = expr("+", expr("&", self.number(depth - 1), num((1 << 70) - 1)), num(1))
            return expr(op, expr("&", self.number(depth - 1), num((1 << rng.choice((30, 64, 150))) - 1)), below)
        if op == "?":
            return expr("?", self.number(depth - 1), self.number(depth - 1), self.boolean(depth - 1))
        if op == "b2d":
            return expr("b2d", None, self.boolean(depth - 1))
        if op == "~":
            return expr("~", None, self.number(depth - 1))
        if op == "neg":
            return expr("-", None, self.number(depth - 1))
        return expr(op, self.number(depth - 1), self.number(depth - 1))

    def boolean(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        if depth == 0 or rng.random() < 0.5:
            op = rng.choice(("==", "!=", "<", "<=", ">", ">="))
            return expr(op, self.number(max(depth - 1, 0)), self.number(max(depth - 1, 0)))
        if rng.random() < 0.2:
            return expr("d2b", None, self.number(depth - 1))
        if rng.random() < 0.2:
            return expr("not", None, self.boolean(depth - 1))
        if rng.random() < 0.1:
            return expr("valid", None, hdr(rng.choice(("in", "absent"))))
        return expr(rng.choice(("and", "or")), self.boolean(depth - 1), self.boolean(depth - 1))


def evaluate(e: dict[str, Any], fields: dict[str, int]) -> int:
    """Return the value BMv2 would compute; booleans are 0 and 1."""
    kind, value = e["type"], e["value"]
    if kind == "hexstr":
        return int(value, 16)
    if kind == "field":
        return fields[value[1]]
    op = value["op"]
    if op == "valid":
        return int(value["right"]["value"] == "in")
    if op == "?":
        return evaluate(value["left" if evaluate(value["cond"], fields) else "right"], fields)
    b = evaluate(value["right"], fields)
    a = evaluate(value["left"], fields) if value["left"] is not None else 0
    if op in ("two_comp_mod", "usat_cast", "sat_cast"):
        low, high = (0, (1 << b) - 1) if op == "usat_cast" else (-(1 << (b - 1)), (1 << (b - 1)) - 1)
        return signed_value(a, b) if op == "two_comp_mod" else min(max(a, low), high)
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: a // b,
        "%": lambda: a % b,
        "&": lambda: a & b,
        "|": lambda: a | b,
        "^": lambda: a ^ b,
        "~": lambda: ~b,
        "<<": lambda: a << b,
        ">>": lambda: a >> b,
        "==": lambda: int(a == b),
        "!=": lambda: int(a != b),
        "<": lambda: int(a < b),
        "<=": lambda: int(a <= b),
        ">": lambda: int(a > b),
        ">=": lambda: int(a >= b),
        "and": lambda: int(bool(a) and bool(b)),
        "or": lambda: int(bool(a) or bool(b)),
        "not": lambda: int(not b),
        "b2d": lambda: b,
        "d2b": lambda: int(b != 0),
    }[op]()


def program_of(expressions: list[dict[str, Any]], widths: list[int]) -> dict[str, Any]:
    doc = Doc()
    doc.header("in", [[n, w, s] for n, w, s in INPUTS] + ([["pad", PAD]] if PAD else []))
    doc.header("absent", [("x", 8)])
    rest = -sum(widths) % 8
    doc.header("out", [(f"r{i}", w) for i, w in enumerate(widths)] + ([("pad", rest)] if rest else []))
    doc.state("start", [extract("in")])
    stores = [assign(fld("out", f"r{i}"), e) for i, e in enumerate(expressions)]
    doc.run({"op": "add_header", "parameters": [hdr("out")]}, *stores)
    return doc.json()


@pytest.mark.parametrize("part", range(4))
def test_random_expressions(part: int, seed: int) -> None:
    rng = random.Random(seed * 100 + part)
    maker = Maker(rng)
    expressions = [maker.number(rng.choice((1, 2, 3, 4))) for _ in range(CELLS)]
    widths = [rng.choice(RESULTS) for _ in expressions]
    instance = load_program(program_of(expressions, widths)).instance()
    runner = Runner(instance)
    size = (sum(w for _, w, _ in INPUTS) + PAD) // 8
    for _ in range(60):
        data = rng.randbytes(size) if rng.random() < 0.8 else bytes([rng.choice((0, 255, 128, 127))]) * size
        bits, fields = int.from_bytes(data, "big") >> PAD, {}
        for name, width, signed in reversed(INPUTS):
            raw = bits & ((1 << width) - 1)
            fields[name] = signed_value(raw, width) if signed else raw
            bits >>= width
        out = runner.run(data).data[size:]
        got = int.from_bytes(out, "big") >> (-sum(widths) % 8)
        for i in range(len(expressions) - 1, -1, -1):
            want = evaluate(expressions[i], fields) & ((1 << widths[i]) - 1)
            assert got & ((1 << widths[i]) - 1) == want, (expressions[i], fields)
            got >>= widths[i]
    assert not any(instance.faults().values())
    instance.close()


@pytest.mark.parametrize(
    ("width", "signed", "value", "want"),
    [
        (8, False, 300, 255),
        (8, False, -5, 0),
        (8, False, 200, 200),
        (8, True, 200, 127),
        (8, True, -300, -128),
        (8, True, -7, -7),
        (130, False, 1 << 140, (1 << 130) - 1),
        (130, True, -(1 << 140), -(1 << 129)),
    ],
)
def test_saturating_fields(width: int, signed: bool, value: int, want: int) -> None:
    doc = Doc()
    pad = -width % 8
    fields: list[list[Any]] = [["x", width, signed, True]]
    doc.header("h", fields + ([["pad", pad]] if pad else []))
    doc.state("start")
    doc.run({"op": "add_header", "parameters": [hdr("h")]}, assign(fld("h", "x"), num(value)))
    instance = load_program(doc.json()).instance()
    data = Runner(instance).run(b"").data
    assert int.from_bytes(data, "big") >> pad == want & ((1 << width) - 1)
    instance.close()


def test_division_by_zero_gives_zero_and_is_counted() -> None:
    doc = Doc()
    doc.header("h", [("a", 8), ("b", 8)])
    doc.state("start", [extract("h")])
    doc.run(
        assign(fld("h", "a"), expr("/", num(7), fld("h", "b"))),
        assign(fld("h", "b"), expr("%", num(7), fld("h", "b"))),
    )
    instance = load_program(doc.json()).instance()
    assert Runner(instance).run(b"\x09\x00").data == b"\x00\x00"
    assert instance.faults()["division"] == 2
    assert Runner(instance).run(b"\x09\x02").data == b"\x03\x01"
    instance.close()
