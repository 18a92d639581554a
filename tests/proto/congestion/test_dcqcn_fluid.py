"""DCQCN in closed loop against its published fluid model (Zhu et al., SIGCOMM 2015, section 5 and its fixed point).

The model is solved here from its equations; nothing of it is the implementation's. N flows at one queue, marked as RED
does, run packet by packet; in the steady state the share of marked packets, the queue and the rates are the model's.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import pytest

from mrc_host.proto.congestion.dcqcn import PROFILES, Dcqcn, DcqcnConfig, profile

LINE = 40_000_000_000
PACKET = 1000
KMIN, KMAX, PMAX = 5_000, 200_000, 0.01  # of the paper, bytes
FEEDBACK_NS = 4_000
LIMIT = 1_000_000


def fixed_point(flows: int, c: DcqcnConfig) -> float:
    """Return the marking probability at which every flow has its share: a²α / ((b+d)(c+e)) = τ² R_AI R_C, in packets
    and s.
    """
    rate = LINE / 8 / PACKET / flows
    additive = LINE / 1000 / 8 / PACKET if c.additive_bps is None else c.additive_bps / 8 / PACKET
    tau, tau_alpha, timer = c.cnp_interval_ns / 1e9, c.alpha_interval_ns / 1e9, c.rate_interval_ns / 1e9
    counter, rounds = (c.byte_counter or 1e18) / PACKET, c.recovery_rounds

    def excess(p: float) -> float:
        kept = 1 - p
        a = 1 - kept ** (tau * rate)
        alpha = 1 - kept ** (tau_alpha * rate)
        b = p / (kept**-counter - 1) if counter * p < 500 else 0.0
        d = p / (kept ** -(timer * rate) - 1)
        later = kept ** (rounds * counter) * b + kept ** (rounds * timer * rate) * d
        return a * a * alpha / ((b + d) * later) - tau * tau * additive * rate

    low, high = 1e-7, 0.5
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return low


@dataclass
class Steady:
    marked: float
    queue: float
    rates: list[float]
    used: float


def run(flows: int, config: DcqcnConfig, seed: int, warm_ns: int, end_ns: int) -> Steady:
    """Return a queue of `LINE`, marked by its length; the receivers answer at most one CNP per flow and interval."""
    rng = random.Random(seed)
    controls = [Dcqcn(config, LINE) for _ in range(flows)]
    cnp_at = [-(10**12)] * flows
    events: list[tuple[int, int, int]] = [(n * 97, 0, n) for n in range(flows)]
    queue, drained = 0.0, 0
    seen = marks = 0
    area = 0.0
    sent = [0] * flows
    while events:
        now, kind, n = heapq.heappop(events)
        if now >= end_ns:
            break
        control = controls[n]
        control.on_timer(now)
        if kind == 1:
            control.on_cnp(now)
            continue
        queue = max(0.0, queue - (now - drained) * LINE / 8e9)
        drained = now
        chance = PMAX * (queue - KMIN) / (KMAX - KMIN)  # as in the model, which has no step at KMAX
        marked = rng.random() < chance
        queue = min(queue + PACKET, LIMIT)  # what senders at line rate begin with, flow control would hold back
        control.on_sent(PACKET)
        if now > warm_ns:
            seen, marks, area = seen + 1, marks + marked, area + queue
            sent[n] += PACKET
        if marked and now - cnp_at[n] >= config.cnp_interval_ns:
            cnp_at[n] = now
            heapq.heappush(events, (now + FEEDBACK_NS + int(queue * 8e9 / LINE), 1, n))
        heapq.heappush(events, (now + int(PACKET * 8e9 / control.rate), 0, n))
    seconds = (end_ns - warm_ns) / 1e9
    rates = [each * 8 / seconds for each in sent]
    return Steady(marks / seen, area / seen, rates, sum(rates) / LINE)


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_steady_state_agrees_with_the_fluid_model(flows: int) -> None:
    config = profile("paper", LINE)
    wanted = fixed_point(flows, config)
    found = run(flows, config, 1, 60_000_000, 160_000_000)
    assert found.used == pytest.approx(1.0, abs=0.02)
    # The model averages: that marks hit a flow most when it is fast is not in it, so it needs a quarter less of them.
    # The band is narrow enough for half or twice the additive increase to leave it.
    assert 1.15 < found.marked / wanted < 1.5
    assert found.queue == pytest.approx(KMIN + found.marked / PMAX * (KMAX - KMIN), rel=0.1)
    fairness = sum(found.rates) ** 2 / flows / sum(rate * rate for rate in found.rates)
    assert fairness > 0.95


def test_more_flows_need_more_marks() -> None:
    config = profile("paper", LINE)
    points = [fixed_point(flows, config) for flows in (2, 4, 8, 16, 32)]
    assert points == sorted(points)


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_scale_with_the_rate(name: str) -> None:
    meant, own = PROFILES[name]
    assert profile(name, meant) == own
    slow = profile(name, meant // 1000)
    assert slow.rate_interval_ns == own.rate_interval_ns * 1000
    assert slow.cnp_interval_ns == own.cnp_interval_ns * 1000
    assert slow.byte_counter == own.byte_counter
    assert slow.additive_bps == (own.additive_bps or 0) // 1000
    assert not profile(name, meant, enabled=False).enabled


def test_profiles_are_the_published_ones() -> None:
    timers = {name: (c.rate_interval_ns // 1000, c.cnp_interval_ns // 1000) for name, (_, c) in PROFILES.items()}
    assert timers == {"paper": (55, 50), "nvidia": (300, 4), "hpcc": (900, 4)}
    with pytest.raises(ValueError, match="known: paper, nvidia, hpcc"):
        profile("fast", LINE)
