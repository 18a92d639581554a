"""The Python API: labs, jobs and results of scripts, on both clocks."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import networkx
import pytest

import mrclab
from mrc_topo.base.document import DocumentError
from mrc_topo.base.errors import MrclabError, UsageError
from mrclab import Lab
from mrclab.api import JobError
from mrclab.lab.faults.action import FailureError
from mrclab.lab.records.rundir import all_runs
from mrclab.runs.experiment import ExperimentError

CLOCKS = ["virtual", pytest.param("real", marks=pytest.mark.lab)]


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_script_of_the_readme_runs_on_both_clocks(clock: str, tmp_path: pathlib.Path) -> None:
    with Lab("tiny", clock=clock, name="api-script") as lab:  # type: ignore[arg-type]
        job = lab.start("ring_all_reduce", size="64KiB")
        lab.advance("1s")
        done = job.iterations
        assert done > 0
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
    assert [each.what for each in result.checks if not each.passed] == []
    assert result.passed
    assert min(each.iterations for each in result.run.progress.values()) > done
    assert result.run.books is not None
    assert result.run.books.balanced
    assert result.recovery("p0-t1.1") is not None
    assert result.frame("events")["what"] == ["freeze p0-t1.1", "restore p0-t1.1 (freeze)"]
    bins = result.frame()
    assert len(bins["t_s"]) == len(bins["goodput_bps"]) > 10
    assert {"host", "t_ns"} <= result.frame("samples").keys()
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
        job = lab.start("ring_all_reduce", size="16KiB")
        lab.at("500ms", "h0:1", lasts="500ms")
        lab.advance(2)
        assert lab.now == pytest.approx(2.51, abs=1e-6)
        assert job.stop().frame("events")["t_s"] == pytest.approx([0.5, 1.0], abs=0.01)


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


def test_counters_and_statistics() -> None:
    with Lab("tiny") as lab:
        lab.run("all_to_all", iterations=1)
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
        (lambda lab: lab.hosts["h0"].run("true"), UsageError, "simulated"),
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


def test_a_lab_that_is_wrong_is_refused() -> None:
    with pytest.raises(DocumentError, match="planets"):
        Lab("tiny", planets=3)
    with pytest.raises(DocumentError, match="no lab"):
        Lab("no-such-lab")


def test_import_of_the_package_imports_nothing_else() -> None:
    code = "import sys, mrclab; print([name for name in ('numpy', 'pydantic', 'mrclab.api') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="nothing"):
        _ = mrclab.nothing


@pytest.mark.lab
def test_a_script_that_dies_takes_its_lab_down(tmp_path: pathlib.Path) -> None:
    code = "from mrclab import Lab\nlab = Lab('tiny', clock='real', name='api-dies')\n"
    code += "print(lab.hosts['h0'].run('cat', '/proc/sys/kernel/hostname').stdout)\n"
    code += "again = Lab.attach('api-dies')\nagain.close()\nraise SystemExit(len(again.hosts))\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("h0", 4), done.stderr
    assert "api-dies" not in [run.name for run in all_runs()]


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
    words = ["-P", "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), str(tmp_path)]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    (kept,) = (tmp_path / "base").rglob("report.html")
    assert str(kept) in done.stdout
