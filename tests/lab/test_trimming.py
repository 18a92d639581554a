"""Trimming and ECN in the P4 data plane, as counters and captures show them, and what Wireshark makes of it."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scapy.layers.inet6 import IPv6
from scapy.utils import PcapNgReader

from mrc_topo import rules
from mrclab.lab.records.capture_tail import CaptureTail
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.lab.labs import lab_file, session
from support.wireshark import tshark

CLOCKS = ["virtual", pytest.param("real", marks=[pytest.mark.lab, pytest.mark.slow])]
NEXT_IPV6 = 41


@contextmanager
def capture(made: Session, device: int, number: int, path: pathlib.Path) -> Iterator[None]:
    """Both directions of a switch's port, in a file of ours."""
    if isinstance(made, VirtualSession):
        port = made.server.fabric.switch(device).port(number)
        port.capture(path)
        yield
        port.capture(None)
        return
    assert isinstance(made, RealSession)
    with CaptureTail(made.run.folder, path) as following:
        made.target.capture(device, number, following.name)
        yield
        made.target.capture(device, number, None)


@pytest.fixture(scope="module", params=CLOCKS)
def captured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Three hosts write to one, whose ports' queues trim early; the last hop of plane 0 is captured."""
    folder = tmp_path_factory.mktemp("trim")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRCLAB_RUN", str(folder / "run"))
        queues = {"limit": "64KiB", "ecn": {"kmin": "4KiB", "kmax": "12KiB"}, "trim": {"threshold": "16KiB"}}
        lab = lab_file(folder, "tiny", queues=queues, cc={"initial_cwnd": "64KiB", "max_wnd": "64KiB"})
        workload = Workload(name="incast", params={"message_bytes": 60_000, "iterations": 4, "target": 0})
        experiment = Experiment(name="trim", title="trim", lab=lab, workload=workload)
        path = folder / "h0-0.pcapng"
        with session(lab, request.param) as made:
            port = made.topology.hosts[0].ports[0]
            device = made.topology.switch(port.t0).device_id
            with capture(made, device, port.t0_port, path):
                result = run_on(made, experiment)
            counters = made.program_counters()
            stats = made.target.stats()[device].ports[port.t0_port]  # type: ignore[attr-defined]
        yield {"path": path, "result": result, "counters": counters, "stats": stats}


def inner_packets(path: pathlib.Path) -> list[tuple[int, bytes]]:
    """(outer IPv6 payload length, inner IPv6 packet) of every SRv6 packet in a capture."""
    found = []
    for frame in PcapNgReader(str(path)):
        raw = bytes(frame)
        if raw[12:14] == b"\x86\xdd" and raw[20] == NEXT_IPV6:
            found.append((int.from_bytes(raw[18:20], "big"), raw[54:]))
    return found


def dscp(packet: bytes) -> int:
    return (int.from_bytes(packet[:2], "big") >> 4 & 0xFF) >> 2


def test_switches_trim_and_endpoints_repair(captured: dict[str, Any]) -> None:
    result, counters = captured["result"], captured["counters"]
    assert not result.failures
    assert sum(each.bytes_verified for each in result.progress.values()) == 3 * 4 * 60_000
    assert counters["trimmed"] > 0
    pairs = result.queue_pairs().values()
    seen = sum(qp.responder["trimmed"] for qp in pairs)
    nacks = sum(qp.requestor["nacks_received"] for qp in pairs)
    assert 0 < nacks <= seen <= counters["trimmed"]
    control = next(queue for queue in captured["stats"].queues if queue.priority == rules.CONTROL_PRIORITY)
    data = next(queue for queue in captured["stats"].queues if queue.priority == rules.DATA_PRIORITY)
    assert control.enqueued_packets > 0
    assert control.dropped_packets == data.dropped_packets == 0


def test_the_capture_shows_trimmed_headers_and_nacks(captured: dict[str, Any]) -> None:
    packets = inner_packets(captured["path"])
    kinds: Counter[str] = Counter()
    for outer_length, packet in packets:
        udp_length = int.from_bytes(packet[44:46], "big")
        opcode = packet[48]
        if dscp(packet) == rules.DSCP_TRIMMED_LASTHOP or outer_length < 40 + udp_length:
            kinds["trimmed"] += 1
            # What is really there is less than what the inner headers promise: the payload is gone.
            assert outer_length < 40 + udp_length
            assert opcode >> 5 == 0b110
        elif opcode == 0xDD:
            kinds["nack"] += 1
            assert packet[48 + 12 + 2] in (1, 2)
    assert kinds["trimmed"] > 0
    assert kinds["nack"] > 0


def lines(path: pathlib.Path, *options: str, dissector: bool = False) -> list[str]:
    return [line for line in tshark(path, *options, dissector=dissector).splitlines() if line]


def test_wireshark_decodes_it(captured: dict[str, Any]) -> None:
    path = captured["path"]
    frames = len(lines(path, "-Y", "udp.dstport == 4791"))
    assert frames > 50
    assert len(lines(path, "-Y", "udp.dstport == 4791 && infiniband")) == frames
    whole = "udp.dstport == 4791 && ipv6.plen >= udp.length"
    assert lines(path, "-Y", f"_ws.malformed && {whole} && !(ipv6.tclass.dscp == {rules.DSCP_TRIMMED_LASTHOP})") == []
    shown = lines(path, "-Y", "mrc", "-T", "fields", "-e", "mrc.bth.opcode", dissector=True)
    assert len(shown) == frames
    assert len({line.split(",")[0] for line in shown}) >= 4


def test_scapy_reads_every_packet(captured: dict[str, Any]) -> None:
    from mrc_host import scapy_mrc

    layers: Counter[str] = Counter()
    for _, packet in inner_packets(captured["path"]):
        if int.from_bytes(packet[42:44], "big") == 4791:
            parsed = IPv6(packet)
            layers.update(type(layer).__name__ for layer in (parsed.getlayer(n) for n in range(2, 6)) if layer)
    assert scapy_mrc.__doc__
    assert sum(count for name, count in layers.items() if name != "Raw") > len(layers)
