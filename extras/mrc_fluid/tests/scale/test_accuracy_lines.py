"""What `mrclab scale` says of its accuracy: which figure is of all runs, and which of its own case and size."""

from __future__ import annotations

import json
import math
import pathlib
import re
import statistics

import pyarrow.parquet as pq
import pytest
import typer.testing

from mrc_fluid import cases, kernels, limits
from mrc_fluid.calibration import calibrate, large, produce, tables
from mrc_fluid.cases import FailureCase
from mrc_fluid.caveat import NICS, caveat, measured
from mrc_fluid.cli_scale import _accuracy
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.replays import fluid, page
from mrc_host.graph.source import Source
from mrclab.cli.app import app
from support.amount import LONG

ROOT = pathlib.Path(__file__).parents[4]
PERCENT = r"\d+(?:\.\d+)? ?%"
CLUSTER = "name: c\nradix: 128\nplanes: 4\nnics: 512\nev: {size: 32, active: 16}\njobs: [{name: j}]\n"


def failing(text: str, nics: int = 512, **changes: str) -> Loaded:
    made = CLUSTER.replace("nics: 512", f"nics: {nics}")
    for old, new in changes.items():
        made = made.replace(f"{old}: 128", new)
    return parse_cluster(made + (f"failures: [{{{text}}}]\n" if text else ""))


def test_a_run_quotes_its_own_case_alone() -> None:
    loaded = failing("")
    first, head, *own = list(_accuracy(loaded))
    assert not re.search(r"\d", first)
    assert "own case" in head
    assert limits.PAGE in head
    assert [line.strip() for line in own] == [each.text for each in cases.own_errors(loaded)]
    assert own[0].startswith("  nothing fails: ")


@pytest.mark.parametrize("failure", ["", "fail: p0-t1.3", "fail: p0-t0.1"])
def test_no_surface_of_a_run_has_an_error_that_is_not_of_its_cases(tmp_path: pathlib.Path, failure: str) -> None:
    path = tmp_path / "c.yaml"
    text = CLUSTER.replace("radix: 128", "radix: 16").replace("nics: 512", "nics: 64")
    path.write_text(text + (f"failures: [{{{failure}}}]\n" if failure else ""))
    loaded = parse_cluster(path.read_text())
    allowed = {number for each in cases.own_errors(loaded) for number in re.findall(PERCENT, each.text)}
    allowed |= {number for each in limits.limits_of(loaded) for number in re.findall(PERCENT, each)}
    told = [*_accuracy(loaded), cases.accuracy(loaded)]
    if LONG:
        replayed = fluid.run(Source(model="gpt3-6.7b", data=64), fluid.bed_of_cluster(loaded), kernels.reference())
        told += [page.caveat(replayed), *page.notes(replayed)]
    assert {number for line in told for number in re.findall(PERCENT, line)} <= allowed
    assert caveat() not in told


def test_the_figures_of_limits_are_said_to_be_of_other_cases() -> None:
    loaded = failing("", radix="radix: 16\ntiers: 3")
    _, _, _, between, *near = list(_accuracy(loaded))
    assert "Those comparisons have two tiers" in between
    assert "may be off by more" in between
    assert limits.PAGE in between
    assert [each.strip() for each in near] == limits.limits_of(loaded)
    assert near


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        ("", [FailureCase.WHOLE]),
        ("fail: p0-t1.3", [FailureCase.DEAD_T1]),
        ("fail: t1s, count: 3", [FailureCase.DEAD_T1]),
        ("fail: p0-t0.0--p0-t1.1", [FailureCase.CUT_LINK]),
        ("fail: p0-t0.0--p0-t1.1, loss: 0.1", [FailureCase.GREY_LINK]),
        ("fail: p0, rate: 0.1", [FailureCase.SLOW_PLANE]),
        ("fail: p0-t1.3, rate: 0.1", [FailureCase.SLOW_OTHER]),
        ("fail: p0-t1.3, rate: 0.1, loss: 0.1", [FailureCase.GREY_OTHER, FailureCase.SLOW_OTHER]),
        ("fail: p0", [FailureCase.DEAD_PLANE]),
        ("fail: p0, loss: 0.1", [FailureCase.GREY_OTHER]),
        ("fail: 'h1:2'", [FailureCase.DEAD_PORT]),
        ("fail: p0-t0.1, lanes: 4", [FailureCase.TRANSCEIVER]),
        ("fail: p0-t0.1", [FailureCase.DEAD_T0]),
        ("fail: p0-t1.3}, {fail: 'h1:2'", [FailureCase.DEAD_T1, FailureCase.DEAD_PORT]),
    ],
)
def test_the_cases_of_a_run_are_those_of_its_failures(failure: str, wanted: list[FailureCase]) -> None:
    assert cases.cases_of(failing(failure)) == wanted


