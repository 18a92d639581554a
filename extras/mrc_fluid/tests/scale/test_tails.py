"""Tails of messages: what the last packets wait, and what a slow plane does to them."""

from __future__ import annotations

import numpy as np
import pytest

from mrc_fluid.tails import Tails, Trims

DRAWS = 4000
RNG = np.random.default_rng(1)
ONE = np.zeros(1, np.int64)


def trims(**changes: float) -> Trims:
    given = {"trimmed": 0.3, "again": 10.0, "slow": 0.0, "late": 0.0, "gap": 1.0, "window": 8.0, "ahead": 0.0}
    return Trims(**{name: np.array([value]) for name, value in {**given, **changes}.items()})


def test_the_last_packet_waits_half_as_long_in_the_queues_that_a_round_trip_sees() -> None:
    found = Tails(np.array([6.0]), np.array([4])).draw(RNG, DRAWS, ONE)
    assert found.mean() == pytest.approx(3.0, rel=0.03)
    # Three queues, each exponential.
    assert found.std() == pytest.approx(3.0 / np.sqrt(3), rel=0.05)
    assert np.quantile(found, 0.99) == pytest.approx(8.4, rel=0.05)


def test_each_queue_pair_has_its_own_tail() -> None:
    found = Tails(np.array([0.0, 6.0]), np.array([4, 4])).draw(RNG, DRAWS, np.array([1, 0]))
    assert found[:, 1].max() == 0
    assert found[:, 0].mean() == pytest.approx(3.0, rel=0.03)


def test_packets_are_sent_again_until_they_pass() -> None:
    share, window, again = 0.3, 8, 10.0
    found = trims(gap=1e-9).draw(RNG, DRAWS)[:, 0]
    rounds = RNG.geometric(1 - share, (DRAWS, window)).max(axis=1) - 1
    assert found.mean() == pytest.approx(again * rounds.mean(), rel=0.03)
    assert np.quantile(found, 0.95) == pytest.approx(again * np.quantile(rounds, 0.95), abs=1e-6)


def test_earlier_packets_have_less_to_do_and_sending_again_ends_before_the_last_byte() -> None:
    # None is trimmed often enough to count: the last packet leaves as much sooner as others are sent again.
    found = trims(trimmed=0.01, again=0.0, gap=2.0).draw(RNG, DRAWS)[:, 0]
    assert found == pytest.approx(-2.0 * 8 * 0.01 / 0.99)
    # The slow plane takes each with a chance, and the last of them arrives late.
    late = trims(trimmed=0.01, again=0.0, gap=1.0, slow=0.5, late=100.0).draw(RNG, DRAWS)[:, 0]
    expected = sum(0.5 ** (number + 1) * (100.0 - number) for number in range(8))
    assert late.mean() == pytest.approx(expected, rel=0.03)


def test_where_nothing_is_trimmed_nothing_is_later() -> None:
    assert trims(trimmed=0.0, slow=1.0, late=100.0).draw(RNG, 10).max() == 0


def test_a_slow_plane_takes_the_place_of_queues_elsewhere() -> None:
    tails = Tails(np.array([6.0, 6.0]), np.array([4, 4]), Trims(
        np.array([0.3, 0.0]), *(np.array([value] * 2) for value in (10.0, 0.0, 0.0, 1.0, 8.0, 0.0)),
    ))  # fmt: skip
    found = tails.draw(RNG, DRAWS, np.array([0, 1]))
    assert found[:, 1].mean() == pytest.approx(3.0, rel=0.03)
    assert found[:, 0].mean() == pytest.approx(trims().draw(RNG, DRAWS).mean(), rel=0.05)
