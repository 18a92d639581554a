"""One cell: made in simulated time, and reduced to what figures and calibration look at."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from mrc_host.answers import EvEvent, MrcHostStatistics
from mrc_host.proto.events import EvState
from mrc_host.requests import GetStatistics
from mrc_topo import addressing
from mrc_topo.base.document import Model
from mrc_topo.labfile import parse_lab
from mrc_topo.paths import Paths
from mrc_topo.schema import Lab
from mrc_topo.shipped import shipped
from mrc_topo.topology import Topology
from mrclab.lab.faults.action import Action
from mrclab.lab.session.base import Session, closing
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import analysis, performance, verdict
from mrclab.results.check import Check
from mrclab.results.performance import FlowRow, IterationsRow, LatencyRow, StreamRow
from mrclab.results.provenance import policy_digests
from mrclab.results.record import Numbers, RunResult
from mrclab.results.recording import Recording
from mrclab.results.wire import payload_share
from mrclab.runs import execute, precheck
from mrclab.runs.compare import lost_between_switches, seconds_per_iteration
from mrclab.runs.experiment import Experiment, Tree
from mrclab.studies.engine import Task

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Cell:
    """One run in simulated time.

    Args:
        name: unique in its figure.
        experiment: its schedule states the evidence of what it breaks; the lab that it names does not count.
        impair: settings of the failure `impair` on all links between switches, from before the run to its end.
        lost: packets that these links must lose, at least: the evidence of `impair`.
        cost: seconds of one core that it takes, roughly.
        may_fail: its workload may fail; that is then what is judged.
        watch: hosts, whose goodput, and switches' ports, whose load is kept by itself.
        watch_evs: a host of which the active set of EVs and each change of an EV's state are kept over time.
        policies: `FILE.py:Class` of the published policies (`policy_folder`), by kind of `Lab.policies`.
        broken: False runs it without any failure, and judges it as if there were one.
    """

    name: str
    lab: Lab
    experiment: Experiment
    impair: Mapping[str, float] = field(default_factory=dict)
    lost: int = 0
    cost: float = 10.0
    may_fail: bool = False
    watch: Sequence[str] = ()
    watch_evs: str = ""
    policies: Mapping[str, str] = field(default_factory=dict)
    broken: bool = True

    def digest(self, software: str) -> str:
        """Return the digest of all that its result depends on; `software` stands for the programs."""
        documents = [each.model_dump(mode="json") for each in (self.lab, self.experiment)]
        parts = [self.name, *documents, dict(self.impair), self.lost, self.broken, list(self.watch), self.watch_evs]
        # The documents only name policies.
        parts += [policy_digests(self.lab), {text: _digest_of(text) for text in self.policies.values()}]
        parts += [dict(self.policies), software]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    def task(self, software: str, name: str) -> Task[Cell]:
        """Return what the engine does for this cell, under a displayed name."""
        return Task(self.digest(software), name, self, self.cost)

    def seeded(self, seed: int) -> Cell:
        """Return the same with the seed from which its lab draws all that is random."""
        return replace(self, lab=changed(self.lab, seed=seed))

    def healthy(self) -> Cell:
        """Return the same without its failures."""
        return replace(self, broken=False)

    def with_workload(self, **changes: object) -> Cell:
        """Return the same with other values of keys of the workload."""
        return replace(self, experiment=changed(self.experiment, workload=changed(self.experiment.workload, **changes)))

    def with_params(self, **changes: object) -> Cell:
        """Return the same with other parameters of the workload."""
        return self.with_workload(params={**self.experiment.workload.params, **changes})


def policy_folder() -> pathlib.Path:
    """Return the folder of the published policies."""
    return shipped("experiments") / "sweeps" / "policies"


def _digest_of(policy: str) -> str:
    """Return the digest of the file of a policy, `FILE.py:Class`."""
    return hashlib.sha256((policy_folder() / policy.rpartition(":")[0]).read_bytes()).hexdigest()


def changed(made: M, **changes: object) -> M:
    """Return a document with other values of some keys, checked as the whole.

    Raises:
        ValidationError: a value is none that its key may have.
    """
    return type(made).model_validate({**made.model_dump(mode="json", exclude_unset=True), **changes})


def experiment(workload: Tree, schedule: Sequence[object] = (), **more: object) -> Experiment:
    """Return a cell's experiment from its parts, as an experiment file has them."""
    given = {"name": "figure", "title": "figure", "workload": workload, "schedule": list(schedule), **more}
    return Experiment.model_validate(given)


