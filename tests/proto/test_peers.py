"""What is of a peer, what of a queue pair, and who knows which of whose ports are up (`mrc-protocol.md §7, §8`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import (
    EndpointConfig,
    EvConfig,
    EvFormat,
    EvMode,
    PortsConfig,
    ReliabilityConfig,
    Srv6Path,
    WireConfig,
)
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.fixed import FixedConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, EvState, PortChanged, QpError, QpState
from mrc_host.proto.ports import PortTable
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import EndpointOp, Opcode
from support.proto.net import NetConfig
from support.proto.story import WIDE
from support.proto.workload import Bench

MTU = 1024
PLANES = 4
MS = 1_000_000
FIXED_10K = FixedConfig(fixed_window_bytes=10_000, base_rtt_ns=8_000)


def bench(planes: int = PLANES, **changes: Any) -> Bench:
    settings: dict[str, Any] = {
        "wire": WireConfig(mtu=MTU),
        "cc": WIDE,
        "ports": PortsConfig(count=planes),
        "reliability": ReliabilityConfig(timeout=8, linear_cnt=2, exp_cnt=2),
        "ev": EvConfig(count=8 * planes, active=4 * planes, ev_min_active=1),
    }
    return Bench(NetConfig(planes=planes, trim_bytes=None, ecn=None), 3, **(settings | changes))


def mask_at(b: Bench, host: int, of: int) -> int:
    """Return what one endpoint knows of the ports of another."""
    core = b.net.hosts[host].core
    peer = core.peers[b.net.hosts[of].address + b.net.hosts[host].address]
    return int(peer.remote_ports)


# --- port knowledge ---


def test_a_port_status_is_news_after_any_number_of_ev_probes() -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.net.set_link(one, 2, False)
    b.net.run(max_time_ns=MS)
    assert mask_at(b, 1, 0) == 0b1011
    # 33 500 reverse probes: what 0.8 s of inbound data at full rate cause. Their answers need not arrive.
    core = one.core
    node, route = core._node, connection.qp.route
    route.inbound_ns = 0
    for step in range(33_500):
        now = b.net.now + 20_000 * (step + 1)
        route.inbound_ns = now
        route.on_timer(TimerKind.REVERSE_PROBE, now)
        for port in range(PLANES):
            core.datagrams_to_send(port, now, 1 << 20)
        node.on_timer(TimerKind.NODE_PROBE, now)
    assert core.context.counters.ev_probes_sent >= 33_000
    b.net.run(max_time_ns=33_500 * 20_000 + MS)
    b.net.set_link(one, 2, True)
    b.net.run(max_time_ns=20 * MS)
    assert mask_at(b, 1, 0) == 0b1111
    # And the peer uses that plane again.
    back = b.reverse(connection)
    b.post(back, 400 * MTU)
    b.run()
    (row,) = two.core.statistics().peers
    assert min(row.balance_level_bytes) > 0.8 * max(row.balance_level_bytes)


def test_a_port_that_dies_between_the_document_and_connect_is_announced() -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    qps = [host.core.create_qp(host.core.create_cq()) for host in (one, two)]
    documents = [host.core.local_attributes(qp) for host, qp in zip((one, two), qps, strict=True)]
    b.net.set_link(one, 1, False)  # nobody to tell yet
    one.core.connect(qps[0], documents[1], b.net.now)
    b.net.touch(one)
    b.net.run(max_time_ns=MS)  # the peer does not know us yet, and must not pretend to have heard it
    two.core.connect(qps[1], documents[0], b.net.now)
    b.net.touch(two)
    assert documents[0]["ports_up"] == 0b1111
    b.net.run(max_time_ns=20 * MS)
    assert mask_at(b, 1, 0) == 0b1101
    assert mask_at(b, 0, 1) == 0b1111


@pytest.mark.parametrize("later", [False, True])
def test_an_older_document_does_not_undo_what_the_peer_has_told_since(later: bool) -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    qps = [host.core.create_qp(host.core.create_cq()) for host in (one, two)]
    old = one.core.local_attributes(qps[0])
    theirs = two.core.local_attributes(qps[1])
    b.net.set_link(one, 2, False)
    b.net.run(max_time_ns=MS)
    assert mask_at(b, 1, 0) == 0b1011
    two.core.connect(qps[1], one.core.local_attributes(qps[0]) if later else old, b.net.now)
    one.core.connect(qps[0], theirs, b.net.now)
    assert mask_at(b, 1, 0) == 0b1011
    b.net.run(max_time_ns=MS)
    assert mask_at(b, 1, 0) == 0b1011


def test_a_delayed_status_of_before_the_document_is_not_taken() -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    kept: list[bytes] = []

    def hold(net: Any, host: Any, port: int, index: int, packet: bytes) -> str | None:
        if host is one and wire.decode(packet).bth.opcode == Opcode.ENDPOINT_REQUEST:
            kept.append(packet)
            return "drop"
        return None

    b.net.rules.append(hold)
    b.net.set_link(one, 2, False)
    b.net.run(max_time_ns=50_000)
    assert kept
    b.net.rules.clear()
    b.net.set_link(one, 2, True)
    one.core.destroy_qp(connection.qp, b.net.now)
    two.core.destroy_qp(connection.peer, b.net.now)
    b.connect(one, two)
    assert mask_at(b, 1, 0) == 0b1111
    two.core.receive_datagram(0, kept[0], b.net.now)
    assert mask_at(b, 1, 0) == 0b1111


def test_an_endpoint_that_starts_again_is_believed_anew() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    for _ in range(3):
        b.net.set_link(one, 1, False)
        b.net.run(max_time_ns=MS)
        b.net.set_link(one, 1, True)
        b.net.run(max_time_ns=MS)
    again = Endpoint(one.core.config, random.Random("again"))
    again.set_port_state(0, False, b.net.now)
    mine = again.create_qp(again.create_cq())
    theirs = two.core.create_qp(two.core.create_cq())
    document = again.local_attributes(mine)
    two.core.connect(theirs, document | {"port_status": 1}, b.net.now)
    assert mask_at(b, 1, 0) == 0b10


@pytest.mark.parametrize("connected", [False, True])
def test_a_status_of_an_earlier_life_is_put_right(connected: bool) -> None:
    """Its packets reach the peer after the new life's document: whether or not the new life knows the peer by then."""
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    kept: list[bytes] = []

    def hold(net: Any, host: Any, port: int, index: int, packet: bytes) -> str | None:
        if host is one and wire.decode(packet).bth.opcode == Opcode.ENDPOINT_REQUEST:
            kept.append(packet)
            return "drop"
        return None

    b.net.rules.append(hold)
    for up in (False, True, False):
        b.net.set_link(one, 1, up)
        b.net.run(max_time_ns=50_000)
    b.net.rules.clear()
    again = Endpoint(one.core.config, random.Random("again"))
    # By number the statuses of the earlier life are later.
    again.context.ports = PortTable(2, 1024, one.core.context.ports.status - 20_000, 10**11)
    mine, theirs = again.create_qp(again.create_cq()), two.core.create_qp(two.core.create_cq())
    document, other = again.local_attributes(mine), two.core.local_attributes(theirs)
    now = b.net.now
    two.core.connect(theirs, document, now)
    if connected:
        again.connect(mine, other, now)
    for packet in (kept[0], kept[-1]):
        two.core.receive_datagram(0, packet, now)
    assert mask_at(b, 1, 0) == 0b01
    for step in range(4):
        now += 10_000
        if step == 2 and not connected:
            again.connect(mine, other, now)
        for source, target in ((two.core, again), (again, two.core)):
            for port in range(2):
                for packet in source.datagrams_to_send(port, now, 9000):
                    target.receive_datagram(port, packet, now + 5_000)
    assert mask_at(b, 1, 0) == 0b11


