"""Completion times over time: those of single steps and flows, and the mean while a workload runs."""

from __future__ import annotations

import asyncio
import math
import pathlib
from typing import Any

import pytest

from mrc_host.answers import FlowTimes, JobProgress, LatencyTimes, Measured, Stream, Times, TrainingTimes
from mrc_host.workloads import WORKLOADS
from mrc_topo.labfile import load_lab
from mrclab.results.record import RunResult
from mrclab.runs.execute import execute
from mrclab.runs.experiment import Experiment
from mrclab.web.hub import Hub
from mrclab.web.replay import Recorded, Replay
from mrclab.web.sampler import (
    IDLE,
    PENDING,
    POINTS,
    WINDOW_NS,
    ProgressWatch,
    completions_of,
    edges_of,
    overlap,
    without,
)
from mrclab.web.server import Server
from mrclab.web.state import calm, layout_of
from support.web import simulating

MS = 1_000_000
TIMES = Times(100, 1 * MS, 3 * MS, 3.0 * MS, 1.0, 9 * MS, 10 * MS, 11 * MS)


def run(measured: dict[str, Measured], seconds: float = 2.0, **progress: Any) -> RunResult:
    """Return a run that began at 5 s, whose ranks measured this."""
    result = RunResult("tiny", "real", 1, "x", {}, list(measured))
    result.started_ns, result.finished_ns = 5_000 * MS, 5_000 * MS + round(seconds * 1e9)
    for host, each in measured.items():
        row = JobProgress(started_ns=result.started_ns, done=True, measured=each, **progress)
        result.progress[host] = row
    return result


def test_median_and_p99_are_of_the_steps_that_ended_shortly_before() -> None:
    """200 steps of 10 ms, of which those from 1 s to 1.2 s end at once, and one takes the time."""
    ends = [5_000 * MS + 10 * MS * number for number in range(1, 201)]
    ends = [end for end in ends if not 6_000 * MS < end < 6_200 * MS]
    training = Measured(training=TrainingTimes(ends, 0, {}))
    found = completions_of(run({"h0": training, "h1": training}, iterations=len(ends)), 4_000 * MS)
    assert (found["what"], found["window_ns"], found["why"]) == ("step", WINDOW_NS, "")
    rows = {row[0]: row[1:] for row in found["rows"]}
    # Times are from a beginning a second before the run's.
    assert list(rows) == [1_000 * MS + edge for edge in edges_of(2_000 * MS)[1:]]
    # Of fewer than 100 there is no P99.
    assert rows[1_500 * MS] == [10 * MS, None, 50]
    assert rows[2_000 * MS] == [10 * MS, 10 * MS, 100]
    assert rows[2_200 * MS] == [10 * MS, None, 81]
    assert rows[3_000 * MS] == [10 * MS, None, 81]


def test_flows_have_their_times_and_moments_in_which_nothing_ended_have_none() -> None:
    flows = [
        FlowTimes(number, 1, 1000, 5_000 * MS, 5_000 * MS + (number + 1) * 20 * MS) for number in range(4)
    ]  # 20 to 80 ms
    found = completions_of(run({"h0": Measured(flows=flows[:1]), "h1": Measured(flows=flows[1:])}), 5_000 * MS)
    assert found["what"] == "flow"
    rows = {row[0]: row[1:] for row in found["rows"]}
    assert rows[100 * MS] == [40 * MS, None, 4]
    assert found["why"]
    assert rows[1_900 * MS] == [None, None, 0]


def test_long_steps_have_a_window_of_several() -> None:
    ends = [5_000 * MS + 800 * MS * number for number in range(1, 11)]
    training = Measured(training=TrainingTimes(ends, 0, {}))
    found = completions_of(run({"h0": training}, 8.0, iterations=len(ends)), 5_000 * MS)
    assert found["window_ns"] == 5 * 800 * MS
    assert found["rows"][-1][3] == 5


def test_points_are_a_bounded_number_and_reach_the_end() -> None:
    for length_ns in (1, 300 * MS, 10_000 * MS, 1 << 50):
        edges = edges_of(length_ns)
        assert (edges[0], edges[-1]) == (0, length_ns)
        assert 3 <= len(edges) <= POINTS + 1


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (Measured(iteration_ns=TIMES), "iteration: of the whole run only, median 3 ms, P99 9 ms"),
        (
            Measured(iteration_ns=TIMES, latency_ns=LatencyTimes(**vars(TIMES), message_bytes=8, peer=1)),
            "message: of the whole run only, median 3 ms, P99 9 ms",
        ),
        (
            Measured(streams={"1": Stream(1, 1, 1, 1.0, 1.0, 0, 1, 1.0)}),
            "x times no single steps, flows or messages",
        ),
        (Measured(), "x times no single steps, flows or messages"),
    ],
)
def test_a_run_without_single_times_says_what_it_has(measured: Measured, why: str) -> None:
    found = completions_of(run({"h0": measured}), 0)
    assert (found["what"], found["rows"], found["why"]) == ("", [], why)


