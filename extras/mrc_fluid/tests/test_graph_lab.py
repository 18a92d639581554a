"""Labs whose fabric is a graph: transfers, failures, denylists and the Clustermapper, in simulated and in real time."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_fluid.replays import fluid
from mrc_host.ctl_requests import QueryEvs
from mrc_host.proto.events import EvState
from mrc_topo.base.errors import UsageError
from mrc_topo.labfile import load_lab
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.lab.faults.action import Action
from mrclab.lab.management import clustermapper, denylist
from mrclab.lab.session.base import Session
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.amount import LONG
from support.lab import labs
from topo.strategies import graphs

DEAD: dict[str, Any] = {"blackhole": True}
SIZE = 1 << 16


def reduced(session: Session, hosts: list[str], failures: list[tuple[float, Action]], iterations: int = 4) -> RunResult:
    """Run all-reduces among hosts, and check that every byte arrived and is right."""
    params = {"size_bytes": SIZE, "iterations": iterations}
    result = WorkloadRun(session, WorkloadSpec("ring_all_reduce", params, hosts=hosts, limit_s=60), failures).go()
    assert not result.failures
    for each in result.progress.values():
        assert (each.iterations, each.mismatches, each.bytes_verified) == (iterations, 0, iterations * SIZE)
    return result


def bad_evs(session: Session) -> set[tuple[str, str, int]]:
    """Return the EVs that are ASSUMED_BAD: host, peer and value."""
    return {
        (name, qp.peer, row.ev)
        for name, host in session.hosts.items()
        for qp in host.ask(QueryEvs()).qps
        for row in qp.evs
        if row.state is EvState.ASSUMED_BAD
    }


@given(graphs(most_switches=5), st.data())
@settings(max_examples=25 if LONG else 8, deadline=None)
def test_transfers_complete_and_only_evs_over_a_dead_link_stay_bad(topology: Topology, data: st.DataObject) -> None:
    """An EV that works may be blamed while the answers of its packets are lost on a reverse EV over the link."""
    paths = Paths(topology)
    ways = paths.all_paths(0, 1)
    # Some of the paths cross each of these links and some do not.
    spare = sorted({name for path in ways for name in path.links if any(name not in each.links for each in ways)})
    target = data.draw(st.sampled_from(["", *spare]))
    failures = [(0.002, Action("fail", target, "impair", settings=DEAD))] if target else []
    session = VirtualSession(topology)
    try:
        spec = WorkloadSpec("ring_all_reduce", {"size_bytes": SIZE, "iterations": 4}, hosts=["h0", "h1"], limit_s=60)
        result = WorkloadRun(session, spec, failures).go()
        session.advance(0.5)
        bad = bad_evs(session)
        found = clustermapper.view_of(topology, session.hosts)
    finally:
        session.close()
    assert not result.failures
    assert {(each.bytes_verified, each.mismatches) for each in result.progress.values()} == {(4 * SIZE, 0)}
    assert found == ({target: "dead"} if target else {})
    for source, peer, value in bad:
        path = paths.path_of_ev(topology.host(source).index, topology.host(peer).index, value)
        assert path is not None
        assert target in path.links


def test_a_dead_link_of_the_ring_makes_the_evs_over_it_bad_and_no_others() -> None:
    topology = load_lab("ring")
    session = VirtualSession(topology)
    seen: set[tuple[str, str, int]] = set()
    try:
        spec = WorkloadSpec("ring_all_reduce", {"size_bytes": SIZE}, ["h0", "h1"], duration_s=1.5)
        cut = Action("fail", "s1--s0")
        result = WorkloadRun(session, spec, [(0.3, cut)], lambda _: seen.update(bad_evs(session))).go()
        assert clustermapper.view_of(topology, session.hosts) == {"s0--s1": "dead"}
    finally:
        session.close()
    assert not result.failures
    assert all(each.mismatches == 0 and each.iterations > 2 for each in result.progress.values())
    paths = Paths(topology)
    crossing = {
        (source, peer)
        for source, peer, value in seen
        if "s0--s1" in paths.path_of_ev(topology.host(source).index, topology.host(peer).index, value).links
    }
    assert crossing == {("h0", "h1"), ("h1", "h0")}


@pytest.mark.parametrize(
    ("element", "kind", "shown"),
    [
        ("tor-a--spine1", "impair", "tor-a--spine1"),
        ("spine1", "freeze", "spine1"),
        ("tor-a", "freeze", "tor-a"),
        ("h2:1", "impair", "h2:1"),
    ],
)
def test_probes_of_a_dual_tor_rack_name_what_is_broken(element: str, kind: str, shown: str) -> None:
    session = VirtualSession(load_lab("dual-tor"))
    try:
        session.advance(0.5)
        assert clustermapper.view_of(session.topology, session.hosts) == {}
        settings_ = DEAD if kind == "impair" else {}
        session.failures.perform(session, Action("fail", element, kind, settings=settings_))
        session.advance(0.6)
        assert clustermapper.view_of(session.topology, session.hosts) == {shown: "dead"}
    finally:
        session.close()


def test_lone_hosts_of_switches_do_not_hide_a_frozen_switch() -> None:
    session = VirtualSession(load_lab("ring"))
    try:
        session.failures.perform(session, Action("fail", "s2", "freeze"))
        session.advance(1.0)
        assert clustermapper.view_of(session.topology, session.hosts) == {"s2": "dead"}
    finally:
        session.close()


def test_denied_elements_take_their_evs_out_of_use() -> None:
    session = VirtualSession(load_lab("dual-tor"))
    changed: list[int] = []

    def deny(_: RunResult) -> None:
        if not changed:
            changed.append(denylist.deny(session, ["spine2"]))
            with pytest.raises(denylist.DenylistError, match="no EV is left"):
                denylist.deny(session, ["spine1"])

    try:
        spec = WorkloadSpec("all_to_all", {"block_bytes": 8192}, duration_s=0.5)
        result = WorkloadRun(session, spec, (), deny).go()
        before = session.fabric_sample()["ports"]["spine2:1"]["tx_bytes"]
        reduced(session, list(session.hosts), [])
        after = session.fabric_sample()["ports"]["spine2:1"]["tx_bytes"]
    finally:
        session.close()
    assert not result.failures
    assert changed[0] > 0
    assert after - before < SIZE / 10, "only probes crossed it; the second run's queue pairs were given the list"


@pytest.mark.parametrize("lab", ["ring", "dual-tor"])
def test_roce_takes_a_shortest_path(lab: str) -> None:
    session = VirtualSession(load_lab(lab), "roce")
    try:
        reduced(session, list(session.hosts), [])
    finally:
        session.close()


@pytest.mark.parametrize("lab", ["srv6-srh", "ring"])
def test_full_packets_with_immediate_data_fit_behind_a_segment_routing_header(lab: str, tmp_path: pathlib.Path) -> None:
    """Such a packet once waited for ever: the interfaces' MTU had no room for its four bytes."""
    file = labs.lab_file(tmp_path, lab, routing={"mode": "srv6_srh"}, path_mtu=1024)
    session = VirtualSession(load_lab(pathlib.Path(file)))
    try:
        params = {"size_bytes": 1 << 14, "iterations": 2}
        spec = WorkloadSpec("ring_all_reduce", params, hosts=["h0", "h1"], limit_s=20)
        result = WorkloadRun(session, spec).go()
    finally:
        session.close()
    assert not result.failures
    assert all(each.bytes_verified == 1 << 15 for each in result.progress.values())


def test_the_fluid_model_refuses_a_graph() -> None:
    with pytest.raises(
        UsageError, match="the fluid model needs the two tiers of a Clos, and the fabric of lab ring is a"
    ):
        fluid.bed_of_lab(load_lab("ring"))


@pytest.mark.lab
@pytest.mark.slow
def test_a_graph_on_the_real_clock_carries_data_round_a_dead_link(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    with labs.session("ring", "real") as session:
        reduced(session, ["h0", "h1"], [(0.1, Action("fail", "s0--s1"))], iterations=20)
        # Probes go on, at ten a second for each target; a busy machine may be late with them.
        found = {}
        for _ in range(100):
            found = clustermapper.view_of(session.topology, session.hosts)
            if found == {"s0--s1": "dead"}:
                break
            session.advance(0.1)
        assert found == {"s0--s1": "dead"}