def test_wrong_answers_do_not_make_an_endpoint_announce_its_ports_for_ever() -> None:
    core = lone()
    ends = bytes(15) + b"\x09" + core.config.address
    first = core.context.ports.status
    for number in (*range(0, 1 << 16, 16), *range(1 << 16)):
        answer = core.context.codec.encode_endpoint_response(ends, 5, 184, number, EndpointOp.PORT_STATUS, 7)
        core.receive_datagram(0, answer, 0)
    assert core.context.ports.status - first < 2 << 16
    told = core.context.ports.status
    for number in range(0, 1 << 16, 8):
        answer = core.context.codec.encode_endpoint_response(ends, 5, 184, number, EndpointOp.PORT_STATUS, 7)
        core.receive_datagram(0, answer, 0)
    assert core.context.ports.status == told


def test_the_status_of_a_stranger_is_neither_taken_nor_answered() -> None:
    b = bench()
    core = b.add_host().core
    ends = bytes(15) + b"\x09" + core.config.address
    status = core.context.codec.encode_endpoint_request(ends, 5, 184, 7, EndpointOp.PORT_STATUS, 0, 7)
    core.receive_datagram(0, status, 0)
    assert core.datagrams_to_send(0, 0, 10_000) == []
    assert core.statistics().drops == {"unknown_peer": 1}
    assert core.peers == {}


