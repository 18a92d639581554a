"""Hosts that share an agent's process: which do, what is told of them, and what cannot be done to one alone."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

import pytest
import yaml

from mrc_host.answers import HostFidelity, LagSummary
from mrc_topo.labfile import LabError, load_lab
from mrclab.cli.status import agent_line, lab_status
from mrclab.lab import describe
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.processes.process import Process, ProcessExit, cause
from mrclab.lab.records.record import LabFolder, LabRecord, LabState
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.session import fidelity
from mrclab.lab.session.fidelity import Fidelity
from mrclab.lab.session.real import AgentProcess, RealSession
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from mrclab.studies.chaos import schedule
from support.lab import users
from support.lab.labs import lab_file, session

TIMEOUT_S = 120


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("processes", "groups"),
    [
        (1, [["h0", "h1", "h2", "h3"]]),
        (3, [["h0", "h3"], ["h1"], ["h2"]]),
        (9, [["h0"], ["h1"], ["h2"], ["h3"]]),
        ("per-host", [["h0"], ["h1"], ["h2"], ["h3"]]),
    ],
)
def test_which_hosts_share_a_process(tmp_path: pathlib.Path, processes: int | str, groups: list[list[str]]) -> None:
    topology = load_lab(lab_file(tmp_path, "tiny", agents={"processes": processes}))
    assert describe.agent_groups(topology) == groups
    assert describe.sharing(topology) == (groups[0] if len(groups[0]) > 1 else [])


def test_there_is_a_process_per_core_unless_the_lab_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3})
    assert describe.agent_groups(load_lab("default")) == [["h0", "h2", "h4", "h6"], ["h1", "h3", "h5", "h7"]]
    assert len(describe.agent_groups(load_lab("tiny"))) == 4, "chaos kills single hosts there"


@pytest.mark.parametrize("processes", [0, -1, "many", 1.5])
def test_an_unusable_number_of_processes_is_refused(tmp_path: pathlib.Path, processes: object) -> None:
    with pytest.raises(LabError, match=r"agents\.processes"):
        load_lab(lab_file(tmp_path, "tiny", agents={"processes": processes}))


def test_congestion_control_is_the_same_on_both_clocks() -> None:
    """The demonstration's incast was unfair on the real clock alone, where base RTT and window were longer."""
    topology = load_lab("default")
    real, virtual = (describe.endpoint_settings(topology, clock)["cc"] for clock in ("real", "virtual"))
    assert real == virtual
    # A full queue costs hardly more than the target delay, which quick adapt takes for granted.
    assert topology.lab.queues.trim is not None
    trimmed_ns = topology.lab.queues.trim.threshold * 8 * 10**9 // topology.lab.links.host.rate
    assert 1 < trimmed_ns / (0.75 * describe.control_rtt_ns(topology, "real")) < 2


@pytest.mark.parametrize(("rx_usecs", "room_ms"), [(None, 3), (0, 1), (5000, 11)])
def test_agents_are_told_how_often_they_look_and_the_base_rtt_has_room_for_it(
    rx_usecs: int | None, room_ms: int, tmp_path: pathlib.Path
) -> None:
    topology = load_lab(lab_file(tmp_path, "tiny", **({} if rx_usecs is None else {"nic": {"rx_usecs": rx_usecs}})))
    told = {
        clock: describe.host_config(topology, topology.hosts[0], clock, "mrc").moderation_ns
        for clock in ("real", "virtual")
    }
    assert told == {"real": 1000 * (1000 if rx_usecs is None else rx_usecs), "virtual": 0}
    bare = describe.base_rtt_ns(topology, "virtual")
    assert describe.base_rtt_ns(topology, "real") - bare == room_ms * 1_000_000


def test_a_death_names_all_whom_the_process_carried() -> None:
    death = ProcessExit.now("h1", cause(-9, ["h0", "h2"]))
    assert death.text().startswith("h1 was killed by SIGKILL, in one process with h0, h2 (at ")


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        (["h0"], "agent of h0: a process of 64 MB"),
        (["h0", "h4"], "agents of h0, h4: a process of 64 MB, 32 MB for each host"),
    ],
)
def test_status_says_which_hosts_a_process_runs(hosts: list[str], line: str) -> None:
    assert agent_line(AgentProcess(hosts, 64_000_000)) == line


