"""Compiled programs on the fabric: the router of the benchmarks, and idle time-outs."""

from __future__ import annotations

import json
import struct
import subprocess
import time
from pathlib import Path

import pytest

from p4lite.switch.errors import NotFound
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch, LinkSettings
from p4lite.switch.fabric.values import NotificationKind
from p4lite.switch.program.entry import ActionCall, Exact, Lpm
from p4lite.switch.runtime.loader import LoadedProgram, load_program
from p4lite.switch.source import load_source
from support.namespaces import Hosts
from support.switch.hand_program import HandProgram

ROUTER = Path(__file__).parents[3] / "benchmarks" / "router.p4"
ROUTES, NEIGHBOURS, INTERFACES = "RouterIngress.routes", "RouterIngress.neighbours", "RouterEgress.interfaces"


@pytest.fixture(scope="module")
def router() -> LoadedProgram:
    return load_program(load_source(ROUTER).bmv2, name="router")


def internet_checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(dst: int, ttl: int = 64, payload: bytes = b"payload") -> bytes:
    head = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(payload), 7, 0, ttl, 17, 0, 0x0A000001, dst)
    head = head[:10] + struct.pack(">H", internet_checksum(head)) + head[12:]
    return bytes.fromhex("0200000000fe0200000000010800") + head + payload


def add_host(switch: FabricSwitch, k: int) -> int:
    """Return a route to 10.9.0.k on port k; its handle."""
    instance = switch.instance
    route = ActionCall("RouterIngress.route", (0x0A090000 + k, k))
    handle = instance.table_add(ROUTES, (Lpm(0x0A090000 + k, 32),), route)
    deliver = ActionCall("RouterIngress.deliver", (0x120000000000 + k,))
    instance.table_add(NEIGHBOURS, (Exact(0x0A090000 + k),), deliver)
    instance.table_add(INTERFACES, (Exact(k),), ActionCall("RouterEgress.rewrite", (0x0200000000F0 + k,)))
    return handle


def test_router_on_the_virtual_clock(router: LoadedProgram) -> None:
    with Fabric("virtual") as fabric:
        switch = fabric.add_switch(1)
        switch.load(router)
        for number in (1, 2):
            switch.add_port(number)
        handle = add_host(switch, 2)

        def route(frame: bytes) -> list[tuple[int, bytes]]:
            fabric.inject(switch.port(1), frame)
            return [(port, data) for _, _, port, data in fabric.run_until(fabric.now_ns + 1)]

        [(port, data)] = route(ipv4(0x0A090002))
        assert port == 2
        assert data[:12].hex() == "120000000002" + "0200000000f2"
        assert data[22] == 63
        assert internet_checksum(data[14:34]) == 0
        assert data[34:] == b"payload"
        assert switch.instance.direct_counter_read(ROUTES, handle).bytes == len(data)
        broken = ipv4(0x0A090002)
        for frame in (ipv4(0x0A090003), ipv4(0x0A090002, ttl=1), broken[:24] + b"\x00\x00" + broken[26:], broken[:20]):
            assert route(frame) == []
        assert switch.stats().drops["ingress"] == 4
        switch.instance.table_modify(ROUTES, handle, ActionCall("RouterIngress.drop"))
        assert route(ipv4(0x0A090002)) == []
        switch.restart()
        assert switch.instance.table_size(ROUTES) == 0
        with pytest.raises(NotFound):
            switch.instance.table_delete(ROUTES, handle)


def test_swap_between_programs_of_different_layout(router: LoadedProgram) -> None:
    with Fabric("virtual") as fabric:
        switch = fabric.add_switch(1)
        slow = LinkSettings(rate_bps=8 * 10**6)
        for program in (router, HandProgram(), router, router):
            switch.load(program)  # type: ignore[arg-type]
            if not switch.ports:
                switch.add_port(1)
                switch.add_port(2, to_host=slow)
            if program is router:
                add_host(switch, 2)
            for _ in range(10):
                fabric.inject(switch.port(1), ipv4(0x0A090002))
            fabric.run_until(fabric.now_ns + 1000)
        assert switch.stats().drops["flushed"] > 10


