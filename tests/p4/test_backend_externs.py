"""The externs of v1model, from source to what the switch does."""

from __future__ import annotations

import zlib

import pytest

from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.runtime.arrays import MeterConfig
from p4lite_tools.interpreter.state import AssertionFailed
from support.p4.bmv2_hash import HASHES
from support.p4.cases import INPUT, compile_text, pack, run, run_on, source, switch, unpack
from support.p4.oracle import Switch
from support.switch.programs import running

A, B, C, D = (INPUT[name] for name in "abcd")


def test_register_keeps_its_value_between_packets() -> None:
    body = "bit<16> n; r.read(n, 3); n = n + 1; r.write(3, n); hdr.h.c = n;"
    sw = switch(locals="register<bit<16>>(8) r;", body=body)
    assert [run_on(sw)["c"] for _ in range(3)] == [1, 2, 3]
    assert sw.register_read_all("Ig.r") == [0, 0, 0, 3, 0, 0, 0, 0]


def test_register_of_signed_values() -> None:
    body = "int<8> n; r.read(n, 0); n = n - 1; r.write(0, n); if (n < 0) hdr.h.c = (bit<16>)(int<16>)n;"
    sw = switch(locals="register<int<8>>(1) r;", body=body)
    assert [run_on(sw)["c"] for _ in range(2)] == [0xFFFF, 0xFFFE]


def test_register_result_in_a_slice() -> None:
    sw = switch(locals="register<bit<8>>(2) r;", body="r.write(1, 0xcd); r.read(hdr.h.d[15:8], 1);")
    assert run_on(sw)["d"] == 0x9ABCCDF0


def test_counter_counts_packets_and_bytes_by_index() -> None:
    sw = switch(locals="counter(4, CounterType.packets_and_bytes) c;", body="c.count((bit<32>)hdr.h.b & 3);")
    run_on(sw)
    run_on(sw, b=1)
    run_on(sw, b=5)
    assert [cell.packets for cell in sw.counter_read_all("Ig.c")] == [1, 2, 0, 0]


def test_meter_gives_the_colour_of_its_cell() -> None:
    sw = switch(
        locals="meter(4, MeterType.bytes) m;",
        body="bit<2> colour = 3; m.execute_meter(1, colour); hdr.h.a = (bit<8>)colour;",
    )
    assert run_on(sw)["a"] == 0
    (array,) = sw.doc["meter_arrays"]
    assert (array["name"], array["size"], array["type"], array["is_direct"]) == ("Ig.m", 4, "bytes", False)


def test_direct_counter_and_meter() -> None:
    text = """
        direct_counter(CounterType.packets) dc; direct_meter<bit<2>>(MeterType.packets) dm; bit<2> colour;
        action set(bit<8> v) { hdr.h.a = v; dm.read(colour); dc.count(); }
        table t { key = { hdr.h.b: exact; } actions = { set; NoAction; } counters = dc; meters = dm; size = 77; }
    """
    sw = switch(locals=text, body="t.apply(); hdr.h.b = (bit<8>)colour;")
    handle = sw.add("Ig.t", [(B, 0)], "set", [5])
    assert run_on(sw) == INPUT | {"a": 5, "b": 0}
    assert sw.direct_counter_read("Ig.t", handle).packets == 1
    table = sw.tables["Ig.t"]
    assert (table["with_counters"], table["direct_meters"], table["max_size"]) == (True, "Ig.dm", 77)
    (counter,) = sw.doc["counter_arrays"]
    assert counter["is_direct"]
    assert counter["binding"] == "Ig.t"
    (meter,) = sw.doc["meter_arrays"]
    assert (meter["binding"], meter["size"]) == ("Ig.t", 77)


