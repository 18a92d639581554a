"""The paper's figures: none is reproduced without its failure; pages that are the same; what is done stays done."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from mrc_host.answers import Stream
from mrclab.cli.app import app, main
from mrclab.pages.chart import Mark as PageMark
from mrclab.results.check import Check
from mrclab.results.expectation import Evidence
from mrclab.results.performance import StreamRow
from mrclab.runs.experiment import ExperimentError
from mrclab.studies import engine
from mrclab.studies.cells import measure, store
from mrclab.studies.cells.measure import ActiveEvs, Cell, Goodput, Measured, Rate, Segment, changed
from mrclab.studies.cells.store import CellAnswer, CellStore
from mrclab.studies.engine import RunStatus
from mrclab.studies.figures import catalogue, draw, failures, model, produce, tables
from mrclab.studies.figures.model import (
    POLICIES,
    Alternative,
    Figure,
    Mark,
    Measure,
    Point,
    Seeded,
    Size,
    judged,
    over_seeds,
    own_rates,
    shares,
)
from mrclab.studies.figures.produce import Plan
from support.amount import only


def small_cells(size: Size) -> list[Cell]:
    """Return a pair of hosts with two ports, of which one goes and comes back."""
    schedule = [
        failures.fail(0.4, "h0:1", Evidence(ports_down=2, goodput=0.8), 0.5),
        failures.restore(0.8, "h0:1"),
    ]
    return [Cell("run", failures.lab(2, 2), failures.one_pair(schedule, 1.2))]


SMALL = dataclasses.replace(catalogue.FIGURES["9a"], name="small", cells=small_cells)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("figures")
    _, done = produce.produce([SMALL], Plan(), folder, 1)
    assert done[0].status == "reproduced", (done[0].measures, done[0].evidence, done[0].failures)
    return folder


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """All that must be the same for the same inputs."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "times.js" and path.suffix != ".time"
    }


def test_the_page_is_the_same_for_the_same_inputs(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    produce.produce([SMALL], Plan(), tmp_path, 1)
    assert contents(tmp_path) == contents(made)
    names = set(contents(made))
    assert {"index.html", "small.csv", "small-checks.csv"} <= names
    assert {f"small.{kind}" for kind in ("svg", "png", "pgf")} <= names


def test_page_of_figures_loads_nothing_from_elsewhere(made: pathlib.Path) -> None:
    page = (made / "index.html").read_text()
    assert "reproduced" in page
    assert '<figure class="chart" id="chart-small">' in page
    asked = re.findall(r"(?:src|href)=\"([^\"#]+)\"", page)
    assert asked
    assert all((made / each).is_file() for each in asked)
    assert "http" not in page


def test_cell_that_is_kept_is_not_run_again(made: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(perform: object) -> Any:
        raise AssertionError("a run was begun")

    monkeypatch.setattr(engine, "_Worker", never)
    produce.produce([SMALL], Plan(), made, 1)
    other = dataclasses.replace(SMALL, cells=lambda size: [dataclasses.replace(small_cells(size)[0], name="other")])
    with pytest.raises(AssertionError, match="begun"):
        produce.produce([other], Plan(), made, 1)


def test_the_page_tells_a_cores_time_not_that_of_a_busy_machine(tmp_path: pathlib.Path) -> None:
    class Line:
        """A worker's, of which one run is asked."""

        def __init__(self) -> None:
            self.told: list[CellAnswer] = []

        def recv(self) -> Cell:
            if self.told:
                raise EOFError
            return small_cells("quick")[0]

        def send(self, answer: CellAnswer) -> None:
            self.told.append(answer)

    def sleeps(cell: Cell) -> Measured:
        time.sleep(0.3)
        return Measured()

    line = Line()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "measure", sleeps)
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr(engine, "end_with_parent", bool)
        engine._serve(line, os.getppid(), store.perform)  # type: ignore[arg-type]
    (answer,) = line.told
    assert answer.failure == ""
    assert answer.busy_s < 0.2


def test_a_damaged_result_counts_for_nothing(tmp_path: pathlib.Path) -> None:
    kept, result = CellStore(tmp_path), Measured(lost=1, iteration_s=0.5)
    kept.keep(engine.Task("aa", "run", small_cells("quick")[0]), CellAnswer(RunStatus.GOOD, "", result, 1.0))
    assert kept.get("aa") == CellAnswer(RunStatus.GOOD, "", result)
    assert json.loads((kept.folder / "aa.json").read_text())["run"] == "run"
    assert kept.seconds("aa") == 1.0
    (kept.folder / "bb.json").write_bytes((kept.folder / "aa.json").read_bytes())
    (kept.folder / "cc.json").write_text('{"digest": "cc", "res')
    (kept.folder / "dd.json").write_text('{"digest": "dd", "run": "run", "result": {"lost": "many"}}')
    assert [kept.get(digest) for digest in ("bb", "cc", "dd")] == [None] * 3
    assert kept.seconds("cc") == 0.0


def test_a_digest_is_of_all_inputs() -> None:
    cell = small_cells("quick")[0]
    others = [
        dataclasses.replace(cell, name="x"),
        dataclasses.replace(cell, lab=changed(cell.lab, seed=2)),
        dataclasses.replace(cell, experiment=changed(cell.experiment, transport="roce")),
        dataclasses.replace(cell, impair={"loss": 0.1}),
        dataclasses.replace(cell, lost=5),
        cell.seeded(2),
        dataclasses.replace(cell, watch_evs="h0"),
        POLICIES[0].apply(cell),
        cell.healthy(),
    ]
    del others[1]  # the same as with the seed by itself
    assert len({each.digest("v1") for each in (cell, *others)} | {cell.digest("v2")}) == len(others) + 2
    assert dataclasses.replace(cell, cost=99).digest("v1") == cell.digest("v1")


def test_figure_without_its_failure_is_not_reproduced(tmp_path: pathlib.Path) -> None:
    _, done = produce.produce([SMALL], Plan(broken=False), tmp_path, 1)
    assert done[0].status == "not reproduced"
    assert not any(each.passed for _, each in done[0].evidence)
    assert not any(each.passed for each in done[0].measures)


def test_tables_have_the_schema_of_the_docs(made: pathlib.Path) -> None:
    docs = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "figure-tables.md").read_text()
    for name, heads in (("small.csv", tables.PointRow._fields), ("small-checks.csv", tables.CheckRow._fields)):
        with (made / name).open() as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert tuple(rows[0]) == heads
        assert all(f"`{head}`" in docs for head in heads)


