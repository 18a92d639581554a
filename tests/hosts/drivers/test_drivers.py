"""Mapper, pacer and lag histogram against plain models; the virtual clock is deterministic."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host import native
from mrc_host.answers import LagSummary
from mrc_host.drivers.raw import LagHistogram
from mrc_host.drivers.surface import PortPacer
from mrc_host.node.mapper import BODY_AT, HISTORY, MAGIC, PROBE_BYTES, Mapper, ProbeTarget
from support.drivers.history import digest, outcome

MS = 1_000_000
TRANSPORTS = ("mrc", "roce")


def targets(count: int, ports: int) -> list[ProbeTarget]:
    return [ProbeTarget(f"s{index}", index % ports, "fd00::1", f"fd00:1::{index:x}") for index in range(count)]


class Echo:
    """A network that returns each probe after a delay, or never; drives a mapper by its timers alone."""

    def __init__(self, count: int, ports: int, interval_ns: int, timeout_ns: int) -> None:
        self.mapper = Mapper("fd00::9", targets(count, ports), interval_ns, timeout_ns)
        self.ports = ports
        self.sent: list[tuple[int, int, bytes]] = []
        self.back: list[tuple[int, int, bytes]] = []

    def step(self, now: int, fate: int | None) -> None:
        """One timer at `now`; its probe returns `fate` ns later (None: never)."""
        self.mapper.handle_timer(now)
        for port in range(self.ports):
            for packet in self.mapper.to_send(port):
                self.sent.append((now, port, packet))
                if fate is not None:
                    self.back.append((now + fate, port, packet))

    def deliver(self, until: int) -> None:
        due = sorted((each for each in self.back if each[0] <= until), key=lambda each: each[0])
        self.back = [each for each in self.back if each[0] > until]
        for at, port, packet in due:
            self.mapper.receive(port, packet, at)


@given(
    count=st.integers(1, 12),
    ports=st.integers(1, 4),
    fates=st.lists(st.one_of(st.none(), st.integers(0, 40 * MS)), min_size=1, max_size=120),
)
def test_the_mapper_tells_what_came_back_and_what_came_late(count: int, ports: int, fates: list[int | None]) -> None:
    timeout = 25 * MS
    echo = Echo(count, ports, 10 * MS * count, timeout)
    times: list[int] = []
    for fate in fates:
        now = max(echo.mapper.due, times[-1] + 1 if times else 0)
        echo.deliver(now)
        echo.step(now, fate)
        times.append(now)
    echo.deliver(times[-1] + 1000 * MS)
    expected: dict[int, list[int]] = {index: [] for index in range(count)}
    late = dict.fromkeys(range(count), 0)
    outcomes = []
    for number, (sent, fate) in enumerate(zip(times, fates, strict=True)):
        # Given up at the first timer at which the probe is older than the timeout, if it is not back by then; what
        # comes back later takes that place.
        given_up = next((time for time in times[number + 1 :] if time - sent >= timeout), None)
        if fate is not None and (given_up is None or sent + fate <= given_up):
            outcomes.append((sent + fate, number, 1))
        elif given_up is not None:
            outcomes.append((given_up, number, int(fate is not None)))
            late[number % count] += fate is not None
    for _, number, answered in sorted(outcomes):
        expected[number % count].append(answered)
    for index, row in enumerate(echo.mapper.view()):
        assert row.target == f"s{index}"
        assert row.port == index % ports
        assert sorted(row.history) == sorted(expected[index][-HISTORY:])
        assert row.lost == expected[index].count(0)
        assert row.late == late[index]
        assert row.sent == len(range(index, len(fates), count))
    assert [port for _, port, _ in echo.sent] == [number % count % ports for number in range(len(fates))]


@given(lateness=st.lists(st.integers(0, 500 * MS), min_size=2, max_size=60))
def test_a_late_mapper_sends_no_burst(lateness: list[int]) -> None:
    echo = Echo(4, 2, 40 * MS, 100 * MS)
    now = 0
    for late in lateness:
        now = max(now, echo.mapper.due + late)
        echo.step(now, None)
    sent = [time for time, _, _ in echo.sent]
    assert len(sent) == len(lateness)
    assert all(second - first >= 5 * MS for first, second in itertools.pairwise(sent))


@given(data=st.binary(max_size=24), at=st.integers(0, 1 << 40))
def test_forged_probe_changes_nothing(data: bytes, at: int) -> None:
    echo = Echo(3, 1, 30 * MS, 100 * MS)
    echo.step(0, None)
    before = echo.mapper.view()
    genuine = echo.sent[0][2]
    forged = bytearray(genuine)
    forged[BODY_AT + len(MAGIC) : BODY_AT + len(MAGIC) + len(data)] = data[: PROBE_BYTES - BODY_AT - len(MAGIC)]
    forged = forged[:PROBE_BYTES]
    if bytes(forged) != genuine:
        echo.mapper.receive(0, bytes(forged), at)
        assert echo.mapper.view() == before
    echo.mapper.receive(0, genuine, 7)
    assert echo.mapper.view()[0].history == [1]
    assert echo.mapper.view()[0].rtt_ns == 7
    echo.mapper.receive(0, genuine, 9)
    assert echo.mapper.view()[0].history == [1], "a duplicate counts once"


@given(
    rate=st.integers(10**6, 10**10),
    ahead=st.integers(1_000, 5 * MS),
    steps=st.lists(st.tuples(st.integers(0, 3 * MS), st.integers(60, 4500)), min_size=1, max_size=200),
)
def test_the_pacer_keeps_to_the_link(rate: int, ahead: int, steps: list[tuple[int, int]]) -> None:
    overhead = 38
    pacer = PortPacer(rate, ahead, overhead)
    now, free = 0, 0.0
    for gap, size in steps:
        now += gap
        budget = pacer.budget(now)
        if budget >= size:
            pacer.spend(1, size, now)
            free = max(free, now) + (size + overhead) * 8e9 / rate
            # The link has carried all of it in time, but for the packet's own overhead.
            assert free <= now + ahead + overhead * 8e9 / rate + len(steps)
        elif size * pacer.ns_per_byte <= ahead:  # else it is never allowed
            ready = pacer.ready_ns(size)
            assert ready > now - 1
            assert pacer.budget(ready) >= size


@given(delays=st.lists(st.integers(-5, 1 << 50), min_size=1, max_size=300), share=st.floats(0.01, 1.0))
def test_quantiles_are_right_within_an_eighth(delays: list[int], share: float) -> None:
    histogram = LagHistogram()
    for delay in delays:
        histogram.add(delay)
    ordered = sorted(max(delay, 0) for delay in delays)
    rank = next(index for index in range(len(ordered)) if index + 1 >= share * len(ordered))
    exact = ordered[rank]
    found = histogram.quantile(share)
    assert found <= exact
    assert exact - found <= exact / 8
    assert histogram.summary().max_ns == ordered[-1]
    assert histogram.summary().count == len(delays)


def test_empty_histogram_has_a_summary_of_zeros() -> None:
    assert LagHistogram().summary() == LagSummary(0, 0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_same_experiment_gives_the_same_bytes(transport: str) -> None:
    first = outcome(transport, 5)
    assert outcome(transport, 5) == first
    assert outcome(transport, 6) != first, "the seed matters"


@pytest.mark.slow
@pytest.mark.skipif(not native.COMPILED, reason=f"not compiled here: {native.WHY_NOT}")
def test_compiled_and_interpreted_runs_give_the_same_bytes() -> None:
    """Protocol core, driver of the virtual clock and data path of the nodes: whole runs, every sample and event."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2]), "MRCLAB_PURE": "1"}
    command = [sys.executable, "-m", "support.drivers.history", *TRANSPORTS]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True).stdout
    assert said.split() == ["pure", *(digest(each) for each in TRANSPORTS)]
