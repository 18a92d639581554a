"""`mrclab plan`: its traffic beside real simulations, its costs, what it refuses, and what it prints."""

from __future__ import annotations

import json
import math
import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from mrc_cli.app import app, main
from mrc_host.answers import JobProgress
from mrc_lab.faults.action import Action
from mrc_lab.session.virtual import VirtualSession
from mrc_runs.experiment import Experiment, known_experiments, load_experiment
from mrc_runs.remaining import Remaining, duration_text
from mrc_runs.runner import WorkloadRun
from mrc_runs.workload import WorkloadSpec
from mrc_scale.clusterfile import load_cluster
from mrc_studies.estimates import cases, cluster, costs, estimate
from mrc_studies.estimates.child import MeasureError, Order, Spent, spent
from mrc_studies.estimates.estimate import Estimate, Machine
from mrc_studies.estimates.traffic import Traffic, expected
from mrc_studies.estimates.work import MEMORY, TIME, Work, work_of
from mrc_studies.estimates.yardstick import Pace, Watch, pace
from mrc_topo.labfile import load_lab

MACHINE = Machine(cores=2, memory_available_bytes=16 << 30, slowness=1.0, waiting=1.0)
SHIPPED = costs.shipped()


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Let plans use the shipped costs, a machine of always the same pace, and none of the labs that are up on it."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    monkeypatch.setattr("mrc_studies.estimates.yardstick.pace", lambda: Pace(1.0, 1.0))
    monkeypatch.setattr(costs, "place", lambda: tmp_path / "costs.json")
    monkeypatch.setattr(costs, "measure", lambda progress: pytest.fail("nothing is to be measured"))


