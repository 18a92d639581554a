"""The live view's log: which EVs of which queue pair changed, and causes before their effects."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mrc_host.answers import Event, EvEvent, MrcHostStatistics, QpEvent
from mrc_host.requests import StartJob
from mrc_topo import addressing
from mrc_topo.base.plain import encode
from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.ledger import FaultLedger, LedgerChange, LedgerState, MemoryRecord
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import LabEvent, RunResult
from mrclab.results.recording import StoredRecording
from mrclab.runs.workload import WorkloadSpec, set_up
from mrclab.web.hub import Hub
from mrclab.web.log import EVS, EVS_OF_A_LINE, LINES, Log, LogLine, LogWriter, Peers, listed
from mrclab.web.replay import Replay
from mrclab.web.sampler import OTHERS
from mrclab.web.state import LogRow
from mrclab.web.view import View
from support.web import LINK

TOPOLOGY = load_lab("tiny")
BEGAN_NS = 1_000


def ev(t_ns: int, value: int, qpn: int = 7, plane: int = 0) -> EvEvent:
    return EvEvent(t_ns, "ev", qpn, value, plane, "GOOD", "ASSUMED_BAD", "rack", 1)


def told(events: Sequence[Event], peers: Peers) -> list[LogRow]:
    log = Log()
    LogWriter(TOPOLOGY, log.append, peers).tell("h1", events, BEGAN_NS)
    return log.since(0)


def test_an_ev_that_changed_is_named_with_peer_queue_pair_and_time() -> None:
    peers = Peers(TOPOLOGY)
    events: list[Event] = [QpEvent(500, "qp", 7, "h2", "RTR", "RTS", None), ev(5_000, 0x2A)]
    assert not peers.learn("h1", events)
    (row,) = told(events, peers)
    assert row["text"] == "h1: EV 0000002a to h2, QP 7, plane 0: GOOD → ASSUMED_BAD (rack)"
    assert row["t_ns"] == 4_000
    assert row["evs"] == [{"t_ns": 4_000, "ev": 0x2A, "peer": "h2", "qpn": 7}]


def test_a_line_of_several_evs_has_each_of_them_with_its_own_time_peer_and_queue_pair() -> None:
    peers = Peers(TOPOLOGY, {("h1", 7): "h2", ("h1", 8): "h3", ("h2", 7): "h0"})
    rows = told([ev(5_000, 1), ev(6_000, 2, 8), ev(6_500, 3, 9), ev(7_000, 4, plane=1)], peers)
    assert [row["text"] for row in rows] == [
        "h1: 3 EVs of plane 0 to h2, h3: GOOD → ASSUMED_BAD (rack)",
        "h1: EV 00000004 to h2, QP 7, plane 1: GOOD → ASSUMED_BAD (rack)",
    ]
    shown = [(each["t_ns"], each["ev"], each["peer"], each["qpn"]) for each in rows[0]["evs"]]
    assert shown == [(4_000, 1, "h2", 7), (5_000, 2, "h3", 8), (5_500, 3, "", 9)]
    assert rows[0]["changed"] == 3


def test_peers_that_no_event_names_are_taken_from_the_statistics_once() -> None:
    peers = Peers(TOPOLOGY)
    qp: Any = SimpleNamespace(qpn=7, peer=addressing.text(TOPOLOGY.host("h3").address))
    assert peers.learn("h1", [ev(1, 1), ev(1, 1, 8)])
    peers.know("h1", MrcHostStatistics({}, {}, [], [], [qp]), [ev(1, 1), ev(1, 1, 8)])
    assert (peers.of("h1", 7), peers.of("h1", 8)) == ("h3", "")
    assert not peers.learn("h1", [ev(2, 1), ev(2, 1, 8)]), "a queue pair that has gone is not asked for again"
    assert peers.learn("h1", [ev(3, 1, 9)])


def test_a_line_and_all_lines_together_name_a_bounded_number_of_evs() -> None:
    log = Log()
    writer = LogWriter(TOPOLOGY, log.append, Peers(TOPOLOGY))
    for number in range(2 * EVS // EVS_OF_A_LINE):
        writer.tell("h1", [ev(number, value) for value in range(EVS_OF_A_LINE + 10)], 0)
    rows = log.since(0)
    assert {row["changed"] for row in rows} == {EVS_OF_A_LINE + 10}
    assert sum(len(row["evs"]) for row in rows) == EVS
    assert len(rows[-1]["evs"]) == EVS_OF_A_LINE
    assert rows[0]["evs"] == []


def test_a_list_of_names_says_how_many_more_there_are() -> None:
    names = [f"h{number}" for number in range(6)]
    assert listed(names[:4]) == "h0, h1, h2, h3"
    assert listed(names) == "h0, h1, h2, h3 and 2 more"


class Watched:
    """A session of a real lab whose clock and ledger the test moves."""

    def __init__(self) -> None:
        self.now = 0
        self.record = MemoryRecord()
        failures = FaultLedger(TOPOLOGY, lambda name: None, self.record, clock=lambda: self.now)
        session: Any = SimpleNamespace(
            topology=TOPOLOGY,
            clock="real",
            denied=set(),
            denied_now=set,
            failures=failures,
            now_ns=lambda: self.now,
            hosts={},
            counter_names=dict,
            samples=lambda counters: {},
            deaths=list,
            frozen=list,
        )
        self.hub = Hub()
        self.view = View(self.hub)
        self.view.show(session, "mrc")

    def look(self, now: int) -> list[LogRow]:
        """Let the view look at the ledger; return the lines about failures."""
        self.now = now
        assert self.view.sampler is not None
        self.view.sampler._ledger()
        return [row for row in self.hub.log.since(0) if row["what"] in ("failure", "restore")]


def test_a_failure_has_the_time_when_it_began_since_hosts_notice_it_before_it_is_done() -> None:
    watched = Watched()
    failed, mended = Action("fail", LINK, "link_down"), Action("restore", LINK, "link_down")
    assert watched.look(10_000) == []
    watched.record.state = LedgerState([failed], changes=[LedgerChange(failed, 58_290, 58_320, 1)])
    (row,) = watched.look(60_000)
    assert (row["t_ns"], row["done_ns"]) == (58_290, 58_320)
    changes = [*watched.record.state.changes, LedgerChange(mended, 70_000, 71_000, 2)]
    watched.record.state = LedgerState([], changes=changes)
    _, row = watched.look(80_000)
    assert (row["t_ns"], row["done_ns"], row["text"]) == (70_000, 71_000, f"restored: link down {LINK}")


def test_a_failure_that_is_under_way_is_before_what_was_noticed_since_the_last_look() -> None:
    watched = Watched()
    watched.look(10_000)
    watched.record.state = LedgerState([Action("fail", LINK, "link_down")])
    (row,) = watched.look(60_000)
    assert row["t_ns"] == 10_000


@pytest.mark.parametrize("at", [0, 10_000])
def test_a_failure_that_was_there_before_the_view_has_the_time_of_the_first_look(at: int) -> None:
    watched = Watched()
    watched.record.state = LedgerState([Action("fail", LINK, "link_down")])
    (row,) = watched.look(at)
    assert row["t_ns"] == at


def test_lines_without_evs_have_no_part_for_them() -> None:
    log = Log()
    log.append(LogLine(1, "note", "text"))
    log.append(LogLine(2, "failure", "text", LINK, 3))
    plain, failure = log.since(0)
    assert set(plain) == {"number", "t_ns", "what", "text", "element"}
    assert failure["done_ns"] == 3


def test_a_recorded_failure_stands_before_what_the_hosts_noticed_while_it_was_done() -> None:
    result = RunResult("tiny", "real", 1, "ring_all_reduce", {}, ["h1"], started_ns=1_000, finished_ns=90_000)
    failure = LabEvent(59_290, 59_320, Action("fail", LINK, "link_down"), 0.1)
    result.happenings.append(failure)
    rows = [encode(QpEvent(1_000, "qp", 7, "h2", "RTR", "RTS", None)), encode(ev(59_310, 0x2A))]
    result.recording = StoredRecording.of({}, [], {"h1": rows})
    recorded: Any = SimpleNamespace(folder=None, result=result, topology=TOPOLOGY)
    cause, effect = Replay(Hub(), recorded)._rows
    assert (cause.what, cause.t_ns, cause.done_ns) == ("failure", 58_290, 58_320)
    assert (effect.t_ns, effect.text) == (58_310, "h1: EV 0000002a to h2, QP 7, plane 0: GOOD → ASSUMED_BAD (rack)")


def test_evs_of_a_workload_that_began_before_the_view_are_named_with_their_peers() -> None:
    """Its completion times are in the results of the command that runs it."""
    session = VirtualSession(TOPOLOGY)
    try:
        spec = WorkloadSpec("ring_all_reduce", {"size_bytes": 65536, "iterations": 1 << 20})
        set_up(session, "job", spec, list(session.hosts))
        for host in session.hosts.values():
            host.ask(StartJob("job"))
        session.advance(0.1)
        view = View(Hub())
        view.show(session, "mrc")
        assert view.sampler is not None
        view.sampler.sample()
        session.failures.perform(session, session.failures.check(Action("fail", LINK)))
        session.advance(0.3)
        view.sampler.sample_now()
        view._sample()
        assert view.hub.completions["why"] == OTHERS
        evs = [each for row in view.hub.log.since(0) for each in row.get("evs", [])]
        assert evs
        assert all(each["peer"] for each in evs), evs
    finally:
        session.close()


def test_changes_of_evs_push_no_failure_out_of_the_log() -> None:
    log = Log()
    log.add(1, "failure", f"link down {LINK}")
    for number in range(LINES + 10):
        log.append(LogLine(2 + number, "ev", "text", changed=1))
    kept = log.since(0)
    assert kept[0]["what"] == "failure"
    assert len(kept) == LINES + 1
    assert [row["number"] for row in kept] == sorted(row["number"] for row in kept)
    assert [row["number"] for row in log.since(log.end - 3)] == [log.end - 3, log.end - 2, log.end - 1]