def test_direct_meter_changes_only_what_an_action_reads_it_into() -> None:
    """BMv2 writes the colour before the action runs, and also when the action does not ask for it."""
    text = """
        direct_meter<bit<8>>(MeterType.packets) dm; bit<8> colour;
        action old() { hdr.h.a = colour; dm.read(colour); hdr.h.c = (bit<16>) colour; }
        action none() { hdr.h.a = colour; }
        action slice() { dm.read(hdr.h.d[15:8]); hdr.h.a = colour; }
        table t { key = { hdr.h.b: exact; } actions = { old; none; slice; NoAction; } meters = dm; }
    """
    sw = switch(locals=text, body="colour = 9; t.apply();")
    for b, action in enumerate(("old", "none", "slice")):
        handle = sw.add("Ig.t", [(b, 0)], action, [])
        sw.direct_meter_set("Ig.t", handle, MeterConfig(1, 0, 1, 9))
    assert run_on(sw, b=0) == INPUT | {"a": 9, "b": 0, "c": 1}
    assert run_on(sw, b=1) == INPUT | {"a": 9, "b": 1}
    assert run_on(sw, b=2) == INPUT | {"a": 9, "b": 2, "d": 0x9ABC01F0}


FIELDS = bytes([B]) + C.to_bytes(2, "big") + bytes([0xA5])


@pytest.mark.parametrize("algo", ["crc16", "crc32", "csum16", "xor16", "identity"])
def test_hash_extern_gives_the_algorithms_value_in_its_range(algo: str) -> None:
    body = f"bit<32> r; hash(r, HashAlgorithm.{algo}, 32w10, {{ hdr.h.b, hdr.h.c, 8w0xa5 }}, 32w1000); hdr.h.d = r;"
    assert run(body=body)["d"] == 10 + HASHES[algo](FIELDS) % 1000


def test_hash_of_widened_and_narrowed_fields() -> None:
    """A cast changes how many bits are hashed, even where it does not change the value."""
    body = "hash(hdr.h.d, HashAlgorithm.crc32, 32w0, { (bit<32>)hdr.h.a, (bit<8>)hdr.h.c }, 64w0x100000000);"
    assert run(body=body)["d"] == HASHES["crc32"](bytes([0, 0, 0, A, C & 0xFF]))


def test_hash_of_computed_values() -> None:
    body = "hash(hdr.h.d, HashAlgorithm.crc32, 32w0, { hdr.h.a + 1, true, 7w0 }, 64w0x100000000);"
    assert run(body=body)["d"] == zlib.crc32(bytes([A + 1, 0x80]))


def test_random_stays_in_its_bounds() -> None:
    sw = switch(body="random(hdr.h.a, 8w10, 8w13);")
    assert {run_on(sw)["a"] for _ in range(60)} == {10, 11, 12, 13}


def test_digest_takes_the_values_of_the_call() -> None:
    types = "struct seen_t { bit<8> x; bit<16> y; }"
    sw = switch(types=types, body="digest<seen_t>(1, {hdr.h.a, hdr.h.c}); hdr.h.a = 0;")
    run_on(sw)
    assert sw.digests == [("seen_t", (A, C))]
    assert sw.doc["learn_lists"][0]["id"] == 1


def test_mark_to_drop_drops_unless_the_port_is_set_again() -> None:
    sw = switch(body="mark_to_drop(sm);")
    assert sw.process(0, pack()) == []
    assert run(body="mark_to_drop(sm); sm.egress_spec = 2;") == INPUT
    assert switch(egress="mark_to_drop(sm);").process(0, pack()) == []


def test_clone_preserving_a_field_list() -> None:
    parts = {
        "meta": "@field_list(3) bit<8> kept; bit<8> lost;",
        "body": "meta.kept = 5; meta.lost = 6; clone_preserving_field_list(CloneType.I2E, 7, 3); hdr.h.a = 1;",
        "egress": "if (sm.instance_type == 1) { hdr.h.b = meta.kept; hdr.h.c = (bit<16>)meta.lost; }",
    }
    sw = switch(**parts)
    sw.set_clone_session(7, CloneSession(port=4))
    sent = {port: unpack(data) for port, data in sw.process(0, pack())}
    assert sent == {2: INPUT | {"a": 1}, 4: INPUT | {"b": 5, "c": 0}}