@pytest.mark.parametrize("size", ["quick", "full"])
@pytest.mark.parametrize("figure", catalogue.FIGURES.values(), ids=lambda each: each.name)
def test_every_cell_of_a_figure_can_be_prepared_with_and_without_failure(figure: Figure, size: Size) -> None:
    cells = figure.cells(size)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.cost > 0
        measure.prepare(cell)
        measure.prepare(figure.without(cell))
        assert figure.without(cell).digest("") != cell.digest("") or len(cells) > 1


@pytest.mark.parametrize("figure", catalogue.FIGURES.values(), ids=lambda each: each.name)
def test_a_figure_without_results_is_not_reproduced(figure: Figure) -> None:
    runs = [Seeded(1, figure.cells("quick"), {})]
    assert judged(figure, runs).status == "could not run"
    assert judged(figure, runs, ["run: died"]).not_run == ["run: died"]


def test_a_run_that_could_not_be_says_nothing_about_its_figure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = "P4RuntimeError: switch p0-t0.0: set pipeline: CANCELLED"
    monkeypatch.setattr(
        store, "run", lambda tasks, *rest: {task.digest: CellAnswer(RunStatus.DIED, died) for task in tasks}
    )
    monkeypatch.setattr(catalogue, "chosen", lambda names: [SMALL])
    ended = CliRunner().invoke(app, ["figures", "small", "-o", str(tmp_path)])
    assert ended.exit_code == 3, ended.output
    assert "could not run" in ended.output
    page = (tmp_path / "index.html").read_text()
    assert "could not run" in page
    assert died in page
    assert "not reproduced" not in page
    (document,) = json.loads((tmp_path / "figures.json").read_text())
    assert (document["result"], document["not_run"], document["failures"]) == ("could not run", [f"run: {died}"], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", only(catalogue.FIGURES, ("9b", "14")))
def test_every_figure_needs_its_failure(name: str, tmp_path: pathlib.Path) -> None:
    _, done = produce.produce([catalogue.FIGURES[name]], Plan(broken=False), tmp_path, 1)
    assert not done[0].reproduced


def test_figures_command_lists_figures_and_refuses_unknown_ones(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def mrclab(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["mrclab", "figures", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    code, listed, _ = mrclab("--list")
    assert code == 0
    assert all(name in listed for name in catalogue.FIGURES)
    (tmp_path / "file").write_text("")
    for words, hint in (
        (["99"], "no figure '99'; known: 5-9d"),
        (["--quick", "--full"], "exclude each other"),
        (["--jobs", "0"], "from 1 to 1024"),
        (["--seeds", "0"], "from 1 to 100"),
        (["9a", "-o", "file"], "no folder for results"),
    ):
        code, _, error = mrclab(*words)
        assert (code, hint in error, error.count("\n")) == (2, True, 1), error
    with pytest.raises(ExperimentError, match=r"no figure '99'; known: .*9a"):
        catalogue.chosen(["9a", "99"])


@pytest.mark.slow
def test_an_interrupted_command_goes_on_where_it_was(tmp_path: pathlib.Path) -> None:
    """Ended by SIGKILL after its first run, it leaves that; none of its processes stays."""
    script = """
import pathlib, sys
from test_figures import SMALL, small_cells
from mrclab.studies.cells.measure import changed
from mrclab.pages.chart import Mark as PageMark
from mrclab.studies.figures import produce
import dataclasses
def cells(size):
    cell = small_cells(size)[0]
    return [dataclasses.replace(cell, name=f"run{n}", lab=changed(cell.lab, seed=n + 1)) for n in range(3)]
if __name__ == "__main__":
    figure = dataclasses.replace(SMALL, cells=cells, judge=lambda results: [])
    produce.produce([figure], produce.Plan(), pathlib.Path(sys.argv[1]), 1, lambda each: print(each.done, flush=True))
"""
    program = tmp_path / "program.py"
    program.write_text(script)
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])])
    command = [sys.executable, str(program), str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as first:
        assert first.stdout is not None
        assert [first.stdout.readline().strip() for _ in range(2)] == ["0", "1"]
        first.send_signal(signal.SIGKILL)
    kept = list((tmp_path / "out" / "runs").glob("*.json"))
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    again = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=300)
    assert (again.stdout.split()[:1], again.returncode) == (["1"], 0), again.stderr
    assert kept[0].stat().st_mtime_ns == before
    assert len(list((tmp_path / "out" / "runs").glob("*.json"))) == 3


