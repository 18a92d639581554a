"""The clock of another machine, from questions and answers: never further off than is said."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mrc_machines.clock import KEPT, Clock, ClockOffset
from mrc_machines.session import CLOCK_NS, clock_problem
from mrclab.lab.session.fidelity import ClockFidelity

NS = st.integers(0, 10**9)


@given(
    st.integers(0, 10**15), st.integers(-(10**15), 10**15), st.lists(st.tuples(NS, NS), min_size=1, max_size=2 * KEPT)
)
def test_the_clock_is_as_far_ahead_as_is_said_within_what_is_said(
    start_ns: int, ahead_ns: int, delays: list[tuple[int, int]]
) -> None:
    clock = Clock()
    for there, back in delays:
        received = start_ns + there + back
        clock.add(ClockOffset.of(start_ns, start_ns + there + ahead_ns, received))
        best = clock.best
        assert best is not None
        assert abs(best.ahead_ns - ahead_ns) <= best.uncertainty_ns
        start_ns = received + 1
    assert best is not None
    assert best.rtt_ns == min(sum(each) for each in delays[-KEPT:])
    assert best.uncertainty_ns == -(-best.rtt_ns // 2)


def test_nothing_is_known_before_an_answer() -> None:
    assert Clock().best is None


def test_a_clock_that_is_off_or_not_known_makes_a_run_invalid() -> None:
    known = ClockFidelity(off_ns=0, uncertainty_ns=CLOCK_NS, set_ns=0, set_uncertainty_ns=0, rtt_ns=0)
    assert not clock_problem("m1", known)
    assert "m1 is -0.0 ms off" in clock_problem("m1", replace(known, off_ns=-1))
    assert "not known" in clock_problem("m1", None)
