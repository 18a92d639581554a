"""Paired differences: each run against that of the same seed with the first value of a key."""

from __future__ import annotations

import csv
import math
import pathlib
import random
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrclab.cli import sweep as command
from mrclab.studies.engine import RunStatus
from mrclab.studies.sweeps import page, plan, work
from mrclab.studies.sweeps.measure import Row, RunAnswer
from mrclab.studies.sweeps.page import FILE, PairedDifference, differences
from mrclab.studies.sweeps.plan import SweepPlan, SweepRun
from mrclab.studies.sweeps.spec import parse_sweep
from sweeps.test_files import BASE

CASES = "cases: [{name: a, lab.ev.active: 4}, {name: b, lab.ev.active: 8}, {name: c, lab.ev.active: 2}]\n"
SHOWN = "plots: [{y: goodput_bps, x: case}]\n"


def made(more: str) -> SweepPlan:
    found = plan.make(parse_sweep(BASE + more, "mine.yaml"), check=False)
    page.check(found)
    return found


def rows_of(found: SweepPlan, values: Mapping[int, float | None]) -> list[Row]:
    """Return the rows of a sweep whose goodput is given for some of its runs, by their place."""

    def answer(run: SweepRun) -> RunAnswer:
        value = values[run.index]
        row: Row = {} if value is None else {"goodput_bps": value}
        return RunAnswer(RunStatus.GOOD, "", [row], 1.0)

    return list(work.rows(found, [(run, answer(run)) for run in found.runs if run.index in values]))


def told(found: list[PairedDifference]) -> list[tuple[str, str, float, bool | None]]:
    return [(each.value, each.where, each.mean, each.differs) for each in found]


def test_a_case_that_wins_with_every_seed_differs_although_the_intervals_overlap() -> None:
    found = made(CASES + SHOWN + "seeds: 3\n")
    seeds = [100.0, 200.0, 300.0]
    values = [*seeds, *(value + 10 for value in seeds), 300.0, 100.0, 200.0]
    rows = rows_of(found, dict(enumerate(values)))
    (chart,) = page.charts(found, rows)
    spots = [spot for curve in chart.curves.values() for spot in curve]
    assert all(spot.half is not None and spot.half > 200 for spot in spots), "the intervals of all cases overlap"
    first, second = differences(found, rows)
    assert (first.value, first.first, first.pairs, first.first_mean, first.mean, first.half) == (
        "b",
        "a",
        3,
        200,
        10,
        0,
    )
    assert first.differs
    assert first.share == 0.05
    assert (second.value, second.mean, second.differs) == ("c", 0, False)


@pytest.mark.parametrize(("second", "apart"), [(111.0, True), (112.0, False)])
def test_a_difference_differs_if_0_is_outside_of_its_interval(second: float, apart: bool) -> None:
    """With two seeds the interval reaches 6.35 times the distance of the two differences: 6.35 and 12.7."""
    found = made(CASES + SHOWN + "seeds: 2\n")
    first, *_ = differences(found, rows_of(found, {0: 100.0, 1: 100.0, 2: 110.0, 3: second}))
    assert first.half == pytest.approx(12.706 / 2 * (second - 110))
    assert first.differs is apart


def test_pairs_are_of_one_seed_and_of_one_value_of_the_other_keys() -> None:
    found = made(CASES + SHOWN + "grid: {lab.path_mtu: [512, 1024]}\nseeds: [7, 9]\n")
    at = {(run.point.case, run.point.values["lab.path_mtu"], run.seed): run.index for run in found.runs}
    values: dict[int, float | None] = {
        at["a", 512, 7]: 10.0, at["a", 512, 9]: 20.0, at["b", 512, 7]: 11.0, at["b", 512, 9]: None,
        at["a", 1024, 9]: 5.0, at["b", 1024, 7]: 1.0, at["c", 1024, 9]: 4.0,
    }  # fmt: skip
    assert told(differences(found, rows_of(found, values))) == [
        ("b", "path mtu 512", 1.0, None), ("c", "path mtu 1,024", -1.0, None),
    ]  # fmt: skip


def test_the_first_value_is_that_of_the_file_although_its_runs_are_not_done() -> None:
    found = made(CASES + SHOWN + "seeds: 2\n")
    assert differences(found, rows_of(found, {2: 1.0, 3: 2.0, 4: 3.0, 5: 4.0})) == []


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (CASES + "grid: {lab.path_mtu: [512, 1024]}\n", "case"),
        ("grid: {lab.path_mtu: [512, 1024], lab.queues.trim: [{}, {threshold: 8KiB}]}\n", "lab.queues.trim"),
        ("grid: {lab.path_mtu: [512, 1024], lab.ev.active: [4, 8]}\n", "lab.path_mtu"),
    ],
)
def test_names_are_compared_before_numbers(more: str, key: str) -> None:
    found = made(more + "seeds: 2\n")
    rows = rows_of(found, {run.index: 1.0 for run in found.runs})
    plotted = made(more + "seeds: 2\nplots: [{y: goodput_bps}]\n")
    assert {each.key for each in differences(plotted, rows)} == {key}


