"""`mrclab scale`: a cluster from its file to a report, others on the same failures, a year, what it says of itself."""

from __future__ import annotations

import html
import importlib.util
import json
import math
import pathlib
import re
import zlib
from typing import Any

import numpy as np
import pytest
import typer.testing

from mrc_fluid import baselines, kernels, validate
from mrc_fluid.calibration import produce, report
from mrc_fluid.calibration.produce import ScaleError
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.effective import FACTORS, INTERVALS, daly_minutes, effective_share
from mrc_fluid.fabric import DEAD, Fabric
from mrc_fluid.jobs import Flows, flows
from mrc_fluid.run import ClusterResult, ClusterRun
from mrc_fluid.schema import YearSpec
from mrc_fluid.year import YearOutcome
from mrc_topo import addressing, ev
from mrc_topo.modes import ecmp_salt
from mrc_topo.shipped import install
from mrclab.cli.app import app

SMALL = """
name: small
radix: 16
planes: 4
nics: 64
ev: {size: 32, active: 16}
duration: 5s
jobs:
  - {name: experts, kind: all_to_all, group: 16, peers: 2, message: 16MiB, compute: 1ms, placement: random}
failures:
  - {at: 1s, fail: p1-t1.7, for: 1s}
  - {at: 3s, fail: "h3:1", for: 1s}
"""
PODS = SMALL.replace("radix: 16\nplanes: 4", "radix: 8\ntiers: 3\nplanes: 4").replace("p1-t1.7", "p1-t2.3")
runner = typer.testing.CliRunner()


def small(text: str = SMALL) -> Loaded:
    return parse_cluster(text, "small.yaml")


@pytest.fixture(scope="module")
def made() -> Any:
    return produce.run(small(SMALL + "year: {}\n"), kernels.reference())