# --- per queue pair: CC profile, EV profile, encapsulation ---


def test_each_queue_pair_runs_by_its_own_cc_profile() -> None:
    b = bench(cc=NsccConfig(line_rate_bps=400_000_000_000, base_rtt_ns=12_000))
    one, two = b.add_host(), b.add_host()
    wide = b.connect(one, two)
    narrow = b.connect(one, two, cc=FIXED_10K)
    third = b.connect(one, two, cc=FixedConfig(fixed_window_bytes=10_000, base_rtt_ns=8_000))
    b.post(wide, 1_000 * MTU)
    b.post(narrow, 100 * MTU)
    assert narrow.qp.qpcc.cc.cwnd == 10_000
    assert wide.qp.qpcc.cc.cwnd > 100_000
    assert third.qp.qpcc is narrow.qp.qpcc  # equal profiles are one controller
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, narrow.qp.qpcc.cc.inflight)
        return b.outstanding == 0

    b.net.run(look, max_time_ns=100 * MS)
    assert 0 < most <= 10_000
    assert [row.cc.cwnd for row in one.core.statistics().peers][1] == 10_000


def srv6(ev: int, destination: bytes) -> Srv6Path:
    return Srv6Path(bytes((0x5F,)) + bytes(3) + (ev & 0xFFFF).to_bytes(2, "big") + bytes(10))


def srv6_profile(planes: int, **changes: Any) -> EvConfig:
    return EvConfig(fmt=EvFormat.SRV6_USID128, count=8 * planes, active=4 * planes, ev_min_active=1,
                    **({"resolver": srv6} | changes))  # fmt: skip


@pytest.mark.parametrize("srv6_first", [False, True])
def test_each_queue_pair_is_encapsulated_by_its_own_ev_profile(srv6_first: bool) -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    sent: dict[int, set[bool]] = {}

    def watch(time: int, what: str, host: Any, port: int, path: int, packet: bytes) -> None:
        if what == "sent":
            sent.setdefault(wire.decode(packet).bth.dest_qp, set()).add(packet[6] == 41)

    b.net.watchers.append(watch)
    profiles: list[dict[str, Any]] = [{}, {"ev": srv6_profile(2)}]
    connections = [b.connect(one, two, **profile) for profile in (profiles[::-1] if srv6_first else profiles)]
    plain, wrapped = connections[::-1] if srv6_first else connections
    for connection in connections:
        b.post(connection, 20 * MTU)
    b.run()
    for connection, expected in ((plain, False), (wrapped, True)):
        assert sent[connection.peer.number] == {expected}  # data
        assert sent[connection.qp.number] == {expected}  # SACKs and ACKs


