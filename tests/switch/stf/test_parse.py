"""The STF language: every statement, its errors, key values, and the diff of packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4lite.switch.bmv2.model import FieldRef
from p4lite.switch.program.entry import Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.facts import KeyFacts
from p4lite.switch.program.layout import KeyField
from p4lite_tools.commands import Commands
from p4lite_tools.stf.engine import NameProblem, hex_diff, key_position, match_value, mismatches, resolve
from p4lite_tools.stf.parse import (
    COMMANDS,
    Add,
    CheckCounter,
    Command,
    Expect,
    NoPacket,
    Remove,
    SetDefault,
    StfError,
    StfPacket,
    Wait,
    parse_stf,
)

TEXT = """
# a comment
ADD test2 100 data.f2:0x04040404 c4_6(val4:0x4040, port:2)
add tab1 dstAddr:0xa1a2a3a4a5a6 act(port:2) = A   # named
add test1 0 data.$valid:0b1 data.f1:0x****0101 "quoted name"(val:0x7f)
add lpm hdr.a:10/8
    other(x:1)
add range r:1->5 t:0x0a&&&0xff act()
setdefault ether l2()

expect 1 *1010101 0303$
packet 0 01010101 0303
expect 5
expect 6 $
check_counter cnt(10) packets == 2
check_counter cnt($A)
mc_node_create 0 6 7 8
meter_set_rates ig.m 2 0.5 : 1 0.00001:3
remove all
remove A
no_packet
wait
"""


def test_every_stf_statement_parses_to_its_value() -> None:
    assert parse_stf(TEXT) == [
        Add(3, "test2", 100, (("data.f2", "0x04040404"),), "c4_6", (("val4", "0x4040"), ("port", "2")), None),
        Add(4, "tab1", None, (("dstAddr", "0xa1a2a3a4a5a6"),), "act", (("port", "2"),), "A"),
        Add(
            5, "test1", 0, (("data.$valid", "0b1"), ("data.f1", "0x****0101")), "quoted name", (("val", "0x7f"),), None
        ),
        Add(6, "lpm", None, (("hdr.a", "10/8"),), "other", (("x", "1"),), None),
        Add(8, "range", None, (("r", "1->5"), ("t", "0x0a&&&0xff")), "act", (), None),
        SetDefault(9, "ether", "l2", ()),
        Expect(11, 1, "*10101010303", True),
        StfPacket(12, 0, bytes.fromhex("010101010303")),
        Expect(13, 5, None, False),
        Expect(14, 6, "", True),
        CheckCounter(15, "cnt", "10", "packets", "==", 2),
        CheckCounter(16, "cnt", "$A", None, "==", 0),
        Command(17, "mc_node_create", ("0", "6", "7", "8")),
        Command(18, "meter_set_rates", ("ig.m", "2", "0.5:1", "0.00001:3")),
        Remove(19, None),
        Remove(20, "A"),
        NoPacket(21),
        Wait(22),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frobnicate 1", "x.stf:1: 'frobnicate' starts no STF statement"),
        ("\npacket 0 0g", "x.stf:2: packet: 'G' is not a hex digit"),
        ("packet 0 012", "x.stf:1: packet: 3 hex digits make no whole number of bytes"),
        ("packet x 01", "x.stf:1: packet: needs a port number first"),
        ("expect 0 01$02", "x.stf:1: expect: '$' stands only at the end"),
        ("add t k:1", "x.stf:1: add: expected a name, got 'end of line'"),
        ("add t k:1 a(", "x.stf:1: add: expected a name, got 'end of line'"),
        ("add t a() b", "x.stf:1: add: 'b' is left over at the end"),
        ("check_counter c(1) bits == 2", "x.stf:1: check_counter: expected 'packets' or 'bytes', got 'bits'"),
        ("wait ~", "x.stf:1: wait: cannot read '~'"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(StfError) as caught:
        parse_stf(text, "x.stf")
    assert str(caught.value).startswith(message)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_stf("add " + text)
        parse_stf(text)
    except StfError:
        pass


def key(kind: str, width: int = 32, name: str = "h.f") -> KeyFacts:
    return KeyFacts(name, kind, width, KeyField(0, 1, 64 - width, width), FieldRef(None, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("exact", "0x10", Exact(16)),
        ("exact", "7", Exact(7)),
        ("valid", "0b1", Exact(1)),
        ("lpm", "0x0a00****", Lpm(0x0A000000, 16)),
        ("lpm", "0x0a000001", Lpm(0x0A000001, 32)),
        ("lpm", "0x0a000001/8", Lpm(0x0A000000, 8)),
        ("lpm", "10", Lpm(10, 32)),
        ("lpm", "0b1***", Lpm(0, 1)),  # as p4c's runner: the value is right-aligned, the prefix counts digits
        ("ternary", "0x0a**0b**", Ternary(0x0A000B00, 0xFF00FF00)),
        ("ternary", "0b1*1", Ternary(0b101, 0b101)),
        ("ternary", "0x0a&&&0x0f", Ternary(0x0A, 0x0F)),
        ("ternary", "9", Ternary(9, 0xFFFFFFFF)),
        ("range", "3->9", Range(3, 9)),
        ("range", "3", Range(3, 3)),
        ("optional", "5", Optional(5)),
        ("optional", "0x*", Optional(None)),
    ],
)
def test_key_values(kind: str, text: str, value: MatchValue) -> None:
    assert match_value(key(kind), text) == value


def test_key_values_refused() -> None:
    with pytest.raises(NameProblem, match=r"is not a value for the exact key 'h\.f'"):
        match_value(key("exact"), "0x*1")


def test_names_match_exactly_or_as_a_unique_suffix() -> None:
    known = {"a.t1": 1, "b.t2": 2, "c.b.t2": 3}
    assert resolve("t1", known, "table") == 1
    assert resolve("b.t2", known, "table") == 2
    with pytest.raises(NameProblem, match="ambiguous"):
        resolve("t2", known, "table")
    with pytest.raises(NameProblem, match=r"no table 'x'; known: a\.t1"):
        resolve("x", known, "table")


@pytest.mark.parametrize(
    ("name", "position"),
    [("h.a", 0), ("a", 0), ("s$1.b", 1), ("s[1].b", 1), ("b", 1), ("h.$valid", 2), ("h.valid", 2), ("valid", 2)],
)
def test_key_names(name: str, position: int) -> None:
    keys = [key("exact", name=full) for full in ("h.a", "s[1].b", "h.$valid$")]
    assert key_position(name, keys) == position


def test_diff_shows_only_what_differs() -> None:
    received = bytes(range(40))
    pattern = received.hex().upper().replace("1112", "11*2").replace("15", "FF")
    assert mismatches(pattern, True, received) == [42, 43]
    assert hex_diff(pattern, True, received).splitlines() == [
        "          (16 bytes as expected)",
        "    16    expected 10 11 *2 13 14 FF 16 17 18 19 1A 1B 1C 1D 1E 1F",
        "          received 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F",
        "                                  ^^",
        "          (8 more bytes as expected)",
    ]


def test_lengths_count() -> None:
    assert mismatches("0102", False, b"\1\2\3") == []
    assert mismatches("0102", True, b"\1\2\3") == [4, 5]
    assert mismatches("0102**", False, b"\1\2") == [4, 5]
    assert hex_diff("0102", True, b"\1\2\3").splitlines()[0] == "     0    expected 01 02 .."


@given(st.binary(max_size=80), st.booleans(), st.data())
def test_a_packet_matches_itself_with_any_wildcards(data: bytes, exact: bool, choices: st.DataObject) -> None:
    digits = data.hex().upper()
    stars = choices.draw(st.lists(st.booleans(), min_size=len(digits), max_size=len(digits)))
    pattern = "".join("*" if star else digit for star, digit in zip(stars, digits, strict=True))
    assert mismatches(pattern, exact, data) == []


def test_every_command_is_implemented() -> None:
    assert {name for name in COMMANDS if not hasattr(Commands, f"do_{name}")} == set()
