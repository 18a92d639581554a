"""One run of a sweep, wherever it is done: from a task to rows of numbers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import pathlib
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mrc_host.answers import Times
from mrc_host.policy import PolicyError
from mrc_topo.base import quantiles
from mrc_topo.base.plain import OMIT_NONE, decode, encode
from mrc_topo.topology import Topology
from mrc_topo.units import Unit
from mrclab.results import performance, reordering, verdict
from mrclab.results.check import Verdict
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs import compare, execute, sessions
from mrclab.runs.compare import Comparison, seconds_per_iteration
from mrclab.runs.experiment import Experiment, Tree
from mrclab.runs.precheck import requested_lab
from mrclab.studies.engine import Answer, RunStatus, ending

Scalar = float | int | str | bool | None
Row = Mapping[str, Scalar]


@dataclass(frozen=True)
class RunTask:
    """A run, for the process that does it.

    `lab` and `content` are the documents of the lab and of the experiment or comparison (`kind`); `software` is the
    digest of the sources that planned it; `files` has the digest of each file that it names.
    """

    digest: str
    kind: str
    lab: Tree
    content: Tree
    software: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class RunAnswer(Answer):
    """The outcome of a run of a sweep.

    `rows`: numbers by column, with `variant` and `condition` of a comparison; `seconds`: how long it took; `log`: what
    was printed, and the traceback of an error, which is kept in a file of its own.
    """

    rows: list[Row]
    seconds: float
    log: str | None = field(default=None, metadata=OMIT_NONE)

    def same(self, other: RunAnswer) -> bool:
        """Return whether another time left the same."""
        return (self.status, self.failure, self.rows) == (other.status, other.failure, other.rows)


class Measure(NamedTuple):
    """Description of a column of a run: its name for people, its unit, and what it means."""

    name: str
    unit: Unit
    text: str


#: Columns of a run of an experiment, and what they are. What a run does not have is null.
EXPERIMENT = {
    "simulated_s": Measure(
        "simulated time", Unit.TIME, "time on the lab's clock from the first start to the last end, s"
    ),
    "goodput_bps": Measure(
        "goodput",
        Unit.RATE,
        "payload placed at all responders, bit/s, mean over the workload's duration, or over all of the run",
    ),
    "goodput_share": Measure(
        "goodput, of the hosts' links",
        Unit.SHARE,
        "the same over the links of all hosts that take part, so 0.5 at most if half of them only send",
    ),
    "iteration_s": Measure(
        "time of an iteration", Unit.TIME, "time of the run for each iteration of the rank that did fewest, s"
    ),
    "iteration_p99_s": Measure(
        "time of an iteration, P99",
        Unit.TIME,
        "99 % of the slowest rank's iterations take no longer, s; of 100 iterations and more",
    ),
    "iterations": Measure("iterations", Unit.COUNT, "of the rank that did fewest"),
    "latency_s": Measure("latency", Unit.TIME, "median of half of a round trip, s"),
    "latency_p99_s": Measure("latency, P99", Unit.TIME, "its 99 % quantile, s; of 100 messages and more"),
    "stream_least_bps": Measure("slowest stream", Unit.RATE, "the slowest stream, bit/s"),
    "stream_most_bps": Measure("fastest stream", Unit.RATE, "the fastest stream, bit/s"),
    "fct_s": Measure("flow completion time", Unit.TIME, "median of all flows' completion times, s"),
    "fct_p99_s": Measure("flow completion time, P99", Unit.TIME, "their 99 % quantile, s; of 100 flows and more"),
    "flow_slowdown": Measure(
        "flow slowdown",
        Unit.TIMES,
        "mean of completion time over the time that a flow takes alone (docs/howto/load-a-fabric.md)",
    ),
    "flow_slowdown_p50": Measure("flow slowdown, median", Unit.TIMES, "its median"),
    "flow_slowdown_p95": Measure("flow slowdown, P95", Unit.TIMES, "its 95 % quantile; of 20 flows and more"),
    "flow_slowdown_p99": Measure("flow slowdown, P99", Unit.TIMES, "its 99 % quantile; of 100 flows and more"),
    "flow_slowdown_p99_9": Measure("flow slowdown, P99.9", Unit.TIMES, "its 99.9 % quantile; of 1000 flows and more"),
    "jain": Measure("Jain's index", Unit.COUNT, "Jain's index of fairness of all streams (1: all get the same)"),
    "dip": Measure(
        "lowest goodput, of before", Unit.SHARE, "lowest goodput after what broke, as a share of that before"
    ),
    "settled": Measure(
        "settled goodput, of before",
        Unit.SHARE,
        "lowest goodput in the second half of the time after a failure, of before",
    ),
    "settled_of_left": Measure(
        "settled goodput, of what was left", Unit.SHARE, "the same over what the capacity left allows"
    ),
    "recovery_s": Measure(
        "recovery", Unit.TIME, "longest time until goodput was back at 95 % of what is left, s; null if it never was"
    ),
    "retransmissions": Measure("packets sent again", Unit.COUNT, "packets sent again"),
    "losses": Measure("packets taken for lost", Unit.COUNT, "packets that hosts took for lost"),
    "spurious_retransmissions": Measure(
        "packets sent again in vain", Unit.COUNT, "of them, those of packets that had arrived"
    ),
    "spurious_losses": Measure(
        "packets wrongly taken for lost", Unit.COUNT, "of them, those that the sender found to have arrived after all"
    ),
    "timeouts": Measure("timeouts", Unit.COUNT, "packets that hosts gave up waiting for"),
    "trims": Measure("trimmed packets", Unit.COUNT, "trimmed packets that hosts got"),
    "marks": Measure("ECN marks", Unit.COUNT, "packets with an ECN mark that hosts got"),
    "packets_sent": Measure("data packets sent", Unit.COUNT, "data packets, all hosts"),
    "sacks_sent": Measure("SACKs sent", Unit.COUNT, "SACKs, all hosts"),
    "out_of_order": Measure("packets out of order", Unit.COUNT, "packets that arrived before one sent earlier"),
    "reordered": Measure(
        "packets that came late", Unit.SHARE, "packets that came after one with a higher PSN, of all (MRC)"
    ),
    "reorder_p99": Measure(
        "reorder distance, P99", Unit.COUNT, "99 % of all packets came no further below the highest PSN"
    ),
    "lost": Measure("packets that failures took", Unit.COUNT, "packets that failures took in the fabric"),
    "queue_drops": Measure("packets that found a full queue", Unit.COUNT, "packets that found a full queue"),
    "evs_lost": Measure("EVs taken for bad", Unit.COUNT, "times that a host took an EV for bad"),
    "qps": Measure("queue pairs that sent", Unit.COUNT, "queue pairs that sent"),
    "qps_hit": Measure("queue pairs that took an EV for bad", Unit.COUNT, "of them, those that took an EV for bad"),
    "qp_errors": Measure("queue pairs in error", Unit.COUNT, "queue pairs in error at the end"),
    "bytes_verified": Measure("bytes verified", Unit.SIZE, "bytes that arrived and are right"),
    "checks_missed": Measure("expectations missed", Unit.COUNT, "expectations of the experiment that were missed"),
}
#: Columns of a run of a comparison: one row for each variant and condition.
COMPARISON = {
    "seconds": Measure(
        "time of an iteration", Unit.TIME, "time of the run for each iteration of the rank that did fewest, s"
    ),
    "slowdown": Measure("slowdown", Unit.TIMES, "its time over that of the same variant under the first condition"),
    "ideal_s": Measure(
        "least time of an iteration", Unit.TIME, "what an iteration takes at least, s (docs/reference/experiments.md)"
    ),
    "lost": Measure("packets that failures took", Unit.COUNT, "packets that failures took on links between switches"),
    "bytes_verified": Measure("bytes verified", Unit.SIZE, "bytes that arrived and are right"),
}
METRICS = {"experiment": EXPERIMENT, "comparison": COMPARISON}

#: A process does one run at a time: what is printed meanwhile is that run's.
_ALONE = threading.Lock()


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file's bytes; empty if it cannot be read."""
    try:
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def perform(task: RunTask) -> RunAnswer:
    """Do a run. Raises nothing except for a signal."""
    begin = time.monotonic()
    said = io.StringIO()
    status, failure = RunStatus.ERROR, ""
    rows: list[Row] = []
    with _ALONE, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            if wrong := environment_difference(task):
                status, failure = RunStatus.STRANGER, wrong
            else:
                rows, failure = (_experiment if task.kind == "experiment" else _comparison)(task)
                status = RunStatus.FAILED if failure else RunStatus.GOOD
        # A run that cannot be done is recorded with the reason. A policy's mistake is no `Exception`, so that it ends
        # the run in which it is made; the other runs of the sweep may have other policies or other settings.
        except (Exception, PolicyError) as error:  # noqa: BLE001
            status, failure = ending(error)
            traceback.print_exc(file=said)
    return RunAnswer(status, failure, rows, time.monotonic() - begin, said.getvalue())


