"""The Python API: labs, jobs and results of scripts, on both clocks."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import networkx
import pytest

import mrclab
from mrc_host import verbs
from mrc_topo.base.errors import MrclabError, UsageError
from mrc_topo.shipped import shipped
from mrclab import Lab
from mrclab.api import JobError, Result
from mrclab.lab.faults.action import FailureError
from mrclab.lab.records.rundir import RunDir, RunError, all_runs
from mrclab.runs.experiment import ExperimentError
from p4lite_tools.interpreter.events import TableApplied

CLOCKS = ["virtual", pytest.param("real", marks=pytest.mark.lab)]


def missed(result: Result) -> list[str]:
    """Return the checks that were missed, without those of times, which a busy machine misses."""
    return [each.what for each in result.checks if not each.passed and not each.timed]


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_script_of_the_readme_runs_on_both_clocks(clock: str, tmp_path: pathlib.Path) -> None:
    with Lab("tiny", clock=clock, name="api-script") as lab:  # type: ignore[arg-type]
        job = lab.start("ring_all_reduce", size="64KiB")
        lab.advance("1s")
        while not (done := job.iterations):
            lab.advance("200ms")
        assert job.delivered_bytes > 0
        with lab.fail("p0-t1.1", kind="freeze") as failure:
            assert lab.broken == ["p0-t1.1"]
            assert lab.switches["p0-t1.1"].broken
            lab.advance("1.5s")
        assert lab.broken == []
        lab.advance("1s")
        result = job.stop()
        assert job.stop() is result
    assert failure.action.kind == "freeze"
    assert missed(result) == []
    assert min(each.iterations for each in result.run.progress.values()) > done
    assert result.run.books is not None
    assert result.run.books.balanced
    if clock == "virtual":
        assert result.passed
        assert result.recovery("p0-t1.1") is not None
    assert result.frame("events")["what"] == ["freeze p0-t1.1", "restore p0-t1.1 (freeze)"]
    bins = result.frame()
    assert len(bins["t_s"]) == len(bins["goodput_bps"]) > 10
    samples = result.frame("samples")
    # The last is asked for when all ranks have ended.
    assert 0 <= min(samples["t_s"]) < 1
    assert result.seconds <= max(samples["t_s"]) == pytest.approx(result.run.seconds)
    result.report(tmp_path / "report.html")
    assert "p0-t1.1" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "api-script" not in [run.name for run in all_runs()]


def test_same_script_has_the_same_result() -> None:
    def totals() -> dict[str, int]:
        with Lab("tiny") as lab:
            return dict(lab.run("all_to_all", iterations=1).totals)

    first = totals()
    assert first == totals()
    assert first["packets"] == 768


def test_scheduled_failures_come_at_their_time_with_and_without_a_job() -> None:
    with Lab("tiny") as lab:
        lab.at("200ms", "p0-t0.0--p0-t1.0", lasts=0.3)
        lab.advance(0.19)
        assert lab.broken == []
        lab.advance(0.02)
        assert lab.broken == ["p0-t0.0--p0-t1.0"]
        lab.advance(0.3)
        assert lab.broken == []
        assert lab.now == pytest.approx(0.51, abs=1e-6)
        lab.at("300ms", "h1:1", lasts="400ms")  # it is done by the job that begins now
        job = lab.start("ring_all_reduce", size="16KiB")
        lab.at("500ms", "h0:1", lasts="500ms")
        lab.at("1.8s", "h1:0", lasts="1s")
        lab.advance(2)
        assert lab.now == pytest.approx(2.51, abs=1e-6)
        events = job.stop().frame("events")
        assert events["t_s"] == pytest.approx([0.3, 0.5, 0.7, 1.0, 1.8], abs=0.01)
        # It ends after the job.
        assert lab.broken == ["h1:0"]
        lab.advance(1)
        assert lab.broken == []


def test_the_schedule_goes_on_after_a_job_that_has_ended_by_itself() -> None:
    with Lab("tiny") as lab:
        lab.start("all_to_all", iterations=1)
        lab.at("1s", "h0:0", lasts="1s")
        lab.advance(1.5)
        assert lab.broken == ["h0:0"]
        lab.advance(1)
        assert lab.broken == []


def test_a_job_that_has_ended_lets_time_pass() -> None:
    with Lab("tiny") as lab:
        job = lab.start("all_to_all", iterations=1)
        lab.advance(3)
        assert job.done
        assert lab.now == pytest.approx(3, abs=1e-6)
        assert job.wait().passed
        assert lab.run("all_to_all", duration="300ms").seconds < 1
        with pytest.raises(JobError, match="neither duration nor iterations"):
            lab.start("all_to_all").wait()
        with pytest.raises(JobError, match="all_to_all still runs"):
            lab.start("write_bw")


def test_labs_from_keys_and_graphs() -> None:
    with Lab("tiny", planes=1, seed=7) as lab:
        assert (lab.topology.lab.planes, lab.topology.lab.seed) == (1, 7)
    graph = networkx.Graph()
    graph.add_nodes_from(["h0", "h1", "h2"], kind="host")
    graph.add_edges_from([("s0", "s1"), ("s1", "s2"), ("s2", "s0")], rate="10Mbps")
    graph.add_edges_from((f"h{number}", f"s{number}") for number in range(3))
    with Lab(graph, path_mtu=1024, ev={"size": 8, "active": 4}) as lab:
        assert sorted(lab.hosts) == ["h0", "h1", "h2"]
        link = lab.links["s0--s1"]
        assert (link.ends, link.rate_bps) == (("s0", "s1"), 10_000_000)
        assert len(lab.hosts["h0"].addresses) == 1
        assert lab.hosts["h0"].ports[0].ends == ("h0", "s0")
        assert lab.run("all_to_all", iterations=1).passed


def test_a_route_that_a_script_removes_is_one_that_packets_miss() -> None:
    with Lab("tiny") as lab:
        switch, host = lab.switches["p0-t0.0"], lab.hosts["h0"]
        # What the compiler makes for itself is not a controller's.
        assert all(name.startswith("FabricIngress.") for name in switch.tables)
        job = lab.start("all_to_all")
        lab.advance("300ms")
        every = host.ev_states["GOOD"]
        assert sorted(host.ev_states.values()) == [0, 0, 0, every]
        routes = switch.tables["usid_routes"]
        assert len(routes) == 4  # two uplinks, two hosts
        entry = next(entry for entry in routes if entry.action.arguments == {"port": 1})
        del routes[entry.key]
        lab.advance("300ms")
        assert 0 < host.ev_states["ASSUMED_BAD"] < every
        routes[entry.key] = entry.action
        lab.advance("1s")
        assert host.ev_states["ASSUMED_BAD"] == 0
        result = job.stop()
    assert result.passed
    assert result.program_counters["drop_no_route"] > 0
    with pytest.raises(UsageError):
        _ = switch.tables


def test_counters_and_statistics() -> None:
    with Lab("tiny") as lab:
        with lab.links["h0:0"].impair(loss=0.2) as impaired:
            assert (impaired.action.kind, lab.broken) == ("impair", ["h0:0"])
            assert lab.run("all_to_all", iterations=1).totals["retransmissions"] > 0
        received = lab.switches["p0-t0.0"].counter("FabricIngress.port_rx")
        ports = lab.session.stats()[lab.switches["p0-t0.0"].device_id].ports
        assert [packets for packets, _ in received][1:4] == [ports[number].rx_packets for number in (1, 2, 3)]
        assert sum(packets for packets, _ in received) > 0
        assert lab.hosts["h0"].statistics().links[0].sent_packets > 0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda lab: lab.fail("p9-t0.0"), UsageError, "p9-t0.0"),
        (lambda lab: lab.fail("p0-t1.0", kind="explode"), FailureError, "explode"),
        (lambda lab: lab.fail("h0:0", kind="impair", loss="many"), FailureError, "loss"),
        (lambda lab: lab.at("soon", "h0:0"), UsageError, "is no time"),
        (lambda lab: lab.advance(-1), UsageError, "from 0 to"),
        (lambda lab: lab.restore("h0:0"), UsageError, "h0:0"),
        (lambda lab: lab.start("nothing"), ExperimentError, "no workload 'nothing'"),
        (lambda lab: lab.start("all_to_all", blocks=3), ExperimentError, "blocks"),
        (lambda lab: lab.start("ring_all_reduce", size="64K"), ExperimentError, "size needs a unit, unlike '64K'"),
        (lambda lab: lab.start("all_to_all", hosts="h0,h1"), JobError, "list of names"),
        (lambda lab: lab.start("all_to_all", hosts=["nope", "h0"]), ExperimentError, "no host 'nope'"),
        (lambda lab: lab.start("all_to_all", block="100GiB"), ExperimentError, "start"),
        (lambda lab: lab.start("all_to_all", expect={"localised": True}), JobError, "mrclab run"),
        (lambda lab: lab.run("all_to_all"), JobError, "neither duration nor iterations"),
        (lambda lab: lab.links["p0-t0.0--p0-t9.0"], UsageError, "near ones"),
        (lambda lab: lab.hosts["p0-t0.0"], UsageError, "there are h0"),
        (lambda lab: lab.switches["p0-t0.0"].counter("port_rx"), UsageError, "FabricIngress.port_rx"),
        (lambda lab: lab.hosts["h0"].run("true"), UsageError, "simulated"),
        (lambda lab: lab.hosts["h0"].verbs(), UsageError, "simulated"),
        (lambda lab: lab.run("all_to_all", iterations=1).recovery("h0:0"), UsageError, "did not fail"),
        (lambda lab: lab.run("all_to_all", iterations=1).frame("nothing"), UsageError, "no frame"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_errors_of_one_tree_and_leave_the_lab_as_it_was(call, error, text) -> None:  # type: ignore[no-untyped-def]
    with Lab("tiny") as lab:
        with pytest.raises(error, match=text):
            call(lab)
        assert issubclass(error, MrclabError)
        assert lab.broken == []
        assert lab.run("all_to_all", iterations=1).passed


@pytest.mark.parametrize(
    ("arguments", "keys", "text"),
    [
        (("tiny",), {"planets": 3}, r"^Lab\(\.\.\.\): planets"),
        (("no-such-lab",), {}, "no lab"),
        (("tiny",), {"clock": "simulated"}, "no clock 'simulated'; known: virtual, real"),
        (("tiny",), {"transport": "tcp"}, "no transport 'tcp'"),
        ((3,), {}, "not int"),
        ((networkx.path_graph(3),), {}, "kind='host'"),
        (("tiny",), {"program": "none.p4"}, "none.p4"),
    ],
)
def test_a_lab_that_is_wrong_is_refused(
    arguments: tuple[Any, ...], keys: dict[str, Any], text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MrclabError, match=text) as caught:
        Lab(*arguments, **keys)
    assert "scratch" not in str(caught.value)


def test_files_are_relative_to_the_current_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    programs = shipped("programs")
    shutil.copytree(programs, tmp_path / "own")
    with Lab("tiny", program="own/fabric.p4") as lab:
        assert lab.run("all_to_all", iterations=1).passed
        assert "FabricIngress.port_rx" in lab.switches["p0-t0.0"].counters


def test_a_lab_of_keys_alone() -> None:
    with Lab({"planes": 1, "hosts": 2, "hosts_per_t0": 1, "t0_per_plane": 2, "t1_per_plane": 1}) as lab:
        assert sorted(lab.hosts) == ["h0", "h1"]
        assert repr(lab) == "<Lab script, virtual clock>"


def test_a_scheduled_action_that_cannot_be_done_is_an_error_of_the_time_in_which_it_was_due() -> None:
    with Lab("tiny") as lab:
        lab.at("100ms", "h0:0", lasts="100ms")
        lab.advance("150ms")
        lab.restore("h0:0")
        with pytest.raises(FailureError, match="h0:0"):
            lab.advance("50ms")
        lab.advance("50ms")
        with pytest.raises(UsageError, match="no time"):
            lab.at("100ms", "h0:0", lasts="-1s")
        lab.advance("200ms")
        assert lab.broken == []


def test_a_failure_in_a_context_does_not_hide_what_went_wrong_there() -> None:
    with Lab("tiny") as lab:
        with pytest.raises(KeyError, match="mine"), lab.fail("h0:0") as failure:  # noqa: PT012 - the context is tested
            failure.restore()
            raise KeyError("mine")
        with lab.fail("h0:0"):
            lab.restore()
        with pytest.raises(FailureError):
            failure.restore()


def test_what_comes_after_the_end_of_a_job_is_not_in_its_result() -> None:
    with Lab("tiny") as lab:
        job = lab.start("all_to_all", duration="500ms")
        lab.advance("1s")
        assert job.done
        with lab.fail("h0:0"):
            lab.advance("1s")
        result = job.stop()
    assert result.frame("events")["t_s"] == []
    assert result.run.seconds < 0.8
    assert result.passed
    with pytest.raises(UsageError, match="did not fail"):
        result.recovery("h0:0")


def test_a_pause_of_the_script_does_not_end_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the real clock, whose time goes on while a script computes: 40 s pass between two turns."""
    with Lab("tiny") as lab:
        job = lab.start("all_to_all", duration="1s")
        lab.advance("500ms")
        loop = job._run.loop
        assert loop._start_ns is not None
        monkeypatch.setattr(loop, "_start_ns", loop._start_ns - 40_000_000_000)
        assert job.wait().passed