def test_field_lists_by_name() -> None:
    """Numbers of field lists may be written as literals, constants or members of a serializable enum."""
    sw = switch(
        types="enum bit<8> Lists { none = 0, kept = 3 } const bit<8> FIVE = 5; "
        "struct in_t { @field_list(8w5) bit<8> z; }",
        meta="@field_list(Lists.kept, FIVE) bit<8> x; @field_list(0x05) bit<8> y; in_t i;",
    )
    lists = {f["name"]: [e["value"][1] for e in f["elements"]] for f in sw.doc["field_lists"]}
    assert lists == {
        "field_list3": ["userMetadata.x"],
        "field_list5": ["userMetadata.x", "userMetadata.y", "userMetadata.i.z"],
    }


def test_clone_in_egress() -> None:
    sw = switch(egress="if (sm.instance_type == 0) { hdr.h.a = 1; clone(CloneType.E2E, 7); } else { hdr.h.b = 2; }")
    sw.set_clone_session(7, CloneSession(port=4))
    sent = {port: unpack(data) for port, data in sw.process(0, pack())}
    assert sent == {2: INPUT | {"a": 1}, 4: INPUT | {"a": 1, "b": 2}}


def test_resubmit_and_recirculate() -> None:
    sw = switch(
        meta="@field_list(1) bit<8> n;",
        body="if (sm.instance_type == 0) { meta.n = 9; resubmit_preserving_field_list(1); } "
        "else if (sm.instance_type == 4) { hdr.h.b = 4; } else { hdr.h.a = meta.n; }",
        egress="if (hdr.h.b != 4) { recirculate_preserving_field_list(1); }",
    )
    assert run_on(sw) == INPUT | {"a": 9, "b": 4}


def test_truncate() -> None:
    assert switch(body="truncate(3);").process(0, pack() + b"xyz") == [(2, pack()[:3])]


def test_multicast() -> None:
    sw = switch(body="sm.mcast_grp = 9;", egress="hdr.h.a = (bit<8>)sm.egress_rid; hdr.h.b = (bit<8>)sm.egress_port;")
    sw.set_multicast_group(9, [Replica(1, 11), Replica(3, 12)])
    assert {p: unpack(d)["a"] for p, d in sw.process(0, pack())} == {1: 11, 3: 12}


def test_checksum_update_and_verify() -> None:
    data = "{ hdr.h.a, hdr.h.b, hdr.h.d }"
    sw = switch(
        verify=f"verify_checksum(hdr.h.a != 0, {data}, hdr.h.c, HashAlgorithm.csum16);",
        update=f"update_checksum(hdr.h.isValid(), {data}, hdr.h.c, HashAlgorithm.csum16);",
        body="hdr.h.b = (bit<8>)sm.checksum_error;",
    )
    good = HASHES["csum16"](bytes([A, B]) + D.to_bytes(4, "big"))
    assert run_on(sw)["b"] == 1
    assert run_on(sw, c=good)["b"] == 0
    assert run_on(sw, a=0)["b"] == 0
    assert run_on(sw)["c"] == HASHES["csum16"](bytes([A, 1]) + D.to_bytes(4, "big"))


def test_checksum_in_a_branch_and_a_sub_control() -> None:
    top = """control Sum(in bit<8> a, in bit<8> b, inout bit<16> sum) {
        apply { update_checksum(b != 0, { a }, sum, HashAlgorithm.csum16); }
    }"""
    first, second = (f"Sum.apply(hdr.h.{name}, hdr.h.b, hdr.h.c);" for name in "ab")
    sw = switch(top=top, update=f"if (hdr.h.d == 1) {{ {first} }} else {{ {second} }}")
    assert run_on(sw)["c"] == HASHES["csum16"](bytes([B]))
    assert run_on(sw, d=1)["c"] == HASHES["csum16"](bytes([A]))
    assert run_on(sw, b=0)["c"] == run_on(sw, b=0, d=1)["c"] == C


