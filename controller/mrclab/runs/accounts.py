"""Reading of both books of a lab, the hosts' counters and the fabric's, and their balance over a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from mrc_host.answers import HostStatistics
from mrc_host.requests import GetStatistics, HoldProbes
from mrc_topo.base import interruption
from mrc_topo.base.rpc import Request
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.kinds import effects_of
from mrclab.lab.session.base import LabCounts, Session
from mrclab.results import counted
from mrclab.results.analysis import recoveries
from mrclab.results.books import Account, balance
from mrclab.results.counted import TOTALS
from mrclab.results.record import RunResult
from mrclab.results.recording import TIME, Series
from mrclab.runs.endings import LOST, ProcessLosses

#: On the real clock the books are read until no packet moves meanwhile: at most this often, and this many s apart.
TRIES, PAUSE_S = 20, 0.02
#: For that time hosts send no probes; the reading ends it.
HOLD_NS = 2_000_000_000
#: Columns of samples that must have grown as the statistics have.
SAMPLED = (*TOTALS, "delivered_bytes")
#: Later than all samples.
MAX_NS = (1 << 63) - 1

A = TypeVar("A")


class BooksReader:
    """Reads both books of a run's lab, before its workload starts and after it.

    On the real clock packets move while processes answer one after the other. So hosts hold their probes meanwhile,
    and all is read again until no packet has moved between two readings: none is on its way then.
    """

    def __init__(self, losses: ProcessLosses) -> None:
        self.losses = losses
        self.session = losses.session
        self._before: LabCounts | None = None
        self._statistics: Mapping[str, HostStatistics | None] = {}
        self._moving = 0
        self._silent: set[str] = set()
        self._emptied: frozenset[str] = frozenset()

    def begin(self) -> Mapping[str, HostStatistics | None]:
        """Read the books before the workload starts; return the hosts' statistics."""
        self._before = self._quiet()
        self._emptied = self.session.failures.effects().emptied
        return self._statistics

    def finish(self) -> None:
        """Read the books when the job's queue pairs are gone; give the result its balances, and what the program
        and flow control counted in the run. Where the fabric could not be read there are none."""
        result, before, after = self.losses.result, self._before, self._quiet()
        if before is None or after is None:
            return
        result.books = balance(self._account(before, after))
        result.program_counters = {key: count - before.program.get(key, 0) for key, count in after.program.items()}
        result.pauses = counted.pauses(before.fabric, after.fabric)
        result.credits = counted.credits(before.fabric, after.fabric)

    def _quiet(self) -> LabCounts | None:
        """Return both books, while no packet moves if possible; None where the fabric cannot be read."""
        real = self.session.clock == "real"
        # A frozen agent would be waited for at each request.
        self._silent = {process.role for process in self.session.frozen()}
        if real:
            self._hold_probes(HOLD_NS)
        try:
            least, reading = self._moving, self._read()
            for _ in range(TRIES):
                if reading is None:
                    break
                if real:
                    interruption.sleep(PAUSE_S)
                    # On a loaded machine a reading may take longer than hosts hold their probes.
                    self._hold_probes(HOLD_NS)
                # A simulated host sends at most what was due when it was asked.
                earlier, reading = reading, self._read()
                self._moving = least + (0 if reading is None else moved(earlier, reading))
                if self._moving == least:
                    break
            return reading
        finally:
            if real:
                self._hold_probes(0)

    def _hold_probes(self, for_ns: int) -> None:
        for name in self.session.hosts:
            self._ask(name, HoldProbes(for_ns))

    def _read(self) -> LabCounts | None:
        session = self.session
        self._statistics = {name: self._ask(name, GetStatistics()) for name in session.hosts}
        try:
            stats, program = session.stats(), session.program_counters()
        except LOST:
            return None
        fabric = {session.topology.switches[ident - 1].name: found for ident, found in stats.items()}
        return LabCounts(session.now_ns(), self._statistics, session.unread(), fabric, program, session.crossing())

    def _ask(self, host: str, request: Request[A]) -> A | None:
        """Return the answer of a host, which need not be a rank; None of one that is gone."""
        if host in self.losses.result.ranks:
            return self.losses.ask(host, request)
        if host in self._silent:
            return None
        try:
            return self.session.hosts[host].ask(request)
        except LOST:
            self._silent.add(host)
            return None

    def _account(self, before: LabCounts, after: LabCounts) -> Account:
        result, hosts = self.losses.result, self.losses.result.fidelity.hosts
        edges = result.grid()
        goodput = float(np.dot(result.goodput_bps(edges), np.diff(edges))) / 8
        return Account(
            topology=self.session.topology,
            before=before,
            after=after,
            ranks=result.ranks,
            workload=result.workload,
            params=result.params,
            progress=result.progress,
            happenings=result.happenings,
            final=result.statistics,
            sampled={name: result.samples_of(name).growth(SAMPLED) for name in result.ranks},
            goodput_bytes=goodput,
            emptied=self._emptied.union(*(_emptied(self.session, each.action) for each in result.happenings)),
            moving=self._moving,
            veth_links=self.session.veth_links,
            lost_at_hosts=sum(each.rx_ring_drops + each.tx_errors for each in hosts.values()),
            achieved=result.achieved(),
            rows={name: row for name in result.ranks for row in _last_rows(result.samples_of(name), 1)},
            fabric_rows=_last_rows(result.recording.fabric, 2),
            events=result.events,
            recovered_ns=_recovered(result),
        )


def _emptied(session: Session, action: Action) -> frozenset[str]:
    """Return the switches that an action takes the state of their program."""
    return effects_of(session.topology, action).emptied if action.verb == "fail" else frozenset()


def _last_rows(series: Series, count: int) -> list[Mapping[str, int]]:
    """Return the last rows of a series as they are stored, the oldest first."""
    found: list[Mapping[str, int]] = []
    while len(found) < count and (row := series.at(found[0][TIME] - 1 if found else MAX_NS)) is not None:
        found.insert(0, row)
    return found


def _recovered(result: RunResult) -> dict[int, int]:
    """Return by number of the action when goodput was back after it, of the session's clock."""
    if not result.happenings:
        return {}
    measured = {each.at_s: each.recovery_s for each in recoveries(result, result.readings())}
    times = [(each.done_ns, measured.get(result.since_start(each.done_ns))) for each in result.happenings]
    return {number: at_ns + round(took * 1e9) for number, (at_ns, took) in enumerate(times) if took is not None}


def moved(before: LabCounts, after: LabCounts) -> int:
    """Return how many packets hosts and switches sent or received between two readings.

    Both directions count: no port sends a packet that a switch has dropped.
    """
    counts = [
        (one.sent_packets + one.received_packets, other.sent_packets + other.received_packets)
        for earlier, later in ((found, after.hosts[name]) for name, found in before.hosts.items())
        if earlier is not None and later is not None
        for one, other in zip(earlier.links, later.links, strict=True)
    ]
    counts += [
        (earlier.tx_packets + earlier.rx_packets, later.tx_packets + later.rx_packets)
        for name, device in before.fabric.items()
        for port, earlier in device.ports.items()
        if name in after.fabric and (later := after.fabric[name].ports.get(port)) is not None
    ]
    return sum(later - earlier for earlier, later in counts)