def test_a_probe_to_an_address_decides_nothing_for_a_later_queue_pair() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    one.core.probe_ev(two.address, 5, 0, 0)
    assert one.core.peers == {}
    connection = b.connect(one, two, ev=srv6_profile(2))
    assert connection.qp.route.outer_bytes == 40
    b.post(connection, 4 * MTU)
    b.run()
    assert b.statuses() == {"SUCCESS": 1}


def test_a_profile_without_a_path_to_the_peer_is_refused() -> None:
    def nowhere(ev: int, destination: bytes) -> Srv6Path:
        raise KeyError(ev)

    b = bench(2)
    one, two = b.add_host(), b.add_host()
    with pytest.raises(QpError, match=r"queue pair \d+: EV 0x[0-9a-f]{8} of the profile has no path to"):
        b.connect(one, two, ev=srv6_profile(2, resolver=nowhere))
    assert one.core.peers == {}


def test_sack_delay_and_hole_cycle_are_the_queue_pairs_own() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    slow = ReliabilityConfig(timeout=12, sack_every=100, sack_delay_ns=300_000, hole_cycle=9)
    connection = b.connect(one, two, reliability=slow)
    times: list[int] = []
    b.net.watchers.append(
        lambda time, what, host, port, path, packet: (
            times.append(time)
            if what == "sent" and host is two and wire.decode(packet).bth.opcode == Opcode.SACK
            else None
        )
    )
    assert connection.peer.responder.association.attributes.hole_cycle == 9
    codec, ends = two.core.context.codec, one.address + two.address
    region = two.core.register_memory(bytearray(4096))
    data = codec.encode_data(
        ends, 5, 18, Opcode.WRITE_FIRST, connection.peer.number, connection.qp.sq_psn, 0, 0, 1, 5, region.va,
        region.rkey, 2 * MTU, bytes(MTU), 0,
    )  # fmt: skip
    two.core.receive_datagram(0, data, 0)
    b.net.touch(two)
    b.net.run(max_time_ns=MS)
    assert len(times) == 1
    assert times[0] >= 300_000


# --- nowhere to send ---


def test_all_ports_down_ends_as_a_silent_network_does() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    first = b.post(connection, 200 * MTU)
    b.net.run(lambda: connection.qp.requestor.counters.packets_sent > 50, max_time_ns=10 * MS)
    died = b.net.now
    for port in range(2):
        b.net.set_link(one, port, False)
    second = b.post(connection, MTU)
    b.run(max_time_ns=1_000 * MS)
    assert (first.status, second.status) == (CompletionStatus.RETRY_EXC_ERR, CompletionStatus.WR_FLUSH_ERR)
    assert connection.qp.error is ErrorReason.RETRY_EXCEEDED
    timeout = 1024 << 8
    patience = 3 * timeout + 2 * timeout + 4 * timeout  # three fixed ones, two doubled
    assert first.completed_at is not None
    assert first.completed_at - died == patience


def test_an_outage_shorter_than_the_retries_ends_well() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.post(connection, 200 * MTU)
    b.net.run(lambda: connection.qp.requestor.counters.packets_sent > 50, max_time_ns=10 * MS)
    for port in range(2):
        b.net.set_link(one, port, False)
    b.net.run(max_time_ns=8 * (1024 << 8))
    b.net.set_link(one, 1, True)
    b.run(max_time_ns=1_000 * MS)
    assert b.statuses() == {"SUCCESS": 1}


def test_what_is_posted_during_an_outage_is_bounded_too() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.net.set_link(one, 0, False)
    b.net.run(max_time_ns=500 * MS)
    assert connection.qp.state is QpState.RTS  # nothing to send, nothing to fail
    write = b.post(connection, MTU)
    b.run(max_time_ns=1_000 * MS)
    assert write.status is CompletionStatus.RETRY_EXC_ERR