@pytest.mark.parametrize(
    ("nics", "compared", "of_this_size"),
    [(40, 128, False), (64, 128, True), (250, 128, True), (300, 512, True), (724, 512, True), (1024, 1024, True),
     (2048, 1024, True), (2080, 1024, False)],
)  # fmt: skip
def test_the_comparison_is_the_nearest_in_size(nics: int, compared: int, of_this_size: bool) -> None:
    (own,) = cases.own_errors(failing("fail: p0-t1.3", nics))
    assert (own.compared, own.of_this_size) == (compared, of_this_size)
    assert own.text.startswith(f"a T1 is dead: {'at' if of_this_size else f'no comparison has {nics:,} NICs; at'}")


def test_a_run_has_the_error_of_the_stored_seeds() -> None:
    (own,) = cases.own_errors(failing("fail: p0-t1.3", 1024))
    stored = json.loads((ROOT / "extras/mrc_fluid/compared-1024.json").read_text())["cases"]["a T1 is dead"]
    for name, error in (("goodput", own.goodput), ("p99", own.p99)):
        packets, model = (statistics.mean(stored[of][name]) for of in ("packets", "model"))
        assert error == pytest.approx(model / packets - 1)
    assert f"P99 of flows is {cases._off(own.p99 or 0)}" in own.text
    assert f"in streams between {NICS} NICs settled goodput is 4 % too high" in own.text


def test_seeds_of_packets_that_differ_are_told() -> None:
    (own,) = cases.own_errors(failing("fail: p0-t0.0--p0-t1.1, loss: 0.01", 128))
    assert own.goodput_spread > cases.SPREADS
    assert f"(packets' own seeds differ by {round(own.goodput_spread * 100)} %)" in own.text
    assert "seeds differ" not in cases.own_errors(failing("", 128))[0].text


def test_what_was_never_compared_says_so() -> None:
    (port,) = cases.own_errors(failing("fail: 'h1:2'"))
    assert port.text == (
        "a NIC port goes down: no comparison has 512 NICs, or P99 of flows; in streams between 8 NICs settled goodput "
        "is 1 % too low"
    )
    (t0,) = cases.own_errors(failing("fail: p0-t0.1"))
    assert t0.text == "a T0 is dead: never compared with packets, at any size"
    assert (t0.goodput, t0.p99, t0.streams) == (None, None, None)


@pytest.mark.parametrize("page", [limits.PAGE, "docs/explanation/scale-model.md"])
def test_the_tables_of_pages_are_made_from_the_files(page: str) -> None:
    """`python -m mrc_fluid.calibration.tables docs/reference/scale-accuracy.md docs/explanation/scale-model.md`"""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "<!-- table: " in text
    assert tables.filled(text) == text


def test_a_number_that_is_refused_is_in_no_table() -> None:
    values = cases.CaseValues(
        {"goodput": [9000.0], "p50": [100.0], "p99": [200.0]}, {"goodput": [10000.0], "p50": [100.0], "p99": [240.0]}
    )
    made = list(tables.size(cases.Comparison(96, 2, 256, "", "", {"a T1 is dead": values})))
    assert "10.00 (+11 %)" in made[-1]
    assert "240" not in made[-1]
    assert f"{tables.REFUSED} (+20 %)" in made[-1]


def test_cases_name_scenarios_that_there_are() -> None:
    streams = {row["scenario"] for row in (measured() or {})["rows"]}
    assert {name for case in FailureCase for name in case.value.streams} <= streams
    assert streams == {each.name for each in calibrate.SCENARIOS}
    assert {2 * each.per_t0 for each in calibrate.SCENARIOS} == {NICS}
    titles = {each.title for each in large.scenarios(128)}
    assert titles == {case for each in cases.comparisons() for case in each.cases}
    assert titles <= {case.value.title for case in FailureCase}