def progress(iterations: int, workload: str = "ring_all_reduce", done: bool = False) -> dict[str, Any]:
    ranks = [
        JobProgress(iterations=iterations + more, workload=workload, done=done, started_ns=(10 + more) * MS)
        for more in (0, 1)
    ]
    return {"job": {"h0": ranks[0], "h1": ranks[1]}}


def test_an_iteration_that_lasts_longer_than_the_mean_counts_as_long_as_it_lasts() -> None:
    watch, shown = ProgressWatch(0), []
    for now, iterations in ((51, 0), (111, 2), (211, 4), (311, 4), (611, 4), (711, 5), (811, 7)):
        job = watch.look(progress(iterations), now * MS)
        assert job is not None
        shown.append((job["step_ns"] // MS, job["completion_ns"] // MS))
    # The first began 40 ms before it was seen.
    assert shown == [(0, 40), (50, 50), (50, 50), (50, 100), (50, 400), (140, 140), (114, 114)]
    ended = watch.look(progress(7, done=True), 1_000 * MS)
    assert ended is not None
    assert ended["completion_ns"] == ended["step_ns"] == shown[-1][0] * MS + 285_714
    # The same answer of the hosts again is no news.
    assert ended == watch.look(progress(7, done=True), 1_000 * MS)


def test_a_job_shorter_than_a_sample_has_the_mean_of_its_own_times() -> None:
    for began in (0, 5):
        ranks = {"job": progress(5, done=True)["job"]}
        for row in ranks["job"].values():
            row.finished_ns = 61 * MS
        job = ProgressWatch(began * MS).look(ranks, 100 * MS)
        assert job is not None
        assert (job["running"], job["ended_ns"]) == (False, (61 - began) * MS)
        assert job["step_ns"] == job["completion_ns"] == (61 - 11) * MS // 5
    stream = {"job": progress(5, "permutation", done=True)["job"]}
    job = ProgressWatch(0).look(stream, 100 * MS)
    assert job is not None
    assert job["completion_ns"] == 0


def test_curves_have_the_time_of_a_job_that_ended_since_the_last_point() -> None:
    hub = Hub()
    layout = layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    hub.show(layout)
    job = {"running": False, "completion_ns": 7 * MS, "ended_ns": 130 * MS}
    before = {**job, "running": True, "ended_ns": -1}
    for t_ns, shown in ((100, None), (120, before), (140, job), (150, job), (300, job)):
        hub.publish({**calm(layout, 1), "t_ns": t_ns * MS, "job": shown})  # type: ignore[typeddict-item]
    assert [(row[0] // MS, row[-1] // MS) for row in hub.history] == [(100, 0), (140, 7), (300, 0)]


def test_the_first_iteration_begins_when_the_ranks_start() -> None:
    """A simulation begins at 0, where a rank on the real clock has not started."""
    ranks = {"job": {"h0": JobProgress(workload="ring_all_reduce")}}
    for began, lasts in ((0, 70), (5, 0)):
        job = ProgressWatch(began * MS).look(ranks, 70 * MS)
        assert job is not None
        assert job["completion_ns"] == lasts * MS
    watch = ProgressWatch(5 * MS)
    watch.look(ranks, 70 * MS)
    ranks["job"]["h0"].started_ns = 80 * MS
    watch.look(ranks, 90 * MS)
    ranks["job"]["h0"].iterations = 2
    job = watch.look(ranks, 100 * MS)
    assert job is not None
    assert job["step_ns"] == 10 * MS


def test_mean_of_a_workload_that_is_seen_in_the_middle_is_of_whole_iterations() -> None:
    watch, shown = ProgressWatch(0), []
    for now, iterations in ((1_000, 5), (1_010, 6), (1_110, 7), (1_210, 8)):
        job = watch.look(progress(iterations), now * MS)
        assert job is not None
        shown.append((job["step_ns"] // MS, job["completion_ns"] // MS))
    assert shown == [(0, 0), (0, 0), (100, 100), (100, 100)]
    # Another job, with as many iterations.
    for more in (0, 1):
        job = watch.look({"other": progress(9 + more)["job"]}, (1_310 + 50 * more) * MS)
        assert job is not None
        assert (job["step_ns"], job["completion_ns"]) == (0, 0)
    # One of the same name.
    for more in (0, 1):
        job = watch.look({"other": progress(3 + more)["job"]}, (1_410 + 50 * more) * MS)
        assert job is not None
        assert (job["step_ns"], job["completion_ns"]) == (0, 0)


def test_messages_of_a_stream_overlap_and_have_no_mean_completion_time() -> None:
    assert {name for name in WORKLOADS if overlap(name)} == {"permutation", "incast", "send_recv", "write_bw"}
    watch = ProgressWatch(0)
    watch.look(progress(0, "permutation"), 11 * MS)
    job = watch.look(progress(10, "permutation"), 111 * MS)
    assert job is not None
    assert (job["step_ns"], job["completion_ns"]) == (10 * MS, 0)


TRAINING = Experiment.model_validate(
    {
        "name": "steps",
        "title": "Steps of training",
        "lab": "tiny",
        "workload": {"name": "training", "duration": 1.0},
        "expect": {"valid": False},
    }
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("run")
    execute(TRAINING, "virtual", folder=folder, live=False)
    return folder


def test_a_recorded_training_has_the_times_of_its_steps(recorded: pathlib.Path) -> None:
    hub = Hub()
    replay = Replay(hub, Recorded(recorded))
    replay.prepare()
    found = hub.completions
    assert found["what"] == "step"
    assert hub.whole is not None
    assert [row[0] for row in found["rows"]] == [row[0] for row in hub.whole]
    assert sum(row[3] or 0 for row in found["rows"]) > 0
    assert math.isclose(found["rows"][-1][0] or 0, replay.length_ns)


def test_a_page_gets_completion_times_when_they_change() -> None:
    """While a workload runs their mean, and when it has ended all that it measured; at first why there are none."""
    with simulating(paused=True, speed=0) as view:
        view.until(lambda state: True)
        assert view.hub.completions["why"] == IDLE
        view.ask("start", workload="training", duration=1.0)
        view.until(lambda state: state["job"] and state["job"]["running"])
        assert view.hub.completions["why"] == PENDING
        view.ask("step", seconds=0.4)
        state = view.until(lambda state: state["t_ns"] == 400 * MS and state["job"] and state["job"]["completion_ns"])
        assert state["job"] is not None
        assert state["job"]["step_ns"] <= state["job"]["completion_ns"]
        assert view.hub.completions["why"] == PENDING
        view.ask("resume")
        view.until(lambda state: state["job"] and not state["job"]["running"])
        assert view.hub.completions["what"] == "step"
        assert any(row[-1] for row in view.hub.history)


def test_a_job_that_no_sample_falls_into_has_its_final_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins and ends between two samples; what it did is published at its end, and stays."""
    monkeypatch.setattr("mrclab.web.view.SAMPLE_S", 3600.0)
    with simulating(speed=0) as view:
        view.until(lambda state: True)
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536, "iterations": 3})
        state = view.until(lambda state: state["job"] and not state["job"]["running"])
        job = state["job"]
        assert job is not None
        assert (job["iterations"], job["verdict"], job["mismatches"]) == (3, "passed", 0)
        assert job["bytes_verified"] == 3 * 4 * 65536
        assert 0 < job["step_ns"] == job["completion_ns"] <= job["ended_ns"]
        assert view.hub.history[-1][-1] == job["completion_ns"]
        assert view.hub.completions["why"].startswith("iteration: of the whole run only, median ")


async def _events(hub: Hub, changes: list[Any]) -> list[str]:
    """Return the events that a page gets, with a change of the hub after each wait."""
    stream = Server(hub)._events(("", ""))
    found: list[str] = []
    async for data in stream:
        name = data.split(b"\n")[0].decode().removeprefix("event: ")
        found.append(name)
        if name == "state":
            if not changes:
                break
            hub.completions = changes.pop()
            hub.publish({**hub.state})  # type: ignore[typeddict-item]
            hub._wake()
    await stream.aclose()  # type: ignore[attr-defined]
    return found


def test_the_stream_has_completion_times_after_the_history_and_when_they_change() -> None:
    hub = Hub()
    layout = layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    hub.show(layout)
    hub.publish(calm(layout, 1))
    again = without("ended")
    found = asyncio.run(_events(hub, [again, again]))
    assert found == ["layout", "history", "completions", "state", "completions", "state", "state"]
