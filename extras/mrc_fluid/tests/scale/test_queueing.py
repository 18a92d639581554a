"""What queues and windows make of a fluid: bounds that any of it must keep, and values that can be reckoned by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_fluid import queueing

loads = st.floats(0.0, 60.0)
rooms = st.floats(1.0, 400.0)


@settings(max_examples=200, deadline=None)
@given(load=loads, room=rooms)
def test_no_link_carries_more_than_it_is_brought_or_can(load: float, room: float) -> None:
    share = float(queueing.used(np.array(load), room))
    assert 0 <= share <= min(load, 1.0) + 1e-9
    assert share <= float(queueing.used(np.array(load * 1.01 + 0.001), room)) + 1e-9
    # M/M/1/K loses no more than a link with place for one packet, which is Erlang's: rho / (1 + rho).
    assert share >= load / (1 + load) - 1e-9


@pytest.mark.parametrize(("load", "share"), [(0.0, 0.0), (0.5, 0.5), (1.0, 13 / 14), (1.29, 0.9920), (5.0, 1.0)])
def test_what_a_queue_leaves_of_a_link(load: float, share: float) -> None:
    assert float(queueing.used(np.array(load), 13.0)) == pytest.approx(share, abs=2e-3)


@settings(max_examples=100, deadline=None)
@given(load=st.floats(0.0, 3.0), room=rooms, low=st.floats(0.0, 0.9))
def test_marks_come_with_load(load: float, room: float, low: float) -> None:
    share = queueing.marked(np.array([load, load + 0.01]), room, low, low + 0.5)
    assert -1e-9 <= share[0] <= share[1] + 1e-9 <= 1 + 2e-9
    assert queueing.marked(np.array([0.0]), room, low + 0.01, low + 0.5)[0] == 0


def test_no_window_no_queue_and_nscc_bounds_it() -> None:
    # 36 packets on the way at 1 a ms and 36 ms; 54 in the window: 18 wait in four queues, three of which RTTs see.
    assert queueing.waiting(54.0, np.array([1000.0]), 0.036, 0.027)[0] == pytest.approx(0.0135)
    assert queueing.waiting(36.0, np.array([1000.0]), 0.036, 0.027)[0] == pytest.approx(0.0, abs=1e-12)
    assert queueing.waiting(54.0, np.array([100.0, 0.0]), 0.036, 0.027).tolist() == [0.027, 0.027]
    # Without a queue: what rule (c) waits for, and the answer.
    assert queueing.detection(np.zeros(1), 0.03)[0] == pytest.approx(0.06)


@settings(max_examples=100, deadline=None)
@given(turns=st.floats(0.0, 200.0), jitter=st.floats(0.0, 1.0))
def test_turns_are_whole_numbers_unless_they_jitter(turns: float, jitter: float) -> None:
    again = float(queueing.further(np.array([turns]), np.array([jitter]))[0])
    assert turns - 1.0 - 1e-6 <= again <= turns + 0.5 + 1e-6
    if abs(turns - round(turns)) > 1e-3 and turns < queueing.MOST:
        assert float(queueing.further(np.array([turns]), np.array([0.0]))[0]) == pytest.approx(math.floor(turns))


def test_as_many_turns_as_a_random_walk_has() -> None:
    """Gaps whose deviation is a third of their mean, the first from when the first packet was lost."""
    rng = np.random.default_rng(1)
    gaps = rng.normal(1.0, 1 / 3, size=(20_000, 12)).clip(0.01)
    for turns, jitter in itertools.product((0.8, 1.5, 3.4, 5.0), (1 / 3,)):
        met = float((gaps.cumsum(axis=1) <= turns).sum(axis=1).mean())
        assert float(queueing.further(np.array([turns]), np.array([jitter]))[0]) == pytest.approx(met, abs=0.06)


def test_a_verdict_falls_when_the_age_first_exceeds_what_the_averages_say() -> None:
    """The requestor's averages, sample by sample: a quarter and an eighth of each new one (`mrc-protocol.md`, 5)."""
    rng, number = np.random.default_rng(1), 4000
    mean, deviation = 3.0, 3.0 * queueing._deviation(3)
    smoothed, varied, first = np.full(number, mean), np.full(number, deviation), np.full(number, np.nan)
    for sample in range(200):
        error = rng.gamma(3, 1, number) - smoothed
        varied += (abs(error) - varied) / 4
        smoothed += error / 8
        # A plane's packets of a port follow each other in 0.4 of what a queue takes on average.
        age = (sample - 60) * 0.4
        hit = np.isnan(first) & (age >= smoothed + queueing.DEVIATIONS * varied)
        first[hit] = age
    sooner = (mean + queueing.DEVIATIONS * deviation - first.mean()) / deviation
    assert sooner == pytest.approx(queueing.SOONER, abs=0.1)
    assert first.std() / deviation == pytest.approx(queueing.SPREAD, rel=0.05)
    delays = queueing.Delays.of(6.0, 10.0, float(queueing.detection(np.array(6.0), 10.0)))
    assert delays.spread == pytest.approx(queueing.SPREAD * 2 * deviation)
    assert delays.later(1).found - delays.found == pytest.approx(delays.spread)
    assert delays.later(-10).found == delays.found - queueing.SURE * delays.spread
