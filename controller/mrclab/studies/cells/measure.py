"""One cell: made in simulated time, and reduced to what figures and calibration look at."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from mrc_host.answers import EvEvent, MrcHostStatistics
from mrc_host.proto.events import EvState
from mrc_host.requests import GetStatistics
from mrc_topo import addressing
from mrc_topo.labfile import parse_lab
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.lab.faults.action import Action
from mrclab.lab.session.base import Session, closing
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import analysis, evidence, performance
from mrclab.results.check import Check
from mrclab.results.record import Numbers, RunResult
from mrclab.results.recording import Recording
from mrclab.runs import conduct, precheck, sources
from mrclab.runs.compare import lost_between_switches, seconds_per_iteration
from mrclab.runs.experiment import Experiment
from mrclab.runs.ideal import payload_share
from mrclab.studies.cells import measured
from mrclab.studies.cells.cell import Cell, changed, policy_folder
from mrclab.studies.cells.measured import ActiveEvs, Goodput, Measured, MeasuredEvChange, Queues, Rate, Segment

BIN_S = 0.05
#: Goodput is missing when it is below this share of what the capacity that is left allows.
GLITCH = 0.85
#: Actions within this time (s) count as one step.
TOGETHER_S = 0.02
#: After a step goodput counts as settled.
SETTLED_S = 0.15
#: An action on the lab: time in s, share of the capacity left, and a text.
Change = tuple[float, float, str]


def software() -> str:
    """Return what stands for all programs that a cell's result depends on."""
    return sources.software(pathlib.Path(__file__), pathlib.Path(measured.__file__))


def prepare(cell: Cell) -> Topology:
    """Return the topology of a cell's lab; lab and experiment are checked against each other.

    Raises:
        LabError, ExperimentError: they cannot be.
    """
    lab = cell.lab
    if cell.policies:
        lab = changed(lab, policies={kind: f"{policy_folder()}/{text}" for kind, text in cell.policies.items()})
    topology = parse_lab(lab.model_dump_json(exclude_unset=True), f"lab of {cell.name}")  # JSON is YAML
    precheck.check(cell.experiment, topology)
    return topology


def measure(cell: Cell, look: Callable[[VirtualSession], object] | None = None) -> Measured:
    """Run a cell; `look` is called after every step of time."""
    topology, experiment = prepare(cell), cell.experiment
    session = VirtualSession(topology, experiment.transport)
    with closing(session), Recording() as recording:
        if cell.impair and cell.broken:
            _impair(session, cell)
        before = lost_between_switches(session)
        runs = experiment if cell.broken else experiment.model_copy(update={"schedule": []})

        active: list[ActiveEvs] = []

        def observe(result: RunResult) -> None:
            if cell.watch_evs:
                _note_active(session, cell.watch_evs, result, active)
            if look is not None:
                look(session)

        result = conduct.run_on(session, runs, observe, recording)
        lost = lost_between_switches(session) - before
        shown = list(evidence.findings(result, topology, experiment.claims()))
        reduced = _reduced(cell, topology, result, [*shown, *_impaired(cell, lost)], lost)
        return dataclasses.replace(reduced, active_evs=active, ev_changes=_ev_changes(result, cell.watch_evs))


def _note_active(session: VirtualSession, host: str, result: RunResult, active: list[ActiveEvs]) -> None:
    """Note how many EVs the queue pairs of a host that send have in use, if that has changed."""
    statistics = session.hosts[host].ask(GetStatistics())
    if isinstance(statistics, MrcHostStatistics):
        count = sum(sum(qp.ev_active) for qp in statistics.qps if qp.requestor.get("packets_sent"))
        if not active or active[-1].active != count:
            active.append(ActiveEvs(round((session.now_ns() - result.started_ns) / 1e9, 3), count))


def _ev_changes(result: RunResult, watched: str) -> list[MeasuredEvChange]:
    """Return `Measured.ev_changes`."""
    return [
        MeasuredEvChange(round((event.t_ns - result.started_ns) / 1e9, 4), event.ev, event.plane, event.new)
        for host, event in result.events.between(result.started_ns, 1 << 63, "ev")
        if host == watched and isinstance(event, EvEvent)
    ]


def _impair(session: Session, cell: Cell) -> None:
    """Apply the cell's impairment to all links between switches."""
    for link in session.topology.links.values():
        if not link.is_host_link:
            session.failures.perform(session, Action("fail", link.name, "impair", settings=dict(cell.impair)))


def _impaired(cell: Cell, lost: int) -> list[Check]:
    if not cell.impair:
        return []
    wanted = max(cell.lost, 1)
    text = f"evidence of {', '.join(f'{key} {value}' for key, value in cell.impair.items())} on all links"
    return [Check(f"{text}: packets lost", f"at least {wanted}", str(lost), lost >= wanted)]


def _reduced(cell: Cell, topology: Topology, result: RunResult, shown: list[Check], lost: int) -> Measured:
    seconds = seconds_per_iteration(result)
    progress = result.progress.values()
    wrong = [f"{each.mismatches} blocks are wrong" for each in progress if each.mismatches]
    found = performance.of(result)
    sent, hit, found_s = _queue_pairs(result, topology)
    steps, edges = _steps(result), result.grid(BIN_S)
    rates = result.goodput_bps(edges)
    return Measured(
        evidence=shown,
        failures=[*result.failures, *wrong],
        series=_series(steps, edges, rates),
        segments=_segments(steps, edges, rates, cell.experiment.workload.duration or math.inf),
        streams=list(found.bandwidth),
        latency=list(found.latency),
        iterations=list(found.iterations),
        iteration_s=seconds if math.isfinite(seconds) else None,
        retransmissions=result.totals()["retransmissions"],
        lost=lost,
        qp_errors=result.achieved().qp_errors,
        qps=sent,
        qps_hit=hit,
        found_s=found_s,
        queues=_queues(result),
        host_bps=topology.lab.host_rate_bps,
        watched={name: _watched(result, name) for name in cell.watch},
        payload_share=_payload_share(topology, cell.experiment),
        flows=list(found.flows),
        counters=_counters(result),
        evs_bad=sum(qp.ev_states.get(EvState.ASSUMED_BAD.name, 0) for qp in result.queue_pairs().values()),
    )