def test_checksum_with_payload() -> None:
    sw = switch(update="update_checksum_with_payload(true, { hdr.h.a, hdr.h.b }, hdr.h.c, HashAlgorithm.csum16);")
    ((_, data),) = sw.process(0, pack() + b"\x01\x02\x03\x04")
    assert unpack(data)["c"] == HASHES["csum16"](bytes([A, B]) + b"\x01\x02\x03\x04")


@pytest.mark.parametrize("length", [0, 4, 10, 16, 100])
def test_checksum_with_payload_after_truncate(length: int) -> None:
    doc = compile_text(
        source(
            types="header more_t { bit<8> v; }",
            headers="more_t more;",
            parser="state start { pkt.extract(hdr.h); pkt.extract(hdr.more); transition accept; }",
            body=f"truncate({length});",
            update="update_checksum_with_payload(true, { hdr.h.a, hdr.h.b }, hdr.h.c, HashAlgorithm.csum16);",
            emit="pkt.emit(hdr.more);",
        )
    )
    payload = bytes(range(1, 21))
    packet = pack() + b"\xee" + payload
    covered = payload[:length]
    whole = pack(c=HASHES["csum16"](bytes([A, B]) + covered)) + packet[8:]
    assert Switch(doc).process(0, packet) == [(2, whole[:length])]
    with running(doc) as (_, runner):
        assert runner.run(packet).data == whole[:length]


def test_assert_assume_and_log() -> None:
    sw = switch(body='assert(hdr.h.a == 0x12); assume(hdr.h.b != 0); log_msg("a={} b={}", {hdr.h.a, hdr.h.b == 0x34});')
    run_on(sw)
    assert sw.messages == [f"a={A} b=1"]
    with pytest.raises(AssertionFailed):
        run_on(sw, a=0)


def test_action_profile_and_selector() -> None:
    text = """
        action set(bit<8> v) { hdr.h.a = v; }
        action_profile(32) ap; action_selector(HashAlgorithm.crc16, 64, 14) sel;
        table t { key = { hdr.h.b: exact; } actions = { set; NoAction; } implementation = ap; }
        table u { key = { hdr.h.b: exact; hdr.h.c: selector; hdr.h.d: selector; } actions = { set; NoAction; }
                  implementation = sel; }
    """
    doc = compile_text(source(locals=text, body="t.apply(); u.apply();"))
    pipeline = doc["pipelines"][0]
    profiles = {p["name"]: p for p in pipeline["action_profiles"]}
    assert profiles["Ig.ap"]["max_size"] == 32
    selector = profiles["Ig.sel"]["selector"]
    assert selector["algo"] == "crc16"
    assert [i["value"] for i in selector["input"]] == [["h", "c"], ["h", "d"]]
    tables = {t["name"]: t for t in pipeline["tables"]}
    assert (tables["Ig.t"]["type"], tables["Ig.u"]["type"]) == ("indirect", "indirect_ws")
    assert [k["name"] for k in tables["Ig.u"]["key"]] == ["hdr.h.b"]
    assert "default_entry" not in tables["Ig.t"]


def test_standard_metadata() -> None:
    body = "hdr.h.a = (bit<8>)sm.ingress_port; hdr.h.b = (bit<8>)sm.packet_length; sm.priority = 0;"
    sw = switch(body=body, egress="hdr.h.c = (bit<16>)sm.egress_port; hdr.h.d = (bit<32>)sm.egress_spec;")
    ((_, data),) = sw.process(6, pack() + b"123")
    assert unpack(data) == {"a": 6, "b": 11, "c": 2, "d": 0}
    aliases = {a: tuple(place) for a, place in sw.doc["field_aliases"]}
    assert aliases["intrinsic_metadata.mcast_grp"] == ("standard_metadata", "mcast_grp")
