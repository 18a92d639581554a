"""Action primitives: each with what it must do to the packet and to the packet's fate."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import pytest

from p4lite.switch.errors import ProgramError
from p4lite.switch.runtime.abi import open_program
from p4lite.switch.runtime.loader import load_program
from support.switch.bmv2_json import Doc, assign, expr, extract, fld, hdr, num, param, prim, stack
from support.switch.programs import once, running
from support.switch.runner import Runner

H = [("a", 8), ("b", 8), ("c", 16)]


def doc_of(*primitives: dict[str, Any], pipeline: str = "ingress") -> Doc:
    doc = Doc()
    doc.header("h", H)
    doc.header("g", [("x", 8)])
    doc.meta("m", [("v", 8)])
    doc.state("start", [extract("h")])
    if primitives:
        doc.run(*primitives, pipeline=pipeline)
    return doc


@pytest.mark.parametrize(
    ("primitives", "want"),
    [
        ([prim("modify_field", fld("h", "a"), num(0x1FF))], b"\xff\x02\x00\x04"),
        ([prim("add_to_field", fld("h", "a"), num(255))], b"\x00\x02\x00\x04"),
        ([prim("subtract_from_field", fld("h", "a"), fld("h", "b"))], b"\xff\x02\x00\x04"),
        ([prim("add", fld("h", "c"), fld("h", "a"), fld("h", "b"))], b"\x01\x02\x00\x03"),
        ([prim("subtract", fld("h", "c"), fld("h", "a"), fld("h", "b"))], b"\x01\x02\xff\xff"),
        ([prim("bit_xor", fld("h", "a"), fld("h", "a"), num(0x0F))], b"\x0e\x02\x00\x04"),
        ([prim("bit_or", fld("h", "a"), fld("h", "a"), num(0xF0))], b"\xf1\x02\x00\x04"),
        ([prim("bit_and", fld("h", "c"), fld("h", "c"), num(0x0C))], b"\x01\x02\x00\x04"),
        ([prim("shift_left", fld("h", "c"), fld("h", "a"), num(9))], b"\x01\x02\x02\x00"),
        ([prim("shift_right", fld("h", "c"), num(0x100), fld("h", "b"))], b"\x01\x02\x00\x40"),
        ([prim("no_op")], b"\x01\x02\x00\x04"),
        ([prim("add_header", hdr("g")), assign(fld("g", "x"), num(9))], b"\x01\x02\x00\x04\x09"),
        ([prim("remove_header", hdr("h"))], b""),
        ([prim("truncate", num(3)), prim("truncate", num(5))], b"\x01\x02\x00"),
        ([assign(fld("g", "x"), num(9))], b"\x01\x02\x00\x04"),
        ([assign(fld("g", "x"), num(9)), assign(fld("h", "a"), fld("g", "x"))], b"\x09\x02\x00\x04"),
        ([assign(fld("g", "x"), num(9)), prim("add_header", hdr("g"))], b"\x01\x02\x00\x04\x00"),
        # jumps: over one primitive, and conditionally
        ([prim("_jump", num(2)), assign(fld("h", "a"), num(0)), assign(fld("h", "b"), num(0))], b"\x01\x00\x00\x04"),
        ([prim("_jump_if_zero", fld("g", "x"), num(2)), assign(fld("h", "a"), num(0))], b"\x01\x02\x00\x04"),
        ([prim("_jump_if_zero", fld("h", "a"), num(2)), assign(fld("h", "a"), num(0))], b"\x00\x02\x00\x04"),
        # exit ends the pipeline, not the action
        ([prim("exit"), assign(fld("h", "a"), num(0))], b"\x00\x02\x00\x04"),
    ],
)
def test_primitives_of_an_action_write_the_expected_bytes(primitives: list[dict[str, Any]], want: bytes) -> None:
    assert once(doc_of(*primitives), b"\x01\x02\x00\x04").data == want


def test_exit_stops_the_pipeline_but_not_egress() -> None:
    doc = doc_of(prim("exit"))
    doc.run(assign(fld("h", "a"), num(7)))
    doc.run(assign(fld("h", "b"), num(8)), pipeline="egress")
    assert once(doc, b"\x01\x02\x00\x04").data == b"\x01\x08\x00\x04"


def test_packet_length_follows_validity() -> None:
    doc = doc_of(prim("add_header", hdr("g")), prim("remove_header", hdr("h")), prim("remove_header", hdr("h")))
    doc.run(assign(fld("g", "x"), fld("standard_metadata", "packet_length")), pipeline="egress")
    result = once(doc, b"\x01\x02\x00\x04payload")
    assert (result.data, result.packet_length) == (b"\x08payload", 8)


def test_fate_of_the_packet() -> None:
    std = hdr("standard_metadata")
    assert once(doc_of(prim("mark_to_drop", std)), b"\0" * 4).dropped
    assert once(doc_of(prim("drop")), b"\0" * 4).dropped
    assert once(doc_of(prim("mark_to_drop", std), pipeline="egress"), b"\0" * 4).dropped
    spec = fld("standard_metadata", "egress_spec")
    undropped = once(doc_of(prim("mark_to_drop", std), assign(spec, num(5))), b"\0" * 4)
    assert (undropped.port, undropped.dropped) == (5, False)
    group = fld("standard_metadata", "mcast_grp")
    assert once(doc_of(assign(group, num(7)), prim("mark_to_drop", std)), b"\0" * 4).mcast_grp == 0
    assert once(doc_of(prim("mark_to_drop", std), assign(group, num(7))), b"\0" * 4).mcast_grp == 7
    clone = once(doc_of(prim("clone_ingress_pkt_to_egress", num(3), num(1))), b"\0" * 4)
    assert (clone.clone_session, clone.clone_field_list) == (3, 1)
    assert once(doc_of(prim("resubmit", num(2))), b"\0" * 4).resubmit == 2
    assert once(doc_of(prim("recirculate", num(4)), pipeline="egress"), b"\0" * 4).recirculate == 4


def test_digest_pads_every_field() -> None:
    doc = doc_of(prim("generate_digest", num(0), num(1)))
    doc.meta("w", [("x", 4), ("y", 9), ("z", 72)])
    elements = [fld("h", "c"), fld("w", "x"), fld("w", "y"), fld("w", "z")]
    doc.extra["learn_lists"] = [{"id": 1, "name": "d", "elements": elements}]
    doc.run(*[assign(fld("w", n), num(v)) for n, v in (("x", 0xA), ("y", 0x1BC), ("z", 0x112233445566778899))])
    program = load_program(doc.json())
    result = once(doc, b"\x01\x02\x03\x04")
    assert result.digest == (1, b"\x03\x04\x0a\x01\xbc\x11\x22\x33\x44\x55\x66\x77\x88\x99")
    assert program.digests["d"].split(result.digest[1]) == (0x304, 0xA, 0x1BC, 0x112233445566778899)


def test_field_lists() -> None:
    doc = doc_of(assign(fld("m", "v"), fld("h", "a")))
    doc.extra["field_lists"] = [{"id": 1, "name": "fl", "elements": [fld("m", "v")]}]
    doc.run(assign(fld("h", "b"), fld("m", "v")), pipeline="egress")
    assert load_program(doc.json()).field_lists[1][0].field.name == "v"
    with running(doc) as (_, runner):
        assert runner.run(b"\x05\x00\x00\x00").data == b"\x05\x05\x00\x00"
        size = runner.struct.phv_size
        copy = (ctypes.c_uint8 * (size + 64))()
        address = (ctypes.addressof(copy) + 63) // 64 * 64
        runner.instance.opened.function("phv_init", None, ctypes.c_void_p)(address)
        runner._copy_list(1, address, runner.phv)
        assert ctypes.string_at(address, size).count(5) == 1
        runner._copy_list(99, address, runner.phv)  # an unknown list copies nothing


# --- headers ---


def test_assign_header_copies_or_invalidates() -> None:
    doc = Doc()
    t = doc.type("t", [("a", 8), ("w", 128), ("x", 200)])
    for name in ("p", "q", "r"):
        doc.header(name, t)
    doc.state("start", [extract("p"), extract("q")])
    doc.run(prim("assign_header", hdr("r"), hdr("p")), prim("assign_header", hdr("q"), hdr("r")))
    first, second = bytes(range(42)), bytes(range(100, 142))
    assert once(doc, first + second).data == first * 3
    doc.run(prim("remove_header", hdr("p")), prim("copy_header", hdr("r"), hdr("p")))
    assert once(doc, first + second).data == first


@pytest.mark.parametrize(
    ("primitives", "want"),
    [
        ([prim("push", stack("s"), num(1))], b"\x01\x02"),
        ([prim("pop", stack("s"), num(1))], b"\x02\x03"),
        ([prim("pop", stack("s"), num(2))], b"\x03"),
        ([prim("pop", stack("s"), num(9))], b""),
        ([prim("push", stack("s"), num(3))], b""),
        ([prim("push", stack("s"), num(1)), prim("pop", stack("s"), num(1))], b"\x01\x02"),
        ([prim("push", stack("s"), num(0))], b"\x01\x02\x03"),
        (
            [prim("push", stack("s"), num(1)), prim("add_header", hdr("s[0]")), assign(fld("s[0]", "x"), num(9))],
            b"\x09\x01\x02",
        ),
    ],
)
def test_push_pop(primitives: list[dict[str, Any]], want: bytes) -> None:
    doc = Doc()
    doc.stack("s", [("x", 8)], 3)
    doc.state("start", [extract("s", "stack")] * 3)
    doc.run(*primitives)
    assert once(doc, b"\x01\x02\x03").data == want


def test_elements_chosen_at_run_time() -> None:
    doc = Doc()
    doc.header("i", [("n", 8)])
    doc.stack("s", [("x", 8), ("y", 8)], 3)
    doc.state("start", [extract("i"), *[extract("s", "stack")] * 3])
    chosen = expr("dereference_header_stack", stack("s"), fld("i", "n"))
    y = expr("access_field", chosen, 1)
    doc.run(assign(y, expr("+", expr("access_field", chosen, 0), num(1))))
    with running(doc) as (instance, runner):
        assert runner.run(b"\x02" + b"\x10\x00\x20\x00\x30\x00").data == b"\x02\x10\x00\x20\x00\x30\x31"
        assert instance.faults()["stack_index"] == 0
        untouched = b"\x03" + b"\x10\x00\x20\x00\x30\x00"
        assert runner.run(untouched).data == untouched
        assert instance.faults()["stack_index"] == 1


def test_header_operations_on_chosen_elements() -> None:
    doc = Doc()
    doc.header("i", [("n", 8)])
    doc.stack("s", [("x", 8)], 3)
    doc.state("start", [extract("i"), *[extract("s", "stack")] * 3])
    chosen = expr("dereference_header_stack", stack("s"), fld("i", "n"))
    doc.run(prim("assign_header", hdr("s[0]"), chosen), prim("remove_header", chosen))
    assert once(doc, b"\x01\x0a\x0b\x0c").data == b"\x01\x0b\x0c"


def test_stack_assignment_and_comparison() -> None:
    doc = Doc()
    doc.stack("s", [("x", 8)], 2)
    t = doc.stacks[0]["header_type"]
    ids = []
    for i in range(2):
        doc.header(f"r[{i}]", t)
        ids.append(doc.headers[-1]["id"])
    doc.stacks.append({"name": "r", "id": 1, "header_type": t, "header_ids": ids})
    doc.header("o", [("same", 8), ("other", 8)])
    doc.state("start", [extract("s", "stack")] * 2)
    doc.run(
        prim("assign_header_stack", stack("r"), stack("s")),
        prim("add_header", hdr("o")),
        assign(fld("o", "same"), expr("b2d", None, expr("==", hdr("r[0]"), hdr("s[0]")))),
        assign(fld("o", "other"), expr("b2d", None, expr("!=", hdr("r[0]"), hdr("s[1]")))),
    )
    assert once(doc, b"\x05\x06").data == b"\x05\x06\x05\x06\x01\x01"


def test_unions() -> None:
    doc = Doc()
    members = {"a": [("x", 8)], "b": [("y", 16)]}
    doc.union("u", members)  # type: ignore[arg-type]
    doc.union("w", members)  # type: ignore[arg-type]
    for h in doc.headers:  # the same types in both
        if h["name"].startswith("w."):
            h["header_type"] = h["header_type"].replace("w_", "u_")
    doc.unions[1]["union_type"] = "u_t"
    doc.state("start", [extract("u.a")])
    union = [{"type": "header_union", "value": n} for n in ("w", "u")]
    doc.run(prim("add_header", hdr("w.b")), prim("assign_union", *union))
    assert once(doc, b"\x07").data == b"\x07\x07"
    doc.run(prim("add_header", hdr("u.b")))
    assert once(doc, b"\x07").data == b"\x00\x00\x07"


def test_union_stack_shift_leaves_no_ghosts() -> None:
    doc = Doc()
    doc.union_stack("us", {"a": [("x", 8)], "b": [("y", 16)]}, 2)
    take = [{"op": "extract", "parameters": [{"type": "union_stack", "value": ["us", m]}]} for m in ("a", "b")]
    doc.state("start", take)
    us = {"type": "header_union_stack", "value": "us"}
    doc.run(prim("pop", us, num(1)))
    assert once(doc, b"\x01\x02\x03").data == b"\x02\x03"
    push = Doc()
    push.union_stack("us", {"a": [("x", 8)], "b": [("y", 16)]}, 2)
    push.state("start", take)
    push.run(prim("push", us, num(1)))
    assert once(push, b"\x01\x02\x03").data == b"\x01"


def test_varbit_assignment() -> None:
    doc = Doc()
    t = doc.type("t", [("n", 8), ("d", "*")], 9)
    doc.header("p", t)
    doc.header("q", t)
    doc.state("start", [{"op": "extract_VL", "parameters": [extract("p")["parameters"][0], len_of("p")]}])
    doc.run(prim("add_header", hdr("q")), prim("assign_VL", fld("q", "d"), fld("p", "d")))
    assert once(doc, b"\x02ABpayload").data == b"\x02AB\x00ABpayload"
    whole = Doc()
    whole.types, whole.headers, whole.order = doc.types, doc.headers, doc.order
    whole.states, whole.init_state = doc.states, doc.init_state
    whole.run(prim("assign_header", hdr("q"), hdr("p")))
    assert once(whole, b"\x02ABpayload").data == b"\x02AB\x02ABpayload"


def len_of(header: str) -> dict[str, Any]:
    return {"type": "expression", "value": expr("<<", {"type": "lookahead", "value": [0, 8]}, num(3))}


# --- hashes, registers, counters, random ---


@pytest.mark.parametrize(
    ("algo", "want"),
    [
        ("crc16", 0xBB3D),
        ("crc32", 0xCBF43926),
        ("crcCCITT", 0x29B1),
        ("crc32_custom", 0xCBF43926),
        ("crc16_custom", 0xBB3D),
        ("crc_16_genibus", 0xD64E),
        ("crc_16_dnp", 0xEA82),
        ("crc_8", 0xF4),
        ("crc_8_maxim", 0xA1),
        ("crc_32c", 0xE3069283),
        ("crc_32_bzip2", 0xFC891918),
        ("crc_64_we", 0x62EC59E3F1A4F00A),
        ("poly_0x18005_init_0xffff_xout_0x0", 0x4B37),
        ("poly_0x11021_not_rev_init_0x0", 0x31C3),
        ("identity", 0x3132333435363738),
        ("xor16", 0x3132 ^ 0x3334 ^ 0x3536 ^ 0x3738 ^ 0x3900),
        ("xor32", 0x31323334 ^ 0x35363738 ^ 0x39000000),
        ("csum16", ~(0x3132 + 0x3334 + 0x3536 + 0x3738 + 0x3900 - 0xFFFF) & 0xFFFF),
        ("xxh64", 0x8CB841DB40E6AE83),
    ],
)
def test_hash_of_the_check_string(algo: str, want: int) -> None:
    """The nine bytes 123456789, for which the CRC catalogue lists check values."""
    doc = Doc()
    doc.header("h", [(f"b{i}", 8) for i in range(9)])
    doc.header("o", [("v", 64)])
    doc.state("start", [extract("h")])
    doc.extra["calculations"] = [{"name": "c", "id": 0, "algo": algo, "input": [fld("h", f"b{i}") for i in range(9)]}]
    calc = {"type": "calculation", "value": "c"}
    big = num((1 << 64) - 1)
    doc.run(
        prim("add_header", hdr("o")),
        prim("modify_field_with_hash_based_offset", fld("o", "v"), num(0), calc, big),
    )
    assert int.from_bytes(once(doc, b"123456789").data[9:], "big") == want


def test_hash_input_skips_invalid_headers_and_pads_on_the_right() -> None:
    doc = doc_of()
    doc.header("o", [("v", 64)])
    doc.meta("w", [("x", 4)])
    inputs = [fld("h", "a"), fld("g", "x"), fld("w", "x"), {"type": "hexstr", "value": "0xabc", "bitwidth": 12}]
    doc.extra["calculations"] = [{"name": "c", "id": 0, "algo": "crc32", "input": [*inputs, fld("w", "x")]}]
    calc = {"type": "calculation", "value": "c"}
    doc.run(
        assign(fld("w", "x"), num(5)),
        prim("add_header", hdr("o")),
        prim("modify_field_with_hash_based_offset", fld("o", "v"), num(100), calc, num(1000)),
    )
    want = 100 + zlib.crc32(b"\x01\x5a\xbc\x50") % 1000
    assert int.from_bytes(once(doc, b"\x01\x02\x03\x04").data[4:], "big") == want


def test_hash_with_modulus_zero() -> None:
    doc = doc_of()
    doc.extra["calculations"] = [{"name": "c", "id": 0, "algo": "crc16", "input": [fld("h", "a")]}]
    calc = {"type": "calculation", "value": "c"}
    doc.run(prim("modify_field_with_hash_based_offset", fld("h", "c"), num(9), calc, num(0)))
    with running(doc) as (instance, runner):
        assert runner.run(b"\x01\x02\x03\x04").data == b"\x01\x02\x00\x09"
        assert instance.faults()["hash_zero"] == 1


@pytest.mark.parametrize("width", [1, 8, 64, 100, 128, 300])
def test_registers(width: int) -> None:
    doc = Doc()
    pad = -width % 8
    doc.header("h", [("i", 8), ("v", width), *([("pad", pad)] if pad else [])])
    doc.state("start", [extract("h")])
    doc.extra["register_arrays"] = [{"name": "r", "id": 0, "size": 4, "bitwidth": width}]
    array = {"type": "register_array", "value": "r"}
    doc.run(
        prim("register_read", fld("h", "v"), array, fld("h", "i")),
        prim("register_write", array, fld("h", "i"), expr("+", fld("h", "v"), num(1))),
    )
    size = (width + pad) // 8
    top = (1 << width) - 1
    with running(doc) as (instance, runner):
        instance.register_write("r", 2, top)
        out = runner.run(b"\x02" + bytes(size)).data
        assert int.from_bytes(out[1:], "big") >> pad == top
        assert instance.register_read_all("r") == [0, 0, 0, 0]
        runner.run(b"\x03" + bytes(size))
        assert instance.register_read("r", 3) == 1
        # out of bounds: nothing read, nothing written, both counted
        keep = b"\x04" + b"\x80" + bytes(size - 1)
        assert runner.run(keep).data == keep
        assert instance.faults()["register_index"] == 2


def test_register_cells_in_expressions_and_as_targets() -> None:
    doc = doc_of()
    doc.extra["register_arrays"] = [{"name": "r", "id": 0, "size": 4, "bitwidth": 32}]
    cell = {"type": "register", "value": ["r", fld("h", "a")]}
    doc.run(assign(cell, expr("+", cell, num(5))), assign(fld("h", "c"), cell))
    with running(doc) as (instance, runner):
        runner.run(b"\x01\0\0\0")
        assert runner.run(b"\x01\0\0\0").data == b"\x01\x00\x00\x0a"
        assert instance.register_read_all("r") == [0, 10, 0, 0]


def test_counters() -> None:
    doc = doc_of(prim("count", {"type": "counter_array", "value": "c"}, fld("h", "a")))
    doc.extra["counter_arrays"] = [{"name": "c", "id": 0, "size": 2, "is_direct": False}]
    with running(doc) as (instance, runner):
        for first in (1, 1, 2):
            runner.run(bytes([first, 0, 0, 0]) + b"x" * 6)
        assert [(c.packets, c.bytes) for c in instance.counter_read_all("c")] == [(0, 0), (2, 20)]
        assert instance.faults()["counter_index"] == 1
        instance.counter_write("c", 0, 5, 6)
        assert instance.counter_read("c", 0).bytes == 6
        instance.counter_reset("c")
        assert instance.counter_read("c", 1).packets == 0


def test_random_stays_in_bounds_and_repeats_with_the_seed() -> None:
    doc = doc_of(prim("modify_field_rng_uniform", fld("h", "c"), fld("h", "a"), fld("h", "b")))
    drawn = []
    for _ in range(2):
        with running(doc) as (instance, runner):
            drawn.append([int.from_bytes(runner.run(b"\x03\x07\0\0").data[2:], "big") for _ in range(200)])
            assert runner.run(b"\x07\x03\xaa\xbb").data == b"\x07\x03\xaa\xbb"
            assert instance.faults()["random_range"] == 1
    assert set(drawn[0]) == {3, 4, 5, 6, 7}
    assert drawn[0] == drawn[1]


# --- diagnosis ---


def test_log_msg_and_assert_run_without_effect_on_the_packet() -> None:
    vector = {"type": "parameters_vector", "value": [fld("h", "a"), expr("-", num(0), num(1 << 70))]}
    doc = doc_of(
        prim("log_msg", {"type": "string", "value": 'x={} "\\{y\\}"={} %s'}, vector),
        # p4c writes an empty object where there are no arguments
        prim("log_msg", {"type": "string", "value": "plain"}, {"type": "parameters_vector", "value": {}}),
        prim("assert", expr("==", fld("h", "a"), num(1))),
        prim("assume", expr("d2b", None, fld("h", "b"))),
    )
    said: list[str] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)(lambda _, text: said.append(text.decode()))
    pointer = ctypes.cast(callback, ctypes.c_void_p).value
    program = load_program(doc.json())
    host = open_program(program.build()).about.structures["p4_host"](None, pointer, pointer)
    instance = program.instance(host=ctypes.addressof(host))
    Runner(instance).run(b"\x02\x00\x00\x00")
    assert said[0] == f'x=2 "{{y}}"={-(1 << 70)} %s'
    assert said[1] == "plain"
    assert [s.split(" at ")[0] for s in said[2:]] == ["assert", "assume"]
    assert instance.faults()["assertion"] == 2
    instance.close()


# --- checksums ---


def checksum_doc(**more: Any) -> Doc:
    doc = Doc()
    doc.header("h", [("a", 16), ("sum", 16)])
    doc.header("o", [("bad", 8)])
    doc.state("start", [extract("h")])
    inputs: list[dict[str, Any]] = [fld("h", "a")]
    if more.pop("payload", False):
        inputs.append({"type": "payload", "value": None})
    doc.extra["calculations"] = [{"name": "c", "id": 0, "algo": "csum16", "input": inputs}]
    doc.extra["checksums"] = [
        {"name": "k", "id": 0, "target": ["h", "sum"], "type": "generic", "calculation": "c", "if_cond": None, **more}
    ]
    return doc


def test_checksum_verified_and_updated() -> None:
    doc = checksum_doc()
    doc.run(assign(fld("h", "a"), expr("+", fld("h", "a"), num(1))))
    good = once(doc, b"\x00\x05\xff\xfa")
    assert (good.data, good.checksum_error) == (b"\x00\x06\xff\xf9", 0)
    assert once(doc, b"\x00\x05\xff\xfb").checksum_error == 1


def test_checksum_conditions() -> None:
    only = expr("==", fld("h", "a"), num(5))
    doc = checksum_doc(if_cond=only)
    assert once(doc, b"\x00\x05\x00\x00").checksum_error == 1
    skipped = once(doc, b"\x00\x06\x12\x34")
    assert (skipped.data, skipped.checksum_error) == (b"\x00\x06\x12\x34", 0)
    assert once(checksum_doc(verify=False), b"\x00\x05\x00\x00").checksum_error == 0
    assert once(checksum_doc(update=False), b"\x00\x05\x00\x00").data == b"\x00\x05\x00\x00"


def test_checksum_with_payload() -> None:
    doc = checksum_doc(payload=True)
    result = once(doc, b"\x00\x05\xf0\xf9\x0f\x01")
    assert (result.data, result.checksum_error) == (b"\x00\x05\xf0\xf9\x0f\x01", 0)
    assert once(doc, b"\x00\x05\xf0\xf9\x0f\x02").checksum_error == 1
    assert once(doc, b"\x00\x05\xf0\xf9\x0f").checksum_error == 1


def test_ipv4_checksum_of_old_programs() -> None:
    doc = Doc()
    doc.header("ip", [("w", 80), ("sum", 16), ("src", 32), ("dst", 32)])
    doc.state("start", [extract("ip")])
    doc.extra["checksums"] = [{"name": "k", "id": 0, "target": ["ip", "sum"], "type": "ipv4"}]
    header = bytes.fromhex("450000730000400040110000c0a80001c0a800c7")
    assert once(doc, header).data == header[:10] + b"\xb8\x61" + header[12:]
    assert once(doc, header).checksum_error == 1


# --- parameters ---


def test_action_data_of_every_width() -> None:
    doc = Doc()
    widths = (1, 7, 64, 65, 128, 200)
    pad = -sum(widths) % 8
    doc.header("k", [("x", 8)])
    doc.header("o", [(f"f{w}", w) for w in widths] + [("pad", pad)])
    doc.state("start", [extract("k")])
    fill = doc.action(
        "fill",
        [(f"p{w}", w) for w in widths],
        prim("add_header", hdr("o")),
        *[assign(fld("o", f"f{w}"), param(i)) for i, w in enumerate(widths)],
    )
    values = [(1 << w) - 1 - i for i, w in enumerate(widths)]
    doc.table("t", [("exact", "k", "x")], [fill], default=(fill, values))
    out = int.from_bytes(once(doc, b"\x00").data[1:], "big") >> pad
    for width, value in reversed(list(zip(widths, values, strict=True))):
        assert out & ((1 << width) - 1) == value
        out >>= width


@pytest.mark.parametrize(
    ("primitive", "complaint"),
    [
        (prim("fly", num(1)), "'fly' is not supported"),
        (prim("assign", fld("h", "a")), "takes 2 parameters"),
        (prim("assign", num(1), num(1)), "cannot be assigned"),
        (prim("assign", fld("h", "$valid$"), num(1)), "cannot be assigned"),
        (prim("assign", fld("h", "zz"), num(1)), "has no field 'zz'"),
        (prim("assign", fld("q", "a"), num(1)), "no header 'q'"),
        (prim("assign", fld("h", "a"), param(0)), "no parameter 0"),
        (prim("add_header", num(1)), "expected a header"),
        (prim("push", hdr("h"), num(1)), "expected a header stack"),
        (prim("_jump", num(77)), "jump to primitive 77"),
        (prim("count", {"type": "counter_array", "value": "nix"}, num(1)), "no counter array 'nix'"),
    ],
)
def test_bad_primitives_are_named_with_their_place(primitive: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProgramError) as caught:
        load_program(doc_of(primitive).json())
    assert complaint in str(caught.value)
    assert "actions[0].primitives[0]" in str(caught.value)