@pytest.mark.skipif(
    not any(importlib.util.find_spec(each) for each in ("pandas", "polars")), reason="neither pandas nor polars is here"
)
def test_the_script_of_the_docs_redraws_a_figure(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = pathlib.Path(__file__).parents[2] / "docs" / "redraw.py"
    assert len(script.read_text().splitlines()) <= 25
    picture = tmp_path / "mine.png"
    subprocess.run([sys.executable, str(script), str(made / "small.csv"), str(picture)], check=True, timeout=120)
    assert picture.read_bytes().startswith(b"\x89PNG")


def stream(source: str, size: int, began_s: float, ended_s: float) -> StreamRow:
    rate = size * 8 / (ended_s - began_s)
    made = Stream(size, 1, size, rate, rate, round(began_s * 1e9), round(ended_s * 1e9), 1.0)
    return StreamRow(source, "h9", made)


def test_shares_of_streams_never_add_up_to_more_than_their_link_carries() -> None:
    """One stream ends early and leaves the link to the other: their own averages add up to 150 %."""
    both = [stream("h0", 500_000, 0.0, 1.0), stream("h1", 1_500_000, 0.0, 2.0)]
    assert sum(each.stream.average_bps for each in both) > 8_000_000
    assert shares(Measured(streams=both, host_bps=8_000_000)) == [0.25, 0.75]
    assert shares(Measured(host_bps=1)) == []


def test_a_number_out_of_bounds_needs_a_reason_of_its_own() -> None:
    known, unknown = Measure("x", 0.2, 0.6, 0.9, paper=0.75, differs="queues are short"), Measure("y", 9.0, 0.0, 1.0)
    results = {"run": Measured()}

    def status(*measures: Measure) -> str:
        figure = dataclasses.replace(SMALL, judge=lambda _: measures, differs="")
        return judged(figure, [Seeded(1, figure.cells("quick")[:1], results)]).status

    assert status(Measure("z", 0.5, 0.0, 1.0)) == "reproduced"
    assert status(known) == "differs because"
    assert status(known, unknown) == "not reproduced"


def test_verdict_is_that_of_medians_and_tells_for_how_many_seeds_it_holds() -> None:
    given = {1: 0.7, 2: 0.9, 3: 0.95, 4: 0.1, 5: 0.92}
    figure = dataclasses.replace(
        SMALL, judge=lambda results: [Measure("x", results["run"].iteration_s or 0.0, 0.8, 1.0, "s")], differs=""
    )
    cells = figure.cells("quick")

    def of(values: dict[int, float]) -> Any:
        results = {seed: {"run": Measured(iteration_s=each)} for seed, each in values.items()}
        return judged(figure, [Seeded(seed, cells, each) for seed, each in results.items()])

    found = of(given)
    (measure_found,) = found.measures
    assert (measure_found.value, measure_found.interval, measure_found.held) == (0.9, (0.1, 0.95), 3)
    assert (found.status, found.held, found.seeds) == ("reproduced", 3, [1, 2, 3, 4, 5])
    assert "[0.1, 0.95]" in measure_found.shown
    assert of({1: 0.7, 2: 0.9, 3: 0.1}).status == "not reproduced"


def test_a_seed_without_a_number_leaves_the_median_without_one() -> None:
    values = [[Measure("x", each, 0.0, 1.0)] for each in (0.5, math.nan, 0.5)]
    (found,) = over_seeds(values)
    assert math.isnan(found.value)
    assert not found.passed
    assert found.held == 2
    (infinite,) = over_seeds([[Measure("x", each, 1.0, math.inf)] for each in (2.0, math.inf, 3.0)])
    assert infinite.value == 3.0


def test_a_reason_needs_to_hold_for_most_seeds_that_miss() -> None:
    def of(*reasons: str) -> str:
        (found,) = over_seeds([[Measure("x", 9.0, 0.0, 1.0, differs=each)] for each in reasons])
        return found.differs

    assert of("marks", "marks", "") == "marks"
    assert of("marks", "") == ""
    assert of("marks", "", "") == ""


def test_points_are_medians_with_the_range_over_the_seeds() -> None:
    figure = dataclasses.replace(
        SMALL, points=lambda results: iter([Point("run", "s", 1.0, results["run"].iteration_s or 0.0)])
    )
    cells = figure.cells("quick")
    runs = [Seeded(seed, cells, {"run": Measured(iteration_s=float(seed**2))}) for seed in (1, 2, 3)]
    (row,) = tables.points(judged(figure, runs))
    assert (row.y, row.least, row.most, row.seeds) == (4.0, 1.0, 9.0, 3)


def test_plan_runs_each_seed_of_a_figure_and_alternatives_only_where_asked() -> None:
    figure = catalogue.FIGURES["14"]
    ways = dict(Plan(seeds=3).cells(figure))
    assert list(ways) == [""]
    assert [cells[0].lab.seed for cells in ways[""]] == [1, 2, 3]
    every = dict(Plan(alternatives=True).cells(figure))
    assert "REPS" in every
    assert every["REPS"][0][0].policies == {"ev": "reps.py:Reps"}
    assert Plan("full").count(figure) == 5
    assert Plan("full").count(dataclasses.replace(figure, many=1)) == 1
    assert Plan("full", seeds=7).options == "--full --seeds 7"


def test_policies_leave_runs_of_roce_as_they_are() -> None:
    cells = catalogue.FIGURES["tail"].cells("quick")
    changed_cells = [POLICIES[0].apply(cell) for cell in cells]
    assert [cell.policies for cell in changed_cells] == [{"ev": "reps.py:Reps"}, {}]


@pytest.mark.parametrize("alternative", POLICIES, ids=lambda each: each.name)
def test_every_published_policy_of_a_figure_is_there(alternative: Alternative) -> None:
    cell = alternative.apply(small_cells("quick")[0])
    assert cell.digest("") != small_cells("quick")[0].digest("")
    named = measure.prepare(cell).lab.policies.named
    assert all(pathlib.Path(text.rpartition(":")[0]).is_file() for text in named.values())
    assert named


def test_events_of_a_schedule_are_named_and_those_at_the_same_time_are_one() -> None:
    steps = [
        failures.fail(1.0, "h0:1", failures.NIC),
        failures.fail(1.0, "h0:6", failures.ALSO),
        failures.fail(1.0, "h0:1", failures.NIC),
        failures.fail(2.0, "p0-t1.0", failures.CUT, kind="freeze"),
        failures.fail(2.5, "l", failures.CUT, settings={"loss": 0.2}),
        *(failures.fail(3.0, f"l{number}", failures.DROPPED) for number in range(4)),
        failures.restore(4.0, "h0:1"),
    ]
    assert list(draw.events(steps)) == [
        PageMark(1.0, "h0:1, h0:6 down", True),
        PageMark(2.0, "p0-t1.0 freezes", True),
        PageMark(2.5, "l loses 20 %", True),
        PageMark(3.0, "4 links down", True),
        PageMark(4.0, "h0:1 back", False),
    ]


def test_rates_are_percent_of_what_all_receivers_carry_together(made: pathlib.Path) -> None:
    both = [stream("h0", 500_000, 0.0, 1.0), stream("h1", 1_500_000, 0.0, 2.0)]
    results = {"run": Measured(streams=both, host_bps=8e6)}
    line = model.everything("800 Gb/s")(results)
    assert line is not None
    assert (line.mbps, line.paper) == (8.0, "800 Gb/s")
    assert model.percent(4e6, line) == 50.0
    assert own_rates(results["run"]) == [0.5, 0.75]
    assert model.everything()({"run": Measured()}) is None
    with (made / "small.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["y_is"] for row in rows} == {model.SHARE}
    assert 85 < max(float(row["y"]) for row in rows if row["series"] == "goodput") <= 100


def test_bounds_are_drawn_around_what_is_left() -> None:
    series = [failures_goodput(number * 0.05, 8e6 if number < 20 else 4e6, number >= 20) for number in range(40)]
    segment = Segment(1.0, 2.0, "fail", 0.5, 0.5, 0.5, 0.5, 0.0)
    result = Measured(streams=[stream("h0", 1, 0.0, 1.0)], host_bps=8e6, series=series, segments=[segment])
    assert list(model.bounds(0.9, 1.1)({"run": result})) == [
        Mark(1.15, 2.0, pytest.approx(45.0), pytest.approx(55.0))  # type: ignore[arg-type]
    ]


def failures_goodput(time_s: float, bps: float, half: bool) -> Goodput:
    return Goodput(round(time_s, 2), bps, 0.5 if half else 1.0)


@pytest.mark.skipif(not importlib.util.find_spec("matplotlib"), reason="matplotlib is not installed")
def test_pgf_is_written_without_tex_and_names_nothing_that_tex_reads_as_a_command(
    made: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.backends import backend_pgf

    def started(*_: object) -> None:
        raise AssertionError("TeX was started")

    monkeypatch.setattr(backend_pgf.LatexManager, "_get_cached_or_new", started)
    produce.produce([SMALL], Plan(), made, 1)
    text = (made / "small.pgf").read_text()
    assert "begin{pgfpicture}" in text
    shown = re.findall(r"\\def%\{\\%\}([^}]*)\}", text)
    assert any("line rate" in each for each in shown)
    assert not any(set(each) & set("#&{}~\\") for each in shown)


def test_the_evs_of_a_watched_host_are_kept_over_time() -> None:
    """One path of 16 loses packets: its EV is ASSUMED_BAD, and the QP sends on 16 all the same."""
    (cell,) = catalogue.FIGURES["12-13"].cells("quick")
    result = measure.measure(cell)
    assert [each.active for each in result.active_evs] == [16]
    states = [each.state for each in result.ev_changes]
    assert states[0] == "ASSUMED_BAD"
    assert "GOOD" in states
    assert min(each.t_s for each in result.ev_changes) >= 1.0
    assert measure.measure(dataclasses.replace(cell, watch_evs="h3")).ev_changes == []


def test_a_seed_without_traffic_on_the_broken_path_is_left_out_and_named() -> None:
    figure = catalogue.FIGURES["12-13"]
    cells = figure.cells("quick")
    segment = Segment(1.0, 3.0, "impair", 1.0, 1.0, 1.0, 1.0, 0.0)

    def of(seed: int, before_bps: float) -> Seeded:
        rows = [Rate(0.7, before_bps), Rate(2.5, 0.0)]
        result = Measured(
            series=[Goodput(each * 0.05, 16e6, 1.0) for each in range(60)],
            watched={failures.LOSSY_PORT: rows},
            segments=[segment],
            qps=1,
            qps_hit=1,
            active_evs=[ActiveEvs(0.1, 16)],
            evidence=[Check("evidence", "", "", True)],
        )
        return Seeded(seed, cells, {"run": result})

    found = judged(figure, [of(1, 1e6), of(2, 2e4), of(3, 2e6)])
    assert (found.seeds, list(found.left_out), found.status) == ([1, 3], [2], "reproduced")
    assert judged(figure, [of(1, 0.0)]).status == "not reproduced"
