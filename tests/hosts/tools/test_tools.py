"""What is generated from the field table: Scapy layers and the Wireshark dissector."""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from mrc_host import scapy_mrc
from mrc_host.node.mapper import Mapper, ProbeTarget
from mrc_host.proto.wire import fields, packet
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, Opcode
from support.wireshark import tshark

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "docs"))

import lua  # type: ignore[import-not-found]  # noqa: E402 - beside the file that it makes

VECTORS: list[dict[str, Any]] = json.loads((ROOT / "tests/vectors/mrc_wire.json").read_text())["vectors"]


def names_of(vector: dict[str, Any]) -> list[str]:
    """Return the headers from BTH on that a vector has."""
    layout = MRC_LAYOUTS[Opcode[vector["kind"].upper()]]
    stamped = "tx_timestamp" in vector["fields"] or not layout.payload
    return ["BTH", *(header.name for header in layout.headers if header.name != "TSETH" or stamped)]


# --- Scapy ---


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_scapy_dissects_and_rebuilds_a_vector(vector: dict[str, Any]) -> None:
    whole = bytes.fromhex(vector["hex"])
    dissected = IPv6(whole)
    assert bytes(dissected) == whole
    values: dict[str, Any] = {}
    for name in names_of(vector):
        layer = dissected.getlayer(scapy_mrc.LAYERS[name])
        assert layer is not None, name
        values |= {item.name: layer.getfieldval(item.name) for item in HEADERS[name].fields}
    values["payload"] = bytes(dissected[Raw].load).hex() if Raw in dissected else ""
    for key, value in vector["fields"].items():
        assert values[key] == value, key
    bth = dissected[scapy_mrc.BTH]
    bth.icrc = bth.pad = bth.ts = bth.padding = None  # now they must be computed
    assert bytes(dissected) == whole


def test_scapy_builds_a_packet_from_scratch() -> None:
    made = (
        IPv6(src="2001:db8::1", dst="2001:db8::2", tc=0x12, fl=0xABCD)
        / UDP(sport=0x1234, chksum=0)
        / scapy_mrc.BTH(opcode="WRITE_ONLY_IMM", dest_qp=7, psn=9, ack_req=1)
        / scapy_mrc.METH(rqmsn=1, msn=2)
        / scapy_mrc.TSETH(tx_timestamp=3)
        / scapy_mrc.RETH(va=4, rkey=5, dma_length=5)
        / scapy_mrc.IMMDT(immediate=6)
        / b"bytes"
    )
    back = packet.decode(bytes(made))
    assert back.entropy == 0xABCD1234
    assert back.payload == b"bytes"
    assert back.tseth == fields.Tseth(tx_timestamp=3)
    assert back.immdt == fields.ImmDt(immediate=6)
    over_ipv4 = (
        IP(src="10.0.0.1", dst="10.0.0.2")
        / UDP(sport=1, dport=4791, chksum=0)
        / scapy_mrc.BTH(opcode="ACK")
        / scapy_mrc.AETH(msn=3)
    )
    assert packet.decode(bytes(over_ipv4)).aeth == fields.Aeth(syndrome=0, msn=3)


def test_scapy_shows_a_trimmed_packet_and_leaves_roce_alone() -> None:
    cut = packet.trim(bytes.fromhex(VECTORS[0]["hex"]), keep=84, dscp=12)
    dissected = IPv6(cut)
    assert dissected[scapy_mrc.RETH].va == VECTORS[0]["fields"]["va"]
    assert dissected[scapy_mrc.BTH].icrc is None
    assert bytes(dissected) == cut
    other = IPv6() / UDP(sport=1) / scapy_mrc.BTH(opcode=0x0A) / b"whatever"
    assert Raw in IPv6(bytes(other))
    assert IPv6(bytes.fromhex(VECTORS[0]["hex"])[:62]).haslayer(Raw)


# --- Wireshark ---


def test_dissector_is_up_to_date() -> None:
    text = (ROOT / "docs/mrc.lua").read_text()
    assert text == lua.generate(), "run: python docs/lua.py > docs/mrc.lua"


def test_lua_command_prints_the_dissector(capsys: pytest.CaptureFixture[str]) -> None:
    assert lua.main([]) == 0
    assert capsys.readouterr().out == lua.generate()
    assert lua.main(["x"]) == 2


def write_capture(path: pathlib.Path, packets: list[bytes]) -> None:
    ethernet = b"\x02" * 12 + b"\x86\xdd"
    wrpcap(str(path), [Ether(ethernet + data) for data in packets])