def test_a_comparison_is_written_as_it_is_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = cases.CaseValues(
        {name: [90.0, 110.0] for name in large.QUANTITIES}, {name: [100.0, 120.0] for name in large.QUANTITIES}
    )
    given = cases.Comparison(96, 2, 256, "labs", "model", {"a T1 is dead": values})
    monkeypatch.setattr(large, "compare", lambda *given_to, made=given: made)
    asked = ["scale", "--calibrate", "--nics", "96", "-o", str(tmp_path / "made")]
    assert typer.testing.CliRunner().invoke(app, asked).exit_code == 0
    made = cases.parse((tmp_path / "made" / cases.file_of(96)).read_text(encoding="utf-8"))
    assert made == given
    assert made.cases["a T1 is dead"].error("p99") == pytest.approx(0.10)
    assert made.cases["a T1 is dead"].spread("p99") == pytest.approx(0.1414, rel=1e-3)


#: With messages so short that the error of flows counts.
SMALL = (
    CLUSTER.replace("radix: 128", "radix: 16")
    .replace("nics: 512", "nics: 64")
    .replace("{name: j}", "{name: j, message: 1MiB}")
)
#: A comparison whose model is 20 % off in one quantity.
OFF = {"goodput": 1.0, "p50": 1.0, "p99": 1.0}


def refusing(monkeypatch: pytest.MonkeyPatch, **off: float) -> None:
    """Have all comparisons say that the model is off so in a dead T1's case."""
    values = cases.CaseValues({name: [100.0] for name in OFF}, {name: [100.0 * by] for name, by in (OFF | off).items()})
    made = cases.Comparison(64, 2, 256, "", "", {"a T1 is dead": values})
    monkeypatch.setattr(cases, "comparisons", lambda: (made,))


@pytest.mark.parametrize(("off", "refused"), [(1.14, False), (1.16, True), (0.86, False), (0.84, True)])
def test_what_is_off_by_more_than_15_percent_is_told_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, off: float, refused: bool
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(SMALL + "duration: 100ms\nbin: 10ms\nfailures: [{at: 50ms, fail: p0-t1.3}]\n")
    refusing(monkeypatch, goodput=off, p99=off)
    monkeypatch.setattr(produce, "load_kernels", kernels.reference)
    folder = tmp_path / "out"
    made = typer.testing.CliRunner().invoke(app, ["scale", str(path), "-o", str(folder), "--json"])
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert told["goodput_bps"][0] > 0
    assert (told["goodput_bps"][-1] is None) == refused
    assert bool(told["not_modelled"]) == refused
    series = pq.read_table(folder / "series.parquet").to_pydict()
    for column in ("goodput_bps", "step_s_j"):
        assert series[column][0] > 0
        assert math.isnan(series[column][-1]) == refused
    steps = pq.read_table(folder / "steps.parquet").to_pydict()
    assert math.isnan(steps["goodput"][-1]) == refused
    pairs = pq.read_table(folder / "queue_pairs.parquet").to_pydict()
    assert math.isnan(pairs["rate_worst_bps"][0]) == refused
    plain = typer.testing.CliRunner().invoke(app, ["scale", str(path), "-o", str(folder / "again")])
    assert ("not modelled" in plain.stdout) == refused
    assert ("not modelled" in (folder / "report.html").read_text()) == refused


@pytest.mark.parametrize("off", [1.0, 1.2])
def test_a_replay_does_not_tell_it_either(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    loaded = parse_cluster(SMALL + "failures: [{fail: p0-t1.3}]\n")
    refusing(monkeypatch, goodput=off, p99=off)
    made = fluid.run(Source(model="gpt3-6.7b", data=8), fluid.bed_of_cluster(loaded), kernels.reference())
    refused = off > 1.15
    assert (made.document()["goodput_bps"] is None) == refused
    assert any("not modelled" in note for note in page.notes(made)) == refused
    assert bool(made.summary.times) != refused


@pytest.mark.parametrize(("message", "told"), [("1MiB", False), ("64MiB", True)])
def test_streams_have_their_own_error(monkeypatch: pytest.MonkeyPatch, message: str, told: bool) -> None:
    """Settled goodput of streams beside a dead T1 is 4 % off, whatever short flows say."""
    refusing(monkeypatch, goodput=1.69)
    made = CLUSTER.replace("{name: j}", f"{{name: j, message: {message}}}") + "failures: [{fail: p0-t1.3}]\n"
    unknown = cases.not_modelled(parse_cluster(made))
    assert (cases.Modelled.GOODPUT not in unknown) is told
    assert cases.Modelled.STEPS not in unknown
