"""What an endpoint knows of a peer: which of its ports are up, and which life of it answers (`mrc-protocol.md §7`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.congestion.nscc import FixedConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, EvState, PortChanged, QpError, QpState
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.ports import PortTable
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import EndpointOp, NackReason, Opcode
from support.proto.peers import MS, MTU, PLANES, bench, lone
from support.proto.workload import Bench


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


def test_document_of_a_restarted_endpoint_replaces_its_port_status() -> None:
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
def test_late_port_status_of_an_earlier_instance_is_corrected(connected: bool) -> None:
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


def test_port_change_of_the_peer_is_reported_once_per_port() -> None:
    b = bench()
    b.keep_events = True
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    b.net.set_link(one, 3, False)
    b.net.run(max_time_ns=MS)
    seen = [event for _, index, event in b.events if index == 1 and isinstance(event, PortChanged)]
    assert seen == [PortChanged(3, False, one.address)]


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


@pytest.mark.parametrize(
    ("told", "document", "newest"), [(3, 0x1FFFE, 0x20003), (0xFFFE, 0x20003, 0x20003), (7, 0x20003, 0x20007)]
)
def test_a_status_from_before_any_document_is_ordered_by_its_16_bits(told: int, document: int, newest: int) -> None:
    core = lone()
    peer = Peer(core.context, bytes(15) + b"\x02", core.peers, core._node)
    assert peer.newer(told) == told
    peer.remote_status = told
    assert peer.newer_document(1, document) == (newest == document)
    assert peer.remote_status == newest
    peer.remote_status = 0x1FFFE
    assert [peer.newer(named) for named in (0xFFFF, 3, 0xFFFE, 0xFFFD)] == [0x1FFFF, 0x20003, None, None]


# --- the last queue pair ---


def test_nothing_of_a_peer_is_due_when_its_last_queue_pair_is_gone() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    core, timers = one.core, one.core.context.timers
    for up in (False, True):
        core.set_port_state(1, up, 0)
    core.post_write(connection.qp, bytes(100 * MTU), 0, 0, 1)
    (*_, last) = core.datagrams_to_send(0, 0, 1 << 20)  # ahead of the other port
    two.core.set_receive_pressure(0, refuse=NackReason.NO_RESOURCE)
    two.core.receive_datagram(0, last, 0)
    (*_, nack) = two.core.datagrams_to_send(0, 0, 9000)
    core.receive_datagram(0, nack, 0)
    assert timers.is_armed(TimerKind.BACKOFF, connection.qp.requestor.recovery)
    assert timers.is_armed(TimerKind.PORT_STATUS, connection.qp.peer)
    assert timers.is_armed(TimerKind.BALANCE, connection.qp.qpcc)
    core.destroy_qp(connection.qp, 0)
    assert core.next_timer() is None


def test_a_document_after_a_reset_tells_of_the_ports_as_they_are() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    core = one.core
    core.set_port_state(1, False, 0)
    core.modify(connection.qp, QpState.RESET, 0)
    core.local_attributes(connection.qp)
    core.connect(connection.qp, two.core.local_attributes(connection.peer), 0)
    assert connection.qp.peer.status_acked  # nothing is left to be announced


@pytest.mark.parametrize("state", [QpState.RESET, QpState.ERROR])
def test_the_room_of_a_queue_pair_that_ends_goes_to_one_that_waits(state: QpState) -> None:
    b = bench(1, cc=FixedConfig(fixed_window_bytes=1_200, base_rtt_ns=8_000))
    one, two = b.add_host(), b.add_host()
    core = one.core
    first, second = (b.connect(one, two).qp for _ in range(2))
    sent = []
    for qp in (first, second):
        core.post_write(qp, bytes(MTU), 0, 0, 1)
        sent.append(len(core.datagrams_to_send(0, 0, 9000)))
    core.modify(first, state, 0)
    assert [*sent, len(core.datagrams_to_send(0, 0, 9000))] == [1, 0, 1]


def test_a_plane_that_only_a_former_queue_pair_used_is_not_waited_for() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    former, qp = (b.connect(one, two).qp for _ in range(2))
    for row in one.core.query_evs(qp):
        if row.plane == 1:
            one.core.set_ev_state(qp, row.ev, EvState.DENIED, 0)
    assert qp.qpcc.balance.mask == 0b11
    one.core.destroy_qp(former, 0)
    assert qp.qpcc.balance.mask == 0b01


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


def test_a_port_that_is_down_is_announced_to_a_peer_without_our_document() -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    b.net.set_link(one, 1, False)
    qps = [host.core.create_qp(host.core.create_cq()) for host in (one, two)]
    for host, qp, other, its in ((one, qps[0], two, qps[1]), (two, qps[1], one, qps[0])):
        host.core.modify(qp, QpState.INIT, 0)
        host.core.accept_named(qp, its.number, other.address, its.sq_psn, MTU, True, 0)
        host.core.ready_named(qp, 0)
        b.net.touch(host)
    assert mask_at(b, 1, 0) == 0b1111
    b.net.run(max_time_ns=MS)
    assert mask_at(b, 1, 0) == 0b1101


def test_queue_pairs_connected_without_a_document_outlive_a_document() -> None:
    b = bench()
    one, two = b.add_host(), b.add_host()
    b.connect(one, two)
    first = one.core.peers[two.address + one.address].qps[0]
    one.core.modify(first, QpState.RESET, 0)
    one.core.modify(first, QpState.INIT, 0)
    one.core.accept_named(first, 99, two.address, 7, MTU, True, 0)
    one.core.ready_named(first, 0)
    two.core.context.instance += 1
    b.connect(one, two)
    assert first.state is QpState.RTS
