"""Statistics of an endpoint: documents whose keys are the names of the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mrc_host.proto.events import EvState


@dataclass(frozen=True)
class PortStatistics:
    """A port: whether the administrator enabled it (`enabled`), whether it has a link, and its traffic."""

    port: int
    up: bool
    carrier: bool
    enabled: bool
    sent_packets: int
    sent_bytes: int
    received_packets: int
    received_bytes: int


@dataclass(frozen=True)
class RocePortStatistics(PortStatistics):
    """A port with priority flow control or credits: pauses received, time paused and time without credits."""

    pauses_received: int
    paused_ns: int
    credit_stall_ns: int


@dataclass(frozen=True)
class CcStatistics:
    """Congestion control towards a peer: window and bytes in flight, base and smoothed RTT."""

    cwnd: int
    inflight: int
    base_rtt_ns: int
    srtt_ns: int


@dataclass(frozen=True)
class NsccStatistics(CcStatistics):
    """`CcStatistics` with the queueing delay, its target, and the case of the latest acknowledgement."""

    qdelay_ns: int
    target_qdelay_ns: int
    case: str


@dataclass(frozen=True)
class PeerStatistics:
    """A congestion context of a peer: usable planes, scheduling state, bytes by which planes are ahead."""

    address: str
    planes: Sequence[bool]
    scheduling: str
    balance_level_bytes: Sequence[int]
    cc: NsccStatistics | CcStatistics


@dataclass(frozen=True)
class QpStatistics:
    """A queue pair of MRC. `ev_states` counts EVs by the name of their state, `ev_active` active ones by plane;
    `requestor` and `responder` are counters by name (`proto.stats`).
    `lost_packets`: those of the outstanding ones that are inferred lost and not sent again yet."""

    qpn: int
    state: str
    error: str | None
    peer: str | None
    outstanding_packets: int
    lost_packets: int
    unacked_requests: int
    srtt_ns: int
    ev_states: Mapping[str, int]
    ev_active: Sequence[int]
    requestor: Mapping[str, int]
    responder: Mapping[str, int]


@dataclass(frozen=True)
class QpReordering:
    """Reorder distances of packets at a queue pair (`proto.stats.Reordering`); `packets` are all that it
    placed, `late` counts by distance in packets, `late_bytes` in bytes, `again` the late retransmissions."""

    qpn: int
    peer: str | None
    packets: int
    late: Sequence[int]
    late_bytes: Sequence[int]
    again: int


@dataclass(frozen=True)
class RoceQpStatistics:
    """A queue pair of RoCE."""

    qpn: int
    state: str
    port: int
    entropy: int
    rate_bps: int
    packets_sent: int
    retransmissions: int
    outstanding: int


@dataclass(frozen=True)
class MrcStatistics:
    """Statistics of an MRC endpoint: counters, drops by reason, ports, congestion contexts of peers, queue pairs.

    `gone_requestors` and `gone_responders` are the sums of the counters of queue pairs that are gone. `instance`: of
    the endpoint; one that starts again counts from 0 and has another.
    """

    endpoint: Mapping[str, int]
    drops: Mapping[str, int]
    ports: Sequence[PortStatistics]
    peers: Sequence[PeerStatistics]
    qps: Sequence[QpStatistics]
    gone_requestors: Mapping[str, int] = field(default_factory=dict)
    gone_responders: Mapping[str, int] = field(default_factory=dict)
    instance: int = 0


@dataclass(frozen=True)
class RoceStatistics:
    """Statistics of a RoCE endpoint: counters, drops by reason, ports, queue pairs."""

    transport: Literal["roce"]
    endpoint: Mapping[str, int]
    drops: Mapping[str, int]
    ports: Sequence[RocePortStatistics]
    qps: Sequence[RoceQpStatistics]


@dataclass(frozen=True)
class EvRow:
    """An EV of a queue pair: its value, plane, its state, whether it is active, losses inferred on it."""

    ev: int
    plane: int
    state: EvState
    active: bool
    losses: int


Statistics = MrcStatistics | RoceStatistics