def without_rows(status: RunStatus, failure: str) -> RunAnswer:
    """Return the answer of a run that has none of its own, because its process died."""
    return RunAnswer(status, failure, [], 0.0)


def died(failure: str) -> RunAnswer:
    """Return the answer of a run that ended each worker that took it; `failure`: what Dask says of that."""
    return RunAnswer(RunStatus.DIED, "each worker died that took it", [], 0.0, failure)


def run_in_worker(task: object) -> object:
    """Do a run in a worker of Dask; both ways plain data, which a worker of another version can read, too."""
    return encode(perform(decode(RunTask, task, lenient=True)))


def environment_difference(task: RunTask) -> str:
    """Return how this environment differs from that of the task; empty if it does not."""
    if execute.software(pathlib.Path(__file__)) != task.software:
        return "it has other sources of mrclab; install the same there"
    for path, digest in task.files.items():
        if digest_of(path) != digest:
            return f"{path} is not there, or is another file than where the sweep was started"
    return ""


def _lab(task: RunTask, clock: str) -> Tree:
    """Return the lab of a task, with a name of its own on the real clock: a lab may be up under the file's name."""
    return {**task.lab, "name": f"sweep-{task.digest[:8]}"} if clock == "real" else task.lab


def _experiment(task: RunTask) -> tuple[list[Row], str]:
    experiment = Experiment.model_validate(task.content)
    with (
        sessions.lab_file(_lab(task, experiment.clock)) as path,
        sessions.session_for(
            requested_lab(experiment.model_copy(update={"lab": path}), clock=experiment.clock)
        ) as session,
        Recording() as recording,
    ):
        result = execute.run_on(session, experiment, None, recording)
        judged = verdict.judge(result, session.topology, experiment.expect, experiment.claims())
        found = _numbers(result, session.topology, judged, experiment.workload.duration)
        found["iteration_s"] = _finite(seconds_per_iteration(result))
    failures = list(result.failures)
    failures += [f"{each.mismatches} blocks are wrong" for each in result.progress.values() if each.mismatches]
    if not judged.valid:
        failures.append(f"its times are not valid: {'; '.join(judged.reasons[:2])}")
    return [{key: found.get(key) for key in EXPERIMENT}], failures[0] if failures else ""