def _counters(result: RunResult) -> dict[str, int]:
    """Return `Measured.counters`."""
    found: Counter[str] = Counter()
    for each in result.counted.values():
        found.update(each)
    return dict(found)


def _watched(result: RunResult, name: str) -> list[Rate]:
    if ":" not in name:
        edges = result.grid(BIN_S)
        rates = 8 * result.rates(name, "delivered_bytes", edges)
        return [Rate(round(float(t), 3), round(float(y))) for t, y in zip(edges, rates, strict=False)]
    times, sent = result.recording.fabric.take(["t_ns", f"ports.{name}.tx_bytes"])
    spans = np.maximum(np.diff(times), 1)
    start = result.started_ns
    return [
        Rate(round((t - start) / 1e9, 3), round(float(y)))
        for t, y in zip(times, 8e9 * np.diff(sent) / spans, strict=False)
    ]


def _payload_share(topology: Topology, experiment: Experiment) -> float | None:
    size = experiment.workload.params.get("message_bytes")
    if experiment.workload.name not in ("permutation", "send_recv") or not size:
        return None
    return payload_share(topology, experiment.transport, experiment.workload.qps_per_peer, int(size))


def _steps(result: RunResult) -> list[Change]:
    """Return what happened, all that was done together as one."""
    start = result.started_ns
    steps: list[Change] = []
    for each in result.happenings:
        time, left, text = (each.done_ns - start) / 1e9, 1.0 - each.expected_loss, each.action.describe()
        if steps and time - steps[-1][0] < TOGETHER_S:
            time, _, texts = steps.pop()
            text = f"{texts}; {text}"
        steps.append((time, left, text))
    return steps


def _series(steps: Sequence[Change], edges: Numbers, rates: Numbers) -> list[Goodput]:
    left = np.ones(len(rates))
    for time, share, _ in steps:
        left[edges[:-1] >= time - 1e-9] = share
    return [Goodput(round(float(t), 3), round(float(y)), float(s)) for t, y, s in zip(edges, rates, left, strict=False)]


def _segments(steps: Sequence[Change], edges: Numbers, rates: Numbers, lasts: float) -> list[Segment]:
    """Return what each step of the schedule left; the last ends where the workload begins to (after `lasts` s)."""
    if not steps:
        return []
    baseline = analysis.window_mean(rates, edges, steps[0][0] / 2, steps[0][0])
    ends = [*(time for time, _, _ in steps[1:]), min(float(edges[-1]), lasts)]
    found = []
    for (begin, left, text), end in zip(steps, ends, strict=True):
        inside = (edges[:-1] >= begin - 1e-9) & (edges[1:] <= end + 1e-9)
        shares = rates[inside] / baseline if baseline else np.zeros(int(inside.sum()))
        half = shares[round(SETTLED_S / BIN_S) :]
        runs = [len(list(group)) for low, group in itertools.groupby(shares < GLITCH * left) if low]
        settled, mean, lowest = (
            float(of(part)) if len(part) else 0.0 for of, part in ((np.mean, half), (np.mean, shares), (np.min, shares))
        )
        found.append(Segment(begin, end, text, left, settled, mean, lowest, max(runs, default=0) * BIN_S))
    return found


def _queue_pairs(result: RunResult, topology: Topology) -> tuple[int, int, float]:
    """Return `Measured.qps`, `qps_hit` and `found_s`."""
    sent = {key: qp.peer for key, qp in result.queue_pairs().items() if qp.requestor.get("packets_sent")}
    broken = [each.action.target for each in result.happenings if each.fails]
    hit = set()
    last = 0.0
    if broken:
        begin = next(each.done_ns for each in result.happenings if each.fails)
        element, paths = topology.element(broken[0]), Paths(topology)
        indices = {addressing.text(host.address): host.index for host in topology.hosts}
        for host, event in result.events.bad_evs():
            key = (host, event.qpn)
            peer = indices.get(sent.get(key) or "")
            if peer is not None and paths.may_cross(element, topology.host(host).index, peer, event.ev):
                hit.add(key)
                last = max(last, (event.t_ns - begin) / 1e9)
    return len(sent), len(hit), last


def _queues(result: RunResult) -> list[Queues]:
    fabric = result.recording.fabric
    depths = [name for name in fabric.columns if name.endswith(".depth_bytes")]
    pauses = [name for name in fabric.columns if name.endswith(".pauses_sent")]
    times, *rows = fabric.take(["t_ns", *depths, *pauses])
    longest = np.max(rows[: len(depths)], axis=0) if depths else np.zeros(len(times))
    sent = np.sum(rows[len(depths) :], axis=0) if pauses else np.zeros(len(times))
    start = result.started_ns
    return [
        Queues(round((t - start) / 1e9, 3), float(q), float(n)) for t, q, n in zip(times, longest, sent, strict=True)
    ]