def number(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


def test_tshark_shows_every_field_of_every_vector(tmp_path: pathlib.Path) -> None:
    whole = [bytes.fromhex(vector["hex"]) for vector in VECTORS]
    write_capture(tmp_path / "v.pcap", whole)
    keys = [f"mrc.{name.lower()}.{item.name}" for name in scapy_mrc.LAYERS for item in HEADERS[name].fields]
    extra = ["mrc.entropy", "mrc.payload", "mrc.icrc"]
    wanted = [part for key in extra + keys for part in ("-e", key)]
    lines = tshark(tmp_path / "v.pcap", "-T", "fields", *wanted).splitlines()
    for line, vector in zip(lines, VECTORS, strict=True):
        shown = {key: text for key, text in zip(extra + keys, line.split("\t"), strict=True) if text}
        assert shown["mrc.entropy"] == f"0x{vector['entropy']:08x}"
        assert number(shown["mrc.icrc"]) == int.from_bytes(bytes.fromhex(vector["hex"])[-4:], "little")
        present = names_of(vector)
        assert {key for key in shown if key not in extra} == {
            f"mrc.{name.lower()}.{item.name}" for name in present for item in HEADERS[name].fields
        }
        for key, value in vector["fields"].items():
            if key == "payload":
                assert shown.get("mrc.payload", "") == value
            else:
                name = next(name for name in present if key in HEADERS[name].by_name)
                assert number(shown[f"mrc.{name.lower()}.{key}"]) == value, (vector["name"], key)


def test_tshark_selects_packets_by_header(tmp_path: pathlib.Path) -> None:
    write_capture(tmp_path / "v.pcap", [bytes.fromhex(vector["hex"]) for vector in VECTORS])
    for name in scapy_mrc.LAYERS:
        found = tshark(tmp_path / "v.pcap", "-Y", f"mrc.{name.lower()}", "-T", "fields", "-e", "frame.number").split()
        assert list(map(int, found)) == [at for at, vector in enumerate(VECTORS, 1) if name in names_of(vector)], name


def test_every_filter_that_a_page_uses_is_one_of_the_dissector(tmp_path: pathlib.Path) -> None:
    """tshark refuses a name that no dissector has."""
    root = pathlib.Path(__file__).parents[3]
    pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("workshop/**/*.md")]
    named = re.compile(r"(?:-Y|-e|display filter) [`'\"]?(mrc(?:\.\w+)*)")
    filters = {name for page in pages for name in named.findall(page.read_text(encoding="utf-8"))}
    assert "mrc.seth" in filters
    write_capture(tmp_path / "v.pcap", [bytes.fromhex(VECTORS[0]["hex"])])
    for each in sorted(filters):
        tshark(tmp_path / "v.pcap", "-Y", each)


def test_tshark_says_what_was_trimmed_and_survives_short_packets(tmp_path: pathlib.Path) -> None:
    whole = bytes.fromhex(VECTORS[0]["hex"])
    cut = [packet.trim(whole, keep=keep, dscp=12) for keep in range(48, 100)]
    write_capture(tmp_path / "t.pcap", cut)
    lines = tshark(tmp_path / "t.pcap", "-T", "fields", "-e", "mrc.trimmed", "-e", "mrc.reth.va").splitlines()
    va = f"0x{VECTORS[0]['fields']['va']:016x}"
    for keep, line in zip(range(48, 100), lines, strict=True):
        trimmed, _, shown = line.partition("\t")
        assert trimmed in (("",) if keep < 60 else ("1", "True"))  # as versions of tshark print it
        assert shown == (va if keep >= 84 else "")


def test_tshark_shows_the_probes_of_the_clustermapper_and_their_plane(tmp_path: pathlib.Path) -> None:
    target = ProbeTarget("p2-t1.1", 2, "fd4d:5248::1", "fd4d:5243:2400:2801:2400:2c00::")
    mapper = Mapper("fd4d:5248::1", [target, target], interval_ns=2, timeout_ns=1000)
    mapper.handle_timer(70_000)
    mapper.handle_timer(80_000)
    write_capture(tmp_path / "p.pcap", [bytes(each) for each in mapper.to_send(2)])
    keys = ("mrcmap.magic", "mrcmap.plane", "mrcmap.target", "mrcmap.sequence", "mrcmap.sent", "_ws.col.Protocol")
    lines = tshark(tmp_path / "p.pcap", "-T", "fields", *(part for key in keys for part in ("-e", key))).splitlines()
    assert [line.split("\t") for line in lines] == [
        ["MRCMAP01", "2", "0", "1", "70000", "MRCMAP"],
        ["MRCMAP01", "2", "1", "2", "80000", "MRCMAP"],
    ]


def test_tshark_shows_plane_ev_and_psn_and_takes_no_zero_checksum_for_an_error(tmp_path: pathlib.Path) -> None:
    write_capture(tmp_path / "v.pcap", [bytes.fromhex(vector["hex"]) for vector in VECTORS])
    keys = ("_ws.col.Info", "mrc.plane", "mrc.bth.psn")
    lines = tshark(tmp_path / "v.pcap", "-T", "fields", *(part for key in keys for part in ("-e", key))).splitlines()
    for line, vector in zip(lines, VECTORS, strict=True):
        plane = vector["entropy"] >> 28
        info, shown, psn = line.split("\t")
        assert f" plane={plane} EV=0x{vector['entropy']:08x} " in info, vector["name"]
        assert info.endswith(f" PSN={psn}"), vector["name"]
        assert shown == str(plane)
    assert not tshark(tmp_path / "v.pcap", "-Y", "udp.checksum.zero")


def test_tshark_leaves_roce_to_its_own_dissector(tmp_path: pathlib.Path) -> None:
    other = IPv6(src="::1", dst="::2") / UDP(sport=1, chksum=0) / scapy_mrc.BTH(opcode=0x11) / Raw(bytes(4))
    write_capture(tmp_path / "r.pcap", [bytes(other)])
    assert "infiniband.bth" in tshark(tmp_path / "r.pcap", "-T", "json")