class Goodput(NamedTuple):
    """Goodput of all hosts in a bin that begins at a time, and the share of the capacity that is left then."""

    t_s: float
    bps: float
    left: float


class Rate(NamedTuple):
    """Payload placed at a host, or bytes sent by a port, from a time on."""

    t_s: float
    bps: float


class Queues(NamedTuple):
    """The longest data queue of the fabric at a time, and the pause frames that switches have sent until then."""

    t_s: float
    longest_bytes: float
    pauses: float


class ActiveEvs(NamedTuple):
    """Number of EVs that the queue pairs of a host send on, from a time on."""

    t_s: float
    active: int


class MeasuredEvChange(NamedTuple):
    """An EV of a host's queue pair changed to a state (a name of `EvState`) at a time."""

    t_s: float
    ev: int
    plane: int
    state: str


@dataclass(frozen=True)
class Segment:
    """The effect of a step of the schedule, compared with the time before the first.

    `left` of the capacity, `settled` goodput, `mean` and `lowest` are shares; `glitch_s`: how long goodput was below
    what is left.
    """

    at_s: float
    until_s: float
    what: str
    left: float
    settled: float
    mean: float
    lowest: float
    glitch_s: float

    @property
    def mends(self) -> bool:
        """Return whether it begins by restoring something."""
        return self.what.startswith("restore")


@dataclass(frozen=True)
class Measured:
    """Measurements of a cell; the same for the same inputs.

    `iteration_s`: of one iteration over all ranks, None if it failed. `lost`: packets that failures took from links
    between switches. `qps` sent, and of them `qps_hit` took an EV for bad across the first broken element, the last of
    these `found_s` after it broke. `host_bps`: capacity of a host. `watched`: by host or port of `Cell.watch`.
    `payload_share`: of all that the links of a host carry that sends as much as it receives (`wire.payload_share`),
    None without such streams. `counters`: sums over all hosts of `RunResult.counted`.
    `evs_bad`: EVs that are ASSUMED_BAD at the end. `active_evs` and `ev_changes`: of the host `Cell.watch_evs`.
    """

    evidence: list[Check] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    series: list[Goodput] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    streams: list[StreamRow] = field(default_factory=list)
    latency: list[LatencyRow] = field(default_factory=list)
    iterations: list[IterationsRow] = field(default_factory=list)
    iteration_s: float | None = None
    retransmissions: int = 0
    lost: int = 0
    qp_errors: int = 0
    qps: int = 0
    qps_hit: int = 0
    found_s: float = 0.0
    queues: list[Queues] = field(default_factory=list)
    host_bps: float = 0.0
    watched: dict[str, list[Rate]] = field(default_factory=dict)
    payload_share: float | None = None
    flows: list[FlowRow] = field(default_factory=list)
    counters: Mapping[str, int] = field(default_factory=dict)
    evs_bad: int = 0
    active_evs: list[ActiveEvs] = field(default_factory=list)
    ev_changes: list[MeasuredEvChange] = field(default_factory=list)

    @property
    def possible_bps(self) -> float:
        """Rate that headers and SACKs leave of a host's capacity for payload."""
        return (self.payload_share or 0.0) * self.host_bps


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
    return execute.software(pathlib.Path(__file__), pathlib.Path(__file__))


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

        result = execute.run_on(session, runs, observe, recording)
        lost = lost_between_switches(session) - before
        shown = list(verdict.findings(result, topology, experiment.claims()))
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
