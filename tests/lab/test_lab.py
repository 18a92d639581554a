"""Whole labs: P4 switches, MRC endpoints, failures; one body for simulated time and for real namespaces."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from mrclab.lab import lifecycle
from mrclab.lab.hosts import inside
from mrclab.lab.records import rundir
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.results import verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import RunResult
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from support.lab.labs import lab_file, session


def on_clocks(cases: Iterable[str], real: Collection[str]) -> list[Any]:
    """Return each case on the virtual clock, and on the real one those of `real`; the others there are long."""
    marks = {case: [pytest.mark.lab] if case in real else [pytest.mark.lab, pytest.mark.long] for case in cases}
    return [(case, "virtual") for case in marks] + [pytest.param(case, "real", marks=marks[case]) for case in marks]


MODES = ["srv6_usid", "srv6_srh", "structured_ev", "ecmp", "spray"]


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


TO_GROUPS = {"Icmp6OutMLDv2Reports", "Icmp6OutGroupMembReports", "Icmp6OutRouterSolicits", "Icmp6OutNeighborSolicits"}


ERRORS = {"Icmp6OutDestUnreachs", "Icmp6OutParmProblems", "Icmp6OutTimeExcds", "Icmp6OutPktTooBigs"}


def said_by_kernels(made: Session, what: Collection[str] = TO_GROUPS) -> int:
    """Return what the kernels of the hosts' namespaces sent by themselves: to link-local groups, or other kinds."""
    said = 0
    if isinstance(made, RealSession):
        for host in made.hosts:
            table = inside.run(made.state, ["cat", "/proc/net/snmp6"], host=host, capture_output=True, text=True)
            assert table.returncode == 0, table.stderr
            rows = [row.split() for row in table.stdout.splitlines()]
            said += sum(int(count) for name, count in rows if name in what)
    return said


def run(lab: str, clock: str, workload: Workload, schedule: list[ExperimentStep], expect: Expectation) -> RunResult:
    """Run, judge, and return the result; a missed expectation fails the test."""
    experiment = Experiment(name="test", title="test", lab=lab, workload=workload, schedule=schedule, expect=expect)
    with session(lab, clock) as made:
        said = said_by_kernels(made)
        before = made.program_counters()
        result = run_on(made, experiment)
        result.program_counters = made.program_counters()
        lost = {key: value - before[key] for key, value in result.program_counters.items()}
        # Every packet finds its way; the fabric has none for what kernels say to link-local groups.
        assert lost["drop_no_route"] + lost["drop_hop_limit"] <= said_by_kernels(made) - said
        # And the kernels leave what is MRC's to MRC.
        assert said_by_kernels(made, ERRORS) == 0
        judged = verdict.judge(result, made.topology, expect, experiment.claims())
    missed = [check for check in judged.checks if not check.passed]
    assert not missed, (missed, result.failures)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "clock"), on_clocks(MODES, ("srv6_usid", "ecmp")))
def test_every_routing_mode_delivers_all_to_all(mode: str, clock: str, tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, routing={"mode": mode})
    workload = Workload(name="all_to_all", params={"block_bytes": 50_000, "iterations": 2})
    result = run(lab, clock, workload, [], Expectation(valid=False))
    assert sum(each.bytes_verified for each in result.progress.values()) == 8 * 7 * 2 * 50_000


#: Streams without a barrier: their goodput is steady, so a dip is the failure's and not the workload's own. In the
#: permutation one host of every T0 sends up, which the T0's other uplink can carry.
EVERYBODY = Workload(name="permutation", params={"message_bytes": 1 << 18, "window": 3, "shift": 1}, duration=5.5)
ONE_PAIR = Workload(name="write_bw", params={"message_bytes": 1 << 18, "window": 4}, hosts=["h1", "h3"], duration=5.5)
SILENT = Evidence(dropped=1, carried=0.2, evs_lost=1)
#: How long a failure lasts, and what is asserted of it. Times and rates are the virtual clock's matter: on the real one
#: another process may take the machine at any moment, so there states and counters speak, with time to come about.
LASTS_S = {"virtual": 2.0, "real": 4.0}
EXPECT = {
    "virtual": Expectation(recovery=0.2, localised=True, valid=False, min_share=0.95),
    "real": Expectation(localised=True, valid=False),
}
FAILURES = {
    "link": (EVERYBODY, "p1-t0.0--p1-t1.0", "link_down", 0.0, SILENT),
    "port": (ONE_PAIR, "h3:2", "port_down", 0.25, Evidence(carried=0.05, ports_down=2, goodput=0.85)),
    "freeze": (EVERYBODY, "p2-t1.1", "freeze", 0.0, SILENT),
}


def counted(evidence: Evidence) -> Evidence:
    """Without what is a share of a rate."""
    return evidence.model_copy(update={"carried": None, "goodput": None})


@pytest.mark.slow
@pytest.mark.parametrize(("failure", "clock"), on_clocks(FAILURES, ("link", "port")))
def test_a_failure_costs_what_it_must_and_no_more(failure: str, clock: str, tmp_path: pathlib.Path) -> None:
    # At less than half the demo's rate the machine keeps up, whatever else it does.
    rate = {"rate": "8Mbps", "delay": "100us"}
    # Fewer packets per round trip want fewer EVs: every dead one costs a packet to find out.
    lab = lab_file(tmp_path, links={"host": rate, "fabric": rate}, ev={"size": 32, "active": 16})
    workload, target, kind, loss, evidence = FAILURES[failure]
    lasts = LASTS_S[clock]
    if clock == "real":
        evidence = counted(evidence)
    schedule = [
        ExperimentStep(at=1.5, fail=target, kind=kind, loss=loss, evidence=evidence),
        ExperimentStep(at=1.5 + lasts, restore=target, loss=0.0),
    ]
    workload = workload.model_copy(update={"duration": 3.5 + lasts})
    result = run(lab, clock, workload, schedule, EXPECT[clock])
    assert [each.error for each in result.happenings] == ["", ""]


@pytest.mark.lab
@pytest.mark.slow
def test_one_process_per_switch_with_veth_links(tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny")
    lifecycle.up(replace(LabRequest.of(lab, clock="real"), links="veth"))
    try:
        workload = Workload(name="all_to_all", params={"block_bytes": 20_000, "iterations": 2})
        link = "p0-t0.0--p0-t1.0"
        schedule = [ExperimentStep(at=0.5, fail=link, evidence=counted(SILENT)), ExperimentStep(at=4.5, restore=link)]
        result = run(lab, "real", workload, [], Expectation(valid=False))
        assert sum(each.bytes_verified for each in result.progress.values()) == 4 * 3 * 2 * 20_000
        ring = Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=5.5)
        result = run(lab, "real", ring, schedule, Expectation(valid=False, localised=True))
        with session(lab, "real") as made:
            assert len(made.target.clients) == 8  # type: ignore[attr-defined]
    finally:
        rundir.down("tiny")
