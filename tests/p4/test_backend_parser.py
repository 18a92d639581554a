"""Parsers: extraction, transitions, errors and loops, against their meaning in the language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4lite.compiler.midend.parsers import range_to_masks
from support.p4.cases import INPUT, OUT_PORT, pack, run, run_on, switch

A, B, C, D = (INPUT[name] for name in "abcd")
EXTRA = "header e_t { bit<8> kind; bit<8> v; }"
ERRORS = "if (sm.parser_error == error.{name}) hdr.h.a = 0xee;"


def states(select: str, *, before: str = "") -> str:
    """Return a parser that extracts `h`, then selects; state `one` sets `meta.n` to 1, `two` to 2."""
    return f"""
        state start {{ pkt.extract(hdr.h); {before} transition select{select} }}
        state one {{ meta.n = 1; transition accept; }}
        state two {{ meta.n = 2; transition accept; }}
    """


def chosen(select: str, **values: int) -> int:
    """Return what `meta.n` is after the parser."""
    sw = switch(meta="bit<8> n; bit<4> k;", parser=states(select), body="hdr.h.a = meta.n;")
    return run_on(sw, **values)["a"]


def test_select_on_values_masks_and_ranges() -> None:
    select = "(hdr.h.b) { 1: one; 0x30 &&& 0xf0: two; 5 .. 9: one; default: accept; }"
    got = {b: chosen(select, b=b) for b in (0, 1, 2, 4, 5, 9, 10, 0x30, 0x3F, 0x40)}
    assert got == {0: 0, 1: 1, 2: 0, 4: 0, 5: 1, 9: 1, 10: 0, 0x30: 2, 0x3F: 2, 0x40: 0}


def test_select_on_several_fields() -> None:
    select = "(hdr.h.b, hdr.h.c[3:0], hdr.h.a == 0x12) { (1, _, true): one; (_, 8, _): two; (_, _, _): accept; }"
    assert chosen(select, b=1, c=0) == 1
    assert chosen(select, b=1, c=8, a=0) == 2
    assert chosen(select, b=2, c=0x18) == 2
    assert chosen(select, b=2, c=1) == 0


def test_select_on_widened_and_narrowed_fields() -> None:
    select = "((bit<16>)hdr.h.b, (bit<4>)hdr.h.c) { (0x34, 8): one; (0x1234, _): two; (_, _): accept; }"
    assert [chosen(select, b=b, c=c) for b, c in ((0x34, 0x18), (0x34, 0x81), (0x33, 8))] == [1, 0, 0]


def test_the_first_matching_case_counts() -> None:
    select = "(hdr.h.b) { 0 .. 100: one; 50: two; _: accept; }"
    assert chosen(select, b=50) == 1


def test_select_on_signed_ranges() -> None:
    select = "((int<8>)hdr.h.b) { -3 .. 2: one; default: two; }"
    assert [chosen(select, b=b) for b in (0xFC, 0xFD, 0xFF, 0, 2, 3)] == [2, 1, 1, 1, 1, 2]


def test_no_match_is_an_error() -> None:
    parser = states("(hdr.h.b) { 1: one; 2: two; }")
    body = ERRORS.format(name="NoMatch")
    assert run(meta="bit<8> n;", parser=parser, body=body)["a"] == 0xEE
    assert run_on(switch(meta="bit<8> n;", parser=parser, body=body), b=1)["a"] == A


def test_value_set() -> None:
    sw = switch(
        meta="bit<8> n;",
        parser_locals="value_set<bit<8>>(4) vs;",
        parser=states("(hdr.h.b) { vs: one; default: two; }"),
        body="hdr.h.a = meta.n;",
    )
    assert run_on(sw)["a"] == 2
    sw.value_set_add("P.vs", B)
    assert run_on(sw)["a"] == 1


def test_lookahead_and_advance() -> None:
    parser = """state start {
        bit<16> ahead = pkt.lookahead<bit<16>>();
        h_t whole = pkt.lookahead<h_t>();
        meta.n = ahead; meta.d = whole.d;
        pkt.advance(8);
        hdr.h.setValid(); hdr.h.b = pkt.lookahead<bit<8>>();
        transition accept;
    }"""
    sw = switch(meta="bit<16> n; bit<32> d;", parser=parser, body="hdr.h.c = meta.n; hdr.h.d = meta.d;")
    ((port, data),) = sw.process(0, pack())
    assert port == OUT_PORT
    assert data == bytes([0, B, A, B]) + D.to_bytes(4, "big") + pack()[1:]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("pkt.extract(hdr.h); pkt.extract(hdr.e);", "PacketTooShort"),
        ("pkt.extract(hdr.h); pkt.advance(16);", "PacketTooShort"),
        ("pkt.extract(hdr.h); meta.n = pkt.lookahead<bit<8>>();", "PacketTooShort"),
        ("pkt.extract(hdr.h); verify(hdr.h.a == 0, error.HeaderTooShort);", "HeaderTooShort"),
        ("pkt.extract(hdr.h); verify(hdr.h.a == 0, error.Mine);", "Mine"),
        ("pkt.extract(hdr.h); meta.n = hdr.s.last.v;", "StackOutOfBounds"),
        ("hdr.h.setValid(); pkt.extract(hdr.s.next); pkt.extract(hdr.s.next);", "StackOutOfBounds"),
    ],
)
def test_parser_errors(statement: str, name: str) -> None:
    parts = {
        "types": EXTRA,
        "top": "error { Mine }",
        "headers": "e_t e; e_t[1] s;",
        "meta": "bit<8> n;",
        "parser": f"state start {{ {statement} transition accept; }}",
        "body": ERRORS.format(name=name) + " sm.egress_spec = 2;",
    }
    ((_, data),) = switch(**parts).process(0, pack())
    assert data[0] == 0xEE


def test_verify_that_holds() -> None:
    parser = "state start { pkt.extract(hdr.h); verify(hdr.h.a == 0x12, error.NoMatch); transition accept; }"
    assert run(parser=parser, body=ERRORS.format(name="NoError"))["a"] == 0xEE


def test_varbit() -> None:
    types = "header v_t { bit<8> len; varbit<32> v; }"
    parser = """state start { pkt.extract(hdr.h); transition more; }
        state more { pkt.extract(hdr.v, (bit<32>)hdr.h.a * 8); transition accept; }"""
    sw = switch(types=types, headers="v_t v;", parser=parser, emit="pkt.emit(hdr.v);", body="hdr.v.len = 0xaa;")
    ((_, data),) = sw.process(0, pack(a=3) + b"\x01\x02\x03\x04\x05")
    assert data == pack(a=3) + b"\xaa\x02\x03\x04\x05"
    ((_, data),) = sw.process(0, pack(a=0) + b"\x01\x02")
    assert data == pack(a=0) + b"\xaa\x02"


def test_varbit_longer_than_its_maximum() -> None:
    types = "header v_t { varbit<16> v; }"
    parser = "state start { pkt.extract(hdr.h); pkt.extract(hdr.v, 24); transition accept; }"
    sw = switch(types=types, headers="v_t v;", parser=parser, body=ERRORS.format(name="HeaderTooShort"))
    ((_, data),) = sw.process(0, pack() + b"\x01\x02\x03")
    assert data[0] == 0xEE


def test_loop_into_a_stack() -> None:
    parser = """
        state start { pkt.extract(hdr.h); transition item; }
        state item {
            pkt.extract(hdr.s.next); meta.last = hdr.s.lastIndex;
            transition select(hdr.s.last.kind) { 1: item; default: accept; }
        }
    """
    body = "hdr.h.a = (bit<8>)meta.last; hdr.h.b = hdr.s[1].v; hdr.s[0].setInvalid();"
    parts = {"types": EXTRA, "headers": "e_t[3] s;", "meta": "bit<32> last;", "parser": parser}
    sw = switch(**parts, body=body, emit="pkt.emit(hdr.s);")
    ((_, data),) = sw.process(0, pack() + bytes([1, 10, 1, 11, 0, 12, 77]))
    assert data == pack(a=2, b=11) + bytes([1, 11, 0, 12, 77])


def test_header_union() -> None:
    types = "header x_t { bit<8> v; } header y_t { bit<16> w; } header_union u_t { x_t x; y_t y; }"
    parser = """
        state start { pkt.extract(hdr.h); transition select(hdr.h.a) { 1: px; default: py; } }
        state px { pkt.extract(hdr.u.x); transition accept; }
        state py { pkt.extract(hdr.u.y); transition accept; }
    """
    body = "if (hdr.u.x.isValid()) hdr.h.b = hdr.u.x.v; else if (hdr.u.y.isValid()) hdr.h.c = hdr.u.y.w;"
    sw = switch(types=types, headers="u_t u;", parser=parser, body=body, emit="pkt.emit(hdr.u);")
    ((_, data),) = sw.process(0, pack(a=1) + b"\x07\x08")
    assert data == pack(a=1, b=7) + b"\x07\x08"
    ((_, data),) = sw.process(0, pack(a=2) + b"\x07\x08")
    assert data == pack(a=2, c=0x0708) + b"\x07\x08"


def test_union_stack() -> None:
    types = "header x_t { bit<8> v; } header y_t { bit<8> w; } header_union u_t { x_t x; y_t y; }"
    parser = """
        state start { pkt.extract(hdr.h); transition first; }
        state first { pkt.extract(hdr.us.next.x); transition second; }
        state second { pkt.extract(hdr.us.next.y); transition accept; }
    """
    body = "hdr.h.a = hdr.us[0].x.v; hdr.h.b = hdr.us[1].y.w; if (hdr.us[1].x.isValid()) hdr.h.c = 0;"
    sw = switch(types=types, headers="u_t[2] us;", parser=parser, body=body, emit="pkt.emit(hdr.us);")
    ((_, data),) = sw.process(0, pack() + b"\x05\x06\x07")
    assert data == pack(a=5, b=6) + b"\x05\x06\x07"


def test_sub_parser() -> None:
    top = """parser Sub(packet_in pkt, out e_t e, inout bit<8> n)(bit<8> step) {
        state start { pkt.extract(e); n = n + step; transition select(e.kind) { 9: again; default: accept; } }
        state again { n = n + 100; transition accept; }
    }"""
    parser = """state start {
        pkt.extract(hdr.h); meta.n = 1;
        one.apply(pkt, hdr.e, meta.n); two.apply(pkt, hdr.f, meta.n);
        meta.n = meta.n + 1;
        transition accept;
    }"""
    sw = switch(
        types=EXTRA,
        headers="e_t e; e_t f;",
        top=top,
        meta="bit<8> n;",
        parser_locals="Sub(3) one; Sub(5) two;",
        parser=parser,
        body="hdr.h.a = meta.n;",
        emit="pkt.emit(hdr.f);",
    )
    ((_, data),) = sw.process(0, pack() + bytes([9, 1, 2, 3]))
    assert data == pack(a=1 + 3 + 100 + 5 + 1) + bytes([2, 3])


def test_conditions_in_a_state() -> None:
    parser = """state start {
        pkt.extract(hdr.h);
        bit<8> x;
        if (hdr.h.b == 0x34) { x = 1; } else if (hdr.h.b == 1) { x = 2; pkt.extract(hdr.e); } else { x = 3; }
        meta.n = x;
        transition select(x) { 3: reject; default: accept; }
    }"""
    parts = {"types": EXTRA, "headers": "e_t e;", "meta": "bit<8> n;", "parser": parser, "body": "hdr.h.a = meta.n;"}
    sw = switch(**parts, emit="pkt.emit(hdr.e);")
    assert run_on(sw)["a"] == 1
    ((_, data),) = sw.process(0, pack(b=1) + b"\x08\x09")
    assert data == pack(a=2, b=1) + b"\x08\x09"
    assert run_on(sw, b=5)["a"] == 3


def test_function_in_a_parser() -> None:
    top = "bit<8> twice(in bit<8> x) { if (x > 100) { return 200; } return x + x; }"
    parser = "state start { pkt.extract(hdr.h); meta.n = twice(hdr.h.a); transition accept; }"
    sw = switch(top=top, meta="bit<8> n;", parser=parser, body="hdr.h.b = meta.n;")
    assert run_on(sw)["b"] == 2 * A
    assert run_on(sw, a=101)["b"] == 200


def test_local_variables_start_anew_in_a_loop() -> None:
    parser = """
        state start { pkt.extract(hdr.h); transition item; }
        state item {
            bit<8> n; e_t seen;
            pkt.extract(hdr.s.next);
            if (hdr.s.last.kind == 1) { n = 5; seen.setValid(); }
            meta.n = n; meta.valid = seen.isValid();
            transition select(hdr.s.last.kind) { 1: item; default: accept; }
        }
    """
    body = "hdr.h.a = meta.n; hdr.h.b = meta.valid ? 8w1 : 8w0;"
    sw = switch(types=EXTRA, headers="e_t[3] s;", meta="bit<8> n; bool valid;", parser=parser, body=body)
    ((_, data),) = sw.process(0, pack() + bytes([1, 0, 0, 0]))
    assert (data[0], data[1]) == (0, 0)


@given(st.integers(1, 10), st.data())
def test_ranges_become_exact_sets_of_masks(width: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, (1 << width) - 1))
    high = data.draw(st.integers(low, (1 << width) - 1))
    masks = range_to_masks(low, high, width)
    got = {v for v in range(1 << width) if any(v & m == value for value, m in masks)}
    assert got == set(range(low, high + 1))
    assert len(masks) <= 2 * width
