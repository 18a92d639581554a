"""Documents in which a host reports its state; several of them go into the result of a run.

Frozen documents with the keys of their fields; `mrc_topo.base.plain` makes JSON of them and reads it. In documents of
other versions what is missing of progress is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mrc_host.proto.statistics import EvRow, MrcStatistics, PortStatistics, QpReordering, RoceStatistics
from mrc_host.proto.waiting import Waiting
from mrc_topo.base.plain import OMIT_NONE

__all__ = [
    "EvEvent", "EvRow", "Event", "FaultEvent", "FlowTimes", "HostFidelity", "HostStatistics", "JobProgress",
    "JobWaiting", "LagSummary", "LatencyTimes", "LinkStatistics", "Measured", "MrcHostStatistics", "PortEvent",
    "PortStatistics", "ProbeRow", "QpEvent", "QpWaiting", "RoceHostStatistics", "Sample", "Software", "Stream", "Times",
    "TrainingTimes",
]  # fmt: skip

# -- what workloads measure -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """A distribution of times in ns, by the names of perftest; `typical` is the median. Of too few times a quantile is
    None (`mrc_topo.base.quantiles`)."""

    count: int
    min: int
    typical: int
    mean: float
    stdev: float
    p99: int | None
    p99_9: int | None
    max: int


@dataclass(frozen=True)
class LatencyTimes(Times):
    """Half round trips of messages to the rank `peer`."""

    message_bytes: int
    peer: int


@dataclass(frozen=True)
class Stream:
    """A stream of messages of equal size: those acknowledged, peak and average bandwidth, beginning and end."""

    message_bytes: int
    messages: int
    bytes: int
    peak_bps: float
    average_bps: float
    began_ns: int
    ended_ns: int
    messages_per_s: float
    completion_ns: Times | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class FlowTimes:
    """A flow of a connection matrix: number, receiving rank, bytes, and when it started and was acknowledged."""

    number: int
    target: int
    bytes: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True)
class TrainingTimes:
    """When the latest steps ended, how long the rank computed, the times of its operations by name, and how long in a
    step it waited without computing (`trace`)."""

    ends_ns: Sequence[int]
    computed_ns: int
    operations: Mapping[str, Times]
    exposed_ns: Times | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Measured:
    """What a rank of a workload measured; each part is there for the workloads that measure it.

    `iteration_ns`: times of iterations; `latency_ns`: of write_lat; `streams`: those that the rank sends, by the
    rank that receives; `training`: of training; `flows`: of a connection matrix.
    """

    iteration_ns: Times | None = field(default=None, metadata=OMIT_NONE)
    latency_ns: LatencyTimes | None = field(default=None, metadata=OMIT_NONE)
    streams: Mapping[str, Stream] | None = field(default=None, metadata=OMIT_NONE)
    training: TrainingTimes | None = field(default=None, metadata=OMIT_NONE)
    flows: Sequence[FlowTimes] | None = field(default=None, metadata=OMIT_NONE)


# -- jobs -----------------------------------------------------------------------------------------------------------


@dataclass
class JobProgress:
    """The progress of a rank.

    A workload counts in its own instance; an answer is a copy with the state of the job. `takes_part` is false for a
    rank that the workload gives nothing to do. `first_ns`: when the first iteration ended; measurements from then on
    are warm. The fields from `done` on are set by the job: `moved`, a number that changes whenever there is progress;
    `measured`, of a job that has ended.
    """

    takes_part: bool = True
    iterations: int = 0
    bytes_sent: int = 0
    bytes_verified: int = 0
    mismatches: int = 0
    started_ns: int = 0
    first_ns: int = 0
    finished_ns: int = 0
    failure: str = ""
    workload: str = ""
    rank: int = 0
    done: bool = False
    qps: int = 0
    qps_in_rts: int = 0
    requests_posted: int = 0
    requests_ended: int = 0
    moved: int | None = field(default=None, metadata=OMIT_NONE)
    measured: Measured | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class QpWaiting:
    """A queue pair with unfinished requests: what it waits for (`mrc_host.proto.waiting.Waiting`), and for how long."""

    what: str
    psn: int
    sent: int
    packets: int
    planes: Sequence[int]
    patience_ns: int | None
    qpn: int
    peer: str
    for_ns: int

    @classmethod
    def of(cls, found: Waiting, qpn: int, peer: str, now: int) -> QpWaiting:
        """Return the wait of a queue pair to a peer at the time `now`."""
        return cls(
            what=found.what,
            psn=found.psn,
            sent=found.sent,
            packets=found.packets,
            planes=found.planes,
            patience_ns=found.patience_ns,
            qpn=qpn,
            peer=peer,
            for_ns=now - found.since_ns,
        )


@dataclass(frozen=True)
class JobWaiting:
    """What a rank waits for: queue pairs with unfinished requests, longest first, and what its workload needs from the
    hosts `awaits`. `puts`: writes under way."""

    qps: Sequence[QpWaiting]
    done: bool
    puts: int
    what: str
    awaits: Sequence[str]
    failure: str


# -- the host -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkStatistics:
    """Packets that a host has put on the link of a port, and taken from it: those of the endpoint, but for the ones to
    the host itself, probes of the Clustermapper, and what its kernel sends. MAC control frames are not among them."""

    sent_packets: int
    received_packets: int


@dataclass(frozen=True)
class MrcHostStatistics(MrcStatistics):
    """Statistics of an MRC endpoint; `faults` counts errors of the agent itself, `links` are by port, `reordering` of
    queue pairs to which packets came."""

    faults: int = 0
    links: Sequence[LinkStatistics] = ()
    reordering: Sequence[QpReordering] = ()


@dataclass(frozen=True)
class RoceHostStatistics(RoceStatistics):
    """Statistics of a RoCE endpoint; `faults` counts errors of the agent itself, `links` are by port."""

    faults: int = 0
    links: Sequence[LinkStatistics] = ()


#: In this order: only the second has the key `transport`.
HostStatistics = RoceHostStatistics | MrcHostStatistics


@dataclass(frozen=True)
class Sample:
    """A point of a host's time series at `t_ns`.

    Cumulative: bytes by port, delivered payload, retransmissions, losses, trims, marks, timeouts, and spurious
    retransmissions (packets that the host received a second time). Levels: EVs by the name of their state (`ev`),
    and `cc`: of MRC `cwnd` and `inflight` (sums over peers) and `rtt_ns` (mean over peers), of RoCE `rate_bps`.
    """

    t_ns: int
    tx_bytes: Sequence[int]
    rx_bytes: Sequence[int]
    ports_up: int
    delivered_bytes: int
    packets: int
    retransmissions: int
    losses: int
    trims: int
    marks: int
    timeouts: int
    spurious_retransmissions: int
    ev: Mapping[str, int]
    cc: Mapping[str, int]


@dataclass(frozen=True)
class LagSummary:
    """How late the loop of a process ran: the count, and quantiles in ns."""

    count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True)
class Software:
    """How the core runs: `core` is compiled or pure, `crc` is isal or zlib."""

    core: str
    crc: str


@dataclass(frozen=True)
class HostFidelity:
    """How well an agent kept up: loop lag, CPU share since `wall_ns`, frames lost on the rings. `process` names all
    hosts of the process."""

    loop_lag: LagSummary
    cpu_share: float
    wall_ns: int
    rx_ring_drops: int
    tx_errors: int
    process: Sequence[str] = ()
    software: Software | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class ProbeRow:
    """The probes of a switch by a host: the latest answers (1, or 0 for none; newest last), counts and RTT."""

    target: str
    port: int
    history: Sequence[int]
    sent: int
    lost: int
    late: int
    rtt_ns: int


# -- the log of a host ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QpEvent:
    """A queue pair changed its state; `peer` names the host, if the queue pair is of a job."""

    t_ns: int
    kind: Literal["qp"]
    qpn: int
    peer: str | None
    old: str
    new: str
    reason: str | None


@dataclass(frozen=True)
class EvEvent:
    """An EV of a queue pair changed its state (names of `EvState`)."""

    t_ns: int
    kind: Literal["ev"]
    qpn: int
    ev: int
    plane: int
    old: str
    new: str
    cause: str
    losses: int


@dataclass(frozen=True)
class FaultEvent:
    """An error of the agent itself; `peer`: the address in hexadecimal digits."""

    t_ns: int
    kind: Literal["fault"]
    where: str
    error: str
    detail: str
    peer: str | None


@dataclass(frozen=True)
class PortEvent:
    """A port changed its state, the host's own or that of a peer (address in hexadecimal digits)."""

    t_ns: int
    kind: Literal["port"]
    port: int
    up: bool
    peer: str | None


Event = QpEvent | EvEvent | FaultEvent | PortEvent