def mrclab(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Return the one line with which a command is refused; its exit code is 2."""
    monkeypatch.setattr("sys.argv", ["mrclab", "plan", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.count("\n") == 1
    return printed.err


def planned(workload: str, lab: str = "tiny", transport: str = "mrc", **more: Any) -> Estimate:
    """Return the estimate of a workload; `more` has `duration`, `cores` and parameters."""
    cores, duration = more.pop("cores", 1), more.pop("duration", None)
    made = Experiment.model_validate(
        {
            "name": workload,
            "title": workload,
            "lab": lab,
            "transport": transport,
            "workload": {"name": workload, "params": more, "duration": duration},
        }
    )
    return estimate.estimate(made, "virtual", SHIPPED, MACHINE, cores)


# --- traffic, beside simulations ---

COUNTED = [
    ("send_recv", {"message_bytes": 50_000, "iterations": 3}),
    ("permutation", {"message_bytes": 70_000, "iterations": 2}),
    ("ring_all_reduce", {"size_bytes": 100_000, "iterations": 2}),
    ("tree_all_reduce", {"size_bytes": 4_000, "iterations": 3}),
    ("all_to_all", {"block_bytes": 9_000, "iterations": 2}),
    ("all_gather", {"size_bytes": 9_000, "iterations": 1}),
    ("incast", {"message_bytes": 30_000, "iterations": 2}),
    ("training", {"gradient_bytes": 20_000, "pipeline": 2, "iterations": 2}),
    ("write_lat", {"message_bytes": 8, "iterations": 5}),
]


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize(("workload", "params"), COUNTED)
def test_counted_messages_and_bytes_are_those_of_a_simulation(
    workload: str, params: dict[str, Any], transport: str
) -> None:
    """A run of a number of iterations on links that lose nothing: messages, bytes and first transmissions are exact."""
    topology = load_lab("tiny")
    spec = WorkloadSpec(workload, params)
    made = expected(topology.for_transport(transport), spec, transport)
    session = VirtualSession(topology, transport)
    try:
        result = WorkloadRun(session, spec).go()
    finally:
        session.close()
    progress = result.progress.values()
    assert made.messages == sum(each.requests_posted for each in progress)
    assert made.payload_bytes == sum(each.bytes_sent for each in progress)
    totals = result.totals()
    # RoCE's packets count as sent again from the first one lost on, and those left out of the count are few.
    sent = totals["packets"] - totals["retransmissions"]
    assert made.packets == (sent if transport == "mrc" else pytest.approx(sent, rel=0.02))
    assert made.iterations == max(each.iterations for each in progress)
    assert made.extrapolated == 0


@pytest.mark.parametrize(("workload", "params"), COUNTED)
def test_the_time_of_a_run_is_near_a_simulation_s(workload: str, params: dict[str, Any]) -> None:
    """Traffic of a duration follows from the links' rates: within a quarter of a simulation's."""
    topology = load_lab("tiny")
    spec = WorkloadSpec(workload, {key: value for key, value in params.items() if key != "iterations"}, duration_s=0.5)
    made = expected(topology, spec, "mrc")
    session = VirtualSession(topology, "mrc")
    try:
        result = WorkloadRun(session, spec).go()
    finally:
        session.close()
    sent = sum(each.bytes_sent for each in result.progress.values())
    iteration = sent / max(max(each.iterations for each in result.progress.values()), 1)
    assert abs(made.payload_bytes - sent) <= 0.25 * sent + 1.01 * iteration


@given(
    workload=st.sampled_from(["send_recv", "permutation", "incast"]),
    small=st.integers(1, 200_000),
    more=st.integers(0, 200_000),
    transport=st.sampled_from(["mrc", "roce"]),
)
def test_larger_messages_mean_no_less_of_anything(workload: str, small: int, more: int, transport: str) -> None:
    topology = load_lab("tiny").for_transport(transport)
    one, other = (
        expected(topology, WorkloadSpec(workload, {"message_bytes": size}), transport) for size in (small, small + more)
    )
    assert one.messages == other.messages
    assert one.payload_bytes <= other.payload_bytes
    assert one.packets <= other.packets
    assert one.hops <= other.hops
    assert one.seconds <= other.seconds


@given(iterations=st.integers(1, 20), more=st.integers(0, 20))
def test_more_iterations_mean_as_much_more(iterations: int, more: int) -> None:
    topology = load_lab("tiny")
    one, other = (
        expected(topology, WorkloadSpec("ring_all_reduce", {"size_bytes": 8192, "iterations": count}), "mrc")
        for count in (iterations, iterations + more)
    )
    assert other.messages * iterations == one.messages * (iterations + more)
    assert one.seconds <= other.seconds


def test_a_long_run_is_continued_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = load_lab("tiny")
    spec = WorkloadSpec("ring_all_reduce", {"size_bytes": 8192, "iterations": 400})
    whole = expected(topology, spec, "mrc")
    monkeypatch.setattr("mrc_studies.estimates.traffic.MOST_MESSAGES", 500)
    part = expected(topology, spec, "mrc")
    assert whole.extrapolated == 0
    assert part.extrapolated > 0.5
    for name in ("seconds", "messages", "payload_bytes", "packets", "hops", "iterations"):
        assert getattr(part, name) == pytest.approx(getattr(whole, name), rel=0.02), name


def test_a_failure_slows_the_workload_down() -> None:
    topology = load_lab("tiny")
    spec = WorkloadSpec("permutation", {"message_bytes": 400_000, "iterations": 3})
    ports = [Action("fail", f"h{host}:0", "port_down") for host in range(len(topology.hosts))]
    whole = expected(topology, spec, "mrc")
    broken = expected(topology, spec, "mrc", [(0.0, action) for action in ports])
    assert broken.messages == whole.messages
    # What has begun before the failure keeps its rate.
    assert broken.seconds > 1.3 * whole.seconds


# --- costs ---


def test_shipped_costs_cover_every_quantity() -> None:
    assert {phase: set(rows) for phase, rows in SHIPPED.cpu.items()} == {
        phase: set(names) for phase, names in TIME.items()
    }
    assert set(SHIPPED.memory) == set(MEMORY)
    assert SHIPPED.cpu["simulate"]["packets"] > 0


def test_costs_are_found_again_from_what_runs_took() -> None:
    """Runs that take exactly what quantities cost: the costs come out again, as far as the cases tell them apart."""
    runs = {}
    for name in cases.CASES:
        experiment, topology = cases.built(name)
        traffic = expected(topology, experiment.workload.spec(), experiment.transport, experiment.actions())
        counted = Traffic(*(round(each) for each in vars(traffic).values()))
        made = Spent(
            {}, 0, counted.seconds, int(counted.packets), int(counted.messages), int(counted.payload_bytes),
            int(counted.iterations), slowness=2.0,
        )  # fmt: skip
        work = costs._work(name, made)
        cpu = {phase: 2.0 * sum(SHIPPED.seconds(phase, work).values()) for phase in TIME}
        memory = sum(SHIPPED.resident_bytes(work).values())
        runs[name] = Spent(cpu, round(memory), *list(vars(made).values())[2:])
    found = costs.fitted(runs)
    for name, run in runs.items():
        work = costs._work(name, run)
        for phase in TIME:
            assert sum(found.seconds(phase, work).values()) == pytest.approx(run.cpu[phase] / 2, rel=0.05, abs=0.01)
        assert sum(found.resident_bytes(work).values()) == pytest.approx(run.memory_bytes, rel=0.05)


@settings(max_examples=5)
@given(st.lists(st.floats(0, 10), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_solving_finds_costs_of_at_least_zero(wanted: list[float], seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(0.1, 10, (8, 3))
    found = costs._solved(rows, rows @ np.array(wanted) + 1e-9)
    assert min(found) >= 0
    assert rows @ np.array(found) == pytest.approx(rows @ np.array(wanted), rel=0.02, abs=0.02)


def test_measured_costs_are_kept_and_used() -> None:
    place = costs.place()
    measured = costs.replaced(SHIPPED, memory={**SHIPPED.memory, "run": 7.0})
    costs.save(measured, place)
    assert place.stat().st_mode & 0o777 == 0o600
    found = costs.known()
    assert found.memory["run"] == 7.0
    assert found.source.startswith("measured on this machine")


def test_costs_of_another_version_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    costs.save(costs.replaced(SHIPPED, memory={**SHIPPED.memory, "run": 7.0}), costs.place())
    monkeypatch.setattr(costs, "made_by", lambda: "another machine")
    found = costs.known()
    assert found.memory == SHIPPED.memory
    assert "of another machine or version" in found.source


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "no costs"),
        (lambda text: "[]", "no costs"),
        (lambda text: "\x00\xff", "no costs"),
        (lambda text: text.replace('"packets"', '"parcels"'), "other quantities"),
        (lambda text: text.replace('"run": 1', '"run": -1'), "a cost is a number of at least 0"),
        (lambda text: text.replace('"run": 1', '"run": NaN, "x": 1'), "other quantities"),
    ],
)
def test_damaged_costs_are_refused_with_the_remedy(
    damage: Any, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = costs.place()
    costs.save(costs.replaced(SHIPPED, memory={**SHIPPED.memory, "run": 1.0}), place)
    place.write_text(damage(place.read_text()))
    line = refused(capsys, monkeypatch, "lossy-link")
    assert str(place) in line
    assert said in line
    assert "mrclab plan --calibrate" in line


def test_costs_that_others_can_change_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs.save(SHIPPED, costs.place())
    costs.place().chmod(0o666)
    assert "others can change this file" in refused(capsys, monkeypatch, "lossy-link")


def test_calibrating_writes_again_what_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    costs.place().write_text("{")
    monkeypatch.setattr(costs, "measure", lambda progress: SHIPPED)
    done = mrclab("--calibrate", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"file": str(costs.place()), "cpu": SHIPPED.cpu, "memory": SHIPPED.memory}
    assert costs.known().cpu == SHIPPED.cpu
    shown = mrclab("--calibrate").stdout
    assert "payload bytes" in shown
    assert f"kept in {costs.place()}" in shown.replace("\n", "")


def test_a_run_measures_itself() -> None:
    """The child that calibration starts: phases in their order, and counts of what was done."""
    document = {"name": "plan", "title": "a short run", "lab": "tiny", "expect": {"valid": False}}
    workload = {"name": "write_lat", "params": {"message_bytes": 8, "iterations": 3}}
    found = spent(Order({**document, "workload": workload}))
    assert list(found.cpu) == list(TIME)
    assert all(seconds >= 0 for seconds in found.cpu.values())
    assert found.messages == found.packets
    assert found.iterations == 3
    assert found.memory_bytes > 10 << 20


def test_a_measured_run_that_fails_says_why() -> None:
    with pytest.raises(MeasureError, match="no lab"):
        spent(Order({"name": "x", "title": "x", "lab": "no-such-lab", "workload": {"name": "write_lat"}}))


def test_the_pace_of_a_machine_is_positive() -> None:
    found = pace(0.01)
    assert found.slowness > 0
    assert found.waiting >= 1
    with Watch() as watch:
        pass
    assert watch.slowness > 0


# --- estimates ---


@pytest.mark.parametrize("name", known_experiments())
@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_every_experiment_can_be_planned(name: str, clock: str) -> None:
    made = estimate.estimate(load_experiment(name), clock, SHIPPED, MACHINE)
    assert made.cpu_seconds == pytest.approx(sum(part.cpu_seconds for part in made.parts))
    assert all(math.isfinite(value) for value in (made.cpu_seconds, made.wall_seconds, made.memory_bytes))
    assert made.memory_bytes > 50 << 20
    assert made.data_packets > 0
    if clock == "real":
        assert made.wall_seconds > made.simulated_seconds


@given(small=st.integers(1, 1 << 20), more=st.integers(0, 1 << 20))
def test_larger_messages_take_no_less(small: int, more: int) -> None:
    one, other = (planned("send_recv", message_bytes=size) for size in (small, small + more))
    assert one.cpu_seconds <= other.cpu_seconds
    assert one.memory_bytes <= other.memory_bytes


def test_work_of_a_lab_is_counted() -> None:
    topology = load_lab("tiny")
    lab = topology.lab
    document = {"name": "x", "title": "x", "lab": "tiny", "workload": {"name": "ring_all_reduce"}}
    experiment = Experiment.model_validate(document)
    made = work_of(experiment, topology, Traffic(1.0, 8, 1000, 10, 30, 2, 0))
    assert isinstance(made, Work)
    assert (made.hosts, made.host_ports) == (lab.hosts, lab.hosts * lab.planes)
    assert made.queue_pairs == 2 * lab.hosts  # to the next rank and from the one before
    assert made.evs == made.queue_pairs * lab.ev.size
    assert made.rank_iterations == 2 * lab.hosts
    assert made.hops > 30  # acknowledgements and probes pass switches, too


def test_payloads_without_bytes_take_less_time_and_memory() -> None:
    whole, lengths = (
        json.loads(mrclab("permutation", "--lab", "tiny", "--payload", payload, "--json").stdout)
        for payload in ("bytes", "length")
    )
    assert lengths["payload_bytes"] == whole["payload_bytes"]  # of the traffic, which is the same
    assert lengths["data_packets"] == whole["data_packets"]
    assert lengths["cpu_seconds"] < whole["cpu_seconds"]
    assert lengths["memory_bytes"] < whole["memory_bytes"]


def test_slowness_and_waiting_scale_time_but_not_memory() -> None:
    experiment = load_experiment("lossy-link")
    slow = Machine(2, 16 << 30, slowness=2.0, waiting=3.0)
    one, other = (estimate.estimate(experiment, "virtual", SHIPPED, machine) for machine in (MACHINE, slow))
    assert other.cpu_seconds == pytest.approx(2 * one.cpu_seconds)
    assert other.wall_seconds == pytest.approx(6 * one.wall_seconds)
    assert other.memory_bytes == one.memory_bytes


def test_more_cores_take_more_cpu_time_and_memory() -> None:
    one, two = (
        planned("permutation", "thousand", message_bytes=1 << 16, duration=1.0, cores=cores) for cores in (1, 2)
    )
    assert two.cpu_seconds > one.cpu_seconds
    assert two.memory_bytes > one.memory_bytes
    assert one.cores == pytest.approx(1)
    assert 1 < two.cores <= 2


def test_a_run_of_too_much_memory_does_not_fit() -> None:
    small = Machine(2, 60 << 20, 1.0, 1.0)
    made = estimate.estimate(load_experiment("lossy-link"), "virtual", SHIPPED, small)
    assert not made.fits
    assert "this machine has 60 MiB available; use fewer hosts" in made.warnings[0]


def test_a_lab_of_too_many_hosts_for_the_real_clock_does_not_fit() -> None:
    made = estimate.estimate(load_experiment("training-64"), "real", SHIPPED, Machine(1, 16 << 30, 1.0, 1.0))
    assert not made.fits
    assert "--clock virtual has no such limit" in made.warnings[0]


def test_a_run_of_hours_is_named() -> None:
    made = planned("permutation", "training-64", message_bytes=1 << 18, duration=7200.0)
    assert made.fits
    assert any("mrclab scale" in warning for warning in made.warnings)


def test_a_larger_cluster_takes_more() -> None:
    few, many = (
        cluster.estimate(load_cluster("cluster-131k", {"nics": nics, "radix": radix, "failures": []}), MACHINE)
        for nics, radix in ((8_192, 128), (32_768, 256))
    )
    assert few.cpu_seconds < many.cpu_seconds
    assert few.memory_bytes < many.memory_bytes
    assert (few.level, few.hosts) == ("fluid model", 8_192)
    assert not cluster.estimate(load_cluster("cluster-131k"), Machine(2, 100 << 20, 1.0, 1.0)).fits


# --- the command ---


def test_json_has_every_field_of_the_estimate() -> None:
    done = mrclab("lossy-link", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert list(found) == list(Estimate.__dataclass_fields__)
    assert found["level"] == "virtual clock"
    assert [part["name"] for part in found["parts"]] == list(TIME)
    assert set(found["machine"]) == set(Machine.__dataclass_fields__)


def test_the_text_says_what_a_run_takes_and_why() -> None:
    shown = mrclab("lossy-link").stdout
    for text in ("lossy-link", "CPU s", "simulate", "memory", "8 hosts", "of the CPU time", "costs: shipped"):
        assert text in shown, text


def test_workloads_take_the_options_of_run() -> None:
    found = json.loads(mrclab("incast", "--lab", "tiny", "--set", "message_bytes=4096", "--json").stdout)
    assert (found["lab"], found["hosts"]) == ("tiny", load_lab("tiny").lab.hosts)


def test_a_cluster_is_planned() -> None:
    found = json.loads(mrclab("cluster-131k", "--json").stdout)
    assert (found["level"], found["hosts"]) == ("fluid model", 131_072)


def test_a_run_that_does_not_fit_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=50 << 20))
    done = mrclab("lossy-link")
    assert done.exit_code == 1
    assert "warning: the run needs" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing argument 'name'; see mrclab plan --help"),
        (("nosuch",), "nosuch: no experiment of that name"),
        (("lossy-link", "--duration", "3"), "--duration: 3 s end before all of the schedule has happened"),
        (("lossy-link", "--cores", "65"), "--cores"),
        (("lossy-link", "--cores", "0"), "--cores"),
        (("lossy-link", "--clock", "unreal"), "clock is real or virtual"),
        (("lossy-link", "--payload", "none"), "--payload: 'none'; known: bytes, length"),
        (("lossy-link", "--payload", "length", "--clock", "real"), "payload: length is for simulated time"),
        (("lossy-link", "--clock", "real", "--cores", "2"), "--cores is for simulated time"),
        (("cluster-131k", "--lab", "tiny"), "--lab is for runs in labs"),
        (("cluster-131k", "--cores", "2"), "--cores is for runs in labs"),
        (("incast", "--set", "no=1"), "no parameter 'no'"),
        (("incast", "--lab", "nosuch"), "nosuch"),
        (("incast", "--hosts", "h0,h99"), "h99"),
        (("--calibrate", "lossy-link"), "--calibrate measures this machine"),
        (("--calibrate", "--duration", "3"), "--calibrate measures this machine"),
        (("--calibrate", "--cores", "2"), "--calibrate measures this machine"),
        (("--calibrate", "--clock", "real"), "--calibrate measures this machine"),
        (("--again", "nosuch"), "nosuch"),
        (("lossy-link", "--again", "nosuch"), "a name with --again"),
    ],
)
def test_wrong_usage_is_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said in refused(capsys, monkeypatch, *words)


# --- progress of runs ---


def so_far(elapsed_s: float, iterations: int = 0) -> Any:
    """Return as much of a result as progress reads."""
    last = {"t_ns": 5_000_000_000 + round(elapsed_s * 1e9)}
    return SimpleNamespace(
        started_ns=5_000_000_000,
        recording=SimpleNamespace(fabric=SimpleNamespace(last=last)),
        progress={"h0": JobProgress(iterations=iterations)},
    )


def test_remaining_time_follows_from_the_pace_so_far() -> None:
    now = [100.0]
    made = Remaining(WorkloadSpec("write_lat", duration_s=10.0), lambda: now[0])
    made.observe(so_far(0.0))
    assert made.text() == "0 %, remaining time not known yet"
    now[0] += 3
    made.observe(so_far(2.5))
    assert made.text() == "25 %, 9.0 s remain"
    now[0] += 1
    made.observe(so_far(10.2))
    assert made.text() == "100 %, finishing"


def test_without_a_duration_iterations_count() -> None:
    now = [0.0]
    made = Remaining(WorkloadSpec("write_lat", {"iterations": 8}), lambda: now[0])
    made.observe(so_far(0.0))
    now[0] += 60
    made.observe(so_far(3.0, iterations=2))
    assert made.text() == "25 %, 3 min remain"


@given(st.floats(0, 1e6))
def test_durations_have_a_unit(seconds: float) -> None:
    number, unit = duration_text(seconds).split()
    assert float(number) >= 0
    assert unit in ("s", "min", "h")
