"""Programs that p4c compiles wrongly: p4lite does what the specification says (docs/conformance.md lists them)."""

from __future__ import annotations

from support.p4.cases import INPUT, pack, run, switch

STACK = {
    "types": "header e_t { bit<8> v; }",
    "headers": "e_t[2] s; e_t one;",
    "parser": "state start { pkt.extract(hdr.h); pkt.extract(hdr.s.next); pkt.extract(hdr.s.next);"
    " pkt.extract(hdr.one); transition accept; }",
    "emit": "pkt.emit(hdr.s); pkt.emit(hdr.one);",
}


def elements(body: str, top: str = "") -> list[int]:
    """Return the stack's two elements, which arrive as 1 and 2, and the header after them, which arrives as 3."""
    ((_, sent),) = switch(**STACK, top=top, body=body).process(0, pack() + b"\x01\x02\x03")
    return list(sent[-3:])


def test_a_loop_in_an_apply_block_runs_as_often_as_it_says() -> None:
    assert run(body="for (bit<8> i = 0; i < 4; i = i + 1) { hdr.h.a = hdr.h.a + 1; }") == INPUT | {"a": 0x16}


def test_bits_as_an_out_argument_are_written_when_the_action_exits() -> None:
    action = "action leave(out bit<8> x) { x = 7; exit; }"
    assert run(locals=action, body="leave(hdr.h.c[7:0]); hdr.h.a = 1;") == INPUT | {"c": 0x5607}
    outer = f"{action} action outer(inout bit<16> y) {{ leave(y[15:8]); y = 1; }}"
    assert run(locals=outer, body="outer(hdr.h.c); hdr.h.a = 1;") == INPUT | {"c": 0x0778}


def test_the_index_left_of_an_assignment_is_evaluated_before_its_value() -> None:
    step = "bit<8> f(inout bit<8> i) { i = i + 1; return 9; }"
    assert elements("bit<8> i = 0; hdr.s[i].v = f(i);", step) == [9, 2, 3]
    assert elements("bit<8> i = 0; hdr.s[i].v += f(i);", step) == [10, 2, 3]


def test_a_header_is_copied_to_and_from_an_element_with_a_computed_index() -> None:
    assert elements("bit<8> i = hdr.h.a - 0x11; hdr.s[i] = hdr.one;") == [1, 3, 3]
    assert elements("bit<8> i = hdr.h.a - 0x11; hdr.one = hdr.s[i];") == [1, 2, 2]
    assert elements("bit<8> i = hdr.h.a - 0x11; hdr.s[i - 1] = hdr.s[i];") == [2, 2, 3]
