"""Denylists: what crosses a denied element carries no packet of a queue pair, until it is allowed again."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from typing import Any

import pytest

from mrc_host.answers import EvRow
from mrc_host.ctl_requests import EvList, QpEvs, QueryEvs
from mrc_host.node.mapper import MAGIC
from mrc_host.proto.events import EvState
from mrc_host.requests import GetSummary
from mrc_topo.ev import make_ev, plane_of
from mrc_topo.labfile import parse_lab
from mrc_topo.paths import Paths
from mrc_topo.topology import UnknownElement
from mrclab.lab.faults.action import Action
from mrclab.lab.management import denylist
from mrclab.lab.management.denylist import DenylistError
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.pcapng import packets

LAB = """
name: denied
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 32, active: 16}
links: {host: {rate: 20Mbps, delay: 50us}, fabric: {rate: 20Mbps, delay: 50us}}
"""
LINK = "p0-t0.0--p0-t1.0"
ACROSS = WorkloadSpec("ring_all_reduce", {"size_bytes": 1 << 15}, duration_s=1.0)


@pytest.fixture
def session() -> Iterator[VirtualSession]:
    made = VirtualSession(parse_lab(LAB))
    try:
        yield made
    finally:
        made.close()


class Wire:
    """Captures at the T0's end of a port: the frames of queue pairs, without the Clustermapper's probes."""

    def __init__(self, session: VirtualSession, port: tuple[str, int], folder: pathlib.Path) -> None:
        self.session, self.folder, self.number = session, folder, 0
        self.port = session.simulated.switch(session.topology.switch(port[0]).device_id).port(port[1])

    def start(self) -> None:
        self.number += 1
        self.port.capture(self.folder / f"{self.number}.pcapng")

    def stop(self) -> int:
        self.port.capture(None)
        frames = packets((self.folder / f"{self.number}.pcapng").read_bytes())
        assert any(MAGIC in frame for frame in frames), "probes go on: they tell when the element is well again"
        return sum(MAGIC not in frame for frame in frames)


def during(session: VirtualSession, actions: dict[float, Callable[[], Any]], spec: WorkloadSpec = ACROSS) -> RunResult:
    waiting = sorted(actions.items())

    def observe(result: RunResult) -> None:
        while waiting and session.now_ns() - result.started_ns >= waiting[0][0] * 1e9:
            waiting.pop(0)[1]()

    result = WorkloadRun(session, spec, (), observe).go()
    assert not result.failures
    assert not waiting
    assert all(each.mismatches == 0 and each.iterations > 0 for each in result.progress.values())
    return result


@pytest.mark.parametrize(
    ("element", "port"),
    [(LINK, ("p0-t0.0", 3)), ("p0-t1.0", ("p0-t0.0", 3)), ("h1:1", ("p1-t0.0", 2)), ("p1-t0.0", ("p1-t0.0", 1))],
)
def test_denied_evs_carry_no_packet(
    session: VirtualSession, tmp_path: pathlib.Path, element: str, port: tuple[str, int]
) -> None:
    wire = Wire(session, port, tmp_path)
    counted: list[int] = []
    changed: list[int] = []
    during(
        session,
        {
            0.1: wire.start,
            0.3: lambda: (counted.append(wire.stop()), changed.append(denylist.deny(session, [element]))),
            # What was sent before, and its acknowledgements, have arrived by then.
            0.4: wire.start,
            0.6: lambda: (counted.append(wire.stop()), changed.append(denylist.allow(session))),
            0.7: wire.start,
            0.9: lambda: counted.append(wire.stop()),
        },
    )
    assert counted[0] > 50
    assert counted[1] == 0
    assert counted[2] > 50
    assert changed[0] == changed[1] > 0
    assert session.denied == set()


def test_queue_pairs_made_later_are_given_the_list(session: VirtualSession, tmp_path: pathlib.Path) -> None:
    wire = Wire(session, ("p0-t0.0", 3), tmp_path)
    assert denylist.deny(session, [LINK]) == 0, "there is no queue pair yet"
    counted: list[int] = []
    result = during(session, {0.1: wire.start, 0.5: lambda: counted.append(wire.stop())})
    assert counted == [0]
    denied = [each for each in result.events["h0"] if each.kind == "ev"]
    assert denied == [], "the list was in force before the first packet"
    kept, states = held(session)
    assert sum(kept.values()) > 0
    assert states["DENIED"] == 0, "their queue pairs have gone"
    assert denylist.allow(session, [LINK]) == sum(kept.values())
    assert sum(held(session)[0].values()) == 0


def held(session: VirtualSession) -> tuple[dict[str, int], Counter[str]]:
    """Return how many EVs each host keeps denied, and the states of EVs of all queue pairs."""
    kept = {name: host.ask(GetSummary()).denied for name, host in session.hosts.items()}
    qps = [qp for host in session.hosts.values() for qp in host.ask(QueryEvs()).qps]
    return kept, Counter(each.state.name for qp in qps for each in qp.evs)


def test_allow_reaches_hosts_whose_queue_pairs_have_gone(session: VirtualSession, tmp_path: pathlib.Path) -> None:
    """A port fails, its EVs are denied, the workload ends, all is undone, and the next workload begins."""
    port = Action("fail", "h1:1")

    def act() -> None:
        session.failures.perform(session, port)
        assert denylist.deny(session, ["h1:1"]) > 0

    during(session, {0.3: act})
    kept = held(session)[0]
    assert min(kept["h0"], kept["h1"], kept["h2"]) > 0
    assert denylist.allow(session) == sum(kept.values())
    session.failures.perform(session, Action("restore", "h1:1"))
    session.advance(0.5)
    wire = Wire(session, ("p1-t0.0", 2), tmp_path)
    counted: list[int] = []
    during(
        session,
        {
            0.1: wire.start,
            0.5: lambda: (counted.append(wire.stop()), counted.append(held(session)[1]["DENIED"])),
        },
    )
    assert counted[0] > 50
    assert counted[1] == 0


def test_one_of_two_elements_is_allowed_between_workloads(session: VirtualSession) -> None:
    found: list[set[int]] = []

    def denied() -> set[int]:
        (qp,) = session.hosts["h1"].ask(QueryEvs("h2")).qps
        return {each.ev for each in qp.evs if each.state.name == "DENIED"}

    during(session, {0.2: lambda: (denylist.deny(session, [LINK]), found.append(denied()))})
    denylist.deny(session, ["h1:1"])
    denylist.allow(session, [LINK])
    denylist.deny(session, [LINK])
    denylist.allow(session, ["h1:1"])
    kept = session.hosts["h1"].ask(QueryEvs()).denied
    assert kept == {}, "no list that was in force after the workload had both"
    denylist.allow(session)
    during(session, {0.2: lambda: (denylist.deny(session, [LINK, "h0:1"]), found.append(denied()))})
    denylist.allow(session, ["h0:1"])
    (peer,) = (each for each in session.topology.hosts if each.name == "h2")
    assert set(session.hosts["h1"].ask(QueryEvs()).denied[str(IPv6Address(peer.address))]) == found[0]
    during(session, {0.2: lambda: found.append(denied())})
    assert found[0] == found[1] == found[2] != set()


def test_a_host_that_does_not_answer_is_named_and_nothing_changes(session: VirtualSession) -> None:
    def act() -> None:
        denylist.deny(session, [LINK])
        before = held(session)
        session.freeze_agent("h3")
        with pytest.raises(DenylistError, match="h3"):
            denylist.allow(session)
        assert session.denied == {LINK}
        session.thaw_agent("h3")
        assert held(session) == before
        assert denylist.allow(session) == before[1]["DENIED"]
        assert held(session)[1]["DENIED"] == 0

    during(session, {0.3: act})


def test_an_agent_that_starts_again_keeps_nothing_denied(session: VirtualSession) -> None:
    during(session, {0.3: lambda: denylist.deny(session, [LINK])})
    session.kill_agent("h2")
    session.restart_agent("h2")
    kept = held(session)[0]
    assert kept.pop("h2") == 0
    counted: list[Counter[str]] = []
    during(session, {0.3: lambda: counted.append(held(session)[1])})
    assert counted[0]["DENIED"] > 0
    assert held(session)[0]["h2"] > 0, "with its next workload it got the list"
    session.kill_agent("h2")
    assert denylist.allow(session) > 0
    session.restart_agent("h2")
    assert set(held(session)[0].values()) == {0}


def test_allow_clears_what_another_controller_has_denied(session: VirtualSession) -> None:
    evs = session.nodes["h0"].config.profiles[str(IPv6Address(session.topology.hosts[2].address))]
    session.hosts["h0"].request("ev_set", evs=[evs[0][0]], state="DENIED")
    assert held(session)[0]["h0"] == 1
    assert denylist.allow(session) == 1
    assert held(session)[0]["h0"] == 0


def test_a_workload_that_the_list_refuses_leaves_no_job(session: VirtualSession) -> None:
    denylist.deny(session, ["h0:0", "h0:1"])
    with pytest.raises(DenylistError, match="no EV is left"):
        during(session, {})
    for host in session.hosts.values():
        summary = host.ask(GetSummary())
        assert (summary.jobs, summary.queue_pairs) == ([], 0)
    denylist.allow(session)
    during(session, {})


def test_queue_pairs_of_programs_name_their_peers_by_address(session: VirtualSession) -> None:
    topology = session.topology
    addresses = [str(IPv6Address(each.address)) for each in topology.hosts]
    rows = [EvRow(value, plane_of(value), EvState.GOOD, True, 0) for value in (make_ev(0, 0, 1), make_ev(1, 1, 2))]
    found = EvList([QpEvs(addresses[2], 1, rows), QpEvs("", 2, rows), QpEvs(addresses[0], 3, rows)], {})
    order = denylist.denials_of(Paths(topology), [topology.element("h0:1")], "h0", found)
    assert order.denied == {addresses[2]: [rows[1].ev]}


def test_lists_overlap_and_are_undone_one_by_one(session: VirtualSession) -> None:
    def denied() -> int:
        qps = [qp for host in session.hosts.values() for qp in host.request("ev_query")["qps"]]
        return sum(each["state"] == "DENIED" for qp in qps for each in qp["evs"])

    def act() -> None:
        link = denylist.deny(session, [LINK])
        both = link + denylist.deny(session, ["h0:0"])
        assert denied() == both > link > 0
        assert denylist.allow(session, ["h0:0"]) == both - link
        assert denied() == link
        with pytest.raises(DenylistError, match=r"h0:0 is not denied; denied: p0-t0.0--p0-t1.0"):
            denylist.allow(session, ["h0:0"])
        assert denylist.allow(session) == link
        assert denied() == 0

    during(session, {0.3: act})


def test_what_the_probes_find_dead(session: VirtualSession) -> None:
    session.advance(0.5)
    assert denylist.dead_now(session) == []
    session.failures.perform(session, Action("fail", LINK, "impair", settings={"blackhole": True}))
    session.advance(0.6)
    assert denylist.dead_now(session) == [LINK]


def test_no_list_cuts_a_pair_off(session: VirtualSession) -> None:
    def act() -> None:
        with pytest.raises(DenylistError, match=r"no EV is left from h0 to h\d"):
            denylist.deny(session, ["h0:0", "h0:1"])
        assert session.denied == set()
        assert denylist.deny(session, ["h0:0"]) > 0
        with pytest.raises(DenylistError, match="no EV is left"):
            denylist.deny(session, ["h0:1"])
        assert session.denied == {"h0:0"}

    during(session, {0.3: act})
    with pytest.raises(UnknownElement):
        denylist.deny(session, ["p9-t0.0"])
    with pytest.raises(DenylistError, match="h0 is a host; name one of its ports"):
        denylist.deny(session, ["h0"])


def test_where_switches_spray_only_ends_can_be_denied(tmp_path: pathlib.Path) -> None:
    made = VirtualSession(parse_lab(LAB + "routing: {mode: spray}\n"))
    try:
        with pytest.raises(DenylistError, match="the switches choose"):
            denylist.deny(made, [LINK])
        with pytest.raises(DenylistError, match="the switches choose"):
            denylist.deny(made, ["p0-t1.0"])
        wire = Wire(made, ("p1-t0.0", 1), tmp_path)
        counted: list[int] = []
        during(
            made,
            {
                0.2: lambda: denylist.deny(made, ["p1-t0.0"]),
                0.3: wire.start,
                0.6: lambda: counted.append(wire.stop()),
            },
        )
        assert counted == [0]
    finally:
        made.close()


def test_a_host_whose_agent_is_gone_is_left_out(session: VirtualSession) -> None:
    def act() -> None:
        session.virtual_hosts["h3"].dead = True
        assert denylist.deny(session, [LINK]) > 0
        session.virtual_hosts["h3"].dead = False

    during(session, {0.3: act})


def test_roce_has_no_evs() -> None:
    made = VirtualSession(parse_lab(LAB), "roce")
    try:
        with pytest.raises(DenylistError, match="only MRC has"):
            denylist.deny(made, [LINK])
    finally:
        made.close()