def test_recovery_is_that_of_the_first_failure() -> None:
    with Lab("tiny") as lab:
        job = lab.start("all_to_all", duration="2s")
        lab.at("50ms", "h0:0", lasts="450ms")
        lab.at("1s", "h0:0", lasts="500ms")
        with pytest.raises(UsageError, match="too close"):
            job.wait().recovery("h0:0")


def test_expectations_are_checks_of_the_result() -> None:
    with Lab("tiny") as lab:
        lab.at("500ms", "p0-t1.0", kind="freeze")
        result = lab.run("all_to_all", duration="3s", expect={"recovery": "1s", "min_share": 0.1})
        assert [each.what for each in result.checks if not each.passed] == []
        assert sum(each.what.endswith("after freeze p0-t1.0") for each in result.checks) == 2
        assert lab.results == [result]
        with pytest.raises(ExperimentError, match="recovry"):
            lab.start("all_to_all", expect={"recovry": 1})


def test_a_closed_lab_says_so() -> None:
    lab = Lab("tiny")
    job = lab.start("all_to_all")
    lab.close()
    lab.close()
    calls: list[Callable[[], object]] = [
        lambda: lab.advance(1),
        lambda: lab.fail("h0:0"),
        lambda: lab.start("all_to_all"),
        lambda: lab.broken,
        job.stop,
    ]
    for call in calls:
        with pytest.raises(UsageError, match="lab 'tiny' is closed"):
            call()
    assert repr(lab) == "<Lab tiny, virtual clock, closed>"
    assert "closed" in lab._repr_html_()


