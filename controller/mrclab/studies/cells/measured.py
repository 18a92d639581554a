"""Measurements of a cell (`measure.measure`): a typed document, kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mrclab.results.check import Check
from mrclab.results.performance import FlowRow, IterationsRow, LatencyRow, StreamRow


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
    """How many EVs the queue pairs of a host send on, from a time on."""

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
    """What a cell leaves; the same for the same inputs.

    `iteration_s`: of one iteration over all ranks, None if it failed. `lost`: packets that failures took from links
    between switches. `qps` sent, and of them `qps_hit` took an EV for bad across the first broken element, the last of
    these `found_s` after it broke. `host_bps`: capacity of a host. `watched`: by host or port of `Cell.watch`.
    `payload_share`: of all that the links of a host carry that sends as much as it receives (`ideal.payload_share`),
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
        """What headers and SACKs leave of a host's capacity for payload."""
        return (self.payload_share or 0.0) * self.host_bps