def _numbers(result: RunResult, topology: Topology, judged: Verdict, duration: float | None) -> dict[str, float | None]:
    achieved, busy = result.achieved(), [each for each in result.progress.values() if each.takes_part]
    seconds = result.busy_s
    totals = result.totals()
    found: dict[str, float | None] = {
        "simulated_s": seconds,
        "iterations": achieved.least_iterations if busy else None,
        "bytes_verified": achieved.bytes_verified,
        "qp_errors": achieved.qp_errors,
        "checks_missed": sum(not each.passed for each in judged.checks),
        "packets_sent": totals["packets"],
    }
    for key in ("retransmissions", "spurious_retransmissions", "losses", "timeouts", "trims", "marks"):
        found[key] = totals[key]
    if seconds > 0:
        rate = result.mean_goodput_bps()
        if duration is not None:  # the ranks end together some time after it
            rate = float(result.goodput_bps(np.array([0.0, duration]))[0])
        found |= {"goodput_bps": rate, "goodput_share": rate / (topology.lab.host_rate_bps * len(result.ranks))}
    for name in ("requestor.spurious_losses", "responder.sacks_sent", "responder.out_of_order"):
        found[name.rpartition(".")[2]] = result.counter(name)
    measured = performance.of(result)
    if measured.iterations:
        found["iteration_p99_s"] = _tail([each.times for each in measured.iterations])
    if pairs := [each.times for each in measured.latency]:
        found["latency_s"] = max(each.typical for each in pairs) / 1e9
        found["latency_p99_s"] = _tail(pairs)
    if measured.flows:
        taken = [each.completion_s for each in measured.flows]
        found |= {"fct_s": quantiles.quantile(taken, 0.5), "fct_p99_s": quantiles.quantile(taken, 0.99)}
    if slowdowns := [each.slowdown for each in measured.flows if each.slowdown is not None]:
        found["flow_slowdown"] = float(np.mean(slowdowns))
        for name, share in performance.SLOWDOWNS.items():
            found[f"flow_slowdown_{name.lower().replace('.', '_')}"] = quantiles.quantile(slowdowns, share)
    if (late := reordering.of(result)) is not None:
        found |= {"reordered": late.share, "reorder_p99": late.distance(0.99)}
    if rates := [float(each.stream.average_bps) for each in measured.bandwidth]:
        found["stream_least_bps"], found["stream_most_bps"] = min(rates), max(rates)
        found["jain"] = performance.jain(rates)
    if broke := [each for each in judged.recoveries if each.breaks]:
        found["dip"], found["settled"] = min(each.dip for each in broke), min(each.after for each in broke)
        found["settled_of_left"] = min(each.after / each.expected if each.expected > 0 else math.inf for each in broke)
        times = [each.recovery_s for each in broke]
        found["recovery_s"] = None if None in times else max(time for time in times if time is not None)
    return {key: _finite(value) for key, value in {**found, **_fabric(result), **_evs(result)}.items()}


