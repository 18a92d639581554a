"""While simulated time goes on Python seldom looks for cycles; afterwards as before."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest

from mrc_control.session import virtual
from mrc_control.session.virtual import VirtualSession
from mrc_topo.labfile import load_lab


class Knot:
    """A cycle."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


def test_cycles_are_seldom_looked_for_while_time_goes_on_but_are_found() -> None:
    session = VirtualSession(load_lab("tiny"), "mrc")
    seen = []

    def run_until(end_ns: int) -> None:
        seen.append((gc.get_threshold()[0], gc.get_freeze_count() > 10_000))
        for _ in range(3 * virtual.LOOK_FOR_CYCLES_AFTER):
            Knot()
        seen.append(Knot.alive)
        raise InterruptedError

    before = gc.get_threshold()
    driver, session.driver = session.driver, SimpleNamespace(now=0, run_until=run_until)  # type: ignore[assignment]
    try:
        with pytest.raises(InterruptedError):
            session.advance(0.1)
    finally:
        session.driver = driver
        session.close()
    assert seen[0] == (virtual.LOOK_FOR_CYCLES_AFTER, True)
    assert seen[1] <= virtual.LOOK_FOR_CYCLES_AFTER
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
