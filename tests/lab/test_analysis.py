"""Dip and recovery, computed from samples whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mrc_topo.labfile import load_lab
from mrclab.results import analysis, charts, verdict
from mrclab.results.analysis import Recovery
from mrclab.results.expectation import Expectation
from mrclab.results.record import RunResult
from support.lab.results import result_of

START = 5_000_000_000
FULL_BPS = 80e6


def document(rate_at: Any, happenings: list[tuple[float, str, float]], seconds: float = 12.0) -> dict[str, Any]:
    """Two hosts, sampled every 50 ms at different phases, whose goodput together is `rate_at(t)`."""
    samples: dict[str, list[dict[str, Any]]] = {}
    for number, name in enumerate(("h0", "h1")):
        total, rows, step = 0.0, [], 0.001
        for tick in range(int(seconds / step) + 1):
            if (tick + 17 * number) % 50 == 0:
                rows.append(sample(START + tick * 1_000_000, total))
            total += rate_at(tick * step) / 2 / 8 * step
        samples[name] = rows
    return {
        "ranks": ["h0", "h1"],
        "clock": "virtual",
        "started_ns": START,
        "finished_ns": START + int(seconds * 1e9),
        "samples": samples,
        "happenings": [
            {
                "done_ns": START + int(at * 1e9),
                "expected_loss": loss,
                "action": {"verb": verb, "text": f"{verb} x", "target": "h1:0"},
                "broken": ["h1:0"] if verb == "fail" else [],
                "localised": ["h1:0"] if verb == "fail" else [],
            }
            for at, verb, loss in happenings
        ],
        "progress": {
            name: {"mismatches": 0, "bytes_verified": 10, "iterations": 3, "done": True, "failure": "", "qps": 2}
            | {"qps_in_rts": 2}
            for name in ("h0", "h1")
        },
        "failures": [],
        "fidelity": {"valid": True, "reasons": []},
    }


def sample(t_ns: int, total: float) -> dict[str, Any]:
    counters = dict.fromkeys(("retransmissions", "trims", "marks", "timeouts", "losses"), 0)
    return {"t_ns": t_ns, "delivered_bytes": total, "tx_bytes": [total, 0, 0, 0], **counters}


def dip(t: float) -> float:
    """Full; at 4 s down to 10 % for 0.4 s, then 75 %; at 8 s back to full after 0.2 s."""
    if t < 4:
        return FULL_BPS
    if t < 4.4:
        return 0.1 * FULL_BPS
    return FULL_BPS if t >= 8.2 else 0.75 * FULL_BPS


def recoveries(document: dict[str, Any]) -> list[Recovery]:
    result = result_of(document)
    return analysis.recoveries(result, result.readings())


def test_goodput_is_the_sum_of_the_hosts() -> None:
    made = document(lambda t: FULL_BPS, [])
    series = result_of(made).readings().goodput_bps
    assert series[2:-2] == pytest.approx(FULL_BPS, rel=0.01)


def test_the_last_bin_ends_with_the_last_rank_and_has_what_was_told_later() -> None:
    made = document(lambda t: FULL_BPS if t < 10.03 else 0.0, [])
    for number, each in enumerate(made["progress"].values()):
        each["finished_ns"] = START + 10_030_000_000 - number
    result = result_of(made)
    found = result.readings()
    assert found.edges[-1] == pytest.approx(10.03)
    assert found.goodput_bps[-3:] == pytest.approx(FULL_BPS, rel=0.02)
    assert float(found.goodput_bps @ np.diff(found.edges)) / 8 == pytest.approx(result.delivered_bytes(), rel=1e-9)


def test_ranks_are_busy_from_the_first_start_to_the_last_end() -> None:
    made = document(dip, [])
    for name, began, ended in (("h0", 2, 6), ("h1", 3, 8)):
        times = {"started_ns": START + began * 10**9, "finished_ns": START + ended * 10**9}
        made["progress"][name] |= times
    assert result_of(made).busy_s == 6.0


def test_recoveries_of_a_failure_and_its_restore_hold_dip_and_times() -> None:
    fail, restore = recoveries(document(dip, [(4.0, "fail", 0.25), (8.0, "restore", 0.0)]))
    assert fail.breaks
    assert not restore.breaks
    assert fail.before_bps == pytest.approx(FULL_BPS, rel=0.02)
    assert fail.expected == pytest.approx(0.75)
    assert fail.dip == pytest.approx(0.1, abs=0.02)
    assert fail.after == pytest.approx(0.75, rel=0.02)
    assert fail.recovery_s == pytest.approx(0.4, abs=0.11)
    assert restore.expected == pytest.approx(1 / 0.75)
    assert restore.recovery_s == pytest.approx(0.0, abs=0.11)


def test_recovery_without_goodput_after_the_end_of_the_job_has_no_dip() -> None:
    made = document(lambda t: 0.0 if t >= 10 else dip(t), [(4.0, "fail", 0.25), (8.0, "restore", 0.0)])
    for each in made["progress"].values():
        each["finished_ns"] = START + 10_000_000_000
    _, restore = recoveries(made)
    assert restore.dip > 0.7
    assert restore.after == pytest.approx(4 / 3, rel=0.02)


def test_goodput_before_an_action_is_the_same_during_the_run_as_in_its_result() -> None:
    happenings = [(4.0, "fail", 0.25), (8.0, "restore", 0.0)]
    made = document(dip, happenings)
    rows = recoveries(made)
    # As a live view looks: soon after the action, when goodput has fallen.
    for number, (at, _, _) in enumerate(happenings):
        so_far = {
            name: [row for row in rows_ if row["t_ns"] <= START + (at + 0.3) * 1e9]
            for name, rows_ in made["samples"].items()
        }
        times = [each[0] for each in happenings[: number + 1]]
        assert analysis.goodput_before(result_of({**made, "samples": so_far}), times) == pytest.approx(
            rows[number].before_bps
        )
    assert analysis.goodput_before(result_of(made), [4.0, 4.1]) is None


def test_recovery_of_a_failure_of_three_tenths_of_a_second_is_judged() -> None:
    """It begins a little behind an edge of a bin, so that only two whole bins are left."""
    failure, _ = recoveries(document(lambda t: FULL_BPS, [(4.01, "fail", 0.25), (4.32, "restore", 0.0)]))
    assert failure.recovery_s == 0.0
    assert failure.took == "less than 100 ms"


@pytest.mark.parametrize(("late", "counts"), [(0.0, True), (0.001, True), (0.01, True), (0.011, False), (0.03, False)])
def test_bin_in_whose_first_tenth_a_failure_is_made_counts(late: float, counts: bool) -> None:
    def rate(t: float) -> float:
        return (1.0 if t < 4.0 + late else 0.1 if t < 4.1 else 0.75) * FULL_BPS

    (only,) = recoveries(document(rate, [(4.0 + late, "fail", 0.25)]))
    assert (only.dip < 0.4) is counts
    assert not (counts and only.dip_s)


def test_recovery_contradicts_no_bin_that_is_shown() -> None:
    """Goodput holds on average at once, but bins in between lie below the bound: it had not recovered before."""

    def below(*begins: float) -> Recovery:
        low = 0.9 if len(begins) == 1 else 0.935
        rate = lambda t: (low if any(each <= t < each + 0.1 for each in begins) else 1.0) * FULL_BPS  # noqa: E731
        (only,) = recoveries(document(rate, [(4.0, "fail", 0.0)]))
        assert only.dip < analysis.RECOVERED
        return only

    for begins in ((4.1,), (4.0, 4.2)):
        assert below(*begins).recovery_s == pytest.approx(begins[-1] + 0.1 - 4.0)


@pytest.mark.parametrize("dips_before", [False, True])
def test_recovery_is_not_what_flows_while_goodput_falls(dips_before: bool) -> None:
    def falling(t: float) -> float:
        if dips_before and 4.0 <= t < 4.1:
            return 0.7 * FULL_BPS
        return FULL_BPS * min(max((4.5 - t) / 0.2, 0.0), 1.0)

    (only,) = recoveries(document(falling, [(4.0, "fail", 0.25)]))
    assert only.after == 0.0
    assert only.recovery_s is None


def test_a_low_bin_at_the_end_is_no_missing_recovery() -> None:
    made = document(lambda t: (0.8 if t >= 7.9 else 1.0) * FULL_BPS, [(4.0, "fail", 0.05), (8.0, "restore", 0.0)])
    assert recoveries(made)[0].recovery_s == pytest.approx(4.0, abs=0.11)


def test_recovery_that_never_comes_is_none() -> None:
    (only,) = recoveries(document(lambda t: FULL_BPS if t < 4 else 0.5 * FULL_BPS, [(4.0, "fail", 0.25)]))
    assert only.recovery_s is None
    assert only.after == pytest.approx(0.5, rel=0.02)


def test_recoveries_leave_out_actions_that_are_too_close_together() -> None:
    flaps = [(4.0, "fail", 0.25), (4.25, "restore", 0.0), (4.5, "fail", 0.25), (4.75, "fail", 0.5)]
    found = recoveries(document(lambda t: FULL_BPS, [*flaps, (8.0, "restore", 0.0)]))
    assert [(each.at_s, each.expected) for each in found] == [(8.0, 2.0)]


def checks(made: dict[str, Any], **expect: Any) -> dict[str, bool]:
    judged = verdict.judge(result_of(made), load_lab("default"), Expectation(**expect))
    return {check.what: check.passed for check in judged.checks}


def test_verdict_of_a_good_run_passes_every_check() -> None:
    made = document(dip, [(4.0, "fail", 0.25), (8.0, "restore", 0.0)])
    result = checks(made, recovery=0.3, min_share=0.95, localised=True)
    assert all(result.values()), result
    assert len(result) == 9


@pytest.mark.parametrize(
    ("change", "expect", "missed"),
    [
        ({"failures": ["host h1: its agent is gone"]}, {}, "no rank or agent failed"),
        ({"fidelity": {"valid": False, "reasons": ["late"]}}, {}, "the machine kept up"),
        ({}, {"recovery": 0.0}, "back to 95% of 75.0% after fail h1:0"),
        ({}, {"max_dip": 0.2}, "lowest after fail h1:0"),
        ({}, {"goodput_share": 0.9}, "goodput"),
        ({}, {"trims": True}, "trims"),
        ({}, {"marks": True}, "marks"),
        ({}, {"min_share": 1.5}, "goodput settled after fail h1:0"),
        ({}, {"max_goodput_share": 0.1}, "goodput"),
        ({"fidelity": {}}, {}, "the machine kept up"),
        # An expectation that nothing in the run can meet or miss.
        ({"happenings": []}, {"recovery": 1.0}, "recovery"),
        ({"happenings": []}, {"min_share": 0.1}, "settled goodput"),
        ({"happenings": []}, {"max_dip": 1.0}, "dip"),
        ({"happenings": []}, {"localised": True}, "hosts name what is broken"),
        ({"samples": {}}, {"trims": False}, "trims"),
        ({"samples": {}}, {"marks": False}, "marks"),
        ({"samples": {}}, {"timeouts": 9}, "timeouts"),
        ({"samples": {}}, {"plane_spread": 9.0}, "spread of the planes' load"),
        ({}, {"plane_spread": 0.5}, "spread of the planes' load"),
        ({}, {"streams": [{"at_least": 0.1}]}, "streams from any to any"),
    ],
)
def test_verdict_of_a_bad_run_names_what_was_missed(
    change: dict[str, Any], expect: dict[str, Any], missed: str
) -> None:
    made = document(dip, [(4.0, "fail", 0.25)]) | change
    assert [what for what, passed in checks(made, **expect).items() if not passed] == [missed]


def test_verdict_misses_counters_above_their_bounds() -> None:
    made = document(dip, [(4.0, "fail", 0.25)])
    assert checks(made, trims=False, marks=False, timeouts=0) == checks(made, timeouts=0, trims=False, marks=False)
    assert all(checks(made, trims=False, marks=False, timeouts=0).values())
    made["samples"]["h1"][-1] |= {"trims": 1, "marks": 1, "timeouts": 1}
    found = checks(made, trims=False, marks=False, timeouts=0)
    assert [what for what, passed in found.items() if not passed] == ["trims", "marks", "timeouts"]


def test_verdict_misses_probes_that_name_another_element() -> None:
    made = document(dip, [(4.0, "fail", 0.25)])
    for named in ([], ["h2:0"], ["h1:0", "h2:0"]):
        made["happenings"][0]["localised"] = named
        found = checks(made, localised=True)
        assert [what for what, passed in found.items() if not passed] == ["hosts name what is broken after fail h1:0"]


RATES = {"h0": {"1": 60e6}, "h1": {"0": 20e6}}


@pytest.mark.parametrize(
    ("wanted", "passed"),
    [
        ({"at_least": 0.2}, True),
        ({"at_least": 0.3}, False),  # h1's 25 % of 80 Mb/s
        ({"source": "h0", "at_least": 0.7}, True),
        ({"source": "h0", "at_least": 0.8}, False),
        ({"destination": "h0", "at_most": 0.3}, True),
        ({"destination": "h1", "at_most": 0.7}, False),
        ({"jain": 0.79}, True),  # 80^2 / (2 * 4000) = 0.8
        ({"jain": 0.81}, False),
        ({"source": "h0", "jain": 0.1}, False),  # there is nobody to be fair to
        ({"source": "h9", "at_least": 0.1}, False),
    ],
    ids=str,
)
def test_streams_are_judged_by_rate_and_fairness(wanted: dict[str, Any], passed: bool) -> None:
    made = document(dip, [])
    for name, rates in RATES.items():
        made["progress"][name]["measured"] = {"streams": {peer: {"average_bps": bps} for peer, bps in rates.items()}}
    found = {what: good for what, good in checks(made, streams=[wanted]).items() if what.startswith("streams")}
    assert list(found.values()) == [passed]


def test_planes_are_judged_by_what_each_carried() -> None:
    made = document(dip, [])
    for samples in made["samples"].values():
        for number, row in enumerate(samples):
            row["tx_bytes"] = [number * share for share in (100, 110, 100, 90)]
    assert checks(made, plane_spread=0.21)["spread of the planes' load"]
    assert not checks(made, plane_spread=0.19)["spread of the planes' load"]


@pytest.mark.parametrize(
    ("key", "value", "missed"),
    [
        ("mismatches", 1, "bytes verified"),
        ("bytes_verified", 0, "bytes verified"),
        ("iterations", 0, "iterations of every rank"),
        ("done", False, "iterations of every rank"),
        ("qps_in_rts", 1, "queue pairs in error"),
    ],
)
def test_a_wrong_byte_or_a_dead_queue_pair_fails_the_run(key: str, value: int, missed: str) -> None:
    made = document(dip, [(4.0, "fail", 0.25)])
    for progress in made["progress"].values():
        progress[key] = value
    assert missed in [what for what, passed in checks(made).items() if not passed]


def standing(column: str) -> RunResult:
    """Ten samples of three ports: one waits for half of the time, one once, one never."""
    rows = []
    for number in range(11):
        stood = {"p0-t0.0:1": number * 50_000_000, "p0-t0.0:2": 20_000_000 if number > 5 else 0, "p0-t1.0:1": 0}
        ports = {port: {"tx_bytes": 0, "depth_bytes": 0, column: ns} for port, ns in stood.items()}
        rows.append({"t_ns": START + number * 100_000_000, "ports": ports})
    return result_of(document(lambda t: FULL_BPS, [], 1.0) | {"fabric": rows})


@pytest.mark.parametrize("column", ["paused_ns", "credit_stall_ns"])
def test_ports_that_stood_still_have_a_chart(column: str) -> None:
    found = charts.stalls(standing(column), column)
    assert list(found) == ["p0-t0.0:1", "p0-t0.0:2"]
    seconds, shares = found["p0-t0.0:1"]
    assert seconds == pytest.approx([0.1 * number for number in range(1, 11)])
    assert shares == pytest.approx([0.5] * 10)
    assert found["p0-t0.0:2"][1].sum() == pytest.approx(0.2)
    ((name, _, _, lines),) = charts.stall_series(standing(column))
    assert name == column
    assert [each.name for each in lines] == list(found)


def test_fabric_without_pauses_has_no_chart_of_stalls() -> None:
    assert charts.stall_series(standing("other_ns")) == []
    assert charts.stall_series(result_of(document(lambda t: FULL_BPS, [], 1.0) | {"fabric": []})) == []