def test_failures_cost_what_they_must_and_all_comes_back(made: Any) -> None:
    result: ClusterResult = made.result
    by_bin = {step.bin: step for step in result.steps}
    assert sorted(by_bin) == [0, 10, 20, 30, 40]
    assert [step.lost > 0 for step in result.steps] == [False, True, False, True, False]
    evs = int((result.flows.src // 8 != result.flows.dst // 8).sum()) * 16
    # A T1 is of one plane; of its eight T1s each queue pair uses four.
    assert 0.3 * evs / 32 < by_bin[10].evs["bad"] < 3 * evs / 32
    assert by_bin[20].evs["bad"] == 0
    assert by_bin[30].cut == 0  # h3 has three planes more
    assert by_bin[40].evs == by_bin[0].evs
    assert by_bin[40].cut == 0
    # All is back, but as backups: the EVs in use are those of the failure, and so is goodput, also after another one.
    assert by_bin[20].goodput == by_bin[10].goodput < by_bin[0].goodput
    assert by_bin[40].goodput == pytest.approx(by_bin[20].goodput, rel=1e-12)
    assert result.worst_bin == min((10, 30), key=lambda number: by_bin[number].goodput)


def test_series_say_what_steps_say(made: Any) -> None:
    series = made.result.series()
    assert len(series["time_s"]) == 50
    step = made.result.steps[1]
    assert series["goodput_bps"][10] == series["goodput_bps"][15] == step.goodput
    assert step.probes > 0
    assert series["lost_per_s_nic"][10] * 64 * 0.1 == pytest.approx(step.lost)
    assert series["probes_lost_per_s_nic"][10] * 64 == pytest.approx(step.probes)
    assert (series["ev_active"] + series["ev_backup"] + series["ev_bad"] + series["ev_denied"] == 32 * 128).all()


def test_the_report_is_one_file_with_all_links_and_asks_nothing_of_the_network(made: Any) -> None:
    page = report.render(made, made.result.series())
    assert not re.search(r"(src|href)=|https?:|@import|url\(", page)
    for head in ("What happened", "Load of links", "Jobs", "Others", "365 days"):
        assert f"<h2>{head}" in page
    found = re.findall(r'<figure class="chart" id="(\w+)"', page)
    assert found == ["goodput", "lost", "evs", "jobs"]
    assert page.index("How far this run can be trusted") < page.index('<figure class="chart"')
    held = json.loads(re.search(r'id="maps">(.*?)</script>', page)[1])  # type: ignore[index]
    loads = zlib.decompress(__import__("base64").b64decode(held["maps"][1]["data"][0]))
    assert len(loads) == 4 * 8 * 8
    assert loads.count(report.DEAD) == made.result.dead_links.sum()
    assert "fluid" in page


def test_what_a_run_writes(made: Any, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra `scale` is not installed")
    import pyarrow.parquet as parquet

    files = produce.write(made, tmp_path)
    assert sorted(files) == sorted(path.name for path in tmp_path.iterdir())
    links = parquet.read_table(tmp_path / "links.parquet")
    assert links.num_rows == 4 * 8 * 8
    assert sum(links["dead"].to_pylist()) == made.result.dead_links.sum()
    assert parquet.read_table(tmp_path / "series.parquet").num_rows == 50
    assert parquet.read_table(tmp_path / "queue_pairs.parquet").num_rows == 128


def test_fullest_link_is_that_of_the_table_of_links(made: Any) -> None:
    result: ClusterResult = made.result
    told = report.fullest(result)
    most = max(float(result.first.up.max()), float(result.first.dn.max()))
    assert re.match(rf"fullest T0-T1 link: p[0-3]-t0\.[0-7]--p[0-3]-t1\.[0-7], {most:.0%} at first; ", told)
    packed = SMALL.replace("placement: random", "placement: packed").replace("group: 16", "group: 8")
    assert report.fullest(ClusterRun(small(packed), kernels.reference()).mrc()).startswith("no stream crosses")


def test_the_same_file_gives_the_same_result() -> None:
    one, other = (ClusterRun(small(), kernels.reference()).mrc() for _ in range(2))
    assert [vars(step) for step in one.steps] == [vars(step) for step in other.steps]
    assert (one.worst.up == other.worst.up).all()


@pytest.mark.parametrize("text", [SMALL, PODS], ids=["two tiers", "three tiers"])
def test_both_versions_of_the_kernels_give_one_result(text: str) -> None:
    pytest.importorskip("numba", reason="the extra `scale` is not installed")
    one, other = (ClusterRun(small(text), each).mrc() for each in (kernels.reference(), kernels.compiled()))
    for a, b in zip(one.steps, other.steps, strict=True):
        assert (a.evs, a.hit, a.cut) == (b.evs, b.hit, b.cut)
        assert a.goodput == pytest.approx(b.goodput, rel=1e-9)
        assert a.lost == pytest.approx(b.lost, rel=1e-9)


def test_a_start_without_denylists_loses_packets_and_with_them_none() -> None:
    text = SMALL.replace("failures:", "failures:\n  - {at: 0s, fail: links, count: 6}")
    unknown, known = (small(text + f"denylist: {listed}\n") for listed in ("false", "true"))
    first, other = (ClusterRun(each, kernels.reference()).mrc().steps[0] for each in (unknown, known))
    assert first.lost > 0
    assert first.evs["denied"] == 0
    assert other.lost == 0
    assert other.evs["denied"] > 0
    assert other.evs["bad"] == 0


def test_a_dead_t0_cuts_a_plane_off_and_loses_only_what_is_on_its_way() -> None:
    result = ClusterRun(small(SMALL.replace("p1-t1.7", "p1-t0.2")), kernels.reference()).mrc()
    before, after = result.steps[0], result.steps[1]
    assert after.evs["bad"] == 0  # who sees its port go down blames no EV
    assert after.hit > 0
    mine = (result.flows.src // 8 == 2) | (result.flows.dst // 8 == 2)
    assert after.hit <= int(mine.sum())
    assert after.goodput < before.goodput


@pytest.mark.parametrize("kind", ["all_to_all", "ring", "tree", "incast"])
@pytest.mark.parametrize("placement", ["packed", "striped", "random"])
def test_jobs_use_their_nics_and_no_others(kind: str, placement: str) -> None:
    job = f"jobs: [{{name: a, kind: {kind}, nics: 32, group: 8, placement: {placement}}}, {{name: b, kind: ring}}]"
    loaded = small(re.sub(r"jobs:\n.*\n", job + "\n", SMALL))
    found = flows(loaded.cluster.jobs, loaded.shape, 1)
    nics = [set(found.src[found.job == number]) | set(found.dst[found.job == number]) for number in range(2)]
    assert len(nics[0]) == len(nics[1]) == 32
    assert not nics[0] & nics[1]
    assert (found.src != found.dst).all()
    per_group = {"all_to_all": 8, "ring": 8, "tree": 14, "incast": 7}[kind]
    assert (found.job == 0).sum() == 4 * per_group
    assert (np.diff(found.src) >= 0).all()


def test_roce_takes_the_uplinks_that_the_switches_hash_to() -> None:
    loaded = small()
    shape = loaded.shape
    every = Flows(*(np.array(each, np.int32) for each in ([0, 9, 63], [62, 1, 5], [0, 0, 0])), np.ones(3))  # type: ignore[arg-type, call-arg]
    ports = np.array([0xC000, 0xC123, 0xFFFF])
    for plane in range(2):
        found = baselines.uplinks(shape, every, plane, ports)
        for number, (src, dst) in enumerate(zip(every.src.tolist(), every.dst.tolist(), strict=True)):
            t0 = 1 + plane * (shape.t0s + shape.t1s) + src // 8
            ends = (addressing.host_address(nic // 8, nic % 8) for nic in (src, dst))
            whole = ev.ecmp_uplink(  # type: ignore[call-arg]
                ecmp_salt(t0), *ends, 0, (int(ports[number]), addressing.UDP_PORT), 17, 1 << 32  # type: ignore[arg-type]
            )  # fmt: skip
            assert found[number] == whole


def test_others_stand_still_and_break_where_mrc_does_not(made: Any) -> None:
    oblivious, reps, ecmp, adaptive = made.others
    assert ecmp.before < oblivious.before <= reps.before * (1 + 1e-9)
    assert oblivious.during < oblivious.after
    assert reps.during == reps.after  # it does not use a dead EV again
    assert ecmp.before < adaptive.before
    assert ecmp.during <= ecmp.after * (1 + 1e-9)
    loaded = small(SMALL.replace('"h3:1"', '"h3:1", count: 1'))
    whole, failed = baselines.fabrics(loaded.shape, [("p1-t1.7", None, DEAD)])
    every = ClusterRun(loaded, kernels.reference())
    fair = np.full(len(every.flows), 1e11)
    for each in (
        baselines.ecmp(loaded.shape, every.flows, every.ends, whole, failed, loaded.cluster.roce, every.kernels, 1.0),
        baselines.adaptive(loaded.shape, every.flows, every.ends, whole, failed, fair, loaded.cluster.roce, 1.0),
    ):
        assert each.stalled > 0
        assert each.broken == 0
        assert each.during < each.after
    _, failed = baselines.fabrics(loaded.shape, [("h3:1", None, DEAD)])
    ports = baselines.ecmp(
        loaded.shape, every.flows, every.ends, whole, failed, loaded.cluster.roce, every.kernels, 1.0
    )
    assert ports.broken == int(((every.flows.src == 3) | (every.flows.dst == 3)).sum())


def test_a_year_costs_roce_more_and_more_failures_cost_more(made: Any) -> None:
    mrc, roce = made.year
    assert 0 < mrc.lost_h < roce.lost_h < roce.hours
    assert mrc.interruptions == 0 < roce.interruptions
    text = SMALL + "year: {flaps: {per_year: 100, hours: 1}, ports: {per_year: 3, hours: 24}}\n"
    worse = produce.run(small(text), kernels.reference()).year
    assert worse[0].lost_h > mrc.lost_h
    assert worse[1].interruptions > roce.interruptions


def test_the_best_interval_between_checkpoints_is_near_dalys() -> None:
    year = YearSpec(checkpoint_write_minutes=1, restart_minutes=10)
    outcome = YearOutcome("x", 0, 240, 0.0, 0.0, 0.0, 24 * 100)  # an interruption every 600 minutes
    best = daly_minutes(1, 600)
    assert best == pytest.approx(math.sqrt(1200))
    shares = {minutes: effective_share(outcome, year, minutes) for minutes in np.linspace(5, 200, 400)}
    assert max(shares, key=lambda minutes: shares[minutes]) == pytest.approx(best, rel=0.05)


def test_a_job_without_failures_loses_only_its_checkpoints() -> None:
    outcome = YearOutcome("x", 0, 0, 0.0, 0.0, 0.0, 100.0)
    assert effective_share(outcome, YearSpec(checkpoint_write_minutes=2), 18) == 0.9


def test_effective_time_is_of_each_design_rate_and_interval(made: Any) -> None:
    rows = made.effective
    assert len(rows) == 2 * len(FACTORS) * len(INTERVALS)
    assert all(0 <= each.share <= 1 for each in rows)
    roce = [each for each in rows if each.name.startswith("RoCE") and each.checkpoint_minutes == 60]
    assert [each.rates for each in roce] == list(FACTORS)
    assert [each.interruptions for each in roce] == sorted(each.interruptions for each in roce)
    page = report.render(made, made.result.series())
    assert "Effective training time" in page
    assert report.effective_rows(made)[0][1] == "0.5"


def test_a_year_says_what_the_fabrics_cost(made: Any, tmp_path: pathlib.Path) -> None:
    from mrc_fluid import cli_scale as scale
    from mrc_topo.plan import bill, load_costs, plan

    page = report.render(made, made.result.series())
    summary = scale._summary(made, tmp_path)["bills"]
    designs = plan(16, 4, 64)
    for design in (designs.multi_plane, designs.three_tier):
        # Ports are 100 Gb/s in four planes; the file's NICs have 800.
        wanted = bill(design, load_costs().model_copy(update={"nic_gbps": 400.0}))
        assert summary[design.name] == wanted.as_dict()  # type: ignore[index]
        assert f"<td>{design.optics:,}</td>" in page
        assert f"<td>{wanted.switch_usd / 1e6:,.1f}</td>" in page


def test_json_and_report_have_the_error_of_the_run_s_own_cases(made: Any, tmp_path: pathlib.Path) -> None:
    from mrc_fluid import cli_scale as scale

    summary: dict[str, Any] = scale._summary(made, tmp_path)
    assert [each["case"] for each in summary["own_cases"]] == ["a T1 is dead", "a NIC port goes down"]
    first, second = summary["own_cases"]
    assert (first["compared"], first["nics"], first["of_this_size"]) == (128, 64, True)
    assert {"goodput", "p99", "streams"} <= first.keys()
    assert (second["compared"], second["goodput"]) == (None, None)
    assert summary["limits"][:2] == [each["text"] for each in summary["own_cases"]]
    page = report.render(made, made.result.series())
    assert all(html.escape(each["case"]) in page for each in summary["own_cases"])
    json.dumps(summary)


def test_elements_are_those_of_the_fabric() -> None:
    fabric = Fabric(small().shape)
    for kind in ("links", "ports", "t0s", "t1s"):
        for number in (0, fabric.count(kind) - 1):
            fabric.change(fabric.name(kind, number), 1)
            held = {"links": fabric.links, "ports": fabric.ports, "t0s": fabric.t0s, "t1s": fabric.t1s}[kind]
            assert held.sum() == 1
            fabric.change(fabric.name(kind, number), -1)
    fabric.change("p0-t0.1", 1, lanes=4)
    assert fabric.dead_ports().sum() == 4


def test_what_can_be_proved_holds_in_numpy_too() -> None:
    """The rows that are cheap; `mrclab scale --validate` has them all."""
    rows = [*validate._plan(kernels.reference()), *validate._transceiver(kernels.reference())]
    assert [row.what for row in rows if not row.passed] == []


def test_a_row_that_is_off_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "load_kernels", kernels.reference)
    good, off = (validate.Row(f"row {n}", "here", 1.0, n, 0.1, "%") for n in (1.05, 1.2))
    for rows, code in (([good], 0), ([good, off], 1)):
        monkeypatch.setattr(validate, "rows", lambda made, show, rows=rows: rows)
        result = runner.invoke(app, ["scale", "--validate"])
        assert result.exit_code == code
        assert ("│ off" in result.stdout) == bool(code)


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "numba" else real(name, *more))
    with pytest.raises(ScaleError, match="needs numba.*, .* " + re.escape(install("scale"))):
        produce.need_extra()
    with pytest.raises(kernels.KernelError):
        kernels.compiled()


def test_names_a_cluster_or_what_there_is() -> None:
    result = runner.invoke(app, ["scale"])
    assert isinstance(result.exception, ScaleError)
    assert "cluster-131k" in str(result.exception)
    assert "cluster-75k-start: " in runner.invoke(app, ["scale", "--list"]).stdout


def test_json_of_a_run_and_of_the_table_can_be_read(made: Any, tmp_path: pathlib.Path) -> None:
    from mrc_fluid import cli_scale as scale

    summary = json.loads(json.dumps(scale._summary(made, tmp_path)))
    assert summary["nics"] == 64
    assert len(summary["packets_lost"]) == len(made.result.steps)
    row = validate.Row("x", "y", np.float64(1.0), np.float64(1.0), 0.0)
    assert json.loads(json.dumps({**vars(row), "passed": row.passed}))["passed"] is True