def test_every_port_of_the_peer_down_and_every_ev_denied_are_bounded_too() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    connections = [b.connect(one, two) for _ in range(2)]
    for row in one.core.query_evs(connections[0].qp):
        one.core.set_ev_state(connections[0].qp, row.ev, EvState.DENIED, b.net.now)
    write = b.post(connections[0], MTU)
    codec = one.core.context.codec
    status = codec.encode_endpoint_request(two.address + one.address, 5, 184, 0, 0, 0, 7)
    known = one.core.peers[two.address + one.address].remote_status
    two.core.context.ports.status += 1  # as if it had sent this status itself; it would put a stranger's right
    status = codec.encode_endpoint_request(two.address + one.address, 5, 184, known + 1 & 0xFFFF, 0, 0, 7)
    other = b.post(connections[1], MTU)
    one.core.receive_datagram(0, status, b.net.now)
    b.run(max_time_ns=1_000 * MS)
    assert {write.status, other.status} == {CompletionStatus.RETRY_EXC_ERR}


def test_retries_without_end_wait_without_end() -> None:
    b = bench(1, reliability=ReliabilityConfig(timeout=8, exp_cnt=25))
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.net.set_link(one, 0, False)
    b.post(connection, MTU)
    b.net.run(max_time_ns=60_000 * MS)
    assert connection.qp.state is QpState.RTS
    b.net.set_link(one, 0, True)
    b.run()
    assert b.statuses() == {"SUCCESS": 1}


# --- DENIED, RESET, completion queues ---


def states(core: Any, qp: Any) -> dict[int, str]:
    return {row.ev: row.state.name for row in core.query_evs(qp)}


def test_what_a_controller_denied_stays_denied_for_later_queue_pairs() -> None:
    values = ((1, 2, 3, 4),)
    ev = EvConfig(mode=EvMode.EXPLICIT, values=values, count=4, active=2, ev_min_active=1)
    b = bench(1, ev=ev)
    one, two, three = (b.add_host() for _ in range(3))
    first = b.connect(one, two)
    core = one.core
    core.set_ev_state(first.qp, 3, EvState.DENIED, 0)
    core.destroy_qp(first.qp, 0)
    later = b.connect(one, two)
    elsewhere = b.connect(one, three)
    assert states(core, later.qp)[3] == "DENIED"
    assert states(core, elsewhere.qp)[3] == "GOOD"
    # Denied before it is connected, or towards everybody.
    early = core.create_qp(core.create_cq())
    core.set_ev_state(early, 2, EvState.DENIED, 0)
    core.connect(early, three.core.local_attributes(three.core.create_qp(three.core.create_cq())), 0)
    assert states(core, b.connect(one, three).qp)[2] == "DENIED"
    assert core.deny_evs([4], True, 0) == 4
    assert states(core, b.connect(one, two).qp)[4] == "DENIED"
    # Only the controller undoes it.
    core.set_ev_state(later.qp, 3, EvState.GOOD, 0)
    core.deny_evs([4], False, 0)
    fresh = states(core, b.connect(one, two).qp)
    assert (fresh[3], fresh[4]) == ("GOOD", "GOOD")
    assert core.context.denied.keys() == {three.address}


def test_reset_takes_a_new_psn_and_gives_back_what_was_negotiated() -> None:
    b = bench(1, initial_psn=77, reliability=ReliabilityConfig(timeout=8, mpr=64, dynamic_mpr=True))
    one, two = b.add_host(), b.add_host()
    b.endpoint["reliability"] = ReliabilityConfig(timeout=8, mpr_dest=2)
    narrow = b.add_host()
    connection = b.connect(one, narrow)
    qp = connection.qp
    assert qp.sq_psn == 77
    assert (qp.attributes.mpr, qp.attributes.dynamic_mpr) == (2, False)
    one.core.modify(qp, QpState.RESET, 0)
    assert qp.sq_psn != 77
    document = one.core.local_attributes(qp)
    assert document["psn"] == qp.sq_psn
    assert document["dynamic_mpr"]
    peer = two.core.create_qp(two.core.create_cq())
    two.core.connect(peer, document, 0)
    one.core.connect(qp, two.core.local_attributes(peer), 0)
    assert (qp.attributes.mpr, qp.attributes.dynamic_mpr) == (64, True)