def _tail(rows: Sequence[Times]) -> float | None:
    """Return the highest P99, s; None where one has too few times for it."""
    tails = [each.p99 for each in rows if each.p99 is not None]
    return max(tails) / 1e9 if len(tails) == len(rows) else None


def _fabric(result: RunResult) -> dict[str, float]:
    fabric = result.recording.fabric
    if len(fabric) < 1:
        return {}
    lost, drops = (
        sum(fabric.growth(name for name in fabric.columns if name.endswith(f".{key}")).values())
        for key in ("lost", "drops")
    )
    return {"lost": lost, "queue_drops": drops - lost}


def _evs(result: RunResult) -> dict[str, float]:
    sent = {key for key, qp in result.queue_pairs().items() if qp.requestor.get("packets_sent")}
    bad = [(host, event.qpn) for host, event in result.events.bad_evs()]
    return {"evs_lost": len(bad), "qps": len(sent), "qps_hit": len(sent.intersection(bad))}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _comparison(task: RunTask) -> tuple[list[Row], str]:
    comparison = Comparison.model_validate(task.content)
    with sessions.lab_file(_lab(task, comparison.clock)) as path:
        comparison = comparison.model_copy(update={"lab": path})
        cells, ideals = compare.compare(comparison), compare.ideals(comparison)
    first = comparison.conditions[0].name
    rows: list[Row] = []
    failures = []
    for (variant, condition), cell in cells.items():
        base = cells[variant, first].seconds
        slowdown = cell.seconds / base if math.isfinite(cell.seconds) and math.isfinite(base) and base else None
        row: Row = {"variant": variant, "condition": condition, "seconds": _finite(cell.seconds), "slowdown": slowdown}
        rows.append({**row, "ideal_s": ideals[variant], "lost": cell.lost, "bytes_verified": cell.verified})
        wrong = cell.failure or ("" if math.isfinite(cell.seconds) else "no time could be told")
        wrong = wrong or (f"its time is not valid: {cell.doubt}" if cell.doubt else "")
        if wrong:
            failures.append(f"{variant}, {condition}: {wrong}")
    return rows, failures[0] if failures else ""
