"""The description of a chart: what a page and a print get of it, and quantities as all surfaces write them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.units import Unit, digits, named, shown
from mrclab.pages import chart
from mrclab.pages.chart import Axis, Chart, Line, Mark, Series

FINITE = st.floats(-1e12, 1e12, allow_nan=False)
CURVE = Series(
    "a", np.arange(5) / 10, np.array([1e6, 2e6, np.nan, 4e6, 2.5e6]), "plane-0", low=[0.0] * 5, high=[5e6] * 5
)
CHART = Chart("c", "Finding", Axis("time", "s"), Axis("goodput", Unit.RATE), [CURVE], marks=[Mark(0.1, "m", True, 0.3)])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.55084e-05, Unit.TIME, "35.51 µs"), (2.81437798, Unit.TIME, "2.814 s"), (0.0, Unit.TIME, "0 s"),
        (1e8, Unit.RATE, "100 Mb/s"), (999.96e6, Unit.RATE, "1 Gb/s"), (88_995_000.0, Unit.COUNT, "88,995,000"),
        (65536, Unit.SIZE, "64 KiB"), (0.942, Unit.SHARE, "94.2 %"), (-0.03, Unit.TIME, "-30 ms"),
        (None, Unit.RATE, "-"), (float("inf"), Unit.TIME, "∞"),
    ],
)  # fmt: skip
def test_quantity_has_four_digits_and_the_multiple_that_suits(value: float | None, unit: Unit, text: str) -> None:
    assert shown(value, unit) == text


@given(FINITE, st.sampled_from(Unit))
def test_quantity_never_has_an_exponent_and_is_right_to_its_digits(value: float, unit: Unit) -> None:
    text = shown(value, unit)
    assert not re.search(r"\de[-+\d]", text)
    number, _, symbol = text.partition(" ")
    factor = unit.scale(value)[0]
    assert float(number.replace(",", "")) * factor == pytest.approx(value, rel=1e-3, abs=1e-12)
    assert symbol == unit.scale(value)[1]


def test_key_of_a_file_has_a_name_and_a_unit() -> None:
    assert named("experiment.workload.params.size_bytes") == ("size", Unit.SIZE, 1.0)
    assert named("lab.timeout_ns") == ("timeout", Unit.TIME, 1e-9)
    assert named("window") == ("window", Unit.COUNT, 1.0)


def test_panel_has_the_values_in_the_axis_unit_and_no_number_is_null() -> None:
    made = chart.panel(CHART, "")
    (series,) = made["series"]
    assert made["y"] == {"title": "goodput", "unit": "Mb/s", "zero": False}
    assert series["x"] == {"from": 0.0, "step": 0.1, "n": 5}
    assert series["y"] == [1, 2, None, 4, 2.5]
    assert (series["low"], series["high"]) == ([0] * 5, [5] * 5)
    assert made["marks"] == [{"at": 0.1, "text": "m", "breaks": True, "until": 0.3}]


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=40), st.sampled_from(Line))
def test_page_holds_every_point_to_five_digits(points: list[tuple[float, float]], line: Line) -> None:
    x = np.array(sorted({each[0] for each in points}))
    y = np.array([each[1] for each in points][: len(x)])
    text = str(chart.html(Chart("c", "t", Axis("x"), Axis("y"), [Series("</script>", x, y, "plane-0", line=line)])))
    found = re.search(r'<script type="application/json">(.*)</script>', text)
    assert found
    (series,) = json.loads(found[1])["panels"][0]["series"]
    assert series["y"] == pytest.approx(y, abs=1e-4 * float(np.abs(y).max(initial=0.0)) + 1e-12)


@given(FINITE, st.floats(0, 1e12), st.booleans())
def test_axis_holds_all_values_and_begins_at_0_unless_the_differences_are_small(
    low: float, span: float, zero: bool
) -> None:
    begin, end = chart.bounds(low, low + span, zero)
    assert begin <= low
    assert end >= low + span
    if low >= 0 and (zero or span > 0.4 * (low + span)):
        assert begin == 0
    if low >= 0 and not zero and 0 < span < 0.1 * low and low + span > low:
        assert begin > 0


def test_table_lists_points_or_of_many_their_range() -> None:
    heads, rows = chart.table(CHART)
    assert heads == ["curve", "time, s", "goodput, Mb/s"]
    assert rows[0] == ["a", "0", "1 ± 2.5"]
    assert rows[2][2].startswith("-")
    many = np.arange(chart.LISTED + 1.0)
    heads, rows = chart.table(Chart("c", "t", Axis("x"), Axis("y", "EVs"), [Series("a", many, many, "plane-0")]))
    assert heads == ["y, EVs", "least", "mean", "most"]
    assert rows == [["a", "0", "30", digits(float(chart.LISTED))]]


def test_second_panel_is_drawn_over_the_same_x_and_zoomed_with_the_first() -> None:
    text = str(chart.html(Chart("c", "t", Axis("x"), Axis("y"), [CURVE], below=CHART)))
    assert text.count('class="plot') == 2
    found = re.search(r'<script type="application/json">(.*)</script>', text)
    assert found
    assert [each["group"] for each in json.loads(found[1])["panels"]] == ["c", "c"]


def test_no_two_of_the_first_32_series_look_alike() -> None:
    assert len({chart.style(number) for number in range(chart.COLOURS * chart.DASHES)}) == 32


def test_page_without_the_library_says_so_and_has_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "library", lambda: "")
    assert "uPlot is missing" in str(chart.html(CHART))
    assert "<table>" in str(chart.html(CHART))
    assert "<script" not in chart.page("t", "").partition("<main")[2]
