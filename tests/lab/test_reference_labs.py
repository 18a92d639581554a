"""One test body for whatever forwards: BMv2 where it is found, a stand-in for it, and the Linux kernel."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import threading
import time

import pytest

from mrc_topo.labfile import load_lab
from mrclab.cli.status import lab_status
from mrclab.lab import lifecycle
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.hosts.hostclient import HostClient
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import closing
from mrclab.lab.session.real import RealSession
from mrclab.lab.switches import forwarders
from mrclab.results import verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import RunResult
from mrclab.runs.execute import execute, run_on
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from support.amount import first
from support.lab import stand_in
from support.lab.labs import lab_file

pytestmark = [pytest.mark.lab, pytest.mark.slow]

FORWARDERS = ("bmv2", "stand-in", "kernel")
WAIT_S = 120.0
#: Counters and states only: another process may take the machine at any moment.
SEEN = Evidence(dropped=1, evs_lost=1)
PASSED = Expectation(valid=False)
STREAM = {"message_bytes": 1 << 14, "window": 3, "shift": 1}


@pytest.fixture(params=FORWARDERS)
def lab(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the file of a small lab, whose switches are what the parameter says."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    if request.param == "stand-in":
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("MRCLAB_BMV2", str(stand_in.executable(folder)))
        monkeypatch.setenv("MRCLAB_P4C", str(stand_in.p4c(folder)))
    switch = "kernel" if request.param == "kernel" else "bmv2"
    small = {"planes": 1, "ev": {"size": 16, "active": 8}, "compiler": "p4c"} if request.param == "stand-in" else {}
    made = lab_file(tmp_path, "bmv2-tiny", switch=switch, **small)
    problem = forwarders.problem(load_lab(made))
    if problem is not None:
        pytest.skip(problem)
    return made


def run(session: RealSession, workload: Workload, schedule: list[ExperimentStep]) -> RunResult:
    """Run and judge on a session; a missed expectation fails the test."""
    experiment = Experiment(name="t", title="t", workload=workload, schedule=schedule, expect=PASSED)
    result = run_on(session, experiment)
    judged = verdict.judge(result, session.topology, PASSED, experiment.claims())
    missed = [check for check in judged.checks if not check.passed]
    assert not missed, (missed, result.failures)
    assert [each.error for each in result.happenings] == [""] * len(experiment.actions())
    return result


def healthy(session: RealSession) -> bool:
    """Return whether the hosts' probes find nothing, within some time."""
    deadline = time.monotonic() + WAIT_S
    while lab_status(session).health:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def test_every_byte_arrives_and_every_failure_is_felt_and_mended(lab: str) -> None:
    name, topology = lifecycle.up(LabRequest.of(lab, clock="real"))
    try:
        with closing(RealSession(name)) as session:
            everybody = Workload(name="all_to_all", params={"block_bytes": 8000, "iterations": 2})
            result = run(session, everybody, [])
            assert sum(each.bytes_verified for each in result.progress.values()) == 4 * 3 * 2 * 8000
            assert healthy(session)
            # Two hosts of different T0s, so that the failures are in their way; the other T1 carries them.
            pair = Workload(name="permutation", params=STREAM, hosts=["h0", "h2"], duration=13.0)
            port = f"h2:{topology.lab.planes - 1}"
            schedule = [
                ExperimentStep(at=1.0, fail="p0-t0.0--p0-t1.0", kind="link_down", evidence=SEEN),
                ExperimentStep(at=3.0, restore="p0-t0.0--p0-t1.0"),
                ExperimentStep(at=4.0, fail="p0-t1.1", kind="freeze", evidence=SEEN),
                ExperimentStep(at=6.0, restore="p0-t1.1"),
                ExperimentStep(at=7.0, fail="p0-t1.0", kind="reboot", evidence=SEEN),
                ExperimentStep(at=9.0, restore="p0-t1.0"),
                ExperimentStep(at=10.0, fail=port, kind="port_down", evidence=Evidence(ports_down=1)),
                ExperimentStep(at=12.0, restore=port),
            ]
            run(session, pair, schedule)
            assert healthy(session)
            fidelity = session.fidelity()
            measured = set() if topology.lab.switch == "kernel" else {each.name for each in topology.switches}
            # Of one that was started anew nothing is known.
            assert set(fidelity.switches) == measured - {"p0-t1.0"}
            assert session.state.compiler == topology.lab.compiler
            assert session.deaths() == session.frozen() == []
            # One that stands still without the lab's doing is named, and everything else still answers.
            kill(name, "p0-t0.1", signal.SIGSTOP)
            # On a busy machine its threads stop only when each of them is scheduled next.
            deadline = time.monotonic() + 120
            while not session.frozen() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert [each.role for each in session.frozen()] == ["p0-t0.1"]
            status = lab_status(session)
            kill(name, "p0-t0.1", signal.SIGCONT)
            assert len(status.switches) == len(topology.switches)
            assert any("p0-t0.1 is frozen: a signal has stopped it" in line for line in status.harm)
            assert (status.switch, status.compiler) == (topology.lab.switch, topology.lab.compiler)
    finally:
        rundir.down(name)
    assert not RunDir(name).exists()


