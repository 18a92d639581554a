"""What looking may cost, and what it makes of counters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mrc_host.requests import FinishJob, GetView, StartJob
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology
from mrclab.lab.faults.ledger import FaultLedger
from mrclab.lab.session.virtual import VirtualSession
from mrclab.runs.workload import WorkloadSpec, set_up
from mrclab.web.hub import Hub
from mrclab.web.log import LINES
from mrclab.web.sampler import POINTS, Rates, SampleBudget, SampleKind
from mrclab.web.state import layout_of
from mrclab.web.view import View


def idle(topology: Topology) -> Any:
    """Return a session of a real lab that is asked nothing."""
    failures = FaultLedger(topology, lambda name: None)
    return SimpleNamespace(topology=topology, clock="real", denied=set(), failures=failures, now_ns=lambda: 0)


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.wall = self.cpu = 100.0


def test_a_look_that_costs_much_is_paid_for_before_the_next() -> None:
    clock = Clock()
    kind = SampleKind(0.4, 2.5)
    budget = SampleBudget(0.1, 0.05, kind, lambda: clock.wall, lambda: clock.cpu)
    for cost, wait in ((0.0, 0.1), (0.0005, 0.1), (0.004, 0.004 * 2.5 / 0.02)):
        assert budget.due()
        budget.begin()
        clock.cpu += cost
        clock.wall += 5 * cost  # a busy machine: long, but no dearer
        budget.spend()
        clock.wall += wait - 5 * cost - 1e-6
        assert not budget.due()
        clock.wall += 2e-6
    assert budget.due()
    budget.wait(3.0)
    assert not budget.due()
    budget.sample_now()
    assert budget.due()


def test_all_that_the_lab_is_asked_takes_five_hundredths_of_a_core_at_most() -> None:
    """Also when every answer is dear, and all kinds of questions are asked as often as they may be."""
    topology = load_lab("tiny")
    session = idle(topology)
    view = View(Hub())
    view.show(session, "mrc")
    sampler = view.sampler
    assert sampler is not None
    clock = Clock()
    budgets = [sampler._host_budget, sampler._fabric_budget, sampler._fidelity_budget, view._pair_budget]
    for budget in budgets:
        budget.clock, budget.cpu = lambda: clock.wall, lambda: clock.cpu
    began, looks = clock.wall, [0] * len(budgets)
    while clock.wall < began + 5000:
        for number, budget in enumerate(budgets):
            if budget.due():
                budget.begin()
                clock.cpu += 0.1
                clock.wall += 0.1
                budget.spend()
                looks[number] += 1
        clock.wall += 0.01
    costs = [many * 0.1 * budget.answers for many, budget in zip(looks, budgets, strict=True)]
    assert sum(costs) / (clock.wall - began) == pytest.approx(0.05, rel=0.02)
    assert costs[0] == pytest.approx(costs[1], rel=0.05)
    assert costs[0] == pytest.approx(4 * costs[2], rel=0.05)


def test_of_the_samples_that_may_wait_long_one_is_taken_at_a_time_as_they_came_due() -> None:
    session = idle(load_lab("tiny"))
    view = View(Hub())
    view.show(session, "mrc")
    sampler = view.sampler
    assert sampler is not None
    wall = 100.0
    slow = (sampler._harm_budget, sampler._fabric_budget, sampler._fidelity_budget)
    for number, budget in enumerate(slow):
        budget.clock = lambda: wall
        budget.wait(-number)
    taken = []
    for _ in range(3):
        (chosen,) = sampler._slow_due()
        taken.append(chosen)
        chosen.wait(10)
    assert taken == list(reversed(slow))
    assert sampler._slow_due() == []
    session.clock = "virtual"
    assert sampler._slow_due() == list(slow), "a simulation waits for nothing"


def test_rates_of_counters_that_begin_anew_are_none() -> None:
    rates = Rates()
    assert rates.update(0, [100, 7]) == [0, 0]
    assert rates.update(10**9, [350, 7]) == [2000, 0]
    # At the same time again, as when a simulation stands still.
    assert rates.update(10**9, [350, 7]) == [2000, 0]
    assert rates.update(2 * 10**9, [5, 8]) == [0, 8]


def test_a_view_takes_a_recent_sample_of_a_host_where_the_host_takes_some() -> None:
    session = VirtualSession(load_lab("tiny"))
    try:
        host = session.hosts["h0"]
        session.advance(0.013)
        assert host.ask(GetView(recent=True)).sample.t_ns == session.now_ns(), (
            "no workload runs, so the host takes none"
        )
        set_up(
            session, "job", WorkloadSpec("ring_all_reduce", {"size_bytes": 4096, "iterations": 1}), list(session.hosts)
        )
        for each in session.hosts.values():
            each.ask(StartJob("job"))
        began = session.now_ns()
        session.advance(0.013)
        assert host.ask(GetView(recent=True)).sample.t_ns == began
        assert host.ask(GetView()).sample.t_ns == session.now_ns()
        session.advance(0.2)
        recent = host.ask(GetView(recent=True)).sample.t_ns
        assert session.now_ns() - 100_000_000 <= recent < session.now_ns()
        host.ask(FinishJob("job"))
        session.advance(0.001)
        assert host.ask(GetView(recent=True)).sample.t_ns == session.now_ns(), "the host has stopped taking some"
    finally:
        session.close()


def test_an_hour_of_states_takes_no_more_memory_than_a_minute() -> None:
    """What is kept of the past has a bound, on the server."""
    hub = Hub()
    layout = layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    hub.show(layout)
    kept = []
    for number in range(36_000):
        hub.publish(state(number, layout["number"]))
        hub.log.add(number, "note", f"line {number}")
        hub.want(("h0", "h1"), 1)
        hub.want(("h0", "h1"), -1)
        if number in (5_000, 35_999):
            kept.append((len(hub.history), len(hub.log.since(0)), len(hub.wanted())))
    assert kept == [(POINTS, LINES, 0)] * 2
    assert hub.log.since(0)[-1]["number"] == hub.log.end - 1
    assert [row["number"] for row in hub.log.since(35_990)] == list(range(35_990, 36_000))


def state(number: int, layout: int) -> Any:
    return {
        "number": number,
        "layout": layout,
        "t_ns": number * 10**8,
        "goodput_bps": number,
        "planes": [{"rx_bps": 1, "ports_up": 1}],
        "hosts": [{"goodput_bps": 1}],
        "job": None,
    }
