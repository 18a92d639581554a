"""What messages pay for dead EVs: how many packets, how late they end, and what is left for later messages."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from mrc_fluid import dead_evs
from mrc_fluid.dead_evs import DeadEvs, Pace
from mrc_fluid.queueing import Delays, detection

#: A round trip of 10 us whose packets wait 4 us: a loss is found after 34.7 us, or by a probe.
DELAYS = replace(Delays.of(4e-6, 10e-6, float(detection(np.array(4e-6), 10e-6))), spread=0.0)
#: A message of 1 ms that uses each EV every 20 us.
PACE = Pace(lasts=1e-3, turns=[20e-6], active=64)


def paid(pace: Pace, *rounds: int, loss: float = 1.0, seeds: int = 200) -> tuple[list[float], list[float], int]:
    """Return packets and ends of many messages, and how many of the queue pairs have EVs left."""
    lost, ends, left = [], [], 0
    for seed in range(seeds):
        dead = DeadEvs(1, seed)
        dead.add([np.array([[found]], np.int32) for found in rounds], loss)
        packets, (end,) = dead.pay(0, pace, DELAYS)
        dead.begin(0)
        lost.append(packets)
        ends.append(end)
        left += bool(dead.due[0])
    return lost, ends, left


def test_a_dead_ev_is_used_until_its_first_loss_is_found() -> None:
    lost, ends, left = paid(PACE, 1)
    assert set(lost) == {1 + math.floor(DELAYS.found / 20e-6)}
    assert left == 0
    # Its first turn is at random; the last packet that it lost is found as the first is.
    assert statistics.mean(ends) == pytest.approx(10e-6 + 20e-6 + DELAYS.found, rel=0.05)


def test_dead_backups_are_found_one_after_the_other() -> None:
    one, three = paid(PACE, 1), paid(PACE, 1, 1, 1)
    assert statistics.mean(three[0]) == 3 * statistics.mean(one[0])
    assert statistics.mean(three[1]) - statistics.mean(one[1]) == pytest.approx(2 * (10e-6 + DELAYS.found), rel=0.05)
    # Two EVs at the same time, of which one has a dead backup.
    assert statistics.mean(paid(PACE, 2, 1)[0]) == 3 * statistics.mean(one[0])


def test_a_loss_at_the_end_waits_for_a_probe() -> None:
    # With so many EVs the dead one is not probed.
    short = replace(PACE, lasts=DELAYS.verdict / 2, turns=[DELAYS.verdict / 2], active=10**9)
    _, ends, _ = paid(short, 1)
    # The last answer, between one and two intervals of the timer, the answer to the probe.
    for share, least in ((min(ends), 1.0), (max(ends), 2.0)):
        expected = short.lasts + DELAYS.last_rtt + DELAYS.base_rtt + 2 * DELAYS.silence
        expected += (least - 1) * 2 * DELAYS.silence_before
        assert share == pytest.approx(expected, rel=0.03)


def test_a_probe_on_a_dead_ev_waits_longer_and_what_is_repeated_there_longer_still() -> None:
    """The timer doubles its interval, and takes what was repeated for progress."""
    short = replace(PACE, lasts=DELAYS.verdict / 2, turns=[DELAYS.verdict / 2], active=4, since=0.0)
    _, ends, _ = paid(short, 1, seeds=2000)
    interval, trip = 2 * DELAYS.silence, DELAYS.base_rtt
    least = min(ends)
    once = sum(each < least + interval for each in ends) / 2000
    assert once == pytest.approx(0.75**2, abs=0.04)
    later = [each - least for each in ends]
    # A quarter of the probes is lost; what a probe that was answered has repeated is lost in a quarter of the rest.
    probe = sum(2 * interval + trip <= each < 4 * interval for each in later) / 2000
    assert probe >= 0.25 * 0.75**2 - 0.03
    again = sum(4 * interval + trip <= each for each in later) / 2000
    assert again == pytest.approx(1 - 0.75**2 - 0.25 * 0.75**2, abs=0.05)


def test_the_phase_of_the_timer_follows_from_the_beginning_of_the_message() -> None:
    """Intervals follow each other from the first, of two base RTTs; after many any part of one may be left."""
    dead = DeadEvs(1, 1)
    interval = 2 * DELAYS.silence_before
    end = 2 * DELAYS.base_rtt + 1.25 * interval
    rests = [dead._rest(end, DELAYS) for _ in range(1000)]
    assert statistics.mean(rests) == pytest.approx(0.75 * interval, rel=0.05)
    assert statistics.stdev(rests) == pytest.approx(math.sqrt(2) * dead_evs.VARIES * interval, rel=0.1)
    spread = [dead._rest(1000 * interval, DELAYS) for _ in range(1000)]
    assert statistics.stdev(spread) == pytest.approx(interval / math.sqrt(12), rel=0.1)


def test_verdicts_vary_from_message_to_message() -> None:
    wide = replace(DELAYS, spread=0.2 * DELAYS.found)
    ends = [DeadEvs(1, seed) for seed in range(500)]
    for dead in ends:
        dead.add([np.array([[1]], np.int32)])
    found = [dead.pay(0, replace(PACE, turns=[1e-7]), wide)[1][0] for dead in ends]
    # The EV is used until it is found, and what it lost last is found as late again.
    assert statistics.stdev(found) == pytest.approx(2 * wide.spread, rel=0.15)
    assert min(found) > 0


def test_draws_are_of_the_same_message() -> None:
    dead = DeadEvs(1, 3)
    dead.add([np.array([[1]], np.int32)])
    packets, drawn = dead.pay(0, PACE, DELAYS, 200)
    assert len(drawn) == 200
    assert statistics.mean(drawn) == pytest.approx(10e-6 + 20e-6 + DELAYS.found, rel=0.05)
    assert packets == 1 + math.floor(DELAYS.found / 20e-6)
    assert not dead


def test_a_message_leaves_to_the_next_what_it_does_not_use() -> None:
    brief = replace(PACE, lasts=10e-6)
    lost, _, left = paid(brief, 1, seeds=1000)
    assert sum(each > 0 for each in lost) == pytest.approx(500, abs=60)
    assert left == sum(each == 0 for each in lost)


def test_what_was_not_used_before_a_repair_costs_nothing() -> None:
    flap = replace(PACE, until=10e-6)
    lost, _, left = paid(flap, 1, seeds=1000)
    assert sum(each > 0 for each in lost) == pytest.approx(500, abs=60)
    assert set(lost) == {0.0, 1.0}
    dead = DeadEvs(1, 1)
    dead.add([np.array([[1]], np.int32)])
    dead.forget()
    dead.begin(0)
    assert left
    assert not dead
    assert not dead.due[0]


def test_a_grey_ev_is_used_until_it_loses_a_packet() -> None:
    lost, ends, left = paid(replace(PACE, lasts=1.0), 1, loss=0.1, seeds=1000)
    # Nine uses pass on average before the first that is lost.
    assert statistics.mean(ends) == pytest.approx(9 * 20e-6 + 10e-6 + DELAYS.found, rel=0.15)
    assert 1 <= statistics.mean(lost) < 1.3
    assert left == 0


def test_steady_loss_delays_the_share_of_messages_that_lose_one_of_their_last_packets() -> None:
    rate = 0.1 / DELAYS.verdict
    _, ends, _ = paid(replace(PACE, grey=rate), seeds=2000)
    assert sum(end > 0 for end in ends) / 2000 == pytest.approx(-math.expm1(-0.1), abs=0.02)


def test_packets_that_a_port_took_are_sent_again_once() -> None:
    dead = DeadEvs(2, 1)
    dead.add_cut(np.array([5.0, 0.0]))
    assert dead.due.tolist() == [True, False]
    assert dead.pay(0, PACE, DELAYS) == (5.0, [DELAYS.found])
    dead.begin(0)
    assert not dead.due[0]
