"""Stories of paths, planes and ports, step by step (`mrc-protocol.md §7`)."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from mrc_host.policy import EvSet, guarded
from mrc_host.proto.config import (
    EvConfig,
    EvFormat,
    EvMode,
    Policies,
    PortsConfig,
    ReliabilityConfig,
    Srv6Path,
)
from mrc_host.proto.congestion.inflight import nominal_size
from mrc_host.proto.congestion.nscc import FixedConfig
from mrc_host.proto.events import EvChanged, EvState, PortChanged, ProbeResult, QpState
from mrc_host.proto.statistics import EvRow
from mrc_host.proto.wire.fields import EndpointOp, Opcode, SackMark
from support.amount import first
from support.proto.net import Host, Net, opcode_of, psn_of
from support.proto.path_story import INTERVAL, MTU, story
from support.proto.story import Story


def evs_on(s: Story, plane: int, index: int) -> set[int]:
    """EV values of a plane that the network hashes onto one path, for data of the requestor."""
    found = set()
    for packet in s.data():
        if packet.port == plane:
            raw = wire_of(s, packet.ev)
            if s.net.choose(raw, s.requestor_host.group, plane).index == index:
                found.add(packet.ev)
    return found


def wire_of(s: Story, ev: int) -> bytes:
    """Return a data packet of the requestor on this EV, as bytes."""
    codec = s.connection.source.core.context.codec
    peer = s.qp.peer
    return bytes(codec.encode_data(peer.addresses, ev, 18, 0xCA, 1, 1, 0, 1, 1, 1, 0, 0, 0, b""))


def path_of(s: Story, ev: int) -> int:
    return s.net.choose(wire_of(s, ev), s.requestor_host.group, s.plane_of(ev)).index


def test_marked_ev_is_skipped_once_and_used_again() -> None:
    s = story(1, ev=EvConfig(count=16, active=8))
    marked: list[int] = []

    def mark_once(net: Net, host: Host, port: int, index: int, packet: bytes) -> str | None:
        if not marked and opcode_of(packet) <= 0xCB and psn_of(packet) == 3:
            marked.append(1)
            return "mark"
        return None

    s.net.rules.append(mark_once)
    s.bench.post(s.connection, 300 * MTU)
    s.until(lambda: s.counters.skip_once == 1)

    # The SACK of the marked packet says so, and only that one.
    (sack,) = [x for x in s.sacks() if x.packet.seth.m == SackMark.SKIP_ONCE]
    (first,) = s.data(3)
    assert sack.packet.seth.entropy == first.ev
    assert s.state_of(first.ev) is EvState.SKIP
    at = len(s.data())

    # In its next turn it is passed over and back to GOOD; one round later it is used again.
    s.until(lambda: len(s.data()) >= at + 24)
    later = [p.ev for p in s.data()[at:]]
    # Packets already handed to the NIC queue when the mark arrived do not count: look at whole rounds of 8.
    gap = [i for i, ev in enumerate([p.ev for p in s.data()]) if ev == first.ev]
    distances = [b - a for a, b in itertools.pairwise(gap)]
    assert distances.count(15) == 1  # eight EVs, one round left out
    assert set(distances) <= {8, 15}
    assert s.state_of(first.ev) is EvState.GOOD
    assert first.ev in later
    assert not s.events(EvChanged)  # a controller is not bothered


@pytest.mark.parametrize(("packets", "qps"), first([(1, 1), (9, 1), (3, 3), (2, 1), (1, 3), (5, 3)], 3))
def test_planes_are_equal_behind_a_small_window(packets: int, qps: int) -> None:
    # Round trips of 40 times the patience: what the window holds back must not look like planes without room.
    size = nominal_size(MTU)
    window = FixedConfig(fixed_window_bytes=packets * size, base_rtt_ns=2_000_000)
    s = story(4, cc=window, reliability=ReliabilityConfig(timeout=14))
    for path in s.net.paths():
        path.latency_ns = 1_000_000
    connections = [s.connection] + [s.bench.connect(s.requestor_host, s.responder_host) for _ in range(qps - 1)]
    for connection in connections:
        s.bench.post(connection, 400 * MTU)
    s.until(lambda: len(s.data()) == 400 * qps, max_time_ns=10**11)
    ports = Counter(p.port for p in s.data())
    assert max(ports.values()) - min(ports[port] for port in range(4)) <= 2 * PortsConfig().balance_slack_packets


def test_evs_of_a_dead_path_are_replaced_probed_and_revived() -> None:
    s = story()
    s.bench.post(s.connection, 3_000 * MTU)
    s.until(lambda: len(s.data()) > 300)
    victims = {ev for ev in s.active(1) if path_of(s, ev) == 2}
    assert victims, "the seed gives plane 1 an active EV on path 2"
    backups = s.backups(1)
    before = len(s.active(1))
    died = s.net.now

    # Path 2 of plane 1 dies; nobody is told.
    s.net.set_path(False, plane=1, index=2)
    s.until(lambda: all(s.state_of(ev) is EvState.ASSUMED_BAD for ev in victims))
    changes = [(time, e) for time, e in s.events(EvChanged) if e.new is EvState.ASSUMED_BAD]
    assert {e.ev for _, e in changes} >= victims
    assert {e.plane for _, e in changes} == {1}
    assert all(path_of(s, e.ev) == 2 for _, e in changes)  # none was taken for bad without being so
    assert all(time > died and e.cause == "inferred loss" and e.losses == 1 for time, e in changes)

    # Backups of the same plane took over: the plane keeps its number of active EVs and its share of the load.
    assert len(s.active(1)) == before
    assert s.active(1) & backups
    assert not s.active(1) & victims
    mark = len(s.data())
    s.until(lambda: len(s.data()) > mark + 400)
    ports = Counter(p.port for p in s.data()[mark:])
    assert abs(ports[0] - ports[1]) < 0.1 * len(s.data()[mark:])
    assert not {p.ev for p in s.data()[mark + 100 :]} & victims  # no data on a dead path

    # The bad EVs are probed about once per interval, over their own plane; no answer comes.
    s.bench.post(s.connection, MTU)
    start = s.net.now
    s.net.run(max_time_ns=10 * INTERVAL)
    tests = [p for p in s.packets(Opcode.PROBE, host=0) if p.time >= start and p.ev in victims]
    assert {p.port for p in tests} == {1}
    per_ev = Counter(p.ev for p in tests)
    assert set(per_ev) == victims
    assert all(3 <= count <= 14 for count in per_ev.values())
    assert all(s.state_of(ev) is EvState.ASSUMED_BAD for ev in victims)

    # The path returns: two answers in a row and the EV is GOOD, in the backup set.
    s.net.set_path(True, plane=1, index=2)
    back = s.net.now
    s.until(lambda: all(s.state_of(ev) is EvState.GOOD for ev in victims))
    assert s.net.now - back < 6 * INTERVAL
    assert victims <= s.backups(1)
    for ev in victims:
        answers = [p for p in s.packets(Opcode.SACK, host=1) if p.packet.seth.pr and p.packet.seth.entropy == ev]
        assert len([p for p in answers if p.time > back]) >= 2
    revived = [e for time, e in s.events(EvChanged) if e.new is EvState.GOOD]
    assert {e.ev for e in revived} >= victims
    assert {e.cause for e in revived} == {"enough probes answered, m = NONE"}
    s.until(lambda: s.bench.outstanding == 0)


def test_port_that_is_down_is_announced_avoided_and_used_again() -> None:
    s = story(4, gbps=10)
    back = s.bench.reverse(s.connection)
    s.bench.post(s.connection, 9_000 * MTU)
    s.bench.post(back, 9_000 * MTU)
    s.until(lambda: len(s.sent) > 800)

    # Port 2 of the requestor goes down: it remaps at once and tells the peer over a working port.
    down = s.net.now
    s.net.set_link(s.requestor_host, 2, False)
    s.until(lambda: bool(s.events(PortChanged, host=1)))
    assert [e for _, e in s.events(PortChanged)] == [PortChanged(2, False, None)]
    (told,) = s.events(PortChanged, host=1)
    assert told[1] == PortChanged(2, False, s.requestor_host.address)
    request = s.packets(Opcode.ENDPOINT_REQUEST, host=0)[-1]
    status = [p for p in s.packets(Opcode.ENDPOINT_REQUEST, host=0) if p.packet.erth.op == EndpointOp.PORT_STATUS]
    assert [p.packet.erth.port_status_mask for p in status] == [0b1011]
    assert status[0].port != 2
    assert status[0].packet.bth.dest_qp == 2
    assert request.dscp == 46
    assert told[0] - down < 20_000

    # The answer echoes the request's id; no repetition follows.
    s.net.run(max_time_ns=400_000)
    answers = [
        p
        for p in s.packets(Opcode.ENDPOINT_RESPONSE, host=1)
        if p.packet.eeth.op == EndpointOp.PORT_STATUS and p.psn == status[0].psn
    ]
    assert len(answers) == 1
    status = [p for p in s.packets(Opcode.ENDPOINT_REQUEST, host=0) if p.packet.erth.op == EndpointOp.PORT_STATUS]
    assert len(status) == 1

    # Neither end uses plane 2 now (beyond what was already in the NIC's queue); no path was blamed for it.
    late = [p for p in s.sent if p.time > told[0] + 12_000]
    assert late
    assert {p.port for p in late} == {0, 1, 3}
    assert not [e for host in (0, 1) for _, e in s.events(EvChanged, host) if e.plane != 2]
    assert s.counters.lost_port_down > 0

    # The port returns: announced the same way, and all four planes carry the load again.
    s.net.set_link(s.requestor_host, 2, True)
    s.until(lambda: len(s.events(PortChanged, host=1)) == 2)
    mark = len(s.sent)
    s.until(lambda: len(s.sent) > mark + 1_500)
    ports = Counter(p.port for p in s.sent[mark + 500 :] if p.is_data and p.host == 1)
    assert set(ports) == {0, 1, 2, 3}
    assert max(ports.values()) < 1.5 * min(ports.values())
    s.until(lambda: s.bench.outstanding == 0)
    assert s.bench.statuses() == {"SUCCESS": 2}


class OnlyOurs(EvSet):
    """Does not listen to what the peer says of its ports."""

    def usable_planes(self, ours: int, theirs: int) -> int:
        return ours


class Neighbours(EvSet):
    """Leaves plane 3, too, when plane 2 is lost at either end."""

    def usable_planes(self, ours: int, theirs: int) -> int:
        mask = ours & theirs
        return mask if mask >> 2 & 1 else mask & 0b0111


@pytest.mark.parametrize(
    ("policy", "ports"),
    [
        pytest.param(None, ({0, 1, 3}, {0, 1, 3}), id="ours"),
        pytest.param(OnlyOurs, ({0, 1, 3}, {0, 1, 2, 3}), id="only-ours"),
        pytest.param(Neighbours, ({0, 1}, {0, 1}), id="neighbours"),
    ],
)
def test_a_policy_says_which_planes_carry_data(policy: type | None, ports: tuple[set[int], set[int]]) -> None:
    """A port of host 0 goes down: on which ports host 0 and host 1 send data from then on, by each policy."""
    s = story(4, gbps=10, policies=Policies(ev=policy and guarded(policy, "ev")))
    back = s.bench.reverse(s.connection)
    s.bench.post(s.connection, 4_000 * MTU)
    s.bench.post(back, 4_000 * MTU)
    s.until(lambda: len(s.sent) > 800)
    s.net.set_link(s.requestor_host, 2, False)
    s.until(lambda: bool(s.events(PortChanged, host=1)))
    told = s.net.now
    s.net.run(max_time_ns=400_000)
    late = [p for p in s.sent if p.is_data and p.time > told + 12_000]
    assert tuple({p.port for p in late if p.host == host} for host in (0, 1)) == ports
    assert s.counters.lost_port_down > 0


def test_a_policy_holds_for_a_profile_that_is_chosen_later() -> None:
    policy = guarded(OnlyOurs, "ev")
    core = story(policies=Policies(ev=policy)).connection.source.core
    qp = core.create_qp(core.create_cq())
    before = qp.evs
    core.set_profiles(qp, ev=EvConfig(count=64, active=8))
    assert qp.evs is not before
    assert len(qp.evs.universe.values) == len(qp.requestor.board.last_on_ev) == 64
    assert type(qp.evs) is policy


def test_a_queue_pair_sends_within_the_window_of_a_profile_that_is_chosen_later() -> None:
    s = story(cc=FixedConfig(fixed_window_bytes=64 * MTU))
    ends = s.connection.source.core, s.connection.target.core
    qp, other = (end.create_qp(end.create_cq()) for end in ends)
    ends[0].set_profiles(qp, cc=FixedConfig(fixed_window_bytes=3 * MTU))
    for end, own, remote in ((ends[0], qp, ends[1].local_attributes(other)), (ends[1], other, None)):
        end.connect(own, remote or ends[0].local_attributes(qp), 0)
    assert qp.qpcc.cc.cwnd == 3 * MTU
    assert s.qp.qpcc.cc.cwnd == 64 * MTU


def test_port_status_is_repeated_until_answered() -> None:
    s = story(2)
    s.bench.post(s.connection, MTU)
    s.until(lambda: s.bench.outstanding == 0)
    deaf = s.net.now + 1_000_000
    s.lose(lambda p: p.opcode == Opcode.ENDPOINT_RESPONSE and p.time < deaf)
    start = s.net.now
    s.net.set_link(s.requestor_host, 1, False)
    s.net.run(max_time_ns=5_000_000)
    status = [p for p in s.packets(Opcode.ENDPOINT_REQUEST, host=0) if p.packet.erth.op == EndpointOp.PORT_STATUS]
    # 100 us, doubling: 0, 100, 300, 700, 1500 us; the answer to the last one ends it.
    assert [round((p.time - start) / 100_000) for p in status] == [0, 1, 3, 7, 15]
    assert len({p.psn for p in status}) == 1  # one update, one id
    assert len(s.events(PortChanged, host=1)) == 1  # it is applied once


def test_transfer_completes_after_all_ports_were_down() -> None:
    s = story(2)
    s.bench.post(s.connection, 500 * MTU)
    s.until(lambda: len(s.data()) > 100)
    for port in (0, 1):
        s.net.set_link(s.requestor_host, port, False)
    sent = len([p for p in s.sent if p.host == 0])
    s.net.run(max_time_ns=500_000)
    assert len([p for p in s.sent if p.host == 0]) - sent < 20  # what was in the NIC
    for port in (0, 1):
        s.net.set_link(s.requestor_host, port, True)
    s.until(lambda: s.bench.outstanding == 0)
    assert s.bench.statuses() == {"SUCCESS": 1}


def test_sending_goes_on_when_every_path_looks_bad() -> None:
    s = story(1, ev=EvConfig(count=8, active=8, ev_min_active=3, probe_interval_ns=INTERVAL))
    s.lose(lambda p: p.is_data and p.time < 4_000_000)
    write = s.bench.post(s.connection, 50 * MTU)
    s.until(lambda: s.net.now > 3_900_000 or write.completed_at is not None)
    assert len(s.active(0)) >= 3
    s.until(lambda: write.completed_at is not None)
    assert s.qp.state is QpState.RTS


def test_sending_goes_on_when_all_active_evs_are_skip() -> None:
    s = story(1)
    for path in s.net.paths():
        path.ecn = (-1, 0)  # everything is marked
    write = s.bench.post(s.connection, 500 * MTU)
    s.until(lambda: write.completed_at is not None)
    assert s.counters.skip_once > 400
    assert s.counters.retransmissions == 0


def test_always_skip_takes_a_path_out() -> None:
    s = story(1, reliability=ReliabilityConfig(timeout=10, always_skip_after=3))
    s.bench.post(s.connection, 2_000 * MTU)
    s.until(lambda: len(s.data()) > 40)
    for path in s.net.paths(group=0, index=1):
        path.ecn = (-1, 0)
    s.until(lambda: bool(s.events(EvChanged)))
    changed = s.events(EvChanged)[0][1]
    assert changed.cause == "SACK m = ALWAYS_SKIP"
    assert path_of(s, changed.ev) == 1
    said = [x for x in s.sacks() if x.packet.seth.m == SackMark.ALWAYS_SKIP]
    assert said[0].packet.seth.entropy == changed.ev


def test_controller_denies_allows_and_replaces() -> None:
    s = story(1)
    core = s.connection.source.core
    s.bench.post(s.connection, 3_000 * MTU)
    s.until(lambda: len(s.data()) > 50)
    victim = min(s.active(0))
    count = len(s.active(0))
    core.set_ev_state(s.qp, victim, EvState.DENIED, s.net.now)
    assert victim not in s.active(0) | s.backups(0)
    assert len(s.active(0)) == count
    mark = len(s.data())
    s.until(lambda: len(s.data()) > mark + 200)
    assert victim not in {p.ev for p in s.data()[mark + 20 :]}
    assert {e.new for _, e in s.events(EvChanged)} == {EvState.DENIED}
    core.set_ev_state(s.qp, victim, EvState.GOOD, s.net.now)
    assert victim in s.backups(0)
    (row,) = [row for row in core.query_evs(s.qp) if row.ev == victim]
    assert row == EvRow(victim, 0, EvState.GOOD, active=False, losses=0)
    active = min(s.active(0))
    s.qp.route.prove(active, 0, s.net.now)
    core.replace_ev(s.qp, active, 0x12345678, s.net.now)
    assert [each.value for each in s.qp.route.reverse] == [0x12345678]
    mark = len(s.data())
    s.until(lambda: len(s.data()) > mark + 100)
    used = {p.ev for p in s.data()[mark + 20 :]}
    assert 0x12345678 in used
    assert active not in used
    with pytest.raises(KeyError):
        core.set_ev_state(s.qp, active, EvState.DENIED, s.net.now)


def test_ev_probe_of_a_controller_reports_its_result() -> None:
    s = story(2)
    core, peer = s.connection.source.core, s.responder_host.address
    ev = min(s.active(1))
    token = core.probe_ev(peer, ev, 1, s.net.now)
    s.net.touch(s.requestor_host)
    s.until(lambda: bool(s.events(ProbeResult)))
    (_, result) = s.events(ProbeResult)[0]
    assert (result.token, result.peer, result.ev, result.plane) == (token, peer, ev, 1)
    assert result.rtt_ns is not None
    assert 6_000 <= result.rtt_ns < 8_000
    (request,) = [p for p in s.packets(Opcode.ENDPOINT_REQUEST) if p.packet.erth.op == EndpointOp.EV_PROBE]
    assert (request.port, request.ev, request.packet.bth.dest_qp) == (1, ev, 2)
    # Without an answer the result says so, after the timeout.
    s.net.set_path(False, plane=0)
    asked = s.net.now
    core.probe_ev(peer, min(s.active(0)), 0, asked, timeout_ns=50_000)
    s.net.touch(s.requestor_host)
    s.until(lambda: len(s.events(ProbeResult)) == 2)
    time, result = s.events(ProbeResult)[1]
    assert (result.rtt_ns, time) == (None, asked + 50_000)


def test_planes_carry_the_same_load() -> None:
    s = story(4)
    s.bench.post(s.connection, 2_000 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    ports = Counter(p.port for p in s.data())
    assert set(ports) == {0, 1, 2, 3}
    assert max(ports.values()) - min(ports.values()) <= 2 * PortsConfig().balance_slack_packets


def test_a_port_without_room_does_not_hold_up_the_others_for_long() -> None:
    s = story(2)
    s.requestor_host.nic_busy[1] = 10**12  # port 1 never drains
    write = s.bench.post(s.connection, 400 * MTU)
    s.until(lambda: write.completed_at is not None)
    assert {p.port for p in s.data()} == {0}


@pytest.mark.parametrize("segments", [0, 1])
def test_srv6_path_follows_the_ev(segments: int) -> None:
    def resolver(ev: int, destination: bytes) -> Srv6Path:
        head = b"\x5f\x00\x00\x00" + (0x10).to_bytes(2, "big") + (ev & 0xFFFF).to_bytes(2, "big") + destination[-2:]
        return Srv6Path(head + bytes(6), (destination,) * segments)

    fmt = EvFormat.SRV6_SRH256 if segments else EvFormat.SRV6_USID128
    s = story(2, ev=EvConfig(count=16, active=8, fmt=fmt, mode=EvMode.AUTO, resolver=resolver))
    s.net.rules.append(lambda n, h, p, i, packet: "drop" if packet[6] == 17 else None)  # all must be encapsulated
    write = s.bench.post(s.connection, 40 * MTU, immediate=1)
    s.until(lambda: write.completed_at is not None)
    replaced, new = min(s.active(0)), 0x1234
    s.connection.source.core.replace_ev(s.qp, replaced, new, s.net.now)
    again = s.bench.post(s.connection, 40 * MTU, immediate=1)
    s.until(lambda: again.completed_at is not None)
    assert new in {p.ev for p in s.data()}
    for p in s.sent:
        outer = p.packet.outer
        assert outer is not None
        assert outer.dst.to_bytes(16, "big")[6:8] == (p.ev & 0xFFFF).to_bytes(2, "big")
        assert outer.src.to_bytes(16, "big") == (s.requestor_host, s.responder_host)[p.host].address
        assert (p.packet.srh is not None) == bool(segments)
        assert (outer.dscp, outer.ecn) == (p.dscp, p.packet.ip.ecn)