def test_an_overflow_ends_every_queue_pair_of_the_queue() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    core = one.core
    cq, other = core.create_cq(2), core.create_cq()
    mine = [core.create_qp(cq), core.create_qp(other, cq), core.create_qp(other)]
    theirs = [two.core.create_qp(two.core.create_cq()) for _ in mine]
    for qp, peer in zip(mine, theirs, strict=True):
        document = core.local_attributes(qp)
        core.connect(qp, two.core.local_attributes(peer), 0)
        two.core.connect(peer, document, 0)
    region = two.core.register_memory(bytearray(64))
    for number in range(4):
        core.post_write(mine[0], bytes(8), region.va, region.rkey, number)
    one.on_event = two.on_event = None
    b.net.touch(one)
    b.net.run(max_time_ns=MS)
    assert [qp.error for qp in mine] == [ErrorReason.CQ_OVERFLOW, ErrorReason.CQ_OVERFLOW, None]
    assert (len(cq.entries), cq.lost) == (2, 2)
    with pytest.raises(QpError, match=r"completion queue 1 has overflowed; create another one"):
        core.create_qp(other, cq)
    with pytest.raises(QpError, match="in use by 2"):
        core.destroy_cq(cq)
    for qp in mine:
        core.destroy_qp(qp, 0)
    core.destroy_cq(cq)
    with pytest.raises(QpError, match="does not belong"):
        core.destroy_cq(cq)


def lone(planes: int = 1) -> Endpoint:
    return Endpoint(
        EndpointConfig(
            address=bytes(15) + b"\x01", ports=PortsConfig(count=planes), ev=EvConfig(count=8 * planes, active=4)
        ),
        random.Random(1),
    )


def test_a_verb_that_is_refused_changes_nothing() -> None:
    core = lone()
    qp = core.create_qp(core.create_cq())
    before = (qp.attributes.mtu, qp.attributes.mpr_dest, qp.attributes.max_wimm_dest)
    with pytest.raises(QpError, match="is in RESET"):
        core.modify(qp, QpState.RTR, 0, remote_number=1, remote_address=bytes(16), rq_psn=1, mtu=64,
                    max_wimm_dest=1, mpr_dest=1)  # fmt: skip
    assert (qp.attributes.mtu, qp.attributes.mpr_dest, qp.attributes.max_wimm_dest) == before


def test_a_port_change_is_told_once_per_port() -> None:
    b = bench()
    b.keep_events = True
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    b.net.set_link(one, 3, False)
    b.net.run(max_time_ns=MS)
    seen = [event for _, index, event in b.events if index == 1 and isinstance(event, PortChanged)]
    assert seen == [PortChanged(3, False, one.address)]


# --- a peer that starts again ---


def test_queue_pairs_to_a_peer_s_earlier_life_end_and_leave_the_window_to_the_new_ones() -> None:
    b = bench(cc=FixedConfig(fixed_window_bytes=1_200, base_rtt_ns=8_000))
    one, two = b.add_host(), b.add_host()
    old = [b.connect(one, two) for _ in range(8)]
    stale = two.core.local_attributes(two.core.create_qp(two.core.create_cq()))
    # The second life: another core behind the same address, which knows nothing of the first one's queue pairs.
    for connection in old:
        two.core.destroy_qp(connection.peer, b.net.now)
    posted = [b.post(connection, 4 * MTU) for connection in old]
    before = two.core.context.instance
    two.core.context.instance = before + 1
    start = b.net.now
    new = b.connect(one, two)
    for connection in old:
        assert (connection.qp.state, connection.qp.error) == (QpState.ERROR, ErrorReason.PEER_RESTARTED)
    write = b.post(new, 20 * MTU)
    b.net.run(max_time_ns=10 * MS)
    assert write.completed_at is not None
    assert write.completed_at < start + 5 * MS
    assert {each.status for each in posted} == {CompletionStatus.RETRY_EXC_ERR}
    assert new.qp.qpcc.cc.inflight == 0
    # What still comes of the first life is refused, and changes nothing.
    late = one.core.create_qp(one.core.create_cq())
    with pytest.raises(QpError, match=rf"instance {before} .* started again since as {before + 1}"):
        one.core.connect(late, stale, b.net.now)
    assert new.qp.state is QpState.RTS