def test_a_process_is_there_once_for_each_host_it_carries(tmp_path: pathlib.Path) -> None:
    run = RunDir("one")
    run.create()
    with subprocess.Popen(["sleep", "100"]) as child:
        run.write(LabState("one", first=Process.of("lab", os.getpid())))
        LabFolder(run.folder.path).write(LabRecord("up", roles={"h0": child.pid, "h2": child.pid}))
        found = [(each.role, each.pid) for each in run.processes()]
        child.kill()
    assert found == [("lab", os.getpid()), ("h0", child.pid), ("h2", child.pid)]


def test_a_busy_process_is_told_once() -> None:
    host = HostFidelity(LagSummary(1, 0, 0, 0, 0), 0.97, 10**9, 0, 0, ["h0", "h1"])
    assert fidelity.judge(Fidelity(hosts={"h0": host, "h1": host}), 10**6) == ["the agent of h0, h1 took 97% of a core"]
    assert fidelity.processes({"h0": host, "h1": host}) == {("h0", "h1"): 0.97}


def test_chaos_leaves_single_agents_alone_where_hosts_share_a_process(tmp_path: pathlib.Path) -> None:
    whole = schedule.generate("tiny", 3, 60.0)
    without = schedule.generate("tiny", 3, 60.0, agents=False)
    assert {step.verb for step in whole.steps} & set(schedule.OF_AGENTS)
    assert without.steps == [step for step in whole.steps if step.verb not in schedule.OF_AGENTS]
    file = tmp_path / "least.yaml"
    shared = lab_file(tmp_path, "tiny", agents={"processes": 2})
    file.write_text(yaml.safe_dump({"lab": shared, "steps": [{"at": 0.1, "kill": "h1"}]}))
    words = [*users.MRCLAB, "chaos", "--clock", "real", "--schedule", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert "in lab 'tiny' h0, h2 share an agent's process" in done.stderr
    assert "per-host" in done.stderr


@pytest.mark.lab
@pytest.mark.slow
def test_hosts_in_one_process_work_and_die_together(tmp_path: pathlib.Path) -> None:
    everything = Workload(name="all_to_all", params={"block_bytes": 20_000, "iterations": 3})
    with session(lab_file(tmp_path, "tiny", agents={"processes": 2}), "real") as made:
        assert isinstance(made, RealSession)
        result = run_on(made, Experiment(name="x", title="x", lab="tiny", workload=everything))
        assert result.failures == []
        assert result.progress["h3"].iterations == 3
        processes = {host.process[0]: list(host.process) for host in result.fidelity.hosts.values()}
        assert list(processes.values()) == [["h0", "h2"], ["h1", "h3"]]
        agents = {each.role: each for each in made.run.processes() if each.role in made.clients}
        assert agents["h0"].pid == agents["h2"].pid != agents["h1"].pid == agents["h3"].pid
        told = lab_status(made).agents
        assert [each.hosts for each in told] == [["h0", "h2"], ["h1", "h3"]]
        assert all(each.memory_bytes > 10 << 20 for each in told)
        for verb in (made.freeze_agent, made.kill_agent):
            with pytest.raises(HostError, match=r"h1: its agent's process carries h1, h3, .* per-host"):
                verb("h1")
        agents["h1"].signal(signal.SIGKILL)
        deadline = time.monotonic() + TIMEOUT_S
        while len(deaths := made.deaths()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert {each.role: each.how for each in deaths} == {
            "h1": "was killed by SIGKILL, in one process with h3",
            "h3": "was killed by SIGKILL, in one process with h1",
        }
        # Each may come back by itself.
        for host in ("h1", "h3"):
            made.restart_agent(host)
            assert made.clients[host].request("hello")["name"] == host
        later = RealSession("tiny")
        assert run_on(later, Experiment(name="y", title="y", lab="tiny", workload=everything)).failures == []
        later.close()