def test_several_seeds_alone_are_a_sweep_without_differences(tmp_path: pathlib.Path) -> None:
    found = made("seeds: 3\nplots: [{y: goodput_bps}]\n")
    rows = rows_of(found, {0: 1.0, 1: 2.0, 2: 3.0})
    (chart,) = page.charts(found, rows)
    [[spot]] = chart.curves.values()
    assert (spot.mean, len(spot.runs)) == (2.0, 3)
    page.write(tmp_path, found, rows)
    assert [path.name for path in tmp_path.iterdir()] == [page.PAGE]


@given(st.integers(2, 12), st.integers())
def test_the_interval_is_that_of_the_differences(seeds: int, seed: int) -> None:
    rng = random.Random(seed)
    found = made(CASES + SHOWN + f"seeds: {seeds}\n")
    values = {run.index: rng.uniform(1, 2) for run in found.runs}
    first = differences(found, rows_of(found, values))[0]
    apart = [values[seeds + k] - values[k] for k in range(seeds)]
    mean = sum(apart) / seeds
    spread = math.sqrt(sum((each - mean) ** 2 for each in apart) / (seeds - 1) / seeds)
    assert math.isclose(first.mean, mean, rel_tol=1e-9, abs_tol=1e-12)
    assert first.half is not None
    assert first.half >= 2 * spread * (1 - 1e-9), "Student's t is at least 2.2 for up to 11 degrees of freedom"


def test_report_file_and_terminal_have_the_differences(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    found = made(CASES.replace("name: b", 'name: "[b]"') + SHOWN + "seeds: 2\n")
    rows = rows_of(found, {0: 1e6, 1: 2e6, 2: 3e6, 3: 4e6, 4: 1e6, 5: 2.5e6})
    html = page.write(tmp_path, found, rows).read_text(encoding="utf-8")
    assert re.findall(r"<td>(?:<b>)?(more|less|within chance)\b", html)[:2] == ["more", "within chance"]
    with (tmp_path / FILE).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["value"], line["difference"], line["differs"]) for line in lines] == [
        ("[b]", "2000000.0", "True"), ("c", "250000.0", "False"),
    ]  # fmt: skip
    command._show_differences(differences(found, rows))
    said = capsys.readouterr().out
    assert [line.split()[:3] for line in said.splitlines()[2:]] == [
        ["[b]", "goodput_bps", "+2,000,000"], ["c", "goodput_bps", "+250,000"],
    ]  # fmt: skip
    assert [" ".join(line.split()[2:]) for line in said.splitlines()[2:]] == [
        "+2,000,000 ± 0 (+133.3%) differs", "+250,000 ± 3,176,000 (+16.7%) within chance",
    ]  # fmt: skip


def test_titles_count_all_conditions_and_each_of_them_has_a_part_of_the_plot() -> None:
    cases = "cases: [{name: a, lab.ev.active: 4}, {name: b, lab.ev.active: 8}]\n"
    grid_keys = ("lab.ev.size", "lab.path_mtu")
    grid = "grid: {lab.path_mtu: [1024, 4096], lab.ev.size: [32, 64]}\n"
    found = made(cases + grid + "seeds: 2\nplots: [{y: goodput_bps, x: lab.path_mtu}]\n")
    more: dict[object, float] = {("b", 32, 1024): 1.5, ("b", 64, 1024): 0.9, ("b", 64, 4096): 0.8}
    points = {run.index: (run.point.case, *map(run.point.values.get, grid_keys)) for run in found.runs}
    rows = rows_of(found, {at: 1e6 * more.get(point, 1.0) for at, point in points.items()})
    differ = differences(found, rows)
    parts = page.drawn(found, rows, differ)
    assert [(each.title.partition(":")[0], "more" in each.title, "less" in each.title) for each in parts] == [
        ("size 32", True, False), ("size 64", False, True),
    ]  # fmt: skip
    (whole,) = re.findall("<p><b>(.*?)</b>", page.render(found, rows, differ))
    assert re.findall(r"(more|less|chance) in (\d) of 4(?: \(by (.*?)\))?", whole) == [
        ("more", "1", "50 %"), ("less", "2", "10 % to 20 %"), ("chance", "1", ""),
    ]  # fmt: skip
    assert len({(each.y.span, each.below and each.below.y.span) for each in parts}) == 1


def test_page_of_500_runs_is_less_than_a_megabyte() -> None:
    grid = f"grid: {{lab.ev.active: [4, 8], lab.path_mtu: {list(range(256, 256 + 4 * 25, 4))}}}\n"
    found = made(grid + "seeds: 10\nplots: [{y: goodput_bps, x: lab.path_mtu}, {y: jain, x: lab.path_mtu}]\n")
    rng = random.Random(1)
    rows = rows_of(found, {run.index: rng.uniform(1e8, 2e8) for run in found.runs})
    assert len(found.runs) == 500
    assert len(page.render(found, rows, differences(found, rows)).encode()) < 1_000_000
