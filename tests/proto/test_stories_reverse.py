"""Stories of reverse EVs: those on which a responder's answers go back (`mrc-protocol.md §7`)."""

from __future__ import annotations

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.events import EvState
from mrc_host.proto.wire.fields import EndpointOp, Opcode
from support.proto.path_story import MTU, story
from support.proto.story import Story


def test_reverse_evs_are_probed_while_only_the_peer_sends() -> None:
    s = story(2)
    # The responder's reverse EV of plane 0 leads onto a path that dies: its SACKs there are lost.
    peer = s.connection.peer.route
    write = s.bench.post(s.connection, 2_000 * MTU)
    s.until(lambda: not peer.guessed)
    s.net.set_path(False, group=1, plane=0, index=0)
    bad = next(ev for ev in peer.universe.values if reverse_path(s, ev) == 0 and plane_at(peer, ev) == 0)
    peer.reverse[0].take(bad)
    s.until(lambda: peer.reverse[0].value != bad)
    assert reverse_path(s, peer.reverse[0].value) != 0  # answered, hence alive in both directions
    found = s.net.now
    assert found < 300_000
    probes = [p for p in s.packets(Opcode.ENDPOINT_REQUEST, host=1) if p.packet.erth.op == EndpointOp.EV_PROBE]
    assert probes
    s.until(lambda: write.completed_at is not None)
    # When the peer falls silent, so do the probes.
    s.net.run(max_time_ns=1_000_000)
    quiet = s.net.now
    s.net.run(max_time_ns=1_000_000)
    assert not [p for p in s.packets(Opcode.ENDPOINT_REQUEST, host=1) if p.time > quiet]


def test_a_guessed_reverse_ev_gives_way_to_the_path_of_the_first_packet() -> None:
    s = story(2)
    route = s.connection.peer.route
    s.net.set_path(False, plane=0, index=0)
    s.net.set_path(False, plane=1, index=0)
    for plane in range(2):
        route.reverse[plane].take(
            next(ev for ev in route.universe.values if plane_at(route, ev) == plane and reverse_path(s, ev) == 0)
        )
    s.bench.post(s.connection, 20 * MTU)
    s.until(lambda: route.inbound_ns >= 0)  # nothing has been proven by then
    assert any(reverse_path(s, each.value) != 0 for each in route.reverse)


def test_bad_evs_of_an_idle_queue_pair_return_though_its_reverse_evs_died() -> None:
    """Nothing but probes arrives there, so nothing proves a reverse EV: that they go on tells that answers are lost."""
    s = story(2)
    s.net.set_path(False, index=0)
    write = s.bench.post(s.connection, 200 * MTU)
    s.until(lambda: write.completed_at is not None)
    s.net.run(max_time_ns=1_000_000)
    bad = [ev for ev in s.qp.evs.universe.values if s.state_of(ev) is EvState.ASSUMED_BAD]
    route = s.connection.peer.route
    assert bad
    assert route.inbound_ns < 0
    s.net.set_path(True, group=0, index=0)
    for plane in range(2):
        route.reverse[plane].take(
            next(ev for ev in route.universe.values if plane_at(route, ev) == plane and reverse_path(s, ev) == 0)
        )
    s.until(lambda: not any(s.state_of(ev) is EvState.ASSUMED_BAD for ev in bad))


def plane_at(route: object, ev: int) -> int:
    universe = route.universe  # type: ignore[attr-defined]
    return int(universe.planes[universe.index[ev]])


def reverse_path(s: Story, ev: int) -> int:
    """Return the path that a control packet of the responder takes on an EV."""
    peer = s.connection.peer.peer
    codec = s.connection.target.core.context.codec
    raw = bytes(codec.encode_ack(peer.addresses, ev, 184, 1, 1, 31, 1))
    return s.net.choose(raw, s.responder_host.group, plane_at(s.connection.peer.route, ev)).index


