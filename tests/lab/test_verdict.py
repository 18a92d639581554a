"""Bounds of every check: what is at the bound holds, what is just beyond it does not; and which are of times."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mrc_topo.labfile import load_lab
from mrclab.lab import describe
from mrclab.results import steps, verdict
from mrclab.results.analysis import Recovery
from mrclab.results.check import Check, Verdict
from mrclab.results.expectation import Expectation, StepExpectation, StreamExpectation
from support.lab.results import result_of

TOPOLOGY = load_lab("default")
SECOND = 1_000_000_000
RANK = {"iterations": 1, "done": True, "qps": 4, "qps_in_rts": 4, "bytes_verified": 1}


def sample(t_ns: int, **counters: Any) -> dict[str, Any]:
    names = ("trims", "marks", "timeouts", "losses", "retransmissions", "spurious_retransmissions", "packets")
    return {
        "t_ns": t_ns,
        "delivered_bytes": 0,
        "tx_bytes": [0] * TOPOLOGY.lab.planes,
        **dict.fromkeys(names, 0),
        **counters,
    }


def check(what: str, rank: dict[str, Any] | None = None, counted: dict[str, Any] | None = None, **expect: Any) -> Check:
    """Return the check of that name on a run of one second of two hosts, the second of which counted nothing."""
    rows = {"h0": [sample(0), sample(SECOND, **(counted or {}))], "h1": [sample(0), sample(SECOND)]}
    result = result_of(
        {
            "ranks": ["h0", "h1"],
            "finished_ns": SECOND,
            "samples": rows,
            "progress": {"h0": RANK | (rank or {}), "h1": RANK},
            "fidelity": {"valid": True},
        }
    )
    (found,) = (each for each in verdict.judge(result, TOPOLOGY, Expectation(**expect)).checks if each.what == what)
    return found


@pytest.mark.parametrize(
    ("what", "rank", "expect", "passed"),
    [
        ("queue pairs in error", {"qps_in_rts": 3}, {"qp_errors": 1}, True),
        ("queue pairs in error", {"qps_in_rts": 2}, {"qp_errors": 1}, False),
        ("queue pairs in error", {"qps_in_rts": 3}, {}, False),
        ("bytes verified", {}, {}, True),
        ("bytes verified", {"mismatches": 1}, {}, False),
        ("iterations of every rank", {"iterations": 0}, {}, False),
        ("iterations of every rank", {"iterations": 0, "takes_part": False}, {}, True),
        ("iterations of every rank", {"done": False}, {}, False),
        ("iterations of every rank", {"failure": "gone"}, {}, False),
    ],
)
def test_check_of_what_ranks_report_passes_up_to_its_bound(
    what: str, rank: dict[str, Any], expect: dict[str, Any], passed: bool
) -> None:
    found = check(what, rank, **expect)
    assert (found.passed, found.timed) == (passed, False)


@pytest.mark.parametrize(
    ("what", "counted", "expect", "passed", "timed"),
    [
        ("trims", {"trims": 1}, {"trims": True}, True, False),
        ("trims", {"trims": 1}, {"trims": False}, False, False),
        ("marks", {}, {"marks": True}, False, False),
        ("marks", {}, {"marks": False}, True, False),
        ("timeouts", {"timeouts": 2}, {"timeouts": 2}, True, True),
        ("timeouts", {"timeouts": 3}, {"timeouts": 2}, False, True),
        ("spurious retransmissions", {"packets": 100, "spurious_retransmissions": 5}, {"spurious": 0.05}, True, False),
        ("spurious retransmissions", {"packets": 100, "spurious_retransmissions": 6}, {"spurious": 0.05}, False, False),
        ("spurious retransmissions", {"packets": 0}, {"spurious": 0.0}, True, False),
        ("spread of the planes' load", {"tx_bytes": [9, 11, 10, 10]}, {"plane_spread": 0.2}, True, True),
        ("spread of the planes' load", {"tx_bytes": [8, 11, 11, 10]}, {"plane_spread": 0.2}, False, True),
        ("spread of the planes' load", {}, {"plane_spread": 0.2}, False, True),
    ],
)
def test_check_of_what_hosts_count_passes_up_to_its_bound(
    what: str, counted: dict[str, Any], expect: dict[str, Any], passed: bool, timed: bool
) -> None:
    found = check(what, counted=counted, **expect)
    assert (found.passed, found.timed) == (passed, timed)


def test_a_recovery_has_ten_round_trips_a_timeout_a_bin_and_what_is_given() -> None:
    rtt_ns, timeout_ns = describe.base_rtt_ns(TOPOLOGY, "virtual"), describe.ack_timeout_ns(TOPOLOGY)
    within = (10 * rtt_ns + timeout_ns) / 1e9 + 0.1 + 0.3
    assert verdict.recovery_bound_s(TOPOLOGY, "virtual", 0.3) == pytest.approx(within)


def test_checks_of_a_recovery_pass_up_to_their_bounds_and_are_timed() -> None:
    recovery = Recovery(1.0, "fail x", True, 1e6, 0.5, 0.25, 0.375, 0.2, 0.5)
    for made, at, beyond in (
        (verdict._recovered, 0.2, 0.19),
        (verdict._settled, 0.75, 0.76),
        (verdict._dip, 0.5, 0.49),
    ):
        assert [made(recovery, bound).passed for bound in (at, beyond)] == [True, False]
        assert made(recovery, at).timed
    assert not verdict._recovered(Recovery(1.0, "x", True, 1e6, 1.0, 0.0, 0.0, None, 1.0), 9.0).passed


@pytest.mark.parametrize(
    ("bounds", "passed", "expected"),
    [
        ({"at_least": 0.2}, True, "at least 200 ms"),
        ({"at_least": 0.201}, False, "at least 201 ms"),
        ({"at_least": 0.1}, True, "at least 100 ms"),
        ({"at_most": 0.2}, True, "at most 200 ms"),
        ({"at_most": 0.199}, False, "at most 199 ms"),
        ({"at_most": 0.3}, True, "at most 300 ms"),
    ],
)
def test_check_of_step_times_passes_up_to_its_bound(
    monkeypatch: pytest.MonkeyPatch, bounds: dict[str, float], passed: bool, expected: str
) -> None:
    """Two steps, of 100 and 200 ms: the longest is compared."""
    taken = [
        steps.TrainingStep(0, 0, SECOND // 10, False),
        steps.TrainingStep(1, SECOND // 10, SECOND * 3 // 10, False),
    ]
    monkeypatch.setattr(steps, "steps_of", lambda result: taken)
    found = check("max of all steps", steps=[{"of": "max", **bounds}])
    assert (found.passed, found.timed, found.expected, found.measured) == (passed, True, expected, "200.0 ms (2 steps)")


@pytest.mark.parametrize(("failures", "measured"), [(3, "a0; a1; a2"), (4, "a0; a1; a2; ...")])
def test_check_of_failures_names_the_first_three(failures: int, measured: str) -> None:
    result = result_of({"ranks": ["h0"], "progress": {"h0": RANK}, "failures": [f"a{n}" for n in range(failures)]})
    judged = verdict.judge(result, TOPOLOGY, Expectation()).checks
    (found,) = (each for each in judged if each.what == "no rank or agent failed")
    assert (found.passed, found.measured) == (False, measured)


def test_verdict_on_a_slow_machine_counts_only_untimed_checks() -> None:
    good, late, wrong = (Check("a", "b", "c", *given) for given in ((True,), (False, True), (False, False)))
    assert Verdict([good], [], False, []).status == "passed"
    slow = Verdict([good, late], [], False, ["late"])
    assert (slow.passed, slow.holds, slow.timing_only, slow.status) == (False, True, True, "failed")
    assert not Verdict([late], [], True, []).timing_only
    assert not Verdict([wrong, late], [], False, []).timing_only
    stopped = Verdict([good, late], [], False, [], interrupted="SIGINT")
    assert (stopped.status, stopped.timing_only) == ("interrupted", False)


def test_defaults_and_bounds_of_expectations() -> None:
    expect = Expectation()
    assert (expect.verified, expect.valid, expect.qp_errors, expect.streams, expect.steps) == (True, True, 0, [], [])
    given = expect.model_dump(exclude={"verified", "valid", "qp_errors", "streams", "steps"})
    assert set(given.values()) == {None}
    zero = Expectation(recovery=0, min_share=0, max_dip=1, timeouts=0, spurious=1, goodput_share=0, max_goodput_share=0)
    assert zero.recovery == 0
    wrong: list[dict[str, float]] = [
        *(
            {key: -0.1}
            for key in ("recovery", "min_share", "max_dip", "spurious", "goodput_share", "max_goodput_share")
        ),
        {"qp_errors": -1},
        {"timeouts": -1},
        {"max_dip": 1.1},
        {"spurious": 1.1},
        {"plane_spread": 0},
    ]
    for bad in wrong:
        with pytest.raises(ValidationError):
            Expectation.model_validate(bad)
    assert StreamExpectation(at_least=1, at_most=0, jain=1).jain == 1
    wrong = [{}, {"at_least": 0}, {"at_least": 1.1}, {"at_most": 1}, {"at_most": -0.1}, {"jain": 0}, {"jain": 1.1}]
    for bad in wrong:
        with pytest.raises(ValidationError):
            StreamExpectation.model_validate(bad)
    assert StepExpectation(of="max", at_most=1).during == "all"
    wrong = [{}, {"at_least": 0}, {"at_most": 0}]
    for bad in wrong:
        with pytest.raises(ValidationError):
            StepExpectation.model_validate({"of": "max", **bad})
