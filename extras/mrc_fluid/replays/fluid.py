"""A graph on the fluid model: its fabric, its placement, its steps, and what they say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mrc_fluid import kernels
from mrc_fluid.carrier import Carrier
from mrc_fluid.cases import Modelled, not_modelled
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.fabric import Fabric, FabricShape, Floats, Ints, UnknownElement
from mrc_fluid.kernels import Kernels
from mrc_fluid.replay import Latency, Replay, StepTimes
from mrc_fluid.timeline import Event
from mrc_host.graph.graph import GraphError, Op
from mrc_host.graph.schedule import Schedule, message_count
from mrc_host.graph.source import Source, load, schedule
from mrc_topo.base.plain import encode
from mrc_topo.graph_topology import require_clos
from mrc_topo.schema import HEADER_BYTES
from mrc_topo.topology import Topology
from mrc_topo.units import parse_time_ns
from mrclab.lab import describe
from mrclab.results import wire
from mrclab.results.steps import TimeSummary, TrainingSummary, time_summary

Detail = Literal["auto", "messages", "phases"]
#: Messages of a step beyond which `auto` takes phases.
MOST_MESSAGES = 100_000
#: Of a graph in phases: how many moments a step has in which shares can change.
MOMENTS = 1000
#: Steps of a run; more would repeat the same.
MAX_STEPS = 1000


@dataclass(frozen=True)
class Bed:
    """The fabric that carries a graph, latencies of an empty packet (ns for a link, and of an answer's way), and bytes
    around the payload of a packet."""

    loaded: Loaded
    name: str
    link_ns: float
    stores: bool
    answer_ns: float
    header: int = HEADER_BYTES


def bed_of_cluster(loaded: Loaded) -> Bed:
    """Return a cluster as it is; its base RTT is that of its longest paths."""
    half = loaded.cluster.base_rtt / 2
    return Bed(loaded, loaded.cluster.name, half / longest(loaded.shape), False, half)


def bed_of_lab(topology: Topology) -> Bed:
    """Return the fabric of a lab, with its rates, delays and EVs.

    Raises:
        ClusterError: the model has no such fabric.
        UsageError: the lab's fabric is a graph.
    """
    lab = topology.lab
    require_clos(topology, "the fluid model")
    paths = lab.planes * max(lab.t1_per_plane, 1)

    def evs(count: int) -> int:
        return max(min(count, paths) // lab.planes, 1) * lab.planes

    # What a lab's packets and acknowledgements have on its links, which count other bytes than those of a cluster.
    costs = wire.costs(topology, "mrc", 1, lab.reliability.sack_every * lab.path_mtu)
    data, header = costs.packets * costs.frame_bytes, costs.frame_bytes - lab.path_mtu
    document = {
        "name": lab.name, "planes": lab.planes, "nics": lab.hosts, "nics_per_t0": lab.hosts_per_t0,
        "radix": -(-max(lab.hosts_per_t0 + lab.t1_per_plane, lab.t0_per_plane) // 2) * 2,
        "t1_per_plane": max(lab.t1_per_plane, 1),
        "port_rate": lab.links.host.rate, "fabric_rate": lab.links.fabric.rate,
        "base_rtt": describe.base_rtt_ns(topology, "virtual"), "path_mtu": lab.path_mtu, "seed": lab.seed,
        "ev": {
            "size": evs(lab.ev.size), "active": evs(lab.ev.active),
            "min_active": min(lab.ev.min_active, evs(lab.ev.active)),
        },
        "jobs": [{"name": "graph", "kind": "ring"}],
        "model": {"nic_share": data / (data + costs.acks * costs.ack_bytes)},
    }  # fmt: skip
    link = (lab.links.host.delay + lab.links.fabric.delay) / 2
    return Bed(parse_cluster(json.dumps(document), f"lab {lab.name}"), lab.name, link, True, 4 * link, header)


def longest(shape: FabricShape) -> int:
    """Return the number of links of the longest paths from NIC to NIC."""
    return 6 if shape.pods > 1 else 4


def event_of(text: str, loaded: Loaded) -> list[Event]:
    """Return the failure that `ELEMENT@AT` or `ELEMENT@AT+FOR` describes, with its repair.

    Raises:
        GraphError: it describes none.
    """
    name, _, rest = text.partition("@")
    at, _, lasts = rest.partition("+")
    try:
        Fabric(loaded.shape).change(name, 1)
        made = [Event(parse_time_ns(at), 1, name)]
        if lasts:
            made.append(Event(made[0].at + parse_time_ns(lasts), -1, name))
    except (UnknownElement, ValueError) as error:
        raise GraphError(f"--fail {text[:80]}: {error}; write p0-t1.3@5ms or p0-t1.3@5ms+20ms") from None
    return made


@dataclass(frozen=True)
class Carried:
    """What messages carried: bytes of payload in all steps; the seconds of these steps, and those of them in which at
    least one message was under way; queue pairs, and those of them that cross links between switches."""

    payload: float
    seconds: float
    under_way_s: float
    queue_pairs: int
    crossing: int

    @property
    def goodput_bps(self) -> float:
        """Goodput of all ranks over all steps, bit/s."""
        return self.payload * 8 / self.seconds if self.seconds else 0.0

    @property
    def goodput_under_way_bps(self) -> float:
        """Goodput of all ranks while messages were under way, bit/s."""
        return self.payload * 8 / self.under_way_s if self.under_way_s else 0.0


@dataclass(frozen=True)
class FluidResult:
    """A graph's run on the fluid model; `known`: elements that are broken from the start and known to all hosts;
    `seconds`: of this machine; `states`: steady states that were computed; `notes`: what of a file is not used."""

    source: Source
    bed: Bed
    detail: str
    ranks: int
    operations: int
    messages: int
    resolution_ns: float
    events: Sequence[Event]
    summary: TrainingSummary
    rank_steps: TimeSummary
    carried: Carried
    known: Sequence[str]
    seconds: float
    states: int
    notes: Sequence[str] = ()

    def document(self) -> dict[str, object]:
        """Return the result as JSON."""
        known = Modelled.GOODPUT not in not_modelled(replace(self.bed.loaded, events=list(self.events)))
        return {
            "model": "fluid",
            "source": {key: value for key, value in vars(self.source).items() if value != getattr(Source, key)},
            "fabric": self.bed.name,
            "detail": self.detail,
            "ranks": self.ranks,
            "operations": self.operations,
            "messages": self.messages,
            "resolution_s": self.resolution_ns / 1e9,
            "events": [{"at_s": each.at / 1e9, "element": each.name, "fails": each.by > 0} for each in self.events],
            "training": encode(self.summary),
            "rank_steps": encode(self.rank_steps),
            "goodput_bps": self.carried.goodput_bps if known else None,
            "goodput_under_way_bps": self.carried.goodput_under_way_bps if known else None,
            "under_way_s": self.carried.under_way_s,
            "queue_pairs": self.carried.queue_pairs,
            "queue_pairs_across_switches": self.carried.crossing,
            "seconds": self.seconds,
            "steady_states": self.states,
        }


def run(
    source: Source, bed: Bed, made_by: Kernels, *, steps: int = 1, detail: Detail = "auto",
    resolution_ns: float | None = None, extra: Sequence[Event] = (),
    show: Callable[[float, str], None] = lambda share, text: None,
) -> FluidResult:  # fmt: skip
    """Run a graph on the fluid model.

    `resolution_ns` (default: a round trip, or a thousandth of the longest computation if that is more): see `replay`.

    Raises:
        GraphError: there is no such graph, or it has no place on this fabric.
        ReplayError: it cannot go on.
    """
    began = time.monotonic()
    if not 1 <= steps <= MAX_STEPS:
        raise GraphError(f"iterations: {steps} steps; from 1 to {MAX_STEPS} can be run")
    loaded, shape = bed.loaded, bed.loaded.shape
    show(0.0, "reading the graph")
    if detail == "auto":
        detail = "messages" if message_count(load(source)) <= MOST_MESSAGES else "phases"
    made = schedule(source, _hop(bed) if detail == "phases" else None)
    hosts = source.hosts(made.ranks, shape.nics, shape.per_t0)
    src, dst = hosts[made.flow_src], hosts[made.flow_dst]
    if not len(src):
        raise GraphError(
            "no rank sends a message, so there is nothing for a fabric to carry; give a model several replicas or "
            "stages (--set data=8, --set pipeline=4), or a trace of one rank several ranks (--set ranks=8)"
        )
    crossing = int(np.count_nonzero(src // shape.per_t0 != dst // shape.per_t0))
    if resolution_ns is None:
        computed = np.bincount(made.rank[made.counts], made.work[made.counts], made.ranks).max(initial=0.0)
        resolution_ns = max(float(loaded.cluster.base_rtt), computed / MOMENTS if detail == "phases" else 0.0)
    events = sorted([*loaded.events, *extra])
    show(0.0, f"drawing the EVs of {len(src)} queue pairs")
    with ThreadPoolExecutor(kernels.workers()) as pool:
        carrier = Carrier(loaded, made_by, pool, src, dst)
        carrier.run.payload = loaded.cluster.path_mtu / (loaded.cluster.path_mtu + bed.header)
        known = [each for each in events if each.at <= 0 and loaded.cluster.denylist]
        if known:
            carrier.change(known, denied=True)
        done = [0]

        def progress(count: int) -> None:
            done[0] += count
            show(done[0] / (len(made) * steps), f"{done[0]} of {len(made) * steps} operations")

        later = [each for each in events if each not in known]
        replay = Replay(made, carrier, _latency(bed, src, dst), resolution_ns, later, progress)
        rows = []
        begin = np.zeros(made.ranks)
        for _ in range(steps):
            rows.append(replay.step(begin))
            begin = _next(made, rows[-1].over)
    show(1.0, "")
    summary, rank_steps = summarise(made, rows, events)
    if Modelled.STEPS in not_modelled(replace(loaded, events=events)):
        # What is not told is not in the result: only steps without a failure are.
        kept = {during: each for during, each in summary.times.items() if during == "whole"}
        summary = replace(summary, times=kept, operations={}, exposed=None)
    return FluidResult(
        source, bed, detail, made.ranks, len(made), len(made.sends), resolution_ns, events, summary, rank_steps,
        carried(made, rows, crossing), sorted({each.name for each in known}), time.monotonic() - began, carrier.states,
        load(source).notes,
    )  # fmt: skip


def _hop(bed: Bed) -> float:
    """Return the time of a full packet from NIC to NIC on a longest path, beside its own transmission, ns."""
    shape, bits = bed.loaded.shape, (bed.loaded.cluster.path_mtu + bed.header) * 8e9
    links = longest(shape)
    stored = bits * ((links - 2) / shape.fabric_bps + 1 / shape.port_bps) if bed.stores else 0.0
    return links * bed.link_ns + stored


def _latency(bed: Bed, src: Ints, dst: Ints) -> Latency:
    shape, mtu = bed.loaded.shape, bed.loaded.cluster.path_mtu
    # Two links below one T0, four across a T1, six across a T2; the last packet is stored by each switch between them.
    t0s = src // shape.per_t0, dst // shape.per_t0
    pods = shape.pod_of[t0s[0]], shape.pod_of[t0s[1]]
    links = np.where(t0s[0] == t0s[1], 2.0, np.where(pods[0] == pods[1], 4.0, 6.0))
    store = (links - 2) * 8e9 / shape.fabric_bps + 8e9 / shape.port_bps if bed.stores else np.zeros(len(links))
    port = 8e9 / shape.port_bps
    return Latency(
        links * bed.link_ns, store, bed.answer_ns * links / longest(shape), mtu, bed.header, shape.planes, port
    )


def _next(made: Schedule, over: Floats) -> Floats:
    """Return when each rank begins its next step: when it and those to which it sends have ended theirs."""
    begin = over.copy()
    np.maximum.at(begin, made.flow_src, over[made.flow_dst])
    return begin


def _of(seconds: Floats) -> TimeSummary:
    """Return the statistics of times, s."""
    return time_summary(seconds.tolist())


def summarise(
    made: Schedule, rows: Sequence[StepTimes], events: Sequence[Event]
) -> tuple[TrainingSummary, TimeSummary]:
    """Return the summary of steps as runs on packets have it, and the times of a rank's step."""
    computed = [busy(made, row) for row in rows]
    spent = [row.over - row.begin for row in rows]
    broken = _broken(events)
    steps: list[tuple[int, float, float, bool]] = []
    begin = 0.0
    for number, row in enumerate(rows):
        end = float(row.over.max(initial=0.0))
        saw = any(since < end and begin < until for since, until in broken)
        steps.append((number, begin / 1e9, (end - begin) / 1e9, saw))
        begin = end
    times: dict[str, TimeSummary] = {}
    for during in ("all", "broken", "whole"):
        chosen = [seconds for _, _, seconds, saw in steps if during == "all" or saw == (during == "broken")]
        if chosen:
            times[during] = _of(np.array(chosen))
    operations: dict[str, TimeSummary] = {}
    for number, label in enumerate(made.labels):
        spans = made.span_label == number
        first, last = made.span_begin[spans], made.span_end[spans]
        operations[label] = _of(np.concatenate([row.end[last] - row.ready[first] for row in rows]) / 1e9)
    whole, busy_ns = float(np.sum(spent)), float(np.sum(computed))
    exposed = _of((np.concatenate(spent) - np.concatenate(computed)) / 1e9)
    summary = TrainingSummary(steps, times, 1 - busy_ns / whole if whole else 0.0, operations, exposed)
    return summary, _of(np.concatenate(spent) / 1e9)


def carried(made: Schedule, rows: Sequence[StepTimes], crossing: int) -> Carried:
    """Return what the messages of all steps carried; `crossing`: queue pairs that cross links between switches."""
    ops = made.sends[made.work[made.sends] > 0]
    start, end = (np.concatenate(part) for part in zip(*((row.start[ops], row.end[ops]) for row in rows), strict=True))
    order = np.argsort(start)
    reached = np.maximum.accumulate(end[order])
    before = np.concatenate([start[order][:1], reached[:-1]])
    under_way = float(np.maximum(reached - np.maximum(start[order], before), 0.0).sum())
    seconds = max((float(row.over.max(initial=0.0)) for row in rows), default=0.0) / 1e9
    return Carried(float(made.work[ops].sum()) * len(rows), seconds, under_way / 1e9, len(made.flow_src), crossing)


def _broken(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Return when something was broken, ns."""
    found: list[tuple[float, float]] = []
    count, since = 0, 0.0
    for each in events:
        if count == 0 and each.by > 0:
            since = each.at
        count += each.by
        if count == 0:
            found.append((since, each.at))
    return [*found, (since, float("inf"))] if count > 0 else found


def busy(made: Schedule, row: StepTimes) -> Floats:
    """Return for each rank how long at least one of its units computed, ns."""
    ops = np.flatnonzero((made.kind == Op.COMPUTE) & made.counts)
    found = np.zeros(made.ranks)
    if not len(ops):
        return found
    ops = ops[np.lexsort((row.start[ops], made.rank[ops]))]
    rank, start, end = made.rank[ops], row.start[ops], row.end[ops]
    # Each rank's times behind those of the one before: a running maximum then never reaches into the next rank.
    apart = rank * (float(end.max()) + 1.0)
    reached = np.maximum.accumulate(end + apart)
    before = np.concatenate([[0.0], reached[:-1]])
    covered = np.maximum(end + apart - np.maximum(start + apart, before), 0.0)
    np.add.at(found, rank, covered)
    return found