def test_many_switches_share_one_object(router: LoadedProgram) -> None:
    with Fabric("virtual") as fabric:
        previous: FabricSwitch | None = None
        for number in range(24):
            switch = fabric.add_switch(number)
            switch.load(router)
            add_host(switch, 2)
            for port in (1, 2):
                switch.add_port(port)
            if previous is not None:
                fabric.link(previous.port(2), switch.port(1), LinkSettings(delay_ns=100))
            previous = switch
        fabric.inject(fabric.switch(0).port(1), ipv4(0x0A090002))
        [(time_ns, device_id, _, data)] = fabric.run_until(10**6)
        assert (time_ns, device_id, data[22]) == (2300, 23, 64 - 24)
        assert internet_checksum(data[14:34]) == 0


def test_tables_change_under_traffic_without_a_lost_packet(router: LoadedProgram) -> None:
    """Port 2 or port 3, but always one of them, while the control plane rewrites the route."""
    with Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.load(router)
        for number in (1, 2, 3):
            switch.add_port(number).collect(False)
        handle = add_host(switch, 2)
        add_host(switch, 3)
        fabric.start()
        count = 100_000
        switch.port(1).generate([ipv4(0x0A090002)], count, interval_ns=2_000)
        changes = 0
        deadline = time.monotonic() + 120
        while switch.stats().received < count and time.monotonic() < deadline:
            changes += 1
            port = 2 + changes % 2
            action = ActionCall("RouterIngress.route", (0x0A090000 + port, port))
            switch.instance.table_modify(ROUTES, handle, action)
        fabric.stop()
        sent = [switch.port(number).stats().tx_packets for number in (2, 3)]
        assert sum(sent) == count
        assert min(sent) > 0
        assert changes > 10


IDLE = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> key; bit<8> port; }
struct headers_t { h_t h; }
struct metadata_t {}
parser P(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t m) { apply {} }
control I(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    action send(bit<9> port) { s.egress_spec = port; }
    table t {
        key = { hdr.h.key: exact; }
        actions = { send; NoAction; }
        support_timeout = true;
        default_action = NoAction();
    }
    apply { t.apply(); }
}
control E(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control U(inout headers_t hdr, inout metadata_t m) { apply {} }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
"""


def test_idle_entries_are_reported(tmp_path: Path) -> None:
    source = tmp_path / "idle.p4"
    source.write_text(IDLE)
    program = load_program(load_source(source).bmv2, name="idle")
    [table] = [t for t in program.tables.values() if t.support_timeout]
    with Fabric("virtual") as fabric:
        switch = fabric.add_switch(1)
        switch.load(program)
        switch.add_port(1)
        send = ActionCall("I.send", (1,))
        busy = switch.instance.table_add(table.name, (Exact(1),), send, idle_timeout_ns=1_500_000_000)
        idle = switch.instance.table_add(table.name, (Exact(2),), send, idle_timeout_ns=1_500_000_000)
        reported = []
        for _ in range(4):
            fabric.inject(switch.port(1), b"\x01\x00payload")
            fabric.run_until(fabric.now_ns + 1_000_000_000)
            reported.append([(n.kind, n.ident, n.handle) for n in fabric.notifications()])
        assert reported[0] == []
        assert reported[1] == [(NotificationKind.IDLE_TIMEOUT, table.id, idle)]
        assert busy not in {handle for notes in reported for _, _, handle in notes}


@pytest.mark.netns
@pytest.mark.slow
def test_ping_and_iperf3_through_the_router(router: LoadedProgram) -> None:
    with Hosts("sr") as hosts, Fabric("real") as fabric:
        switch = fabric.add_switch(1)
        switch.load(router)
        for k in (1, 2):
            switch.add_port(k, interface=hosts.port(k))
            add_host(switch, k)
            hosts.on(k, "ip", "neigh", "add", f"10.9.0.{3 - k}", "lladdr", f"02:00:00:00:00:f{k}", "dev", "eth0")
        fabric.start()
        out = hosts.on(1, "ping", "-c", "3", "-i", "0.1", "-W", "2", "10.9.0.2")
        assert "3 received" in out
        assert "ttl=63" in out
        server = subprocess.Popen(
            ["ip", "netns", "exec", hosts.name(2), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL
        )
        try:
            while ":5201" not in hosts.on(2, "ss", "-ltn"):
                time.sleep(0.05)
            result = json.loads(hosts.on(1, "iperf3", "-c", "10.9.0.2", "-t", "2", "-J"))
        finally:
            server.kill()
            server.wait()
        assert result["end"]["sum_received"]["bytes"] > 1_000_000
