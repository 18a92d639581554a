"""Tenants in runs: what workloads may do, what hosts are told, and the figures of each tenant."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from mrc_topo import rules
from mrc_topo.labfile import load_lab, parse_lab
from mrc_topo.topology import Topology
from mrclab.lab import describe, lifecycle
from mrclab.lab.faults.action import Action
from mrclab.lab.records import rundir
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import closing
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches import forwarders, mapping
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.program import fabric_program
from mrclab.results import tenants, verdict
from mrclab.results.record import RunResult
from mrclab.runs import execute, precheck
from mrclab.runs.experiment import Experiment, ExperimentError

LAB = """\
name: a
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 6
hosts_per_t0: 3
path_mtu: 1024
ev: {size: 16, active: 8}
tenants:
  blue: {hosts: [h0, h3, h4], addresses: "2001:db8:b::/48", decapsulation: t0}
  red: {hosts: [h1, h5], addresses: "2001:db8:c::/48", max_wnd: 3000}
"""


def experiment(params: dict[str, Any], expect: dict[str, Any], hosts: list[str] | None = None) -> Experiment:
    workload = {"name": "incast", "params": {"message_bytes": 8192, **params}, "duration": 0.3, "hosts": hosts}
    return Experiment.model_validate({"name": "x", "title": "y", "workload": workload, "expect": expect})


def ran(topology: Topology, asked: Experiment) -> RunResult:
    session = VirtualSession(topology)
    try:
        result = execute.run_on(session, asked)
        result.topology = topology.lab.model_dump(mode="json")
        return result
    finally:
        session.close()


def test_a_workload_across_tenants_is_refused_unless_it_is_expected_to_be_denied() -> None:
    topology = parse_lab(LAB)
    params = {"target": 0, "sources": [3], "victim": [1, 4]}
    with pytest.raises(ExperimentError, match="h1 and h4 are not of one tenant"):
        precheck.check(experiment(params, {}), topology)
    precheck.check(experiment(params, {"denied": 1}), topology)
    precheck.check(experiment({"target": 0}, {}, ["h0", "h3", "h4"]), topology)
    with pytest.raises(ExperimentError, match="h1 and h2 are not of one tenant"):
        precheck.check(experiment({"target": 1}, {}, ["h1", "h2"]), topology)


def test_a_tenants_hosts_have_its_bound_of_windows() -> None:
    topology = parse_lab(LAB)
    bounds = [
        describe.host_config(topology, host, "virtual").settings["cc"]["max_wnd_bytes"] for host in topology.hosts
    ]
    assert bounds == [None, 3000, None, None, None, 3000]


def test_each_tenant_has_figures_of_its_own_hosts() -> None:
    """One stream into h0, one between h1 and h5; the latter's window is less than it needs."""
    topology = parse_lab(LAB)
    asked = experiment({"target": 0, "sources": [3, 4], "victim": [1, 5]}, {})
    result = ran(topology, asked)
    none, blue, red = tenants.figures(result)
    assert [(each.tenant, each.hosts) for each in (blue, red, none)] == [("blue", 3), ("red", 2), ("none", 1)]
    assert none.goodput_bps == 0
    assert 0 < red.goodput_bps < blue.goodput_bps
    assert blue.goodput_bps + red.goodput_bps == pytest.approx(result.mean_goodput_bps(), rel=0.1)
    assert (red.lost, red.timeouts, red.jain) == (0, 0, None)
    assert blue.jain is not None
    assert 0.9 < blue.jain <= 1
    [table] = tenants.tables(result)
    assert [row[0] for row in table.rows] == ["none", "blue", "red"]


def test_a_lab_without_tenants_has_no_figures_of_them() -> None:
    result = ran(parse_lab(LAB.partition("tenants:")[0]), experiment({"target": 0, "sources": [3]}, {}))
    assert tenants.figures(result) == tenants.tables(result) == []
    assert result.program_counters is not None
    assert "drop_tenant_denied" not in result.program_counters


