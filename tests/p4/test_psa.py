"""Programs for the Portable Switch Architecture, from source to what the interpreter does."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import p4lite
from p4lite.api.program import Program
from p4lite.compiler import frontend
from p4lite.compiler.diagnostics import CompileError
from p4lite.switch.errors import InterpretedOnly
from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.program.entry import ActionCall, Exact
from p4lite.switch.source import Loaded
from p4lite_tools.advice import lint
from p4lite_tools.cli import stf
from p4lite_tools.interpreter.events import Event, PacketStarted
from p4lite_tools.interpreter.machine import Interpreter
from p4lite_tools.trace import Lines, Recorder

RECIRCULATE = "PSA_PORT_RECIRCULATE"
FRAME = """
#include <psa.p4>
header h_t { bit<8> a; bit<8> b; bit<16> c; bit<32> d; }
struct headers { h_t h; }
struct meta_t { bit<16> n; }
struct kept_t { bit<8> k; }
%(top)s
parser IP(packet_in pkt, out headers hdr, inout meta_t meta, in psa_ingress_parser_input_metadata_t istd,
          in kept_t resubmit_meta, in kept_t recirculate_meta) {
    %(in_locals)s
    state start { pkt.extract(hdr.h); %(in_parser)s transition accept; }
}
control IG(inout headers hdr, inout meta_t meta, in psa_ingress_input_metadata_t istd,
           inout psa_ingress_output_metadata_t ostd) {
    %(locals)s
    apply { %(ingress)s }
}
control ID(packet_out pkt, out kept_t clone_i2e_meta, out kept_t resubmit_meta, out kept_t normal_meta,
           inout headers hdr, in meta_t meta, in psa_ingress_output_metadata_t istd) {
    %(id_locals)s
    apply { %(in_deparser)s pkt.emit(hdr.h); }
}
parser EP(packet_in pkt, out headers hdr, inout meta_t meta, in psa_egress_parser_input_metadata_t istd,
          in kept_t normal_meta, in kept_t clone_i2e_meta, in kept_t clone_e2e_meta) {
    state start { pkt.extract(hdr.h); %(out_parser)s transition accept; }
}
control EG(inout headers hdr, inout meta_t meta, in psa_egress_input_metadata_t istd,
           inout psa_egress_output_metadata_t ostd) {
    apply { %(egress)s }
}
control ED(packet_out pkt, out kept_t clone_e2e_meta, out kept_t recirculate_meta, inout headers hdr, in meta_t meta,
           in psa_egress_output_metadata_t istd, in psa_egress_deparser_input_metadata_t edstd) {
    apply { %(out_deparser)s pkt.emit(hdr.h); }
}
IngressPipeline(IP(), IG(), ID()) ip;
EgressPipeline(EP(), EG(), ED()) ep;
PSA_Switch(ip, PacketReplicationEngine(), ep, BufferingQueueingEngine()) main;
"""
PLACES = (
    "top", "in_locals", "in_parser", "locals", "ingress", "id_locals", "in_deparser", "out_parser", "egress",
    "out_deparser",
)  # fmt: skip
SEND = "send_to_port(ostd, (PortId_t) 2);"


def program(**code: str) -> Program:
    return p4lite.compile(FRAME % {place: code.get(place, "") for place in PLACES})


def switch(**code: str) -> Interpreter:
    return Interpreter(program(**code).facts)


def packet(a: int = 1, b: int = 2, c: int = 3, d: int = 4, rest: bytes = b"rest") -> bytes:
    return bytes([a, b]) + c.to_bytes(2, "big") + d.to_bytes(4, "big") + rest


def run(sw: Interpreter, data: bytes = packet(), port: int = 1) -> list[tuple[int, bytes]]:
    return [(out.port, out.data) for out in sw.process(port, data)]


def test_a_packet_is_dropped_unless_the_program_sends_it() -> None:
    assert run(switch()) == []
    assert run(switch(ingress=SEND)) == [(2, packet())]
    assert run(switch(ingress=SEND + " ingress_drop(ostd);")) == []
    assert run(switch(ingress=SEND, egress="egress_drop(ostd);")) == []


def test_drop_that_is_taken_back_is_named() -> None:
    taken_back = {
        f"if (hdr.h.a == 1) {{ ingress_drop(ostd); }}\n{SEND}": True,
        f"if (hdr.h.a == 1) {{ ostd.drop = true; }}\n{SEND}": True,
        f"if (hdr.h.a == 1) {{ ingress_drop(ostd); return; }}\n{SEND}": False,
        f"{SEND} if (hdr.h.a == 1) {{ ingress_drop(ostd); }}": False,
    }
    for ingress, said in taken_back.items():
        text = FRAME % (dict.fromkeys(PLACES, "") | {"ingress": ingress})
        assert any("the drop" in d.message for d in lint(frontend.load_text(text, "psa.p4"))) is said
        recorder = Recorder()
        Interpreter(program(ingress=f"{SEND}\n{ingress}").facts, observers=[recorder]).process(1, packet())
        assert any("undoes the drop" in line for _, line in Lines().told(recorder.take())) is said


def test_multicast_gives_each_copy_its_instance() -> None:
    sw = switch(
        ingress="multicast(ostd, (MulticastGroup_t) 7); ostd.class_of_service = (ClassOfService_t) 5;",
        egress="hdr.h.a = (bit<8>) (EgressInstanceUint_t) istd.instance; "
        "hdr.h.b = (bit<8>) (ClassOfServiceUint_t) istd.class_of_service; "
        "if (istd.packet_path == PSA_PacketPath_t.NORMAL_MULTICAST) { hdr.h.c = 9; }",
    )
    assert run(sw) == []  # there is no such group
    sw.set_multicast_group(7, [Replica(3, 1), Replica(4, 2)])
    assert run(sw) == [(3, packet(1, 5, 9)), (4, packet(2, 5, 9))]


def test_a_clone_of_ingress_is_what_came_in_also_of_a_dropped_packet() -> None:
    sw = switch(
        ingress="hdr.h.a = 9; meta.n = 6; ostd.clone = true; ostd.clone_session_id = (CloneSessionId_t) 8;",
        in_deparser="if (psa_clone_i2e(istd)) { clone_i2e_meta.k = (bit<8>) meta.n; }",
        out_parser="meta.n = (bit<16>) clone_i2e_meta.k;",
        egress="if (istd.packet_path == PSA_PacketPath_t.CLONE_I2E) { hdr.h.c = meta.n; }",
    )
    sw.set_clone_session(8, CloneSession(port=5))
    assert run(sw) == [(5, packet(1, 2, 6))]


def test_a_clone_of_egress_is_what_the_deparser_wrote() -> None:
    sw = switch(
        ingress=SEND,
        egress="if (istd.packet_path == PSA_PacketPath_t.CLONE_E2E) { hdr.h.b = 8; hdr.h.c = meta.n; } else { "
        "hdr.h.a = 9; ostd.clone = true; ostd.clone_session_id = (CloneSessionId_t) 8; egress_drop(ostd); }",
        out_deparser="if (psa_clone_e2e(istd)) { clone_e2e_meta.k = 7; }",
        out_parser="meta.n = (bit<16>) clone_e2e_meta.k;",
    )
    sw.set_clone_session(8, CloneSession(mcast_group=3))
    sw.set_multicast_group(3, [Replica(5, 0), Replica(6, 0)])
    assert run(sw) == [(5, packet(9, 8, 7)), (6, packet(9, 8, 7))]


def test_resubmission_takes_the_original_bytes_and_the_metadata() -> None:
    sw = switch(
        in_parser="meta.n = (bit<16>) resubmit_meta.k;",
        ingress="if (istd.packet_path == PSA_PacketPath_t.RESUBMIT) { hdr.h.c = meta.n; } "
        "else { hdr.h.a = 9; ostd.resubmit = true; } " + SEND,
        in_deparser="if (psa_resubmit(istd)) { resubmit_meta.k = 7; }",
    )
    assert run(sw) == [(2, packet(c=7))]


def test_recirculation_takes_the_deparsed_bytes_and_the_metadata() -> None:
    sw = switch(
        in_parser="meta.n = (bit<16>) recirculate_meta.k;",
        ingress=f"if (istd.ingress_port == {RECIRCULATE}) {{ hdr.h.c = meta.n; {SEND} }} "
        f"else {{ hdr.h.a = 9; send_to_port(ostd, {RECIRCULATE}); }}",
        out_deparser="if (psa_recirculate(istd, edstd)) { recirculate_meta.k = 5; }",
    )
    seen: list[Event] = []
    sw.observers.append(seen.append)
    assert run(sw) == [(2, packet(9, c=5))]
    assert [each.instance_type for each in seen if isinstance(each, PacketStarted)] == [0, 4]


def test_normal_metadata_reaches_egress_and_user_metadata_does_not() -> None:
    sw = switch(
        ingress="meta.n = 6; " + SEND,
        in_deparser="if (psa_normal(istd)) { normal_meta.k = (bit<8>) meta.n; }",
        out_parser="hdr.h.a = normal_meta.k; hdr.h.c = meta.n;",
    )
    assert run(sw) == [(2, packet(6, c=0))]


def test_a_packet_that_always_recirculates_ends() -> None:
    sw = switch(ingress=f"send_to_port(ostd, {RECIRCULATE});")
    assert run(sw) == []


def test_a_parser_error_is_seen_in_ingress() -> None:
    sw = switch(ingress="if (istd.parser_error == error.PacketTooShort) { hdr.h.setValid(); hdr.h.a = 9; } " + SEND)
    (out,) = run(sw, b"\1")
    assert out == (2, bytes([9, 0, 0, 0, 0, 0, 0, 0, 1]))


def test_counters_registers_and_random_numbers() -> None:
    sw = switch(
        locals="Counter<bit<32>, bit<2>>(4, PSA_CounterType_t.PACKETS_AND_BYTES) n; Random<bit<8>>(3, 5) r;"
        "Register<bit<16>, bit<2>>(4) reg; Register<bit<8>, bit<2>>(2, 77) first;",
        ingress="n.count(1); bit<16> v = reg.read(2); reg.write(2, v + 1); hdr.h.c = v; hdr.h.a = first.read(1); "
        "hdr.h.b = r.read(); " + SEND,
    )
    outs = [run(sw)[0][1] for _ in range(3)]
    assert [int.from_bytes(out[2:4], "big") for out in outs] == [0, 1, 2]
    assert {out[0] for out in outs} == {77}
    assert {out[1] for out in outs} <= {3, 4, 5}
    assert (sw.counter_read("IG.n", 1).packets, sw.counter_read("IG.n", 1).bytes) == (3, 36)


def test_meters_give_the_colours_of_psa() -> None:
    sw = switch(
        locals="Meter<bit<2>>(4, PSA_MeterType_t.PACKETS) m; DirectMeter(PSA_MeterType_t.BYTES) dm; bit<8> v;"
        "action a() { if (dm.execute() == PSA_MeterColor_t.GREEN) { hdr.h.b = 6; } }"
        "table t { key = { hdr.h.b: exact; } actions = { a; NoAction; } psa_direct_meter = dm; }",
        ingress="if (m.execute(1) == PSA_MeterColor_t.GREEN) { hdr.h.a = 7; } t.apply(); " + SEND,
    )
    sw.table_add("IG.t", (Exact(2),), ActionCall("IG.a"))
    assert run(sw) == [(2, packet(7, 6))]


def test_hashes_are_of_the_data_without_padding() -> None:
    sw = switch(
        locals="Hash<bit<32>>(PSA_HashAlgorithm_t.CRC32) h;",
        ingress="bit<32> low = h.get_hash(32w5, { hdr.h.a, hdr.h.b }, 32w4); hdr.h.c = (bit<16>) low; "
        "hdr.h.d = h.get_hash({ hdr.h.a, hdr.h.b }); " + SEND,
    )
    value = zlib.crc32(b"\1\2")
    assert run(sw) == [(2, packet(c=5 + value % 4, d=value))]


def test_checksums_in_parser_and_deparser() -> None:
    sw = switch(
        in_locals="InternetChecksum() ck;",
        in_parser="ck.clear(); ck.add({ hdr.h.a, hdr.h.b, hdr.h.c }); ck.subtract(hdr.h.c); meta.n = ck.get();",
        id_locals="Checksum<bit<32>>(PSA_HashAlgorithm_t.CRC32) crc;",
        ingress="hdr.h.c = meta.n; " + SEND,
        in_deparser="crc.update(hdr.h.a); crc.update(hdr.h.b); hdr.h.d = crc.get();",
    )
    assert run(sw) == [(2, packet(c=0x0102 ^ 0xFFFF, d=zlib.crc32(b"\1\2")))]


def test_a_digest_is_sent_by_the_deparser() -> None:
    made = program(id_locals="Digest<kept_t>() news;", in_deparser="kept_t k; k.k = hdr.h.b; news.pack(k);")
    sw = Interpreter(made.facts)
    run(sw)
    assert sw.digests == [("ID.news", (2,))]
    assert 'name: "ID.news"' in made.p4info


def test_an_action_selector_chooses_by_its_hash() -> None:
    made = program(
        locals="ActionSelector(PSA_HashAlgorithm_t.CRC16, 8, 4) s; action to(PortIdUint_t p) "
        "{ send_to_port(ostd, (PortId_t) p); } table t { key = { hdr.h.a: exact; hdr.h.d: selector; } "
        "actions = { to; NoAction; } psa_implementation = s; psa_idle_timeout = PSA_IdleTimeout_t.NOTIFY_CONTROL; }",
        ingress="t.apply();",
    )
    (profile,) = made.facts.action_profiles.values()
    assert (profile.name, profile.selector, profile.tables) == ("IG.s", True, ("IG.t",))
    assert made.facts.tables["IG.t"].support_timeout
    assert "idle_timeout_behavior: NOTIFY_CONTROL" in made.p4info
    assert 'arch: "psa"' in made.p4info


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ({"in_deparser": "if (meta.n == 1) { pkt.emit(hdr.h); }"}, "an emit under a condition"),
        ({"in_deparser": "pkt.emit(hdr.h); hdr.h.a = 1;"}, "after its emit"),
        (
            {"locals": "Meter<bit<2>>(4, PSA_MeterType_t.BYTES) m;", "ingress": "m.execute(1, PSA_MeterColor_t.RED);"},
            "a colour-aware meter",
        ),
        (
            {"in_locals": "Register<bit<8>, bit<2>>(4) r;", "in_parser": "r.write(0, 1);"},
            "extern 'Register' in a parser",
        ),
        ({"locals": "Random<bit<8>>(5, 3) r;", "ingress": "hdr.h.a = r.read();"}, "random numbers from 5 to 3"),
    ],
)
def test_what_is_left_out_is_refused_by_name(code: dict[str, str], named: str) -> None:
    with pytest.raises(CompileError, match=named):
        program(**code)


def test_the_compiled_switch_refuses_the_program_and_says_what_runs_it() -> None:
    made = program(ingress=SEND)
    with pytest.raises(InterpretedOnly, match=r"architecture psa.*p4lite trace"):
        _ = made.native
    with pytest.raises(InterpretedOnly):
        p4lite.Switch(made, backend="compiled")
    with pytest.raises(InterpretedOnly, match=r"p\.json"):
        Loaded(Path("p.json"), made.bmv2, None).check_compiled()
    with p4lite.Switch(made) as sw:
        assert sw.backend == "interpreter"
        assert sw.send(1, packet()) == [(2, packet())]


def test_stf_runs_it_in_the_interpreter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, test = tmp_path / "p.p4", tmp_path / "p.stf"
    text = FRAME % {place: SEND if place == "ingress" else "" for place in PLACES}
    source.write_text(text, encoding="utf-8")
    test.write_text("packet 1 0102000300000004\nexpect 2 0102000300000004 $\n", encoding="utf-8")
    assert stf.run([str(source), str(test)]) == 0
    test.write_text("packet 1 0102000300000004\nexpect 2 09 \n", encoding="utf-8")
    assert stf.run([str(source), str(test)]) == 1
    assert "differs" in capsys.readouterr().out
