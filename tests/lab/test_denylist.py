"""Denylists: what crosses a denied element carries no packet of a queue pair, until it is allowed again."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mrc_host.node.mapper import MAGIC
from mrc_lab.faults.action import Action
from mrc_lab.management import denylist
from mrc_lab.management.denylist import DenylistError
from mrc_lab.session.virtual import VirtualSession
from mrc_results.record import RunResult
from mrc_runs.runner import WorkloadRun
from mrc_runs.workload import WorkloadSpec
from mrc_topo.labfile import parse_lab
from mrc_topo.topology import UnknownElement
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
    assert denylist.allow(session, [LINK]) == 0


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