def test_a_port_is_up_while_it_has_a_carrier_and_is_enabled() -> None:
    b = bench(2)
    one = b.add_host()
    b.connect(one, b.add_host())

    def state() -> tuple[bool, ...]:
        row = one.core.statistics().ports[1]
        return row.carrier, row.enabled, row.up

    b.net.set_link(one, 1, False)
    one.core.set_port_enabled(1, False, b.net.now)
    b.net.set_link(one, 1, True)  # the carrier's return does not undo the administrator's word
    assert state() == (True, False, False)
    b.net.set_link(one, 1, False)
    one.core.set_port_enabled(1, True, b.net.now)  # and the other way round
    assert state() == (False, True, False)
    b.net.set_link(one, 1, True)
    assert state() == (True, True, True)
    changes = []
    while (event := one.core.next_event()) is not None:
        if isinstance(event, PortChanged):
            changes.append(event.up)
    assert changes == [False, True]


FIXED_ONE_PACKET = FixedConfig(fixed_window_bytes=1_200, base_rtt_ns=8_000)


@pytest.mark.parametrize("cc", [None, FIXED_ONE_PACKET], ids=["nscc", "one packet"])
@pytest.mark.parametrize("dead", [1, 4])
def test_queue_pairs_whose_other_end_is_gone_leave_the_window_to_the_others(dead: int, cc: CcConfig | None) -> None:
    """A peer destroyed its ends without a word: ours repeat for their whole retry time, half a second here."""
    b = bench(2, reliability=ReliabilityConfig(timeout=10), **({} if cc is None else {"cc": cc}))
    one, two = b.add_host(), b.add_host()
    live = b.connect(one, two)
    gone = [b.connect(one, two) for _ in range(dead)]
    for connection in gone:
        two.core.destroy_qp(connection.peer, 0)
        b.post(connection, 1_000_000)
    b.net.run(max_time_ns=2 * MS)  # their first timeouts
    began, writes = b.net.now, [b.post(live, 20_000) for _ in range(10)]
    b.net.run(lambda: all(write.status for write in writes), max_time_ns=10_000 * MS)
    assert b.net.now - began < 10 * MS
    assert {connection.qp.state for connection in gone} == {QpState.RTS}
    # They end by themselves, each having repeated its oldest packet only.
    b.run()
    assert {connection.qp.error for connection in gone} == {ErrorReason.RETRY_EXCEEDED}
    assert all(connection.qp.requestor.counters.retransmissions <= 15 for connection in gone)
    assert all(row.cc.inflight == 0 for row in one.core.statistics().peers)


def test_after_a_silence_everything_goes_on_at_once() -> None:
    b = bench(2, reliability=ReliabilityConfig(timeout=10))
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    write = b.post(connection, 500_000)
    b.net.run(max_time_ns=MS // 100)
    b.net.set_path(False)
    b.net.run(max_time_ns=5 * MS)
    requestor = connection.qp.requestor
    assert requestor.recovery.alone
    assert requestor.account.in_flight == 0
    before = requestor.counters.retransmissions
    b.net.run(max_time_ns=25 * MS)
    assert requestor.counters.retransmissions - before <= 8
    b.net.set_path(True)
    b.run()
    assert write.status is CompletionStatus.SUCCESS
    assert requestor.account.in_flight == 0
    # The next answer, to a retry or a tail probe, frees all the rest.
    assert b.net.now < 150 * MS


def test_queue_pairs_connected_without_a_document_outlive_a_document() -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    first = one.core.peers[two.address + one.address].qps[0]
    first.remote_instance = None
    two.core.context.instance += 1
    b.connect(one, two)
    assert first.state is QpState.RTS
