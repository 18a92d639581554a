"""The parser: every operation, every error, and what is left of the packet after each."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from p4lite.switch.errors import ProgramError
from p4lite.switch.runtime.loader import load_program
from support.switch.bmv2_json import ERRORS, Doc, assign, expr, extract, fld, num, prim
from support.switch.programs import once, running

AB = [("a", 8), ("b", 8)]
ONE = [("x", 8)]


def error(name: str) -> int:
    return ERRORS.index(name)


def simple(*ops: dict, **more: object) -> Doc:  # type: ignore[type-arg]
    doc = Doc()
    doc.header("h", AB)
    doc.header("g", ONE)
    doc.meta("m", [("v", 16), ("w", 8)])
    doc.state("start", ops, **more)  # type: ignore[arg-type]
    return doc


def test_extract_and_payload() -> None:
    doc = simple(extract("h"))
    doc.run(assign(fld("h", "a"), num(0xFF)))
    result = once(doc, b"\x01\x02\x03\x04")
    assert (result.data, result.parser_error) == (b"\xff\x02\x03\x04", 0)


def test_too_short_keeps_what_was_extracted() -> None:
    doc = simple(extract("h"), extract("g"))
    doc.run(assign(fld("h", "a"), num(7)))
    result = once(doc, b"\x01\x02")
    assert (result.data, result.parser_error) == (b"\x07\x02", error("PacketTooShort"))
    assert once(doc, b"\x01").data == b"\x01"
    assert once(doc, b"").parser_error == error("PacketTooShort")


@pytest.mark.parametrize(("first", "want"), [(0x12, 1), (0x5F, 2), (0x50, 2), (0x60, 0)])
def test_select_value_mask_default(first: int, want: int) -> None:
    doc = Doc()
    doc.header("h", AB)
    doc.meta("m", [("v", 8)])
    for i in (1, 2):
        doc.state(f"s{i}", [prim("set", fld("m", "v"), num(i))])
    doc.state("start", [extract("h")], [fld("h", "a")], [("0x12", "s1"), ("0x50", "0xf0", "s2")])
    doc.init_state = "start"
    doc.run(assign(fld("h", "b"), fld("m", "v")))
    assert once(doc, bytes([first, 0])).data[1] == want


def test_select_on_parts_pads_each_to_bytes() -> None:
    doc = Doc()
    doc.header("h", [("a", 12), ("b", 2), ("c", 2)])
    doc.state("hit", [prim("set", fld("h", "c"), num(3))])
    doc.state("start", [extract("h")], [fld("h", "a"), fld("h", "b")], [("0x0aba03", "hit")])
    doc.init_state = "start"
    assert once(doc, b"\xab\xac").data == b"\xab\xaf"
    assert once(doc, b"\xab\xa8").data == b"\xab\xa8"


@pytest.mark.parametrize("width", [64, 96, 128, 136, 200])
def test_select_on_wide_keys(width: int) -> None:
    doc = Doc()
    doc.header("h", [("a", width), ("b", 8)])
    doc.state("hit", [prim("set", fld("h", "b"), num(1))])
    doc.state("near", [prim("set", fld("h", "b"), num(2))])
    value = int.from_bytes(bytes(range(1, width // 8 + 1)), "big")
    size = width // 8
    full, mask = f"0x{value:0{2 * size}x}", "0x" + "ff" * (size - 1) + "00"
    doc.state("start", [extract("h")], [fld("h", "a")], [(full, "hit"), (full, mask, "near")])
    doc.init_state = "start"
    exact = value.to_bytes(size, "big")
    assert once(doc, exact + b"\0").data[-1] == 1
    assert once(doc, exact[:-1] + b"\x7e\0").data[-1] == 2
    assert once(doc, b"\x99" + exact[1:] + b"\0").data[-1] == 0


@pytest.mark.parametrize(("label", "packet"), [("-0x03", 0xFD), ("-0x80", 0x80), ("-0x1", 0xFF), ("0x7f", 0x7F)])
def test_select_on_a_label_with_a_sign(label: str, packet: int) -> None:
    """p4c writes the constants of an int<W> with a sign; simple_switch itself does not load them."""
    doc = Doc()
    doc.header("h", [("a", 8, True), ("b", 8)])
    doc.state("hit", [prim("set", fld("h", "b"), num(1))])
    doc.state("start", [extract("h")], [fld("h", "a")], [(label, "hit")])
    doc.init_state = "start"
    assert once(doc, bytes([packet, 0])).data == bytes([packet, 1])
    assert once(doc, bytes([packet ^ 1, 0])).data == bytes([packet ^ 1, 0])


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=4), st.data())
@settings(max_examples=12, deadline=None)
def test_labels_with_a_sign_in_several_parts(kinds: list[tuple[int, bool]], data: st.DataObject) -> None:
    """p4c adds the constants of the parts up, each shifted by the bytes of those after it."""
    values = [
        data.draw(
            st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else st.integers(0, 1 << width - 1)
        )
        for width, signed in kinds
    ]
    total, wanted = 0, 0
    for (width, _), value in zip(kinds, values, strict=True):
        room = 8 * ((width + 7) // 8)
        total = (total << room) + value
        wanted = wanted << width | value & ((1 << width) - 1)
    assume(total < 0)
    doc = Doc()
    bits = sum(width for width, _ in kinds)
    pad = 8 - bits % 8
    doc.header("h", [*((f"f{i}", width, signed) for i, (width, signed) in enumerate(kinds)), ("pad", pad)])
    doc.header("r", [("b", 8)])
    doc.state("hit", [prim("set", fld("r", "b"), num(1))])
    label = f"-0x{-total:x}"
    doc.state("start", [extract("h"), extract("r")], [fld("h", f"f{i}") for i in range(len(kinds))], [(label, "hit")])
    doc.init_state = "start"
    size = (bits + pad) // 8
    packet = (wanted << pad).to_bytes(size, "big") + b"\0"
    other = ((wanted ^ 1) << pad).to_bytes(size, "big") + b"\0"
    with running(doc) as (_, runner):
        assert runner.run(packet).data[-1] == 1
        assert runner.run(other).data[-1] == 0


def test_validity_set_in_the_parser() -> None:
    """What p4c wrote for setValid and setInvalid in a parser until 2018, when it came to write add_header."""
    valid = {"type": "field", "value": ["g", "$valid$"]}
    on, off = (prim("set", valid, num(n)) for n in (1, 0))
    filled = prim("set", fld("g", "x"), num(7))
    assert once(simple(extract("h"), on, filled), b"\x01\x02").data == b"\x01\x02\x07"
    assert once(simple(extract("h"), on, filled, off), b"\x01\x02").data == b"\x01\x02"
    assert once(simple(extract("h"), extract("g"), on), b"\x01\x02\x03").data == b"\x01\x02\x03"
    from_field = simple(extract("h"), prim("set", valid, fld("h", "a")), filled)
    assert once(from_field, b"\x01\x02").data == b"\x01\x02\x07"
    assert once(from_field, b"\x00\x02").data == b"\x00\x02"


def test_a_label_that_does_not_fit_is_refused() -> None:
    doc = Doc()
    doc.header("h", [("a", 8, True), ("b", 8)])
    doc.state("start", [extract("h")], [fld("h", "a")], [("-0x81", "start")])
    with pytest.raises(ProgramError, match=r"transitions\[0\]\.value: the value does not fit into the transition key"):
        load_program(doc.json())


def test_lookahead_in_key_and_set() -> None:
    doc = Doc()
    doc.header("h", AB)
    doc.meta("m", [("v", 4)])
    look = {"type": "lookahead", "value": [8, 8]}
    doc.state("two", [prim("set", fld("m", "v"), {"type": "lookahead", "value": [4, 4]}), extract("h")])
    doc.state("start", [], [look], [("0x22", "two")])
    doc.init_state = "start"
    doc.run(assign(fld("h", "b"), fld("m", "v")))
    assert once(doc, b"\x1c\x22").data == b"\x1c\x0c"
    assert once(doc, b"\x1c\x23").data == b"\x1c\x23"
    assert once(doc, b"\x1c").parser_error == error("PacketTooShort")


def test_advance_shift_verify() -> None:
    doc = simple(prim("advance", num(8)), prim("shift", 1), extract("h"))
    doc.run(assign(fld("h", "a"), num(0)))
    assert once(doc, b"\x01\x02\x03\x04\x05").data == b"\x00\x04\x05"
    assert once(doc, b"\x01").parser_error == error("PacketTooShort")
    odd = simple(prim("advance", num(4)))
    assert once(odd, b"\x01").parser_error == error("ParserInvalidArgument")
    far = simple(extract("h"), prim("advance", expr("<<", fld("h", "a"), num(3))), extract("g"))
    assert once(far, b"\x02\x00AAB").parser_error == 0
    assert once(far, b"\x03\x00AAB").parser_error == error("PacketTooShort")
    check = simple(extract("h"), prim("verify", expr("==", fld("h", "a"), num(1)), num(error("MyError"))))
    assert once(check, b"\x01\x00").parser_error == 0
    assert once(check, b"\x02\x00").parser_error == error("MyError")


def test_stack_extraction_and_overflow() -> None:
    doc = Doc()
    doc.stack("s", ONE, 2)
    doc.meta("m", [("n", 8)])
    key = {"type": "stack_field", "value": ["s", "x"]}
    doc.state("start", [extract("s", "stack")], [key], [("0x00", None)], following="start")
    doc.header("out", [("last", 8), ("size", 8)])
    doc.run(
        prim("add_header", {"type": "header", "value": "out"}),
        assign(fld("out", "last"), expr("last_stack_index", None, {"type": "header_stack", "value": "s"})),
        assign(fld("out", "size"), expr("size_stack", None, {"type": "header_stack", "value": "s"})),
    )
    assert once(doc, b"\x05\x00\x07").data == b"\x05\x00\x01\x02\x07"
    full = once(doc, b"\x05\x06\x00")
    assert (full.data, full.parser_error) == (b"\x05\x06\x01\x02\x00", error("StackOutOfBounds"))


def varbit_doc() -> Doc:
    doc = Doc()
    doc.header("len", [("n", 8)])
    doc.header("v", [("t", 4), ("u", 4), ("data", "*"), ("end", 8)], max_length=6)
    length = {"type": "expression", "value": expr("<<", fld("len", "n"), num(0))}
    doc.state("start", [extract("len"), {"op": "extract_VL", "parameters": [extract("v")["parameters"][0], length]}])
    return doc


@pytest.mark.parametrize(
    ("bits", "data", "want"),
    [
        (0, b"\x12\x99", "NoError"),
        (16, b"\x12\x34\x56\x99", "NoError"),
        (32, b"\x12\x34\x56\x78\x9a\x99", "NoError"),
        (40, b"\x12\x34\x56\x78\x9a\xbc\x99", "HeaderTooShort"),
        (12, b"\x12\x34\x56\x78", "ParserInvalidArgument"),
        (24, b"\x12\x34\x56\x78", "PacketTooShort"),
        (0, b"\x12", "PacketTooShort"),
    ],
)
def test_varbit(bits: int, data: bytes, want: str) -> None:
    doc = varbit_doc()
    doc.run(assign(fld("v", "t"), num(0xF)))
    result = once(doc, bytes([bits]) + data + b"rest")
    if want == "PacketTooShort":
        result = once(doc, bytes([bits]) + data)
    assert result.parser_error == error(want)
    if want == "NoError":
        assert result.data == bytes([bits, data[0] | 0xF0]) + data[1:] + b"rest"


def test_varbit_that_starts_within_a_byte() -> None:
    doc = Doc()
    doc.header("v", [("t", 4), ("data", "*"), ("end", 4)], max_length=8)
    length = {"type": "expression", "value": expr("*", num(1), num(16))}
    doc.state("start", [{"op": "extract_VL", "parameters": [extract("v")["parameters"][0], length]}])
    doc.run(assign(fld("v", "t"), num(0xA)), assign(fld("v", "end"), num(0xB)))
    assert once(doc, b"\x12\x34\x56zz").data == b"\xa2\x34\x5bzz"


def test_length_expression_of_the_header_type() -> None:
    doc = Doc()
    doc.header("v", [("n", 8), ("data", "*")], max_length=10)
    local = {"type": "local", "value": 0}
    doc.types[-1]["length_exp"] = expr("*", local, num(8))
    doc.state("start", [extract("v")])
    doc.run(assign(fld("v", "n"), num(0)))
    assert once(doc, b"\x02ABC").data == b"\x00ABC"
    assert once(doc, b"\x04ABC").parser_error == error("PacketTooShort")


def test_value_sets() -> None:
    doc = Doc()
    doc.header("h", [("a", 12), ("b", 4)])
    doc.extra["parse_vsets"] = [{"name": "vs", "id": 0, "compressed_bitwidth": 16, "max_size": 2}]
    doc.state("hit", [prim("set", fld("h", "b"), num(0xF))])
    doc.state("start", [extract("h")], [fld("h", "a"), fld("h", "b")])
    doc.states[-1]["transitions"].insert(0, {"type": "parse_vset", "value": "vs", "mask": None, "next_state": "hit"})
    doc.init_state = "start"
    with running(doc) as (instance, runner):
        assert runner.run(b"\xab\xc1").data == b"\xab\xc1"
        instance.value_set_add("vs", 0xABC1)
        assert runner.run(b"\xab\xc1").data == b"\xab\xcf"
        assert instance.value_set_values("vs") == [0xABC1]
        instance.value_set_delete("vs", 0xABC1)
        assert runner.run(b"\xab\xc1").data == b"\xab\xc1"


def test_unions_in_the_parser() -> None:
    doc = Doc()
    doc.header("tag", [("t", 8)])
    doc.union("u", {"a": [("x", 8)], "b": [("y", 16)]})
    doc.state("pa", [extract("u.a")])
    doc.state("pb", [extract("u.a"), extract("u.b")])
    doc.state("start", [extract("tag")], [fld("tag", "t")], [("0x01", "pa"), ("0x02", "pb")])
    doc.init_state = "start"
    doc.run(
        assign(fld("tag", "t"), expr("b2d", None, expr("valid_union", None, {"type": "header_union", "value": "u"})))
    )
    assert once(doc, b"\x01\xaa").data == b"\x01\xaa"
    # extracting b makes a invalid: only one member of a union is valid
    assert once(doc, b"\x02\xaa\xbb\xcc").data == b"\x01\xbb\xcc"
    assert once(doc, b"\x03\xaa").data == b"\x00\xaa"


def test_union_stack() -> None:
    doc = Doc()
    doc.union_stack("us", {"a": [("k", 8)], "b": [("k", 8), ("y", 8)]}, 2)
    take = {"type": "union_stack", "value": ["us", "a"]}
    key = {"type": "union_stack_field", "value": ["us", "a", "k"]}
    doc.state("start", [{"op": "extract", "parameters": [take]}], [key], [("0x00", None)], following="start")
    assert once(doc, b"\x01\x00\x07").data == b"\x01\x00\x07"
    assert once(doc, b"\x01\x01\x00").parser_error == error("StackOutOfBounds")


def test_endless_parser_stops() -> None:
    doc = simple(extract("h"), following="spin")
    doc.state("spin", following="spin")
    with running(doc) as (instance, runner):
        assert runner.run(b"\x01\x02\x03").parser_error == error("ParserTimeout")
        assert instance.faults()["parser_loop"] == 1


def test_packets_do_not_see_their_predecessor() -> None:
    doc = Doc()
    doc.header("h", AB)
    doc.header("g", [("x", 128)])
    doc.meta("m", [("v", 8)])
    doc.state("more", [extract("g")])
    doc.state("start", [extract("h")], [fld("h", "a")], [("0x01", "more")])
    doc.init_state = "start"
    doc.run(assign(fld("h", "b"), expr("+", fld("g", "x"), fld("m", "v"))), assign(fld("m", "v"), num(9)))
    with running(doc) as (_, runner):
        assert runner.run(b"\x01\x00" + b"\x11" * 16).data[:2] == b"\x01\x11"
        assert runner.run(b"\x00\x00").data == b"\x00\x00"


def test_any_order_of_states_and_shared_names() -> None:
    program = load_program(simple(extract("h")).json())
    assert program.errors["PacketTooShort"] == error("PacketTooShort")
    assert [f.width for f in program.headers["h"].fields] == [8, 8]
