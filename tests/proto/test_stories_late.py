"""Rule (c) and what comes late but comes: with `adaptive_reordering` it learns, without it it does not (§5)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.proto.config import EvConfig, PortsConfig, ReliabilityConfig
from mrc_host.proto.reliability.recovery import LossDetector, Rtt
from mrc_host.proto.reliability.scoreboard import Scoreboard, Transmission
from mrc_host.proto.work import WriteRequest
from support.amount import examples
from support.proto.net import Host, Net, NetConfig
from support.proto.story import WIDE, Story

MTU = 1024
PERSISTS = 16


def story(adaptive: bool, seed: int = 1) -> Story:
    """Two planes of a path each: when one is slow, nothing can avoid it."""
    config = NetConfig(planes=2, paths=1, trim_bytes=None, ecn=None, port_rate_bps=10**9, path_rate_bps=10**9)
    return Story(
        config,
        seed,
        cc=WIDE,
        ports=PortsConfig(count=2),
        reliability=ReliabilityConfig(timeout=14, adaptive_reordering=adaptive),
        ev=EvConfig(count=16, active=8, probe_interval_ns=10**6, probe_timeout_ns=10**6),
    )


def slow_plane(s: Story, more_ns: int = 300_000) -> tuple[int, int, int]:
    """Run a plane that becomes slow under a long transfer: packets sent again, of these needlessly, and noticed as
    such.
    """
    s.bench.post(s.connection, 200 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    for path in s.net.paths(plane=1):
        path.latency_ns += more_ns
    for _ in range(12):
        s.bench.post(s.connection, 200 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    assert s.counters.lost_timeout == 0
    return s.counters.retransmissions, s.connection.peer.responder.counters.duplicates, s.counters.late_arrivals


@pytest.mark.parametrize("more_ns", [300_000, 1_000_000], ids=["before-its-repetition", "as-a-duplicate"])
def test_adaptive_detector_waits_for_packets_that_arrived_late_before(more_ns: int) -> None:
    fixed = slow_plane(story(adaptive=False), more_ns)
    learning = slow_plane(story(adaptive=True), more_ns)
    # Without it only the RTT of the plane is learned, from the packets that came late: what is sent again needlessly is
    # a small part of the 1 300 packets of the slow plane.
    assert 0 < fixed[2] <= fixed[1]
    assert fixed[1] < 130
    assert learning[1] <= fixed[1], (fixed, learning)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_losses_on_the_slow_plane_are_found_all_the_same(seed: int) -> None:
    s = story(adaptive=True, seed=seed)
    slow_plane(s)
    for path in s.net.paths(plane=1):
        path.impair(loss=0.05)
    before = s.counters.lost_rack
    for _ in range(6):
        s.bench.post(s.connection, 200 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    assert s.bench.statuses() == {"SUCCESS": 19}
    assert s.counters.lost_rack + s.counters.lost_same_ev > before


def detector(rng: random.Random) -> tuple[LossDetector, Scoreboard]:
    rtt = Rtt(1)
    for _ in range(8):
        rtt.sample(rng.randrange(5_000, 15_000), 0)
    board = Scoreboard(0, 1 << 40, 7, 1, 8)
    made = LossDetector(board, rtt, True, True)
    made.adaptive = True
    return made, board


REQUEST = WriteRequest(1, memoryview(b""), 0, 0, None)


def send(board: Scoreboard, psn: int, at: int) -> Transmission:
    sent = Transmission(psn, at, 0, 0, MTU, REQUEST, 0, 1, 0, None)
    board.add(sent)
    return sent


@given(seed=st.integers(0, 2**32), behind=st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_what_is_no_further_behind_than_what_came_late_is_not_lost(seed: int, behind: int) -> None:
    made, board = detector(random.Random(seed))
    now = 10**12
    made.arrived_late(behind, now)
    send(board, 0, now - behind)
    board.newest_ns = now
    assert not made.infer([], None, 0, now)
    # What is further behind than all that is known is.
    board.clear_orders()
    old = send(board, 2, now - 2 * max(behind, made.rtt.srtt_ns + 4 * made.rtt.var_ns) - 1)
    assert made.infer([], None, 0, now) == [old]


@given(seed=st.integers(0, 2**32), losses=st.integers(0, 40))
@settings(max_examples=examples(60), deadline=None)
def test_patience_ends_after_losses_in_sixteen_round_trips(seed: int, losses: int) -> None:
    rng = random.Random(seed)
    made, board = detector(rng)
    behind, now = 10**8, 10**12
    made.arrived_late(behind, now)
    for psn in range(losses):
        now += made.rtt.srtt_ns + rng.randrange(10**6)
        for each in range(rng.randrange(1, 4)):  # several in a round trip count once
            lost = send(board, 4 * psn + each, now - 10**10)
            board.newest_ns = now
            assert made.infer([], None, 0, now) == [lost]
    assert (made.patience_ns > 0) == (losses < PERSISTS)
    made.arrived_late(behind, now)  # the count begins afresh
    for psn in range(1, PERSISTS):
        now += made.rtt.srtt_ns
        lost = send(board, -psn, now - 10**10)
        board.newest_ns = now
        assert made.infer([], None, 0, now) == [lost]
    assert made.patience_ns == behind + (behind >> 3)


def test_an_overtaken_sack_does_not_set_the_window_back() -> None:
    """Two SACKs with the same hole arrive in the wrong order: what the newer one said of the window holds."""
    story = Story(reliability=ReliabilityConfig(dynamic_mpr=True, mpr=64, mpr_dest=64), cc=WIDE)
    held: list[bytes] = []
    story.lose(lambda sent: sent.is_data and sent.psn == 2)

    def hold(net: Net, host: Host, port: int, index: int, packet: bytes) -> str | None:
        if host.index == 1 and story.data(3) and not held:
            held.append(packet)
            return "drop"
        return None

    story.net.rules.append(hold)
    story.bench.post(story.connection, 3 * 4096)
    story.until(lambda: bool(held))
    story.responder_host.core.set_mpr(story.connection.peer, 3)
    story.bench.post(story.connection, 4096)
    requestor = story.qp.requestor
    story.until(lambda: requestor.mpr == 3)
    story.requestor_host.core.receive_datagram(0, held[0], story.net.now)
    assert requestor.mpr == 3
    assert requestor.limit == requestor.board.una - 1 + 3 * 128
