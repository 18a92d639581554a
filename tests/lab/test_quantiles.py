"""Which quantiles a number of values has, and what every table, page and document shows where it has none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.answers import FlowTimes, JobProgress, LagSummary, LatencyTimes, Measured, Times
from mrc_host.workloads.measure import Distribution
from mrc_topo.base import quantiles
from mrclab.results import performance, report, steps
from mrclab.results.record import RunResult


@pytest.mark.parametrize(("share", "fewest"), [(0.5, 1), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000)])
def test_a_quantile_needs_a_value_beyond_it(share: float, fewest: int) -> None:
    assert not quantiles.supported(fewest - 1, share)
    assert all(quantiles.supported(fewest + more, share) for more in (0, 1, 7))


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantile_is_the_nearest_rank_or_none(values: list[int], share: float) -> None:
    found = quantiles.quantile(values, share)
    if not quantiles.supported(len(values), share):
        assert found is None
        return
    assert found is not None
    assert sum(each <= found for each in values) >= share * len(values) > sum(each < found for each in values)
    if share > 0.5:
        # At least this many values are as large, so that a quantile is not the maximum by definition.
        assert sum(each >= found for each in values) >= math.floor((1 - share) * len(values) + 1e-9)


def distribution(count: int) -> Times:
    times = Distribution()
    for number in range(count):
        times.add(1000 + number)
    found = times.summary()
    assert found is not None
    return found


def result_of(measured: Measured) -> RunResult:
    result = RunResult("tiny", "virtual", 1, "x", {}, ["h0", "h1"])
    result.progress["h0"] = JobProgress(done=True, takes_part=True, measured=measured)
    return result


@pytest.mark.parametrize(("count", "shown"), [(17, [False, False]), (100, [True, False]), (1000, [True, True])])
def test_tables_of_times_show_no_quantile_of_too_few(count: int, shown: list[bool]) -> None:
    times = distribution(count)
    whole = Measured(iteration_ns=times)
    half = Measured(latency_ns=LatencyTimes(**vars(times), message_bytes=8, peer=1))
    for measured in (whole, half):
        (table,) = performance.tables(result_of(measured))
        (row,) = table.rows
        cells = dict(zip(table.heads, row, strict=True))
        assert [cells[key] != "-" for key in ("99%", "99.9%")] == shown
        assert cells["t_max"] == f"{(999 + count) / 1000:.2f}"


@pytest.mark.parametrize("count", [17, 100])
def test_tables_of_flows_steps_and_lateness_show_no_p99_of_too_few(count: int) -> None:
    flows = [FlowTimes(number, 1, 1000, 0, 1000 * (number + 1)) for number in range(count)]
    (table,) = performance.tables(result_of(Measured(flows=flows)))
    assert (table.rows[0][table.heads.index("P99")] == "-") == (count < 100)
    summary = steps.time_summary([0.001 * number for number in range(1, count + 1)])
    assert (summary.p99 is None) == (count < 100)
    made = steps.TrainingSummary([], {"all": summary}, 0.0, {}, summary)
    for each in performance.training_tables(made):
        assert (each.rows[0][each.heads.index("P99")] == "-") == (count < 100)
    assert (report._lag(LagSummary(count, 1, 2, 3, 4))[1] == "-") == (count < 100)
