"""Expressions: what they compute in BMv2 JSON, against their meaning in the language."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.compiler.midend import arith, lir
from support.amount import examples
from support.p4.cases import INPUT, run

A, B, C, D = (INPUT[name] for name in "abcd")

# name, statements, the fields that must differ from the input afterwards
CASES: list[tuple[str, str, dict[str, int]]] = [
    ("add wraps", "hdr.h.a = hdr.h.a + 250;", {"a": (A + 250) & 0xFF}),
    ("sub wraps", "hdr.h.a = hdr.h.a - hdr.h.b;", {"a": (A - B) & 0xFF}),
    ("mul wraps", "hdr.h.c = hdr.h.c * 77;", {"c": (C * 77) & 0xFFFF}),
    ("wrap inside", "hdr.h.c = (bit<16>)(hdr.h.b + 0xff) << 4;", {"c": ((B + 0xFF) & 0xFF) << 4}),
    ("div", "hdr.h.c = hdr.h.c / (bit<16>)hdr.h.a;", {"c": C // A}),
    ("mod", "hdr.h.c = hdr.h.c % 1000;", {"c": C % 1000}),
    ("div by constant", "hdr.h.d = hdr.h.d / 3;", {"d": D // 3}),
    ("and or xor", "hdr.h.a = (hdr.h.a & 0xf0) | (hdr.h.b ^ 0x0f);", {"a": (A & 0xF0) | (B ^ 0x0F)}),
    ("complement", "hdr.h.d = ~hdr.h.d;", {"d": D ^ 0xFFFFFFFF}),
    ("complement inside", "hdr.h.c = (bit<16>)~hdr.h.a;", {"c": A ^ 0xFF}),
    ("negate", "hdr.h.a = -hdr.h.a;", {"a": -A & 0xFF}),
    ("shift left", "hdr.h.c = hdr.h.c << 5;", {"c": (C << 5) & 0xFFFF}),
    ("shift left by all", "hdr.h.c = hdr.h.c << 16;", {"c": 0}),
    ("shift left at run time", "hdr.h.c = hdr.h.c << (hdr.h.a & 7);", {"c": (C << (A & 7)) & 0xFFFF}),
    ("shift by a wide amount", "hdr.h.c = hdr.h.c << hdr.h.d;", {"c": 0}),
    ("shift right", "hdr.h.d = hdr.h.d >> 7;", {"d": D >> 7}),
    ("shift right by a wide amount", "hdr.h.d = hdr.h.d >> hdr.h.d;", {"d": 0}),
    ("shift right signed", "hdr.h.a = (bit<8>)((int<8>)-100 >> 2);", {"a": (-100 >> 2) & 0xFF}),
    ("shift right signed far", "int<8> i = -3; hdr.h.a = (bit<8>)(i >> hdr.h.d);", {"a": 0xFF}),
    ("saturating add", "hdr.h.a = hdr.h.a |+| 250;", {"a": 255}),
    ("saturating sub", "hdr.h.a = hdr.h.a |-| hdr.h.b;", {"a": 0}),
    (
        "saturating signed",
        "int<8> i = 100; int<8> j = -100; hdr.h.a = (bit<8>)(i |+| 100); hdr.h.b = (bit<8>)(j |-| 100);",
        {"a": 127, "b": 0x80},
    ),
    ("slice", "hdr.h.a = hdr.h.d[19:12];", {"a": (D >> 12) & 0xFF}),
    ("slice of a slice", "hdr.h.a = hdr.h.d[23:8][11:4];", {"a": (D >> 12) & 0xFF}),
    ("slice at the top", "hdr.h.a = hdr.h.d[31:24];", {"a": D >> 24}),
    ("assign a slice", "hdr.h.d[15:8] = 0x55;", {"d": (D & 0xFFFF00FF) | 0x5500}),
    ("assign a slice of a slice", "hdr.h.d[23:8][11:4] = hdr.h.a;", {"d": (D & 0xFFF00FFF) | (A << 12)}),
    ("slice of a sum", "hdr.h.a = (hdr.h.c + 0xff00)[15:8];", {"a": ((C + 0xFF00) & 0xFFFF) >> 8}),
    ("concatenate", "hdr.h.d = hdr.h.a ++ hdr.h.c ++ hdr.h.b;", {"d": A << 24 | C << 8 | B}),
    ("concatenate signed", "int<8> i = -2; hdr.h.c = hdr.h.a ++ (bit<8>)i;", {"c": A << 8 | 0xFE}),
    ("cast narrows", "hdr.h.a = (bit<8>)hdr.h.d;", {"a": D & 0xFF}),
    ("cast widens", "hdr.h.d = (bit<32>)hdr.h.b;", {"d": B}),
    (
        "cast sign extends",
        "int<8> i = (int<8>)hdr.h.d[15:8]; hdr.h.c = (bit<16>)(int<16>)i;",
        {"c": 0xFFDE},
    ),
    ("cast to bool and back", "bool t = (bool)hdr.h.a[1:1]; hdr.h.b = 7w0 ++ (bit<1>)t;", {"b": 1}),
    ("compare unsigned", "if (hdr.h.d > 0x7fffffff) hdr.h.a = 1;", {"a": 1}),
    ("compare signed", "if ((int<32>)hdr.h.d < 0) hdr.h.a = 1;", {"a": 1}),
    ("one bit signed", "int<1> i = (int<1>)hdr.h.a[1:1]; if (i < 0) hdr.h.b = 9;", {"b": 9}),
    ("ternary", "hdr.h.a = hdr.h.b > 10 ? hdr.h.b : 8w3;", {"a": B}),
    ("nested ternary", "hdr.h.a = hdr.h.b > 200 ? 8w1 : (hdr.h.b > 100 ? 8w2 : 8w3);", {"a": 3}),
    ("ternary of bools", "bool x = hdr.h.b == 0 ? true : hdr.h.a == 0x12; if (x) hdr.h.c = 1;", {"c": 1}),
    ("logic", "if (hdr.h.a == 0 || !(hdr.h.b == 0) && hdr.h.c != 0) hdr.h.d = 5;", {"d": 5}),
    ("bool equality", "bool x = hdr.h.a == 0x12; bool y = hdr.h.b == 0; if (x != y) hdr.h.d = 5;", {"d": 5}),
    ("assign op", "hdr.h.a += 3; hdr.h.b |= 1; hdr.h.c <<= 4;", {"a": A + 3, "b": B | 1, "c": (C << 4) & 0xFFFF}),
    ("wide arithmetic", "bit<200> w = (bit<200>)hdr.h.d << 150; hdr.h.a = (w >> 170)[7:0];", {"a": (D >> 20) & 0xFF}),
    ("constant folding", "const bit<8> k = 3 * 5; hdr.h.a = k + 1;", {"a": 16}),
    ("compile-time int", "const int k = 1 << 20; hdr.h.d = k >> 4;", {"d": 1 << 16}),
    (
        "struct initialiser",
        "tuple<bit<8>, bit<16>> t = {1, 2}; hdr.h.a = t[0]; hdr.h.c = t[1];",
        {"a": 1, "c": 2},
    ),
    ("list into header", "hdr.h = {1, 2, 3, 4};", {"a": 1, "b": 2, "c": 3, "d": 4}),
    ("swap by list", "hdr.h = {hdr.h.b, hdr.h.a, hdr.h.c, hdr.h.d};", {"a": B, "b": A}),
    ("named struct expression", "hdr.h = {d = 1, c = hdr.h.c, b = hdr.h.a, a = 9};", {"a": 9, "b": A, "d": 1}),
    (
        "header comparison",
        "h_t x; x = hdr.h; if (x == hdr.h) hdr.h.a = 1; x.setInvalid(); if (x != hdr.h) hdr.h.b = 1;",
        {"a": 1, "b": 1},
    ),
    ("invalid headers are equal", "h_t x; h_t y; x.setInvalid(); y.setInvalid(); if (x == y) hdr.h.a = 1;", {"a": 1}),
    ("width in bits", "hdr.h.c = (bit<16>)hdr.h.minSizeInBits();", {"c": 64}),
]


@pytest.mark.parametrize(("body", "changes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_expression(body: str, changes: dict[str, int]) -> None:
    assert run(body=body) == INPUT | changes


def test_enums_and_newtypes() -> None:
    types = """
        enum Colour { red, green, blue }
        enum bit<8> Kind { one = 1, two = 0x34 }
        type bit<8> Index;
        typedef bit<16> Word;
    """
    body = """
        Colour c = Colour.blue;
        Index i = (Index)hdr.h.a;
        Word w = 7;
        if (c == Colour.blue) hdr.h.a = 1;
        if ((Kind)hdr.h.b == Kind.two) hdr.h.c = w;
        hdr.h.d = (bit<32>)(bit<8>)i;
        hdr.h.b = Kind.one;
    """
    assert run(types=types, body=body) == {"a": 1, "b": 1, "c": 7, "d": A}


def test_nested_structs_and_tuples() -> None:
    types = "struct inner { bit<8> x; bool y; } struct outer { inner i; tuple<bit<16>, inner> t; }"
    body = """
        outer o = { { 5, true }, { 9, { 6, false } } };
        outer p = o;
        p.i.x = p.i.x + 1;
        inner q = p.t[1];
        hdr.h.a = p.i.x;
        hdr.h.b = q.x;
        hdr.h.c = o.t[0];
        if (o == p) hdr.h.d = 0;
        if (o.i.y && !q.y) hdr.h.d = 1;
    """
    assert run(types=types, body=body) == {"a": 6, "b": 6, "c": 9, "d": 1}


def test_division_by_zero_gives_zero() -> None:
    """The language leaves it open; the switch must not stop."""
    assert run(body="hdr.h.a = hdr.h.b / (hdr.h.c[7:0] - 0x78);")["a"] == 0


# --- random expressions against an evaluator over integers ---------------------------------------------------


@dataclass(frozen=True)
class Term:
    """An expression as text, with its width, signedness and value for INPUT."""

    text: str
    width: int
    signed: bool
    value: int


def fit(value: int, width: int, signed: bool) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def leaf(draw: st.DrawFn, width: int, signed: bool) -> Term:
    sources = [(n, w) for n, w in (("a", 8), ("b", 8), ("c", 16), ("d", 32))]
    if draw(st.booleans()):
        name, w = draw(st.sampled_from(sources))
        text, value = f"hdr.h.{name}", INPUT[name]
        if w != width:
            text, value = f"(bit<{width}>){text}", fit(value, width, False)
        if signed:
            text, value = f"(int<{width}>)({text})", fit(value, width, True)
        return Term(f"({text})", width, signed, value)
    value = draw(st.integers(0, (1 << width) - 1))
    if signed:
        return Term(f"((int<{width}>){width}w{value})", width, True, fit(value, width, True))
    return Term(f"{width}w{value}", width, False, value)


@st.composite
def terms(draw: st.DrawFn, width: int, signed: bool, depth: int = 3) -> Term:
    """Return a random expression of a type."""
    if depth == 0:
        return leaf(draw, width, signed)
    below = lambda: draw(terms(width, signed, depth - 1))  # noqa: E731
    kind = draw(st.sampled_from(["leaf", "binary", "saturating", "shift", "unary", "cast", "slice", "ternary"]))
    if kind == "binary":
        op = draw(st.sampled_from(["+", "-", "*", "&", "|", "^"]))
        x, y = below(), below()
        raw = {"+": x.value + y.value, "-": x.value - y.value, "*": x.value * y.value}
        bits = {"&": x.value & y.value, "|": x.value | y.value, "^": x.value ^ y.value}
        value = fit((raw | bits)[op], width, signed)
        return Term(f"({x.text} {op} {y.text})", width, signed, value)
    if kind == "saturating":
        op = draw(st.sampled_from(["|+|", "|-|"]))
        x, y = below(), below()
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
        raw_sum = x.value + y.value if op == "|+|" else x.value - y.value
        return Term(f"({x.text} {op} {y.text})", width, signed, max(low, min(high, raw_sum)))
    if kind == "shift":
        x, amount = below(), draw(terms(8, False, 0))
        left = draw(st.booleans())
        shifted = x.value << amount.value if left else x.value >> amount.value
        return Term(f"({x.text} {'<<' if left else '>>'} {amount.text})", width, signed, fit(shifted, width, signed))
    if kind == "unary":
        op = draw(st.sampled_from(["-", "~"]))
        x = below()
        return Term(f"({op}{x.text})", width, signed, fit(-x.value if op == "-" else ~x.value, width, signed))
    if kind == "cast":
        other = draw(st.sampled_from([5, 8, 13, 32, 40]))
        x = draw(terms(other, signed, depth - 1))
        name = "int" if signed else "bit"
        return Term(f"(({name}<{width}>){x.text})", width, signed, fit(x.value, width, signed))
    if kind == "slice" and not signed:
        extra, low = draw(st.integers(0, 9)), draw(st.integers(0, 6))
        x = draw(terms(width + low + extra, draw(st.booleans()), depth - 1))
        return Term(f"({x.text}[{width + low - 1}:{low}])", width, False, fit(x.value >> low, width, False))
    if kind == "ternary":
        op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        x, y, yes, no = below(), below(), below(), below()
        holds = {
            "<": x.value < y.value,
            "<=": x.value <= y.value,
            ">": x.value > y.value,
            ">=": x.value >= y.value,
            "==": x.value == y.value,
            "!=": x.value != y.value,
        }[op]
        text = f"({x.text} {op} {y.text} ? {yes.text} : {no.text})"
        return Term(text, width, signed, yes.value if holds else no.value)
    return leaf(draw, width, signed)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_expressions(data: st.DataObject) -> None:
    """Four random expressions, evaluated by the compiled program, equal their value over integers."""
    widths = {"a": 8, "b": 8, "c": 16, "d": 32}
    drawn: dict[str, Term] = {}
    for name, width in widths.items():
        signed = data.draw(st.booleans())
        drawn[name] = data.draw(terms(width, signed))
    lines = [f"bit<{widths[n]}> x{n} = (bit<{widths[n]}>)({e.text});" for n, e in drawn.items()]
    lines += [f"hdr.h.{n} = x{n};" for n in drawn]
    expected = {n: fit(e.value, widths[n], False) for n, e in drawn.items()}
    assert run(body="\n".join(lines)) == expected


# --- each function of the middle end, on every value of a small type -----------------------------------------

WIDTH = 4
WHOLE = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "two_comp_mod": lambda value, width: fit(value, width, True),
    "usat_cast": lambda value, width: saturated(value, width, False),
    "sat_cast": lambda value, width: saturated(value, width, True),
}  # fmt: skip


def saturated(value: int, width: int, signed: bool) -> int:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return max(low, min(high, value))


def meaning(expr: lir.Arg | None, fields: Mapping[str, int]) -> int:
    """Evaluate an expression as BMv2 does, over unbounded integers."""
    match expr:
        case lir.Const(value) | lir.Bool(value):
            return value
        case lir.Field(_, name):
            return fields[name]
        case lir.Op("~", _, right):
            return ~meaning(right, fields)
        case lir.Op(op, left, right):
            return int(WHOLE[op](meaning(left, fields), meaning(right, fields)))
        case lir.LoweredConditional(cond, then, other):
            return meaning(then if meaning(cond, fields) else other, fields)
    raise AssertionError(expr)


@pytest.mark.parametrize("signed", [False, True])
def test_every_operation_on_constants_and_fields_is_that_of_the_language(signed: bool) -> None:
    values = range(-8, 8) if signed else range(16)
    for x, y in product(values, repeat=2):
        fields = {"x": x, "y": y, "n": y & 15}
        left: list[lir.Expr] = [lir.Const(x, WIDTH), lir.Field("h", "x", WIDTH, signed)]
        right: list[lir.Expr] = [lir.Const(y, WIDTH), lir.Field("h", "y", WIDTH, signed), left[1]]
        amounts: list[lir.Expr] = [lir.Const(y & 15), lir.Field("h", "n", 8)]
        found: list[tuple[lir.Expr, int]] = []
        for a, b in product(left, right):
            z = x if b is left[1] else y
            found += [(arith.binary(op, a, b, WIDTH, signed), fit(WHOLE[op](x, z), WIDTH, signed)) for op in "+-*&|^"]
            for op in ("|+|", "|-|"):
                found.append((arith.binary(op, a, b, WIDTH, signed), saturated(WHOLE[op[1]](x, z), WIDTH, signed)))
            if not signed and (z or not isinstance(b, lir.Const)):
                found += [(arith.binary(op, a, b, WIDTH, signed), WHOLE[op](x, z) if z else 0) for op in "/%"]
            found += [(arith.compare(op, a, b), WHOLE[op](x, z)) for op in ("==", "!=", "<", "<=", ">", ">=")]
            joined = arith.concat(a, b, WIDTH, signed, 2 * WIDTH, signed)
            found.append((joined, fit(x << WIDTH | z & 15, 2 * WIDTH, signed)))
        for a, amount, wide in product(left, amounts, (8, 32)):
            found.append((arith.shift_left(a, amount, wide, WIDTH, signed), fit(x << (y & 15), WIDTH, signed)))
            found.append((arith.shift_right(a, amount, wide, WIDTH, signed), x >> (y & 15)))
        for a, (high, low) in product(left, ((3, 0), (3, 2), (2, 1), (1, 0))):
            bits = high - low + 1
            part = y & ((1 << bits) - 1)
            found.append((arith.slice_bits(a, high, low, WIDTH, signed), fit(x >> low, bits, False)))
            for value in (lir.Const(part, bits), lir.Field("h", "part", bits)):
                put = arith.set_slice(a, high, low, value, WIDTH, signed)
                wanted = fit(x & ~(((1 << bits) - 1) << low) | part << low, WIDTH, signed)
                assert meaning(put, {**fields, "part": part}) == wanted, put
        for a in left:
            found += [(arith.negate(a, WIDTH, signed), fit(-x, WIDTH, signed))]
            found += [(arith.complement(a, WIDTH, signed), fit(~x, WIDTH, signed))]
            for width, to_signed in product((3, 4, 9), (False, True)):
                found.append((arith.cast(a, WIDTH, signed, width, to_signed), fit(x, width, to_signed)))
        for expr, wanted in found:
            assert meaning(expr, fields) == wanted, (expr, x, y)