def test_a_run_that_is_denied_passes_when_nothing_arrives_and_the_others_are_well() -> None:
    topology = parse_lab(LAB)
    params = {"target": 0, "sources": [3], "victim": [1, 4]}
    asked = experiment(params, {"denied": 10, "verified": False, "qp_errors": 1})
    result = ran(topology, asked)
    assert result.failures
    judged = {each.what: each.passed for each in verdict.judge(result, topology, asked.expect).checks}
    assert judged["no rank or agent failed"]
    assert judged["packets denied between tenants"]
    assert judged["messages between tenants"]
    more = asked.expect.model_copy(update={"denied": 10**6})
    assert [each.what for each in verdict.judge(result, topology, more).checks if not each.passed] == [
        "packets denied between tenants"
    ]
    plain = asked.expect.model_copy(update={"denied": None})
    missed = [each.what for each in verdict.judge(result, topology, plain).checks if not each.passed]
    assert "no rank or agent failed" in missed


def test_where_no_stream_crosses_tenants_nothing_shows_that_they_are_apart() -> None:
    topology = parse_lab(LAB)
    asked = experiment({"target": 0, "sources": [3]}, {"denied": 1})
    missed = [
        each.what for each in verdict.judge(ran(topology, asked), topology, asked.expect).checks if not each.passed
    ]
    assert missed == ["packets denied between tenants", "messages between tenants"]


@pytest.mark.parametrize("table", rules.ISOLATION)
def test_a_program_that_cannot_keep_tenants_apart_is_refused(table: str) -> None:
    topology, names = parse_lab(LAB), fabric_program().names
    fewer = dataclasses.replace(names, tables={name: each for name, each in names.tables.items() if name != table})
    with pytest.raises(P4RuntimeError, match="without which tenants would reach each other"):
        mapping.lacking(topology, fewer)
    assert mapping.lacking(parse_lab(LAB.partition("tenants:")[0]), fewer) == []


REAL = """\
name: apart
planes: 1
t0_per_plane: 2
t1_per_plane: 1
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
queues: {ecn: null, trim: null}
ev: {size: 8, active: 4}
tenants:
  blue: {hosts: [h0, h2], addresses: "2001:db8:b::/48", decapsulation: t0}
  red: {hosts: [h1, h3], addresses: "2001:db8:c::/48"}
"""


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("switch", ["p4lite", "kernel"])
def test_tenants_are_apart_on_the_real_clock_and_after_a_reboot(
    switch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    file = tmp_path / "apart.yaml"
    file.write_text(f"{REAL}switch: {switch}\n")
    if (problem := forwarders.problem(load_lab(file))) is not None:
        pytest.skip(problem)
    name, _ = lifecycle.up(LabRequest.of(str(file), clock="real"))

    def reaches(source: str, target: str, seconds: int = 30) -> bool:
        # With a deadline ping goes on until the first answer: behind a reboot a busy machine brings ports up late.
        ping = ("ping", "-6", "-c", "1", "-w", str(seconds), f"{target}.p0")
        done = subprocess.run(
            [sys.executable, "-m", "support.mrclab", "exec", "--lab", name, source, "--", *ping],
            capture_output=True, text=True, check=False, timeout=60, cwd=pathlib.Path(__file__).parents[1],
        )  # fmt: skip
        return " 1 received" in done.stdout

    try:
        with closing(RealSession(name)) as session:
            for pair in (["h0", "h2"], ["h1", "h3"]):
                workload = {"name": "write_bw", "params": {"message_bytes": 8192, "iterations": 4}, "hosts": pair}
                asked = Experiment.model_validate({"name": "x", "title": "y", "workload": workload})
                result = execute.run_on(session, asked)
                assert (result.failures, result.achieved().bytes_verified) == ([], 4 * 8192)
            for _ in range(2):
                assert reaches("h0", "h2")
                assert reaches("h1", "h3")
                assert not reaches("h0", "h1", seconds=2)
                assert not reaches("h0", "h3", seconds=2)
                session.failures.perform(session, Action("fail", "p0-t0.0", "reboot"))
                session.failures.perform(session, Action("restore", "p0-t0.0"))
            if switch == "p4lite":
                assert session.program_counters()["drop_tenant_denied"] > 0
    finally:
        rundir.down(name)