def test_a_lab_that_could_not_be_opened_can_be_shown() -> None:
    lab = Lab.__new__(Lab)
    with pytest.raises(MrclabError):
        lab.__init__("tiny", sed=3)  # type: ignore[misc]
    assert repr(lab) == "<Lab that could not be opened>"


INTERRUPTED = """
import signal
from mrclab import Lab
signal.signal(signal.SIGINT, signal.default_int_handler)
with Lab("tiny") as lab:
    job = lab.start("all_to_all")
    for attempt in range(2):
        print("runs", flush=True)
        try:
            lab.advance("10000s")
        except KeyboardInterrupt:
            print(lab.now < 10000)
    lab.advance("1s")
    print(job.stop().passed)
"""


@pytest.mark.slow
def test_ctrl_c_in_simulated_time_leaves_a_lab_and_a_job_that_go_on() -> None:
    """Again and again: a notebook's user stops a cell more than once."""
    words = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        for _ in range(2):
            assert script.stdout.readline() == "runs\n"
            time.sleep(0.6)
            script.send_signal(signal.SIGINT)
            assert script.stdout.readline() == "True\n"
        said, errors = script.communicate(timeout=120)
    assert (said, script.returncode) == ("True\n", 0), errors


def test_import_of_the_package_imports_nothing_else() -> None:
    code = "import sys, mrclab; print([name for name in ('numpy', 'pydantic', 'mrclab.api') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="nothing"):
        _ = mrclab.nothing