THIRD = 'sys.argv[sys.argv.index("--device-id") + 1] == "3"'
SWITCHES = '"--device-id" in sys.argv'
#: What a stand-in for BMv2 does at its start, and what `mrclab up` then says; `AT` is the time of the day.
CRASHES = {
    "one at once": (
        f'if {SWITCHES} and {THIRD}: sys.exit("bad luck")',
        "p0-t1.0 ended by itself with exit code 1: bad luck AT",
    ),
    # Hosts are furnished when all switches have answered and been filled. Their agents stand still until the switch is
    # dead, so that the lab is not up yet.
    "one later": (
        f"if {SWITCHES} and {THIRD}:\n"
        "    import os, pathlib, signal, subprocess, threading, time\n"
        "    def die():\n"
        "        agents = [each.parent.name for each in pathlib.Path('/proc').glob('[0-9]*/cmdline')\n"
        "                  if b'mrc_host.agent' in each.read_bytes()]\n"
        "        for pid in agents: os.kill(int(pid), signal.SIGSTOP)\n"
        "        while not pathlib.Path('/run/lab/h0.json').exists(): time.sleep(0.01)\n"
        "        script = f'while kill -0 {os.getpid()}; do sleep 0.01; done; kill -CONT ' + ' '.join(agents)\n"
        "        subprocess.Popen(['sh', '-c', script], stderr=subprocess.DEVNULL)\n"
        "        print('bad luck', flush=True)\n"
        "        os._exit(7)\n"
        "    threading.Thread(target=die).start()",
        "p0-t1.0 ended by itself with exit code 7: bad luck AT",
    ),
}


@pytest.mark.parametrize("case", first(reversed(CRASHES)))
def test_a_switch_that_crashes_at_start_is_named_and_nothing_is_left(
    case: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    folder = tmp_path / "bin"
    folder.mkdir()
    crash, said = CRASHES[case]
    monkeypatch.setenv("MRCLAB_BMV2", str(stand_in.executable(folder, crash)))
    made = lab_file(tmp_path, "bmv2-tiny", planes=1, ev={"size": 16, "active": 8})
    with pytest.raises(RunError) as caught:
        lifecycle.up(LabRequest.of(made, clock="real"))
    assert re.sub(r"\(at [0-9:]+\)", "AT", str(caught.value)) == f"lab 'bmv2-tiny' did not come up: {said}"
    assert not (tmp_path / "run" / "bmv2-tiny").exists()
    assert alive(str(tmp_path)) == []


@pytest.mark.parametrize("switch", ["p4lite", "bmv2"])
def test_a_crowded_link_marks_and_a_crowded_host_port_trims(
    switch: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    # Two hosts share one uplink in each plane. NSCC keeps the queues below the threshold for trimming: not so here.
    cc = {"algorithm": "fixed", "fixed_window": 40000}
    made = lab_file(tmp_path, "bmv2-tiny", switch=switch, t1_per_plane=1, cc=cc)
    problem = forwarders.problem(load_lab(made))
    if problem is not None:
        pytest.skip(problem)
    name, _ = lifecycle.up(LabRequest.of(made, clock="real"))
    try:
        with closing(RealSession(name)) as session:
            before = session.program_counters()
            run(session, Workload(name="permutation", params=STREAM | {"shift": 2, "window": 8}, duration=3.0), [])
            assert session.program_counters()["marked"] > before["marked"]
            result = run(session, Workload(name="incast", params={"message_bytes": 1 << 16}, duration=3.0), [])
            counted = session.program_counters()
            assert counted["trimmed"] > before["trimmed"]
            assert counted["queue_drops"] == 0
            # Hosts hear of every trimmed packet.
            assert result.totals()["trims"] > 0
    finally:
        rundir.down(name)


def alive(words: str) -> list[str]:
    """Command lines of processes with these words in them, once what ends has had time for it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
                if words in line and int(entry.name) != os.getpid():
                    found.append(line)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_a_switch_that_dies_ends_the_run_and_is_named(lab: str) -> None:
    name, _ = lifecycle.up(LabRequest.of(lab, clock="real"))
    victim = "p0-t1.0"
    try:
        # The wires still count its packets, but nobody forwards them.
        threading.Thread(target=kill_when_data_flows, args=(name, victim)).start()
        stream = Workload(name="permutation", params=STREAM, hosts=["h0", "h2"], duration=60.0)
        experiment = Experiment(name="t", title="t", lab=lab, clock="real", workload=stream, expect=PASSED)
        outcome = execute(experiment, live=False)
        assert outcome.verdict.status == "failed"
        assert any(f"{victim} was killed by SIGKILL" in line for line in outcome.result.failures)
        assert [each.role for each in outcome.result.deaths] == [victim]
        with closing(RealSession(name)) as session:
            status = lab_status(session)
            with pytest.raises(FailureError, match=f"switch {victim} is dead, its process was killed by SIGKILL"):
                session.failures.fail(session, Action("fail", victim, "freeze"))
            assert (session.failures.broken, session.failures.unsettled) == ({}, [])
        assert [each.state for each in status.switches if each.name == victim] == ["dead"]
        assert len(status.harm) == 1
        with pytest.raises(RunError, match=f"is damaged: {victim} was killed by SIGKILL"):
            execute(experiment, live=False)
    finally:
        rundir.down(name)


def kill_when_data_flows(name: str, role: str) -> None:
    """Kill a process of a lab once a host has sent something, however long the run takes to begin."""
    host = HostClient("h0", RunDir(name).folder.socket("h0"))
    deadline = time.monotonic() + 10 * WAIT_S
    while time.monotonic() < deadline:
        if any(each["requestor"]["payload_bytes_sent"] for each in host.request("statistics")["qps"]):
            break
        time.sleep(0.1)
    host.close()
    kill(name, role)


def kill(name: str, role: str, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process of a lab."""
    for process in RunDir(name).processes():
        if process.role == role:
            process.signal(number)
