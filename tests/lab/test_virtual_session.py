"""While simulated time goes on Python seldom looks for cycles; afterwards as before."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mrc_topo.labfile import load_lab
from mrclab.lab.session import virtual
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches import p4rt
from p4lite.switch.p4rt import service
from p4lite.switch.p4rt.service import P4RuntimeService


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
    seen: list[Any] = []

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
    # Python searches when there are more objects than the threshold; some versions finish a step of the program first.
    assert seen[1] < 1.01 * virtual.LOOK_FOR_CYCLES_AFTER
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_no_limit_of_the_machines_clock_ends_a_call_inside_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a call within one process takes any time; `mrclab figures 9a` once ended by that."""
    for module, names in (
        (service, ("SILENT_S", "UNSENT_S", "UNREAD_S")),
        (p4rt, ("TIMEOUT_S", "PIPELINE_S")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, 1e-5)
    over = threading.Event()
    made: list[P4RuntimeService] = []
    begin = P4RuntimeService.__init__

    def note(self: P4RuntimeService, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    def expire() -> None:
        while not over.is_set():
            for each in made:
                for waiting in (each.silent, each.unsent, each.unread):
                    waiting.expire()

    monkeypatch.setattr(P4RuntimeService, "__init__", note)
    thread = threading.Thread(target=expire)
    thread.start()
    try:
        session = VirtualSession(load_lab("tiny"), "mrc")
        assert session.target.timeout_s is None
        session.advance(0.001)
        session.close()
    finally:
        over.set()
        thread.join()
    assert made