@pytest.mark.lab
def test_a_job_that_is_given_up_ends_on_a_lab_that_stays_up() -> None:
    with Lab("tiny", clock="real", name="api-stays") as lab:
        with pytest.raises(KeyError), Lab.attach("api-stays") as other:  # noqa: PT012 - the context is tested
            job = other.start("ring_all_reduce", size="64KiB")
            other.advance("200ms")
            raise KeyError
        assert not any(host.statistics().qps for host in lab.hosts.values()), job
        with pytest.raises(RunError, match="is up with other planes"):
            Lab("tiny", clock="real", name="api-stays", planes=1)
        # Its switches are in another process, which serves P4Runtime.
        with pytest.raises(UsageError, match="unix:/"):
            _ = lab.switches["p0-t0.0"].tables
        assert missed(lab.run("all_to_all", iterations=1)) == []


@pytest.mark.lab
def test_a_script_writes_from_the_memory_of_a_host_to_that_of_another() -> None:
    with Lab("tiny", clock="real", name="api-verbs") as lab, contextlib.ExitStack() as stack:
        ends = []
        if os.geteuid() == 0 and RunDir("api-verbs").read().uid > 0:
            with pytest.raises(UsageError, match="user"):
                lab.hosts["h0"].verbs()
            return
        for host in ("h0", "h1"):
            context = stack.enter_context(lab.hosts[host].verbs())
            pd, cq = verbs.ProtectionDomain(context), verbs.CompletionQueue(context, 16)
            ends.append((cq, verbs.MemoryRegion(pd, 4096), verbs.QueuePair(pd, cq)))
        (cq, _, qp), (_, theirs, other) = ends
        qp.connect(other.document())
        other.connect(qp.document())
        qp.post_write(b"hello,", *theirs.remote[:2], flags=verbs.SendFlags.INLINE | verbs.SendFlags.SIGNALED)
        deadline = time.monotonic() + 20
        while not (done := cq.poll()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [each.status for each in done] == [verbs.WcStatus.SUCCESS]
        assert theirs.read(6) == b"hello,"
        assert lab.hosts["h1"].statistics().qps


@pytest.mark.lab
def test_a_switch_shows_what_its_program_does_with_a_packet() -> None:
    with Lab("tiny", clock="real", name="api-trace") as lab:
        job = lab.start("ring_all_reduce", size="4MiB")
        traced = lab.switches["p0-t0.0"].trace(packets=2, within="20s")
        job.stop()
    applied = [[event.table for event in packet if isinstance(event, TableApplied)] for packet in traced.packets]
    assert len(applied) == 2
    assert all(applied)
    with Lab("tiny", clock="virtual") as lab, pytest.raises(UsageError, match="real clock"):
        lab.switches["p0-t0.0"].trace()


@pytest.mark.lab
def test_a_script_that_dies_takes_its_lab_down(tmp_path: pathlib.Path) -> None:
    code = "from mrclab import Lab\nlab = Lab('tiny', clock='real', name='api-dies')\n"
    code += "print(lab.hosts['h0'].run('cat', '/proc/sys/kernel/hostname').stdout)\n"
    code += "again = Lab.attach('api-dies')\nagain.close()\nraise SystemExit(len(again.hosts))\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("h0", 4), done.stderr
    assert "api-dies" not in [run.name for run in all_runs()]


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("is_up", [True, False])
def test_a_script_that_is_killed_takes_its_lab_down(
    number: signal.Signals, is_up: bool, tmp_path: pathlib.Path
) -> None:
    name = f"api-{number.name.lower()}-{is_up:d}"
    code = "import time\nfrom mrclab import Lab\n"
    code += f"lab = Lab('tiny', clock='real', name='{name}')\nprint('up', flush=True)\ntime.sleep(600)\n"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        if is_up:
            assert script.stdout.readline() == "up\n"
        while name not in [run.name for run in all_runs()]:
            assert not is_up
            assert script.poll() is None
            time.sleep(0.01)
        script.send_signal(number)
    deadline = time.monotonic() + 60
    while name in [run.name for run in all_runs()]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


PLUGIN = """
import pytest

@pytest.mark.lab("tiny", planes=1)
def test_one_plane(lab):
    assert lab.topology.lab.planes == 1
    assert lab.run("all_to_all", iterations=1).passed

def test_that_fails(lab):
    assert lab.topology.lab.planes == 2
    assert not lab.run("all_to_all", iterations=1).passed
"""


def test_plugin_gives_tests_a_lab_and_keeps_the_report_of_one_that_fails(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_mine.py").write_text(PLUGIN)
    (tmp_path / "conftest.py").write_text('pytest_plugins = "mrclab.pytest_plugin"\n')
    words = [
        "-P",
        "-m",
        "pytest",
        "--strict-markers",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "base"),
        str(tmp_path),
    ]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    (kept,) = (tmp_path / "base").rglob("report.html")
    assert str(kept) in done.stdout


def test_flows_come_from_a_file_beside_the_script_or_experiment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("two.csv").write_text("source,target,bytes,start\n0,1,200kB,0\n1,0,1MB,1ms\n")
    with Lab("tiny", clock="virtual") as lab:
        result = lab.run("flows", flows="two.csv", iterations=1)
        assert missed(result) == []
        assert result.run.delivered_bytes() == 1_200_000