def test_reverse_evs_follow_data_sacks_when_both_send() -> None:
    s = story(2)
    back = s.bench.reverse(s.connection)
    s.bench.post(s.connection, 300 * MTU)
    s.bench.post(back, 300 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    for host, qp in ((0, s.qp), (1, s.connection.peer)):
        sent = {p.ev for p in s.sent if p.is_data and p.host == host}
        assert {each.value for each in qp.route.reverse} <= sent


@pytest.mark.parametrize("seed", range(4))
def test_dead_reverse_evs_at_both_ends_are_replaced(seed: int) -> None:
    """Neither hears an answer, so neither learns a reverse EV from one: a repeated packet tells that ours was lost."""
    s = story(1, seed=seed)
    s.net.set_path(False, plane=0, index=0)
    back = s.bench.reverse(s.connection)
    for host, qp in ((0, s.qp), (1, s.connection.peer)):
        dead = next(ev for ev in qp.evs.universe.values if control_path(s, host, ev) == 0)
        qp.route.reverse[0].take(dead)
    writes = [s.bench.post(s.connection, 10 * MTU), s.bench.post(back, 10 * MTU)]
    s.until(lambda: s.bench.outstanding == 0)
    assert {write.status for write in writes} == {CompletionStatus.SUCCESS}
    assert all(control_path(s, host, qp.route.reverse[0].value) for host, qp in ((0, s.qp), (1, s.connection.peer)))


@pytest.mark.parametrize("seed", range(4))
def test_a_transport_ack_finds_another_way_when_all_reverse_evs_died(seed: int) -> None:
    """All is SACKed, only the transport ACK is missing: probes do not tell the peer that its answers are lost."""
    s = story(2, seed=seed)
    s.lose(lambda p: p.opcode == Opcode.ACK and p.time < 100_000)
    write = s.bench.post(s.connection, 10 * MTU)
    s.until(lambda: s.board.nxt > s.board.una - 1 > 1 and not s.board.outstanding)
    s.net.set_path(False, group=1, index=0)
    route = s.connection.peer.route
    for plane in range(2):
        route.reverse[plane].take(
            next(ev for ev in route.universe.values if plane_at(route, ev) == plane and reverse_path(s, ev) == 0)
        )
    s.until(lambda: write.completed_at is not None)
    assert write.status is CompletionStatus.SUCCESS
    assert s.connection.peer.responder.counters.duplicates
    assert s.qp.requestor.account.in_flight == 0


def test_a_repeated_port_status_is_answered_on_another_ev() -> None:
    s = story(2)
    s.net.set_path(False, plane=0, index=0)
    route = s.connection.peer.route
    dead = next(ev for ev in route.universe.values if plane_at(route, ev) == 0 and control_path(s, 1, ev) == 0)
    route.reverse[0].take(dead)
    s.net.set_link(s.requestor_host, 1, False)
    s.net.run(max_time_ns=200_000_000)
    assert s.qp.peer.status_acked
    assert route.reverse[0].value != dead


def test_a_reverse_ev_that_was_just_proven_is_not_doubted_for_a_duplicate() -> None:
    s = story(1)
    back = s.bench.reverse(s.connection)
    s.bench.post(s.connection, 20 * MTU)
    s.bench.post(back, 20 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    route = s.connection.peer.route
    proven = route.reverse[0].value
    for _ in range(5):
        route.suspect_reverse_ev(0, route.reverse[0].proven_ns + 1)
    assert route.reverse[0].value == proven


def test_a_new_reverse_ev_has_the_path_on_which_the_repetition_came_and_then_any() -> None:
    """Most failures are of both directions. Where one is only of the way back, that path must not be taken for ever."""
    route = story(1).connection.peer.route
    alike: dict[int, list[int]] = {}
    for value in route.universe.values:
        alike.setdefault(value >> 16, []).append(value)
    assert len(alike) > 1
    now, found = 0, []
    for ev in route.universe.values * 4:
        now += 10 * route.interval()
        route.suspect_reverse_ev(0, now, ev)
        found.append(route.reverse[0].value in alike[ev >> 16])
    first, second = found[::2], found[1::2]
    assert all(first)
    assert not all(second)
    assert any(second)


def control_path(s: Story, host: int, ev: int) -> int:
    """Return the path that a control packet of an end takes on an EV of plane 0."""
    qp = (s.qp, s.connection.peer)[host]
    raw = bytes(qp.context.codec.encode_ack(qp.peer.addresses, ev, 184, 1, 1, 31, 1))
    return s.net.choose(raw, (s.requestor_host, s.responder_host)[host].group, 0).index
